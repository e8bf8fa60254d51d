/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests of keys over keys share. */
#ifndef NESTED_H
#define NESTED_H

#include "mkey_harness.h"

#define NESTED_DEPTH 8

/* makes leaves at both sides, and keys for all levels and one more; returns 0 or errno */
static inline int nested_open(struct mkt_setup *s, struct ibv_mr **key, const char *name)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.host = 64 * 1024,
		.dm = 32 * 1024,
		.max_entries = 16,
	};
	unsigned int i;
	int err = mkt_setup(s, &wants, name);

	for (i = 0; i <= NESTED_DEPTH && !err; i++) {
		key[i] = ibmkey_alloc(s->dev[1].pd, 4);
		err = key[i] ? 0 : errno;
	}
	return err;
}

/* destroys what is left; returns the first error */
static inline int nested_close(struct mkt_setup *s, struct ibv_mr **key)
{
	unsigned int i;
	int err = 0;

	for (i = NESTED_DEPTH + 1; i > 0; i--)
		if (key[i - 1])
			err = err ?: ibv_dereg_mr(key[i - 1]);
	return mkt_teardown(s) ?: err;
}

/* binds @key to @length bytes from @addr on of the MR of @lkey */
static inline int nested_bind(struct ibv_mr *key, uint32_t lkey, uint64_t addr,
			      uint32_t length, int access)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	return ibv_rereg_mr_sg(key, access, 1, &sge);
}

/* key 0 over @length bytes of leaf 0, and each next key over the one before */
static inline int nested_chain(struct mkt_setup *s, struct ibv_mr **key,
			       unsigned int count, uint32_t length)
{
	struct mkt_leaf *leaf = &s->arena[1].leaf[0];
	unsigned int i;
	int err;

	err = nested_bind(key[0], leaf->mr->lkey, leaf->addr, length,
			  MKT_ACCESS_ALL);
	for (i = 1; i < count && !err; i++)
		err = nested_bind(key[i], key[i - 1]->lkey, 0, length,
				  MKT_ACCESS_ALL);
	return err;
}

/* returns the status of an access of @length bytes of @key */
static inline int nested_access(struct mkt_setup *s, struct ibv_mr *key,
				enum mkt_op op, uint64_t addr, uint32_t length)
{
	return mkt_touch(s, key->rkey, op, addr, length);
}

#endif /* NESTED_H */
