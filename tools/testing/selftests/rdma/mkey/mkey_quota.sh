#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Limits of the kernel memory that keys and MRs over dma-bufs take, and of device memory:
# of a user and of a device, by module parameters, for which the module is loaded again; and of a
# control group, whose limit causes an error but no OOM kill. Classes of device memory, by
# a module parameter.
# needs: cgroup
# sets: first

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

((UID == 0)) || skip_all "not root"
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
[[ -n ${TOP-} && -f $TOP/dev/vm/guest/rdma-up ]] || skip_all "not in the virtual machine"

# with_class CLASS PARAMETER...: loads the module with these parameters; no CLASS is the usual one
with_class() {
	local class=$1
	shift
	bash "$TOP/dev/vm/guest/rdma-down" || return
	mkdir -p /run/modprobe.d
	echo "${*:+options ib_mkey $*}" >/run/modprobe.d/ib_mkey_test.conf
	(
		[[ -z $class ]] || export DM_CLASS=$class
		bash "$TOP/dev/vm/guest/rdma-up"
	)
}
with() { with_class "" "$@"; }
# prints the bytes of all owners of device 0
used() { awk -v dev="${dev[0]}" '$1 == dev && $2 == "-" { print $3 }' /sys/kernel/debug/ib_mkey/keys; }
quota=$((8 << 20))

# exhaust WHAT: a user gets what the quota allows, and the same again after freeing
# it
exhaust() {
	local before
	before=$(used) || return
	"$here/mkey_exhaust" "$1" "$quota" || return
	[[ $before == "$(used)" ]] || { cat /sys/kernel/debug/ib_mkey/keys; return 1; }
}
# Two users who may each use all of it share the device's limit.
shared() {
	local n rc=0 out=/run/mkey_quota
	with max_key_memory="$quota" max_key_memory_per_user="$quota" || return
	exhaust lists || return
	mkfifo "$out" || return
	"$here/mkey_exhaust" hold <"$out" >"$out.text" &
	exec 3>"$out"
	for ((n = 0; n < 1800; n++)); do
		grep -q errno "$out.text" && break
		sleep 0.1
	done
	# the first user has all of it
	! setpriv --reuid 65534 --regid 65534 --clear-groups "$here/mkey_exhaust" lists || rc=1
	exec 3>&-
	wait || rc=1
	rm -f "$out" "$out.text"
	((rc == 0)) && exhaust lists || return
	setpriv --reuid 65534 --regid 65534 --clear-groups "$here/mkey_exhaust" lists "$quota"
}


all='host,node=1,p2p=0000:00:10.0,rxe0/pmem=0'

dm_quota() {
	with_class "$all" max_dm_size_per_user=1048576 &&
		MKEY_TEST_QUOTA=1048576 program dm_alloc -t quota
}
dm_refused() {
	bash "$TOP/dev/vm/guest/rdma-down" || return
	# Each attempt loads the module; mkey_kunit.sh has more texts of each kind.
	for class in nonsense node=x p2p=0000:00:20.0 host,,pmem rxe0/; do
		rmmod ib_mkey 2>/dev/null
		! modprobe ib_mkey dm_class="$class" 2>/dev/null || { echo "dm_class=$class was taken"; return 1; }
	done
	dmesg | tail -n 20 | grep -q "is no class of device memory" || { echo "nothing in the log"; return 1; }
}
# The first class of the parameter is the default of the standard verbs.
default_class() {
	with_class node=1,rxe1/host && program dm_verbs -t copy || return
	grep -q '^rxe0 node=1 [0-9]* 0 [1-9]' /sys/kernel/debug/ib_mkey/pools &&
		grep -q '^rxe0 host - ' /sys/kernel/debug/ib_mkey/pools && return
	cat /sys/kernel/debug/ib_mkey/pools
	return 1
}
# A missing class is refused when it is requested, not when the module is loaded.
absent_class() {
	with_class pmem=7,p2p=0000:1f:1e.0,node=55 && program mkey_matrix -r matrix.user.direct &&
		! program dm_verbs -t copy && program dm_class -v host
}

# The standard query announces the bytes to programs that know nothing of ib_mkey.
announced() { with_class host announce_dm=1 && MKEY_TEST_ANNOUNCED=1 program dm_verbs -t announced; }
not_announced() { with && program dm_verbs -t announced; }

# Memory of a node comes from that node only, even when the node has no more: 128 MiB,
# and none of the other node's memory.
node_only() { with_class host,node=1 max_dm_size=1073741824 && "$here/mkey_exhaust" dm 2; }

group=/sys/fs/cgroup/mkey_quota
# in_group MAX COMMAND...: COMMAND in a control group with this limit gets ENOMEM and is not killed
in_group() {
	local before after
	mkdir -p "$group" && echo "$1" >"$group/memory.max" || return
	echo 0 >"$group/memory.swap.max" 2>/dev/null
	before=$(awk '/^oom_kill / { print $2 }' "$group/memory.events")
	(
		echo "$BASHPID" >"$group/cgroup.procs"
		exec "${@:2}"
	) || return
	after=$(awk '/^oom_kill / { print $2 }' "$group/memory.events")
	[[ $before == "$after" ]] || { cat "$group/memory.events"; return 1; }
	rmdir "$group"
}
# If the lists leave almost nothing of the limit, a small allocation of rxe or of the core can reach
# it instead, and the kernel kills the process. Another limit leaves more.
keys_in_group() {
	local max
	for max in 24M 25M 26M; do
		in_group "$max" "$here/mkey_exhaust" lists && return
	done
	return 1
}

plan 14
check "the module with a quota" with max_key_memory_per_user="$quota"
check "lists" exhaust lists
check "unbound keys" exhaust keys
if modprobe -q udmabuf 2>/dev/null || [[ -c /dev/udmabuf ]]; then
	check "regions over a dma-buf" exhaust dmabuf
else
	skip "regions over a dma-buf" "no udmabuf"
fi
check "the device's limit" shared
check "device memory: the quota of a user" dm_quota
check "device memory: a dm_class that cannot be read" dm_refused
check "device memory: the default class" default_class
check "device memory: classes that are not there" absent_class
check "device memory: the memory of a node" node_only
check "device memory: it is announced" announced
check "the module as before" not_announced
rm -f /run/modprobe.d/ib_mkey_test.conf
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
if echo +memory >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
	check "a control group's limit of keys is ENOMEM, not its end" keys_in_group
	check "a control group's limit of device memory is ENOMEM, not its end" in_group 16M "$here/mkey_exhaust" dm 1
else
	skip "a control group's limit of keys" "no memory controller"
	skip "a control group's limit of device memory" "no memory controller"
fi
ktap_finished
