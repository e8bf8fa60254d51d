# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# What make install finds out before it changes anything. Each check ends with a line
# that says what is wrong, where, and what to do. Source it after setup/build.sh.

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

check_kernel() { # RELEASE
	local release=$1 config modules
	[[ $release == 7.[23][.-]* ]] ||
		die "Linux $release: ib_mkey is for 7.2 and 7.3: name such a kernel with KERNEL= or KDIR="
	config=$(kernel_build)/include/config/auto.conf
	if [[ -f $config ]] && ! grep -q '^CONFIG_RDMA_RXE=m' "$config"; then
		! grep -q '^CONFIG_RDMA_RXE=y' "$config" ||
			die "Linux $release has rdma_rxe built in, and ib_mkey replaces it by another rdma_rxe, a module: configure the kernel with CONFIG_RDMA_RXE=m"
		die "Linux $release has no rdma_rxe: configure the kernel with CONFIG_RDMA_RXE=m"
	fi
	[[ -z $ROOT ]] || return 0
	modules=/lib/modules/$release
	[[ -f $modules/modules.dep ]] ||
		die "Linux $release is not installed here (no $modules/modules.dep): install linux-image-$release, or name another place with INSTALL_MOD_PATH=dir"
	grep -q '/ib_core\.ko' "$modules/modules.dep" ||
		die "Linux $release has no module ib_core in $modules: install the package with all its modules (linux-modules-$release)"
}

# Files of a package and files of make install would be in each other's way.
check_packages() {
	local p
	[[ -z $ROOT ]] && command -v dpkg-query >/dev/null || return 0
	# It fails if it knows no package of a name.
	p=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' ib-mkey-dkms 'ib-mkey-modules-*' \
		libibmkey2 libibmkey-dev ibmkey-tools python3-ibmkey 2>/dev/null | sed -n 's/^installed //p' | head -n 1) || true
	[[ -z $p ]] || die "Debian's package $p is installed: remove it first (apt-get purge $p), or keep to the packages (make deb)"
}

# What is built as root in a user's tree could not be built again by that user.
check_owner() {
	[[ $EUID != 0 || -z ${SUDO_USER-} || ${SUDO_UID-} == 0 || $(stat -c %u "$TOP") != "${SUDO_UID-}" ]] ||
		die "$TOP belongs to $SUDO_USER: run make install as $SUDO_USER without sudo; it calls sudo to copy the files"
}

# The programs are built in the builder root, with its C library.
check_programs() { # STAGE
	local why
	[[ -z $ROOT ]] || return 0
	why=$(LD_LIBRARY_PATH=$1$PREFIX/lib "$1$PREFIX/bin/mkeyctl" --version 2>&1 >/dev/null) && return
	case $why in
	*GLIBC_*) die "mkeyctl and libibmkey do not run here: they are built with Debian $SUITE's C library, and this system's is older; make modules_install installs the module alone" ;;
	*libibverbs*) die "libibverbs.so.1 is not installed here: install the package libibverbs1, then run the same command again" ;;
	*) die "mkeyctl does not run here: ${why%%$'\n'*}" ;;
	esac
}
