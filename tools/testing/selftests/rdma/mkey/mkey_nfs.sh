#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: A file system of the kernel that does not know ib_mkey: NFSv4.2 over RDMA from one
# device to the other. The client registers an MR of the type with gaps for each read and write.
# The server's file is in memory, so both sides of it can be compared.
# needs: nfs

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"
trace_group=mkey_nfs
# shellcheck source=lib/trace.sh
source "$(dirname "$0")/trace.sh" 2>/dev/null || source "$(dirname "$0")/lib/trace.sh"
nfs_dir=$(mktemp -d)
trap 'rmdir "$nfs_dir"' EXIT
# shellcheck source=lib/nfs.sh
source "$(dirname "$0")/nfs.sh" 2>/dev/null || source "$(dirname "$0")/lib/nfs.sh"

[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
! missing=$(nfs_missing) || skip_all "$missing"
trace_can || skip_all "this kernel cannot count calls of functions"
rounds=150
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || rounds=10
complaints='WARNING:|BUG:|rpcrdma:|svcrdma:.*(rror|ailed)|nfs: server'
complaints() { dmesg | grep -cE "$complaints"; }
before=$(complaints)

transfers() { "${blockio[@]}" "$nfs_mnt/file" "$nfs_behind/file" "$rounds" "$1"; }
over_rdma() { grep " $nfs_mnt nfs4 .*vers=4.2,.*proto=rdma" /proc/mounts; }
clean() { (($(complaints) == before)) || { dmesg | grep -E "$complaints" | tail -n 20; return 1; }; }

plan 8
check "calls can be counted" trace_start
check "a file is exported and mounted" nfs_up $((16 << 20))
check "the mount is NFSv4.2 over RDMA" over_rdma
check "every byte, both ways" transfers 1
check "all MRs are of the type with gaps" trace_with_gaps 8
check "each transfer was mapped, registered and invalidated" trace_registered "$rounds"
check "it is unmounted, and all goes away" eval 'trace_stop; nfs_down'
check "the log says nothing of it" clean
ktap_finished
