// SPDX-License-Identifier: GPL-2.0

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/memremap.h>
#include <linux/rcupdate.h>
#include <linux/scatterlist.h>

/* Opens a whole disk or a partition for one holder. */
__rust_helper struct file *rust_helper_bdev_open(dev_t number, void *holder,
						 const struct blk_holder_ops *ops)
{
	return bdev_file_open_by_dev(number, BLK_OPEN_READ | BLK_OPEN_WRITE, holder, ops);
}

/* Returns true if the disk has been marked as removed. No later removal tells its holder. */
__rust_helper bool rust_helper_bdev_is_dead(struct block_device *bdev)
{
	return test_bit(GD_DEAD, &bdev->bd_disk->state);
}

/* Waits until each task has left code that it executes without a voluntary sleep. */
__rust_helper void rust_helper_rcu_tasks_wait(void)
{
	synchronize_rcu_tasks();
}

__rust_helper sector_t rust_helper_bdev_nr_sectors(struct block_device *bdev)
{
	return bdev_nr_sectors(bdev);
}

__rust_helper unsigned int rust_helper_bdev_logical_block_size(struct block_device *bdev)
{
	return bdev_logical_block_size(bdev);
}

__rust_helper bool rust_helper_bdev_takes_peer_memory(struct block_device *bdev)
{
	return blk_queue_pci_p2pdma(bdev_get_queue(bdev));
}

__rust_helper struct bio *rust_helper_bio_alloc(struct block_device *bdev, unsigned short vecs,
						blk_opf_t op)
{
	return bio_alloc(bdev, vecs, op, GFP_NOIO);
}

/* Adds memory of the kernel's linear mapping. */
__rust_helper bool rust_helper_bio_add_linear(struct bio *bio, void *at, unsigned int len)
{
	return bio_add_page(bio, virt_to_page(at), len, offset_in_page(at)) == len;
}

/* Adds @len bytes of a scatterlist from @skip on. */
__rust_helper bool rust_helper_bio_add_list(struct bio *bio, struct scatterlist *sg,
					    unsigned int skip, unsigned int len)
{
	for (; sg && len; sg = sg_next(sg)) {
		unsigned int part;

		if (skip >= sg->length) {
			skip -= sg->length;
			continue;
		}
		part = min(sg->length - skip, len);
		if (bio_add_page(bio, sg_page(sg), part, sg->offset + skip) != part)
			return false;
		len -= part;
		skip = 0;
	}
	return !len;
}

__rust_helper bool rust_helper_sg_is_ram(struct scatterlist *sg)
{
	return !is_zone_device_page(sg_page(sg));
}

__rust_helper bool rust_helper_sg_is_peer_memory(struct scatterlist *sg)
{
	return is_pci_p2pdma_page(sg_page(sg));
}
