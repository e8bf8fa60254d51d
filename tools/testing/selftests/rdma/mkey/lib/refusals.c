// SPDX-License-Identifier: GPL-2.0
/* The table of errors, and the layouts in the form of each way into the kernel. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "refusals.h"

#define LIST IB_UVERBS_MKEY_LIST
#define BLOCKS IB_UVERBS_MKEY_INTERLEAVED
#define INDEXED IB_UVERBS_MKEY_INDEXED
#define NONE IB_MKEY_NO_ENTRY
#define REMOTE_WRITE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define REMOTE_ATOMIC (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define OK 0

/* an entry that is not the first one */
static void list_at(struct mkt_text *t, uint64_t addr, uint64_t length)
{
	t->range[1].addr = addr;
	t->range[1].length = length;
	t->value = t->of->last;
}

/* blocks of 10 bytes in one dimension */
static void blocks_at(struct mkt_text *t, uint64_t addr, int64_t stride, uint64_t repeat)
{
	t->block[0].stride[0] = 0;
	t->block[1].addr = addr;
	t->block[1].bytes_count = 10;
	t->block[1].stride[0] = stride;
	t->block[1].stride[1] = 0;
	t->repeat[0] = repeat;
	t->repeat[1] = 1;
	t->value = t->of->last;
}

static void indexed_at(struct mkt_text *t, uint64_t addr, uint64_t unit, uint64_t bytes,
		       uint64_t index)
{
	t->indexed.addr = addr;
	t->indexed.unit = unit;
	t->indexed.bytes_count = bytes;
	t->index[0] = 0;
	t->index[1] = index;
	t->index[2] = 0;
	t->value = t->of->last;
}

/* bytes of an MR without access flags */
static void read_only(struct mkt_text *t, uint32_t access)
{
	t->range[1].lkey = t->of->read_only;
	t->block[1].lkey = t->of->read_only;
	t->indexed.lkey = t->of->read_only;
	t->range[1].addr = t->of->read_only_addr;
	t->block[1].addr = t->of->read_only_addr;
	t->indexed.addr = t->of->read_only_addr;
	t->bind.access = access;
	t->value = t->of->read_only;
}

/*
 * REFUSAL(kind, name, errno value, reason, entry, change of the layout t). The last value that is
 * accepted has the errno value OK. The linker makes one table of them.
 */
#define REFUSAL(_kind, _name, _err, _reason, _entry, ...)				\
	static void change_##_kind##_##_name(struct mkt_text *t)			\
	{										\
		__VA_ARGS__;								\
	}										\
	static const struct mkt_refusal refusal_##_kind##_##_name			\
	__attribute__((used, section("mkt_refusals"), aligned(8))) = {			\
		.name = #_kind "." #_name,						\
		.kind = _kind,								\
		.err = _err,								\
		.reason = IB_UVERBS_MKEY_REASON_##_reason,				\
		.entry = _entry,							\
		.change = change_##_kind##_##_name,					\
	}

/* fields of the whole layout */
REFUSAL(LIST, right, OK, NONE, NONE, (void)t);
REFUSAL(BLOCKS, right, OK, NONE, NONE, (void)t);
REFUSAL(INDEXED, right, OK, NONE, NONE, (void)t);
REFUSAL(LIST, version_later, EINVAL, VERSION, NONE, t->value = ++t->version);
REFUSAL(LIST, version_0, EINVAL, VERSION, NONE, t->version = 0);
REFUSAL(LIST, kind_0, EINVAL, KIND, NONE, t->bind.kind = IB_UVERBS_MKEY_UNBOUND);
REFUSAL(LIST, kind_later, EINVAL, KIND, NONE, t->bind.kind = INDEXED + 1; t->value = t->bind.kind);
REFUSAL(LIST, kind_most, EINVAL, KIND, NONE, t->bind.kind = UINT32_MAX; t->value = t->bind.kind);
REFUSAL(LIST, other_kind, EINVAL, ENTRY_SIZE, NONE,
	t->bind.kind = BLOCKS; t->value = t->bind.entry_size);
REFUSAL(BLOCKS, other_kind, EINVAL, ENTRY_SIZE, NONE,
	t->bind.kind = LIST; t->value = t->bind.entry_size);
REFUSAL(INDEXED, other_kind, EINVAL, ENTRY_SIZE, NONE,
	t->bind.kind = LIST; t->value = t->bind.entry_size);
REFUSAL(LIST, entry_size_0, EINVAL, ENTRY_SIZE, NONE, t->bind.entry_size = 0);
REFUSAL(LIST, entry_smaller, EINVAL, ENTRY_SIZE, NONE,
	t->bind.entry_size -= 8; t->value = t->bind.entry_size);
REFUSAL(BLOCKS, entry_larger, EINVAL, ENTRY_SIZE, NONE,
	t->bind.entry_size += 8; t->value = t->bind.entry_size);
REFUSAL(INDEXED, entry_larger, EINVAL, ENTRY_SIZE, NONE, t->value = ++t->bind.entry_size);
REFUSAL(LIST, bit_31, EINVAL, COMP_MASK, NONE,
	t->bind.comp_mask = 1u << 31; t->value = t->bind.comp_mask);
REFUSAL(BLOCKS, bit_31, EINVAL, COMP_MASK, NONE,
	t->bind.comp_mask = 1u << 31; t->value = t->bind.comp_mask);
REFUSAL(INDEXED, bit_31, EINVAL, COMP_MASK, NONE,
	t->bind.comp_mask = 1u << 31; t->value = t->bind.comp_mask);
REFUSAL(LIST, reserved, EINVAL, RESERVED, NONE, t->bind.reserved = 7; t->value = t->bind.reserved);
REFUSAL(LIST, rkey_without_bit, EINVAL, RKEY, NONE, t->bind.rkey = 77; t->value = t->bind.rkey);
REFUSAL(LIST, access, EINVAL, ACCESS, NONE, t->bind.access = 1u << 31; t->value = t->bind.access);
REFUSAL(BLOCKS, access, EINVAL, ACCESS, NONE,
	t->bind.access = 1u << 30; t->value = t->bind.access);
REFUSAL(INDEXED, access, EINVAL, ACCESS, NONE,
	t->bind.access = 1u << 31; t->value = t->bind.access);
REFUSAL(LIST, local_write, EINVAL, LOCAL_WRITE, NONE,
	t->bind.access = IBV_ACCESS_REMOTE_WRITE; t->value = t->bind.access);
REFUSAL(BLOCKS, local_write, EINVAL, LOCAL_WRITE, NONE,
	t->bind.access = IBV_ACCESS_REMOTE_ATOMIC; t->value = t->bind.access);
REFUSAL(INDEXED, local_write, EINVAL, LOCAL_WRITE, NONE,
	t->bind.access = IBV_ACCESS_REMOTE_WRITE; t->value = t->bind.access);

/* the number of entries, which is looked at before they are read */
REFUSAL(LIST, empty, EINVAL, EMPTY, NONE, t->bind.num_entries = 0);
REFUSAL(BLOCKS, empty, EINVAL, EMPTY, NONE, t->bind.num_entries = 0);
REFUSAL(INDEXED, empty, EINVAL, EMPTY, NONE, t->indexed.num_indices = 0);
REFUSAL(LIST, all_the_room, OK, NONE, NONE, t->bind.num_entries = MKT_REFUSALS_ROOM);
REFUSAL(BLOCKS, all_the_room, OK, NONE, NONE, t->bind.num_entries = MKT_REFUSALS_ROOM);
REFUSAL(INDEXED, all_the_room, OK, NONE, NONE, t->indexed.num_indices = MKT_REFUSALS_ROOM);
REFUSAL(LIST, one_too_many, ENOSPC, TOO_MANY, NONE,
	t->value = MKT_REFUSALS_ROOM; t->bind.num_entries = MKT_REFUSALS_ROOM + 1);
REFUSAL(BLOCKS, one_too_many, ENOSPC, TOO_MANY, NONE,
	t->value = MKT_REFUSALS_ROOM; t->bind.num_entries = MKT_REFUSALS_ROOM + 1);
REFUSAL(INDEXED, one_too_many, ENOSPC, TOO_MANY, NONE,
	t->value = MKT_REFUSALS_ROOM; t->indexed.num_indices = MKT_REFUSALS_ROOM + 1);
REFUSAL(LIST, far_too_many, ENOSPC, TOO_MANY, NONE,
	t->bind.num_entries = UINT32_MAX; t->value = IB_MKEY_MAX_ENTRIES);
REFUSAL(BLOCKS, far_too_many, ENOSPC, TOO_MANY, NONE,
	t->bind.num_entries = UINT32_MAX; t->value = IB_MKEY_MAX_ENTRIES);
REFUSAL(INDEXED, two_patterns, EINVAL, ONE_INDEXED, NONE,
	t->bind.num_entries = 2; t->value = t->bind.num_entries);

/* dimensions */
REFUSAL(LIST, dims, EINVAL, NOT_INTERLEAVED, NONE, t->bind.num_dims = 1);
REFUSAL(INDEXED, dims, EINVAL, NOT_INTERLEAVED, NONE, t->bind.num_dims = 1);
REFUSAL(LIST, counts, EINVAL, NOT_INTERLEAVED, NONE, t->bind.repeat_count = 8);
REFUSAL(INDEXED, counts, EINVAL, NOT_INTERLEAVED, NONE, t->bind.repeat_count = 8);
REFUSAL(BLOCKS, dims_0, EINVAL, DIMS, NONE, t->bind.num_dims = 0);
REFUSAL(BLOCKS, dims_9, EINVAL, DIMS, NONE, t->bind.num_dims = 9; t->value = t->bind.num_dims);
REFUSAL(BLOCKS, dims_most, EINVAL, DIMS, NONE,
	t->bind.num_dims = UINT32_MAX; t->value = t->bind.num_dims);
REFUSAL(BLOCKS, dims_8, OK, NONE, NONE, t->bind.num_dims = 8);
REFUSAL(BLOCKS, count_0, EINVAL, NO_REPEAT, NONE, t->repeat[0] = 0);
REFUSAL(BLOCKS, count_1, EINVAL, NO_REPEAT, NONE, t->repeat[1] = 0; t->value = 1);
REFUSAL(BLOCKS, stride_2, EINVAL, STRIDE, 1, t->block[1].stride[2] = 1; t->value = 2);
REFUSAL(BLOCKS, stride_7, EINVAL, STRIDE, 1, t->block[1].stride[7] = -1; t->value = 7);

/* arrays that cannot be read */
REFUSAL(LIST, no_array, EFAULT, FAULT, NONE, t->bind.entries = 8; t->value = t->bind.entries);
REFUSAL(BLOCKS, no_array, EFAULT, FAULT, NONE, t->bind.entries = 8; t->value = t->bind.entries);
REFUSAL(BLOCKS, no_counts, EFAULT, FAULT, NONE,
	t->bind.repeat_count = 8; t->value = t->bind.repeat_count);
REFUSAL(INDEXED, no_array, EFAULT, FAULT, NONE, t->bind.entries = 8; t->value = t->bind.entries);
REFUSAL(INDEXED, no_indices, EFAULT, FAULT, NONE,
	t->indexed.indices = 8; t->value = t->indexed.indices);

/* fields of an entry */
REFUSAL(LIST, entry_bit, EINVAL, COMP_MASK, 1,
	t->range[1].comp_mask = 1; t->value = t->range[1].comp_mask);
REFUSAL(BLOCKS, entry_bit, EINVAL, COMP_MASK, 1,
	t->block[1].comp_mask = 1u << 31; t->value = t->block[1].comp_mask);
REFUSAL(INDEXED, entry_bit, EINVAL, COMP_MASK, NONE,
	t->indexed.comp_mask = 9; t->value = t->indexed.comp_mask);
REFUSAL(LIST, no_bytes, EINVAL, NO_BYTES, 1, t->range[1].length = 0);
REFUSAL(BLOCKS, no_bytes, EINVAL, NO_BYTES, 1, t->block[1].bytes_count = 0);
REFUSAL(INDEXED, no_bytes, EINVAL, NO_BYTES, 0, t->indexed.bytes_count = 0);
REFUSAL(INDEXED, no_unit, EINVAL, NO_UNIT, NONE, t->indexed.unit = 0);
REFUSAL(INDEXED, bytes_0, EINVAL, INDEX_BYTES, NONE, t->indexed.index_bytes = 0);
REFUSAL(INDEXED, bytes_2, EINVAL, INDEX_BYTES, NONE,
	t->indexed.index_bytes = 2; t->value = t->indexed.index_bytes);
REFUSAL(INDEXED, bytes_5, EINVAL, INDEX_BYTES, NONE,
	t->indexed.index_bytes = 5; t->value = t->indexed.index_bytes);
REFUSAL(INDEXED, bytes_16, EINVAL, INDEX_BYTES, NONE,
	t->indexed.index_bytes = 16; t->value = t->indexed.index_bytes);

/*
 * An lkey of another PD is reported as an unknown one, because otherwise a process could guess
 * foreign keys.
 */
REFUSAL(LIST, lkey_0, ENOENT, LKEY, 0, t->range[0].lkey = 0);
REFUSAL(LIST, lkey_most, ENOENT, LKEY, 1,
	t->range[1].lkey = UINT32_MAX; t->value = t->range[1].lkey);
REFUSAL(LIST, other_portion, ENOENT, LKEY, 1, t->range[1].lkey ^= 1; t->value = t->range[1].lkey);
REFUSAL(BLOCKS, other_portion, ENOENT, LKEY, 1,
	t->block[1].lkey ^= 1; t->value = t->block[1].lkey);
REFUSAL(INDEXED, other_portion, ENOENT, LKEY, NONE,
	t->indexed.lkey ^= 1; t->value = t->indexed.lkey);
REFUSAL(LIST, no_such_index, ENOENT, LKEY, 1,
	t->range[1].lkey ^= 0x40000000; t->value = t->range[1].lkey);
REFUSAL(BLOCKS, no_such_index, ENOENT, LKEY, 0,
	t->block[0].lkey ^= 0x40000000; t->value = t->block[0].lkey);
REFUSAL(LIST, other_pd, ENOENT, LKEY, 1,
	t->range[1].lkey = t->of->other_pd; t->value = t->range[1].lkey);
REFUSAL(BLOCKS, other_pd, ENOENT, LKEY, 1,
	t->block[1].lkey = t->of->other_pd; t->value = t->block[1].lkey);
REFUSAL(INDEXED, other_pd, ENOENT, LKEY, NONE,
	t->indexed.lkey = t->of->other_pd; t->value = t->indexed.lkey);
REFUSAL(LIST, other_key, ENOENT, LKEY, 1,
	t->range[1].lkey = t->of->other_key; t->value = t->range[1].lkey);
REFUSAL(LIST, other_device, ENOENT, LKEY, 1,
	t->range[1].lkey = t->of->other_device[0]; t->value = t->range[1].lkey);
REFUSAL(BLOCKS, key_of_other_device, ENOENT, LKEY, 1,
	t->block[1].lkey = t->of->other_device[1]; t->value = t->block[1].lkey);
REFUSAL(LIST, freed, ENOENT, LKEY, 1,
	t->range[1].lkey = t->of->freed; t->value = t->range[1].lkey);
REFUSAL(LIST, itself, ELOOP, ITSELF, 1,
	t->range[1].lkey = t->of->itself; t->value = t->range[1].lkey);
REFUSAL(BLOCKS, itself, ELOOP, ITSELF, 1,
	t->block[1].lkey = t->of->itself; t->value = t->block[1].lkey);
REFUSAL(INDEXED, itself, ELOOP, ITSELF, NONE,
	t->indexed.lkey = t->of->itself; t->value = t->indexed.lkey);
REFUSAL(LIST, unbound, ERANGE, NO_LENGTH, 1,
	t->range[1].lkey = t->of->unbound; t->value = t->range[1].lkey);

/* a key cannot have an access flag that its leaf lacks, and each MR can be read */
REFUSAL(LIST, read_only_write, EACCES, LEAF_ACCESS, 1, read_only(t, IBV_ACCESS_LOCAL_WRITE));
REFUSAL(BLOCKS, read_only_remote, EACCES, LEAF_ACCESS, 1, read_only(t, REMOTE_WRITE));
REFUSAL(INDEXED, read_only_atomic, EACCES, LEAF_ACCESS, 0, read_only(t, REMOTE_ATOMIC));
REFUSAL(LIST, read_only_all, EACCES, LEAF_ACCESS, 1, read_only(t, MKT_ACCESS_ALL));
REFUSAL(LIST, read_only_read, OK, NONE, NONE, read_only(t, IBV_ACCESS_REMOTE_READ));
REFUSAL(INDEXED, read_only_0, OK, NONE, NONE, read_only(t, 0));

/* one byte too far at either end, by each field that can do it */
REFUSAL(LIST, before, ERANGE, BEFORE_LEAF, 1,
	t->range[1].addr = t->of->first - 1; t->value = t->of->first);
REFUSAL(LIST, after, ERANGE, BEYOND_LEAF, 1, list_at(t, t->of->last - 8, 10));
REFUSAL(LIST, just_after, ERANGE, BEYOND_LEAF, 1, list_at(t, t->of->last + 1, 1));
REFUSAL(LIST, longer, ERANGE, BEYOND_LEAF, 1,
	list_at(t, t->of->first, t->of->last - t->of->first + 2));
REFUSAL(LIST, length_of_33_bits, ERANGE, BEYOND_LEAF, 1, list_at(t, t->of->first, 1ull << 32));
REFUSAL(LIST, at_the_end, OK, NONE, NONE, list_at(t, t->of->last - 9, 10));
REFUSAL(LIST, whole, OK, NONE, NONE, list_at(t, t->of->first, t->of->last - t->of->first + 1));
REFUSAL(LIST, dm_after, ERANGE, BEYOND_LEAF, 1,
	t->range[1].lkey = t->of->dm; list_at(t, t->of->dm_length - 9, 10);
	t->value = t->of->dm_length - 1);
REFUSAL(LIST, dm_at_the_end, OK, NONE, NONE,
	t->range[1].lkey = t->of->dm; list_at(t, t->of->dm_length - 10, 10));
REFUSAL(LIST, last_address, ERANGE, BEYOND_LEAF, 1, list_at(t, UINT64_MAX - 9, 10));
REFUSAL(BLOCKS, after, ERANGE, BEYOND_LEAF, 1, blocks_at(t, t->of->last - 8, 0, 1));
REFUSAL(BLOCKS, forwards, ERANGE, BEYOND_LEAF, 1, blocks_at(t, t->of->last - 38, 10, 4));
REFUSAL(BLOCKS, backwards, ERANGE, BEFORE_LEAF, 1,
	blocks_at(t, t->of->first + 29, -10, 4); t->value = t->of->first);
REFUSAL(BLOCKS, forwards_to_the_end, OK, NONE, NONE, blocks_at(t, t->of->last - 39, 10, 4));
REFUSAL(BLOCKS, backwards_to_the_start, OK, NONE, NONE, blocks_at(t, t->of->first + 30, -10, 4));
REFUSAL(BLOCKS, second_dim, ERANGE, BEYOND_LEAF, 1,
	t->block[1].stride[1] = 1ll << 40; t->value = t->of->last);
REFUSAL(BLOCKS, last_address, ERANGE, BEYOND_LEAF, 1, blocks_at(t, UINT64_MAX - 9, 0, 1));
REFUSAL(INDEXED, before, ERANGE, BEFORE_LEAF, 0,
	t->indexed.addr = t->of->first - 1; t->value = t->of->first);
REFUSAL(INDEXED, by_address, ERANGE, BEYOND_LEAF, 1, indexed_at(t, t->of->last - 98, 90, 10, 1));
REFUSAL(INDEXED, to_the_end, OK, NONE, NONE, indexed_at(t, t->of->last - 99, 90, 10, 1));
REFUSAL(INDEXED, by_index, ERANGE, BEYOND_LEAF, 1,
	indexed_at(t, t->of->first, 1, 10, t->of->last - t->of->first - 8));
REFUSAL(INDEXED, last_index, OK, NONE, NONE,
	indexed_at(t, t->of->first, 1, 10, t->of->last - t->of->first - 9));
REFUSAL(INDEXED, by_unit, ERANGE, BEYOND_LEAF, 1,
	indexed_at(t, t->of->first, t->of->last - t->of->first - 8, 10, 1));
REFUSAL(INDEXED, by_length, ERANGE, BEYOND_LEAF, 0,
	indexed_at(t, t->of->first, 1, t->of->last - t->of->first + 2, 0));
REFUSAL(INDEXED, half_of_8_bytes, ERANGE, BEYOND_LEAF, 1,
	indexed_at(t, t->of->first, 1, 10, UINT32_MAX));
REFUSAL(INDEXED, third, ERANGE, BEYOND_LEAF, 2, t->index[2] = 1ull << 40; t->value = t->of->last);

/* sums that do not fit 64 bits; 2^64 - 1 is an address */
REFUSAL(LIST, wraps, EOVERFLOW, ADDRESS, 1, t->range[1].addr = UINT64_MAX - 5);
REFUSAL(LIST, length_wraps, EOVERFLOW, ADDRESS, 1, t->range[1].length = UINT64_MAX);
REFUSAL(BLOCKS, wraps, EOVERFLOW, ADDRESS, 0, t->block[0].addr = UINT64_MAX - 8);
REFUSAL(BLOCKS, stride_wraps, EOVERFLOW, ADDRESS, 1,
	t->repeat[0] = 4; t->block[1].stride[0] = INT64_MAX);
REFUSAL(BLOCKS, stride_wraps_back, EOVERFLOW, ADDRESS, 1, t->block[1].stride[0] = INT64_MIN);
REFUSAL(BLOCKS, before_zero, EOVERFLOW, ADDRESS, 1,
	t->block[1].lkey = t->of->dm; t->block[1].addr = 9; t->block[1].stride[0] = -10);
REFUSAL(BLOCKS, length_wraps, EOVERFLOW, ADDRESS, 1, t->block[1].bytes_count = UINT64_MAX);
REFUSAL(BLOCKS, sum_wraps, EOVERFLOW, LENGTH, NONE,
	t->repeat[0] = UINT64_MAX / 10; t->block[0].stride[0] = 0; t->block[1].stride[0] = 0);
REFUSAL(INDEXED, index_wraps, EOVERFLOW, ADDRESS, 1, t->index[1] = UINT64_MAX);
REFUSAL(INDEXED, unit_wraps, EOVERFLOW, ADDRESS, 1,
	indexed_at(t, t->of->first, UINT64_MAX, 10, 1); t->value = 0);
REFUSAL(INDEXED, wraps, EOVERFLOW, ADDRESS, 0,
	indexed_at(t, UINT64_MAX - 8, 16, 10, 0); t->value = 0);
REFUSAL(INDEXED, sum_wraps, EOVERFLOW, LENGTH, NONE,
	indexed_at(t, 0, 1, UINT64_MAX / 2, 0); t->value = 0);

/* the last address of the key may be 2^64 - 1, too */
static void begin_at(struct mkt_text *t, uint64_t base)
{
	t->bind.comp_mask = IB_UVERBS_MKEY_BIND_BASE;
	t->bind.base_addr = base;
	t->value = base;
}

REFUSAL(LIST, at_the_top, OK, NONE, NONE, begin_at(t, -21ull));
REFUSAL(LIST, over_the_top, EOVERFLOW, BASE, NONE, begin_at(t, -20ull));
REFUSAL(BLOCKS, over_the_top, EOVERFLOW, BASE, NONE, begin_at(t, UINT64_MAX));
REFUSAL(INDEXED, at_the_top, OK, NONE, NONE, begin_at(t, -30ull));
REFUSAL(INDEXED, over_the_top, EOVERFLOW, BASE, NONE, begin_at(t, -29ull));
REFUSAL(LIST, base_without_bit, EINVAL, RESERVED, NONE,
	begin_at(t, 7); t->bind.comp_mask = 0);

void mkt_refusal_text(const struct mkt_refusal *refusal, const struct mkt_refusals_of *of,
		      struct mkt_text *t)
{
	unsigned int i;

	memset(t, 0, sizeof(*t));
	t->of = of;
	t->version = IB_MKEY_LAYOUT_VERSION;
	for (i = 0; i <= MKT_REFUSALS_ROOM; i++) {
		t->range[i].addr = of->first + 100 * i;
		t->range[i].length = 10 + i;
		t->range[i].lkey = of->lkey;
		t->block[i].addr = t->range[i].addr;
		t->block[i].bytes_count = t->range[i].length;
		t->block[i].lkey = of->lkey;
		t->block[i].stride[0] = 20;
		t->block[i].stride[1] = 40;
		t->index[i] = i;
	}
	for (i = 0; i <= IB_MKEY_MAX_DIMS; i++)
		t->repeat[i] = i < 2 ? 2 + i : 1;
	t->indexed = (struct ib_uverbs_mkey_indexed){
		.addr = of->first,
		.unit = 16,
		.bytes_count = 10,
		.indices = (uintptr_t)t->index,
		.num_indices = 3,
		.index_bytes = 8,
		.lkey = of->lkey,
	};
	t->bind.kind = refusal->kind;
	t->bind.num_entries = 2;
	switch (refusal->kind) {
	case LIST:
		t->bind.entries = (uintptr_t)t->range;
		t->bind.entry_size = sizeof(t->range[0]);
		break;
	case BLOCKS:
		t->bind.entries = (uintptr_t)t->block;
		t->bind.entry_size = sizeof(t->block[0]);
		t->bind.repeat_count = (uintptr_t)t->repeat;
		t->bind.num_dims = 2;
		break;
	case INDEXED:
		t->bind.entries = (uintptr_t)&t->indexed;
		t->bind.entry_size = sizeof(t->indexed);
		t->bind.num_entries = 1;
		break;
	}
	refusal->change(t);
}

static size_t size_of(uint32_t kind)
{
	return kind == LIST ? sizeof(struct ib_uverbs_mkey_sge) :
	       kind == BLOCKS ? sizeof(struct ib_uverbs_mkey_block) :
				sizeof(struct ib_uverbs_mkey_indexed);
}

bool mkt_text_bind(const struct mkt_text *t, uint32_t kind, struct ibmkey_bind *bind)
{
	*bind = (struct ibmkey_bind){
		.comp_mask = t->bind.comp_mask,
		.kind = t->bind.kind,
		.access = t->bind.access,
		.num_entries = t->bind.num_entries,
		.num_dims = t->bind.num_dims,
		.repeat_count = (const uint64_t *)(uintptr_t)t->bind.repeat_count,
		.ranges = (const struct ibmkey_range *)(uintptr_t)t->bind.entries,
		.rkey = t->bind.rkey,
	};
	return t->bind.kind == kind && t->bind.entry_size == size_of(kind) &&
	       !t->bind.reserved && !t->bind.rkey && !t->bind.base_addr &&
	       t->version == IB_MKEY_LAYOUT_VERSION;
}

size_t mkt_text_write(const struct mkt_text *t, uint32_t kind, void *to, size_t room)
{
	const struct ib_uverbs_mkey_layout header = {
		.version = t->version,
		.kind = t->bind.kind,
		.num_entries = t->bind.num_entries,
		.entry_size = t->bind.entry_size,
		.num_dims = t->bind.num_dims,
		.comp_mask = t->bind.comp_mask == IB_UVERBS_MKEY_BIND_BASE ?
			     IB_UVERBS_MKEY_LAYOUT_BASE : t->bind.comp_mask,
	};
	const void *repeat = (const void *)(uintptr_t)t->bind.repeat_count;
	const void *entries = (const void *)(uintptr_t)t->bind.entries;
	size_t dims = t->bind.num_dims, num = t->bind.num_entries, length = 0;
	struct ib_uverbs_mkey_indexed indexed = t->indexed;

	/* it has no arrays elsewhere, and is as long as the largest right one */
	if (t->bind.reserved || t->bind.rkey || room < sizeof(*t) ||
	    (t->bind.base_addr && !t->bind.comp_mask) ||
	    repeat != (kind == BLOCKS ? t->repeat : NULL) ||
	    entries != (kind == LIST ? (const void *)t->range :
			kind == BLOCKS ? (const void *)t->block : &t->indexed) ||
	    t->indexed.indices != (uintptr_t)t->index)
		return 0;
	if (num > MKT_REFUSALS_ROOM + 1)
		num = MKT_REFUSALS_ROOM + 1;
	if (dims > IB_MKEY_MAX_DIMS + 1)
		dims = IB_MKEY_MAX_DIMS + 1;
#define ADD(from, bytes) (memcpy((char *)to + length, from, bytes), length += (bytes))
	ADD(&header, sizeof(header));
	if (t->bind.base_addr)
		ADD(&t->bind.base_addr, sizeof(t->bind.base_addr));
	if (kind == BLOCKS)
		ADD(t->repeat, dims * sizeof(t->repeat[0]));
	if (kind != INDEXED) {
		ADD(entries, num * size_of(kind));
	} else {
		indexed.indices = 0;
		num = indexed.num_indices;
		if (num > MKT_REFUSALS_ROOM + 1)
			num = MKT_REFUSALS_ROOM + 1;
		ADD(&indexed, sizeof(indexed));
		ADD(t->index, num * sizeof(t->index[0]));
	}
#undef ADD
	return length;
}

int mkt_refusals_open(struct mkt_refusals_of *of, struct mkt_dev dev[2], uint32_t itself)
{
	const unsigned int zero_based = MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED;
	struct ibv_alloc_dm_attr attr = { .length = 16 * 1024 };
	struct ibv_mr *freed, **mr = of->mrs;
	unsigned int i;

	memset(of, 0, sizeof(*of));
	of->bytes = aligned_alloc(4096, MKT_REFUSALS_BYTES + 4096);
	of->pd2 = ibv_alloc_pd(dev->ctx);
	of->memory = ibv_alloc_dm(dev->ctx, &attr);
	if (!of->bytes || !of->pd2 || !of->memory)
		return errno;
	for (i = 0; i < MKT_REFUSALS_BYTES + 4096; i++)
		of->bytes[i] = i * 31 + i / 256;
	mr[0] = ibv_reg_mr(dev->pd, of->bytes, MKT_REFUSALS_BYTES, MKT_ACCESS_ALL);
	mr[1] = ibv_reg_dm_mr(dev->pd, of->memory, 0, attr.length, zero_based);
	mr[2] = ibv_reg_mr(dev->pd, of->bytes + MKT_REFUSALS_BYTES, 4096, 0);
	mr[3] = ibv_reg_mr(of->pd2, of->bytes, 4096, MKT_ACCESS_ALL);
	mr[4] = ibmkey_alloc(of->pd2, 1);
	mr[5] = ibmkey_alloc(dev->pd, 1);
	freed = ibv_reg_mr(dev->pd, of->bytes, 4096, MKT_ACCESS_ALL);
	/* with an index that no MR of this process has on the device */
	do {
		if (mr[6])
			ibv_dereg_mr(mr[6]);
		mr[6] = ibv_reg_mr(dev[1].pd, of->bytes, 4096, MKT_ACCESS_ALL);
	} while (mr[6] && freed && abs((int)(mr[6]->lkey >> 8) - (int)(freed->lkey >> 8)) < 64);
	mr[7] = ibmkey_alloc(dev[1].pd, 1);
	for (i = 0; i < sizeof(of->mrs) / sizeof(*of->mrs); i++)
		if (!mr[i])
			return errno;
	if (!freed)
		return errno;
	of->first = (uintptr_t)of->bytes;
	of->last = of->first + MKT_REFUSALS_BYTES - 1;
	of->lkey = mr[0]->lkey;
	of->dm_length = attr.length;
	of->dm = mr[1]->lkey;
	of->read_only_addr = of->last + 1;
	of->read_only = mr[2]->lkey;
	of->other_pd = mr[3]->lkey;
	of->other_key = mr[4]->lkey;
	of->unbound = mr[5]->lkey;
	of->other_device[0] = mr[6]->lkey;
	of->other_device[1] = mr[7]->lkey;
	of->freed = freed->lkey;
	of->itself = itself;
	return ibv_dereg_mr(freed);
}

int mkt_refusals_close(struct mkt_refusals_of *of)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < sizeof(of->mrs) / sizeof(*of->mrs); i++)
		if (of->mrs[i])
			err = ibv_dereg_mr(of->mrs[i]) ?: err;
	if (of->memory)
		err = ibv_free_dm(of->memory) ?: err;
	if (of->pd2)
		err = ibv_dealloc_pd(of->pd2) ?: err;
	for (i = 0; of->bytes && i < MKT_REFUSALS_BYTES + 4096; i++)
		if (of->bytes[i] != (uint8_t)(i * 31 + i / 256))
			err = EBADMSG;
	free(of->bytes);
	return err;
}
