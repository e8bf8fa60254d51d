#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Not a test that a guest runs, but the host: persistent device memory across a restart. One guest
# writes by RDMA and flushes; the next guest has the same nvdimm and looks for the bytes
# on its block device.

set -uo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../../.." && pwd -P)
tests=$top/out/user/selftests
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# shellcheck source=/dev/null # of the kernel's source
source "$tests/ktap_helpers.sh"
one="written and flushed in one guest" two="there in the next guest"
ktap_print_header
ktap_set_plan 2

rc=0
where=$(VM_PMEM=$tmp/pmem "$top/dev/vm/run" "cd $tests && ./dm_persist" 2>"$tmp/err" | tail -n 1) || rc=$?
case $rc in
0) ktap_test_pass "$one" ;;
4)
	ktap_test_skip "$one (no persistent memory)"
	ktap_test_skip "$two (no persistent memory)"
	ktap_finished
	;;
*)
	sed 's/^/# /' "$tmp/err"
	ktap_test_fail "$one"
	;;
esac

# The first guest printed a device and an offset unless it failed.
if [[ $where =~ ^[0-9]+\ [0-9]+$ ]] &&
	VM_PMEM=$tmp/pmem "$top/dev/vm/run" "cd $tests && bash dm_hardware.sh pmem && ./dm_persist $where" >"$tmp/err" 2>&1; then
	ktap_test_pass "$two"
else
	sed 's/^/# /' "$tmp/err"
	ktap_test_fail "$two"
fi
ktap_finished
