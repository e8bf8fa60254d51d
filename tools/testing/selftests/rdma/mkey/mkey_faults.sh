#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Faults while traffic runs that checks every byte (mkey_soak): processes are killed, links,
# namespaces and modules go, processors go offline, memory is short, pages come late or never, and
# the clock jumps. After each fault nothing is left, and the traffic of other devices continues. This
# test deletes the devices and adds them again.
# needs: cgroup on-demand
# sets: long smp
# processors: 4

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

((UID == 0)) || skip_all "not root"
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
[[ -r /sys/kernel/debug/ib_mkey/pools ]] || skip_all "no debugfs"
find_netdevs
rounds=4
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || rounds=1
((${MKEY_TEST_LONG:-0} == 0)) || rounds=100
tmp=$(mktemp -d)
shopt -s nullglob
cpus=(/sys/devices/system/cpu/cpu[1-9]*/online)

# The faults happen to a second pair of devices, the victims, or to all.
all_dev=("${dev[@]}") all_netns=("${netns[@]}") all_netdev=("${netdev[@]}")
others() { dev=("${all_dev[@]}") netns=("${all_netns[@]}") netdev=("${all_netdev[@]}"); }
victims() { dev=(mkf0 mkf1) netns=(mkf0 mkf1) netdev=(mkf0 mkf1); }
victims_up() {
	local i
	ip netns add mkf0 && ip netns add mkf1 &&
		ip link add mkf0 netns mkf0 mtu 9000 type veth peer name mkf1 netns mkf1 mtu 9000 || return
	for i in 0 1; do
		ip -n "mkf$i" addr add "10.7.0.$((i + 1))/24" dev "mkf$i" && ip -n "mkf$i" link set "mkf$i" up || return
	done
	links_add
}

# as PAIR COMMAND...: COMMAND finds the devices of "others" or of the victims
as() {
	"$1"
	export MKEY_TEST_DEV0=${dev[0]} MKEY_TEST_DEV1=${dev[1]} MKEY_TEST_NETNS0=${netns[0]} MKEY_TEST_NETNS1=${netns[1]}
	exec setsid "${@:2}"
}
# traffic PAIR [GROUP]: starts traffic that checks every byte, in a control group. It is one process,
# so it has pinned all its pages when it sends.
traffic() {
	(
		[[ -z ${2-} ]] || echo "$BASHPID" >"$2/cgroup.procs" || exit
		MKEY_TEST_SECONDS=1000000 MKEY_TEST_QUICK=2 as "$1" "$here/mkey_soak"
	) >"$tmp/$1" 2>&1 &
	echo $! >"$tmp/$1.pid"
	flows "$1"
}
bytes_are_right() { ! grep 'bytes are wrong' "$tmp/$1"; }
# flows PAIR: the traffic sends more packets, and no process of it has ended
flows() {
	local from=mkf0 most pid
	[[ $1 == victims ]] || from=${all_dev[0]}
	pid=$(<"$tmp/$1.pid")
	sent() { cat "/sys/class/infiniband/$from/ports/1/hw_counters/sent_pkts"; }
	most=$(($(sent) + 300))
	more() { ! kill -0 "$pid" 2>/dev/null || (($(sent) > most)); }
	until_true more && kill -0 "$pid" 2>/dev/null && bytes_are_right "$1" && return
	tail -n 20 "$tmp/$1"
	return 1
}
# The traffic has its own session.
stop() {
	[[ -s $tmp/$1.pid ]] || return 0
	pkill -KILL -s "$(<"$tmp/$1.pid")"
	wait "$(<"$tmp/$1.pid")"
	rm "$tmp/$1.pid"
	bytes_are_right "$1"
} 2>/dev/null

pins() {
	echo 1 >/proc/sys/vm/stat_refresh
	awk '/^nr_foll_pin_acquired/ { n += $2 } /^nr_foll_pin_released/ { n -= $2 } END { print n }' /proc/vmstat
}
unchanged() {
	local before
	before=$(pins)
	sleep 1
	[[ $before == "$(pins)" ]]
}
# what is left: MRs and other objects of a test, bytes of keys, bytes of device memory; and pins of pages
left() {
	for i in 0 1; do
		rdma resource show mr dev "mkf$i"
		for kind in qp cq pd; do rdma resource show "$kind" dev "mkf$i" | grep ' comm mkey_'; done
	done 2>/dev/null
	awk '/^mkf/ && $2 == "-" && $3 > 0' /sys/kernel/debug/ib_mkey/keys
	awk '/^mkf/ && $4 > 0' /sys/kernel/debug/ib_mkey/pools
	[[ $(pins) == "$(<"$tmp/pins")" ]] || echo "$(pins) pages are pinned, not $(<"$tmp/pins")"
} 2>&1
nothing_left() {
	none() { [[ -z $(left) ]]; }
	until_true none && log_is_clean && return
	left
	return 1
}
start="mkey_faults: begin $$"
splats='WARNING: |BUG: |KASAN: |UBSAN: |Oops|general protection|INFO: (task|rcu|possible)|refcount_t:|ODEBUG: |possible recursive|circular locking|left in the PD'
log_is_clean() { ! dmesg | sed "1,/$start/d" | grep -E -A 20 "$splats"; }

# each FAULT: so many times, beginning with any kind of it; the traffic of the others continues, and
# nothing is left of the victims
each() {
	local n began took most=0 rc=0 first=$RANDOM
	for ((n = 0; n < rounds && rc == 0; n++)); do
		read -r began _ </proc/uptime
		"$1" "$((first + n))" && nothing_left && { [[ ! -s $tmp/others.pid ]] || flows others; } || rc=$?
		read -r took _ </proc/uptime
		took=$((${took%.*} - ${began%.*}))
		most=$((took > most ? took : most))
	done
	((rc == 0)) || { echo "in round $n, the first one is $first"; tail -n 20 "$tmp/others"; }
	echo "$1: $n times, at most $most s each" >>"$tmp/times"
	stop victims || rc=1
	return "$rc"
}

# All processors run, and nothing of what tests before have left pins pages.
start_all() {
	local n
	for n in "${cpus[@]}"; do echo 1 >"$n" || return; done
	victims_up && traffic others && until_true unchanged && pins >"$tmp/pins"
}

killed() { traffic victims && sleep "0.$((RANDOM % 10))" && stop victims; }

# The deletion waits for the process that has the device open.
gone() { ! rdma link show "mkf$1/1" &>/dev/null; }
link_goes() {
	local deleter rc=0
	traffic victims || return
	link_delete $(($1 % 2)) &
	deleter=$!
	sleep "0.$((RANDOM % 10))"
	stop victims || rc=$?
	wait "$deleter" && gone $(($1 % 2)) && link_add $(($1 % 2)) && return "$rc"
}

# The other device goes, too, because the network devices are a pair.
namespace_goes() {
	traffic victims && ip netns delete "mkf$(($1 % 2))" && sleep "0.$((RANDOM % 10))" &&
		stop victims && until_true gone 0 && until_true gone 1 &&
		ip netns delete "mkf$(((${1} + 1) % 2))" && victims_up
}

refused() { ! rmmod "$1" 2>/dev/null && [[ -d /sys/module/$1 ]]; }
# The traffic of the others has ended, and nothing but that of the victims holds the modules.
modules_go() {
	local module=(ib_mkey rdma_rxe)
	traffic victims && refused ib_mkey && refused rdma_rxe && flows victims && stop victims &&
		links_delete && until_true rmmod "${module[$1 % 2]}" && until_true rmmod "${module[($1 + 1) % 2]}" &&
		modprobe -a "${module[$1 / 2 % 2]}" "${module[($1 / 2 + 1) % 2]}" && links_add
}
modules_go_alone() {
	local rc=0
	stop others && others && links_delete && victims && until_true unchanged && pins >"$tmp/pins" || return
	each modules_go || rc=$?
	others
	links_add && return "$rc"
}

processors_go() {
	local n
	for n in "${!cpus[@]}"; do
		echo 0 >"${cpus[n]}" && [[ $(<"${cpus[n]}") == 0 ]] && flows others &&
			echo 1 >"${cpus[n]}" && flows others || return
	done
}

# Another process takes what the limit leaves until the kernel kills it: that one, also if the traffic
# needs memory first. Binds are refused meanwhile.
group=/sys/fs/cgroup/mkey_faults
memory_is_short() {
	local kills
	ooms() { awk '/^oom_kill / { print $2 }' "$group/memory.events"; }
	mkdir -p "$group" && echo max >"$group/memory.max" && kills=$(ooms) && traffic victims "$group" || return
	! (
		echo 1000 >/proc/self/oom_score_adj
		echo "$BASHPID" >"$group/cgroup.procs"
		echo $(($(<"$group/memory.current") + (RANDOM % 8 + 1) * 1048576)) >"$group/memory.max"
		exec tail /dev/zero
	) && echo max >"$group/memory.max" && (($(ooms) > kills)) && flows victims && stop victims
}

# In each second round, the process is killed while the kernel waits for the page.
pages_come_late() {
	local line pid mode=${modes[$1 % ${#modes[@]}]}
	coproc late { as victims "$here/mkey_late" "$mode" 2>&1; }
	# shellcheck disable=SC2154 # coproc sets it
	pid=$late_PID
	while read -r line <&"${late[0]}" && [[ $line != waits ]]; do :; done
	[[ $line == waits ]] && flows others || return
	if (($1 / ${#modes[@]} % 2)); then
		pkill -KILL -s "$pid" && ! wait "$pid"
	else
		echo >&"${late[1]}" && wait "$pid"
	fi
}

# The clock is right again before anything is printed: a runner may compare it.
clock_jumps() {
	local hours=$((RANDOM % 10 + 1)) rc=0
	date -s "+$hours hours" && flows others && date -s "-$((2 * hours)) hours" && flows others || rc=1
	date -s "+$hours hours" && return "$rc"
}

# what this machine can do
modes=()
for mode in registered on_demand; do
	rc=0
	"$here/mkey_late" "$mode" </dev/null &>/dev/null || rc=$?
	((rc == 4)) || modes+=("$mode")
done
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
have_group() { echo +memory >/sys/fs/cgroup/cgroup.subtree_control; } 2>/dev/null
before=$(cat /dev/null "${cpus[@]}")

finish() {
	local n=0 value
	stop others
	stop victims
	for value in $before; do echo "$value" >"${cpus[n++]}"; done
	links_delete
	for n in 0 1; do ip netns delete "mkf$n"; done
	rmdir "$group"
	rm -rf "$tmp"
} 2>/dev/null
trap finish EXIT

plan 9
echo "$start" >/dev/kmsg
victims
check "devices and traffic" start_all
check "processes are killed, $rounds times" each killed
check "links are deleted, $rounds times" each link_goes
check "namespaces are deleted, $rounds times" each namespace_goes
if ((${#cpus[@]} < 3)); then
	skip "processors go offline" "there are ${#cpus[@]} and one, not 4"
else
	check "processors go offline, $rounds times" each processors_go
fi
if have_group; then
	check "a control group's memory is short, $rounds times" each memory_is_short
else
	skip "a control group's memory is short" "no memory controller"
fi
if ((${#modes[@]})); then
	check "pages come late or never, $rounds times" each pages_come_late
else
	skip "pages come late or never" "neither userfaultfd nor FUSE"
fi
check "the clock jumps, $rounds times" each clock_jumps
check "modules go, $rounds times" modules_go_alone
diag "$(<"$tmp/times")"
ktap_finished
