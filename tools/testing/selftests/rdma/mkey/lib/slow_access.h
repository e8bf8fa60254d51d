/* SPDX-License-Identifier: GPL-2.0 */
/* An access to side 1 that waits for a page: the set-up of its tests. */
#ifndef MKEY_SLOW_ACCESS_H
#define MKEY_SLOW_ACCESS_H

#include "mkey_harness.h"
#include "slow.h"
#include "slow_thread.h"

#define PAGE 4096
#define LENGTH 1000	/* of the access, in bytes */

static const struct mkt_wants slow_wants = {
	.mtu = IBV_MTU_1024,
	/* a request that is sent again would be another access */
	.flags = MKT_QP_PATIENT,
	.host = 64 * 1024,
	.max_entries = 4,
};

/*
 * Opens the devices and the memory of a test, and registers the memory on side 1 with the flags
 * @access, or skips the test. @self has the members s, slow, mr and open.
 */
#define SLOW_SETUP(self, access) do {						\
	MKT_OPEN_SLOW((self)->s.dev, 1, &(self)->slow, 64 * PAGE);		\
	(self)->open = true;							\
	ASSERT_EQ(0, mkt_setup(&(self)->s, &slow_wants, _metadata->name));	\
	(self)->mr = ibv_reg_mr((self)->s.dev[1].pd, (self)->slow.map,		\
				(self)->slow.size,				\
				(access) | IBV_ACCESS_ON_DEMAND);		\
	ASSERT_NE(NULL, (self)->mr);						\
} while (0)

/* after SLOW_SETUP() has set open */
#define SLOW_TEARDOWN(self) do {						\
	if ((self)->mr)								\
		EXPECT_EQ(0, ibv_dereg_mr((self)->mr));				\
	EXPECT_EQ(0, mkt_teardown(&(self)->s));					\
	mkt_slow_close(&(self)->slow);						\
} while (0)

/* binds @key over the bytes from @addr on of @mr */
static inline int slow_bind_to(struct ibv_mr *key, uint64_t addr, const struct ibv_mr *mr,
			       unsigned int access)
{
	struct ibmkey_range range = { .addr = addr, .length = LENGTH, .lkey = mr->lkey };

	return ibmkey_bind_list(key, access, 1, &range);
}

/* a request of side 0 for the bytes from @addr on of @rkey */
static inline struct mkt_wr slow_wr(const struct mkt_setup *s, enum mkt_op op, uint64_t addr,
				    uint32_t rkey)
{
	return (struct mkt_wr) {
		.op = op,
		.sge[0] = {
			.addr = s->plain[0].addr,
			.length = LENGTH,
			.lkey = s->plain[0].mr->lkey,
		},
		.num_sge = 1,
		.remote_addr = addr,
		.rkey = rkey,
	};
}

/* holds pages back, and starts a WRITE to @rkey that waits for one */
static inline int slow_hold_write(struct mkt_setup *s, struct mkt_slow *slow, uint32_t rkey)
{
	struct mkt_wr wr = slow_wr(s, MKT_WRITE, 0, rkey);

	mkt_slow_hold(slow, true);
	return mkt_post_send(&s->pair.end[0], &wr, 1) ?: mkt_slow_wait(slow, 1);
}

#endif /* MKEY_SLOW_ACCESS_H */
