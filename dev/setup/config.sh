# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# What is built, from which versions, and what each thing is called in the
# cache. A name ends in a hash of all that the thing depends on. Source it.

# shellcheck source=dev/setup/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SUITE=trixie
DEFAULT_MIRROR=http://deb.debian.org/debian
DEFAULT_SECURITY=http://deb.debian.org/debian-security

# Tried with these; the newest of the series is taken when one is gone, unless KERNEL= names a version.
declare -A PINNED_VERSION=([7.2]=7.2.12 [7.3]=7.3.4)

# To build with.
ROOT_PACKAGES=(
	rustc rust-src rustfmt rust-clippy cargo bindgen clang-19 lld-19 llvm-19
	gcc-14 gcc g++ make flex bison bc libelf-dev libssl-dev libc6-dev dwarves
	kmod cpio xz-utils zstd python3 perl rsync pkg-config git ca-certificates
	sparse shellcheck libibverbs-dev librdmacm-dev zlib1g-dev
	python3-dev cython3 python3-setuptools python3-pip python3-wheel mypy
	libopenmpi-dev
)
# To run in the guest.
ROOT_PACKAGES+=(
	rdma-core ibverbs-utils ibverbs-providers rdmacm-utils python3-pyverbs
	perftest iproute2 iputils-ping busybox-static strace procps psmisc
	python3-numpy python3-mpi4py openmpi-bin open-iscsi
)

# recipe FUNCTION: its text, for a key. The key stays the same wherever the tree
# keeps the scripts and configurations that the function names.
# shellcheck disable=SC2016 # literally, as in the function
recipe() { declare -f "$1" | sed 's,\$TOP/dev/,$TOP/tools/,'; }

# --- the builder root --------------------------------------------------------

root_key() {
	{
		printf '%s\n' "$SUITE" "${ROOT_PACKAGES[@]}"
		recipe make_root
	} | hash_of
}
root_dir() { printf '%s/root-%s' "$CACHE" "$(root_key)"; }

# --- the kernel --------------------------------------------------------------

# The version of a series that this cache uses: settled when it is downloaded.
kernel_version() {
	if [[ -s $CACHE/version-$1 ]]; then
		cat "$CACHE/version-$1"
	else
		printf '%s' "${PINNED_VERSION[$1]}"
	fi
}

# Sets K_SERIES, K_FLAVOUR (stock, arm64, custom, debug or kdir), K_VERSION, and K_ID, the name
# of the kernel in messages and under out/. K_EXACT is the version that KERNEL= names.
select_kernel() {
	local KERNEL=${KERNEL:-stock}
	K_EXACT=
	if [[ $KERNEL =~ ^(7\.[23])\.[0-9]+$ ]]; then
		K_EXACT=$KERNEL KERNEL=${BASH_REMATCH[1]}
	fi
	case $KERNEL in
	stock) K_SERIES=7.2 K_FLAVOUR=stock ;;
	custom) K_SERIES=7.2 K_FLAVOUR=custom ;;
	7.2 | 7.3) K_SERIES=$KERNEL K_FLAVOUR=stock ;;
	custom-7.2 | custom-7.3) K_SERIES=${KERNEL#custom-} K_FLAVOUR=custom ;;
	*) die "KERNEL=$KERNEL is not one of: stock, custom, 7.3, custom-7.3, and no version of Debian such as ${PINNED_VERSION[7.2]}" ;;
	esac
	case ${DEBUG:-0} in
	1) K_FLAVOUR=debug ;;
	0) ;;
	*) die "DEBUG=$DEBUG is not 0 or 1" ;;
	esac
	case ${ARCH:-x86_64} in
	x86_64 | x86) ;;
	arm64)
		[[ $K_FLAVOUR == stock && -z ${KSRC-}${KDIR-} ]] || die "ARCH=arm64 is for Debian's kernels, KERNEL=stock and KERNEL=7.3"
		K_FLAVOUR=arm64
		;;
	*) die "ARCH=$ARCH is not x86_64 or arm64" ;;
	esac
	if [[ -n ${KDIR-} ]]; then
		[[ -z ${KSRC-} ]] || die "KDIR= (a kernel already built) and KSRC= (one to build) exclude each other"
		check_kdir "$KDIR"
		KDIR=$(realpath "$KDIR")
		K_FLAVOUR=kdir
		K_VERSION=$(kdir_release "$KDIR")
		K_ID=kdir-$K_VERSION-$(printf '%s' "$KDIR" | hash_of | cut -c1-6)
	elif [[ -n ${KSRC-} ]]; then
		[[ $K_FLAVOUR == stock ]] && K_FLAVOUR=custom
		check_ksrc "$KSRC"
		KSRC=$(realpath "$KSRC")
		K_VERSION=$(ksrc_version "$KSRC")
		K_ID=$K_FLAVOUR-$K_VERSION-$(printf '%s' "$KSRC" | hash_of | cut -c1-6)
	else
		K_VERSION=${K_EXACT:-$(kernel_version "$K_SERIES")}
		K_ID=$K_FLAVOUR-$K_VERSION
	fi
}

ksrc_version() {
	awk -F' *= *' '/^VERSION =/ { v = $2 } /^PATCHLEVEL =/ { p = $2 } /^SUBLEVEL =/ { s = $2 }
		/^NAME =/ { print v "." p "." s; exit }' "$1/Makefile"
}

check_ksrc() {
	[[ -d $1 ]] || die "KSRC=$1 is not a directory"
	[[ -f $1/Kbuild && -f $1/Makefile && -d $1/rust/kernel && -n $(ksrc_version "$1") ]] ||
		die "KSRC=$1 is not a Linux source tree with rust/kernel in it"
	[[ -f $1/drivers/infiniband/sw/rxe/rxe.c ]] ||
		die "KSRC=$1 has no drivers/infiniband/sw/rxe: not a complete Linux source tree"
	[[ ! -e $1/.config && ! -e $1/include/config && ! -e $1/arch/x86/include/generated ]] ||
		die "KSRC=$1 has been built in; a build elsewhere needs it clean: run 'make mrproper' there, or use KDIR="
}

# The source that a build directory was made from: itself, or what O= named.
kdir_source() {
	local src
	src=$(sed -n 's/^include \(\/[^$]*\)\/Makefile$/\1/p' "$1/Makefile" 2>/dev/null | head -n 1)
	printf '%s' "${src:-$1}"
}

kdir_release() { cat "$1/include/config/kernel.release" 2>/dev/null; }

check_kdir() {
	local src f
	[[ -d $1 ]] || die "KDIR=$1 is not a directory"
	[[ -f $1/Makefile && -n $(kdir_release "$1") ]] ||
		die "KDIR=$1 is no configured kernel build directory (no include/config/kernel.release)"
	src=$(kdir_source "$1")
	grep -q '^CONFIG_RUST=y' "$1/.config" 2>/dev/null || grep -q '^CONFIG_RUST=y' "$1/include/config/auto.conf" 2>/dev/null ||
		die "KDIR=$1 was configured without CONFIG_RUST=y; ib_mkey is written in Rust"
	for f in libkernel.rmeta libcore.rmeta libmacros.so; do
		[[ -f $1/rust/$f ]] ||
			die "KDIR=$1 has no Rust metadata (rust/$f): distributions' header packages leave it out; use the directory the kernel was built in, or run 'make prepare' there"
	done
	[[ -f $src/drivers/infiniband/sw/rxe/rxe.c ]] ||
		die "KDIR=$1 lacks drivers/infiniband/sw/rxe/rxe.c: rdma_rxe is built with ib_mkey, from the full kernel source, not the headers alone"
	[[ -s $1/Module.symvers ]] ||
		die "KDIR=$1 has no Module.symvers: build the kernel's modules there first"
}

# set_up STAGE: makes everything up to STAGE. That may settle another version of the kernel.
set_up() {
	"$TOP/dev/setup/setup" "$1" || exit
	select_kernel
}

kernel_key() {
	{
		printf '%s\n' "$K_ID" "${KSRC-}"
		cat "$(root_dir).toolchain"
		recipe "make_$K_FLAVOUR"
		[[ $K_FLAVOUR != stock ]] || recipe unpack_stock
		[[ $K_FLAVOUR == @(stock|arm64) ]] || cat "$TOP/dev/kernel/kernel.config" "$TOP/dev/kernel/ulp.config"
		[[ $K_FLAVOUR != debug ]] || cat "$TOP/dev/kernel/debug.config"
	} 2>/dev/null | hash_of
}

# Where a kernel is: vmlinuz, release, lib/modules/, and build/ for its modules.
kernel_dir() {
	if [[ $K_FLAVOUR == kdir ]]; then
		printf '%s/kernel-%s' "$CACHE" "$K_ID"
	else
		printf '%s/kernel-%s-%s' "$CACHE" "$K_ID" "$(kernel_key)"
	fi
}

# shellcheck source=dev/setup/builder-root.sh
source "$TOP/dev/setup/builder-root.sh"
# shellcheck source=dev/kernel/packages.sh
source "$TOP/dev/kernel/packages.sh"
# shellcheck source=dev/kernel/kernel.sh
source "$TOP/dev/kernel/kernel.sh"
