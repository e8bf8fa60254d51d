#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Limits of the kernel memory that keys and MRs over dma-bufs take: of a user and of a
# device, by module parameters, for which the module is loaded again; and of a control group,
# whose limit causes an error but no OOM kill.
# needs: cgroup

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

((UID == 0)) || skip_all "not root"
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
[[ -n ${TOP-} && -f $TOP/dev/vm/guest/rdma-up ]] || skip_all "not in the virtual machine"

# with PARAMETER...: loads the module with these parameters
with() {
	bash "$TOP/dev/vm/guest/rdma-down" || return
	mkdir -p /run/modprobe.d
	echo "${*:+options ib_mkey $*}" >/run/modprobe.d/ib_mkey_test.conf
	bash "$TOP/dev/vm/guest/rdma-up"
}
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

group=/sys/fs/cgroup/mkey_quota
# exhaust_group MAX: a process in a control group with this limit gets ENOMEM and is not killed
exhaust_group() {
	local before after
	mkdir -p "$group" && echo "$1" >"$group/memory.max" || return
	echo 0 >"$group/memory.swap.max" 2>/dev/null
	before=$(awk '/^oom_kill / { print $2 }' "$group/memory.events")
	(
		echo "$BASHPID" >"$group/cgroup.procs"
		exec "$here/mkey_exhaust" lists
	) || return
	after=$(awk '/^oom_kill / { print $2 }' "$group/memory.events")
	[[ $before == "$after" ]] || { cat "$group/memory.events"; return 1; }
	rmdir "$group"
}
# If the lists leave almost nothing of the limit, a small allocation of rxe or of the core can reach
# it instead, and the kernel kills the process. Another limit leaves more.
control_group() { exhaust_group 24M || exhaust_group 25M || exhaust_group 26M; }

plan 7
check "the module with a quota" with max_key_memory_per_user="$quota"
check "lists" exhaust lists
check "unbound keys" exhaust keys
if modprobe -q udmabuf 2>/dev/null || [[ -c /dev/udmabuf ]]; then
	check "regions over a dma-buf" exhaust dmabuf
else
	skip "regions over a dma-buf" "no udmabuf"
fi
check "the device's limit" shared
rm -f /run/modprobe.d/ib_mkey_test.conf
check "the module as before" with
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
if echo +memory >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
	check "a control group's limit is ENOMEM, not its end" control_group
else
	skip "a control group's limit" "no memory controller"
fi
ktap_finished
