#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: The block device over RDMA in Rust whose server keeps its data in device memory: that of
# the NVMe controller which it serves. No byte passes through RAM between the disk and the
# packets. The memory is charged, a limit and a class that is absent refuse a connection, and each
# device is removed while the disk is used. This test deletes the devices and adds them again.
# needs: classes brd

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"
# shellcheck source=lib/rblk.sh
source "$(dirname "$0")/rblk.sh" 2>/dev/null || source "$(dirname "$0")/lib/rblk.sh"

at=$(bash "$here/dm_hardware.sh" p2p) || skip_all "no PCI function with memory for peers"
store=/dev/nvme0n1
nvme=/sys/bus/pci/drivers/nvme
# enum ib_uverbs_mkey_dm_class, and a number of none
HOST=1 P2P=4 PMEM=8 NONE=64

# QEMU's controller refuses data in its memory if the SGL is in RAM, so the driver uses PRPs.
sgl=/sys/module/nvme/parameters/sgl_threshold
threshold=$(<$sgl)
echo 0 >$sgl

# moved WHERE: prints how many bytes the server's block device moved there
moved() { awk -v where="$1" '$1 == where { print $2 }' /sys/kernel/debug/mkey_rblk_server/moved; }
copies() { diag "$1: $(moved ram) bytes through RAM, $(moved device) through device memory"; }
by_ram() { serve "$@" && connect && vectors 4 && (($(moved ram) > 0 && $(moved device) == 0)); }
by_device() { serve dm_class=$P2P && connect && vectors 4 && (($(moved ram) == 0 && $(moved device) > 0)); }
ended() { client_ends && server_ends; }

# charged: prints the bytes of the controller's memory that are charged for device 1
charged() {
	awk -v dev="${dev[1]}" '$1 == dev && $2 ~ /^p2p/ { print $4 }' /sys/kernel/debug/ib_mkey/pools
}
owned() { awk -v dev="${dev[1]}" '$1 == dev && $2 == "kernel" { print $3 }' /sys/kernel/debug/ib_mkey/owners; }
is_charged() { charged && owned && [[ $(charged) == $((4 << 20)) && $(owned) == $((4 << 20)) ]]; }
available() { cat "/sys/bus/pci/devices/$at/p2pmem/available"; }

refusals() { dmesg | grep -c "mkey_rblk_server: a connection is refused: error -$1\$"; }
more_refusals() { (($(refusals "$1") > $2)); }
# refused ERRNO PARAMETER...: each connection is, and nothing is left of it
refused() {
	local rc=0 known
	known=$(refusals "$1")
	serve "${@:2}" && client && until_true more_refusals "$1" "$known" || rc=1
	[[ ! -e $disk ]] || rc=1
	ended && [[ $(charged) == 0 && $(available) == "$all" ]] && return $rc
}
other_disk() {
	local store=/dev/ram0
	ram_disk && refused 95 dm_class=$P2P && no_ram_disk
}

# The controller's driver waits until its memory is free. Requests fail or wait.
gone() { [[ ! -e /sys/bus/pci/devices/$at/p2pmem ]]; }
nvme_goes() {
	local io writes
	# Without this file the loop ends after its last dd, which a signal to the loop would leave.
	writes=$(mktemp)
	while [[ -e $writes ]] && dd if=/dev/zero of=$disk bs=64k count=256 oflag=direct 2>/dev/null; do :; done & io=$!
	sleep 0.5
	kill -0 $io || { echo "it does not write"; return 1; }
	echo "$at" >$nvme/unbind && gone || return
	echo "$at" >$nvme/bind && until_true test -b $store && until_true connected || return
	rm "$writes"
	wait $io
	transfers "$rounds" 4
}
all_back() { ended && echo "$all, $(available)" && [[ $(available) == "$all" ]]; }

all=$(available)
diag "seed $seed"
plan 14
check "data by way of RAM" by_ram
copies "pages of the host"
check "it ends" ended
check "data by way of device memory that is RAM" by_ram dm_class=$HOST
check "it ends, too" ended
check "data by way of the controller's memory" by_device
copies "memory of the controller"
check "the memory is charged to the kernel" is_charged
check "the device of the client is deleted while it is used" device_goes 0
check "the device of the server is deleted while it is used" device_goes 1
check "the controller is unbound while it is used" nvme_goes
check "it ends, and the controller has its memory back" all_back
check "more than the share of a user is refused" refused 12 dm_class=$P2P memory=16
check "a class that is absent is refused, and one that is none" eval "refused 95 dm_class=$PMEM && refused 22 dm_class=$NONE"
check "a disk that cannot access the memory is refused" other_disk
echo "$threshold" >$sgl
check "the log says nothing of it" clean
ktap_finished
