/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Rounds of mkey_retarget: a description is executed for a key that had nearly the same layout
 * before, and for a new key. Both must have the same result.
 */
#ifndef MKEY_TEST_RETARGET_ROUND_H
#define MKEY_TEST_RETARGET_ROUND_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "retarget.h"
#include "matrix.h"
#include "mkey_harness.h"
#include "request.h"

#define MOST 512
#define OWN 1				/* stands for the lkey of the key itself */

enum retarget_leaf {
	WHOLE,
	HALF,				/* the first page */
	READ_ONLY,
	FOREIGN,			/* in another protection domain */
	NESTED,				/* a key */
	ON_DEMAND,			/* NULL if the device has none */
	DMA_BUF,			/* other memory, the same addresses; NULL if none */
	LEAVES,
};

struct retarget {
	struct mkt_setup *s;
	struct mkt_request text;
	struct ibv_pd *pd;
	struct ibv_mr *leaf[LEAVES];
	uint8_t *host;
	/* the leaf of the first layouts */
	struct ibv_mr *first;
	uint64_t addr, length;
	bool call;			/* instead of requests */
};

/* an MR of a dma-buf with @size random bytes and the addresses from @addr on, or NULL */
static inline struct ibv_mr *retarget_dma_buf(struct retarget *self, size_t size, uint64_t addr)
{
	const struct mkt_dev *dev = self->s->dev;
	struct ibv_mr *mr = NULL;
	int memfd, fd = -1;
	uint8_t bytes[256];
	size_t at;

	/* a descriptor is one of this machine */
	if (!mkt_dev_here(&dev[0]) || !mkt_dev_here(&dev[1]))
		return NULL;
	memfd = memfd_create("retarget", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memfd < 0)
		return NULL;
	for (at = 0; at < size; at += sizeof(bytes)) {
		mkt_rand_bytes(&self->s->rng, bytes, sizeof(bytes));
		if (write(memfd, bytes, sizeof(bytes)) != sizeof(bytes))
			break;
	}
	if (at == size && !fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK))
		fd = mkt_udmabuf(memfd, size);
	close(memfd);
	if (fd < 0)
		return NULL;
	mr = ibmkey_reg_dmabuf_mr(dev[1].pd, 0, size, addr, fd, MKT_ACCESS_ALL);
	close(fd);
	return mr;
}

/* @s has memory of three zones on side 1, and a key there */
static inline int retarget_open(struct retarget *self, struct mkt_setup *s)
{
	struct ibv_pd *pd = s->dev[1].pd;
	uint64_t addr = s->arena[1].leaf[0].addr;
	struct ibmkey_range all = { .addr = addr, .length = 2 * RETARGET_ZONE };
	unsigned int i;
	int err;

	self->s = s;
	self->host = (uint8_t *)(uintptr_t)addr;
	self->addr = addr;
	self->length = 2 * RETARGET_ZONE;
	err = mkt_request_init(&self->text, pd, RETARGET_ROOM);
	if (err)
		return err;
	mkt_rand_bytes(&s->rng, self->host, 2 * RETARGET_ZONE);
	self->pd = ibv_alloc_pd(s->dev[1].ctx);
	if (!self->pd)
		return errno;
	self->leaf[WHOLE] = ibv_reg_mr(pd, self->host, 2 * RETARGET_ZONE, MKT_ACCESS_ALL);
	self->leaf[HALF] = ibv_reg_mr(pd, self->host, RETARGET_ZONE, MKT_ACCESS_ALL);
	self->leaf[READ_ONLY] = ibv_reg_mr(pd, self->host, 2 * RETARGET_ZONE,
					   IBV_ACCESS_REMOTE_READ);
	self->leaf[FOREIGN] = ibv_reg_mr(self->pd, self->host, 2 * RETARGET_ZONE, MKT_ACCESS_ALL);
	self->leaf[NESTED] = ibmkey_alloc(pd, 1);
	for (i = 0; i <= NESTED; i++)
		if (!self->leaf[i])
			return errno;
	self->leaf[ON_DEMAND] = ibv_reg_mr(pd, self->host, 2 * RETARGET_ZONE,
					   MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	self->leaf[DMA_BUF] = retarget_dma_buf(self, 2 * RETARGET_ZONE, addr);
	self->first = self->leaf[WHOLE];
	all.lkey = self->leaf[WHOLE]->lkey;
	return ibmkey_bind_list(self->leaf[NESTED], MKT_ACCESS_ALL, 1, &all);
}

/* the first layouts are over the last leaf of side 1, which @make adds */
static inline int retarget_over(struct retarget *self, mkt_leaf_maker make)
{
	struct mkt_arena *arena = &self->s->arena[1];
	int err = make(arena) ?: mkt_arena_fill(arena, &self->s->rng);
	const struct mkt_leaf *leaf;

	if (err)
		return err;
	leaf = &arena->leaf[arena->num_leaves - 1];
	self->first = leaf->mr;
	self->addr = leaf->addr;
	self->length = leaf->length;
	return 0;
}

static inline int retarget_close(struct retarget *self)
{
	unsigned int i;
	int err = 0;

	if (self->s->key[1])
		err = ibmkey_unbind(self->s->key[1]);
	for (i = LEAVES; i--;)
		if (self->leaf[i])
			err = ibv_dereg_mr(self->leaf[i]) ?: err;
	if (self->pd)
		err = ibv_dealloc_pd(self->pd) ?: err;
	mkt_request_free(&self->text);
	return err;
}

static inline uint32_t retarget_other_lkey(struct retarget *self)
{
	unsigned int which = mkt_between(&self->s->rng, 0, LEAVES + 2);

	if (which < LEAVES)
		return self->leaf[self->leaf[which] ? which : WHOLE]->lkey;
	if (which == LEAVES)
		return OWN;
	/* another tag, or no MR */
	return self->leaf[WHOLE]->lkey ^ (which == LEAVES + 1 ? 1 : 0x4000);
}

/* changes nothing or little */
static inline void retarget_change(struct retarget *self, struct retarget_text *text)
{
	static const unsigned int flags[] = {
		0, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND,
		IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ON_DEMAND, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND,
		MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED, IBV_ACCESS_REMOTE_READ | 1u << 17, 1u << 30,
	};
	struct mkt_rng *rng = &self->s->rng;
	uint64_t end = self->addr + self->length;
	unsigned int i;
	uint32_t lkey;

	switch (mkt_between(rng, 0, 9)) {
	case 0:
		retarget_shift(text, mkt_between(rng, 0, 2 * RETARGET_ZONE) - RETARGET_ZONE);
		break;
	case 1:
		/* close to the end of the leaf, or to its beginning */
		retarget_shift(text, end - *retarget_addr(text, 0) - mkt_between(rng, 0, 300));
		break;
	case 2:
		retarget_shift(text, self->addr - *retarget_addr(text, 0) +
				  mkt_between(rng, 0, 200) - 100);
		break;
	case 3:
		/* around the end of the address space */
		retarget_shift(text, mkt_between(rng, 0, 400) - 200 - *retarget_addr(text, 0));
		break;
	case 4:
		text->words[mkt_between(rng, 0, text->length / 4 - 1)] +=
			mkt_between(rng, 0, 4) - 2;
		break;
	case 5:
		text->bytes[mkt_between(rng, 0, text->length - 1)] ^= 1 << mkt_between(rng, 0, 7);
		break;
	case 6:
		lkey = retarget_other_lkey(self);
		for (i = 0; i < text->entries; i++)
			*retarget_lkey(text, i) = lkey;
		break;
	case 7:
		i = mkt_between(rng, 0, text->entries - 1);
		*retarget_lkey(text, i) = retarget_other_lkey(self);
		break;
	case 8:
		text->access = flags[mkt_between(rng, 0, sizeof(flags) / sizeof(*flags) - 1)];
		break;
	default:
		text->length += mkt_between(rng, 0, 2) - 1;
	}
}

/* the result of a request, and of a READ of all bytes if it was executed */
struct retarget_result {
	int status;
	int error;
	uint32_t entry;
	struct ibmkey_info info;
	int read;
	uint8_t bytes[MOST];
};

static inline int retarget_execute(struct retarget *self, struct ibv_mr *key,
				   const struct retarget_text *text)
{
	struct retarget_text own = *text;
	struct ibmkey_info info;
	struct ibmkey_wr wr;
	int status;

	for (unsigned int i = 0; i < own.entries; i++)
		if (*retarget_lkey(&own, i) == OWN)
			*retarget_lkey(&own, i) = key->lkey;
	if (self->call)
		return retarget_call(key, &own);
	memcpy(self->text.text, own.bytes, own.length);
	self->text.length = own.length;
	wr = mkt_request_wr(&self->text, key);
	wr.access = own.access;
	wr.rkey = own.next_tag ? ibv_inc_rkey(key->rkey) : 0;
	status = mkt_request_status(&self->s->pair.end[1], &wr);
	/* The library has changed the keys, which a refused request leaves as they were. */
	if (status && !ibmkey_query(key, &info)) {
		key->lkey = info.lkey;
		key->rkey = info.rkey;
	}
	return status;
}

static inline void retarget_result(struct retarget *self, struct ibv_mr *key,
				   const struct retarget_text *text, struct retarget_result *result,
				   struct __test_metadata *_metadata)
{
	uint8_t *to = (uint8_t *)(uintptr_t)self->s->plain[0].addr;
	struct mkt_wr wr = {
		.op = MKT_READ,
		.sge[0] = { .addr = self->s->plain[0].addr, .lkey = self->s->plain[0].mr->lkey },
		.num_sge = 1,
	};

	memset(result, 0, sizeof(*result));
	result->status = retarget_execute(self, key, text);
	if (result->status && self->call)
		return;
	if (result->status) {
		ASSERT_EQ(IBV_WC_MW_BIND_ERR, result->status);
		ASSERT_EQ(0, ibmkey_query_refused(key, &result->error, &result->entry));
		ASSERT_EQ(0, mkt_pair_recover(&self->s->pair));
		return;
	}
	ASSERT_EQ(0, ibmkey_query(key, &result->info));
	wr.rkey = result->info.rkey;
	wr.sge[0].length = result->info.length < MOST ? result->info.length : MOST;
	memset(to, 0, MOST);
	result->read = mkt_status(&self->s->pair, 0, &wr);
	if (result->read) {
		ASSERT_EQ(0, mkt_pair_recover(&self->s->pair));
	} else {
		memcpy(result->bytes, to, MOST);
	}
	/* the keys differ in these */
	result->info.lkey = 0;
	result->info.rkey = 0;
	result->info.max_entries = 0;
}

/* the structure has padding */
static inline bool retarget_same(const struct ibmkey_info *a, const struct ibmkey_info *b)
{
	return a->comp_mask == b->comp_mask && a->length == b->length && a->kind == b->kind &&
	       a->access == b->access && a->max_entries == b->max_entries &&
	       a->num_entries == b->num_entries && a->num_dims == b->num_dims &&
	       a->lkey == b->lkey && a->rkey == b->rkey;
}

/* the results of a round, and how many rounds ended in each way */
struct retarget_rounds {
	unsigned int number, bound, refused;
};

/*
 * Binds the key to @first, so that it has the memory of such a binding, and executes @text for the
 * key and for a new one.
 */
static inline void retarget_round(struct retarget *self, const struct retarget_text *first,
				  const struct retarget_text *text, struct retarget_rounds *rounds,
				  struct __test_metadata *_metadata)
{
	struct ibv_mr *key = self->s->key[1], *other;
	struct retarget_result again, fresh;
	struct ibmkey_info before, after;

	mkt_alive();
	/* The second bind leaves the memory of the first one to the key. */
	ASSERT_EQ(IBV_WC_SUCCESS, retarget_execute(self, key, first));
	if (mkt_rand(&self->s->rng) & 1) {
		ASSERT_EQ(IBV_WC_SUCCESS, retarget_execute(self, key, first));
	} else {
		ASSERT_EQ(0, ibmkey_unbind(key));
	}
	ASSERT_EQ(0, ibmkey_query(key, &before));
	retarget_result(self, key, text, &again, _metadata);
	other = ibmkey_alloc(self->s->dev[1].pd, RETARGET_ENTRIES);
	ASSERT_NE(NULL, other);
	retarget_result(self, other, text, &fresh, _metadata);
	ASSERT_EQ(fresh.status, again.status)
	{
		TH_LOG("round %u: %d, %d for a new key, %d, %d again", rounds->number,
		       fresh.status, fresh.error, again.status, again.error);
	}
	ASSERT_EQ(fresh.error, again.error);
	ASSERT_EQ(fresh.entry, again.entry);
	ASSERT_EQ(fresh.read, again.read);
	ASSERT_TRUE(retarget_same(&fresh.info, &again.info));
	ASSERT_EQ(0, memcmp(fresh.bytes, again.bytes, sizeof(fresh.bytes)));
	if (again.status) {
		ASSERT_EQ(0, ibmkey_query(key, &after));
		ASSERT_TRUE(retarget_same(&before, &after));
		rounds->refused++;
	} else {
		rounds->bound++;
	}
	rounds->number++;
	ASSERT_EQ(0, ibv_dereg_mr(other));
}

#endif /* MKEY_TEST_RETARGET_ROUND_H */
