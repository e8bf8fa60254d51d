# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# rdma-core's own tests of the version that the builder root has, and librxe of that version with
# the patches of patches/rdma-core, from Debian's source package. Debian's binary packages do not
# have them. Only one selftest uses them, and it skips without them. Part of build.sh.

RDMA_CORE_SOURCE=pool/main/r/rdma-core/rdma-core_56.1.orig.tar.gz
RDMA_CORE_SHA256=63ce7f2baa7242c2dbc76375dac957c420187dd27f8c5e148efc07971ee522a8

rdma_core_dir() { printf '%s/rdma-core-rxe-%s' "$CACHE" "${RDMA_CORE_SHA256:0:12}"; }

make_rdma_core() {
	local dir=$1 tmp=$1.tmp
	rm -rf "$tmp" "$dir"
	mkdir -p "$tmp"
	{ fetch "$MIRROR/$RDMA_CORE_SOURCE" "$tmp/source" || fetch "$DEFAULT_MIRROR/$RDMA_CORE_SOURCE" "$tmp/source"; } &&
		echo "$RDMA_CORE_SHA256  $tmp/source" | sha256sum --check --quiet &&
		tar -xzf "$tmp/source" -C "$tmp" --strip-components=1 --wildcards --no-wildcards-match-slash \
			'rdma-core-*/tests/*.py' 'rdma-core-*/COPYING*' 'rdma-core-*/providers/rxe/*' \
			'rdma-core-*/'{ccan,libibverbs,util,kernel-headers/rdma}'/*.h' \
			'rdma-core-*/kernel-headers/CMakeLists.txt' 'rdma-core-*/buildlib/make_abi_structs.py' &&
		rm "$tmp/source" && mv "$tmp" "$dir" && record "$dir"
}

setup_rdma_core() {
	local dir
	dir=$(rdma_core_dir)
	is_complete "$dir" && return
	find_mirror
	say "==> rdma-core's tests, from Debian's source package (usually 5 s)"
	make_rdma_core "$dir" >"$LOGS/rdma-core.log" 2>&1 ||
		warn "no mirror has $RDMA_CORE_SOURCE; mkey_pyverbs.sh skips (log: out/log/rdma-core.log)"
}

# patch_librxe DIR: this version of rdma-core lacks a line beside one of the changes.
patch_librxe() {
	sed 's/^@@ -1856,6 +1973,9 @@/@@ -1855,5 +1972,8 @@/; /^ \t\.advise_mr/d' "$TOP"/patches/rdma-core/000[12]-* |
		patch --quiet --strip=1 --fuzz=0 --directory="$1"
}

# make_librxe TO: builds librxe with the patches in TO. RDMAV_DRIVERS=TO/librxe makes programs load it.
make_librxe() {
	local dir=$1/source
	rm -rf "$dir"
	mkdir -p "$dir/kernel-abi"
	cp -r "$(rdma_core_dir)"/{providers,ccan,libibverbs,util,kernel-headers,buildlib} "$dir"
	ln -s libibverbs "$dir/infiniband"
	ln -s kernel-headers/rdma "$dir/rdma"
	patch_librxe "$dir"
	printf '#define %s\n' 'HAVE_STATEMENT_EXPR 1' 'HAVE_TYPEOF 1' 'IBVERBS_PABI_VERSION 34' >"$dir/config.h"
	# shellcheck disable=SC2016 # the shell in the root expands these
	inroot bash -e -c '
		cd "$1"
		for h in ib_user_verbs ib_user_ioctl_verbs rdma_user_rxe; do
			python3 buildlib/make_abi_structs.py "rdma/$h.h" "kernel-abi/$h.h"
		done
		gcc -shared -fPIC -O2 -D_GNU_SOURCE -I. -o "$2" providers/rxe/rxe.c -Wl,--no-undefined -libverbs -lpthread
	' - "$dir" "$1/librxe-rdmav34.so"
	rm -rf "$dir"
}

# copy_rdma_core TO: what the selftests use of it.
copy_rdma_core() {
	[[ -d $(rdma_core_dir)/tests ]] || return 0
	mkdir -p "$1"
	cp -r "$(rdma_core_dir)/tests" "$1"
	make_librxe "$1"
}
rdma_core_key() { [[ ! -f $(rdma_core_dir).record ]] || hash_of <"$(rdma_core_dir).record"; }
