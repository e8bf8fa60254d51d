#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: rdma-core's own tests, as they are, through pyverbs: those of mkeys by the mlx5
# provider of pyverbs, with the libmlx5.so.1 of this tree in front of rdma-core's, and those of
# MRs that are registered again, with the preload library. Tests of signatures must skip, and all
# others must run.

# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

rdma_core=$here/../rdma-core
lib=$here/../lib/ibmkey-mlx5dv
[[ -f $rdma_core/tests/test_mlx5_mkey.py ]] || skip_all "rdma-core's tests are not there"
[[ -e $lib/libmlx5.so.1 ]] || skip_all "libmlx5 is not built"
preload=$here/../lib/libibmkey-preload.so
[[ -e $preload ]] || skip_all "the preload library is not built"
[[ -n $(netdev_of 0) ]] || skip_all "no device ${dev[0]}"
export PYTHONPATH=$rdma_core:$rdma_core/tests:$here/../python/tests PYTHONDONTWRITEBYTECODE=1
python3 -c 'import pyverbs.providers.mlx5.mlx5dv' || skip_all "no pyverbs"

works=(list interleaved list_new_api interleaved_new_api odp_list list_bad_flow remote_invalidate)
skips=(sig_t10dif sig_crc sig_err sig_pipelining_good sig_pipelining_bad)
name_of() {
	case $1 in
	odp_list) echo test_odp_mkey_list_new_api ;;
	*) echo "test_mkey_$1" ;;
	esac
}

# run VARIABLE=VALUE TEST...: rdma-core's tests with the library that the variable names. When the
# garbage collector frees objects of pyverbs, it closes a context before the objects in it, so it is
# off, and the process ends without it. A queue pair that is reset leaves its completions in the CQ
# of rxe, unlike that of mlx5, so they are polled.
run() {
	in_ns 0 env "$1" python3 - "${dev[0]}" "${@:2}" 2>&1 <<-EOF
		import gc, os, sys
		gc.disable()
		from args_parser import parser
		from tests import test_mr
		restate = test_mr.MRTest.restate_qps
		def restate_and_poll(test):
		    restate(test)
		    for player in test.server, test.client:
		        while player.cq.poll()[0]:
		            pass
		test_mr.MRTest.restate_qps = restate_and_poll
		tests = sys.argv[2:]
		sys.argv = ["tap", "--dev", sys.argv[1]]
		parser.parse_args()
		import tap
		sys.argv = ["tap", *tests]
		try:
		    tap.main()
		except SystemExit as end:
		    sys.stdout.flush()
		    os._exit(int(end.code or 0))
	EOF
}

# Both look at the results. A test that rdma-core adds is not in the lists.
passed() { grep -q "^ok [0-9]* .*\.$(name_of "$1") *\$" <<<"$results" || { echo "$results"; return 1; }; }
skipped() { grep -q "^ok [0-9]* .*\.$(name_of "$1") (.*not supported) # SKIP" <<<"$results" || { echo "$results"; return 1; }; }
# rdma-core's library finds no ConnectX.
all_skipped() { ! grep "^ok\|^not ok" <<<"$1" | grep -v "(.*not an MLX5 device.*) # SKIP"; }

mlx5=tests.test_mlx5_mkey
rereg=(rereg_atomic rereg_access rereg_access_bad_flow rereg_pd rereg_addr)
rereg_passed() { grep -q "^ok [0-9]* .*\.test_mr_$1 *\$" <<<"$results" || { echo "$results"; return 1; }; }

plan $((${#works[@]} + ${#skips[@]} + 2 + ${#rereg[@]}))
results=$(run LD_LIBRARY_PATH="$lib" $mlx5)
for t in "${works[@]}"; do check "$(name_of "$t")" passed "$t"; done
for t in "${skips[@]}"; do check "$(name_of "$t") skips" skipped "$t"; done
check "there are no other tests" test "$(grep -c '^ok\|^not ok' <<<"$results")" -eq $((${#works[@]} + ${#skips[@]}))
check "with rdma-core's library, all skip" all_skipped "$(run LD_LIBRARY_PATH= $mlx5)"
results=$(run LD_PRELOAD="$preload" "${rereg[@]/#/tests.test_mr.MRTest.test_mr_}")
for t in "${rereg[@]}"; do check "test_mr_$t" rereg_passed "$t"; done
ktap_finished
