#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: A storage protocol of the kernel that does not know ib_mkey: RNBD over rtrs, with
# client and server on one rxe device, over a RAM disk. It allocates MRs of the type with gaps if
# the device supports them, and registers one for each request.
# needs: rnbd

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"
trace_group=mkey_rnbd
# shellcheck source=lib/trace.sh
source "$(dirname "$0")/trace.sh" 2>/dev/null || source "$(dirname "$0")/lib/trace.sh"

[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
modules=(rnbd-client rnbd-server rtrs-client rtrs-server brd)
modprobe -n -qa "${modules[@]}" || skip_all "this kernel has no RNBD or no RAM disks"
control=/sys/devices/virtual/rnbd-client/ctl/map_device
trace_can || skip_all "this kernel cannot count calls of functions"
rounds=150
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || rounds=40
warnings=$(dmesg | grep -cE 'WARNING:|BUG:|rtrs.*(rror|ailed)|rnbd.*(rror|ailed)')

# rtrs listens in the first network namespace, so the device must be there.
up() {
	modprobe -a "${modules[@]}" &&
		ip link add mkeyrnbd type dummy &&
		ip addr add 10.8.0.1/24 dev mkeyrnbd &&
		ip link set mkeyrnbd up &&
		rdma link add rxe_rnbd type rxe netdev mkeyrnbd
}

mapped() {
	echo "sessname=mkey path=ip:10.8.0.1 device_path=/dev/ram0" >"$control" || return
	for _ in {1..1800}; do
		[[ -b /dev/rnbd0 ]] && return
		sleep 0.1
	done
	return 1
}

transfers() { "${blockio[@]}" /dev/rnbd0 /dev/ram0 "$rounds" "$1"; }

unmapped() {
	echo normal >/sys/block/rnbd0/rnbd/unmap_device || return
	for _ in {1..1800}; do
		[[ -e /sys/block/rnbd0 ]] || break
		sleep 0.1
	done
	[[ ! -e /sys/block/rnbd0 ]]
}

down() {
	local rc=0
	trace_stop || rc=1
	for _ in {1..1800}; do
		modprobe -qr "${modules[@]}" rtrs-core 2>/dev/null && break
		sleep 0.1
	done
	[[ ! -d /sys/module/rtrs_core && ! -d /sys/module/brd ]] || { echo "modules stay"; rc=1; }
	rdma link delete rxe_rnbd && ip link delete mkeyrnbd || rc=1
	return "$rc"
}

clean() {
	(($(dmesg | grep -cE 'WARNING:|BUG:|rtrs.*(rror|ailed)|rnbd.*(rror|ailed)') == warnings)) ||
		{ dmesg | grep -E 'WARNING:|BUG:|rtrs|rnbd' | tail -n 20; return 1; }
}

plan 9
check "a device for it" up
check "calls can be counted" trace_start
check "a remote disk is mapped" mapped
check "all its regions are of the type with gaps" trace_with_gaps 512
check "every byte, both ways" transfers 1
check "again" transfers 2
check "each request was mapped, registered and invalidated" trace_registered "$rounds"
check "it is unmapped, and all goes away" eval 'unmapped && down'
check "the log says nothing of it" clean
ktap_finished
