#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: The kernel samples in Rust (samples/kernel) while one allocation after another fails: those
# of loading a module, of the threads that make a connection on both sides, and of the handler of
# rdma_cm's events. What fails leaves no MR, queue pair, id or device memory, and without a fault the
# next try succeeds.
# needs: faults brd

# shellcheck disable=SC2119,SC2317 # functions are called by check, serve without parameters, too
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"
# shellcheck source=lib/rblk.sh
source "$(dirname "$0")/rblk.sh" 2>/dev/null || source "$(dirname "$0")/lib/rblk.sh"

[[ -w /proc/self/fail-nth ]] || skip_all "this kernel has no fault injection"
fail_add=${MKEY_MODULES:-${MODULE_DIR-}/tools/testing/selftests/rdma/mkey/test_modules}/mkey_fail_add.ko
[[ -e $fail_add ]] || skip_all "no mkey_fail_add.ko; MKEY_MODULES= names its directory"
faults=/sys/module/mkey_fail_add/parameters
# shellcheck disable=SC2034 # of rblk.sh
store=/dev/ram0 every=8
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || every=2
RANDOM=$seed

# spare N|Y VERBOSE: allocations that may sleep are spared, and how much of each fault is in the log
spare() {
	local dir
	for dir in /sys/kernel/debug/{failslab,fail_page_alloc}; do
		echo "$1" >"$dir/ignore-gfp-wait" && echo "$2" >"$dir/verbose" || return
	done
}
# The next number of an allocation: the first ones are all tried, then ever fewer.
next() { n=$((n + 1 + RANDOM % (1 + 2 * n / every))); }
# Waits a short time without another process, up to 9000 times after $waited is set to 0.
pause() {
	read -rt 0.02 -u "$never"
	((++waited < 9000)) || { echo "neither a fault nor a connection"; return 1; }
}
exec {never}<> <(:)

# state: prints the objects of both devices by their kinds, and the device memory that is in use
state() {
	rdma resource show | grep -E "(${dev[0]}|${dev[1]}):"
	awk '{ print $1, $2, $4, $6 }' /sys/kernel/debug/ib_mkey/pools
	awk '{ print $1, $2, $3 }' /sys/kernel/debug/ib_mkey/owners
}
as_before() { [[ $(state) == "$known" ]]; }

# Each allocation of the init of a module fails in turn.
loads() { # MODULE PARAMETER...
	local n=1 failed=0 loaded refused=0 known
	known=$(state)
	insmod "$fail_add" symbol=do_one_initcall || return
	while :; do
		echo $n >$faults/nth
		loaded=0
		insmod "$modules/$1.ko" "${@:2}" 2>/dev/null && loaded=1
		[[ $(<$faults/failed) == Y ]] || break
		((++failed, refused += !loaded))
		((!loaded)) || rmmod "$1" || return
		until_true as_before || { echo "fault $n"; diff <(echo "$known") <(state); return 1; }
		next
	done
	echo "$failed faults, $refused of them refused the module, of $(<$faults/allocations) allocations" >&3
	((loaded && refused > 0)) && rmmod "$1" && rmmod mkey_fail_add && until_true as_before
}

# Each allocation of a thread fails in turn while it makes a connection. After an error the client
# waits for a second. If its next try comes before the next fault is set, all begins again, from there
# on.
connects() { # THREAD FIRST SECOND
	local n=1 failed=0 left fault second known waited
	known=$(state)
	while :; do
		waited=0
		$2 && fault=$(echo /proc/"$(pgrep -x "$1")"/task/*/fail-nth) && echo $n >"$fault" || return
		$3 & second=$!
		while [[ ! -e /sys/block/rblk0 ]]; do
			read -r left <"$fault"
			if [[ $left == 0 ]]; then
				((++failed))
				next
				echo $n >"$fault"
				waited=0
			fi
			pause || return
		done
		read -r left <"$fault"
		echo 0 >"$fault"
		wait $second && until_true connected && { ((left == 0)) || transfers 3 4; } || return
		client_ends && server_ends || return
		until_true as_before || { diff <(echo "$known") <(state); return 1; }
		((left == 0)) || break
		next
	done
	echo "$failed faults, the last one is of allocation $n at most" >&3
	((failed > 3))
}

# Each allocation for a request to connect fails in turn. It is refused then.
handles() {
	local n=1 known symbol waited=0
	known=$(state)
	serve && symbol=$(awk '$3 ~ /2id7handler$/ && $4 == "[mkey_rblk_server]" { print $3; exit }' /proc/kallsyms) &&
		insmod "$fail_add" symbol="$symbol" nth=1 && client || return
	while [[ ! -e /sys/block/rblk0 ]]; do
		if [[ $(<$faults/failed) == Y && $(<$faults/allocations) == "$n" ]]; then
			((++n))
			echo $n >$faults/nth
			waited=0
		fi
		pause || return
	done
	rmmod mkey_fail_add && until_true connected && transfers 3 4 && client_ends && server_ends || return
	echo "$((n - 1)) faults" >&3
	((n > 2)) && until_true as_before
}

# A check that ends early leaves no module.
try() { # NAME COMMAND...
	: >"$summary"
	check "$@" 3>"$summary"
	[[ ! -s $summary ]] || diag "$(<"$summary")"
	for module in mkey_rblk_client mkey_rblk_server mkey_ulp_rust mkey_fail_add; do
		[[ ! -d /sys/module/$module ]] || rmmod $module
	done
}
device_number() { rdma dev show "${dev[$1]}" | sed -n 's/^\([0-9]*\):.*/\1/p'; }

summary=$(mktemp)
diag "seed $seed"
plan 9
check "there is a disk in memory" ram_disk
check "allocations that may sleep fail" spare N 0
try "the server is loaded" loads mkey_rblk_server device="$(number_of $store)"
try "the client is loaded" loads mkey_rblk_client server=0
try "the sample of keys and verbs is loaded" loads mkey_ulp_rust rounds=0 \
	device="$(device_number 0)" peer="$(device_number 1)"
try "the client's thread connects" connects mkey_rblk_client client serve
try "the server's thread accepts" connects mkey_rblk_server serve client
try "the server handles requests" handles
check "the log says nothing of it" eval "spare Y 2 && no_ram_disk && clean"
ktap_finished
