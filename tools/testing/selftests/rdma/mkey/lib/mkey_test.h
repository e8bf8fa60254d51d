/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The library of the ib_mkey selftests: two devices and queue pairs between
 * them, memory with an expected value for every byte, a reference
 * implementation of layouts, and transfers that are checked against it.
 *
 * Functions that return int return 0 or an errno value unless they say
 * otherwise. On an error they print a "# ..." line with the reason.
 */
#ifndef MKEY_TEST_H
#define MKEY_TEST_H

#include <infiniband/mkey.h>

#include "arena.h"
#include "dev.h"
#include "place.h"
#include "qp.h"
#include "xfer.h"

/* setup.c: the objects that most tests need */

struct mkt_setup {
	struct mkt_dev dev[2];
	struct mkt_rng rng;
	struct mkt_arena arena[2];	/* of one side each, filled */
	struct mkt_end plain[2];	/* leaf 0 of each */
	struct ibv_mr *key[2];		/* unbound, NULL without ib_mkey */
	struct mkt_pair pair;
};

struct mkt_wants {
	enum ibv_mtu mtu;		/* zero: 1024 bytes */
	unsigned int flags;		/* MKT_QP_* */
	size_t host;			/* bytes of each arena */
	size_t dm;			/* zero: no device memory */
	unsigned int max_entries;	/* of the keys, zero: no keys */
};

/* an end that is the key of @side; binds it to a new random layout */
int mkt_end_draw(struct mkt_end *end, struct mkt_setup *setup,
		 unsigned int side, enum mkt_kind kind,
		 const struct mkt_draw *draw, int access);
/*
 * A request of side @side between its plain memory and @length bytes from @addr on of @rkey. An
 * atomic adds or writes 3.
 */
struct mkt_wr mkt_plain_wr(const struct mkt_setup *setup, unsigned int side, enum mkt_op op,
			   uint32_t length, uint64_t addr, uint32_t rkey);
/*
 * Runs one request of side 0 between its plain memory and @length bytes from
 * @addr on of @rkey; returns the status. An atomic adds or writes 3.
 */
int mkt_touch(struct mkt_setup *setup, uint32_t rkey, enum mkt_op op,
	      uint64_t addr, uint32_t length);
/* the same; the QPs can be used again afterwards, or it returns -1 */
int mkt_try(struct mkt_setup *setup, uint32_t rkey, enum mkt_op op,
	    uint64_t addr, uint32_t length);
/* @dev must have been opened */
int mkt_setup(struct mkt_setup *setup, const struct mkt_wants *wants,
	      const char *salt);
/* closes the devices, too; an error if an object could not be freed */
int mkt_teardown(struct mkt_setup *setup);

#endif /* MKEY_TEST_H */
