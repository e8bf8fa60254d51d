// SPDX-License-Identifier: GPL-2.0
/*
 * A device that uses device memory by a dma-buf. It maps the dma-buf that the
 * process which loads the module has as descriptor fd=, inverts every byte, and
 * keeps the mapping until the memory is freed, or with hold=1 until the module is
 * unloaded.
 */

#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/platform_device.h>

static int fd = -1;
module_param(fd, int, 0444);
MODULE_PARM_DESC(fd, "File descriptor of the dma-buf");

static bool hold;
module_param(hold, bool, 0444);
MODULE_PARM_DESC(hold, "Keep the mapping when the memory is freed");

static bool revoked;
module_param(revoked, bool, 0444);
MODULE_PARM_DESC(revoked, "The memory was freed (output)");

static struct platform_device *device;
static struct dma_buf *dmabuf;
static struct dma_buf_attachment *attachment;
static struct sg_table *table;

/* Called with the dma-buf's reservation lock held. */
static void importer_invalidate(struct dma_buf_attachment *attach)
{
	revoked = true;
	if (hold || !table)
		return;
	dma_buf_unmap_attachment(attach, table, DMA_BIDIRECTIONAL);
	table = NULL;
}

static const struct dma_buf_attach_ops importer_ops = {
	.allow_peer2peer = true,
	.invalidate_mappings = importer_invalidate,
};

/* Does what a device would do; this one uses the processor. */
static int invert(void)
{
	struct sg_page_iter iter;
	size_t bytes = 0, i;

	for_each_sgtable_page(table, &iter, 0) {
		u8 *page = kmap_local_page(sg_page_iter_page(&iter));

		for (i = 0; i < PAGE_SIZE; i++)
			page[i] = ~page[i];
		kunmap_local(page);
		bytes += PAGE_SIZE;
	}

	return bytes == dmabuf->size ? 0 : -EIO;
}

static int __init mkey_importer_init(void)
{
	int ret;

	dmabuf = dma_buf_get(fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	device = platform_device_register_simple("mkey_importer", PLATFORM_DEVID_NONE, NULL, 0);
	if (IS_ERR(device)) {
		ret = PTR_ERR(device);
		goto put;
	}
	ret = dma_coerce_mask_and_coherent(&device->dev, DMA_BIT_MASK(64));
	if (ret)
		goto unregister;
	attachment = dma_buf_dynamic_attach(dmabuf, &device->dev, &importer_ops, NULL);
	if (IS_ERR(attachment)) {
		ret = PTR_ERR(attachment);
		goto unregister;
	}

	dma_resv_lock(dmabuf->resv, NULL);
	table = dma_buf_map_attachment(attachment, DMA_BIDIRECTIONAL);
	ret = PTR_ERR_OR_ZERO(table);
	if (!ret)
		ret = invert();
	if (ret && !IS_ERR(table))
		dma_buf_unmap_attachment(attachment, table, DMA_BIDIRECTIONAL);
	dma_resv_unlock(dmabuf->resv);
	if (!ret)
		return 0;

	dma_buf_detach(dmabuf, attachment);
unregister:
	platform_device_unregister(device);
put:
	dma_buf_put(dmabuf);
	return ret;
}
module_init(mkey_importer_init);

static void __exit mkey_importer_exit(void)
{
	dma_resv_lock(dmabuf->resv, NULL);
	if (table)
		dma_buf_unmap_attachment(attachment, table, DMA_BIDIRECTIONAL);
	dma_resv_unlock(dmabuf->resv);
	dma_buf_detach(dmabuf, attachment);
	platform_device_unregister(device);
	dma_buf_put(dmabuf);
}
module_exit(mkey_importer_exit);

MODULE_DESCRIPTION("Test of a device that uses RDMA device memory by dma-buf");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("DMA_BUF");
