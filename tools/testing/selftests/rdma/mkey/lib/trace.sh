# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# How often kernel code that does not know ib_mkey allocates, maps and registers MRs,
# by kprobes. A script sets trace_group, the name of its events, and sources this file.
#
# The operations of ib_mkey are called for its own MRs alone: execute() for REG_MR, and invalidate_mr()
# for LOCAL_INV and SEND with invalidate. A kprobe needs a function that ftrace can trace, so not
# one in Rust.

tracing=/sys/kernel/tracing

# trace_can: succeeds if this kernel can count
trace_can() {
	[[ -e $tracing/kprobe_events ]] || mount -t tracefs none $tracing 2>/dev/null
	[[ -e $tracing/kprobe_events ]]
}

# Counts from now on. SG_GAPS is 1, MEM_REG is 0. Without ib_mkey, nothing counts its operations.
trace_start() {
	local events=$tracing/events/${trace_group:?}
	local own="p:$trace_group/reg ib_mkey:execute"$'\n'"p:$trace_group/inv ib_mkey:invalidate_mr"
	[[ -d /sys/module/ib_mkey ]] || own=
	cat >>"$tracing"/kprobe_events <<-END &&
		p:$trace_group/gaps ib_alloc_mr type=%si:u32
		p:$trace_group/other ib_alloc_mr type=%si:u32
		p:$trace_group/map ib_map_mr_sg
		$own
	END
		echo 'type == 1' >"$events/gaps/filter" &&
		echo 'type != 1' >"$events/other/filter" &&
		: >"$tracing"/trace &&
		echo 1 >"$events/enable"
}

trace_stop() {
	echo 0 >"$tracing/events/$trace_group/enable" &&
		echo "-:$trace_group/" >>"$tracing"/kprobe_events
}

# trace_calls EVENT: prints the number of calls that passed the filter, on all CPUs
trace_calls() { cat "$tracing"/per_cpu/*/trace 2>/dev/null | grep -c " $1: "; }
trace_hits() { awk -v e="$1" '$1 == e { print $2 }' "$tracing"/kprobe_profile; }

# trace_with_gaps N: at least N MRs are of the type with gaps, and no other MR is there
trace_with_gaps() {
	local gaps other
	gaps=$(trace_calls gaps) other=$(trace_calls other)
	echo "$gaps MRs with gaps, $other of another type"
	((gaps >= $1 && other == 0))
}

# trace_without_gaps N: no MR is of the type with gaps, and more than N requests were mapped
trace_without_gaps() {
	local gaps other map
	gaps=$(trace_calls gaps) other=$(trace_calls other) map=$(trace_hits map)
	echo "$gaps MRs with gaps, $other of another type, $map mapped"
	((gaps == 0 && other > 0 && map > $1))
}

# trace_registered N: more than N requests were mapped, registered and invalidated, by ib_mkey
trace_registered() {
	local map reg inv
	map=$(trace_hits map) reg=$(trace_hits reg) inv=$(trace_hits inv)
	echo "$map mapped, $reg registered and $inv invalidated by ib_mkey"
	((map > $1 && reg > $1 && inv > $1))
}
