/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The table of errors: layouts that are changed in one place, and the error for which a bind to
 * each is refused. A program gives them to each way into the kernel.
 */
#ifndef MKEY_TEST_REFUSALS_H
#define MKEY_TEST_REFUSALS_H

#include "mkey_test.h"

/* the entries of the key */
#define MKT_REFUSALS_ROOM 4

/* what the layouts name */
struct mkt_refusals_of {
	uint64_t first, last;		/* addresses of an MR of MKT_ACCESS_ALL */
	uint32_t lkey;
	uint64_t dm_length;		/* of an MR whose first address is zero */
	uint32_t dm;
	uint64_t read_only_addr;
	uint32_t read_only;		/* an MR without access flags */
	uint32_t other_pd;		/* an MR of another PD over the bytes of the first one */
	uint32_t other_key;		/* an unbound key of that PD */
	uint32_t other_device[2];	/* an MR over these bytes, and a key */
	uint32_t freed;			/* a deregistered MR over these bytes */
	uint32_t unbound;		/* a key */
	uint32_t itself;		/* the key that is bound */
	/* the objects */
	uint8_t *bytes;
	struct ibv_pd *pd2;
	struct ibv_dm *memory;
	struct ibv_mr *mrs[8];
};

/* a layout of each kind, of which one is bound */
struct mkt_text {
	const struct mkt_refusals_of *of;
	struct ib_uverbs_mkey_bind bind;
	uint32_t version;
	struct ib_uverbs_mkey_sge range[MKT_REFUSALS_ROOM + 1];
	struct ib_uverbs_mkey_block block[MKT_REFUSALS_ROOM + 1];
	uint64_t repeat[IB_MKEY_MAX_DIMS + 1];
	struct ib_uverbs_mkey_indexed indexed;
	uint64_t index[MKT_REFUSALS_ROOM + 1];
	uint64_t value;			/* that the reason names */
};

struct mkt_refusal {
	const char *name;
	uint32_t kind;
	int err;			/* zero: the layout is bound */
	uint32_t reason, entry;
	void (*change)(struct mkt_text *t);
};

/* makes them for the key @itself on the first device; returns 0 or an errno value */
int mkt_refusals_open(struct mkt_refusals_of *of, struct mkt_dev dev[2], uint32_t itself);
int mkt_refusals_close(struct mkt_refusals_of *of);
/* the bytes of the first MR, which no bind changes */
#define MKT_REFUSALS_BYTES (64 * 1024)

/* the table; the linker knows where it begins and ends */
extern const struct mkt_refusal __start_mkt_refusals[], __stop_mkt_refusals[];

static inline unsigned int mkt_num_refusals(void)
{
	return __stop_mkt_refusals - __start_mkt_refusals;
}

/* writes the right layout of the kind of @refusal, and changes it */
void mkt_refusal_text(const struct mkt_refusal *refusal, const struct mkt_refusals_of *of,
		      struct mkt_text *t);
/* the layout for the library, in @bind; false if the library cannot express it */
bool mkt_text_bind(const struct mkt_text *t, uint32_t kind, struct ibmkey_bind *bind);
/*
 * Writes the description for a work request to @to, which has @room bytes. Returns its length; 0
 * if there is none.
 */
size_t mkt_text_write(const struct mkt_text *t, uint32_t kind, void *to, size_t room);

#endif /* MKEY_TEST_REFUSALS_H */
