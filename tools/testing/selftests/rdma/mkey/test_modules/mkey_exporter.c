// SPDX-License-Identifier: GPL-2.0
/*
 * An exporter of a dma-buf for tests. The process that loads the module gets a
 * descriptor. The buffer has pages; with pages=0 it has only addresses without
 * memory. With hole=1 these are in a hole between RAM, where the kernel has pages
 * that it does not map. With hold=1, the end of a mapping blocks until hold is
 * cleared.
 */

#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/iosys-map.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sizes.h>
#include <linux/vmalloc.h>

#define EXPORTER_SIZE (4 * PAGE_SIZE)

static bool pages = true;
module_param(pages, bool, 0444);
MODULE_PARM_DESC(pages, "The buffer has pages that the kernel knows");

static bool hole;
module_param(hole, bool, 0444);
MODULE_PARM_DESC(hole, "The buffer without pages is in a hole between RAM");

static bool hold;
module_param(hold, bool, 0644);
MODULE_PARM_DESC(hold, "Block the end of a mapping while this is set");

static int fd = -1;
module_param(fd, int, 0444);
MODULE_PARM_DESC(fd, "The descriptor (output)");

static bool waiting;
module_param(waiting, bool, 0444);
MODULE_PARM_DESC(waiting, "A thread waits for the end of a mapping (output)");

static void *memory;

static struct sg_table *exporter_map(struct dma_buf_attachment *attachment,
				     enum dma_data_direction direction)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static void exporter_unmap(struct dma_buf_attachment *attachment, struct sg_table *table,
			   enum dma_data_direction direction)
{
}

static int exporter_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	iosys_map_set_vaddr(map, memory);
	return 0;
}

static void exporter_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	while (READ_ONCE(hold)) {
		WRITE_ONCE(waiting, true);
		msleep(20);
	}
	WRITE_ONCE(waiting, false);
}

static void exporter_release(struct dma_buf *dmabuf)
{
	if (pages)
		vfree(memory);
	else if (hole)
		memunmap(memory);
	else
		iounmap((void __iomem *)memory);
}

static const struct dma_buf_ops exporter_ops = {
	.map_dma_buf = exporter_map,
	.unmap_dma_buf = exporter_unmap,
	.vmap = exporter_vmap,
	.vunmap = exporter_vunmap,
	.release = exporter_release,
};

/*
 * Maps addresses above the first 4 GiB that have no memory. They are not accessed.
 */
static void *map_nothing(void)
{
	phys_addr_t at = SZ_4G;

	while (pfn_valid(PHYS_PFN(at)))
		at += SZ_128M;
	return (void __force *)ioremap(at, EXPORTER_SIZE);
}

/* Maps reserved memory in a hole between RAM. It is not accessed. */
static void *map_hole(void)
{
	unsigned long pfn, n = 0;

	for (pfn = PHYS_PFN(SZ_1M); pfn < PHYS_PFN(SZ_4G); pfn++) {
		n = pfn_valid(pfn) && !page_is_ram(pfn) ? n + 1 : 0;
		if (n == EXPORTER_SIZE >> PAGE_SHIFT)
			return memremap(PFN_PHYS(pfn + 1 - n), EXPORTER_SIZE, MEMREMAP_WB);
	}
	return ERR_PTR(-ENXIO);
}

static int __init mkey_exporter_init(void)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;

	memory = pages ? vzalloc(EXPORTER_SIZE) : hole ? map_hole() : map_nothing();
	if (IS_ERR_OR_NULL(memory))
		return memory ? PTR_ERR(memory) : -ENOMEM;
	info.ops = &exporter_ops;
	info.priv = memory;
	info.size = EXPORTER_SIZE;
	info.flags = O_RDWR;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		exporter_release(NULL);
		return PTR_ERR(dmabuf);
	}
	/* The dma-buf's release frees the memory. */
	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(dmabuf);
	return min(fd, 0);
}
module_init(mkey_exporter_init);

/* The dma-buf holds the module, so it has been released by now. */
static void __exit mkey_exporter_exit(void)
{
}
module_exit(mkey_exporter_exit);

MODULE_DESCRIPTION("Exporter of a dma-buf for the tests of ib_mkey");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("DMA_BUF");
