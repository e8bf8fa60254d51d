# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# TAP output and devices, for all shell scripts of the ib_mkey selftests. A script
# sources this file.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ -x $here/stock_mr ]] || here=$(dirname "$here")

KSFT_SKIP=4
tests=0 failed=0

skip_all() {
	echo "TAP version 13"
	echo "1..0 # SKIP $*"
	exit $KSFT_SKIP
}

plan() {
	echo "TAP version 13"
	echo "1..$1"
	planned=$1
}

# shellcheck disable=SC2001 # of each line
diag() { sed 's/^/# /' <<<"$*"; }

# check NAME COMMAND...: ok if COMMAND succeeds; otherwise prints its output
check() {
	local name=$1 out rc=0
	shift
	out=$("$@" 2>&1) || rc=$?
	tests=$((tests + 1))
	if ((rc == 0)); then
		echo "ok $tests $name"
	else
		[[ -z $out ]] || diag "$out"
		echo "not ok $tests $name"
		failed=$((failed + 1))
	fi
}

finish() {
	((tests == planned)) || { diag "planned $planned tests, ran $tests"; failed=1; }
	((failed == 0))
	exit
}

dev=("${MKEY_TEST_DEV0:-rxe0}" "${MKEY_TEST_DEV1:-rxe1}")
netns=("${MKEY_TEST_NETNS0:-ns0}" "${MKEY_TEST_NETNS1:-ns1}")

# in_ns N COMMAND...: runs COMMAND in the network namespace of device N
in_ns() {
	local n=$1
	shift
	if [[ -e /run/netns/${netns[n]} ]]; then
		ip netns exec "${netns[n]}" "$@"
	else
		"$@"
	fi
}

# netdev_of N: prints the network device below device N
netdev_of() {
	in_ns "$1" rdma link show "${dev[$1]}/1" 2>/dev/null |
		sed -n 's/.* netdev \([^ ]*\).*/\1/p'
}

# program NAME OPTIONS...: runs a test program; fails if a test of it is skipped
program() {
	local out
	out=$("$here/$1" "${@:2}" 2>&1) || { echo "$out"; return 1; }
	if grep -q '# SKIP\|SKIP  ' <<<"$out"; then
		echo "$out"
		return 1
	fi
}
