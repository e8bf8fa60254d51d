# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Which make builds and installs a module for a kernel. Source it after build.sh.

# choose_make [NAME=VALUE...]: sets MAKE to the command that runs Kbuild for the selected
# kernel, with these variables; without any, with those of ib_mkey. A module
# for KDIR= is built by the compilers that built that kernel: this machine's if they are the
# same, otherwise the builder root's. Sets HERE=1 in the first case.
choose_make() {
	local config text here
	HERE=0
	(($# > 0)) || set -- M="$TOP" MO="$TOP/out/$K_ID/modules"
	MAKE=(inroot make -C "$(kernel_build)" "$@")
	if [[ $K_FLAVOUR != kdir ]]; then
		module_make_args
		MAKE+=("${MODULE_MAKE[@]}")
		return
	fi
	config=$KDIR/include/config/auto.conf
	text=$(sed -n 's/^CONFIG_RUSTC_VERSION_TEXT="\(.*\)"/\1/p' "$config")
	here=$(${RUSTC:-rustc} --version 2>/dev/null || true)
	# Only the compiler that wrote a crate can read it.
	if [[ -n $text && $here == "$text" ]]; then
		HERE=1
		MAKE=("${MAKE[@]:1}")
		[[ -z ${RUSTC-} ]] || MAKE+=(RUSTC="$RUSTC")
		! grep -q '^CONFIG_CC_IS_CLANG=y' "$config" || MAKE+=(LLVM="${LLVM:-1}")
		return
	fi
	if [[ -f $(root_dir).toolchain && -n $text ]] && ! grep -qxF "$text" "$(root_dir).toolchain"; then
		die "KDIR=$KDIR was built with $text; this machine has ${here:-no rustc} and the builder root $(head -n 1 "$(root_dir).toolchain"): name that compiler with RUSTC="
	fi
	module_make_args
	MAKE+=("${MODULE_MAKE[@]}")
}

# Builds the module for the selected kernel.
make_modules() {
	# setup builds everything else that is not there yet.
	[[ $K_FLAVOUR != kdir ]] || choose_make
	if [[ ${HERE-0} == 1 ]]; then
		mkdir -p "$TOP/out/$K_ID/modules"
		rxe_source
		"${MAKE[@]}" -j"$(nproc)" modules
	else
		set_up module
	fi
}
