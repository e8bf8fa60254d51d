#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Persistent device memory across a restart. This test runs on the host. One guest
# writes by RDMA and flushes; the next guest has the same nvdimm and looks for the bytes
# on its block device.

set -uo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../../.." && pwd -P)
tests=$top/out/user/selftests
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

echo "TAP version 13"
echo "1..2"

rc=0
where=$(VM_PMEM=$tmp/pmem "$top/dev/vm/run" "cd $tests && ./dm_persist" 2>"$tmp/err" | tail -n 1) || rc=$?
case $rc in
0) echo "ok 1 written and flushed in one guest" ;;
4)
	echo "ok 1 written and flushed in one guest # SKIP no persistent memory"
	echo "ok 2 there in the next guest # SKIP no persistent memory"
	exit 0
	;;
*)
	sed 's/^/# /' "$tmp/err"
	echo "not ok 1 written and flushed in one guest"
	;;
esac

# The first guest printed a device and an offset unless it failed.
if [[ $where =~ ^[0-9]+\ [0-9]+$ ]] &&
	VM_PMEM=$tmp/pmem "$top/dev/vm/run" "cd $tests && bash dm_hardware.sh pmem && ./dm_persist $where" >"$tmp/err" 2>&1; then
	echo "ok 2 there in the next guest"
else
	sed 's/^/# /' "$tmp/err"
	echo "not ok 2 there in the next guest"
	rc=1
fi
exit "$rc"
