// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A program of mlx5dv that receives short messages. MLX5_SCATTER_TO_CQE and the flags of a
 * queue pair for scatter to CQE change nothing: a message is in its receive buffers before its
 * completion is polled, and polling writes to no buffer.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <infiniband/mlx5dv.h>

#include "mkey_harness.h"

/* the longest message: one byte more than there is room for behind a CQE of rxe */
#define LONGEST 57
#define ROOM 4096
#define GRH 40
#define UNTOUCHED 0xee
#define DEPTH 16
#define IMM 0xc0ffee11

/* side 1 receives; its queue pair has the flags of the variant */
FIXTURE(receive)
{
	struct mkt_dev dev[2];
	struct mkt_pair pair;
	uint8_t *src, *dst;
	struct ibv_mr *src_mr, *dst_mr, *key;
	uint8_t expect[ROOM];
};

FIXTURE_VARIANT(receive)
{
	const char *variable;		/* MLX5_SCATTER_TO_CQE, NULL: unset */
	bool plain;			/* ibv_create_qp_ex() */
	uint32_t flags;			/* of mlx5dv_create_qp() */
};

FIXTURE_VARIANT_ADD(receive, standard)
{
	.flags = 0,
};

FIXTURE_VARIANT_ADD(receive, disable)
{
	.flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
};

FIXTURE_VARIANT_ADD(receive, allow)
{
	.flags = MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE,
};

FIXTURE_VARIANT_ADD(receive, variable_0)
{
	.variable = "0",
};

FIXTURE_VARIANT_ADD(receive, variable_1)
{
	.variable = "1",
	.flags = MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE,
};

FIXTURE_VARIANT_ADD(receive, plain)
{
	.plain = true,
};

FIXTURE_SETUP(receive)
{
	unsigned int i;

	ASSERT_EQ(0, variant->variable ? setenv("MLX5_SCATTER_TO_CQE", variant->variable, 1) :
					 unsetenv("MLX5_SCATTER_TO_CQE"));
	MKT_OPEN_EXTENDED(self->dev);
	self->src = malloc(ROOM);
	self->dst = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(NULL, self->src);
	ASSERT_NE(MAP_FAILED, self->dst);
	for (i = 0; i < ROOM; i++)
		self->src[i] = i % 199 + 1;
	self->src_mr = ibv_reg_mr(self->dev[0].pd, self->src, ROOM, MKT_ACCESS_ALL);
	self->dst_mr = ibv_reg_mr(self->dev[1].pd, self->dst, ROOM, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, self->src_mr);
	ASSERT_NE(NULL, self->dst_mr);
	/* pieces of 3 bytes, 7 bytes apart */
	self->key = ibmkey_alloc(self->dev[1].pd, 4);
	ASSERT_NE(NULL, self->key);
	ASSERT_EQ(0, mkt_bind_strided(self->key, IBV_ACCESS_LOCAL_WRITE, self->dst_mr,
				      (uintptr_t)self->dst, 3, 7, LONGEST / 3));
}

FIXTURE_TEARDOWN(receive)
{
	mkt_pair_destroy(&self->pair);
	EXPECT_EQ(0, ibv_dereg_mr(self->key));
	if (self->dst_mr)
		EXPECT_EQ(0, ibv_dereg_mr(self->dst_mr));
	EXPECT_EQ(0, ibv_dereg_mr(self->src_mr));
	munmap(self->dst, ROOM);
	free(self->src);
	mkt_dev_close(&self->dev[0]);
	mkt_dev_close(&self->dev[1]);
}

/* connects a pair whose side 1 has the flags of the variant; @flags: MKT_QP_* */
static int receive_connect(FIXTURE_DATA(receive) *self, const FIXTURE_VARIANT(receive) *variant,
			   unsigned int flags)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = DEPTH, .max_sge = MKT_MAX_SGE } };
	struct ibv_qp_init_attr_ex attr = {
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = MKT_MAX_SGE,
		},
		.qp_type = flags & MKT_QP_UD ? IBV_QPT_UD : IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = self->dev[1].pd,
	};
	struct mlx5dv_qp_init_attr own = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = variant->flags,
	};
	struct mkt_qp *end = &self->pair.end[1];
	int err;

	self->pair.mtu = IBV_MTU_1024;
	err = mkt_qp_create(&self->pair.end[0], &self->dev[0], flags);
	if (err)
		return err;
	end->dev = &self->dev[1];
	end->flags = flags;
	end->psn = 0x2345;
	end->cq = ibv_create_cq(end->dev->ctx, 2 * DEPTH, NULL, NULL, 0);
	if (!end->cq)
		return errno;
	if (flags & MKT_QP_SRQ) {
		end->srq = ibv_create_srq(attr.pd, &srq_attr);
		if (!end->srq)
			return errno;
	}
	attr.send_cq = end->cq;
	attr.recv_cq = end->cq;
	attr.srq = end->srq;
	end->qp = variant->plain ? ibv_create_qp_ex(end->dev->ctx, &attr) :
				   mlx5dv_create_qp(end->dev->ctx, &attr, &own);
	return end->qp ? mkt_pair_connect(&self->pair) : errno;
}

enum shape {
	ONE,		/* one SGE */
	SEVERAL,	/* the last two have more bytes than the message */
	OF_KEY,		/* the key, whose bytes are in pieces */
	SHAPES,
};

/*
 * Writes the SGEs of a receive of at least @length bytes, and to @expect the bytes of the memory
 * when the first @length bytes of the source have arrived. Returns the number of SGEs.
 */
static int receive_shape(FIXTURE_DATA(receive) *self, enum shape shape, uint32_t length,
			 struct ibv_sge *sge)
{
	const uint32_t part[] = { length / 3, 0, length - length / 3, 10, 20 };
	uint64_t dst = (uintptr_t)self->dst;
	uint32_t lkey = self->dst_mr->lkey, done = 0, i;
	int num = 0;

	memset(self->dst, UNTOUCHED, ROOM);
	memset(self->expect, UNTOUCHED, ROOM);
	switch (shape) {
	case ONE:
		sge[0] = (struct ibv_sge) { dst + 5, length, lkey };
		memcpy(self->expect + 5, self->src, length);
		return 1;
	case SEVERAL:
		for (i = 0; i < ARRAY_SIZE(part); i++) {
			size_t at = 3 + 600 * (ARRAY_SIZE(part) - i);

			sge[num++] = (struct ibv_sge) { dst + at, part[i], lkey };
			if (done < length)
				memcpy(self->expect + at, self->src + done, part[i]);
			done += part[i];
		}
		return num;
	default:
		sge[0] = (struct ibv_sge) { 0, length, self->key->lkey };
		for (i = 0; i < length; i++)
			self->expect[i / 3 * 7 + i % 3] = self->src[i];
		return 1;
	}
}

static struct mkt_wr receive_message(FIXTURE_DATA(receive) *self, enum mkt_op op, uint32_t length)
{
	return (struct mkt_wr) {
		.op = op,
		.sge = { { (uintptr_t)self->src, length, self->src_mr->lkey } },
		.num_sge = 1,
		.imm = IMM,
	};
}

/* sends a message; the responder has executed it when this returns true */
static bool receive_send(FIXTURE_DATA(receive) *self, const struct mkt_wr *wr)
{
	struct ibv_wc wc;

	return !mkt_post_send(&self->pair.end[0], wr, 1) && !mkt_poll(&self->pair.end[0], &wc) &&
	       wc.status == IBV_WC_SUCCESS;
}

/* polls the completion of a receive of @length bytes, and compares all of its fields */
static bool receive_completed(FIXTURE_DATA(receive) *self, enum mkt_op op, uint32_t length)
{
	bool imm = op == MKT_SEND_IMM;
	struct ibv_wc wc = {};

	if (mkt_poll(&self->pair.end[1], &wc))
		return false;
	if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == 2 &&
	    wc.qp_num == self->pair.end[1].qp->qp_num && wc.byte_len == length &&
	    wc.wc_flags == (IBV_WC_GRH | (imm ? IBV_WC_WITH_IMM : 0)) &&
	    (!imm || ntohl(wc.imm_data) == IMM))
		return true;
	mkt_diag("%s of %u bytes: status %d, opcode %d, length %u, flags %#x", mkt_op_name(op),
		 length, wc.status, wc.opcode, wc.byte_len, wc.wc_flags);
	return false;
}

/* true if @length bytes of @from are all @byte */
static bool all(const uint8_t *from, uint8_t byte, size_t length)
{
	return !length || (*from == byte && !memcmp(from, from + 1, length - 1));
}

/* every length, with and without immediate data, into each shape */
static bool every_length(FIXTURE_DATA(receive) *self)
{
	static const enum mkt_op ops[] = { MKT_SEND, MKT_SEND_IMM };
	struct ibv_sge sge[MKT_MAX_SGE];
	unsigned int length, shape, i;

	for (length = 0; length <= LONGEST; length++)
		for (shape = 0; shape < SHAPES; shape++)
			for (i = 0; i < ARRAY_SIZE(ops); i++) {
				struct mkt_wr wr = receive_message(self, ops[i], length);
				int num = receive_shape(self, shape, length, sge);

				if (mkt_post_recv(&self->pair.end[1], sge, num, 2) ||
				    !receive_send(self, &wr))
					return false;
				if (memcmp(self->dst, self->expect, ROOM)) {
					mkt_diag("shape %u: %u bytes are not in place", shape,
						 length);
					return false;
				}
				memset(self->dst, 0x55, ROOM);
				if (!receive_completed(self, ops[i], length))
					return false;
				if (!all(self->dst, 0x55, ROOM)) {
					mkt_diag("shape %u: %u bytes were written by polling",
						 shape, length);
					return false;
				}
			}
	return true;
}

TEST_F(receive, lengths)
{
	ASSERT_EQ(0, receive_connect(self, variant, 0));
	EXPECT_TRUE(every_length(self));
}

TEST_F(receive, lengths_srq)
{
	ASSERT_EQ(0, receive_connect(self, variant, MKT_QP_SRQ));
	EXPECT_TRUE(every_length(self));
}

/* A datagram has a GRH of 40 bytes before its data. Its sender does not learn of its arrival. */
TEST_F(receive, lengths_ud)
{
	static const enum mkt_op ops[] = { MKT_SEND, MKT_SEND_IMM };
	uint8_t *data = self->dst + 8 + GRH;
	unsigned int length, i;

	ASSERT_EQ(0, receive_connect(self, variant, MKT_QP_UD));
	for (length = 0; length <= LONGEST; length++)
		for (i = 0; i < ARRAY_SIZE(ops); i++) {
			struct ibv_sge sge[] = {
				{ (uintptr_t)self->dst + 8, 30, self->dst_mr->lkey },
				{ (uintptr_t)self->dst + 38, LONGEST + 10, self->dst_mr->lkey },
			};
			struct mkt_wr wr = receive_message(self, ops[i], length);

			memset(self->dst, UNTOUCHED, ROOM);
			ASSERT_EQ(0, mkt_post_recv(&self->pair.end[1], sge, 2, 2));
			ASSERT_TRUE(receive_send(self, &wr));
			ASSERT_TRUE(receive_completed(self, ops[i], GRH + length));
			ASSERT_TRUE(all(self->dst, UNTOUCHED, 8));
			/* the last bytes of the receiver's address, also over IPv4 */
			ASSERT_EQ(0, memcmp(data - 4, self->dev[1].gid.raw + 12, 4));
			ASSERT_EQ(0, memcmp(data, self->src, length));
			ASSERT_TRUE(all(data + length, UNTOUCHED, ROOM - 8 - GRH - length));
		}
}

/* A program may change the mapping of a buffer before it polls: polling must not write to it. */
TEST_F(receive, mapping)
{
	const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
	struct mkt_wr send = receive_message(self, MKT_SEND, 40);
	unsigned int change;
	struct ibv_sge sge;

	ASSERT_EQ(0, receive_connect(self, variant, 0));
	for (change = 0; change < 4; change++) {
		uint8_t *page = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, anonymous, -1, 0);
		uint8_t *other = mmap(NULL, ROOM, PROT_NONE, anonymous, -1, 0);
		struct ibv_mr *mr;

		ASSERT_NE(MAP_FAILED, page);
		ASSERT_NE(MAP_FAILED, other);
		mr = ibv_reg_mr(self->dev[1].pd, page, ROOM, IBV_ACCESS_LOCAL_WRITE);
		ASSERT_NE(NULL, mr);
		sge = (struct ibv_sge) { (uintptr_t)page, 40, mr->lkey };
		ASSERT_EQ(0, mkt_post_recv(&self->pair.end[1], &sge, 1, 2));
		ASSERT_TRUE(receive_send(self, &send));
		switch (change) {
		case 0:
			ASSERT_EQ(0, mprotect(page, ROOM, PROT_READ));
			break;
		case 1:
			ASSERT_EQ(other, mremap(page, ROOM, ROOM, MREMAP_MAYMOVE | MREMAP_FIXED,
						other));
			break;
		case 2:
			ASSERT_EQ(page, mmap(page, ROOM, PROT_READ | PROT_WRITE,
					     anonymous | MAP_FIXED, -1, 0));
			break;
		default:
			ASSERT_EQ(0, ibv_dereg_mr(mr));
			mr = NULL;
			ASSERT_EQ(0, munmap(page, ROOM));
		}
		EXPECT_TRUE(receive_completed(self, MKT_SEND, 40));
		if (change < 2)
			EXPECT_EQ(0, memcmp(change ? other : page, self->src, 40));
		if (change == 2)
			EXPECT_TRUE(all(page, 0, ROOM));
		if (mr)
			EXPECT_EQ(0, ibv_dereg_mr(mr));
		if (change != 1 && change != 3)
			EXPECT_EQ(0, munmap(page, ROOM));
		EXPECT_EQ(0, munmap(other, ROOM));
	}
}

/* The device tells of no room for data in a CQE, and no CQ has a size of CQEs. */
TEST_F(receive, query)
{
	struct mlx5dv_cq_init_attr size = {
		.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
		.cqe_size = 128,
	};
	struct ibv_cq_init_attr_ex attr = { .cqe = 4 };
	struct mlx5dv_context caps;

	memset(&caps, 0xff, sizeof(caps));
	ASSERT_EQ(0, mlx5dv_query_device(self->dev[1].ctx, &caps));
	EXPECT_EQ(0, caps.flags & (MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP |
				   MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD));
	EXPECT_ERRNO(EOPNOTSUPP, mlx5dv_create_cq(self->dev[1].ctx, &attr, &size));
}

TEST_HARNESS_MAIN
