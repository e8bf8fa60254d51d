/* SPDX-License-Identifier: GPL-2.0 */
/* A key without traffic: the set-up of the tests of its calls. */
#ifndef MKEY_TEST_OBJECT_H
#define MKEY_TEST_OBJECT_H

#include "mkey_harness.h"
#include "raw.h"

FIXTURE(object)
{
	struct mkt_dev dev;
	struct mkt_arena arena;
	struct mkt_rng rng;
	struct ibv_mr *key;
};

FIXTURE_SETUP(object)
{
	MKT_OPEN_SIDE(&self->dev, 1);
	mkt_rng_init(&self->rng, _metadata->name);
	ASSERT_EQ(0, mkt_arena_standard(&self->arena, &self->dev, 64 * 1024,
					32 * 1024));
	self->key = ibmkey_alloc(self->dev.pd, 64);
	ASSERT_NE(NULL, self->key);
}

FIXTURE_TEARDOWN(object)
{
	if (self->key) {
		EXPECT_EQ(0, ibv_dereg_mr(self->key));
	}
	EXPECT_EQ(0, mkt_arena_free(&self->arena));
	mkt_dev_close(&self->dev);
}

/* binds one range in leaf @leaf */
static inline int object_bind_one(struct mkt_arena *arena, struct ibv_mr *key,
				  unsigned int leaf, uint32_t length)
{
	struct ibv_sge sge = {
		.addr = arena->leaf[leaf].addr,
		.length = length,
		.lkey = arena->leaf[leaf].mr->lkey,
	};

	return ibv_rereg_mr_sg(key, MKT_ACCESS_ALL, 1, &sge);
}

#endif /* MKEY_TEST_OBJECT_H */
