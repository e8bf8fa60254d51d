#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Peer to peer: blocks of an NVMe device are read into device memory that is the
# controller's own memory buffer, and sent from there to the other node, by the kernel sample
# samples/kernel/mkey_ulp_block.c. The sample checks that the pages are not RAM and that every
# byte arrived. A controller can always reach its own memory.
# needs: classes

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
ulp=${MKEY_ULP:-${MODULE_DIR-}/samples/kernel/mkey_ulp_c.ko}
[[ -e $ulp ]] || skip_all "no mkey_ulp_c.ko; MKEY_ULP= names it"
at=$(bash "$here/dm_hardware.sh" p2p) || skip_all "no PCI function with memory for peers"
disk=/dev/nvme0n1

# enum ib_uverbs_mkey_dm_class
HOST=1 P2P=4

# ulp_run CLASS: if it fails, the kernel's log says why
ulp_run() {
	local rc=0
	insmod "$ulp" device="${dev[0]}" peer="${dev[1]}" bdev="$disk" dm_class="$1" || rc=$?
	((rc == 0)) || { dmesg | grep mkey_ulp | tail -n 3; return "$rc"; }
	rmmod mkey_ulp_c
}

filled() { head -c 1M /dev/urandom | dd of="$disk" bs=1M oflag=direct iflag=fullblock status=none; }

# The controller's own account shows the allocation, too, and shows it freed afterwards.
available() { cat "/sys/bus/pci/devices/$at/p2pmem/available"; }
all_back() {
	local before after
	before=$(available) && ulp_run "$P2P" && after=$(available) && [[ $before == "$after" ]] && return
	echo "$before bytes were available, now ${after-}"
	return 1
}

plan 4
check "the disk holds something" filled
check "NVMe blocks by way of the controller's memory" ulp_run "$P2P"
check "the controller has its memory back" all_back
check "NVMe blocks by way of RAM" ulp_run "$HOST"
ktap_finished
