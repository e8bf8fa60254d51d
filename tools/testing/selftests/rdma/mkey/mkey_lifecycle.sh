#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Links are deleted and modules unloaded in every order. Objects in use stay, unused
# ones go, and the kernel's log has no warning. This test deletes the devices and adds
# them again.

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

((UID == 0)) || skip_all "not root"
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
modinfo -n ib_uverbs &>/dev/null || skip_all "ib_uverbs is not a module"
netdev=()
for i in 0 1; do
	netdev[i]=$(netdev_of $i)
	[[ -n ${netdev[i]} ]] || skip_all "no device ${dev[i]}"
done

loaded() { [[ -d /sys/module/$1 ]]; }
has_link() { in_ns "$1" rdma link show "${dev[$1]}/1" &>/dev/null; }

# The limit ends a wait for an event that never happens. No test measures time.
until_true() {
	local n
	for ((n = 0; n < 1800; n++)); do
		"$@" && return
		sleep 0.1
	done
	echo "still not: $*"
	return 1
}

usable() { in_ns "$1" rdma link show "${dev[$1]}/1" | grep -q 'state ACTIVE'; }

link_add() {
	in_ns "$1" rdma link add "${dev[$1]}" type rxe netdev "${netdev[$1]}" &&
		until_true usable "$1"
}
link_delete() { in_ns "$1" rdma link delete "${dev[$1]}"; }
links_add() { link_add 0 && link_add 1; }
links_delete() { link_delete 0 && link_delete 1; }

# After a process has ended, a work item drops its references to the module.
unload() {
	local m
	for m in "$@"; do
		! loaded "$m" || until_true rmmod "$m" || return
	done
}

# Modules that need ib_uverbs and are not under test.
users=(rdma_ucm ib_umad)
load() { modprobe -a ib_mkey ib_uverbs rdma_rxe && { modprobe -qa "${users[@]}" || true; }; }

# RDMA to device memory takes longest. When little time is wanted, it runs at the beginning and
# after the reload that a message advises, and at other times programs copy the bytes.
memory=(dm_rdma -v mtu1024 -t copies) all=copies
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || memory=(dm_verbs -t copy) all=atomics
keys_work() {
	program "${memory[@]}" &&
		program mkey_window -t type_1 &&
		program mkey_object -t query
}
all_works() { program dm_rdma -v mtu1024 -t "$all" && keys_work; }
stock_works() { program stock_mr -v mtu1024 -t copies && program stock_mr -v mtu1024 -t atomics; }
no_keys() {
	local out
	out=$("$here/mkey_object" -t unbound) && grep -q 'is not extended' <<<"$out" && return
	echo "$out"
	return 1
}

in_use() {
	! rmmod ib_mkey && loaded ib_mkey && all_works
}

add_and_delete() {
	local n
	for n in 1 2 3; do
		links_delete && links_add || return
	done
	keys_work
}

# A function of the kernel API returns -EOPNOTSUPP for a device that is not extended.
kernel_calls_fail() {
	[[ ! -e $bare ]] || { insmod "$bare" device="${dev[0]}" && rmmod mkey_bare; }
}

# ib_mkey holds no reference for a device whose self-test failed.
references() { cat /sys/module/ib_mkey/refcnt; }
self_test_fails() { # PARAMETER...
	local before rc=0
	link_delete 0 || return
	before=$(references)
	insmod "$break" "$@" && link_add 0 || rc=$?
	! grep "^${dev[0]} " /sys/kernel/debug/ib_mkey/pools || rc=1
	kernel_calls_fail || rc=1
	rmmod mkey_break || rc=$?
	[[ $(references) == "$before" ]] || { echo "$(references) references, not $before"; rc=1; }
	link_delete 0 && link_add 0 && keys_work && return "$rc"
}
# A kernel update may change the structures of rxe and keep the names of its ABI.
other_size() {
	local marker="mkey_lifecycle: another size $$"
	echo "$marker" >/dev/kmsg
	self_test_fails other_size=1 || return
	dmesg | sed "1,/$marker/d" | grep -q "is not the one that ib_mkey was built for" && return
	echo "nothing in the log"
	return 1
}

# Deleting one link must not disturb the other's traffic or the module.
one_link() {
	link_delete 0 && ! rmmod ib_mkey && link_add 0 && link_delete 1 && ! rmmod ib_mkey &&
		link_add 1 && keys_work
}

# Deleting a link waits for the programs that have its device open.
delete_while_open() {
	local holder deleter line
	coproc hold { exec "$here/mkey_hold" 1; }
	# shellcheck disable=SC2154 # coproc sets it
	holder=$hold_PID
	read -r line <&"${hold[0]}"
	[[ $line == ready ]] || { echo "the holder said: $line"; return 1; }
	link_delete 1 &
	deleter=$!
	sleep 1
	kill -KILL "$holder"
	wait "$deleter" || return
	! has_link 1 && link_add 1 && keys_work
}

# Deleting a namespace deletes its network device and so the link.
delete_namespace() {
	local peer=mktv1
	ip netns add mktns && ip link add mktv0 type veth peer name "$peer" &&
		ip link set "$peer" netns mktns && ip -n mktns link set "$peer" up &&
		ip link set mktv0 up &&
		ip netns exec mktns rdma link add mktrxe type rxe netdev "$peer" || return
	rdma link show mktrxe/1 >/dev/null || return
	ip netns delete mktns
	gone() { ! rdma link show mktrxe/1 &>/dev/null; }
	until_true gone && keys_work
}

# All orders of unloading, after the links were deleted.
unload_order() {
	links_delete && unload "${users[@]}" && unload "$@" || return
	load && links_add && keys_work
}

# The device offers neither device memory nor MRs over dma-bufs.
offers_nothing() { program stock_mr -t offers; }

# rxe without ib_mkey behaves as stock rxe.
without() {
	links_delete && unload "${users[@]}" ib_mkey ib_uverbs &&
		insmod "$(modinfo -n ib_uverbs)" && links_add || return
	stock_works && no_keys && offers_nothing
}

# ib_mkey is loaded late: it says so once, and programs get what they had before.
load_late() {
	local marker="mkey_lifecycle: late load $$" lines
	echo "$marker" >/dev/kmsg
	modprobe ib_mkey || return
	lines=$(dmesg | sed "1,/$marker/d" | grep -c 'ib_mkey.*loaded first')
	[[ $lines == 1 ]] || { echo "$lines lines about the late load"; return 1; }
	stock_works && no_keys && offers_nothing
}

# An rxe with a table of operations for each MR calls ib_mkey by itself.
has_table() { grep -qw rxe_mw_bind /proc/kallsyms; }

# Linux 7.3 refuses to switch ftrace off. The modules are unloaded then.
ftrace_stays_on() {
	links_delete && unload "${users[@]}" ib_mkey ib_uverbs || return
	! (echo 0 >/proc/sys/kernel/ftrace_enabled) 2>/dev/null ||
		{ echo 1 >/proc/sys/kernel/ftrace_enabled; return 1; }
}

# Without ftrace, ib_mkey cannot redirect rxe: it logs that, and why. Where rxe has a
# table, nothing is redirected and ftrace makes no difference.
without_ftrace() {
	local marker="mkey_lifecycle: without ftrace $$" rc=1 lines
	links_delete && unload "${users[@]}" ib_mkey ib_uverbs || return
	echo "$marker" >/dev/kmsg
	echo 0 >/proc/sys/kernel/ftrace_enabled || return
	if has_table; then
		load && links_add && keys_work && rc=0
		echo 1 >/proc/sys/kernel/ftrace_enabled
		return "$rc"
	fi
	! modprobe ib_mkey && rc=0
	echo 1 >/proc/sys/kernel/ftrace_enabled
	lines=$(dmesg | sed "1,/$marker/d" | grep 'ib_mkey: cannot redirect')
	grep -q 'kernel.ftrace_enabled' <<<"$lines" && ! grep -q livepatch <<<"$lines" || rc=1
	((rc == 0)) || echo "in the log: $lines"
	load && links_add && keys_work && return "$rc"
}

# The remedy that the message names works.
cure() {
	unload "${users[@]}" ib_uverbs && load && all_works &&
		program stock_mr -t offers && program mkey_dmabuf -v heap -t region
}

# rdma_rxe is unloaded and loaded again while ib_mkey stays.
rxe_again() {
	links_delete && unload rdma_rxe && modprobe rdma_rxe && links_add && keys_work
}

# A kernel user that is older than ib_mkey calls four operations when ib_mkey was removed from the
# device. They sleep in the driver. The removal does not wait for them, but ib_mkey stays loaded.
older_parameter() { echo "${2:-1}" >"/sys/module/mkey_older/parameters/$1"; }
older_is() { [[ $(cat "/sys/module/mkey_older/parameters/$1") == "$2" ]]; }
older_user() {
	local deleter rc=0
	links_delete && unload "${users[@]}" ib_mkey ib_uverbs &&
		insmod "$older" device="${dev[0]}" && load && links_add || return
	older_parameter begin || return
	link_delete 0 &
	deleter=$!
	until_true older_is asleep 4 && until_true older_is removed Y && link_delete 1 || rc=1
	if rmmod ib_mkey 2>/dev/null; then
		echo "ib_mkey was unloaded while calls return to it"
		rc=1
	fi
	older_parameter wake
	wait "$deleter" || rc=1
	unload "${users[@]}" ib_mkey ib_uverbs && rmmod mkey_older && load && links_add && keys_work && return "$rc"
}

# A kernel user that is older than ib_mkey maps its MR with gaps after ib_mkey was removed. The next
# REG_MR is refused (ENODEV).
older_gaps() {
	local rc=0 parameters=/sys/module/mkey_older_gaps/parameters
	links_delete && unload "${users[@]}" ib_mkey ib_uverbs &&
		insmod "$older_gaps" device="${dev[0]}" && load && links_add && echo 1 >"$parameters/begin" || return
	links_delete || rc=1
	[[ $(<"$parameters/mapped") == 1 && $(<"$parameters/registered") == -19 ]] ||
		{ grep . "$parameters"/{mapped,registered}; rc=1; }
	unload "${users[@]}" ib_mkey ib_uverbs && rmmod mkey_older_gaps && load && links_add && keys_work && return "$rc"
}

# unit_runs KEY: runs the commands of the unit that makes links at each start, as systemd does
unit_runs() {
	local line
	while read -r line; do
		# shellcheck disable=SC2086 # words
		in_ns 0 ${line//%I/${netdev[0]}} || return
	done < <(sed -n "s/^$1=-\?//p" "$unit")
}
# No module is loaded before.
unit_link() {
	links_delete && unload "${users[@]}" ib_mkey ib_uverbs rdma_rxe && unit_runs ExecStart || return
	(dev[0]=rxe_${netdev[0]} && until_true usable 0 && export MKEY_TEST_DEV0=${dev[0]} && program mkey_object -t query &&
		unit_runs ExecStop && ! has_link 0) && load && links_add && keys_work
}

start="mkey_lifecycle: begin $$"
splats='WARNING: |BUG: |KASAN: |UBSAN: |Oops|general protection|INFO: (task|rcu|possible)|refcount_t:|ODEBUG: |possible recursive|circular locking|left in the PD'
log_is_clean() {
	local found
	found=$(dmesg | sed "1,/$start/d" | grep -E -A 20 "$splats")
	[[ -z $found ]] || { echo "$found"; return 1; }
}

break=${MKEY_BREAK:-${MODULE_DIR-}/tools/testing/selftests/rdma/mkey/test_modules/mkey_break.ko}
bare=${break%/*}/mkey_bare.ko
older=${MKEY_OLDER:-${break%/*}/mkey_older.ko}
older_gaps=${older%.ko}_gaps.ko
more=2
[[ -e $break ]] || more=0
[[ ! -e $older ]] || ((++more))
[[ ! -e $older_gaps ]] || ((++more))
unit=$(realpath "$here/../../..")/dev/install/ib-mkey-rxe@.service
[[ ! -f $unit ]] || ((++more))
orders=("ib_mkey ib_uverbs rdma_rxe" "ib_mkey rdma_rxe ib_uverbs" "ib_uverbs ib_mkey rdma_rxe"
	"ib_uverbs rdma_rxe ib_mkey" "rdma_rxe ib_mkey ib_uverbs" "rdma_rxe ib_uverbs ib_mkey")
# Each module comes first once, when little time is wanted.
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || orders=("${orders[RANDOM % 2]}" "${orders[2 + RANDOM % 2]}" "${orders[4 + RANDOM % 2]}")
plan $((11 + ${#orders[@]} + more))
echo "$start" >/dev/kmsg
check "ib_mkey stays while a device is extended" in_use
check "links are deleted and added again" add_and_delete
[[ ! -e $break ]] || check "a link whose self-test fails is deleted" self_test_fails
[[ ! -e $break ]] || check "a link of an rxe with other structures is left alone" other_size
check "one link is deleted and the other stays" one_link
check "a link is deleted while it is in use" delete_while_open
check "a namespace is deleted with its link" delete_namespace
check "rdma_rxe is loaded again" rxe_again
[[ ! -e $older ]] || check "operations are called after ib_mkey was removed" older_user
[[ ! -e $older_gaps ]] || check "an older user maps an MR after ib_mkey was removed" older_gaps
[[ ! -f $unit ]] || check "the unit of systemd makes a link" unit_link
for order in "${orders[@]}"; do
	# shellcheck disable=SC2086 # words
	check "unloaded in the order $order" unload_order $order
done
check "rxe without ib_mkey" without
check "ib_mkey is loaded late" load_late
check "the cure for a late load" cure
if ftrace_stays_on; then
	skip "ib_mkey while ftrace is disabled" "this kernel does not disable it"
	load && links_add
else
	load && links_add
	check "ib_mkey while ftrace is disabled" without_ftrace
fi
check "the kernel's log is clean" log_is_clean
ktap_finished
