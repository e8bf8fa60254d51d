# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests of what the cache keeps of a build, for other trees. Part of tests.
# shellcheck disable=SC2154,SC2317 # tests sets the variables; trees call the functions

# Two trees with the same sources. make writes what Kbuild does, and counts its runs. The first
# tree's path has a character that is special in a pattern, and the second one's in a replacement.
one='modules+one' two='modules&two'
rm -f "$tmp/made"
for t in "$one" "$two"; do
	mkdir -p "$tmp/$t"/{drivers,samples/kernel}
	cp -r "$here/.." "$tmp/$t/dev"
	echo source >"$tmp/$t/drivers/main.rs"
done
# shellcheck disable=SC2016 # for that shell
build='
	root_dir() { printf %s/root "$CACHE"; }
	kernel_dir() { printf %s/kernel "$CACHE"; }
	mkdir -p "$CACHE/kernel"; echo record >"$CACHE/kernel.record"; echo rustc >"$CACHE/root.toolchain"
	touch "$CACHE/Module.symvers"
	inroot() {
		local out=$TOP/out/$K_ID/modules
		[[ $1 != modinfo ]] || { printf "filename: %s\n" "${@:2}"; return; }
		[[ $1 == make ]] || return 0
		echo >>"$TOP/../made"
		mkdir -p "$out/drivers/infiniband/ulp/mkey"
		touch "$out/drivers/infiniband/ulp/mkey/ib_mkey.ko"
		printf "savedcmd_a.o := gcc -I%s/include %s/a.c\n" "$TOP" "$TOP" >"$out/.a.o.cmd"
		printf "export KBUILD_EXTMOD = %s\n" "$TOP" >"$out/Makefile"
		printf "%sx %s/y" "$TOP" "$TOP" >"$out/a.o"
		cat drivers/main.rs >"$out/a.ko"
	}
	MODULE_MAKE=()
	set -e'
# builds TREE RUNS [COMMAND]: the modules of TREE are there, for its path, and make has run RUNS times.
builds() {
	local out=$tmp/$1/out/stock-7.2.12/modules
	in_tree "$1" "$build; ${3:-:}; build_module" && [[ $(wc -l <"$tmp/made") == "$2" ]] &&
		[[ $(<"$out/.a.o.cmd") == "savedcmd_a.o := gcc -I$tmp/$1/include $tmp/$1/a.c" ]] &&
		[[ $(<"$out/Makefile") == "export KBUILD_EXTMOD = $tmp/$1" ]] &&
		cmp -s "$out/a.ko" "$tmp/$1/drivers/main.rs" && grep -q "insmod $tmp/$1/out" "$out/modprobe.conf"
}
new_cache
mkdir -p "$tmp/cache/ib_mkey"
builds "$one" 1 && builds "$two" 1 && builds "$one" 1
result $? "modules: built once for the same sources in two trees"
changed_source() {
	echo other >"$tmp/$two/drivers/main.rs"
	builds "$two" 2 && builds "$one" 3 && builds "$one" 3 || return
	echo source >"$tmp/$two/drivers/main.rs"
	builds "$two" 3
}
changed_source
result $? "modules: built again for other sources"
damaged_modules() {
	local kept
	kept=$(echo "$tmp"/cache/ib_mkey/modules-stock-*.record) && : >"${kept%.record}/a.ko" && builds "$two" 4 &&
		builds "$one" 4 && [[ $(find "$tmp/cache/ib_mkey" -maxdepth 1 -name 'modules-*' | wc -l) == 2 ]]
}
damaged_modules
result $? "modules: built again for a copy that was damaged; one copy is kept"
