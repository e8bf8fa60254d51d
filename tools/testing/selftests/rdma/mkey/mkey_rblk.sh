#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: The block device over RDMA in Rust (samples/kernel): client and server in two network
# namespaces, each with its own device. Vectors begin and end at every 4 bytes. The devices of both
# sides are deleted while the disk is used, a writer is killed, and a client vanishes. No byte is
# wrong then. This test deletes the devices and adds them again.
# needs: brd

# shellcheck disable=SC2119,SC2317 # functions are called by check, serve without parameters, too
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

# shellcheck source=lib/rblk.sh
source "$(dirname "$0")/rblk.sh" 2>/dev/null || source "$(dirname "$0")/lib/rblk.sh"

store=/dev/ram0
# The client connects as soon as there is a server.
served_late() { connect & local client=$!; sleep 2; serve && wait $client; }
shape() {
	local queue=/sys/block/rblk0/queue
	local tags=/sys/block/rblk0/mq/0/nr_tags
	cat $tags $queue/max_hw_sectors_kb $queue/dma_alignment
	[[ $(<$tags) == 128 && $(<$queue/max_hw_sectors_kb) == 1024 ]] &&
		[[ $(blockdev --getsz $disk) == $(blockdev --getsz $store) ]]
}

large() {
	local sum
	dd if=/dev/urandom of=/tmp/rblk bs=1M count=16 2>/dev/null &&
		dd if=/tmp/rblk of=$disk bs=1M oflag=direct 2>/dev/null &&
		sum=$(sha256sum </tmp/rblk) && [[ $(dd if=$disk bs=1M count=16 iflag=direct 2>/dev/null | sha256sum) == "$sum" ]]
}
killed() {
	"${blockio[@]}" $disk $store 1000000 "$seed" 4 >/dev/null 2>&1 & local io=$!
	sleep 0.5
	kill -KILL $io
	wait $io
	transfers "$rounds" 4
}
# The client disappears without a word: its link is down. The server drops the connection, although
# it has nothing to send.
fewer_qps() { (($(resources 1 qp) < $1)); }
vanished() {
	local qps rc=0
	qps=$(resources 1 qp)
	in_ns 0 ip link set "${netdev[0]}" down && until_true fewer_qps "$qps" || rc=1
	in_ns 0 ip link set "${netdev[0]}" up && until_true usable 0 && transfers "$rounds" 4 && return $rc
}
# The client loses its connection without a word, and connects again. The server does not probe the old
# connection, but drops it first: its writes must not come later.
returned() {
	local rc=0 qps
	serve probe_ms=600000 && connect || return
	qps=$(resources 1 qp)
	in_ns 0 ip link set "${netdev[0]}" down && link_delete 0 || return
	[[ $(resources 1 qp) == "$qps" ]] || { echo "the server misses the client"; rc=1; }
	in_ns 0 ip link set "${netdev[0]}" up && link_add 0 || return
	dd if=$disk of=/dev/null count=1 iflag=direct 2>/dev/null || return
	echo "$qps, $(resources 1 qp)" && [[ $(resources 1 qp) == "$qps" ]] || rc=1
	client_ends && server_ends && return $rc
}
used() {
	local rc=0
	exec 9<$disk
	! rmmod mkey_rblk_client 2>/dev/null || { echo "the client is unloaded"; rc=1; }
	exec 9<&-
	return $rc
}
# A request that waits for a server fails when the client ends.
fails_at_the_end() {
	local rc=0
	connect && link_delete 1 || return
	sleep 1
	client_ends || rc=1
	link_add 1 && return $rc
}

diag "seed $seed"
plan 18
check "there is a disk in memory" ram_disk
check "the client finds a server that comes later" served_late
check "its size, its depth and its largest request" shape
check "whole sectors" transfers "$rounds"
check "vectors of whole sectors" vectors 512
check "vectors at every 4 bytes" vectors 4
check "requests of 1 MiB" large
check "its writer is killed" killed
check "the device of the client is deleted while it is used" device_goes 0
check "the device of the server is deleted while it is used" device_goes 1
check "the client vanishes, and the server drops its connection" vanished
check "the client is not unloaded while the disk is open" used
check "the client is unloaded, and leaves no MR" client_ends
check "the client is unloaded while there is no server" fails_at_the_end
check "the server is unloaded, and leaves no MR" server_ends
check "the client returns before the server misses it" returned
check "the disk in memory is removed" no_ram_disk
check "the log says nothing of it" clean
ktap_finished
