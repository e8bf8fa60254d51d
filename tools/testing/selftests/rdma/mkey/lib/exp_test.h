/* SPDX-License-Identifier: GPL-2.0 */
/* A program of the experimental verbs of MLNX_OFED: the set-up of their tests. */
#ifndef MKEY_EXP_TEST_H
#define MKEY_EXP_TEST_H

#include <stdlib.h>

#include <arpa/inet.h>
#include <infiniband/verbs_exp.h>

#include "mkey_harness.h"

#define SIZE (64 * 1024)
#define MAX_KLMS 4	/* inline */
#define MAX_ENTRIES 400
#define DEPTH 16

/* side 0 fills keys over src; side 1 is an ordinary program with dst */
FIXTURE(exp)
{
	struct mkt_dev dev[2];
	struct mkt_pair pair;
	struct ibv_qp *qp;
	struct ibv_mr *key;
	uint64_t base;		/* the address of its first byte */
	uint8_t *src, *dst;
	struct ibv_mr *src_mr, *dst_mr;
};

FIXTURE_VARIANT(exp)
{
	enum ibv_qp_type type;
};

FIXTURE_VARIANT_ADD(exp, rc)
{
	.type = IBV_QPT_RC,
};

FIXTURE_VARIANT_ADD(exp, uc)
{
	.type = IBV_QPT_UC,
};

/* what a program asks for */
static inline struct ibv_exp_qp_init_attr umr_attr(const struct mkt_dev *dev, struct ibv_cq *cq,
						   enum ibv_qp_type type)
{
	return (struct ibv_exp_qp_init_attr) {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = type,
		.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS |
			     IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS,
		.pd = dev->pd,
		.exp_create_flags = IBV_EXP_QP_CREATE_UMR,
		.max_inl_send_klms = MAX_KLMS,
	};
}

FIXTURE_SETUP(exp)
{
	struct ibv_exp_create_mr_in in = {
		.attr = {
			.max_klm_list_size = MAX_ENTRIES,
			.create_flags = IBV_EXP_MR_INDIRECT_KLMS,
			.exp_access_flags = IBV_EXP_ACCESS_LOCAL_WRITE,
		},
	};
	struct mkt_qp *end = self->pair.end;
	struct ibv_exp_qp_init_attr attr;
	size_t i;

	MKT_OPEN_EXTENDED(self->dev);
	self->pair.mtu = IBV_MTU_1024;
	ASSERT_EQ(0, mkt_qp_create(&end[1], &self->dev[1],
				   variant->type == IBV_QPT_UC ? MKT_QP_UC : 0));
	end[0].dev = &self->dev[0];
	end[0].cq = ibv_create_cq(self->dev[0].ctx, 4 * DEPTH, NULL, NULL, 0);
	ASSERT_NE(NULL, end[0].cq);
	attr = umr_attr(&self->dev[0], end[0].cq, variant->type);
	end[0].qp = ibv_exp_create_qp(self->dev[0].ctx, &attr);
	ASSERT_NE(NULL, end[0].qp);
	self->qp = end[0].qp;
	ASSERT_EQ(0, mkt_pair_recover(&self->pair));

	self->src = malloc(SIZE);
	self->dst = malloc(SIZE);
	for (i = 0; i < SIZE; i++)
		self->src[i] = i * 31 + i / 256;
	memset(self->dst, 0xee, SIZE);
	self->src_mr = ibv_reg_mr(self->dev[0].pd, self->src, SIZE, MKT_ACCESS_ALL);
	self->dst_mr = ibv_reg_mr(self->dev[1].pd, self->dst, SIZE, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, self->src_mr);
	ASSERT_NE(NULL, self->dst_mr);
	in.pd = self->dev[0].pd;
	self->key = ibv_exp_create_mr(&in);
	ASSERT_NE(NULL, self->key);
}

FIXTURE_TEARDOWN(exp)
{
	mkt_pair_destroy(&self->pair);
	if (self->key)
		EXPECT_EQ(0, ibv_dereg_mr(self->key));
	if (self->src_mr)
		EXPECT_EQ(0, ibv_dereg_mr(self->src_mr));
	if (self->dst_mr)
		EXPECT_EQ(0, ibv_dereg_mr(self->dst_mr));
	free(self->src);
	free(self->dst);
	mkt_dev_close(&self->dev[0]);
	mkt_dev_close(&self->dev[1]);
}

static inline struct ibv_exp_mem_region range(FIXTURE_DATA(exp) *self, size_t at, size_t length)
{
	return (struct ibv_exp_mem_region) { (uintptr_t)self->src + at, self->src_mr, length };
}

static inline struct ibv_exp_send_wr fill(FIXTURE_DATA(exp) *self, uint64_t wr_id, uint32_t num)
{
	struct ibv_exp_send_wr wr = {
		.wr_id = wr_id,
		.exp_opcode = IBV_EXP_WR_UMR_FILL,
		.exp_send_flags = IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_INLINE,
	};

	wr.ext_op.umr.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE;
	wr.ext_op.umr.modified_mr = self->key;
	wr.ext_op.umr.base_addr = self->base;
	wr.ext_op.umr.num_mrs = num;
	return wr;
}

static inline struct ibv_exp_send_wr fill_list(FIXTURE_DATA(exp) *self, uint64_t wr_id,
					       uint32_t num, struct ibv_exp_mem_region *region)
{
	struct ibv_exp_send_wr wr = fill(self, wr_id, num);

	wr.ext_op.umr.umr_type = IBV_EXP_UMR_MR_LIST;
	wr.ext_op.umr.mem_list.mem_reg_list = region;
	return wr;
}

static inline struct ibv_exp_send_wr fill_repeat(FIXTURE_DATA(exp) *self, uint64_t wr_id,
						 uint32_t num,
						 struct ibv_exp_mem_repeat_block *block,
						 size_t *repeat)
{
	struct ibv_exp_send_wr wr = fill(self, wr_id, num);

	wr.ext_op.umr.umr_type = IBV_EXP_UMR_REPEAT;
	wr.ext_op.umr.mem_list.rb.mem_repeat_block_list = block;
	wr.ext_op.umr.mem_list.rb.repeat_count = repeat;
	wr.ext_op.umr.mem_list.rb.stride_dim = 1;
	return wr;
}

static inline struct ibv_exp_send_wr invalidate(FIXTURE_DATA(exp) *self, uint64_t wr_id)
{
	struct ibv_exp_send_wr wr = fill(self, wr_id, 0);

	wr.exp_opcode = IBV_EXP_WR_UMR_INVALIDATE;
	wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
	return wr;
}

/* a WRITE of bytes of the key; the SGE lasts until the next call */
static inline struct ibv_exp_send_wr write_key(FIXTURE_DATA(exp) *self, uint64_t wr_id,
					       uint32_t length, size_t to)
{
	static struct ibv_sge sge;
	struct ibv_exp_send_wr wr = {
		.wr_id = wr_id,
		.exp_opcode = IBV_EXP_WR_RDMA_WRITE,
		.exp_send_flags = IBV_EXP_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
	};

	sge = (struct ibv_sge) { self->base, length, self->key->lkey };
	wr.wr.rdma.remote_addr = (uintptr_t)self->dst + to;
	wr.wr.rdma.rkey = self->dst_mr->rkey;
	return wr;
}

/* the next completion of side 0: its opcode, or -1 if it is not a success with this wr_id */
static inline int completed(FIXTURE_DATA(exp) *self, uint64_t wr_id)
{
	struct ibv_exp_wc wc;

	mkt_until(ibv_exp_poll_cq(self->pair.end[0].cq, 1, &wc, sizeof(wc)));
	if (wc.status != IBV_WC_SUCCESS || wc.wr_id != wr_id)
		return -1;
	return wc.exp_opcode;
}

/* posts one request and waits for it */
static inline int ran(FIXTURE_DATA(exp) *self, struct ibv_exp_send_wr wr)
{
	struct ibv_exp_send_wr *bad;
	int err;

	wr.exp_send_flags |= IBV_EXP_SEND_SIGNALED;
	err = ibv_exp_post_send(self->qp, &wr, &bad);
	if (err)
		mkt_diag("ibv_exp_post_send: %s", strerror(err));
	return err ? -1 : completed(self, wr.wr_id);
}

/* A WRITE on UC completes before it arrives, so wait for its last byte. */
static inline bool arrived(FIXTURE_DATA(exp) *self, size_t at, uint8_t byte)
{
	const volatile uint8_t *last = self->dst + at;

	return mkt_until(*last == byte);
}

/* a READ of 64 bytes through the key by the peer */
static inline int peer_reads(FIXTURE_DATA(exp) *self)
{
	struct mkt_wr read = {
		.op = MKT_READ,
		.sge = { { (uintptr_t)self->dst, 64, self->dst_mr->lkey } },
		.num_sge = 1,
		.rkey = self->key->rkey,
	};

	return mkt_status(&self->pair, 1, &read);
}

#endif /* MKEY_EXP_TEST_H */
