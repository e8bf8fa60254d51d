# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# The crates of other projects, as cargo built them, kept in the cache for other trees:
# in a new tree they are most of the build. Cargo identifies them by name,
# version, features, profile and compiler, independent of the directory.
# Part of setup.

crates_dir() {
	printf '%s/crates-%s' "$CACHE" "$({ root_key; cat "$TOP"/*/*/Cargo.{toml,lock} "$TOP"/*/*/*/Cargo.{toml,lock} 2>/dev/null || true; } | hash_of)"
}

# Into a tree where nothing has been built yet.
crates_take() {
	local dir
	dir=$(crates_dir)
	[[ ! -e $TOP/out/cargo ]] && is_complete "$dir" || return 0
	rm -rf "$TOP/out/cargo.tmp"
	if cp -a --reflink=auto "$dir" "$TOP/out/cargo.tmp" 2>/dev/null; then
		mv -T "$TOP/out/cargo.tmp" "$TOP/out/cargo"
	else
		rm -rf "$TOP/out/cargo.tmp"
	fi
}

# From a tree in which everything is built. This project's own crates are left out:
# their names depend on the tree's path, so other trees cannot use them.
crates_keep() {
	local dir built=$TOP/out/cargo old profile
	dir=$(crates_dir)
	[[ -d $built/release && -d $built/debug && ! -e $dir ]] || return 0
	for old in "$CACHE"/crates-*; do
		[[ ! -e $old ]] || rm -rf "$old"
	done
	for profile in release debug; do
		mkdir -p "$dir.tmp/$profile"
		cp -a --reflink=auto "$built/$profile"/{build,deps,.fingerprint} "$dir.tmp/$profile"
		find "$dir.tmp/$profile/deps" -type f \( -name '*mkey*' -o -perm -100 ! -name '*.so' \) -delete
		find "$dir.tmp/$profile/.fingerprint" -mindepth 1 -maxdepth 1 -name '*mkey*' -exec rm -r {} +
	done
	mv -T "$dir.tmp" "$dir"
	record "$dir"
}
