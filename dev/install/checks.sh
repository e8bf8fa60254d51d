# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# What make install finds out before it changes anything. Each check ends with a line
# that says what is wrong, where, and what to do. Source it after setup/build.sh.
# shellcheck disable=SC2034 # the script that sources this reads LISTS, AS and UNIT

# The unit of systemd that makes a link of rxe.
UNIT=ib-mkey-rxe@.service
# It has the prefix of the installation.
PREFIX_FILE=var/lib/ib_mkey/prefix

# Where things go: $DESTDIR$PREFIX; the module, and what belongs to it, to $MODROOT.
select_places() {
	[[ -z ${LIBDIR-} ]] || die "LIBDIR=$LIBDIR: the libraries go to PREFIX/lib; name another PREFIX="
	PREFIX=/$(realpath -ms "/${PREFIX:-usr/local}" | sed 's,^/*,,')
	[[ $PREFIX != / ]] || die "PREFIX=/ is not a place for an installation; the default is /usr/local"
	DESTDIR=${DESTDIR:+$(realpath -m "$DESTDIR")}
	MODROOT=${INSTALL_MOD_PATH:+$(realpath -m "$INSTALL_MOD_PATH")}
	: "${MODROOT:=$DESTDIR}"
	DESTDIR=${DESTDIR%/} MODROOT=${MODROOT%/}
	LISTS=${PREFIX#/}/share/ib_mkey
	local d
	for d in "$PREFIX" "$DESTDIR" "$MODROOT"; do
		[[ $d != *[[:space:]:%]* ]] || die "$d: the name of a directory must have no spaces, colons or percent signs"
	done
}

# The module and the files of /etc are the same for each prefix, so a machine has one prefix.
installed_prefix() { cat "$MODROOT/$PREFIX_FILE" 2>/dev/null || true; }
check_prefix() {
	local other
	other=$(installed_prefix)
	[[ ${other:-$PREFIX} == "$PREFIX" ]] ||
		die "ib_mkey is installed in ${MODROOT:-/} with PREFIX=$other: run make uninstall PREFIX=$other, or use that prefix"
}

# The release of Debian's kernel of a series, as the cache has settled it.
debian_release() { printf '%s+deb13-amd64' "$(kernel_version "$1")"; }

# select_running: without KERNEL=, KSRC= and KDIR=, the kernel that runs. For Debian's it is
# the very version that runs, because modprobe loads no module of another one.
select_running() {
	local release build
	[[ -z ${KDIR-}${KERNEL-}${KSRC-}${DEBUG-} ]] || return 0
	release=$(uname -r)
	if [[ $release =~ ^(7\.[23]\.[0-9]+)\+deb13-amd64$ ]]; then
		export KERNEL=${BASH_REMATCH[1]}
		return
	fi
	build=/lib/modules/$release/build
	# Debian's headers have no Rust metadata, so their directory is of no use.
	[[ $release != 7.[23].*+deb* || -f $build/rust/libkernel.rmeta ]] ||
		die "this machine runs Linux $release, and make install builds for Debian's kernels with +deb13-amd64 in their names alone: boot linux-image-$(debian_release 7.2), or install the packages of make deb, whose module DKMS builds"
	case $release in
	7.[23].* | 7.[23]-*) ;;
	*) die "this machine runs Linux $release, and ib_mkey is for 7.2 and 7.3: boot such a kernel, or name the one to install for: KERNEL=stock (Debian's $(debian_release 7.2)), KERNEL=7.3, or KDIR=dir" ;;
	esac
	[[ -d $build ]] ||
		die "this machine runs Linux $release, whose build directory $build is not there: name it with KDIR=dir, or install for one of Debian's kernels with KERNEL=stock ($(debian_release 7.2)) or KERNEL=7.3"
	export KDIR=$build
}

# The release of the selected kernel. Debian's is known before it is in the cache.
selected_release() {
	case $K_FLAVOUR in
	kdir) printf '%s' "$K_VERSION" ;;
	stock) printf '%s+deb13-amd64' "$K_VERSION" ;;
	*) cat "$(kernel_dir)/release" 2>/dev/null || printf '%s' "$K_VERSION" ;;
	esac
}

check_kernel() {
	local release config modules
	release=$(selected_release)
	[[ $release == 7.[23][.-]* ]] ||
		die "Linux $release: ib_mkey is for 7.2 and 7.3: name such a kernel with KERNEL= or KDIR="
	config=$(kernel_build)/include/config/auto.conf
	if [[ -f $config ]] && ! grep -q '^CONFIG_RDMA_RXE=m' "$config"; then
		! grep -q '^CONFIG_RDMA_RXE=y' "$config" ||
			die "Linux $release has rdma_rxe built in, and ib_mkey replaces it by another rdma_rxe, a module: configure the kernel with CONFIG_RDMA_RXE=m"
		die "Linux $release has no rdma_rxe: configure the kernel with CONFIG_RDMA_RXE=m"
	fi
	[[ -z $MODROOT ]] || return 0
	modules=/lib/modules/$release
	[[ -f $modules/modules.dep ]] ||
		die "Linux $release is not installed here (no $modules/modules.dep): install linux-image-$release, or name another place with INSTALL_MOD_PATH=dir"
	grep -q '/ib_core\.ko' "$modules/modules.dep" ||
		die "Linux $release has no module ib_core in $modules: install the package with all its modules (linux-modules-$release)"
}

# Files of a package and files of make install would be in each other's way.
check_packages() {
	local p
	[[ -z $DESTDIR$MODROOT ]] && command -v dpkg-query >/dev/null || return 0
	for p in ib-mkey-dkms libibmkey2 libibmkey-dev ibmkey-tools python3-ibmkey; do
		[[ $(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) != installed ]] ||
			die "Debian's package $p is installed: remove it first (apt-get purge $p), or keep to the packages (make deb)"
	done
}

# writable DIR: whether this user could make files there.
writable() {
	local d=$1
	while [[ ! -e $d ]]; do d=$(dirname "$d"); done
	[[ -d $d && -w $d ]]
}

# Sets AS to what a command of the installation begins with: as_root, or nothing.
check_right() {
	local d
	AS=()
	for d in "$@"; do
		writable "$d" && continue
		((EUID != 0)) || die "cannot write to $d, even as root: is it on a read-only file system?"
		sudo -n true 2>/dev/null || { [[ -t 0 ]] && command -v sudo >/dev/null; } ||
			die "no right to write to $d: run make as root, or name another place with DESTDIR=dir and INSTALL_MOD_PATH=dir"
		AS=(as_root)
	done
}

# What is built as root in a user's tree could not be built again by that user.
check_owner() {
	[[ $EUID != 0 || -z ${SUDO_USER-} || ${SUDO_UID-} == 0 || $(stat -c %u "$TOP") != "${SUDO_UID-}" ]] ||
		die "$TOP belongs to $SUDO_USER: run make install as $SUDO_USER without sudo; it calls sudo to copy the files"
}

# The C library of Debian $SUITE in the builder root gives the programs this requirement.
NEEDS_GLIBC=2.39
check_libc() {
	local have
	[[ -z $DESTDIR ]] || return 0
	have=$(getconf GNU_LIBC_VERSION 2>/dev/null) || return 0
	have=${have#* }
	[[ $(printf '%s\n' "$NEEDS_GLIBC" "$have" | sort -V | head -n 1) == "$NEEDS_GLIBC" ]] ||
		die "mkeyctl and libibmkey need version $NEEDS_GLIBC of the C library, and this system has $have: make modules_install installs the module alone"
}

# The programs are built in the builder root, with its C library.
check_programs() { # STAGE
	local why
	[[ -z $DESTDIR ]] || return 0
	why=$(LD_LIBRARY_PATH=$1$PREFIX/lib "$1$PREFIX/bin/mkeyctl" --version 2>&1 >/dev/null) && return
	case $why in
	*GLIBC_*) die "mkeyctl and libibmkey do not run here: they are built with Debian $SUITE's C library, and this system's is older; make modules_install installs the module alone" ;;
	*libibverbs*) die "libibverbs.so.1 is not installed here: install the package libibverbs1, then run the same command again" ;;
	*) die "mkeyctl does not run here: ${why%%$'\n'*}" ;;
	esac
}
