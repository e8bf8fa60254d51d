# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# The builder root: one Debian tree. Everything is compiled in it and the guest has it
# as its root, so the host's distribution does not matter.
# Part of config.sh.

# A debian-archive-keyring for hosts whose own keys are older than the suite; its
# checksum verifies it.
KEYRING_DEB=pool/main/d/debian-archive-keyring/debian-archive-keyring_2025.1_all.deb
KEYRING_SHA256=9ea7778e443144ca490668737a8ab22dd3e748bb99e805e22ec055abeb3c7fac

fetch() { /usr/lib/apt/apt-helper download-file "$1" "$2" >/dev/null 2>&1; }

# The mirror that the host's own apt uses, when it is a Debian one and has the
# suite and its backports; else the public one. Sets MIRROR and SECURITY, once.
MIRROR=''
find_mirror() {
	local site label tmp sites
	[[ -z $MIRROR ]] || return 0
	tmp=$(mktemp -d)
	SECURITY=''
	# shellcheck disable=SC2016 # apt expands these
	sites=$(apt-get indextargets --format '$(SITE) $(ORIGIN) $(LABEL)' 'Created-By: Packages' 2>/dev/null |
		awk '$2 == "Debian" { print $1, $3 }' | sort -u)
	while read -r site label; do
		if [[ $label == Debian-Security ]]; then
			fetch "$site/dists/$SUITE-security/InRelease" "$tmp/r" && SECURITY=$site
		elif [[ -z $MIRROR ]]; then
			fetch "$site/dists/$SUITE-backports/InRelease" "$tmp/r" && MIRROR=$site
		fi
	done <<<"$sites"
	if [[ -z $MIRROR ]] && fetch "$DEFAULT_MIRROR/dists/$SUITE-backports/InRelease" "$tmp/r"; then
		MIRROR=$DEFAULT_MIRROR
	fi
	[[ -n $SECURITY ]] || SECURITY=$DEFAULT_SECURITY
	rm -rf "$tmp"
	[[ -n $MIRROR ]] ||
		die "no network: neither the mirror of this machine's apt nor $DEFAULT_MIRROR answers for $SUITE; check the connection, DNS and proxy"
}

# The host's apt settings for mirrors and proxies also apply in the root.
host_apt_conf() {
	apt-config dump | grep -E '^Acquire::(https?::(Proxy|Timeout)|Check-Valid-Until|Check-Date|Retries|ForceIPv[46])' || true
}

# Prints the keyring to verify the suite with: the host's own, or a later one.
find_keyring() {
	local own=/usr/share/keyrings/debian-archive-keyring.gpg tmp=$1 have
	have=$(dpkg-query -W -f '${Version}' debian-archive-keyring 2>/dev/null || true)
	if [[ -f $own ]] && dpkg --compare-versions "${have:-0}" ge 2023.3; then
		printf '%s' "$own"
		return
	fi
	echo "the host's Debian keys are older than $SUITE; taking the keyring package, checked by SHA-256" >&2
	fetch "$MIRROR/$KEYRING_DEB" "$tmp/keyring.deb"
	echo "$KEYRING_SHA256  $tmp/keyring.deb" | sha256sum --check --quiet
	dpkg-deb -x "$tmp/keyring.deb" "$tmp/keyring"
	printf '%s' "$tmp/keyring/usr/share/keyrings/debian-archive-keyring.gpg"
}

make_root() {
	local dir=$1 work=$1.work keyring packages
	rm -rf "$work"
	mkdir -p "$work"
	as_root rm -rf "$dir.tmp"
	keyring=$(find_keyring "$work")
	host_apt_conf >"$work/apt.conf"
	packages=$(IFS=, && echo "${ROOT_PACKAGES[*]}")
	# shellcheck disable=SC2016 # the hook expands $1 itself
	as_root mmdebstrap --mode=root --variant=apt --architectures=amd64 --keyring="$keyring" \
		--aptopt="$work/apt.conf" --aptopt='APT::Install-Recommends "false"' \
		--dpkgopt=force-unsafe-io --skip=cleanup/apt/lists --include="$packages" \
		--customize-hook='mkdir -p "$1/usr/lib/modules"' \
		"$SUITE" "$dir.tmp" \
		"deb $MIRROR $SUITE main" "deb $MIRROR $SUITE-updates main" \
		"deb $MIRROR $SUITE-backports main" "deb $SECURITY $SUITE-security main"
	ROOT_DIR=$dir.tmp "$TOP/dev/setup/inroot" bash -c \
		'rustc -V; bindgen -V; gcc-14 --version | head -n1; clang-19 --version | head -n1; pahole --version' >"$dir.toolchain"
	rm -rf "$work"
	as_root rm -rf "$dir"
	as_root mv "$dir.tmp" "$dir"
	record "$dir" "${ROOT_FILES[@]}"
}

# The files that show whether the root is complete: all that packages installed.
ROOT_FILES=(-path './usr/*' -not -name '*.pyc')

setup_root() { # STAGE
	local dir
	dir=$(root_dir)
	is_complete "$dir" "${ROOT_FILES[@]}" && [[ -s $dir.toolchain ]] && return
	find_mirror
	start_prefetch "$1"
	step builder-root "Builder root: Debian $SUITE with compilers, Rust and RDMA tools from $MIRROR" "1-3 min" \
		make_root "$dir"
}
