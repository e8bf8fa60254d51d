# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# What is built from this tree: the module and everything in user space, under
# out/. Each is built again only when a file that it is made from has changed.
# Part of setup.

# shellcheck source=dev/setup/rdma-core.sh
source "$TOP/dev/setup/rdma-core.sh"

# tree_files DIR...: lists the files below DIR with size and time.
tree_files() {
	(cd "$TOP" && { find "$@" -type f -printf '%p %s %T@\n' 2>/dev/null || true; } | LC_ALL=C sort)
}

# tree_key DIR...: a key that changes when a file below DIR changes, appears or goes.
tree_key() { tree_files "$@" | hash_of; }

kernel_build() {
	if [[ $K_FLAVOUR == kdir ]]; then
		printf '%s' "$KDIR"
	else
		printf '%s/build' "$(kernel_dir)"
	fi
}

# The source of the kernel, also for its selftest harness, checkers and logo.
kernel_source() {
	if [[ $K_FLAVOUR == kdir ]]; then
		kdir_source "$KDIR"
	else
		printf '%s' "${KSRC:-$(source_dir)}"
	fi
}

# Where bindgen-cached keeps what this version of bindgen made.
bindgen_dir() { printf '%s/bindgen-%s' "$CACHE" "$({ root_key; cat "$(root_dir).toolchain"; } | hash_of)"; }

# The variables that a module build for this kernel takes: its own compilers.
module_make_args() {
	case $K_FLAVOUR in
	stock) MODULE_MAKE=(CC=x86_64-linux-gnu-gcc-14 KERNELRELEASE="$(cat "$(kernel_dir)/release")") ;;
	kdir)
		MODULE_MAKE=()
		if grep -q '^CONFIG_CC_IS_CLANG=y' "$KDIR/.config"; then MODULE_MAKE=(LLVM=-19); fi
		;;
	*) MODULE_MAKE=(LLVM=-19) ;;
	esac
	[[ $K_FLAVOUR == kdir ]] || MODULE_MAKE+=(BINDGEN="$TOP/dev/setup/bindgen-cached $(bindgen_dir) $TOP")
}

build_module() {
	local out=$TOP/out/$K_ID/modules
	mkdir -p "$out"
	find "$CACHE"/bindgen-* -type f -mtime +30 -delete 2>/dev/null || true
	inroot make -C "$(kernel_build)" M="$TOP" MO="$out" "${MODULE_MAKE[@]}" ${MODULES:+MKEY_ALONE=1} -j"$(nproc)" modules
	local ko=$out/drivers/infiniband/ulp/mkey/ib_mkey.ko deps
	# Lets modprobe find the module in this directory.
	deps=$(inroot modinfo -F depends "$ko" | tr , ' ')
	cat >"$out/modprobe.conf" <<-EOF
		install ib_mkey ${deps:+modprobe -a $deps && }insmod $ko \$CMDLINE_OPTS
		softdep ib_uverbs pre: ib_mkey
	EOF
}

# MODULES=-alone: without the modules of the samples and of the selftests. What is built
# then has another stamp. All of them will do, too.
MODULES=
module_stamp() { printf '%s/out/%s/.module' "$TOP" "$K_ID"; }
module_key() { # MODULES
	local dirs=(Kbuild scripts drivers include rust/bindings rust/helpers rust/kernel rust/layout/src)
	[[ $1 == -alone ]] || dirs+=(samples tools/testing/selftests/rdma/mkey/test_modules)
	printf '%s-%s-%s' "$(kernel_build)" "$(stat -c %Y "$(kernel_build)/Module.symvers")" "$(tree_key "${dirs[@]}")"
}
module_has_stamp() { [[ $(cat "$(module_stamp)$1" 2>/dev/null) == "$(module_key "$1")" ]]; }
module_is_built() {
	built_here && [[ -f $TOP/out/$K_ID/modules/modprobe.conf ]] || return 1
	module_has_stamp '' || { [[ -n $MODULES ]] && module_has_stamp "$MODULES"; }
}
module_is_done() { printf '%s' "$1" >"$(module_stamp)$MODULES"; } # KEY

setup_module() {
	local key
	! module_is_built || return 0
	key=$(module_key "$MODULES")
	module_make_args
	step "module-$K_ID" "Module ib_mkey for $K_ID" "1 min" build_module
	module_is_done "$key"
}

# Directories with a Makefile that installs into O=; each comes after those it needs.
USER_DIRS=(tools/lib/ibmkey tools/lib/ibmkey-mlx5dv tools/lib/ibmkey-mpi tools/python/ibmkey tools/mkeyctl samples tools/bench/guest tools/testing/selftests/rdma/mkey)

# All that make demo needs; the rest is built when another command needs it.
DEMO_DIRS=(tools/lib/ibmkey samples)

# Which target of each directory to build; the directories of DEMO_DIRS have demo, too.
USER_TARGET=all

build_dir() { # DIR [ARG]...
	local d=$1
	shift
	CARGO_TARGET_DIR=$TOP/out/cargo inroot make -C "$TOP/$d" O="$TOP/out/user" "$@" "$USER_TARGET"
}

# The first ones take most of the time, and need no kernel. The set-up of a kernel and the
# build of the module leave a processor idle at times, so another process builds them then,
# at a low priority. An error there occurs again when all of them are built, and is reported then.
EARLY_DIRS=(tools/lib/ibmkey tools/lib/ibmkey-mlx5dv tools/lib/ibmkey-mpi tools/mkeyctl samples)
build_early() {
	local d
	lock_tree
	# The build of the module takes the tree's lock.
	take_lock "$(early_lock)" "building in $TOP"
	mkdir -p "$TOP/out/user"
	crates_take crates "$TOP/out/cargo"
	for d in "${EARLY_DIRS[@]}"; do
		build_dir "$d"
	done
}
early_lock() { printf '%s/out/early.lock' "$TOP"; }
# The lock ends with the shell that waits.
wait_for_early() {
	local fd
	exec {fd}>"$(early_lock)"
	flock "$fd"
}
start_early() { # STAGE
	# Only while a kernel is made that takes a while, and the tree is new.
	[[ $K_FLAVOUR != kdir && ! -e $(kernel_dir).record && ! -e $(user_stamp) ]] || return 0
	# It cannot ask for a password.
	(($(id -u) == 0)) || sudo -n true 2>/dev/null || return 0
	say "Meanwhile: ${EARLY_DIRS[*]} (log: out/log/early.log)"
	background nice -n 10 "$TOP/dev/setup/setup" early "$1" >/dev/null 2>&1
}

build_user() {
	local d
	wait_for_early
	mkdir -p "$TOP/out/user"
	# Remove what has changed since: make rebuilds missing files only.
	[[ ! -s $(user_stamp).files ]] || tree_files out/user | LC_ALL=C comm -13 "$(user_stamp).files" - |
		(cd "$TOP" && cut -d ' ' -f 1 | xargs -r rm)
	crates_take crates "$TOP/out/cargo"
	copy_rdma_core "$TOP/out/user/rdma-core"
	for d in "${USER_DIRS[@]}"; do
		[[ -f $TOP/$d/Makefile ]] || continue
		echo "== $d"
		build_dir "$d" -j"$(nproc)" KSRC="$(kernel_source)"
	done
}

# The key covers the files that were built, too.
user_stamp() { printf '%s/out/.user' "$TOP"; }
user_sources() { printf '%s-%s-%s' "$(root_key)" "$(rdma_core_key)" "$(tree_key "${USER_DIRS[@]}" tools/bench rust/layout include)"; }
user_is_built() { built_here && [[ $(cat "$(user_stamp)" 2>/dev/null) == "$(user_sources)-$(tree_key out/user)" ]]; }
user_is_done() { # SOURCES
	tree_files out/user >"$(user_stamp).files"
	printf '%s-%s' "$1" "$(hash_of <"$(user_stamp).files")" >"$(user_stamp)"
}

setup_user() {
	local key
	! user_is_built || return 0
	setup_rdma_core
	key=$(user_sources)
	step user "Libraries, tools, samples and selftests" "1-2 min" build_user
	user_is_done "$key"
}

# Runs both builds at once: the module is one crate and keeps one processor busy.
# errexit works in both, because they run in the background.
build_all() {
	local module user rc=0
	build_user >"$LOGS/user.log" 2>&1 &
	user=$!
	build_module &
	module=$!
	wait "$module" || rc=$?
	wait "$user" || { rc=$?; tail -n 40 "$LOGS/user.log"; }
	return "$rc"
}

setup_module_and_user() {
	local module user
	if module_is_built || user_is_built; then
		setup_module
		setup_user
		return
	fi
	setup_rdma_core
	module=$(module_key "$MODULES") user=$(user_sources)
	module_make_args
	step "build-$K_ID" "Module ib_mkey for $K_ID; libraries, tools, samples and selftests" "1-2 min" build_all
	module_is_done "$module"
	user_is_done "$user"
}

# The key of the demonstration's programs, if all else in user space is not built.
demo_stamp() { printf '%s/out/.demo' "$TOP"; }
demo_key() { printf '%s-%s' "$(root_key)" "$(tree_key "${DEMO_DIRS[@]}" include out/user/bin/mkey_demo out/user/bin/mkey_picture)"; }
demo_is_built() { user_is_built || { built_here && [[ $(cat "$(demo_stamp)" 2>/dev/null) == "$(demo_key)" ]]; }; }

setup_demo() {
	if demo_is_built; then
		setup_module
		return
	fi
	USER_DIRS=("${DEMO_DIRS[@]}")
	if module_is_built; then
		step user "Library, demonstration and samples" "1 min" build_user
	else
		local module
		module=$(module_key "$MODULES")
		module_make_args
		step "build-$K_ID" "Module ib_mkey for $K_ID; library, demonstration and samples" "1-2 min" build_all
		module_is_done "$module"
	fi
	demo_key >"$(demo_stamp)"
}
