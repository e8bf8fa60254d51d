// SPDX-License-Identifier: GPL-2.0
/*
 * A ULP in C that uses device memory and keys. It shows which functions to call, in
 * which order. Loading the module runs it once between two devices. The module loads
 * if every byte was where it should be, and fails to load otherwise.
 */

#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <rdma/ib_mkey.h>

#include "mkey_ulp.h"
#include "mkey_ulp_expect.h"

static char *device = "rxe0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "RDMA device that posts the requests");

static char *peer = "rxe1";
module_param(peer, charp, 0444);
MODULE_PARM_DESC(peer, "RDMA device that has the memory");

#define ALL_ACCESS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | \
		    IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC)
#define DM_LEN 4096
#define HOST_LEN 4096

/* Blocks of the strided key: a column of a matrix. */
#define BLOCK 16
#define STRIDE 48
#define BLOCKS 32

struct ulp {
	struct ulp_link link;
	/* The side that posts requests. */
	struct ulp_side *here;
	u8 *host;
	u64 host_addr;
	/* The side of the peer, whose memory the requests access. */
	struct ulp_side *there;
	struct ib_dm *dm;
	struct ib_mr *dm_mr;
	struct ib_mr *mkey;
	u8 *matrix;
	u64 matrix_addr;
};

static int transfer(struct ulp_side *side, enum ib_wr_opcode opcode, u64 addr,
		    u32 length, u32 lkey, u64 remote_addr, u32 rkey)
{
	struct ib_sge sge = { .addr = addr, .length = length, .lkey = lkey };
	struct ib_rdma_wr wr = {
		.wr = { .opcode = opcode, .sg_list = &sge, .num_sge = 1 },
		.remote_addr = remote_addr,
		.rkey = rkey,
	};
	enum ib_wc_status status;
	int ret;

	ret = ulp_run(side, &wr.wr, &status);
	return ret ?: status;
}

/* Reads device memory through a scatterlist of its pages. */
static int pages(struct ulp *ulp)
{
	const u64 offset = 100, length = DM_LEN - 200;
	struct scatterlist *sg;
	struct sg_table sgt;
	u64 sum = 0;
	u8 byte;
	int i;

	expect(ib_dm_to_sgt(ulp->dm, 0, 0, &sgt) == -EINVAL);
	expect(ib_dm_to_sgt(ulp->dm, 1, DM_LEN, &sgt) == -EINVAL);
	expect(ib_dm_to_sgt(ulp->dm, U64_MAX, 2, &sgt) == -EINVAL);
	expect(!ib_dm_to_sgt(ulp->dm, offset, length, &sgt));
	for_each_sgtable_sg(&sgt, sg, i)
		sum += sg->length;
	*(u8 *)sg_virt(sgt.sgl) = 77;
	sg_free_table(&sgt);
	expect(sum == length);
	expect(!ib_memcpy_from_dm(&byte, ulp->dm, offset, 1));
	expect(byte == 77);

	return 0;
}

/* Counts in device memory: the other node adds to the counter, and this host reads it. */
static int counter(struct ulp *ulp)
{
	struct ib_sge sge = {
		.addr = ulp->host_addr,
		.length = sizeof(u64),
		.lkey = ulp->here->pd->local_dma_lkey,
	};
	struct ib_atomic_wr wr = {
		.wr = {
			.opcode = IB_WR_ATOMIC_FETCH_AND_ADD,
			.sg_list = &sge,
			.num_sge = 1,
		},
		.compare_add = 7,
		.rkey = ulp->dm_mr->rkey,
	};
	enum ib_wc_status status;
	u64 value = 5;

	expect(!ib_memcpy_to_dm(ulp->dm, 0, &value, sizeof(value)));
	expect(!ulp_run(ulp->here, &wr.wr, &status));
	expect(status == IB_WC_SUCCESS);
	expect(*(u64 *)ulp->host == 5);
	expect(!ib_memcpy_from_dm(&value, ulp->dm, 0, sizeof(value)));
	expect(value == 12);

	return 0;
}

/* Moves bytes by the lkey and by the rkey of device memory. */
static int staging(struct ulp *ulp)
{
	u32 lkey = ulp->here->pd->local_dma_lkey;
	u8 bytes[100];
	int i;

	for (i = 0; i < 100; i++)
		ulp->host[i] = i + 1;
	expect(!transfer(ulp->here, IB_WR_RDMA_WRITE, ulp->host_addr, 100, lkey, 1001,
			 ulp->dm_mr->rkey));
	expect(!ib_memcpy_from_dm(bytes, ulp->dm, 1001, sizeof(bytes)));
	expect(!memcmp(bytes, ulp->host, sizeof(bytes)));

	return 0;
}

/* The peer stages bytes in device memory, and sends them from there by the lkey. */
static int sending(struct ulp *ulp)
{
	struct ib_sge into = {
		.addr = ulp->host_addr,
		.length = 100,
		.lkey = ulp->here->pd->local_dma_lkey,
	};
	struct ib_sge from = { .addr = 1001, .length = 100, .lkey = ulp->dm_mr->lkey };
	struct ib_recv_wr recv = { .sg_list = &into, .num_sge = 1 };
	struct ib_send_wr send = {
		.opcode = IB_WR_SEND,
		.sg_list = &from,
		.num_sge = 1,
	};
	enum ib_wc_status status;
	struct ib_wc wc;
	u8 staged[100];

	expect(!ib_memcpy_from_dm(staged, ulp->dm, 1001, sizeof(staged)));
	memset(ulp->host, 0, 100);
	expect(!ib_post_recv(ulp->here->qp, &recv, NULL));
	expect(!ulp_run(ulp->there, &send, &status));
	expect(status == IB_WC_SUCCESS);
	while (!ib_poll_cq(ulp->here->cq, 1, &wc))
		cond_resched();
	expect(wc.status == IB_WC_SUCCESS);
	expect(!memcmp(staged, ulp->host, sizeof(staged)));

	return 0;
}

/* Copies a column of a matrix by a key over the local DMA lkey: one address and one length. */
static int column(struct ulp *ulp)
{
	static const u64 repeat_count = BLOCKS;
	struct ib_mkey_block block = {
		.addr = ulp->matrix_addr,
		.bytes_count = BLOCK,
		.lkey = ulp->there->pd->local_dma_lkey,
		.stride = { STRIDE },
	};
	struct ib_mkey_interleaved layout = {
		.num_dims = 1,
		.num_blocks = 1,
		.repeat_count = &repeat_count,
		.blocks = &block,
	};
	int i;

	for (i = 0; i < HOST_LEN; i++) {
		ulp->host[i] = i * 3 + 1;
		ulp->matrix[i] = 0;
	}
	expect(!ib_bind_mkey_interleaved(ulp->mkey, &layout, ALL_ACCESS));
	expect(!transfer(ulp->here, IB_WR_RDMA_WRITE, ulp->host_addr, BLOCK * BLOCKS,
			 ulp->here->pd->local_dma_lkey, 0, ulp->mkey->rkey));
	for (i = 0; i < HOST_LEN; i++) {
		int row = i / STRIDE, byte = i % STRIDE;
		bool inside = row < BLOCKS && byte < BLOCK;

		expect(ulp->matrix[i] == (inside ? ulp->host[row * BLOCK + byte] : 0));
	}

	return 0;
}

/* Binds device memory and host memory to one key, then unbinds the key. */
static int composite(struct ulp *ulp)
{
	u32 lkey = ulp->here->pd->local_dma_lkey;
	struct ib_sge parts[] = {
		{ .addr = 10, .length = 20, .lkey = ulp->dm_mr->lkey },
		{
			.addr = ulp->matrix_addr + 5,
			.length = 30,
			.lkey = ulp->there->pd->local_dma_lkey,
		},
	};
	u8 head[20];
	int i;

	for (i = 0; i < 20; i++)
		head[i] = 100 + i;
	for (i = 0; i < 30; i++)
		ulp->matrix[5 + i] = 200 + i;
	expect(!ib_memcpy_to_dm(ulp->dm, 10, head, sizeof(head)));
	expect(!ib_bind_mkey_list(ulp->mkey, parts, ARRAY_SIZE(parts), ALL_ACCESS));
	/* An MR cannot be freed while the key describes it. */
	expect(ib_free_dm(ulp->dm) == -EBUSY);
	expect(!transfer(ulp->here, IB_WR_RDMA_READ, ulp->host_addr, 50, lkey, 0,
			 ulp->mkey->rkey));
	expect(!memcmp(ulp->host, head, 20));
	expect(!memcmp(ulp->host + 20, ulp->matrix + 5, 30));

	expect(!ib_unbind_mkey(ulp->mkey));
	expect(transfer(ulp->here, IB_WR_RDMA_READ, ulp->host_addr, 50, lkey, 0,
			ulp->mkey->rkey) == IB_WC_REM_ACCESS_ERR);

	return ulp_link_connect(&ulp->link);
}

/* Each refused call returns its errno. */
static int refusals(struct ulp *ulp)
{
	struct ib_dm_alloc_attr none = { .length = 0 };
	struct ib_dm_alloc_attr much = { .length = U32_MAX };
	struct ib_dm_alloc_attr more = { .length = 1ULL << 32 };
	struct ib_dm_alloc_attr flag = { .length = 1, .flags = IB_MKEY_DM_HOST };
	struct ib_dm_alloc_attr byte_of_class = { .length = 1 };
	struct ib_sge nothing = { .addr = 0, .length = 1, .lkey = 0xfffffe00 };
	struct ib_sge outside = { .addr = DM_LEN, .length = 1, .lkey = ulp->dm_mr->lkey };
	struct ib_mkey_caps caps;
	u64 dm_class;
	u8 byte = 0;

	expect(!ib_query_mkey_caps(ulp->there->device, &caps));
	expect(caps.max_dm_size == ulp->there->device->attrs.max_dm_size);
	expect(PTR_ERR(ib_alloc_dm(ulp->there->device, &none)) == -EINVAL);
	expect(PTR_ERR(ib_alloc_dm(ulp->there->device, &much)) == -ENOMEM);
	expect(PTR_ERR(ib_alloc_dm(ulp->there->device, &more)) == -EINVAL);
	expect(PTR_ERR(ib_alloc_dm(ulp->there->device, &flag)) == -EINVAL);
	expect(PTR_ERR(ib_alloc_dm_class(ulp->there->device, &byte_of_class,
					 IB_MKEY_DM_HOST | 1 << 8)) == -EINVAL);
	expect(PTR_ERR(ib_alloc_dm_class(ulp->there->device, &byte_of_class,
					 IB_MKEY_DM_P2P(0x10000, 0, 1))) == -EOPNOTSUPP);
	expect(PTR_ERR(ib_alloc_dm_class(ulp->there->device, &byte_of_class,
					 IB_MKEY_DM_P2P(0, 0, 1) | IB_MKEY_DM_COHERENT)) ==
	       -EOPNOTSUPP);
	/* RAM is coherent. */
	expect(!ib_query_dm_class(ulp->dm, &dm_class));
	expect(dm_class & IB_MKEY_DM_COHERENT);
	expect(PTR_ERR(ib_reg_dm_mr(ulp->there->pd, ulp->dm, 1, DM_LEN, ALL_ACCESS)) == -EINVAL);
	expect(PTR_ERR(ib_reg_dm_mr(ulp->there->pd, ulp->dm, U64_MAX, 2, ALL_ACCESS)) == -EINVAL);
	/* RAM is not persistent. The memory can be freed later, so no MR is counted. */
	expect(PTR_ERR(ib_reg_dm_mr(ulp->there->pd, ulp->dm, 0, DM_LEN,
				    IB_ACCESS_FLUSH_PERSISTENT)) == -EOPNOTSUPP);
	expect(ib_memcpy_to_dm(ulp->dm, DM_LEN, &byte, 1) == -EINVAL);
	expect(ib_memcpy_from_dm(&byte, ulp->dm, U64_MAX, 1) == -EINVAL);
	expect(ib_bind_mkey_list(ulp->mkey, &nothing, 1, ALL_ACCESS) == -ENOENT);
	expect(ib_bind_mkey_list(ulp->mkey, &outside, 1, ALL_ACCESS) == -ERANGE);
	expect(ib_bind_mkey_list(ulp->mkey, &outside, 3, ALL_ACCESS) == -ENOSPC);
	expect(ib_bind_mkey_list(ulp->mkey, &outside, 1, IB_ACCESS_REMOTE_WRITE) == -EINVAL);
	expect(ib_unbind_mkey(ulp->dm_mr) == -EINVAL);

	return 0;
}

static int ulp_steps(struct ulp *ulp)
{
	struct ib_dm_alloc_attr attr = { .length = DM_LEN };
	int ret;

	ulp->dm = ib_alloc_dm(ulp->there->device, &attr);
	if (IS_ERR(ulp->dm))
		return PTR_ERR(ulp->dm);
	ulp->dm_mr = ib_reg_dm_mr(ulp->there->pd, ulp->dm, 0, DM_LEN, ALL_ACCESS);
	if (IS_ERR(ulp->dm_mr)) {
		ret = PTR_ERR(ulp->dm_mr);
		goto free_dm;
	}
	ulp->mkey = ib_alloc_mkey(ulp->there->pd, 2);
	if (IS_ERR(ulp->mkey)) {
		ret = PTR_ERR(ulp->mkey);
		goto dereg_dm;
	}

	ret = pages(ulp) ?: counter(ulp) ?: staging(ulp) ?: sending(ulp) ?: column(ulp) ?:
	      composite(ulp) ?: refusals(ulp) ?:
	      ulp_keys(ulp->there->pd, ulp->dm) ?:
	      ulp_limits(ulp->there->pd, ulp->matrix_addr);

	ib_dereg_mr(ulp->mkey);
dereg_dm:
	ib_dereg_mr(ulp->dm_mr);
free_dm:
	if (ib_free_dm(ulp->dm)) {
		pr_err("mkey_ulp: device memory is still in use\n");
		ret = ret ?: -EBUSY;
	}

	return ret;
}

static int ulp(struct ib_device *devices[2])
{
	struct ulp ulp = {};
	int ret = -ENOMEM;

	ulp.here = &ulp.link.side[0];
	ulp.there = &ulp.link.side[1];
	ulp.host = kzalloc(HOST_LEN, GFP_KERNEL);
	ulp.matrix = kzalloc(HOST_LEN, GFP_KERNEL);
	if (!ulp.host || !ulp.matrix)
		goto free;
	ret = ulp_link_open(&ulp.link, devices);
	if (ret) {
		pr_err("mkey_ulp: no link from %s to %s: error %d\n", device, peer, ret);
		goto free;
	}

	ulp.host_addr = ib_dma_map_single(devices[0], ulp.host, HOST_LEN, DMA_BIDIRECTIONAL);
	ulp.matrix_addr = ib_dma_map_single(devices[1], ulp.matrix, HOST_LEN,
					    DMA_BIDIRECTIONAL);
	ret = ulp_steps(&ulp);
	ib_dma_unmap_single(devices[1], ulp.matrix_addr, HOST_LEN, DMA_BIDIRECTIONAL);
	ib_dma_unmap_single(devices[0], ulp.host_addr, HOST_LEN, DMA_BIDIRECTIONAL);
	ulp_link_close(&ulp.link);
free:
	kfree(ulp.matrix);
	kfree(ulp.host);
	return ret;
}

static int __init mkey_ulp_init(void)
{
	int ret = ulp_client_run("mkey_ulp", device, peer, ulp);

	if (!ret)
		pr_info("mkey_ulp: device memory and keys work from %s to %s\n", device,
			peer);

	return ret;
}
module_init(mkey_ulp_init);

static void __exit mkey_ulp_exit(void)
{
}
module_exit(mkey_ulp_exit);

MODULE_DESCRIPTION("Sample of a kernel user of RDMA device memory and memory keys");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("IB_MKEY");
