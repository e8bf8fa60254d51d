#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# kv.sh: what the group kv of "make bench" compares keys with: the wheel of Mooncake's transfer engine,
# unpacked, and mkey_bench_ucx: mkey_bench with a way more, by the builder root's UCX. Prints their directory.

# shellcheck source=dev/setup/config.sh
source "$(dirname "${BASH_SOURCE[0]}")/config.sh"
# shellcheck source=dev/setup/module.sh
source "$TOP/dev/setup/module.sh"

MOONCAKE=mooncake-transfer-engine-non-cuda==0.3.13
MOONCAKE_SHA256=628591362ab062c478aea1e07fc84c66301302ef215fec7a9d69cdd6d29fb75b
UCX=pool/main/u/ucx/libucx-dev_1.18.1+ds-2+b1_amd64.deb
UCX_SHA256=353636f373a44f7ed0f30b153c44c4af013a99ac15f6eb6183272933ae357253

dir=$TOP/out/kv
select_kernel
build() {
	local user=$TOP/out/user tests
	tests=$(kernel_source)/tools/testing/selftests
	fetch "$MIRROR/$UCX" "$dir/ucx.deb" || fetch "$DEFAULT_MIRROR/$UCX" "$dir/ucx.deb" || die "no mirror has $UCX"
	echo "$UCX_SHA256  $dir/ucx.deb" | sha256sum --check --quiet
	dpkg-deb -x "$dir/ucx.deb" "$dir/ucx"
	echo "$MOONCAKE --hash=sha256:$MOONCAKE_SHA256" >"$dir/wheels"
	inroot python3 -m pip --quiet install --no-deps --only-binary :all: --require-hashes --no-compile \
		--target "$dir/python" -r "$dir/wheels"
	inroot gcc -std=gnu11 -O2 -g -Wall -Wextra -Wno-missing-field-initializers -DKV_UCX -isystem "$dir/ucx/usr/include" \
		-I"$TOP/tools/bench/guest" -I"$TOP/samples/user" -I"$user/include" -isystem "$tests" \
		-o "$dir/mkey_bench_ucx" "$TOP"/tools/bench/guest/{,ucx/}*.c "$TOP/samples/user/rc.c" \
		-L"$user/lib" -Wl,-rpath,"$user/lib" -libmkey -libverbs -l:libucp.so.0 -l:libucs.so.0
}

key=$(cat "${BASH_SOURCE[0]}" "$TOP"/tools/bench/guest/{,ucx/}*.[ch] "$TOP"/samples/user/{kv.h,rc.c,rc.h} | hash_of)
if [[ $(cat "$dir/key" 2>/dev/null) != "$key" ]]; then
	find_mirror
	rm -rf "$dir"
	mkdir -p "$dir" "$TOP/out/log"
	say "==> Mooncake's transfer engine, and UCX (usually 10 s)"
	build >"$TOP/out/log/kv.log" 2>&1 || {
		tail -n 20 "$TOP/out/log/kv.log" >&2
		die "what keys are compared with cannot be built (log: out/log/kv.log)"
	}
	printf '%s' "$key" >"$dir/key"
fi
printf '%s\n' "$dir"
