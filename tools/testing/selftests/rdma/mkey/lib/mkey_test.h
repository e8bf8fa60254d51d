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
/* returns 0 if the request completes with the error @status and changes no byte of either side */
int mkt_refused(struct mkt_setup *setup, uint32_t rkey, enum mkt_op op, uint64_t addr,
		uint32_t length, enum ibv_wc_status status);
/* @dev must have been opened */
int mkt_setup(struct mkt_setup *setup, const struct mkt_wants *wants,
	      const char *salt);
/* closes the devices, too; an error if an object could not be freed */
int mkt_teardown(struct mkt_setup *setup);

/* keys.c: keys with simple layouts, and what is known of a key */

/* binds @key to @length bytes from @addr on of @mr, an MR or another key */
int mkt_bind_range(struct ibv_mr *key, unsigned int access, const struct ibv_mr *mr,
		   uint64_t addr, uint64_t length);
/* binds @key to @range under @rkey; 0 keeps the key portion */
int mkt_bind_as(struct ibv_mr *key, unsigned int access, uint32_t rkey, struct ibmkey_range range);
/* binds @key to @count blocks of @bytes bytes, which begin @stride bytes apart */
int mkt_bind_strided(struct ibv_mr *key, unsigned int access, const struct ibv_mr *mr,
		     uint64_t addr, uint64_t bytes, int64_t stride, uint64_t count);
/* IBMKEY_UNBOUND, IBMKEY_LIST, ...; -1 if the query fails */
int mkt_kind_of(struct ibv_mr *key);
/* bytes of the kernel's memory that all keys of @dev take, as debugfs shows them; or -1 */
long long mkt_keys_charged(const struct mkt_dev *dev);

#endif /* MKEY_TEST_H */
