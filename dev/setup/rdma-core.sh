# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# rdma-core's own tests of the version that the builder root has, from Debian's source
# package. Debian's binary packages do not have them. Only one selftest uses them, and it
# skips without them. Part of build.sh.

RDMA_CORE_SOURCE=pool/main/r/rdma-core/rdma-core_56.1.orig.tar.gz
RDMA_CORE_SHA256=63ce7f2baa7242c2dbc76375dac957c420187dd27f8c5e148efc07971ee522a8

rdma_core_dir() { printf '%s/rdma-core-%s' "$CACHE" "${RDMA_CORE_SHA256:0:12}"; }

make_rdma_core() {
	local dir=$1 tmp=$1.tmp
	rm -rf "$tmp" "$dir"
	mkdir -p "$tmp"
	{ fetch "$MIRROR/$RDMA_CORE_SOURCE" "$tmp/source" || fetch "$DEFAULT_MIRROR/$RDMA_CORE_SOURCE" "$tmp/source"; } &&
		echo "$RDMA_CORE_SHA256  $tmp/source" | sha256sum --check --quiet &&
		tar -xzf "$tmp/source" -C "$tmp" --strip-components=1 --wildcards --no-wildcards-match-slash \
			'rdma-core-*/tests/*.py' 'rdma-core-*/COPYING*' &&
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

# copy_rdma_core TO: what the selftests use of it.
copy_rdma_core() {
	[[ -d $(rdma_core_dir)/tests ]] || return 0
	mkdir -p "$1"
	cp -r "$(rdma_core_dir)/tests" "$1"
}
rdma_core_key() { [[ ! -f $(rdma_core_dir).record ]] || hash_of <"$(rdma_core_dir).record"; }
