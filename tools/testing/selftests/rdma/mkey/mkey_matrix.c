// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Every kind of leaf, under every kind of layout, by every verb. A leaf is one entry of
 * the list below: a function that adds memory and an MR to an arena. The layouts over it are
 * random. After each transfer every byte of both sides is compared with the reference
 * implementation.
 * needs: leaves dma-buf classes
 * sets: first long
 *
 * The leaf under test is on side 0. Not every device offers every kind of
 * memory: if side 1 has none, its keys refer to ordinary memory.
 */
#define _GNU_SOURCE
#include <fcntl.h>

#include "matrix.h"
#include "mkey_harness.h"

#define FLUSH IBV_ACCESS_FLUSH_GLOBAL

FIXTURE(matrix)
{
	struct mkt_matrix m;
};

FIXTURE_VARIANT(matrix)
{
	mkt_leaf_maker make;
	/* a peer may flush the bytes */
	bool flush;
	/* also parts of many lengths, and the key at each place */
	bool packets;
	/* addresses of the MR are aligned like the bytes */
	bool aligned;
	/* the pages are absent at first */
	bool absent;
	/* bytes beside the leaf are bytes of the MR, too */
	bool endless;
	/* the leaf consists of several MRs, none of which can be chosen alone */
	bool several;
};

FIXTURE_VARIANT_ADD(matrix, user)
{
	.make = mkt_leaf_user,
	.aligned = true,
	.flush = true,
	.packets = true,
};

FIXTURE_VARIANT_ADD(matrix, iova) { .make = mkt_leaf_iova, .aligned = true, .flush = true };
FIXTURE_VARIANT_ADD(matrix, zero_based)
{
	.make = mkt_leaf_zero_based,
	.aligned = true,
	.flush = true,
};

FIXTURE_VARIANT_ADD(matrix, shared) { .make = mkt_leaf_shared, .aligned = true, .flush = true };
FIXTURE_VARIANT_ADD(matrix, hugetlb) { .make = mkt_leaf_hugetlb, .aligned = true, .flush = true };
FIXTURE_VARIANT_ADD(matrix, dm_host) { .make = mkt_leaf_dm_host, .flush = true, .packets = true };
FIXTURE_VARIANT_ADD(matrix, dm_node) { .make = mkt_leaf_dm_node, .flush = true };
FIXTURE_VARIANT_ADD(matrix, dm_p2p) { .make = mkt_leaf_dm_p2p, .flush = true };
FIXTURE_VARIANT_ADD(matrix, dm_pmem) { .make = mkt_leaf_dm_pmem, .flush = true };
FIXTURE_VARIANT_ADD(matrix, odp)
{
	.make = mkt_leaf_odp,
	.aligned = true,
	.flush = true,
	.absent = true,
};

FIXTURE_VARIANT_ADD(matrix, odp_iova)
{
	.make = mkt_leaf_odp_iova,
	.aligned = true,
	.flush = true,
	.absent = true,
};

FIXTURE_VARIANT_ADD(matrix, odp_implicit)
{
	.make = mkt_leaf_odp_implicit,
	.aligned = true,
	.flush = true,
	.absent = true,
	.endless = true,
};

FIXTURE_VARIANT_ADD(matrix, key) { .make = mkt_leaf_key, .flush = true };
FIXTURE_VARIANT_ADD(matrix, udmabuf) { .make = mkt_leaf_udmabuf, .aligned = true };
FIXTURE_VARIANT_ADD(matrix, dma_heap) { .make = mkt_leaf_heap, .aligned = true };
FIXTURE_VARIANT_ADD(matrix, dm_export) { .make = mkt_leaf_dm_export, .aligned = true };
FIXTURE_VARIANT_ADD(matrix, mixed) { .make = mkt_leaf_mixed, .flush = true, .several = true };

FIXTURE_SETUP(matrix)
{
	int err;

	MKT_OPEN(self->m.s.dev);
	err = mkt_matrix_setup(&self->m, variant->make, variant->several,
			       _metadata->name);
	if (err == EOPNOTSUPP || err == ENODEV)
		SKIP(return, "%s", self->m.why);
	ASSERT_EQ(0, err);
	self->m.packets = variant->packets;
	self->m.absent = variant->absent;
}

FIXTURE_TEARDOWN(matrix)
{
	EXPECT_EQ(0, mkt_teardown(&self->m.s));
}

/* a verb, by keys to every kind of layout over the leaf or on the leaf itself */
struct matrix_verb {
	mkt_matrix_verb *run;
	enum mkt_op op;
	unsigned int flags;	/* MKT_QP_* */
	unsigned int access;	/* of the keys, 0 for all */
	enum ibv_mw_type window;
	bool operands;
};

/* requests that name the MR itself, which need no ib_mkey */
TEST_F(matrix, direct)
{
	static const enum mkt_op moves[] = {
		MKT_SEND, MKT_SEND_IMM, MKT_WRITE, MKT_WRITE_IMM, MKT_READ,
	};
	static const enum mkt_op atomics[] = {
		MKT_FETCH_ADD, MKT_CMP_SWAP, MKT_ATOMIC_WRITE,
	};
	unsigned int i;

	ASSERT_EQ(0, mkt_matrix_connect(&self->m, 0));
	self->m.packets = true;
	for (i = 0; i < ARRAY_SIZE(moves); i++)
		EXPECT_EQ(0, mkt_matrix_direct(&self->m, mkt_matrix_move, moves[i]));
	for (i = 0; i < ARRAY_SIZE(atomics) && variant->aligned; i++)
		EXPECT_EQ(0, mkt_matrix_direct(&self->m, mkt_matrix_atomic, atomics[i]));
}

/* the same by receives of an SRQ and by datagrams, and FLUSH */
TEST_F(matrix, direct_others)
{
	static const struct matrix_verb others[] = {
		{ mkt_matrix_move, MKT_SEND, MKT_QP_SRQ },
		{ mkt_matrix_datagram, MKT_SEND, MKT_QP_UD },
		{ mkt_matrix_datagram, MKT_SEND, MKT_QP_UD | MKT_QP_SRQ },
		{ mkt_matrix_flush, MKT_WRITE },
	};
	const bool flush = variant->flush && !variant->endless;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(others) - !flush; i++) {
		ASSERT_EQ(0, mkt_matrix_connect(&self->m, others[i].flags));
		EXPECT_EQ(0, mkt_matrix_direct(&self->m, others[i].run, others[i].op));
		mkt_pair_destroy(&self->m.s.pair);
	}
}

/* rxe without patches/rxe reads and writes there */
TEST_F(matrix, outside)
{
	if (variant->endless)
		SKIP(return, "all addresses of the process are in the MR");
	ASSERT_EQ(0, mkt_matrix_connect(&self->m, 0));
	EXPECT_EQ(0, mkt_matrix_direct(&self->m, mkt_matrix_outside, MKT_WRITE));
	EXPECT_EQ(0, mkt_matrix_direct(&self->m, mkt_matrix_outside, MKT_READ));
}

static void matrix_run(struct __test_metadata *_metadata, FIXTURE_DATA(matrix) *self,
		       const FIXTURE_VARIANT(matrix) *variant, const struct matrix_verb *verb)
{
	/* a key cannot have the flush flag over a leaf that lacks it */
	int err = verb->access & FLUSH && !variant->flush ? EACCES : 0;

	if (!self->m.s.key[0])
		SKIP(return, "%s is not extended by ib_mkey", self->m.s.dev[0].name);
	self->m.window = verb->window;
	self->m.operands = verb->operands;
	ASSERT_EQ(0, mkt_matrix_connect(&self->m, verb->flags));
	EXPECT_EQ(err, mkt_matrix_each(&self->m, verb->run, verb->op,
				       verb->access ?: MKT_ACCESS_ALL));
}

#define MATRIX_RUN(...)						\
	matrix_run(_metadata, self, variant, &(const struct matrix_verb){ __VA_ARGS__ })

TEST_F(matrix, send) { MATRIX_RUN(mkt_matrix_move, MKT_SEND); }
TEST_F(matrix, send_imm) { MATRIX_RUN(mkt_matrix_move, MKT_SEND_IMM); }
TEST_F(matrix, srq) { MATRIX_RUN(mkt_matrix_move, MKT_SEND, MKT_QP_SRQ); }
TEST_F(matrix, write) { MATRIX_RUN(mkt_matrix_move, MKT_WRITE); }
TEST_F(matrix, write_imm) { MATRIX_RUN(mkt_matrix_move, MKT_WRITE_IMM); }
TEST_F(matrix, read) { MATRIX_RUN(mkt_matrix_move, MKT_READ); }
TEST_F(matrix, uc_send) { MATRIX_RUN(mkt_matrix_move, MKT_SEND, MKT_QP_UC); }
TEST_F(matrix, uc_send_imm) { MATRIX_RUN(mkt_matrix_move, MKT_SEND_IMM, MKT_QP_UC); }
TEST_F(matrix, uc_srq) { MATRIX_RUN(mkt_matrix_move, MKT_SEND, MKT_QP_UC | MKT_QP_SRQ); }
TEST_F(matrix, uc_write) { MATRIX_RUN(mkt_matrix_move, MKT_WRITE, MKT_QP_UC); }
TEST_F(matrix, uc_write_imm) { MATRIX_RUN(mkt_matrix_move, MKT_WRITE_IMM, MKT_QP_UC); }
TEST_F(matrix, ud_send)
{
	MATRIX_RUN(mkt_matrix_datagram, MKT_SEND, MKT_QP_UD, IBV_ACCESS_LOCAL_WRITE);
}

TEST_F(matrix, ud_srq)
{
	MATRIX_RUN(mkt_matrix_datagram, MKT_SEND, MKT_QP_UD | MKT_QP_SRQ, IBV_ACCESS_LOCAL_WRITE);
}

TEST_F(matrix, fetch_add) { MATRIX_RUN(mkt_matrix_atomic, MKT_FETCH_ADD, .operands = true); }
TEST_F(matrix, cmp_swap) { MATRIX_RUN(mkt_matrix_atomic, MKT_CMP_SWAP, .operands = true); }
TEST_F(matrix, atomic_write) { MATRIX_RUN(mkt_matrix_atomic, MKT_ATOMIC_WRITE, .operands = true); }
TEST_F(matrix, flush) { MATRIX_RUN(mkt_matrix_flush, MKT_WRITE, .access = MKT_ACCESS_ALL | FLUSH); }
TEST_F(matrix, window_1)
{
	MATRIX_RUN(mkt_matrix_window, MKT_WRITE, .window = IBV_MW_TYPE_1,
		   .access = MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND);
}

TEST_F(matrix, window_2)
{
	MATRIX_RUN(mkt_matrix_window, MKT_READ, .window = IBV_MW_TYPE_2,
		   .access = MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND);
}

TEST_F(matrix, local_inv) { MATRIX_RUN(mkt_matrix_invalidate, MKT_LOCAL_INV); }
TEST_F(matrix, send_inv) { MATRIX_RUN(mkt_matrix_invalidate, MKT_SEND_INV); }

/* rxe has no XRC; once it has, its verbs belong above */
TEST_F(matrix, xrc_refused)
{
	struct ibv_xrcd_init_attr xrcd = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_cq *cq = ibv_create_cq(self->m.s.dev[0].ctx, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr qp = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
		.qp_type = IBV_QPT_XRC_SEND,
	};

	ASSERT_NE(NULL, cq);
	errno = 0;
	EXPECT_ERRNO(EOPNOTSUPP, ibv_open_xrcd(self->m.s.dev[0].ctx, &xrcd));
	errno = 0;
	EXPECT_ERRNO(EOPNOTSUPP, ibv_create_qp(self->m.s.dev[0].pd, &qp));
	ASSERT_EQ(0, ibv_destroy_cq(cq));
}

TEST_HARNESS_MAIN
