#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Not a test: dm_hardware.sh p2p|pmem prepares the memory behind the device memory class of that
# name, and prints where it is: the PCI function, or N of /dev/pmemN. A second call
# changes nothing. Fails if the machine has no such memory, or if the module parameter
# dm_class does not name it.

set -u
classes=$(</sys/module/ib_mkey/parameters/dm_class) || exit

# The controller's driver publishes its memory buffer.
p2p() {
	local at
	[[ $classes =~ p2p=([0-9a-f:.]+) ]] || return
	at=${BASH_REMATCH[1]}
	modprobe -q nvme
	for _ in {1..100}; do
		[[ -s /sys/bus/pci/devices/$at/p2pmem/size && -b /dev/nvme0n1 ]] && echo "$at" && return
		sleep 0.1
	done
	return 1
}

# A new namespace has no struct page; one of mode fsdax has.
pmem() {
	local n pfn nd=/sys/bus/nd
	[[ $classes =~ pmem=([0-9]+) ]] || return
	n=${BASH_REMATCH[1]}
	modprobe -qa nfit nd_pmem
	for _ in {1..100}; do
		[[ -b /dev/pmem$n ]] && break
		sleep 0.1
	done
	[[ -b /dev/pmem$n ]] || return
	pfn=$nd/devices/pfn$n.0
	if [[ $(readlink -f "/sys/block/pmem$n/device") != */pfn* ]]; then
		echo "namespace$n.0" >"$nd/drivers/nd_pmem/unbind" || return
		{
			echo ram >"$pfn/mode" &&
				echo 2097152 >"$pfn/align" &&
				cat /proc/sys/kernel/random/uuid >"$pfn/uuid" &&
				echo "namespace$n.0" >"$pfn/namespace" &&
				echo "pfn$n.0" >"$nd/drivers/nd_pmem/bind"
		} || return
	fi
	for _ in {1..100}; do
		[[ -b /dev/pmem$n ]] && echo "$n" && return
		sleep 0.1
	done
	return 1
}

case ${1-} in
p2p | pmem) "$1" ;;
*) exit 2 ;;
esac
