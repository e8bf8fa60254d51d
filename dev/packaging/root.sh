# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# The roots for packages. Neither changes the builder root or its key:
#   packaging-*  the builder root with Debian's packaging tools in an overlay
#   clean-*      a small Debian, in which packages are installed to test them
# Source it after setup/config.sh.

PACKAGING_TOOLS=(build-essential debhelper dh-dkms dh-python dpkg-dev fakeroot lintian
	pybuild-plugin-pyproject python3-all-dev)
# What every Debian machine with a network has, and what a guest boots with.
CLEAN_PACKAGES=(apt busybox-static ca-certificates iproute2 kmod procps)

packaging_dir() {
	printf '%s/packaging-%s' "$CACHE" "$({
		cat "$(root_dir).toolchain"
		root_key
		printf '%s\n' "${PACKAGING_TOOLS[@]}"
		recipe make_packaging_root
	} | hash_of)"
}
clean_dir() {
	printf '%s/clean-%s' "$CACHE" "$({
		printf '%s\n' "$SUITE" "${CLEAN_PACKAGES[@]}"
		recipe make_clean_root
	} | hash_of)"
}

# over LOWER DIR [-w] CMD...: inroot's CMD in a root that is LOWER with the changes in
# DIR/upper. The overlay is mounted for the time of CMD only.
# shellcheck disable=SC2016 # expanded by the inner shell
over() {
	local lower=$1 dir=$2
	shift 2
	as_root mkdir -p "$dir"/{upper,work,root}
	as_root unshare --mount --propagation private env XDG_CACHE_HOME="${CACHE%/*}" bash -c '
		mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root" || exit
		ROOT_DIR=$2/root exec "$3" "${@:4}"' - "$lower" "$dir" "$TOP/dev/setup/inroot" "$@"
}
in_packaging() { over "$(root_dir)" "$(packaging_dir)" "$@"; }

make_packaging_root() {
	local dir=$1
	as_root rm -rf "$dir" "$dir.tmp"
	over "$(root_dir)" "$dir.tmp" -w bash -ec '
		apt-get update
		DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
		apt-get clean' - "${PACKAGING_TOOLS[@]}"
	as_root mv "$dir.tmp" "$dir"
	record "$dir" -path './upper/usr/*'
}

setup_packaging_root() {
	local dir
	dir=$(packaging_dir)
	is_complete "$dir" -path './upper/usr/*' ||
		step packaging-root "Packaging tools: ${PACKAGING_TOOLS[*]}" "1 min" make_packaging_root "$dir"
}

make_clean_root() {
	local dir=$1 work=$1.work keyring packages
	mkdir -p "$work"
	as_root rm -rf "$dir" "$dir.tmp"
	keyring=$(find_keyring "$work")
	host_apt_conf >"$work/apt.conf"
	packages=$(IFS=, && echo "${CLEAN_PACKAGES[*]}")
	as_root mmdebstrap --mode=root --variant=minbase --architectures=amd64 --keyring="$keyring" \
		--aptopt="$work/apt.conf" --dpkgopt=force-unsafe-io --skip=cleanup/apt/lists --include="$packages" \
		"$SUITE" "$dir.tmp" \
		"deb $MIRROR $SUITE main" "deb $MIRROR $SUITE-updates main" \
		"deb $MIRROR $SUITE-backports main" "deb $SECURITY $SUITE-security main"
	as_root cp "$work/apt.conf" "$dir.tmp/etc/apt/apt.conf.d/90host"
	rm -rf "$work"
	as_root mv "$dir.tmp" "$dir"
	record "$dir" -path './usr/*'
}

setup_clean_root() {
	local dir
	dir=$(clean_dir)
	is_complete "$dir" -path './usr/*' && return
	find_mirror
	step clean-root "A small Debian $SUITE to install packages in" "1 min" make_clean_root "$dir"
}
