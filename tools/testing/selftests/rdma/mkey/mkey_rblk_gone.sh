#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: A device goes at each state of a connection of the block device over RDMA in Rust
# (samples/kernel): while the server listens, and while a thread of the client, of the server or of
# the CM is held before its next step. What waits for the disk ends well when the device is back, and
# no MR, queue pair or id is left. This test deletes the devices and adds them again.
# needs: brd kprobes

# shellcheck disable=SC2119,SC2317 # functions are called by check, serve without parameters, too
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"
# shellcheck source=lib/rblk.sh
source "$(dirname "$0")/rblk.sh" 2>/dev/null || source "$(dirname "$0")/lib/rblk.sh"

hold=${MKEY_MODULES:-${MODULE_DIR-}/tools/testing/selftests/rdma/mkey/test_modules}/mkey_hold.ko
[[ -e $hold ]] || skip_all "no mkey_hold.ko; MKEY_MODULES= names its directory"
store=/dev/ram0

# What goes, the thread that is held and where, what begins, and the state.
states=(
	"1 - - nothing: listening"
	"0 mkey_rblk_c rdma_resolve_route client: the address is resolved"
	"0 mkey_rblk_c rdma_create_qp client: the route is resolved"
	"0 mkey_rblk_c rdma_connect client: there is a queue pair"
	"1 mkey_rblk_s rdma_create_qp client: the server has a request"
	"0 mkey_rblk_s rdma_accept client: the request has no answer"
	"1 mkey_rblk_s rdma_accept client: the server is about to accept"
	"0 kworker ib_send_cm_rtu client: the client has an answer"
	"1 kworker ib_send_cm_rtu client: accepted, and not established"
	"0 - - established: established, the client"
	"1 - - established: established, the server"
	"rxe - - established: established, both"
	"0 mkey_rblk_c rdma_disconnect server_leaves: the client disconnects"
	"0 mkey_rblk_c ib_drain_qp server_leaves: the client drains"
	"0 mkey_rblk_c rdma_destroy_id server_leaves: the client destroys its id"
	"1 mkey_rblk_s rdma_disconnect client_leaves: the server disconnects"
	"1 mkey_rblk_s ib_drain_qp client_leaves: the server drains"
	"1 mkey_rblk_s rdma_destroy_id client_leaves: the server destroys its id"
	"0 mkey_rblk_c rdma_resolve_route server_leaves: connecting again, the address is resolved"
	"0 mkey_rblk_c rdma_connect server_leaves: connecting again, there is a queue pair"
)
# A short run has some of them.
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || mapfile -t states < <(shuf -n 7 -e "${states[@]}")
nothing() { :; }
established() { [[ -b $disk ]]; }
server_leaves() { rmmod mkey_rblk_server; }
client_leaves() { rmmod mkey_rblk_client; }
loaded() { [[ -d /sys/module/$1 ]]; }
held() { [[ $(</sys/module/mkey_hold/parameters/held) == Y ]]; }
# goes 0|1|rxe
goes() { if [[ $1 == rxe ]]; then until_true rmmod rdma_rxe 2>/dev/null; else link_delete "$1"; fi; }
comes() { if [[ $1 == rxe ]]; then modprobe rdma_rxe && links_add; else link_add "$1"; fi; }
# The removal waits for the ids of the device, or has ended.
going() { ! kill -0 "$1" 2>/dev/null || grep -qsE "cma?_remove_one" /proc/[0-9]*/stack; }
objects() { rdma resource show | sed -nE "s/^[0-9]+: ((${dev[0]}|${dev[1]}): .*)/\1/p" | sort; }
as_before() { [[ $(objects) == "$known" ]]; }

state() { # WHAT TASK FUNCTION BEGIN
	local io='' known
	known=$(objects)
	serve && { [[ $4 == @(nothing|client) ]] || connect; } || return
	[[ $2 == - ]] || insmod "$hold" task="$2" function="$3" || return
	$4 && { [[ $2 == - ]] || until_true held; } || return
	[[ ! -b $disk ]] || { dd if=$disk of=/dev/null bs=64k count=16 iflag=direct & io=$!; }
	! rmmod ib_mkey 2>/dev/null || { echo "ib_mkey is unloaded"; return 1; }
	goes "$1" & local going=$!
	until_true going $going || return
	[[ $2 == - ]] || rmmod mkey_hold || return
	wait $going && comes "$1" || return
	loaded mkey_rblk_server || serve || return
	loaded mkey_rblk_client || client || return
	until_true connected && until_true test -b $disk && { [[ -z $io ]] || wait "$io"; } && transfers 3 4 &&
		client_ends && server_ends && until_true as_before && return
	diff <(echo "$known") <(objects)
	return 1
}
# A state that ends early leaves no module.
try() {
	local what=${1%%:*}
	# shellcheck disable=SC2086 # words
	check "${1#*: }: ${what%% *} goes" state $what
	for module in mkey_hold mkey_rblk_client mkey_rblk_server; do
		! loaded $module || rmmod $module
	done
}

diag "seed $seed"
plan $((${#states[@]} + 2))
check "there is a disk in memory" ram_disk
for each in "${states[@]}"; do try "$each"; done
check "the log says nothing of it" eval "no_ram_disk && clean"
ktap_finished
