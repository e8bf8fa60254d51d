/* SPDX-License-Identifier: GPL-2.0 */
/* Descriptions of one block or of a short list, drawn at random, whose fields can be changed. */
#ifndef MKEY_TEST_RETARGET_H
#define MKEY_TEST_RETARGET_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "mkey_harness.h"
#include "raw.h"

#define RETARGET_ROOM 1024
#define RETARGET_ZONE 4096
#define RETARGET_ENTRIES 6
#define RETARGET_HEADER 24			/* bytes of struct ib_uverbs_mkey_layout */
#define RETARGET_RANGE 24			/* bytes of struct ib_uverbs_mkey_sge */

/* the binds that moved a binding since the module was loaded, -1 if unknown */
static inline long long retarget_moved(const struct mkt_dev *dev)
{
	bool here = mkt_dev_here(dev);
	FILE *f = here ? fopen("/sys/kernel/debug/ib_mkey/counters", "r") : NULL;
	long long count, moved = -1;
	char line[128], name[64];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%63s %lld", name, &count) == 2 && !strcmp(name, "binds_reused"))
			moved = count;
	if (f)
		fclose(f);
	mkt_share(dev, &moved, sizeof(moved));
	return moved;
}

/* a description, and the parts of its request that vary */
struct retarget_text {
	union {
		uint8_t bytes[RETARGET_ROOM];
		uint32_t words[RETARGET_ROOM / 4];
	};
	size_t length;
	unsigned int dims;
	unsigned int entries;
	unsigned int access;
	bool next_tag;
};

static inline uint64_t *retarget_addr(struct retarget_text *text, unsigned int i)
{
	size_t at = RETARGET_HEADER + (text->dims ? 8 * text->dims : RETARGET_RANGE * i);

	return (uint64_t *)(text->bytes + at);
}

static inline uint32_t *retarget_lkey(struct retarget_text *text, unsigned int i)
{
	return (uint32_t *)(retarget_addr(text, i) + (text->dims ? 2 + IBMKEY_MAX_DIMS : 2));
}

/* draws a block or a short list, mostly of few bytes and inside of the leaf from @addr on */
static inline void retarget_draw(struct retarget_text *text, struct mkt_rng *rng, uint64_t addr,
				 uint32_t lkey)
{
	uint64_t at = addr + mkt_between(rng, 512, RETARGET_ZONE);
	struct ibmkey_range range[RETARGET_ENTRIES];
	uint64_t count[IBMKEY_MAX_DIMS];
	struct ibmkey_block block = {
		.addr = at,
		.bytes_count = mkt_between(rng, 1, 20),
		.lkey = lkey,
	};
	struct ibmkey_bind bind = { .num_entries = 1 };
	unsigned int i;

	memset(text, 0, sizeof(*text));
	text->access = MKT_ACCESS_ALL;
	if (mkt_rand(rng) & 1) {
		text->dims = mkt_between(rng, 1, 3);
		text->entries = 1;
		for (i = 0; i < text->dims; i++) {
			count[i] = mkt_between(rng, 1, 3);
			block.stride[i] = (int64_t)mkt_between(rng, 0, 120) - 60;
		}
		bind.kind = IBMKEY_INTERLEAVED;
		bind.num_dims = text->dims;
		bind.repeat_count = count;
		bind.blocks = &block;
	} else {
		text->entries = mkt_between(rng, 1, RETARGET_ENTRIES);
		for (i = 0; i < text->entries; i++) {
			range[i] = (struct ibmkey_range){
				.addr = at + mkt_between(rng, 0, 200),
				.length = mkt_between(rng, 1, 20),
				.lkey = lkey,
			};
			/* a row of entries of one length */
			if (i && mkt_rand(rng) & 1) {
				range[i].length = range[i - 1].length;
				range[i].addr = range[i - 1].addr + 24;
			}
		}
		bind.kind = IBMKEY_LIST;
		bind.num_entries = text->entries;
		bind.ranges = range;
	}
	text->length = ibmkey_describe(&bind, text->bytes, sizeof(text->bytes));
}

static inline void retarget_shift(struct retarget_text *text, uint64_t by)
{
	for (unsigned int i = 0; i < text->entries; i++)
		*retarget_addr(text, i) += by;
}

/* binds by a call, whose structure has the fields of the header; returns an errno value */
static inline int retarget_call(struct ibv_mr *key, const struct retarget_text *text)
{
	struct ib_uverbs_mkey_layout header;
	struct ib_uverbs_mkey_bind bind;
	struct ibmkey_info info;
	struct mkt_ioctl cmd;
	int err;

	memcpy(&header, text->bytes, sizeof(header));
	bind = (struct ib_uverbs_mkey_bind){
		.entries = (uintptr_t)(text->bytes + RETARGET_HEADER + 8 * text->dims),
		.repeat_count = text->dims ? (uintptr_t)(text->bytes + RETARGET_HEADER) : 0,
		.kind = header.kind,
		.num_entries = header.num_entries,
		.entry_size = header.entry_size,
		.num_dims = header.num_dims,
		.access = text->access,
		.comp_mask = header.comp_mask,
	};
	if (text->next_tag) {
		bind.comp_mask |= IB_UVERBS_MKEY_BIND_RKEY;
		bind.rkey = ibv_inc_rkey(key->rkey);
	}
	mkt_raw_bind(&cmd, key->handle, &bind);
	err = mkt_ioctl_run(key->context, &cmd);
	if (!ibmkey_query(key, &info)) {
		key->lkey = info.lkey;
		key->rkey = info.rkey;
	}
	return err;
}

#endif /* MKEY_TEST_RETARGET_H */
