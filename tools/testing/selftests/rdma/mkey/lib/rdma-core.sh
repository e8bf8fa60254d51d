# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# rdma-core's own tests through pyverbs, with two changes. A script sources this file after common.sh.

# shellcheck disable=SC2034,SC2154 # names of common.sh and of the scripts
rdma_core=$here/../rdma-core
has_rdma_core() { [[ -f $rdma_core/tests/test_mlx5_mkey.py ]] && python3 -c 'import pyverbs.device' 2>/dev/null; }

# rdma_core VARIABLE=VALUE TEST...: runs the tests with the library that the variable names. When the
# garbage collector frees objects of pyverbs, it closes a context before the objects in it, so it is
# off, and the process ends without it. A queue pair that is reset leaves its completions in the CQ
# of rxe, unlike that of mlx5, so they are polled.
rdma_core() {
	PYTHONPATH=$rdma_core:$rdma_core/tests:$here/../python/tests:$here PYTHONDONTWRITEBYTECODE=1 \
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

# All modules of tests that are not for one driver.
rdma_core_modules=(addr atomic cq cq_events cqex device fork mr odp parent_domain pd qp qpex rdmacm
	relaxed_ordering shared_pd srq)

# rdma_core_passes WHICH VARIABLE=VALUE MODULE: the tests that pass, and those that fail, are those of
# the list rdma-core-tests that have the word "any" or a word of WHICH, separated by \|.
rdma_core_passes() {
	local out list expected seen
	list=$here/rdma-core-tests
	[[ -f $list ]] || list=$here/lib/rdma-core-tests
	out=$(rdma_core "$2" "tests.test_$3")
	expected=$(sed -n "s/^\(any\|$1\) \(test_$3\..*\)/ok \2/p; s/^\($1\)-fails \(test_$3\..*\)/not ok \2/p" "$list" | sort)
	seen=$(sed -n '/# SKIP/d; s/ *$//; s/^\(ok\|not ok\) [0-9]* /\1 /p' <<<"$out" |
		grep -vF "$(sed -n 's/^either //p' "$list")" | sort)
	[[ $seen != "$expected" ]] || return 0
	echo "$out"
	diff <(echo "$expected") <(echo "$seen")
}
