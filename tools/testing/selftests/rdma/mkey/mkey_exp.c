// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A program of the experimental verbs of MLNX_OFED, compiled against verbs_exp.h: keys
 * that work requests fill and invalidate.
 */
#include <sys/mman.h>

#include "exp_test.h"

/* The pattern of such programs: fill, use, invalidate. The requests of a list execute in order. */
TEST_F(exp, program)
{
	struct ibv_exp_mem_region region[MAX_KLMS];
	struct ibv_exp_send_wr wr[3], *bad = NULL;
	uint32_t lkey = self->key->lkey;
	size_t i, at = 0;

	for (i = 0; i < MAX_KLMS; i++)
		region[i] = range(self, 1000 * (MAX_KLMS - i), 100 + i);
	/* most programs name the bytes of a key by addresses from that of the first range on */
	self->base = region[0].base_addr;
	wr[0] = fill_list(self, 1, MAX_KLMS, region);
	wr[1] = write_key(self, 2, 406, 0);
	wr[2] = invalidate(self, 3);
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	ASSERT_EQ(0, ibv_exp_post_send(self->qp, wr, &bad));
	EXPECT_EQ(NULL, bad);
	EXPECT_EQ(IBV_EXP_WC_UMR, completed(self, 1));
	EXPECT_EQ(IBV_EXP_WC_RDMA_WRITE, completed(self, 2));
	EXPECT_EQ(IBV_EXP_WC_UMR, completed(self, 3));
	ASSERT_TRUE(arrived(self, 405, self->src[1000 + 102]));
	for (i = 0; i < MAX_KLMS; at += 100 + i, i++)
		EXPECT_EQ(0, memcmp(self->dst + at, self->src + 1000 * (MAX_KLMS - i), 100 + i));
	EXPECT_EQ(0xee, self->dst[406]);
	EXPECT_EQ(lkey, self->key->lkey);
	EXPECT_EQ(lkey, self->key->rkey);
}

/* two blocks, of 8 and 4 bytes, that repeat three times */
TEST_F(exp, repeat)
{
	size_t bytes[] = { 8, 4 }, stride[] = { 10, 4 }, repeat = 3, i;
	struct ibv_exp_mem_repeat_block block[] = {
		{ (uintptr_t)self->src, self->src_mr, &bytes[0], &stride[0] },
		{ (uintptr_t)self->src + 640, self->src_mr, &bytes[1], &stride[1] },
	};
	struct ibv_exp_send_wr wr;

	self->base = 12345;
	wr = fill_repeat(self, 1, 2, block, &repeat);
	EXPECT_EQ(IBV_EXP_WC_UMR, ran(self, wr));
	EXPECT_EQ(IBV_EXP_WC_RDMA_WRITE, ran(self, write_key(self, 2, 36, 0)));
	ASSERT_TRUE(arrived(self, 35, self->src[640 + 11]));
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(0, memcmp(self->dst + 12 * i, self->src + 10 * i, 8));
		EXPECT_EQ(0, memcmp(self->dst + 12 * i + 8, self->src + 640 + 4 * i, 4));
	}
	EXPECT_EQ(0xee, self->dst[36]);
}

/* Layouts in memory of ibv_exp_alloc_mkey_list_memory(): a long list, blocks, and a list again. */
TEST_F(exp, not_inline)
{
	struct ibv_exp_mkey_list_container_attr attr = {
		.pd = self->dev[0].pd,
		.mkey_list_type = IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR,
		.max_klm_list_size = MAX_ENTRIES,
	};
	struct ibv_exp_mkey_list_container *list = ibv_exp_alloc_mkey_list_memory(&attr);
	struct ibv_exp_mem_repeat_block block[MAX_ENTRIES];
	struct ibv_exp_mem_region region[MAX_ENTRIES];
	size_t bytes = 2, stride = 8, repeat = 2, i;
	struct ibv_exp_send_wr wr;
	unsigned int round;

	ASSERT_NE(NULL, list);
	EXPECT_EQ(self->dev[0].ctx, list->context);
	self->base = 1ULL << 63;
	for (i = 0; i < MAX_ENTRIES; i++) {
		region[i] = range(self, 100 * (MAX_ENTRIES - i), 4);
		block[i] = (struct ibv_exp_mem_repeat_block) {
			(uintptr_t)self->src + 100 * i, self->src_mr, &bytes, &stride,
		};
	}
	for (round = 0; round < 2; round++) {
		memset(self->dst, 0xee, SIZE);
		wr = fill_list(self, 1, MAX_ENTRIES, region);
		wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
		wr.ext_op.umr.memory_objects = list;
		ASSERT_EQ(IBV_EXP_WC_UMR, ran(self, wr));
		wr = write_key(self, 2, 4 * MAX_ENTRIES, 0);
		ASSERT_EQ(IBV_EXP_WC_RDMA_WRITE, ran(self, wr));
		wr = fill_repeat(self, 3, MAX_ENTRIES, block, &repeat);
		wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
		wr.ext_op.umr.memory_objects = list;
		ASSERT_EQ(IBV_EXP_WC_UMR, ran(self, wr));
		wr = write_key(self, 4, 4 * MAX_ENTRIES, 4096);
		ASSERT_EQ(IBV_EXP_WC_RDMA_WRITE, ran(self, wr));
		ASSERT_TRUE(arrived(self, 4096 + 4 * MAX_ENTRIES - 1,
				    self->src[100 * (MAX_ENTRIES - 1) + 9]));
		for (i = 0; i < MAX_ENTRIES; i++) {
			const uint8_t *from = self->src + 100 * i;

			EXPECT_EQ(0, memcmp(self->dst + 4 * (MAX_ENTRIES - 1 - i), from + 100, 4));
			EXPECT_EQ(0, memcmp(self->dst + 4096 + 2 * i, from, 2));
			EXPECT_EQ(0, memcmp(self->dst + 4096 + 2 * (MAX_ENTRIES + i), from + 8, 2));
		}
	}
	EXPECT_EQ(0, ibv_exp_dealloc_mkey_list_memory(list));
}

/* a list of ranges of one size, and a key over that key */
TEST_F(exp, fixed_size_and_nested)
{
	struct ibv_exp_create_mr_in in = {
		.pd = self->dev[0].pd,
		.attr = { .max_klm_list_size = 4, .create_flags = IBV_EXP_MR_FIXED_BUFFER_SIZE },
	};
	struct ibv_mr *inner = ibv_exp_create_mr(&in);
	struct ibv_exp_mem_region region[4];
	struct ibv_exp_send_wr wr;
	unsigned int i;

	ASSERT_NE(NULL, inner);
	for (i = 0; i < 4; i++)
		region[i] = range(self, 1000 * (4 - i), 64);
	wr = fill_list(self, 1, 4, region);
	wr.ext_op.umr.umr_type = IBV_EXP_UMR_MR_LIST_FIXED_SIZE;
	wr.ext_op.umr.modified_mr = inner;
	EXPECT_EQ(IBV_EXP_WC_UMR, ran(self, wr));
	region[0] = (struct ibv_exp_mem_region) { 100, inner, 100 };
	region[1] = (struct ibv_exp_mem_region) { 0, inner, 10 };
	EXPECT_EQ(IBV_EXP_WC_UMR, ran(self, fill_list(self, 2, 2, region)));
	EXPECT_EQ(IBV_EXP_WC_RDMA_WRITE, ran(self, write_key(self, 3, 110, 0)));
	ASSERT_TRUE(arrived(self, 109, self->src[4009]));
	/* from byte 100 of the inner key: 28 of its second range, the third, 8 of the last */
	EXPECT_EQ(0, memcmp(self->dst, self->src + 3036, 28));
	EXPECT_EQ(0, memcmp(self->dst + 28, self->src + 2000, 64));
	EXPECT_EQ(0, memcmp(self->dst + 92, self->src + 1000, 8));
	EXPECT_EQ(0, memcmp(self->dst + 100, self->src + 4000, 10));
	EXPECT_EQ(0, ibv_dereg_mr(self->key));
	self->key = NULL;
	EXPECT_EQ(0, ibv_dereg_mr(inner));
}

/* The lkey ends with an invalidation, and a request with the same lkey restores it. */
TEST_F(exp, fill_again)
{
	struct ibv_exp_mem_region region = range(self, 0, 64);
	uint32_t lkey = self->key->lkey;
	unsigned int round;

	for (round = 0; round < 300; round++) {
		region.base_addr = (uintptr_t)self->src + round;
		ASSERT_EQ(IBV_EXP_WC_UMR, ran(self, fill_list(self, 1, 1, &region)));
		ASSERT_EQ(IBV_EXP_WC_RDMA_WRITE, ran(self, write_key(self, 2, 64, 64 * round)));
		ASSERT_EQ(IBV_EXP_WC_UMR, ran(self, invalidate(self, 3)));
		ASSERT_EQ(lkey, self->key->lkey);
	}
	ASSERT_TRUE(arrived(self, 64 * 300 - 1, self->src[299 + 63]));
	for (round = 0; round < 300; round++)
		ASSERT_EQ(0, memcmp(self->dst + 64 * round, self->src + round, 64));
	EXPECT_EQ(-1, ran(self, write_key(self, 4, 64, 0)));
	ASSERT_EQ(0, mkt_pair_recover(&self->pair));
	EXPECT_EQ(IBV_EXP_WC_UMR, ran(self, fill_list(self, 5, 1, &region)));
	EXPECT_EQ(IBV_EXP_WC_RDMA_WRITE, ran(self, write_key(self, 6, 64, 0)));
}

/* the peer reads by the rkey; a fill sets the access flags */
TEST_F(exp, access)
{
	struct ibv_exp_mem_region region = range(self, 5000, 64);
	struct ibv_exp_send_wr wr = fill_list(self, 1, 1, &region);

	if (variant->type != IBV_QPT_RC)
		SKIP(return, "READ needs RC");
	wr.ext_op.umr.exp_access = IBV_EXP_ACCESS_REMOTE_READ;
	EXPECT_EQ(IBV_EXP_WC_UMR, ran(self, wr));
	EXPECT_EQ(IBV_WC_SUCCESS, peer_reads(self));
	EXPECT_EQ(0, memcmp(self->dst, self->src + 5000, 64));
	wr.ext_op.umr.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE;
	EXPECT_EQ(IBV_EXP_WC_UMR, ran(self, wr));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, peer_reads(self));
}

/* As on a ConnectX, an MR can be deregistered while a key describes it. */
TEST_F(exp, deregistration)
{
	struct ibv_exp_reg_mr_in in = {
		.pd = self->dev[0].pd,
		.addr = self->src,
		.length = SIZE,
		.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE,
	};
	struct ibv_exp_mem_region region = range(self, 5000, 64);

	region.mr = ibv_exp_reg_mr(&in);
	ASSERT_NE(NULL, region.mr);
	EXPECT_EQ(IBV_EXP_WC_UMR, ran(self, fill_list(self, 1, 1, &region)));
	EXPECT_EQ(0, ibv_dereg_mr(region.mr));
	region.mr = self->src_mr;
	EXPECT_EQ(IBV_EXP_WC_UMR, ran(self, fill_list(self, 1, 1, &region)));
	EXPECT_EQ(IBV_EXP_WC_RDMA_WRITE, ran(self, write_key(self, 2, 64, 0)));
	ASSERT_TRUE(arrived(self, 63, self->src[5063]));
}

/* Binding a window and LOCAL_INV complete as such. */
TEST_F(exp, completions_of_windows)
{
	struct ibv_mr *mr = ibv_reg_mr(self->dev[0].pd, self->src, SIZE, MKT_ACCESS_ALL |
				       IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(self->dev[0].pd, IBV_MW_TYPE_2);
	struct ibv_exp_send_wr wr = { .exp_opcode = IBV_EXP_WR_LOCAL_INV };
	struct ibv_send_wr bind = {
		.wr_id = 1,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	ASSERT_NE(NULL, mr);
	ASSERT_NE(NULL, mw);
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info) {
		mr, (uintptr_t)self->src, 64, IBV_ACCESS_REMOTE_READ,
	};
	ASSERT_EQ(0, ibv_post_send(self->qp, &bind, &bad));
	EXPECT_EQ(IBV_EXP_WC_BIND_MW, completed(self, 1));
	wr.ex.invalidate_rkey = ibv_inc_rkey(mw->rkey);
	EXPECT_EQ(IBV_EXP_WC_LOCAL_INV, ran(self, wr));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
}

/* ordinary requests, in a list of this interface */
TEST_F(exp, ordinary_requests)
{
	struct ibv_sge from = { (uintptr_t)self->src, 16, self->src_mr->lkey };
	struct ibv_sge room = { (uintptr_t)self->dst, 64, self->dst_mr->lkey };
	struct ibv_exp_send_wr wr = {
		.exp_opcode = IBV_EXP_WR_SEND_WITH_IMM,
		.sg_list = &from,
		.num_sge = 1,
		.ex.imm_data = htonl(0x1234),
	};
	uint64_t *word = (void *)(self->dst + 128);
	struct ibv_wc wc;

	ASSERT_EQ(0, mkt_post_recv(&self->pair.end[1], &room, 1, 1));
	EXPECT_EQ(IBV_EXP_WC_SEND, ran(self, wr));
	ASSERT_EQ(0, mkt_poll(&self->pair.end[1], &wc));
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(16, wc.byte_len);
	EXPECT_EQ(htonl(0x1234), wc.imm_data);
	EXPECT_EQ(0, memcmp(self->dst, self->src, 16));
	if (variant->type != IBV_QPT_RC)
		return;
	*word = 5;
	from.length = 8;
	wr.exp_opcode = IBV_EXP_WR_ATOMIC_FETCH_AND_ADD;
	wr.wr.atomic.remote_addr = (uintptr_t)word;
	wr.wr.atomic.rkey = self->dst_mr->rkey;
	wr.wr.atomic.compare_add = 3;
	EXPECT_EQ(IBV_EXP_WC_FETCH_ADD, ran(self, wr));
	EXPECT_EQ(8, *word);
	wr.exp_opcode = IBV_EXP_WR_RDMA_READ;
	wr.wr.rdma.remote_addr = (uintptr_t)word;
	wr.wr.rdma.rkey = self->dst_mr->rkey;
	EXPECT_EQ(IBV_EXP_WC_RDMA_READ, ran(self, wr));
	EXPECT_EQ(8, *(uint64_t *)self->src);
}

/* ibv_exp_rereg_mr() changes memory and access flags */
TEST_F(exp, rereg)
{
	struct ibv_exp_rereg_mr_attr attr = {};
	struct ibv_exp_mem_region region;
	struct ibv_mr *mr;

	mr = ibv_reg_mr(self->dev[0].pd, self->src, 4096, IBV_ACCESS_LOCAL_WRITE);
	ASSERT_NE(NULL, mr);
	ASSERT_EQ(0, ibv_exp_rereg_mr(mr, IBV_EXP_REREG_MR_CHANGE_TRANSLATION |
				      IBV_EXP_REREG_MR_CHANGE_ACCESS, NULL, self->src + 8192, 4096,
				      IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_READ,
				      &attr));
	region = (struct ibv_exp_mem_region) { (uintptr_t)self->src + 8192, mr, 64 };
	EXPECT_EQ(IBV_EXP_WC_UMR, ran(self, fill_list(self, 1, 1, &region)));
	EXPECT_EQ(IBV_EXP_WC_RDMA_WRITE, ran(self, write_key(self, 2, 64, 0)));
	ASSERT_TRUE(arrived(self, 63, self->src[8192 + 63]));
	EXPECT_EQ(0, memcmp(self->dst, self->src + 8192, 64));
	attr.comp_mask = 1;
	EXPECT_EQ(EINVAL, ibv_exp_rereg_mr(mr, 0, NULL, NULL, 0, 0, &attr));
	EXPECT_EQ(EINVAL, ibv_exp_rereg_mr(mr, 1 << 16, NULL, NULL, 0, 0, NULL));
	EXPECT_EQ(EINVAL, ibv_exp_rereg_mr(mr, IBV_EXP_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
					   1ULL << 40, NULL));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
}

static bool is_mapped(void *page)
{
	unsigned char resident;

	return !mincore(page, 1, &resident);
}

/* MRs whose memory the library allocates and frees */
TEST_F(exp, allocated_memory)
{
	const uint64_t access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_ALLOCATE_MR;
	struct ibv_exp_reg_mr_in in = {
		.pd = self->dev[0].pd,
		.length = 8192,
		.exp_access = access,
	};
	struct ibv_exp_mem_region region;
	struct ibv_mr *mr;
	void *former;

	mr = ibv_exp_reg_mr(&in);
	ASSERT_NE(NULL, mr);
	ASSERT_NE(NULL, mr->addr);
	memcpy(mr->addr, self->src, 64);
	region = (struct ibv_exp_mem_region) { (uintptr_t)mr->addr, mr, 64 };
	EXPECT_EQ(IBV_EXP_WC_UMR, ran(self, fill_list(self, 1, 1, &region)));
	EXPECT_EQ(IBV_EXP_WC_RDMA_WRITE, ran(self, write_key(self, 2, 64, 0)));
	ASSERT_TRUE(arrived(self, 63, self->src[63]));
	EXPECT_EQ(0, memcmp(self->dst, self->src, 64));
	EXPECT_EQ(IBV_EXP_WC_UMR, ran(self, invalidate(self, 3)));

	former = mr->addr;
	ASSERT_EQ(0, ibv_exp_rereg_mr(mr, IBV_EXP_REREG_MR_CHANGE_TRANSLATION |
				      IBV_EXP_REREG_MR_CHANGE_ACCESS, NULL, NULL, 16384, access,
				      NULL));
	EXPECT_NE(former, mr->addr);
	EXPECT_FALSE(is_mapped(former));
	EXPECT_EQ(16384, mr->length);
	former = mr->addr;
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_FALSE(is_mapped(former));
}

TEST_F(exp, queries)
{
	struct ibv_exp_device_attr attr = {
		.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS | IBV_EXP_DEVICE_ATTR_UMR |
			     IBV_EXP_DEVICE_ATTR_COMP_MASK_2 | 1 << 29,
		.comp_mask_2 = IBV_EXP_DEVICE_ATTR_UMR_FIXED_SIZE_CAPS | 1 << 1,
	};
	struct ibv_exp_mkey_attr mkey = {};
	struct ibv_device_attr device;

	ASSERT_EQ(0, ibv_query_device(self->dev[0].ctx, &device));
	ASSERT_EQ(0, ibv_exp_query_device(self->dev[0].ctx, &attr));
	EXPECT_STREQ(device.fw_ver, attr.fw_ver);
	EXPECT_EQ(device.max_qp, attr.max_qp);
	EXPECT_EQ(device.max_srq_sge, attr.max_srq_sge);
	EXPECT_EQ(device.phys_port_cnt, attr.phys_port_cnt);
	/* bits of what this interface does not have are cleared */
	EXPECT_EQ(IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS | IBV_EXP_DEVICE_ATTR_UMR |
		  IBV_EXP_DEVICE_ATTR_COMP_MASK_2, attr.comp_mask);
	EXPECT_EQ(IBV_EXP_DEVICE_ATTR_UMR_FIXED_SIZE_CAPS, attr.comp_mask_2);
	EXPECT_TRUE(attr.exp_device_cap_flags & IBV_EXP_DEVICE_UMR);
	EXPECT_TRUE(attr.exp_device_cap_flags & IBV_EXP_DEVICE_UMR_FIXED_SIZE);
	EXPECT_TRUE(attr.exp_device_cap_flags & IBV_EXP_DEVICE_MR_ALLOCATE);
	EXPECT_EQ(device.device_cap_flags, (uint32_t)attr.exp_device_cap_flags);
	EXPECT_EQ(self->dev[0].caps.max_entries, attr.umr_caps.max_klm_list_size);
	EXPECT_EQ(self->dev[0].caps.max_depth, attr.umr_caps.max_umr_recursion_depth);
	EXPECT_EQ(1, attr.umr_caps.max_umr_stride_dimension);
	EXPECT_LE(MAX_KLMS, attr.umr_caps.max_send_wqe_inline_klms);
	EXPECT_EQ(1ULL << 31, attr.umr_fixed_size_caps.max_entity_size);

	EXPECT_EQ(0, ibv_exp_query_mkey(self->key, &mkey));
	EXPECT_EQ(MAX_ENTRIES, mkey.max_klm_list_size);
	EXPECT_EQ(EINVAL, ibv_exp_query_mkey(self->src_mr, &mkey));
	mkey.comp_mask = 1;
	EXPECT_EQ(EINVAL, ibv_exp_query_mkey(self->key, &mkey));
}

TEST_HARNESS_MAIN
