#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# test.sh: runs the user samples, and reports in TAP. It is installed
# beside the samples. It needs root, ib_mkey, rxe0 in ns0 and rxe1 in ns1.

here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
# shellcheck source=/dev/null # of the kernel's source
. "$here/../selftests/ktap_helpers.sh"

# result STATUS NAME: prints the output of the test, and then one TAP line
result()
{
	sed 's/^/# /' "$tmp/log"
	ktap_test_result "$2" [ "$1" -eq 0 ]
}

# works NAME COMMAND...: tests that COMMAND succeeds and prints something
works()
{
	name=$1
	shift
	"$@" >"$tmp/log" 2>&1
	status=$?
	[ -s "$tmp/log" ] || status=1
	result "$status" "$name"
}

# refuses NAME WORDS COMMAND...: tests that COMMAND fails and prints one line with WORDS
refuses()
{
	name=$1
	words=$2
	shift 2
	if "$@" >"$tmp/out" 2>"$tmp/log"; then
		status=1
	else
		status=0
	fi
	[ "$(wc -l <"$tmp/log")" -eq 1 ] || status=1
	grep -q -e "$words" "$tmp/log" || status=1
	result "$status" "$name"
}

# without_address COMMAND...: runs COMMAND while the netdev of rxe0 has no IP address
without_address()
{
	local_one=$(ip -n ns0 -6 -o addr show dev veth0 scope link | awk '{ print $4 }')
	ip -n ns0 addr flush dev veth0
	"$@"
	status=$?
	# in the order in which they were, so that the GIDs keep their numbers
	ip -n ns0 addr add "$local_one" dev veth0 nodad
	ip -n ns0 addr add 10.0.0.1/24 dev veth0
	return "$status"
}

# unwritten COMMAND...: runs COMMAND with a standard output that cannot be written
unwritten()
{
	"$@" >/dev/full
}

# closed COMMAND...: runs COMMAND without standard output
closed()
{
	"$@" >&-
}

# nodes SAMPLE OPTIONS...: runs SAMPLE on rxe1, and on rxe0 with the address of rxe1
nodes()
{
	sample=$here/$1
	shift
	ip netns exec ns1 "$sample" "$@" rxe1 >"$tmp/there" 2>&1 &
	there=$!
	ip netns exec ns0 "$sample" "$@" rxe0 10.0.0.2
	status=$?
	[ "$status" -eq 0 ] || kill "$there" 2>/dev/null
	wait "$there" || status=1
	cat "$tmp/there"
	return "$status"
}

# multicast PAYLOADS [COMMAND...]: runs a source, started by COMMAND, and 3 destinations
multicast()
{
	payloads=$1
	shift
	ip netns exec ns1 "$@" "$here/dm_multicast" -n "$payloads" rxe1 >"$tmp/there" 2>&1 &
	there=$!
	destinations=
	for _ in 1 2 3; do
		ip netns exec ns0 "$here/dm_multicast" rxe0 10.0.0.2 &
		destinations="$destinations $!"
	done
	status=0
	for pid in $destinations; do
		wait "$pid" || status=1
	done
	[ "$status" -eq 0 ] || kill "$there" 2>/dev/null
	wait "$there" || status=1
	cat "$tmp/there"
	return "$status"
}

# Tests from outside how often a payload is copied: counts the commands to the device right
# before a work request is posted. The first copies of a buffer are such commands. After the
# eighth copy the library maps the buffer, and later copies are not commands.
multicast_copies_once()
{
	multicast 7 strace -e trace=ioctl,write -o "$tmp/strace" || return 1
	copies=$(awk -F '[(,]' '
		$1 == "ioctl" { fd = / RDMA_VERBS_IOCTL/ ? $2 : ""; next }
		fd != "" && $2 == fd { n++ }
		{ fd = "" }
		END { print n + 0 }' "$tmp/strace")
	echo "7 payloads, $copies copies"
	[ "$copies" -eq 7 ]
}

# refused_bind CALL SAMPLE: gives wrong lkeys to the MRs that SAMPLE registers, and tests that it
# says which entry of its bind is wrong, and which part of an MPI datatype
refused_bind()
{
	if LD_PRELOAD=$here/../selftests/wrong_lkey.so ip netns exec ns0 "$here/$2" rxe0 >"$tmp/said" 2>&1; then
		echo "$2 did not fail"
		return 1
	fi
	cat "$tmp/said"
	grep -q "$1: \(.*: \)\?[a-z]*\(\[0\]\)\?\.\?lkey 0x[0-9a-f]* names no MR" "$tmp/said"
}

ktap_print_header
if ! ip netns exec ns0 rdma link show rxe0/1 >/dev/null 2>&1 ||
   ! ip netns exec ns1 rdma link show rxe1/1 >/dev/null 2>&1; then
	ktap_skip_all "no rxe0 in ns0 and rxe1 in ns1"
	exit "$KSFT_SKIP"
fi
operations=100000 messages=5000 payloads=200
scripts="column halo header_payload kv_cache dm_lock"
if [ -n "${MKEY_TEST_QUICK-}" ]; then
	operations=2000 messages=200 payloads=20
	# Under emulation NumPy takes ten seconds to start, so run one program only. The tests of
	# the cells run all programs in one process.
	scripts=column
fi
# shellcheck disable=SC2086 # words
set -- $scripts
ktap_set_plan $((28 + $#))

for sample in column header_payload pages kv_cache kv_mlx5dv halo dm_counter rebind; do
	works "$sample on rxe0" ip netns exec ns0 "$here/$sample" rxe0
done
export PYTHONPATH="$here/../python/lib" PYTHONDONTWRITEBYTECODE=1
for sample; do
	works "python/$sample on rxe0" ip netns exec ns0 python3 "$here/python/$sample.py" rxe0
done
works "the samples in Python, cell by cell" ip netns exec ns0 python3 "$here/../python/tests/cells.py" rxe0 \
	"$here/python/column.py" "$here/python/halo.py" "$here/python/header_payload.py" "$here/python/kv_cache.py" \
	"$here/python/dm_lock.py"
works "keys in Rust on rxe0" ip netns exec ns0 "$here/keys_rust" rxe0
works "a KV cache in Rust on rxe0" ip netns exec ns0 "$here/kv_rust" rxe0
works "keys in Rust with objects of another crate on rxe0" ip netns exec ns0 "$here/foreign_rust" rxe0
# MPI runs in one process, so it needs no transport to other processes.
export OMPI_MCA_btl=self OMPI_MCA_pml=ob1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
works "send_type on rxe0" ip netns exec ns0 "$here/send_type" rxe0
works "column on the first device" ip netns exec ns1 "$here/column"
for sample in ibmkey_bind_list:pages kv_view:kv_cache ibmkey_mpi_bind:send_type; do
	works "$sample says which lkey is wrong" refused_bind "${sample%:*}" "${sample#*:}"
done
refuses "a device that is not there" "does not list rxe9; mkeyctl doctor" \
	ip netns exec ns0 "$here/column" rxe9
refuses "python/column: a device that is not there" "does not list rxe9; mkeyctl doctor" \
	ip netns exec ns0 python3 "$here/python/column.py" rxe9

refuses "column: output that cannot be written" "column: standard output: No space left" \
	unwritten ip netns exec ns0 "$here/column" rxe0
refuses "column: no standard output" "column: standard output: Bad file descriptor" \
	closed ip netns exec ns0 "$here/column" rxe0

refuses "column: a netdev without an address" "has each netdev an IP address" \
	without_address ip netns exec ns0 "$here/column" rxe0
works "fetch, two nodes" nodes fetch
# Packets to this address reach no machine: none has the hardware address.
ip -n ns0 neigh replace 10.0.0.99 lladdr 02:00:00:00:00:99 dev veth0 nud permanent
refuses "fetch, from a host that does not answer" "cannot reach 10.0.0.99, TCP port 18517: Connection timed out" \
	timeout 60 ip netns exec ns0 "$here/fetch" rxe0 10.0.0.99
ip -n ns0 neigh delete 10.0.0.99 dev veth0
works "dm_lock, two nodes" nodes dm_lock -n "$operations"
works "dm_staging, two nodes" nodes dm_staging -n "$messages"
works "dm_multicast, three destinations" multicast "$payloads"
works "dm_multicast copies each payload once" multicast_copies_once

ktap_finished
