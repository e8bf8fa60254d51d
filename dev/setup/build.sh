# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# What is built from this tree: the module (module.sh) and everything in user space, under
# out/. Each is built again only when a file that it is made from has changed.
# Part of setup.

# shellcheck source=dev/setup/rdma-core.sh
source "$TOP/dev/setup/rdma-core.sh"
# shellcheck source=dev/setup/module.sh
source "$TOP/dev/setup/module.sh"

# tree_files DIR...: lists the files below DIR with size and time.
tree_files() {
	(cd "$TOP" && { find "$@" -type f -printf '%p %s %T@\n' 2>/dev/null || true; } | LC_ALL=C sort)
}

# tree_key DIR...: a key that changes when a file below DIR changes, appears or goes.
tree_key() { tree_files "$@" | hash_of; }

# What a command needs of user space: directories with a Makefile that installs into O=, each after
# those that it needs. A larger set has all of a smaller one.
USERS=all
user_dirs() { # [USERS]
	local dirs=(tools/lib/ibmkey tools/mkeyctl)
	[[ ${1-$USERS} == demo ]] || dirs+=(tools/lib/ibmkey-mlx5dv tools/lib/ibmkey-exp tools/lib/ibmkey-mpi tools/python/ibmkey samples)
	[[ ${1-$USERS} != all ]] || dirs+=(tools/bench/guest tools/testing/selftests/rdma/mkey)
	printf '%s\n' "${dirs[@]}"
}
user_words() {
	case $USERS in
	demo) echo "library and mkeyctl" ;;
	run) echo "libraries, mkeyctl, Python and samples" ;;
	all) echo "libraries, mkeyctl, Python, samples, benchmarks and selftests" ;;
	esac
}

# The compiler is that of the builder root, so its warnings are errors.
build_dir() { # DIR [ARG]...
	local d=$1
	shift
	CARGO_TARGET_DIR=$TOP/out/cargo inroot make -C "$TOP/$d" O="$TOP/out/user" WERROR=-Werror "$@" all
}

# The first ones take most of the time, and need no kernel. The set-up of a kernel and the
# build of the module leave a processor idle at times, so another process builds them then,
# at a low priority. An error there occurs again when all of them are built, and is reported then.
early_dirs() { user_dirs | grep -vE 'bench|selftests'; }
build_early() {
	local d
	lock_tree
	# The build of the module takes the tree's lock.
	take_lock "$(early_lock)" "building in $TOP"
	mkdir -p "$TOP/out/user"
	crates_take crates "$TOP/out/cargo"
	for d in $(early_dirs); do
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
	[[ $K_FLAVOUR != kdir && ! -e $(kernel_dir).record && ! -e $(user_stamp).files ]] || return 0
	# It cannot ask for a password.
	(($(id -u) == 0)) || sudo -n true 2>/dev/null || return 0
	say "Meanwhile: $(early_dirs | xargs) (log: out/log/early.log)"
	background nice -n 10 "$TOP/dev/setup/setup" early "$1" >/dev/null 2>&1
}

build_user() {
	local d at=0
	local -a dirs
	mapfile -t dirs < <(user_dirs)
	wait_for_early
	mkdir -p "$TOP/out/user"
	# Remove what has changed since: make rebuilds missing files only.
	[[ ! -s $(user_stamp).files ]] || tree_files out/user | LC_ALL=C comm -13 "$(user_stamp).files" - |
		(cd "$TOP" && cut -d ' ' -f 1 | xargs -r rm)
	crates_take crates "$TOP/out/cargo"
	[[ $USERS == demo ]] || copy_rdma_core "$TOP/out/user/rdma-core"
	for d in "${dirs[@]}"; do
		at=$((at + 1))
		echo "== $d ($at of ${#dirs[@]})"
		build_dir "$d" -j"$(nproc)" KSRC="$(kernel_source)"
	done
}

# The key covers the files that were built, too.
user_stamp() { printf '%s/out/.user' "$TOP"; }
user_sources() { # [USERS]
	local -a dirs
	mapfile -t dirs < <(user_dirs "$@")
	printf '%s-%s-%s' "$(root_key)" "$(rdma_core_key)" "$(tree_key "${dirs[@]}" tools/Cargo.toml tools/Cargo.lock rust/layout include patches/rdma-core)"
}
user_is_built() {
	local set
	local -A sets=([demo]="all run demo" [run]="all run" [all]=all)
	built_here || return 1
	for set in ${sets[$USERS]}; do
		[[ $(cat "$(user_stamp).$set" 2>/dev/null) != "$(user_sources "$set")-$(tree_key out/user)" ]] || return 0
	done
	return 1
}
user_is_done() { # SOURCES
	tree_files out/user >"$(user_stamp).files"
	printf '%s-%s' "$1" "$(hash_of <"$(user_stamp).files")" >"$(user_stamp).$USERS"
}

setup_user() {
	local key words
	! user_is_built || return 0
	[[ $USERS == demo ]] || setup_rdma_core
	key=$(user_sources)
	words=$(user_words)
	step user "${words^}" "1-2 min" build_user
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
	[[ $USERS == demo ]] || setup_rdma_core
	module=$(module_key "$MODULES") user=$(user_sources)
	rxe_source
	module_make_args
	step "build-$K_ID" "Modules ib_mkey and rdma_rxe for $K_ID; $(user_words)" "1-2 min" build_all
	module_is_done "$module"
	user_is_done "$user"
}
