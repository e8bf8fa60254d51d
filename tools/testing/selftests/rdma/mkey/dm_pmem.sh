#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Which persistent memory ib_mkey takes: the disk that the administrator named, even if a
# process sees another disk under that name, and only while its driver is bound.
# needs: classes

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

((UID == 0)) || skip_all "not root"
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
n=$(bash "$here/dm_hardware.sh" pmem) || skip_all "no persistent memory"
netdev=$(netdev_of 0)
[[ -n $netdev ]] || skip_all "no device ${dev[0]}"
disk=/dev/pmem$n
driver=/sys/bus/nd/drivers/nd_pmem

# The limit ends a wait for an event that never happens. No test measures time.
until_true() {
	local i
	for ((i = 0; i < 1800; i++)); do
		"$@" && return
		sleep 0.1
	done
	echo "still not: $*"
	return 1
}
usable() { in_ns 0 rdma link show "${dev[0]}/1" | grep -q 'state ACTIVE'; }

# Adds a link that has not looked for its memory yet.
new_link() {
	in_ns 0 rdma link delete "${dev[0]}" &&
		in_ns 0 rdma link add "${dev[0]}" type rxe netdev "$netdev" && until_true usable
}

# hold WORD [COMMAND...]: starts mkey_hold by COMMAND and expects WORD from it. If it holds memory,
# release ends it.
hold() {
	local line=
	coproc holder { exec "${@:2}" "$here/mkey_hold" pmem; }
	# shellcheck disable=SC2154 # coproc sets it
	holding=$holder_PID
	read -r line <&"${holder[0]}"
	[[ $line == ready ]] || wait "$holding"
	[[ $line == "$1" ]] || { echo "it said '$line', not '$1'"; return 1; }
}
release() {
	kill -KILL "$holding"
	wait "$holding"
	[[ $? == 137 ]]
}

total() { awk -v device="${dev[0]}" '$1 == device && $2 ~ /^pmem=/ { print $3 }' /sys/kernel/debug/ib_mkey/pools; }

# Makes one partition of 4 MiB at 1 MiB, or none. Other tests may have left anything in the sector,
# also what the kernel takes for bad entries of a table.
partition() {
	dd if=/dev/zero of="$disk" bs=512 count=1 conv=notrunc status=none &&
		printf '\0\0\0\0\203\0\0\0\0\010\0\0\0\040\0\0' |
		dd of="$disk" bs=1 seek=446 conv=notrunc status=none &&
		printf '\125\252' | dd of="$disk" bs=1 seek=510 conv=notrunc status=none &&
		blockdev --rereadpt "$disk" && until_true test -b "${disk}p1"
}
no_partition() { dd if=/dev/zero of="$disk" bs=512 count=1 status=none && blockdev --rereadpt "$disk"; }

# The first process that allocates sees another disk under the name.
other_name() {
	local rc=0
	in_ns 0 rdma link delete "${dev[0]}" && partition &&
		in_ns 0 rdma link add "${dev[0]}" type rxe netdev "$netdev" && until_true usable || return
	# shellcheck disable=SC2016 # for that shell
	hold ready unshare -m bash -c 'mount --bind "$0p1" "$0" && exec "$@"' "$disk" || return
	(($(total) > 4 * 1024 * 1024)) || { echo "$(total) bytes of another device"; rc=1; }
	release && in_ns 0 rdma link delete "${dev[0]}" && no_partition &&
		in_ns 0 rdma link add "${dev[0]}" type rxe netdev "$netdev" && until_true usable && return "$rc"
}

waits_or_ended() { grep -qs memunmap_pages "/proc/$1/stack" || ! kill -0 "$1" 2>/dev/null; }

# The driver keeps its pages while any of them is allocated.
unbind() {
	local unbinding rc=0
	new_link && hold ready || return
	(echo "pfn$n.0" >"$driver/unbind") &
	unbinding=$!
	until_true waits_or_ended "$unbinding" || rc=$?
	grep -qs memunmap_pages "/proc/$unbinding/stack" || { echo "the pages are gone"; rc=1; }
	release || rc=$?
	wait "$unbinding" || rc=$?
	return "$rc"
}

# The memory can be allocated again only after its driver was bound.
bind_again() {
	hold EOPNOTSUPP && echo "pfn$n.0" >"$driver/bind" && until_true test -b "$disk" &&
		hold ready && release
}

plan 3
check "it is taken by its own name" other_name
check "its driver waits until its memory is freed" unbind
check "it goes and comes back" bind_again
ktap_finished
