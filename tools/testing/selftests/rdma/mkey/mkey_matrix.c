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
FIXTURE_VARIANT_ADD(matrix, odp) { .make = mkt_leaf_odp, .aligned = true, .flush = true };
FIXTURE_VARIANT_ADD(matrix, key) { .make = mkt_leaf_key, .flush = true };
FIXTURE_VARIANT_ADD(matrix, udmabuf) { .make = mkt_leaf_udmabuf, .aligned = true };
FIXTURE_VARIANT_ADD(matrix, dma_heap) { .make = mkt_leaf_heap, .aligned = true };
FIXTURE_VARIANT_ADD(matrix, dm_export) { .make = mkt_leaf_dm_export, .aligned = true };
FIXTURE_VARIANT_ADD(matrix, mixed) { .make = mkt_leaf_mixed, .flush = true, .several = true };

FIXTURE_SETUP(matrix)
{
	int err;

	MKT_OPEN_EXTENDED(self->m.dev);
	err = mkt_matrix_setup(&self->m, variant->make, variant->several,
			       _metadata->name);
	if (err == EOPNOTSUPP || err == ENODEV)
		SKIP(return, "%s", self->m.why);
	ASSERT_EQ(0, err);
	self->m.packets = variant->packets;
}

FIXTURE_TEARDOWN(matrix)
{
	EXPECT_EQ(0, mkt_matrix_teardown(&self->m));
}

/* requests that name the MR itself */
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
	EXPECT_EQ(0, mkt_matrix_direct(&self->m, mkt_matrix_outside, MKT_WRITE));
	EXPECT_EQ(0, mkt_matrix_direct(&self->m, mkt_matrix_outside, MKT_READ));
	for (i = 0; i < ARRAY_SIZE(atomics) && variant->aligned; i++)
		EXPECT_EQ(0, mkt_matrix_direct(&self->m, mkt_matrix_atomic, atomics[i]));
}

static void matrix_moves(struct __test_metadata *_metadata,
			 struct mkt_matrix *m, enum mkt_op op,
			 unsigned int flags)
{
	ASSERT_EQ(0, mkt_matrix_connect(m, flags));
	EXPECT_EQ(0, mkt_matrix_each(m, mkt_matrix_move, op, MKT_ACCESS_ALL));
}

TEST_F(matrix, send)
{
	matrix_moves(_metadata, &self->m, MKT_SEND, 0);
}

TEST_F(matrix, send_imm)
{
	matrix_moves(_metadata, &self->m, MKT_SEND_IMM, 0);
}

TEST_F(matrix, srq)
{
	matrix_moves(_metadata, &self->m, MKT_SEND, MKT_QP_SRQ);
}

TEST_F(matrix, write)
{
	matrix_moves(_metadata, &self->m, MKT_WRITE, 0);
}

TEST_F(matrix, write_imm)
{
	matrix_moves(_metadata, &self->m, MKT_WRITE_IMM, 0);
}

TEST_F(matrix, read)
{
	matrix_moves(_metadata, &self->m, MKT_READ, 0);
}

TEST_F(matrix, uc_send)
{
	matrix_moves(_metadata, &self->m, MKT_SEND, MKT_QP_UC);
}

TEST_F(matrix, uc_send_imm)
{
	matrix_moves(_metadata, &self->m, MKT_SEND_IMM, MKT_QP_UC);
}

TEST_F(matrix, uc_srq)
{
	matrix_moves(_metadata, &self->m, MKT_SEND, MKT_QP_UC | MKT_QP_SRQ);
}

TEST_F(matrix, uc_write)
{
	matrix_moves(_metadata, &self->m, MKT_WRITE, MKT_QP_UC);
}

TEST_F(matrix, uc_write_imm)
{
	matrix_moves(_metadata, &self->m, MKT_WRITE_IMM, MKT_QP_UC);
}

TEST_F(matrix, ud_send)
{
	ASSERT_EQ(0, mkt_matrix_connect(&self->m, MKT_QP_UD));
	EXPECT_EQ(0, mkt_matrix_each(&self->m, mkt_matrix_datagram, MKT_SEND,
				     IBV_ACCESS_LOCAL_WRITE));
}

TEST_F(matrix, ud_srq)
{
	ASSERT_EQ(0, mkt_matrix_connect(&self->m, MKT_QP_UD | MKT_QP_SRQ));
	EXPECT_EQ(0, mkt_matrix_each(&self->m, mkt_matrix_datagram, MKT_SEND,
				     IBV_ACCESS_LOCAL_WRITE));
}

TEST_F(matrix, fetch_add)
{
	self->m.operands = true;
	ASSERT_EQ(0, mkt_matrix_connect(&self->m, 0));
	EXPECT_EQ(0, mkt_matrix_each(&self->m, mkt_matrix_atomic,
				     MKT_FETCH_ADD, MKT_ACCESS_ALL));
}

TEST_F(matrix, cmp_swap)
{
	self->m.operands = true;
	ASSERT_EQ(0, mkt_matrix_connect(&self->m, 0));
	EXPECT_EQ(0, mkt_matrix_each(&self->m, mkt_matrix_atomic, MKT_CMP_SWAP,
				     MKT_ACCESS_ALL));
}

TEST_F(matrix, atomic_write)
{
	self->m.operands = true;
	ASSERT_EQ(0, mkt_matrix_connect(&self->m, 0));
	EXPECT_EQ(0, mkt_matrix_each(&self->m, mkt_matrix_atomic,
				     MKT_ATOMIC_WRITE, MKT_ACCESS_ALL));
}

/* a key cannot have the flush flag over a leaf that lacks it */
TEST_F(matrix, flush)
{
	ASSERT_EQ(0, mkt_matrix_connect(&self->m, 0));
	if (!variant->flush) {
		EXPECT_EQ(EACCES, mkt_matrix_each(&self->m, mkt_matrix_flush,
						  MKT_WRITE,
						  MKT_ACCESS_ALL | FLUSH));
		return;
	}
	EXPECT_EQ(0, mkt_matrix_each(&self->m, mkt_matrix_flush, MKT_WRITE,
				     MKT_ACCESS_ALL | FLUSH));
}

TEST_F(matrix, window_1)
{
	self->m.window = IBV_MW_TYPE_1;
	ASSERT_EQ(0, mkt_matrix_connect(&self->m, 0));
	EXPECT_EQ(0, mkt_matrix_each(&self->m, mkt_matrix_window, MKT_WRITE,
				     MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND));
}

TEST_F(matrix, window_2)
{
	self->m.window = IBV_MW_TYPE_2;
	ASSERT_EQ(0, mkt_matrix_connect(&self->m, 0));
	EXPECT_EQ(0, mkt_matrix_each(&self->m, mkt_matrix_window, MKT_READ,
				     MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND));
}

TEST_F(matrix, local_inv)
{
	ASSERT_EQ(0, mkt_matrix_connect(&self->m, 0));
	EXPECT_EQ(0, mkt_matrix_each(&self->m, mkt_matrix_invalidate,
				     MKT_LOCAL_INV, MKT_ACCESS_ALL));
}

TEST_F(matrix, send_inv)
{
	ASSERT_EQ(0, mkt_matrix_connect(&self->m, 0));
	EXPECT_EQ(0, mkt_matrix_each(&self->m, mkt_matrix_invalidate,
				     MKT_SEND_INV, MKT_ACCESS_ALL));
}

/* rxe has no XRC; once it has, its verbs belong above */
TEST_F(matrix, xrc_refused)
{
	struct ibv_xrcd_init_attr xrcd = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_cq *cq = ibv_create_cq(self->m.dev[0].ctx, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr qp = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
		.qp_type = IBV_QPT_XRC_SEND,
	};

	ASSERT_NE(NULL, cq);
	errno = 0;
	EXPECT_ERRNO(EOPNOTSUPP, ibv_open_xrcd(self->m.dev[0].ctx, &xrcd));
	errno = 0;
	EXPECT_ERRNO(EOPNOTSUPP, ibv_create_qp(self->m.dev[0].pd, &qp));
	ASSERT_EQ(0, ibv_destroy_cq(cq));
}

TEST_HARNESS_MAIN
