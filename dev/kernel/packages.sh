# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Debian's packages of the kernels: which versions there are, and their download. The apt of
# this machine fetches them, with its own lists and settings in the cache. It needs
# neither root's rights nor the builder root, so the set-up fetches them and unpacks the
# kernel's source while it makes that root. Part of setup/config.sh.

apt_dir() { printf '%s/apt' "$CACHE"; }

# kernel_apt COMMAND...: a command of apt that knows the backports of the suite alone.
# Of this machine's settings it has those that the builder root has, too.
kernel_apt() { APT_CONFIG=$(apt_dir)/apt.conf "$@"; }

update_lists() {
	local dir keyring arch=amd64
	dir=$(apt_dir)
	[[ $K_FLAVOUR != arm64 ]] || arch+=,arm64
	mkdir -p "$dir/state/lists/partial" "$dir/cache/archives/partial"
	touch "$dir/state/status"
	keyring=$(find_keyring "$dir")
	printf 'deb [arch=%s signed-by=%s] %s %s-backports main\n' "$arch" "$keyring" "$MIRROR" "$SUITE" >"$dir/sources.list"
	cat - <(host_apt_conf) >"$dir/apt.conf" <<-EOF
		Dir::State "$dir/state";
		Dir::State::status "$dir/state/status";
		Dir::Cache "$dir/cache";
		Dir::Etc::sourcelist "$dir/sources.list";
		Dir::Etc::sourceparts "-";
		Dir::Etc::main "/dev/null";
		Dir::Etc::parts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		APT::Architecture "amd64";
		APT::Architectures { "amd64"; "arm64"; };
		APT::Sandbox::User "root";
		Acquire::Languages "none";
	EOF
	# A list that cannot be fetched is an error, not a warning.
	kernel_apt apt-get -o APT::Update::Error-Mode=any update
}

# Once for each set-up that downloads a package, so the lists name what the mirror has.
LISTS_ARE_NEW=
setup_lists() {
	[[ -z $LISTS_ARE_NEW ]] || return 0
	find_mirror
	step package-lists "Debian's list of kernels, from $MIRROR" "1 s" update_lists
	LISTS_ARE_NEW=1
}

# mirror_versions SERIES: prints the versions of Debian's kernel that the mirror has, the newest last.
mirror_versions() {
	kernel_apt apt-cache pkgnames "linux-modules-$1." |
		sed -n "s/^linux-modules-\($1\.[0-9]*\)+deb13-amd64$/\1/p" | sort -V
}

# Chooses the version of series $1: the pinned one if it is on the mirror, otherwise
# the newest, with a warning that ib_mkey was not tried with it.
resolve_version() {
	local series=$1 pinned=${PINNED_VERSION[$1]} newest found
	found=$(mirror_versions "$series")
	if grep -qxF "$pinned" <<<"$found"; then
		newest=$pinned
	else
		newest=$(tail -n 1 <<<"$found")
		[[ -n $newest ]] || die "the mirror has no linux-modules package of the $series series in $SUITE-backports"
		warn "Linux $pinned, which ib_mkey was tried with, is gone from the mirror; taking $newest instead"
	fi
	printf '%s' "$newest" >"$CACHE/version-$series"
}

# check_version: fails if the mirror lacks a package from which the kernel of version K_EXACT is made.
check_version() {
	local found lacks=
	found=$(mirror_versions "$K_SERIES")
	if ! grep -qxF "$K_EXACT" <<<"$found"; then
		lacks=linux-modules-$K_EXACT+deb13-amd64
	elif [[ -z $(deb_version "linux-source-$K_SERIES" "$K_EXACT") ]]; then
		lacks="linux-source-$K_SERIES of version $K_EXACT"
		found=$(grep -vxF "$K_EXACT" <<<"$found" || true)
	fi
	[[ -n $lacks ]] || return 0
	found=$(tail -n 1 <<<"$found")
	die "the mirror $MIRROR lacks $lacks, from which a module for Linux $K_EXACT is made: install and boot linux-image-${found:-$K_SERIES.*}+deb13-amd64 of $SUITE-backports, then run the same command again"
}

# The version that select_kernel takes is settled from here on.
settle_version() {
	[[ $K_FLAVOUR != kdir && -z ${KSRC-} ]] || return 0
	if [[ -n $K_EXACT ]]; then
		[[ -s $(kernel_dir).record ]] || { setup_lists; check_version; }
	elif [[ ! -s $CACHE/version-$K_SERIES ]]; then
		setup_lists
		resolve_version "$K_SERIES"
		select_kernel
	fi
}

# deb_version PACKAGE VERSION: the package's revision of that upstream version.
deb_version() {
	kernel_apt apt-cache madison "$1" | awk -F'|' -v v="$2-" '{ gsub(/ /, "", $2) } index($2, v) == 1 && !n++ { print $2 }'
}

# source_package and stock_packages print packages as apt takes them, with their versions.
source_package() {
	local version
	version=$(deb_version "linux-source-$K_SERIES" "$K_VERSION")
	[[ -n $version ]] || { echo "no linux-source-$K_SERIES of version $K_VERSION" >&2; return 1; }
	printf '%s' "linux-source-$K_SERIES=$version"
}

# Those that make_stock takes, in the same order.
stock_packages() {
	local release=$K_VERSION+deb13-amd64 version p
	version=$(deb_version "linux-modules-$release" "$K_VERSION")
	[[ -n $version ]] || { echo "no linux-modules-$release" >&2; return 1; }
	for p in modules headers binary-unsigned base; do printf '%s ' "linux-$p-$release=$version"; done
}

# --- download ------------------------------------------------------------------

# Where download finds packages that prefetch has downloaded.
prefetched() { printf '%s/packages-%s' "$(apt_dir)" "$(printf '%s\n' "$@" | hash_of)"; }

# download DIR PACKAGE=VERSION...: fetch packages into DIR, verified by apt.
download() {
	local dir=$1 early
	shift
	mkdir -p "$dir"
	wait_for_prefetch
	early=$(prefetched "$@")
	if [[ -d $early ]]; then
		# If this is interrupted, the next set-up finds all of them or none.
		mv "$early" "$dir/early"
		mv -t "$dir" "$dir"/early/*.deb
		return
	fi
	(cd "$dir" && kernel_apt apt-get download "$@")
}

# --- beside the builder root ---------------------------------------------------

# To make the builder root takes one processor, most of the time, so another process fetches
# then what the kernel is made from. A step that needs some of that waits for all of it. If
# something failed, that step does it again, and reports the error.
prefetch() { # WITH-SOURCE WITH-STOCK
	local early
	local -a packages
	IN_PREFETCH=1
	renice -n 10 -p "$BASHPID" >/dev/null
	(($1 == 0)) || make_source "$(source_dir)"
	(($2 == 1)) || return 0
	early=$(stock_packages)
	read -ra packages <<<"$early"
	early=$(prefetched "${packages[@]}")
	[[ ! -d $early ]] || return 0
	# Of an interrupted set-up, and of other versions.
	rm -rf "$(apt_dir)"/packages-*
	download "$early.tmp" "${packages[@]}"
	mv "$early.tmp" "$early"
}
prefetch_lock() { printf '%s/lock' "$(apt_dir)"; }

# The lock ends with the process, and with all that it started.
IN_PREFETCH=
wait_for_prefetch() {
	local fd
	[[ -z $IN_PREFETCH && -e $(prefetch_lock) ]] || return 0
	exec {fd}>"$(prefetch_lock)"
	if ! flock -n "$fd"; then
		echo "Waiting for what is fetched beside the builder root (log: $LOGS/prefetch.log)"
		flock "$fd"
	fi
	exec {fd}>&-
}

start_prefetch() { # STAGE
	local source=0 stock=0 fd
	[[ $1 != @(root|user) && $K_FLAVOUR != kdir ]] || return 0
	settle_version
	[[ $1 == sphinx || ! -s $(kernel_dir).record ]] || return 0
	[[ -n ${KSRC-} || -s $(source_dir).record ]] || source=1
	[[ $1 == sphinx || $K_FLAVOUR != stock ]] || stock=1
	((source + stock > 0)) || return 0
	setup_lists
	say "Meanwhile: Linux $K_VERSION from Debian (log: $LOGS/prefetch.log)"
	exec {fd}>"$(prefetch_lock)"
	flock -n "$fd" || { say "Waiting for what another set-up still fetches."; flock "$fd"; }
	background prefetch "$source" "$stock" >"$LOGS/prefetch.log" 2>&1
	exec {fd}>&-
}
