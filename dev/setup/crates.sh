# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# The crates of other projects, as cargo built them, kept in the cache for other trees:
# in a new tree they are most of the build. Cargo identifies them by name,
# version, features, profile and compiler, independent of the directory.
# Part of setup.

#
# There are two collections: "crates", for programs and tests, and "crates-lint", for make
# lint, which only checks them.

# What decides how they are built. The descriptions of this project's crates and the
# profiles for these alone do not.
crates_key() {
	local d
	root_key
	for d in "$TOP"/tools/ "$TOP"/*/*/ "$TOP"/*/*/*/; do
		[[ ! -f $d/Cargo.lock ]] || awk -v RS= '/registry/' "$d/Cargo.lock"
		[[ ! -f $d/Cargo.toml ]] ||
			awk '/^\[/ { on = /dependencies|profile|features/ && !/package\.(ib-)?mkey/ } on && !/^(#|$)/' "$d/Cargo.toml"
	done
}
crates_dir() { printf '%s/%s-%s' "$CACHE" "$1" "$(crates_key | hash_of)"; }

# Into a tree where nothing has been built yet.
crates_take() { # COLLECTION BUILT
	local dir built=$2
	dir=$(crates_dir "$1")
	[[ ! -e $built ]] && is_complete "$dir" || return 0
	rm -rf "$built.tmp"
	mkdir -p "$(dirname "$built")"
	if cp -a --reflink=auto "$dir" "$built.tmp" 2>/dev/null; then
		mv -T "$built.tmp" "$built"
	else
		rm -rf "$built.tmp"
	fi
}

# From a tree in which everything is built. This project's own crates are left out:
# their names depend on the tree's path, so other trees cannot use them.
crates_keep() { # COLLECTION BUILT PROFILE...
	local dir built=$2 old profile
	dir=$(crates_dir "$1")
	[[ ! -e $dir ]] || return 0
	for profile in "${@:3}"; do [[ -d $built/$profile ]] || return 0; done
	# Hashes only: the name of one collection begins with that of the other.
	for old in "$CACHE/$1"-[0-9a-f]*; do
		[[ ! -e $old ]] || rm -rf "$old"
	done
	for profile in "${@:3}"; do
		mkdir -p "$dir.tmp/$profile"
		cp -a --reflink=auto "$built/$profile"/{build,deps,.fingerprint} "$dir.tmp/$profile"
		find "$dir.tmp/$profile/deps" -type f \( -name '*mkey*' -o -perm -100 ! -name '*.so' \) -delete
		find "$dir.tmp/$profile/.fingerprint" -mindepth 1 -maxdepth 1 -name '*mkey*' -exec rm -r {} +
	done
	mv -T "$dir.tmp" "$dir"
	record "$dir"
}
