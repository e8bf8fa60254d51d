# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# This machine: the packages and the disk space that it needs. Part of setup.

# Commands that are needed, each with its package.
declare -A HOST_NEEDS=(
	[make]=make [qemu-system-x86_64]=qemu-system-x86 [mmdebstrap]=mmdebstrap
	[xz]=xz-utils [flock]=util-linux [setpriv]=util-linux [unshare]=util-linux
	[mount]=mount [awk]=mawk [apt-get]=apt [patch]=patch
)

install_packages() {
	as_root apt-get update
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

# is_needed COMMAND STAGE: only the stages whose kernel boots need QEMU.
is_needed() {
	[[ $1 != qemu-system-x86_64 || $2 == @(all|demo|run) ]]
}

setup_host() {
	local c missing=() names
	# A QEMU that QEMU= names must exist; the usual one is installed.
	[[ -z ${QEMU-} ]] || ! is_needed qemu-system-x86_64 "$1" || command -v "$QEMU" >/dev/null ||
		die "QEMU=$QEMU is not a program; without QEMU=, qemu-system-x86_64 is used"
	[[ $(uname -m) == x86_64 ]] || die "this machine is $(uname -m); the set-up is for x86_64"
	for c in "${!HOST_NEEDS[@]}"; do
		is_needed "$c" "$1" || continue
		PATH=$PATH:/usr/sbin:/sbin command -v "$c" >/dev/null || missing+=("${HOST_NEEDS[$c]}")
	done
	[[ -f /usr/share/keyrings/debian-archive-keyring.gpg ]] || missing+=(debian-archive-keyring)
	((${#missing[@]})) || return 0
	names=$(printf '%s\n' "${missing[@]}" | sort -u | tr '\n' ' ')
	command -v apt-get >/dev/null ||
		die "missing: $names(by Debian's names); this is not Debian or Ubuntu, so please install them and run the command again"
	# shellcheck disable=SC2086 # a list of names
	step host-packages "Packages of this machine: ${names% }" "1 min" install_packages $names
	for c in "${!HOST_NEEDS[@]}"; do
		is_needed "$c" "$1" || continue
		PATH=$PATH:/usr/sbin:/sbin command -v "$c" >/dev/null ||
			die "no $c, even with ${HOST_NEEDS[$c]} installed; is it on PATH?"
	done
}

# check_tree_space STAGE: fails if STAGE builds in a tree where nothing was built, and the
# tree's disk has too little room.
check_tree_space() {
	# What a complete build leaves in out/, and the module alone.
	local have mb=1200
	[[ $1 != module ]] || mb=300
	[[ $1 != root && $1 != sphinx && $1 != kernel && ! -d $TOP/out/user ]] || return 0
	have=$(free_mb "$TOP")
	((have >= mb)) ||
		die "not enough disk: $mb MB are needed in $TOP/out and $have MB are free; make room, or move the tree to a larger disk"
}

# check_space STAGE: if STAGE makes something large, says how long that takes, and
# fails if the disk has too little room.
check_space() {
	local stage=$1 mb=0 min=0 have dir src
	dir=$(kernel_dir)
	src=${KSRC:-$(source_dir)}
	[[ -f $(root_dir).record ]] || { mb=$((mb + 3400)); min=$((min + 2)); }
	if [[ $stage != root && $stage != user && $stage != sphinx && $K_FLAVOUR != kdir && ! -f $dir.record ]]; then
		# The source is fetched beside the builder root, if that is made, too.
		[[ -d $src ]] || { mb=$((mb + 2000)); ((min > 0)) || min=1; }
		case $K_FLAVOUR in
		stock | arm64) mb=$((mb + 900)); min=$((min + 3)) ;;
		custom) mb=$((mb + 1000)); min=$((min + 12)) ;;
		debug) mb=$((mb + 1500)); min=$((min + 14)) ;;
		esac
	fi
	check_tree_space "$stage"
	((mb == 0)) && return
	have=$(free_mb "$CACHE")
	say "First set-up of $K_ID: about $min minutes on two cores and $((mb / 1000)).$((mb % 1000 / 100)) GB in $CACHE ($((have / 1000)) GB free)."
	((have >= mb)) ||
		die "not enough disk: $mb MB are needed in $CACHE and $have MB are free; make room, or set XDG_CACHE_HOME to a directory on a larger disk"
}
