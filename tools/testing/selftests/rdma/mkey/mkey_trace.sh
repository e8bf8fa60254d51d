#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Tracers, kprobes and a livepatch on functions of rxe make no difference to accesses
# through keys, to their binds and to ordinary MRs.
# needs: kprobes

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

((UID == 0)) || skip_all "not root"
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
tracing=/sys/kernel/tracing
[[ -e $tracing/trace ]] || mount -t tracefs none $tracing 2>/dev/null
[[ -e $tracing/kprobe_events ]] || skip_all "this kernel has no kprobe events"
grep -qw function_graph $tracing/available_tracers || skip_all "this kernel has no function_graph"
module=${MKEY_MODULES:-${MODULE_DIR-}/tools/testing/selftests/rdma/mkey/test_modules}/mkey_patch.ko

# functions of rxe that reach memory, execute requests, or look a window up
functions=(rxe_mr_copy rxe_requester rxe_receiver rxe_mr_do_atomic_op rxe_invalidate_mr rxe_bind_mw)

works() {
	program mkey_matrix -v user -v dm_host &&
		program mkey_window -t type_2 &&
		program mkey_request -t binds_every_kind &&
		program stock_mr -v mtu1024
}

graph() {
	local rc=0
	printf '%s\n' "${functions[@]}" >$tracing/set_graph_function &&
		echo function_graph >$tracing/current_tracer || return
	works || rc=1
	grep -q 'rxe_mr_copy' $tracing/trace || { echo "nothing was traced"; rc=1; }
	echo nop >$tracing/current_tracer
	: >$tracing/set_graph_function
	return "$rc"
}

probes() {
	local f rc=0 hits
	for f in "${functions[@]}"; do
		printf 'p:mkeytrace/%s rdma_rxe:%s\nr:mkeytrace/%s_ret rdma_rxe:%s\n' "$f" "$f" "$f" "$f"
	done >>$tracing/kprobe_events
	echo 1 >$tracing/events/mkeytrace/enable || rc=1
	works || rc=1
	for f in rxe_mr_copy rxe_mr_copy_ret; do
		hits=$(awk -v e="$f" '$1 == e { print $2 }' $tracing/kprobe_profile)
		((hits > 0)) || { echo "$f was not called"; rc=1; }
	done
	echo 0 >$tracing/events/mkeytrace/enable
	echo '-:mkeytrace/' >>$tracing/kprobe_events
	return "$rc"
}

livepatch() {
	local rc=0
	insmod "$module" || return
	works || rc=1
	(($(cat /sys/module/mkey_patch/parameters/hits) > 0)) || { echo "the function was not called"; rc=1; }
	rmmod mkey_patch && return "$rc"
}

plan $((2 + $([[ -e $module ]] && echo 1 || echo 0)))
check "function_graph" graph
check "kprobes and kretprobes" probes
[[ ! -e $module ]] || check "a livepatch" livepatch
ktap_finished
