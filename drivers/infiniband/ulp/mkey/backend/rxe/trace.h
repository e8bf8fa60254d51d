/* SPDX-License-Identifier: GPL-2.0 */
/* The tracepoints of ib_mkey. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ib_mkey

#if !defined(IB_MKEY_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define IB_MKEY_TRACE_H

#include <linux/tracepoint.h>
#include <rdma/ib_mkey_ioctl.h>

/* An access was refused. The fields are those of struct ib_uverbs_mkey_refused_access. */
TRACE_EVENT(ib_mkey_refused_access,
	TP_PROTO(const struct ib_uverbs_mkey_refused_access *access),
	TP_ARGS(access),
	TP_STRUCT__entry(
		__field(u64, number)
		__field(u64, addr)
		__field(u64, length)
		__field(u64, value)
		__field(u32, key)
		__field(u32, reason)
		__field(u32, access)
		__field(u32, remote)
	),
	TP_fast_assign(
		__entry->number = access->number;
		__entry->addr = access->addr;
		__entry->length = access->length;
		__entry->value = access->value;
		__entry->key = access->key;
		__entry->reason = access->reason;
		__entry->access = access->access;
		__entry->remote = access->remote;
	),
	TP_printk("number=%llu key=%#x addr=%#llx length=%llu reason=%u value=%llu access=%#x remote=%u",
		  __entry->number, __entry->key, __entry->addr, __entry->length,
		  __entry->reason, __entry->value, __entry->access, __entry->remote)
);

#endif /* IB_MKEY_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
