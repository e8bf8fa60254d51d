#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Links are deleted and modules unloaded in every order. Objects in use stay, unused ones
# go, and the kernel's log has no warning. This test deletes the devices and adds them again.
# sets: first long

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"
# shellcheck source=lib/rdma-core.sh
source "$here/rdma-core.sh" 2>/dev/null || source "$here/lib/rdma-core.sh"

((UID == 0)) || skip_all "not root"
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
modinfo -n ib_uverbs &>/dev/null || skip_all "ib_uverbs is not a module"
find_netdevs

loaded() { [[ -d /sys/module/$1 ]]; }
has_link() { in_ns "$1" rdma link show "${dev[$1]}/1" &>/dev/null; }

# After a process has ended, a work item drops its references to the module.
unload() {
	local m
	for m in "$@"; do
		! loaded "$m" || until_true rmmod "$m" || return
	done
}

# rdma-core's tests have the results that they have with ib_mkey.
rdma_core_works() { ! has_rdma_core || { rdma_core_passes rxe LD_PRELOAD= mr && rdma_core_passes rxe LD_PRELOAD= odp; }; }

# Modules that need ib_uverbs and are not under test.
users=(rdma_ucm ib_umad)
load() { modprobe -a ib_mkey ib_uverbs rdma_rxe && { modprobe -qa "${users[@]}" || true; }; }

# RDMA to device memory takes longest. When little time is wanted, it runs a few times, and at other
# times programs copy the bytes.
rdma=(mkey_matrix -r matrix.dm_host.direct)
memory=("${rdma[@]}")
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || memory=(dm_verbs -t copy)
keys_work() {
	program "${memory[@]}" &&
		program mkey_window -t type_1 &&
		program mkey_object -t query
}
all_works() { program "${rdma[@]}" && keys_work; }
stock_works() { program mkey_matrix -r matrix.user.direct; }
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
	[[ ! -e $reg ]] || { insmod "$reg" device="${dev[0]}" peer="${dev[1]}" bare=1 && rmmod mkey_reg_c; }
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

# Modules are unloaded in this order, after the links were deleted, and loaded in another.
unload_order() {
	links_delete && unload "${users[@]}" && unload "$@" || return
	load && links_add && keys_work
}

# Neither module needs the other one: links are added and deleted, and each module goes first in turn.
either_goes_first() {
	local n first=(rdma_rxe ib_mkey) last=(ib_mkey rdma_rxe)
	for ((n = 0; n < times; n++)); do
		links_delete && unload "${first[n % 2]}" && unload "${last[n % 2]}" &&
			modprobe -a "${first[n / 2 % 2]}" "${last[n / 2 % 2]}" && links_add || return
	done
	keys_work
}

# rdma_rxe deletes its links when it is unloaded.
rxe_with_links() {
	unload rdma_rxe && ! has_link 0 && unload ib_mkey && load && links_add && keys_work
}

# The device offers neither device memory nor MRs over dma-bufs.
offers_nothing() { program stock_mr -t offers; }
not_extended() { stock_works && no_keys && offers_nothing && kernel_calls_fail; }

# said NUMBER PATTERN: the log has so many lines with the pattern since the last marker
marker=
mark() { marker="mkey_lifecycle: $1 $$" && echo "$marker" >/dev/kmsg; }
said() {
	local lines
	lines=$(dmesg | sed "1,/$marker/d" | grep -c "$2")
	[[ $lines == "$1" ]] || { echo "$lines lines with '$2', not $1"; return 1; }
}

# A link that is older than ib_mkey stays as it is. ib_mkey says so, and the cure works.
older_links() {
	links_delete && unload "${users[@]}" ib_mkey rdma_rxe && insmod_of rdma_rxe && links_add &&
		mark "older links" && modprobe ib_mkey && said 2 'not extended: its link was added before' &&
		not_extended && rdma_core_works && links_delete && links_add && all_works
}

# insmod_of MODULE: loads a module of this build without what modprobe would load before it
insmod_of() { modprobe -a ib_uverbs rxe_provider && insmod "$(built "$1")"; }
built() { sed -n "s/^install $1 .*insmod \([^ ]*\).*/\1/p" /run/modprobe.d/ib_mkey.conf 2>/dev/null; }

# The rdma_rxe of the distribution is not extended, and works as without ib_mkey.
unmodified_rxe() {
	links_delete && unload "${users[@]}" rdma_rxe && modprobe -a udp_tunnel ip6_udp_tunnel &&
		insmod "$unmodified" && mark "unmodified rxe" && links_add || return
	said 2 'not extended: its link was added before' && not_extended && links_delete && unload rdma_rxe &&
		load && links_add && all_works
}

rxe_again() { links_delete && unload rdma_rxe && modprobe rdma_rxe && links_add && keys_work; }

# Tracers, kprobes and livepatches can have every function of rxe, because the modules take none.
takes_no_function() {
	local m
	for m in ib_mkey rxe_provider rdma_rxe; do
		! nm -u "$(built $m)" | grep -E 'ftrace|kprobe|kretprobe|kallsyms|klp_|text_poke' || return
	done
}

# The interface of rxe does not know keys: another module is the provider.
other_provider() {
	local rc=0
	links_delete && unload "${users[@]}" ib_mkey && insmod "$provider" && links_add || return
	program stock_provider && stock_works && ! rmmod mkey_provider 2>/dev/null && ! modprobe ib_mkey || rc=1
	links_delete && rmmod mkey_provider && load && links_add && keys_work && return "$rc"
}

# The order in which ib_uverbs and ib_mkey are loaded makes no difference.
uverbs_first() {
	links_delete && unload "${users[@]}" ib_mkey rdma_rxe rxe_provider ib_uverbs &&
		modprobe ib_uverbs && load && links_add && all_works &&
		program stock_mr -t offers && program mkey_matrix -r matrix.dma_heap.direct && delete_while_open
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
	(dev[0]=rxe_${netdev[0]} && until_true usable 0 && export MKEY_TEST_DEV0=${dev[0]} && program dm_verbs -t copy &&
		unit_runs ExecStop && ! has_link 0) && load && links_add && keys_work
}

start="mkey_lifecycle: begin $$"
splats='WARNING: |BUG: |KASAN: |UBSAN: |Oops|general protection|INFO: (task|rcu|possible)|refcount_t:|ODEBUG: |possible recursive|circular locking|left in the PD'
log_is_clean() {
	local found
	found=$(dmesg | sed "1,/$start/d" | grep -E -A 20 "$splats")
	[[ -z $found ]] || { echo "$found"; return 1; }
}

modules=${MKEY_MODULES:-${MODULE_DIR-}/tools/testing/selftests/rdma/mkey/test_modules}
reg=$modules/mkey_reg_c.ko
provider=$modules/mkey_provider.ko
# a kernel whose rxe has the provider interface has no other rdma_rxe
unmodified=$(find "/lib/modules/$(uname -r)/kernel" -name 'rdma_rxe.ko*' 2>/dev/null | head -n 1)
[[ -n $(built rdma_rxe) ]] || unmodified=''
more=0
[[ ! -e $provider ]] || ((++more))
[[ -z $unmodified ]] || ((++more))
[[ -z $(built rdma_rxe) ]] || ((more += 2))
unit=$(realpath "$here/../../..")/dev/install/ib-mkey-rxe@.service
[[ ! -f $unit ]] || ((++more))
orders=("ib_mkey ib_uverbs rdma_rxe" "ib_mkey rdma_rxe ib_uverbs" "ib_uverbs ib_mkey rdma_rxe"
	"ib_uverbs rdma_rxe ib_mkey" "rdma_rxe ib_mkey ib_uverbs" "rdma_rxe ib_uverbs ib_mkey")
# Each module comes first once, when little time is wanted.
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || orders=("${orders[RANDOM % 2]}" "${orders[2 + RANDOM % 2]}" "${orders[4 + RANDOM % 2]}")
times=20
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || times=4
plan $((10 + ${#orders[@]} + more))
echo "$start" >/dev/kmsg
check "ib_mkey stays while a device is extended" in_use
check "links are deleted and added again" add_and_delete
check "one link is deleted and the other stays" one_link
check "a link is deleted while it is in use" delete_while_open
check "a namespace is deleted with its link" delete_namespace
check "rdma_rxe is loaded again" rxe_again
check "rdma_rxe is unloaded with its links" rxe_with_links
check "either module is unloaded first, $times times" either_goes_first
[[ ! -f $unit ]] || check "the unit of systemd makes a link" unit_link
for order in "${orders[@]}"; do
	# shellcheck disable=SC2086 # words
	check "unloaded in the order $order" unload_order $order
done
[[ -z $(built rdma_rxe) ]] || check "the modules take no function of the kernel" takes_no_function
[[ -z $(built rdma_rxe) ]] || check "links that are older than ib_mkey" older_links
[[ -z $unmodified ]] || check "an unmodified rdma_rxe" unmodified_rxe
[[ ! -e $provider ]] || check "another provider" other_provider
check "ib_uverbs is loaded first" uverbs_first
check "the kernel's log is clean" log_is_clean
ktap_finished
