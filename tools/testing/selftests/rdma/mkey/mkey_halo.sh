#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Halo exchange of two processes, which may be on two machines, by keys, by Open MPI's derived
# datatypes, and by packing: the program of the group halo of "make bench", small. All cells are
# checked, no times.

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

tree=$(cd "$here/../../.." && pwd)
program=$here/../bin/mkey_bench_halo
[[ -x $program ]] || skip_all "no mkey_bench_halo: it is built where there is an MPI"
[[ -x $tree/tools/bench/guest/halo && -e /run/netns/ns0 ]] || skip_all "not in the virtual machine"
[[ -n $(netdev_of 0) ]] || skip_all "no device ${dev[0]}"

sent() {
	in_ns 0 rdma statistic show link "${dev[0]}/1" | grep -oE 'sent_pkts [0-9]+' | cut -d ' ' -f 2
}
exchange() { "$tree/tools/bench/guest/halo" "$program" 1 -q; }
# More packets than the keys alone need: MPI's messages go through the device, too.
on_the_device() {
	local before after
	before=$(sent)
	exchange || return
	after=$(sent)
	# 6 faces of 2 processes, 3 ways, 2 sizes. On two machines, half of them.
	((after - before >= 6 * ${VM_NODE:-2} * 3 * 2)) || { echo "$((after - before)) packets"; return 1; }
}

plan 1
check "every cell of every face, by each way, through ${dev[0]}" on_the_device
ktap_finished
