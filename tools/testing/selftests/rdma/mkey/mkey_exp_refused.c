// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A program of the experimental verbs of MLNX_OFED: what is refused, with which errno.
 */
#include "exp_test.h"

/* A refused request is the bad one of its list. Those before it are posted. */
TEST_F(exp, requests)
{
	struct ibv_exp_mkey_list_container list = { .max_klm_list_size = 1 };
	struct ibv_exp_mem_region region = range(self, 5000, 64);
	size_t bytes = 8, stride = 10, repeat = 2;
	struct ibv_exp_mem_repeat_block block = {
		(uintptr_t)self->src, self->src_mr, &bytes, &stride,
	};
	struct ibv_exp_send_wr good = fill_list(self, 1, 1, &region), wrong[14], *bad;
	unsigned int i, num = 0;

	for (i = 0; i < 14; i++)
		wrong[i] = good;
	wrong[num++].exp_opcode = (enum ibv_exp_wr_opcode)0x60;
	wrong[num++].exp_send_flags |= 1ULL << 32;
	wrong[num++].comp_mask = 1;
	wrong[num++].ext_op.umr.modified_mr = NULL;
	wrong[num++].ext_op.umr.num_mrs = 0;
	wrong[num++].ext_op.umr.num_mrs = IB_MKEY_MAX_ENTRIES + 1;
	wrong[num++].ext_op.umr.umr_type = 3;
	wrong[num++].ext_op.umr.exp_access |= IBV_EXP_ACCESS_ON_DEMAND;
	/* neither inline nor with memory; memory for fewer entries */
	wrong[num++].exp_send_flags = IBV_EXP_SEND_SIGNALED;
	wrong[num].exp_send_flags = IBV_EXP_SEND_SIGNALED;
	wrong[num].ext_op.umr.memory_objects = &list;
	wrong[num++].ext_op.umr.num_mrs = 2;
	wrong[num] = fill_repeat(self, 1, 1, &block, &repeat);
	wrong[num++].ext_op.umr.mem_list.rb.stride_dim = 2;
	wrong[num] = invalidate(self, 1);
	wrong[num++].ext_op.umr.modified_mr = NULL;
	for (i = 0; i < num; i++) {
		struct ibv_exp_send_wr first = good, last = good;

		first.next = &wrong[i];
		wrong[i].next = &last;
		bad = NULL;
		EXPECT_EQ(EINVAL, ibv_exp_post_send(self->qp, &first, &bad))
			TH_LOG("request %u", i);
		EXPECT_EQ(&wrong[i], bad);
		EXPECT_EQ(IBV_EXP_WC_UMR, completed(self, 1));
	}
	/* an empty range and an empty repetition */
	region.length = 0;
	EXPECT_EQ(EINVAL, ibv_exp_post_send(self->qp, &good, &bad));
	repeat = 0;
	wrong[0] = fill_repeat(self, 1, 1, &block, &repeat);
	EXPECT_EQ(EINVAL, ibv_exp_post_send(self->qp, &wrong[0], &bad));
	/* addresses that do not fit 64 bits */
	wrong[0] = good;
	region.length = 64;
	wrong[0].ext_op.umr.base_addr = UINT64_MAX - 10;
	ASSERT_EQ(0, ibv_exp_post_send(self->qp, &wrong[0], &bad));
	EXPECT_EQ(-1, completed(self, 1));
	ASSERT_EQ(0, mkt_pair_recover(&self->pair));
	/* the layout before is still there */
	EXPECT_EQ(IBV_EXP_WC_RDMA_WRITE, ran(self, write_key(self, 2, 64, 0)));
	ASSERT_TRUE(arrived(self, 63, self->src[5063]));
	EXPECT_EQ(0, memcmp(self->dst, self->src + 5000, 64));
}

/* A key that is not filled cannot be invalidated. */
TEST_F(exp, invalid_already)
{
	struct ibv_exp_mem_region region = range(self, 5000, 64);

	EXPECT_EQ(IBV_EXP_WC_UMR, ran(self, fill_list(self, 1, 1, &region)));
	EXPECT_EQ(IBV_EXP_WC_UMR, ran(self, invalidate(self, 2)));
	EXPECT_EQ(-1, ran(self, invalidate(self, 3)));
}

/* the entries that are inline, and a queue that is full */
TEST_F(exp, room)
{
	struct ibv_exp_mem_region region[25];
	struct ibv_exp_send_wr wr, *bad;
	unsigned int i, posted = 0;
	int err = 0;

	for (i = 0; i < 25; i++)
		region[i] = range(self, 100 * i, 10);
	/* longer than the QP's inline data, and than those of any request */
	wr = fill_list(self, 1, 20, region);
	EXPECT_EQ(EINVAL, ibv_exp_post_send(self->qp, &wr, &bad));
	wr.ext_op.umr.num_mrs = 25;
	EXPECT_EQ(EINVAL, ibv_exp_post_send(self->qp, &wr, &bad));
	if (variant->type != IBV_QPT_RC)
		return;
	/* A request for a filled key waits for a SEND, which waits for a receive. */
	wr = fill_list(self, 1, 1, region);
	EXPECT_EQ(IBV_EXP_WC_UMR, ran(self, wr));
	wr.exp_opcode = IBV_EXP_WR_SEND;
	wr.exp_send_flags = 0;
	ASSERT_EQ(0, ibv_exp_post_send(self->qp, &wr, &bad));
	wr = fill_list(self, 1, 1, region);
	while (posted < 1024 && !err) {
		err = ibv_exp_post_send(self->qp, &wr, &bad);
		posted += !err;
	}
	EXPECT_EQ(ENOMEM, err);
	EXPECT_LE(DEPTH - 2, posted);
	EXPECT_EQ(&wr, bad);
}

TEST_F(exp, objects)
{
	struct ibv_exp_create_mr_in create = {
		.pd = self->dev[0].pd,
		.attr = { .max_klm_list_size = 4, .create_flags = IBV_EXP_MR_INDIRECT_KLMS },
	}, in;
	struct ibv_exp_mkey_list_container_attr list = {
		.pd = self->dev[0].pd,
		.max_klm_list_size = 4,
	};
	struct ibv_exp_reg_mr_in reg = {
		.pd = self->dev[0].pd,
		.addr = self->src,
		.length = SIZE,
	};
	struct ibv_exp_wc wc;

	in = create;
	in.comp_mask = 1;
	EXPECT_ERRNO(EINVAL, ibv_exp_create_mr(&in));
	in = create;
	in.attr.create_flags = 0;
	EXPECT_ERRNO(EINVAL, ibv_exp_create_mr(&in));
	in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS | IBV_EXP_MR_FIXED_BUFFER_SIZE;
	EXPECT_ERRNO(EINVAL, ibv_exp_create_mr(&in));
	in = create;
	in.attr.max_klm_list_size = 0;
	EXPECT_ERRNO(EINVAL, ibv_exp_create_mr(&in));
	in = create;
	in.attr.exp_access_flags = IBV_EXP_ACCESS_ALLOCATE_MR;
	EXPECT_ERRNO(EINVAL, ibv_exp_create_mr(&in));

	list.max_klm_list_size = 0;
	EXPECT_ERRNO(EINVAL, ibv_exp_alloc_mkey_list_memory(&list));
	list.max_klm_list_size = IB_MKEY_MAX_ENTRIES + 1;
	EXPECT_ERRNO(EINVAL, ibv_exp_alloc_mkey_list_memory(&list));
	list.max_klm_list_size = 4;
	list.mkey_list_type = 1;
	EXPECT_ERRNO(EINVAL, ibv_exp_alloc_mkey_list_memory(&list));
	list.mkey_list_type = IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR;
	list.comp_mask = 1;
	EXPECT_ERRNO(EINVAL, ibv_exp_alloc_mkey_list_memory(&list));

	reg.exp_access = 1ULL << 40;
	EXPECT_ERRNO(EINVAL, ibv_exp_reg_mr(&reg));
	reg.exp_access = 0;
	reg.comp_mask = 1;
	EXPECT_ERRNO(EINVAL, ibv_exp_reg_mr(&reg));
	reg.comp_mask = 0;
	/* memory of the program, where the library allocates some */
	reg.exp_access = IBV_EXP_ACCESS_ALLOCATE_MR;
	EXPECT_ERRNO(EINVAL, ibv_exp_reg_mr(&reg));

	EXPECT_EQ(-EINVAL, ibv_exp_poll_cq(self->pair.end[0].cq, 1, &wc, sizeof(wc) - 8));
	EXPECT_EQ(0, ibv_exp_poll_cq(self->pair.end[0].cq, 1, &wc, sizeof(wc)));
}

TEST_F(exp, queue_pairs)
{
	struct ibv_exp_qp_init_attr good = umr_attr(&self->dev[0], self->pair.end[0].cq,
						    variant->type), attr;
	struct ibv_exp_mem_region region = range(self, 0, 8);
	struct ibv_exp_send_wr wr = fill_list(self, 1, 1, &region), *bad;
	struct ibv_qp *qp;

	attr = good;
	attr.comp_mask &= ~IBV_EXP_QP_INIT_ATTR_PD;
	EXPECT_ERRNO(EINVAL, ibv_exp_create_qp(self->dev[0].ctx, &attr));
	attr = good;
	attr.comp_mask &= ~IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
	EXPECT_ERRNO(EINVAL, ibv_exp_create_qp(self->dev[0].ctx, &attr));
	attr = good;
	attr.comp_mask &= ~IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
	EXPECT_ERRNO(EINVAL, ibv_exp_create_qp(self->dev[0].ctx, &attr));
	attr = good;
	attr.comp_mask |= 1 << 3;
	EXPECT_ERRNO(EINVAL, ibv_exp_create_qp(self->dev[0].ctx, &attr));
	attr = good;
	attr.exp_create_flags |= 1 << 2;
	EXPECT_ERRNO(EINVAL, ibv_exp_create_qp(self->dev[0].ctx, &attr));
	attr = good;
	attr.max_inl_send_klms = 100;
	EXPECT_ERRNO(EINVAL, ibv_exp_create_qp(self->dev[0].ctx, &attr));
	attr = good;
	attr.qp_type = IBV_QPT_UD;
	EXPECT_ERRNO(EOPNOTSUPP, ibv_exp_create_qp(self->dev[0].ctx, &attr));

	/* a QP without UMR */
	attr = good;
	attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
	qp = ibv_exp_create_qp(self->dev[0].ctx, &attr);
	ASSERT_NE(NULL, qp);
	EXPECT_EQ(EINVAL, ibv_exp_post_send(qp, &wr, &bad));
	wr = invalidate(self, 1);
	EXPECT_EQ(EINVAL, ibv_exp_post_send(qp, &wr, &bad));
	EXPECT_EQ(0, ibv_destroy_qp(qp));
}

TEST_HARNESS_MAIN
