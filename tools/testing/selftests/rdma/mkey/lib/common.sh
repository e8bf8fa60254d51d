# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# TAP output and devices, for all shell scripts of the ib_mkey selftests. A script
# sources this file.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ -x $here/stock_mr ]] || here=$(dirname "$here")
# The kernel's own: a build elsewhere has a copy beside the tests.
for ktap in "$here" "$here/../../kselftest"; do
	# shellcheck source=/dev/null # of the kernel's source
	[[ ! -f $ktap/ktap_helpers.sh ]] || { source "$ktap/ktap_helpers.sh" && break; }
done

skip_all() {
	ktap_print_header
	ktap_skip_all "$*"
	exit "$KSFT_SKIP"
}

plan() {
	ktap_print_header
	ktap_set_plan "$1"
}

# shellcheck disable=SC2001 # of each line
diag() { sed 's/^/# /' <<<"$*"; }

# check NAME COMMAND...: ok if COMMAND succeeds; otherwise prints its output. The helpers
# print a name unquoted.
check() {
	local name=${1//[*?[]/_} out
	shift
	if out=$("$@" 2>&1); then
		ktap_test_pass "$name"
	else
		[[ -z $out ]] || diag "$out"
		ktap_test_fail "$name"
	fi
}

# skip NAME REASON: instead of check
skip() { ktap_test_skip "$1 ($2)"; }

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

# address_of N: prints the IPv4 address of device N
address_of() {
	in_ns "$1" ip -4 -o addr show dev "$(netdev_of "$1")" |
		awk '{ sub("/.*", "", $4); print $4; exit }'
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

# until_true COMMAND...: waits until COMMAND succeeds. The limit ends a wait for an event that
# never happens. No test measures time.
until_true() {
	local n
	for ((n = 0; n < 1800; n++)); do
		"$@" && return
		sleep 0.1
	done
	echo "still not: $*"
	return 1
}

# find_netdevs: for a test that deletes the links of the devices, and adds them again
find_netdevs() {
	local i
	netdev=()
	for i in 0 1; do
		netdev[i]=$(netdev_of $i)
		[[ -n ${netdev[i]} ]] || skip_all "no device ${dev[i]}"
	done
}
usable() { in_ns "$1" rdma link show "${dev[$1]}/1" | grep -q 'state ACTIVE'; }
link_add() {
	in_ns "$1" rdma link add "${dev[$1]}" type rxe netdev "${netdev[$1]}" &&
		until_true usable "$1"
}
link_delete() { in_ns "$1" rdma link delete "${dev[$1]}"; }
links_add() { link_add 0 && link_add 1; }
links_delete() { link_delete 0 && link_delete 1; }

# "${blockio[@]}" DEVICE BEHIND ROUNDS SEED [GRAIN]: random reads and writes, each of which is checked
# shellcheck disable=SC2034 # for the script
blockio=(python3 -B "$(dirname "${BASH_SOURCE[0]}")/blockio.py")
