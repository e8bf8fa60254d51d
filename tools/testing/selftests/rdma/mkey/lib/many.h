/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Keys that one call binds: the set-up of the tests, and comparisons of a key's
 * bytes and length with a binding.
 */
#ifndef MKEY_TEST_MANY_H
#define MKEY_TEST_MANY_H

#include "mkey_harness.h"

#define MANY 7

FIXTURE(many)
{
	struct mkt_setup s;
	struct mkt_leaf *leaf;		/* of side 1 */
	struct ibv_mr *key[MANY];	/* of side 1, bound to @was */
	struct ibmkey_range was[MANY];
	struct ibmkey_range sge[MANY][2];
	struct ibmkey_block block[MANY];
	struct ibmkey_indexed indexed[MANY];
	uint32_t indices[4];
	uint64_t repeat[2];
	struct ibmkey_bind bind[MANY];
};

FIXTURE_SETUP(many)
{
	unsigned int i;

	MKT_SETUP(&self->s, .mtu = IBV_MTU_4096, .host = 64 * 1024, .max_entries = 2);
	self->leaf = &self->s.arena[1].leaf[0];
	self->repeat[0] = 3;
	self->repeat[1] = 2;
	for (i = 0; i < MANY; i++) {
		struct ibmkey_bind *bind = &self->bind[i];

		self->key[i] = ibmkey_alloc(self->s.dev[1].pd, 2);
		ASSERT_NE(NULL, self->key[i]);
		self->was[i].addr = self->leaf->addr + 100 * i;
		self->was[i].length = 50 + i;
		self->was[i].lkey = self->leaf->mr->lkey;
		ASSERT_EQ(0, ibmkey_bind_list(self->key[i], MKT_ACCESS_ALL, 1,
					      &self->was[i]));

		/* a list, blocks, indexed blocks, a list, ... */
		bind->mkey = self->key[i];
		bind->access = IBV_ACCESS_REMOTE_READ;
		self->sge[i][0].addr = self->leaf->addr + 3000 + 200 * i;
		self->sge[i][0].length = 40;
		self->sge[i][0].lkey = self->leaf->mr->lkey;
		self->sge[i][1] = self->sge[i][0];
		self->sge[i][1].addr += 77;
		self->block[i].addr = self->leaf->addr + 9000 + 200 * i;
		self->block[i].bytes_count = 5;
		self->block[i].lkey = self->leaf->mr->lkey;
		self->block[i].stride[0] = 50;
		self->block[i].stride[1] = -7;
		self->indexed[i].addr = self->leaf->addr + 15000 + 200 * i;
		self->indexed[i].unit = 12;
		self->indexed[i].bytes_count = 9;
		self->indexed[i].indices32 = self->indices;
		self->indexed[i].num_indices = 2;
		self->indexed[i].lkey = self->leaf->mr->lkey;
		switch (i % 3) {
		case 0:
			bind->kind = IBMKEY_LIST;
			bind->ranges = self->sge[i];
			bind->num_entries = 2;
			break;
		case 1:
			bind->kind = IBMKEY_INTERLEAVED;
			bind->blocks = &self->block[i];
			bind->repeat_count = self->repeat;
			bind->num_entries = 1;
			bind->num_dims = 2;
			break;
		default:
			bind->kind = IBMKEY_INDEXED;
			bind->indexed = &self->indexed[i];
			bind->num_entries = 1;
		}
	}
	self->indices[0] = 6;
	self->indices[1] = 2;
}

FIXTURE_TEARDOWN(many)
{
	unsigned int i;

	for (i = 0; i < MANY; i++) {
		EXPECT_EQ(0, ibv_dereg_mr(self->key[i]));
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* the other side reads through @key the bytes at @pos */
static inline int many_read(struct mkt_setup *s, struct ibv_mr *key,
			    const uint32_t *pos, size_t length)
{
	struct mkt_end end = { .arena = &s->arena[1], .mr = key };
	struct mkt_xfer xfer = {
		.op = MKT_READ,
		.end = { &s->plain[0], &end },
		.length = length,
	};

	end.map.pos = (uint32_t *)pos;
	end.map.length = length;
	return mkt_xfer(&s->pair, &xfer);
}

/* key @i has its old binding, or that of bind @i */
static inline int many_check(struct mkt_setup *s, struct mkt_leaf *leaf,
			     struct ibv_mr *key, const struct ibmkey_range *was,
			     const struct ibmkey_bind *bind)
{
	struct ibmkey_info info;
	uint32_t pos[128];
	unsigned int a, b, c, n = 0;

	if (was) {
		for (c = 0; c < was->length; c++)
			pos[n++] = was->addr - leaf->addr + c;
	} else if (bind->kind == IBMKEY_LIST) {
		for (a = 0; a < 2; a++)
			for (c = 0; c < bind->ranges[a].length; c++)
				pos[n++] = bind->ranges[a].addr - leaf->addr + c;
	} else if (bind->kind == IBMKEY_INDEXED) {
		const struct ibmkey_indexed *indexed = bind->indexed;

		for (a = 0; a < indexed->num_indices; a++)
			for (c = 0; c < indexed->bytes_count; c++)
				pos[n++] = indexed->addr - leaf->addr + c +
					   indexed->indices32[a] * indexed->unit;
	} else {
		const struct ibmkey_block *block = bind->blocks;

		for (a = 0; a < bind->repeat_count[0]; a++)
			for (b = 0; b < bind->repeat_count[1]; b++)
				for (c = 0; c < block->bytes_count; c++)
					pos[n++] = block->addr - leaf->addr +
						   a * block->stride[0] +
						   b * block->stride[1] + c;
	}
	for (c = 0; c < n; c++)
		pos[c] += leaf->at;
	if (ibmkey_query(key, &info) || info.length != n || key->length != n ||
	    (info.access & ~IBV_ACCESS_ZERO_BASED) !=
	    (was ? MKT_ACCESS_ALL : IBV_ACCESS_REMOTE_READ)) {
		mkt_diag("length %llu, %zu, not %u; access %x",
			 (unsigned long long)info.length, key->length, n,
			 info.access);
		return EBADMSG;
	}
	return many_read(s, key, pos, n);
}

#define MANY_AS_BEFORE() do {						\
	unsigned int __i;						\
									\
	for (__i = 0; __i < MANY; __i++)				\
		EXPECT_EQ(0, many_check(&self->s, self->leaf,		\
					self->key[__i],			\
					&self->was[__i], NULL))		\
		{							\
			TH_LOG("key %u", __i);				\
		}							\
} while (0)

#define MANY_REFUSED(errno_value, at) do {				\
	uint32_t __failed = 4711;					\
									\
	EXPECT_EQ(errno_value, ibmkey_bind_many(self->bind, MANY,	\
						&__failed));		\
	EXPECT_EQ(at, __failed);					\
	MANY_AS_BEFORE();						\
} while (0)

#endif /* MKEY_TEST_MANY_H */
