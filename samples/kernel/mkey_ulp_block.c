// SPDX-License-Identifier: GPL-2.0
/*
 * Reads blocks of a block device into device memory and sends them from there to another
 * node. If the device memory is that of a controller (class p2p), neither step accesses
 * the RAM of the host.
 */

#include <linux/blkdev.h>
#include <linux/bio.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <rdma/ib_mkey.h>

#include "mkey_ulp.h"

#define LEN (64 * 1024)
/* An offset in the block device and one in the device memory; 0 would test less. */
#define SECTOR 24
#define DM_OFFSET 4096

/* Hands the scatterlist to the block device and waits. */
static int read_blocks(struct block_device *bdev, struct sg_table *sgt, sector_t sector)
{
	struct scatterlist *sg;
	struct bio *bio;
	int i, ret = 0;

	bio = bio_alloc(bdev, sgt->orig_nents, REQ_OP_READ, GFP_KERNEL);
	bio->bi_iter.bi_sector = sector;
	for_each_sgtable_sg(sgt, sg, i)
		if (bio_add_page(bio, sg_page(sg), sg->length, sg->offset) != sg->length)
			ret = -EINVAL;
	ret = ret ?: submit_bio_wait(bio);
	bio_put(bio);

	return ret;
}

/* Reads the blocks into RAM for a comparison. */
static int read_plainly(struct block_device *bdev, void *to, sector_t sector)
{
	struct scatterlist sg;
	struct sg_table sgt = { .sgl = &sg, .nents = 1, .orig_nents = 1 };

	sg_init_one(&sg, to, LEN);
	return read_blocks(bdev, &sgt, sector);
}

static int is_p2p(struct sg_table *sgt)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_sg(sgt, sg, i)
		if (!is_pci_p2pdma_page(sg_page(sg)))
			return 0;
	return 1;
}

/* Writes the bytes from the device memory to the peer by one request. */
static int send(struct ulp_link *link, struct ib_mr *mr, u64 addr, u32 rkey)
{
	struct ib_sge sge = { .addr = addr, .length = LEN, .lkey = mr->lkey };
	struct ib_rdma_wr wr = {
		.wr = { .opcode = IB_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 },
		.rkey = rkey,
	};
	enum ib_wc_status status;
	int ret;

	ret = ulp_run(&link->side[0], &wr.wr, &status);
	return ret ?: status == IB_WC_SUCCESS ? 0 : -EIO;
}

/* Makes a key over RAM of the peer by the local DMA lkey, so the RAM needs no MR. */
static struct ib_mr *expose(struct ib_pd *pd, u64 addr)
{
	struct ib_sge all = { .addr = addr, .length = LEN, .lkey = pd->local_dma_lkey };
	struct ib_mr *mkey = ib_alloc_mkey(pd, 1);
	int ret;

	if (IS_ERR(mkey))
		return mkey;
	ret = ib_bind_mkey_list(mkey, &all, 1, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE);
	if (!ret)
		return mkey;
	ib_dereg_mr(mkey);
	return ERR_PTR(ret);
}

static int blocks(struct ulp_link *link, struct block_device *bdev, struct ib_dm *dm, bool p2p)
{
	struct ib_device *there = link->side[1].device;
	u8 *expected = kmalloc(LEN, GFP_KERNEL), *came = kzalloc(LEN, GFP_KERNEL);
	struct sg_table sgt;
	struct ib_mr *mr, *mkey;
	u64 addr;
	int ret;

	ret = expected && came ? 0 : -ENOMEM;
	ret = ret ?: read_plainly(bdev, expected, SECTOR);
	if (ret)
		goto free;
	ret = ib_dm_to_sgt(dm, DM_OFFSET, LEN, &sgt);
	if (ret)
		goto free;
	ret = -EIO;
	if (p2p && !is_p2p(&sgt))
		pr_err("mkey_ulp: the memory is not that of a PCI device\n");
	else
		ret = read_blocks(bdev, &sgt, SECTOR);
	sg_free_table(&sgt);
	if (ret)
		goto free;

	mr = ib_reg_dm_mr(link->side[0].pd, dm, 0, DM_OFFSET + LEN, IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(mr)) {
		ret = PTR_ERR(mr);
		goto free;
	}
	addr = ib_dma_map_single(there, came, LEN, DMA_BIDIRECTIONAL);
	mkey = expose(link->side[1].pd, addr);
	ret = PTR_ERR_OR_ZERO(mkey);
	if (!ret) {
		ret = send(link, mr, DM_OFFSET, mkey->rkey);
		ib_dereg_mr(mkey);
	}
	ib_dma_unmap_single(there, addr, LEN, DMA_BIDIRECTIONAL);
	ib_dereg_mr(mr);
	if (!ret && memcmp(came, expected, LEN)) {
		pr_err("mkey_ulp: other bytes came than the device holds\n");
		ret = -EIO;
	}
free:
	kfree(came);
	kfree(expected);
	return ret;
}

/**
 * ulp_block() - send blocks of @path through device memory
 * @link: connected sides
 * @path: block device
 * @class: class of device memory, as for ib_alloc_dm_class()
 *
 * Return: 0, or an errno if a byte is not in its place.
 */
int ulp_block(struct ulp_link *link, const char *path, u64 class)
{
	struct ib_dm_alloc_attr attr = { .length = DM_OFFSET + LEN };
	bool p2p = class & IB_UVERBS_MKEY_DM_P2P;
	struct file *file;
	struct ib_dm *dm;
	int ret;

	file = bdev_file_open_by_path(path, BLK_OPEN_READ, NULL, NULL);
	if (IS_ERR(file))
		return PTR_ERR(file);
	ret = -EOPNOTSUPP;
	if (p2p && !blk_queue_pci_p2pdma(bdev_get_queue(file_bdev(file))))
		goto close;
	dm = ib_alloc_dm_class(link->side[0].device, &attr, class);
	if (IS_ERR(dm)) {
		ret = PTR_ERR(dm);
		goto close;
	}
	ret = blocks(link, file_bdev(file), dm, p2p);
	if (ib_free_dm(dm))
		ret = ret ?: -EBUSY;
close:
	bdev_fput(file);
	return ret;
}
