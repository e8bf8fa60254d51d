#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Limits of device memory: of a user, by a module parameter, for which the module is
# loaded again; and of a control group, whose limit causes an error but no OOM kill.
# needs: cgroup
# sets: first

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

((UID == 0)) || skip_all "not root"
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
[[ -n ${TOP-} && -f $TOP/dev/vm/guest/rdma-up ]] || skip_all "not in the virtual machine"

again() { bash "$TOP/dev/vm/guest/rdma-down" && bash "$TOP/dev/vm/guest/rdma-up"; }
# with CLASS PARAMETER...: loads the module with these parameters
with() {
	local class=$1
	shift
	bash "$TOP/dev/vm/guest/rdma-down" || return
	mkdir -p /run/modprobe.d
	echo "${*:+options ib_mkey $*}" >/run/modprobe.d/ib_mkey_test.conf
	DM_CLASS=$class bash "$TOP/dev/vm/guest/rdma-up"
}
all='host,node=1,p2p=0000:00:10.0,rxe0/pmem=0'

quota() {
	with "$all" max_dm_size_per_user=1048576 &&
		MKEY_TEST_QUOTA=1048576 program dm_alloc -t quota
}
refused() {
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
	with node=1,rxe1/host && program dm_verbs -t zeroed || return
	grep -q '^rxe0 node=1 [0-9]* 0 [1-9]' /sys/kernel/debug/ib_mkey/pools &&
		grep -q '^rxe0 host - ' /sys/kernel/debug/ib_mkey/pools && return
	cat /sys/kernel/debug/ib_mkey/pools
	return 1
}
# A missing class is refused when it is requested, not when the module is loaded.
absent_class() {
	with pmem=7,p2p=0000:1f:1e.0,node=55 && program stock_mr -v mtu1024 -t copies &&
		! program dm_verbs -t zeroed && program dm_class -v host
}

# The standard query announces the bytes to programs that know nothing of ib_mkey.
announced() { with host announce_dm=1 && MKEY_TEST_ANNOUNCED=1 program dm_verbs -t announced; }
not_announced() { again && program dm_verbs -t announced; }

# Memory of a node comes from that node only, even when the node has no more: 128 MiB,
# and none of the other node's memory.
node_only() { with host,node=1 max_dm_size=1073741824 && "$here/dm_exhaust" 2; }

group=/sys/fs/cgroup/mkey_test
control_group() {
	local before after
	mkdir -p "$group" && echo 16M >"$group/memory.max" || return
	echo 0 >"$group/memory.swap.max" 2>/dev/null
	before=$(awk '/^oom_kill / { print $2 }' "$group/memory.events")
	(
		echo "$BASHPID" >"$group/cgroup.procs"
		exec "$here/dm_exhaust"
	) || return
	after=$(awk '/^oom_kill / { print $2 }' "$group/memory.events")
	[[ $before == "$after" ]] || { cat "$group/memory.events"; return 1; }
	rmdir "$group"
}

plan 8
check "the quota of a user" quota
check "a dm_class that cannot be read" refused
check "the default class" default_class
check "classes that are not there" absent_class
check "the memory of a node" node_only
check "device memory that is announced" announced
rm -f /run/modprobe.d/ib_mkey_test.conf
check "the module as before" not_announced
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
if echo +memory >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
	check "a control group's limit is ENOMEM, not its end" control_group
else
	skip "a control group's limit" "no memory controller"
fi
ktap_finished
