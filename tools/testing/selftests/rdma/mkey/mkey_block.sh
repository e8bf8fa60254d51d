#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Storage over RDMA by ULPs of the kernel that do not know ib_mkey: NVMe, SRP, iSER, RNBD
# and NFSv4.2, first on a device without ib_mkey, then on an extended one. All but NVMe then take
# MRs of the type with gaps, and so does NVMe with patches/nvme: the block layer refuses no vector
# of NVMe, SRP and iSER any more. Writers are killed, connections break, and devices go while they
# are used. This test deletes the devices and adds them again.
# needs: block rnbd nfs
# sets: long

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"
trace_group=mkey_block
# shellcheck source=lib/trace.sh
source "$(dirname "$0")/trace.sh" 2>/dev/null || source "$(dirname "$0")/lib/trace.sh"
# shellcheck source=lib/block.sh
source "$(dirname "$0")/block.sh" 2>/dev/null || source "$(dirname "$0")/lib/block.sh"
nfs_dir=$(mktemp -d)
trap 'rmdir "$nfs_dir"' EXIT
# shellcheck source=lib/nfs.sh
source "$(dirname "$0")/nfs.sh" 2>/dev/null || source "$(dirname "$0")/lib/nfs.sh"

((UID == 0)) || skip_all "not root"
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
trace_can || skip_all "this kernel cannot count calls of functions"
find_netdevs
rounds=40 long=1
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || rounds=6 long=0
nvme_gaps=${MKEY_MODULES:-${MODULE_DIR-}/tools/testing/selftests/rdma/mkey/test_modules}/nvme_rdma_gaps.ko
complaints='WARNING:|BUG:|general protection|refcount_t:|list_(add|del) corruption|INFO: task'
complaints() { dmesg | grep -cE "$complaints"; }
before=$(complaints)
seed=${MKEY_TEST_SEED:-$RANDOM}

# transfers GRAIN [ROUNDS]: vectors on the disk of $p; prints how many were refused
transfers() { "${blockio[@]}" "$disks/$("${p}_disk")" "$behind" "${2:-$rounds}" "$seed" "$1"; }
takes_gaps() { [[ $how == extended && ($p != nvme || -d /sys/module/nvme_rdma_gaps) ]]; }

connected() { "${p}_connect" && until_true "${p}_disk"; }
served() { block_load "$p" "$1" && block_link_up && "${p}_serve" && trace_start && connected; }
whole_sectors() {
	local out
	out=$(transfers 512) && echo "$out" && [[ $out == '0 of'* ]]
}
every_4_bytes() {
	local out
	out=$(transfers 4) && echo "$out" || return
	# NFS divides a vector, and RNBD has a limit of its disk that does not depend on MRs.
	if [[ $p == nfs ]] || takes_gaps && [[ $p != rnbd ]]; then [[ $out == '0 of'* ]]; else [[ $out != '0 of'* ]]; fi
}
counted() {
	if takes_gaps; then
		trace_with_gaps 16 && trace_registered "$rounds"
	else
		trace_without_gaps "$rounds"
	fi
}

# Vectors without an end, until $io is killed.
start_io() {
	"${blockio[@]}" "$disks/$("${p}_disk")" "$behind" 1000000 "$seed" 4 >/dev/null 2>&1 & io=$!
	sleep 0.5
}
killed() {
	start_io
	kill -KILL $io
	wait $io
	transfers 4
}
# What is written and read while the target is away waits, and ends well. RNBD fails it.
interrupted() { # BREAK MEND
	transfers 4 $((4 * rounds)) & io=$!
	sleep 0.3
	$1 || return
	sleep 3
	[[ $p == rnbd ]] || kill -0 $io || { echo "nothing waits"; return 1; }
	$2 || return
	wait $io || [[ $p == rnbd ]] && until_true "${p}_disk" && transfers 4
}
no_mrs() { [[ $(block_mrs) == 0 ]]; }
disconnected() { "${p}_leave" && until_true no_mrs; }
device_delete() {
	[[ $how != extended ]] || ! rmmod ib_mkey 2>/dev/null || { echo "ib_mkey is unloaded"; return 1; }
	rdma link delete $block_dev
}
device_goes() {
	local rc=0
	connected || rc=1
	if [[ $p == nfs ]]; then
		# It waits for a device, too.
		interrupted device_delete block_device && nfs_leave || rc=1
	else
		start_io
		[[ $p != iser ]] || iser_give_up
		device_delete || rc=1
		# Its errors are no matter.
		kill -KILL "$io"
		wait "$io"
		[[ $p != iser ]] || iser_leave
	fi
	ended && return $rc
}
ended() { trace_stop; "${p}_stop" && block_link_down && block_unload "$p"; }

# A check runs in a subshell. Each has its own seed.
step() {
	((++seed))
	check "$what: $1" "${@:2}"
}
protocol() { # HOW P [MODULE]
	how=$1 p=$2 what="$2${3:+ with patches/nvme}, $1"
	local disks=/dev behind=$block_behind
	if [[ $p == nfs ]]; then
		local disks=$nfs_mnt behind=$nfs_behind/file dev=("$block_dev" "$block_dev") netns=(- -)
	fi
	step "a disk is connected" served "${3-}"
	step "vectors of whole sectors" whole_sectors
	step "vectors at every 4 bytes" every_4_bytes
	step "MRs and requests by their type" counted
	if ((!long)) && [[ $how == bare ]]; then
		step "it is disconnected, and leaves no MR" eval "disconnected && ended"
		return
	fi
	step "its writer is killed" killed
	if ((long)); then
		step "the target goes and comes back" interrupted "${p}_away" "${p}_back"
		step "the link is down and up" interrupted "ip link set $block_link down" "ip link set $block_link up"
	fi
	step "it is disconnected, and leaves no MR" disconnected
	step "the device is deleted while it is connected" device_goes
}

bare() { links_delete && rmmod ib_mkey; }
extended() { modprobe ib_mkey; }
# The devices are there for other tests, also after an error.
unloaded() {
	local rc=0
	block_link_down && rmmod ib_mkey || rc=1
	modprobe ib_mkey && links_add && return $rc
}
clean() { (($(complaints) == before)) || { dmesg | grep -E -A 20 "$complaints" | tail -n 60; return 1; }; }

protocols=()
for p in nvme srp iser rnbd nfs; do
	missing=$(block_missing $p) || protocols+=("$p")
	[[ -z $missing ]] || diag "no $p: $missing"
done
((${#protocols[@]})) || skip_all "no protocol"
patched=0
[[ ! -e $nvme_gaps || " ${protocols[*]} " != *" nvme "* ]] || patched=1
diag "seed $seed"
plan $((4 + (long ? 9 : 5) * ${#protocols[@]} + (long ? 9 : 7) * (${#protocols[@]} + patched)))
check "the devices are deleted, and ib_mkey is unloaded" bare
for p in "${protocols[@]}"; do protocol bare "$p"; done
check "ib_mkey is loaded" extended
for p in "${protocols[@]}"; do protocol extended "$p"; done
((!patched)) || protocol extended nvme "$nvme_gaps"
check "ib_mkey is unloaded, and the devices are added again" unloaded
check "the log says nothing of it" clean
ktap_finished
