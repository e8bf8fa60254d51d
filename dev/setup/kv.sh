#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# kv.sh: what the group kv of "make bench" compares keys with: the wheel of Mooncake's transfer engine,
# unpacked, and mkey_bench_ucx: mkey_bench with a way more, by the builder root's UCX. Prints their directory.

# shellcheck source=dev/setup/packages.sh
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"
# shellcheck source=dev/setup/module.sh
source "$TOP/dev/setup/module.sh"

MOONCAKE=mooncake-transfer-engine-non-cuda==0.3.13
MOONCAKE_SHA256=628591362ab062c478aea1e07fc84c66301302ef215fec7a9d69cdd6d29fb75b

select_kernel
build() { # DIR
	local dir=$1 user=$TOP/out/user tests
	tests=$(kernel_source)/tools/testing/selftests
	unpack "$dir/ucx" libucx-dev
	echo "$MOONCAKE --hash=sha256:$MOONCAKE_SHA256" >"$dir/wheels"
	inroot python3 -m pip --quiet install --no-deps --only-binary :all: --require-hashes --no-compile \
		--target "$dir/python" -r "$dir/wheels"
	inroot gcc -std=gnu11 -O2 -g -Wall -Wextra -Wno-missing-field-initializers -DKV_UCX -isystem "$dir/ucx/usr/include" \
		-I"$TOP/tools/bench/guest" -I"$TOP/samples/user" -I"$user/include" -isystem "$tests" \
		-o "$dir/mkey_bench_ucx" "$TOP"/tools/bench/guest/{,ucx/}*.c "$TOP/samples/user/rc.c" \
		-L"$user/lib" -Wl,-rpath,"$user/lib" -libmkey -libverbs -l:libucp.so.0 -l:libucs.so.0
}

key=$(cat "${BASH_SOURCE[0]}" "$TOP"/tools/bench/guest/{,ucx/}*.[ch] "$TOP"/samples/user/{kv.h,rc.c,rc.h} | hash_of)
keep kv "Mooncake's transfer engine, and UCX" "10 s" "$key" build "$TOP/out/kv"
