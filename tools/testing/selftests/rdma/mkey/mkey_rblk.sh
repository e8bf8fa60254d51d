#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: The block device over RDMA in Rust (samples/kernel): client and server in two network
# namespaces, each with its own device. Vectors begin and end at every 4 bytes. The devices of both
# sides are deleted while the disk is used, and a writer is killed. No byte is wrong then. This
# test deletes the devices and adds them again.

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

((UID == 0)) || skip_all "not root"
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
modules=${MKEY_SAMPLES:-${MODULE_DIR-}/samples/kernel}
for module in mkey_rblk_client mkey_rblk_server; do
	[[ -e $modules/$module.ko ]] || skip_all "no $module.ko; MKEY_SAMPLES= names its directory"
done
find_netdevs
rounds=100
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || rounds=15
seed=${MKEY_TEST_SEED:-$RANDOM}
disk=/dev/rblk0
complaints='WARNING:|BUG:|general protection|refcount_t:|list_(add|del) corruption|INFO: task'
complaints() { dmesg | grep -cE "$complaints"; }
before=$(complaints)

# The modules take an address as a number.
number() {
	local a b c d
	IFS=. read -r a b c d <<<"$1"
	echo $((a << 24 | b << 16 | c << 8 | d))
}
serve() {
	modprobe -q rdma_cm
	in_ns 1 insmod "$modules/mkey_rblk_server.ko" size=32
}
connect() { in_ns 0 insmod "$modules/mkey_rblk_client.ko" server="$(number "$(address_of 1)")" && until_true test -b $disk; }
# The client connects as soon as there is a server.
served_late() { connect & local client=$!; sleep 2; serve && wait $client; }
shape() {
	local queue=/sys/block/rblk0/queue
	local tags=/sys/block/rblk0/mq/0/nr_tags
	cat $tags $queue/max_hw_sectors_kb $queue/dma_alignment
	[[ $(<$tags) == 128 && $(<$queue/max_hw_sectors_kb) == 1024 && $(blockdev --getsz $disk) == 65536 ]]
}

# transfers ROUNDS [GRAIN]
transfers() { "${blockio[@]}" $disk $disk "$1" "$seed" ${2:+"$2"}; }
vectors() {
	local out
	out=$(transfers "$rounds" "$1") && echo "$out" && [[ $out == '0 of'* ]]
}
large() {
	local sum
	dd if=/dev/urandom of=/tmp/rblk bs=1M count=16 2>/dev/null &&
		dd if=/tmp/rblk of=$disk bs=1M oflag=direct 2>/dev/null &&
		sum=$(sha256sum </tmp/rblk) && [[ $(dd if=$disk bs=1M count=16 iflag=direct 2>/dev/null | sha256sum) == "$sum" ]]
}
mrs() { in_ns "$1" rdma resource show "${dev[$1]}" | sed -n 's/.* mr \([0-9]*\).*/\1/p'; }
no_mrs() { [[ $(mrs 0) == 0 && $(mrs 1) == 0 ]]; }
connected() { [[ $(mrs 0) == 128 ]]; }
killed() {
	"${blockio[@]}" $disk $disk 1000000 "$seed" 4 >/dev/null 2>&1 & local io=$!
	sleep 0.5
	kill -KILL $io
	wait $io
	transfers "$rounds" 4
}
# What is read and written while there is no connection waits, and ends well.
device_goes() { # N
	transfers $((3 * rounds)) 4 & local io=$!
	sleep 0.3
	link_delete "$1" || return
	sleep 2
	kill -0 $io || { echo "nothing waits"; return 1; }
	link_add "$1" && wait $io && until_true connected && transfers "$rounds" 4
}
used() {
	local rc=0
	exec 9<$disk
	! rmmod mkey_rblk_client 2>/dev/null || { echo "the client is unloaded"; rc=1; }
	exec 9<&-
	return $rc
}
client_ends() { rmmod mkey_rblk_client && [[ ! -e /sys/block/rblk0 ]] && until_true test "$(mrs 0)" == 0; }
# A request that waits for a server fails when the client ends.
fails_at_the_end() {
	local rc=0
	connect && link_delete 1 || return
	sleep 1
	client_ends || rc=1
	link_add 1 && return $rc
}
server_ends() { rmmod mkey_rblk_server && until_true no_mrs; }
clean() { (($(complaints) == before)) || { dmesg | grep -E -A 20 "$complaints" | tail -n 60; return 1; }; }

diag "seed $seed"
plan 14
check "the client finds a server that comes later" served_late
check "its size, its depth and its largest request" shape
check "whole sectors" transfers "$rounds"
check "vectors of whole sectors" vectors 512
check "vectors at every 4 bytes" vectors 4
check "requests of 1 MiB" large
check "its writer is killed" killed
check "the device of the client is deleted while it is used" device_goes 0
check "the device of the server is deleted while it is used" device_goes 1
check "the client is not unloaded while the disk is open" used
check "the client is unloaded, and leaves no MR" client_ends
check "the client is unloaded while there is no server" fails_at_the_end
check "the server is unloaded, and leaves no MR" server_ends
check "the log says nothing of it" clean
ktap_finished
