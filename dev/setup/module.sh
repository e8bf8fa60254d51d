# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# The modules of this tree for one kernel: how they are built, and when they are built again. The
# cache keeps what was built last for each kernel that is in the cache, for other trees with the
# same sources. Part of setup.

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
	arm64) MODULE_MAKE=(ARCH=arm64 LLVM=-19 KERNELRELEASE="$(cat "$(kernel_dir)/release")") ;;
	*) MODULE_MAKE=(LLVM=-19) ;;
	esac
	# mkey_fuzz sees what it reaches in these modules alone, and dev/coverage finds the lines.
	[[ $K_FLAVOUR != debug ]] ||
		MODULE_MAKE+=(KCOV_INSTRUMENT=y KCFLAGS=-gline-tables-only KRUSTFLAGS=-Cdebuginfo=line-tables-only)
	[[ $K_FLAVOUR == kdir ]] || MODULE_MAKE+=(BINDGEN="$TOP/dev/setup/bindgen-cached $(bindgen_dir) $TOP")
}

# Lets modprobe find ib_mkey and rxe's modules in the directory of the build, as depmod does for
# installed modules: with their dependencies, and with the alias by which rdma_rxe loads ib_mkey.
module_config() {
	local out=$TOP/out/$K_ID/modules
	local -a kos
	mapfile -t kos < <(compgen -G "$out/drivers/infiniband/*/*/*.ko" | LC_ALL=C sort)
	# An install command takes the place of a soft dependency.
	inroot modinfo "${kos[@]}" | awk '
		function flush() {
			if (name == "") return
			print "install " name " " (soft == "" ? "" : "modprobe -q " soft "; ") \
				(deps == "" ? "" : "modprobe -a " deps " && ") "insmod " ko " $CMDLINE_OPTS"
			printf "%s", aliases
			name = soft = deps = aliases = ""
		}
		$1 == "filename:" { flush(); ko = $2; name = ko; gsub(".*/|[.]ko$", "", name) }
		$1 == "depends:" { deps = $2; gsub(",", " ", deps) }
		$1 == "softdep:" && $2 == "pre:" { soft = $0; sub(".*pre: *", "", soft) }
		$1 == "alias:" { aliases = aliases "alias " $2 " " name "\n" }
		END { flush() }' >"$out/modprobe.conf.tmp"
	mv "$out/modprobe.conf.tmp" "$out/modprobe.conf"
}

# rxe's source, which is built with the module.
rxe_source() {
	"$TOP/scripts/rxe-source" "$(kernel_source)" "$TOP/out/$K_ID/modules" || exit
	nvme_source
}

# nvme-rdma with patches/nvme, which is a module of the selftests, for a kernel with nvme-rdma.
nvme_source() {
	local out=$TOP/out/$K_ID/modules/tools/testing/selftests/rdma/mkey/test_modules
	local from to=$out/nvme_rdma_gaps.c
	from=$(kernel_source)/drivers/nvme/host/rdma.c
	if [[ ! -f $from ]] || ! grep -qx CONFIG_NVME_RDMA=m "$(kernel_build)/.config"; then
		rm -f "$to"
		return
	fi
	mkdir -p "$out"
	cat "$TOP"/patches/nvme/*.patch | patch -s -f -o "$to.tmp" "$from" ||
		die "patches/nvme does not apply to nvme-rdma of Linux $K_VERSION ($from)"
	if cmp -s "$to.tmp" "$to"; then rm "$to.tmp"; else mv "$to.tmp" "$to"; fi
}

build_module() {
	local out=$TOP/out/$K_ID/modules kept
	kept=$(module_kept)
	if ! module_take "$kept" "$out"; then
		mkdir -p "$out"
		find "$CACHE"/bindgen-* -type f -mtime +30 -delete 2>/dev/null || true
		inroot make -C "$(kernel_build)" M="$TOP" MO="$out" "${MODULE_MAKE[@]}" ${MODULES:+MKEY_ALONE=1} -j"$(nproc)" modules
		# A source may have changed meanwhile.
		[[ -n $MODULES || $kept != "$(module_kept)" ]] || module_keep "$kept" "$out"
	fi
	module_config
}

# MODULES=-alone: without the modules of the samples and of the selftests. What is built
# then has another stamp. All of them will do, too.
MODULES=
module_stamp() { printf '%s/out/%s/.module' "$TOP" "$K_ID"; }
MODULE_DIRS=(Kbuild scripts patches/rxe drivers include rust/bindings rust/helpers rust/kernel rust/layout/src)
MODULE_USERS=(samples/kernel tools/bench/module tools/testing/selftests/rdma/mkey/test_modules patches/nvme)
module_key() { # MODULES
	local dirs=("${MODULE_DIRS[@]}")
	[[ $1 == -alone ]] || dirs+=("${MODULE_USERS[@]}")
	printf '%s-%s-%s' "$(kernel_build)" "$(stat -c %Y "$(kernel_build)/Module.symvers")" "$(tree_key "${dirs[@]}")"
}
module_has_stamp() { [[ $(cat "$(module_stamp)$1" 2>/dev/null) == "$(module_key "$1")" ]]; }
module_is_built() {
	built_here && [[ -f $TOP/out/$K_ID/modules/modprobe.conf ]] || return 1
	module_has_stamp '' || { [[ -n $MODULES ]] && module_has_stamp "$MODULES"; }
}
module_is_done() { printf '%s' "$1" >"$(module_stamp)$MODULES"; } # KEY

# Where the cache keeps all modules for the present sources. Nothing is kept for a kernel outside
# of the cache, which can change without notice.
module_kept() {
	[[ $K_FLAVOUR != kdir && -z ${KSRC-} ]] || return 0
	printf '%s/modules-%s-%s' "$CACHE" "$K_ID" "$({
		cat "$(root_dir).toolchain" "$(kernel_dir).record" "$TOP/dev/setup/module.sh"
		kernel_dir
		cd "$TOP" || exit
		find "${MODULE_DIRS[@]}" "${MODULE_USERS[@]}" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
	} | hash_of)"
}

# module_take KEPT OUT: true if OUT now has what was built in another tree.
module_take() {
	local kept=$1 out=$2 from to
	[[ -n $kept ]] && is_complete "$kept" || return 1
	rm -rf "$out" "$out.tmp"
	mkdir -p "$(dirname "$out")"
	# Another set-up may remove it meanwhile.
	if ! cp -a --reflink=auto "$kept" "$out.tmp"; then
		rm -rf "$out.tmp"
		return 1
	fi
	# Kbuild's commands and lists name the tree.
	from=$(sed 's/[][\\.*^$+?(){}|,]/\\&/g' "$out.tmp/.tree")
	to=$(sed 's/[\\&,]/\\&/g' <<<"$TOP")
	find "$out.tmp" -type f \( -name '.*.cmd' -o -name Makefile \) -exec sed -i -E "s,$from(/|\$|[ :]),$to\\1,g" {} +
	mv -T "$out.tmp" "$out"
	echo "taken from $kept"
}

# module_keep KEPT OUT: keeps what OUT has instead of what the cache had for this kernel.
module_keep() {
	local kept=$1 out=$2
	[[ -n $kept ]] || return 0
	# Names that end in a hash, not those of a kernel whose name begins like this one.
	rm -rf "$CACHE/modules-$K_ID"-????????????{,.record,.tmp.*}
	# A full disk, or another set-up that keeps its modules, is no reason to fail.
	if cp -a --reflink=auto "$out" "$kept.tmp.$$" && printf '%s\n' "$TOP" >"$kept.tmp.$$/.tree" &&
		mv -T "$kept.tmp.$$" "$kept"; then
		record "$kept"
	else
		rm -rf "$kept.tmp.$$"
	fi
}

setup_module() {
	local key
	! module_is_built || return 0
	key=$(module_key "$MODULES")
	rxe_source
	module_make_args
	step "module-$K_ID" "Modules ib_mkey and rdma_rxe for $K_ID" "1-2 min" build_module
	module_is_done "$key"
}
