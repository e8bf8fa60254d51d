// SPDX-License-Identifier: GPL-2.0

#include <linux/blkdev.h>
#include <linux/dax.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/gfp.h>
#include <linux/ioport.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/pci-p2pdma.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

/*
 * Allocates zeroed pages in a vmalloc'ed area, at a physical address that is a multiple of
 * 1 << @order pages: the first pages are one block. They are charged to the caller's cgroup. If
 * there are too few, the OOM killer does not run, because their owner can do without them. The
 * kernel crate has no name for __GFP_RETRY_MAYFAIL.
 */
__rust_helper void *rust_helper_valloc_aligned(int node, bool strict, unsigned int order,
					       unsigned int count)
{
	gfp_t flags = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_RETRY_MAYFAIL | __GFP_NOWARN |
		      (strict ? __GFP_THISNODE : 0);
	struct page **pages, *block;
	unsigned int i, n = 0;
	void *area;

	pages = kvmalloc_array(count, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return NULL;
	block = alloc_pages_node(node, flags, order);
	if (!block)
		goto err;
	if (order)
		split_page(block, order);
	for (i = 0; i < 1U << order; i++) {
		if (n < count)
			pages[n++] = block + i;
		else
			__free_page(block + i);
	}
	while (n < count) {
		pages[n] = alloc_pages_node(node, flags, 0);
		if (!pages[n])
			goto err;
		n++;
	}
	/* vfree() of the area frees the pages and the array. */
	area = vmap(pages, count, VM_MAP | VM_MAP_PUT_PAGES, PAGE_KERNEL);
	if (area)
		return area;

err:
	while (n)
		__free_page(pages[--n]);
	kvfree(pages);
	return NULL;
}

__rust_helper unsigned long rust_helper_ram_pages(void)
{
	return totalram_pages();
}

__rust_helper bool rust_helper_node_has_memory(int node)
{
	return node >= 0 && node < MAX_NUMNODES && node_state(node, N_MEMORY);
}

__rust_helper void rust_helper_vfree(const void *area)
{
	vfree(area);
}

__rust_helper unsigned long rust_helper_page_to_pfn(struct page *page)
{
	return page_to_pfn(page);
}

__rust_helper struct page *rust_helper_virt_to_page(const void *address)
{
	return virt_to_page(address);
}

/*
 * Returns NULL for an address without a page, and for a page that the kernel does not map
 * itself.
 */
__rust_helper struct page *rust_helper_page_of_mapping(const void *address)
{
	unsigned long pfn;
	struct page *page;

	/*
	 * memremap() and ioremap() map addresses without a page. vmalloc_to_page() does not
	 * detect these.
	 */
	if (is_vmalloc_addr(address))
		pfn = vmalloc_to_pfn(address);
	else if (virt_addr_valid(address))
		pfn = PHYS_PFN(__pa(address));
	else
		return NULL;
	if (!pfn_valid(pfn))
		return NULL;
	page = pfn_to_page(pfn);
	/*
	 * Holes between RAM, such as memory that firmware reserved, have pages too, which are
	 * reserved. So are pages of devices, and those of RAM that the kernel took at boot.
	 */
	if (PageReserved(page) && !is_zone_device_page(page) && !page_is_ram(pfn))
		return NULL;
	return page;
}

__rust_helper bool rust_helper_dma_buf_is_writable(struct dma_buf *buf)
{
	return buf->file->f_mode & FMODE_WRITE;
}

/* Returns the size of the BAR that contains memory of pci_alloc_p2pmem(). */
__rust_helper u64 rust_helper_pci_p2pmem_bar_size(struct pci_dev *pdev, const void *address)
{
	phys_addr_t at = virt_to_phys((void *)address);
	struct resource *bar;
	int i;

	pci_dev_for_each_resource(pdev, bar, i)
		if (at >= bar->start && at <= bar->end)
			return resource_size(bar);
	return 0;
}

__rust_helper int rust_helper_pci_p2pdma_distance(struct pci_dev *provider,
						  struct device *client)
{
	return pci_p2pdma_distance(provider, client, true);
}

/* Returns true while the driver is bound. It is false before the driver takes the pages away. */
__rust_helper bool rust_helper_dax_is_alive(struct dax_device *dax)
{
	int id = dax_read_lock();
	bool alive = dax_alive(dax);

	dax_read_unlock(id);
	return alive;
}

/*
 * Keeps the driver of a device from taking its pages away until put_dev_pagemap(). Returns
 * NULL if the driver has taken them, or waits to take them.
 */
__rust_helper struct dev_pagemap *rust_helper_hold_device_memory(const void *address)
{
	return get_dev_pagemap(PHYS_PFN(__pa(address)));
}

__rust_helper void rust_helper_put_dev_pagemap(struct dev_pagemap *pages)
{
	put_dev_pagemap(pages);
}

struct open_disk {
	struct work_struct work;
	const char *name;
	void *holder;
	struct file *file;
};

static void open_disk(struct work_struct *work)
{
	struct open_disk *open = container_of(work, struct open_disk, work);
	struct block_device *bdev;
	struct device *device;
	struct gendisk *any;
	int err = 0;

	/* The class of disks is not exported, but every disk refers to it. */
	any = blk_alloc_disk(NULL, NUMA_NO_NODE);
	if (IS_ERR(any)) {
		open->file = ERR_CAST(any);
		return;
	}
	device = class_find_device_by_name(disk_to_dev(any)->class, open->name);
	put_disk(any);
	if (!device) {
		open->file = ERR_PTR(-ENOENT);
		return;
	}
	open->file = bdev_file_open_by_dev(device->devt, BLK_OPEN_READ | BLK_OPEN_WRITE,
					   open->holder, NULL);
	put_device(device);
	if (IS_ERR(open->file))
		return;
	bdev = file_bdev(open->file);
	/* By now, another device may have this number. */
	if (bdev_is_partition(bdev) || strcmp(bdev->bd_disk->disk_name, open->name))
		err = -ENODEV;
	else if (bdev_read_only(bdev))
		err = -EACCES;
	if (err) {
		bdev_fput(open->file);
		open->file = ERR_PTR(err);
	}
}

/*
 * Opens a whole disk by the kernel's name of it, and finds its DAX device and the address of its
 * memory, which must have pages. A kernel thread opens it, without a path: the /dev of the calling
 * process and its permissions do not matter.
 *
 * The caller releases the DAX device by fs_put_dax() and the file by bdev_fput().
 */
__rust_helper struct file *rust_helper_dax_open_disk(const char *name, void *holder,
						     struct dax_device **dax,
						     void **address, u32 *pages)
{
	struct open_disk open = {
		.name = name,
		.holder = holder,
	};
	struct block_device *bdev;
	long found;
	u64 start;
	int id;

	INIT_WORK_ONSTACK(&open.work, open_disk);
	schedule_work(&open.work);
	flush_work(&open.work);
	destroy_work_on_stack(&open.work);
	if (IS_ERR(open.file))
		return open.file;

	bdev = file_bdev(open.file);
	found = -EOPNOTSUPP;
	*dax = fs_dax_get_by_bdev(bdev, &start, NULL, NULL);
	if (!*dax)
		goto err_file;
	id = dax_read_lock();
	found = dax_direct_access(*dax, start >> PAGE_SHIFT, bdev_nr_bytes(bdev) >> PAGE_SHIFT,
				  DAX_ACCESS, address, NULL);
	dax_read_unlock(id);
	if (found < 0)
		goto err_dax;
	*pages = found;
	if (*pages == found && found && virt_addr_valid(*address) &&
	    is_zone_device_page(virt_to_page(*address)))
		return open.file;
	found = -EOPNOTSUPP;

err_dax:
	fs_put_dax(*dax, NULL);
err_file:
	bdev_fput(open.file);
	return ERR_PTR(found);
}

__rust_helper unsigned int rust_helper_dma_get_max_seg_size(struct device *device)
{
	return dma_get_max_seg_size(device);
}

__rust_helper bool rust_helper_vma_is_shared(struct vm_area_struct *vma)
{
	return (vma->vm_flags & (VM_SHARED | VM_MAYSHARE)) == (VM_SHARED | VM_MAYSHARE);
}

/*
 * Prepares a mapping of memory that only its driver owns. @uncached says whether the
 * kernel's own mapping is uncached, because both must have the same attributes.
 * VM_PFNMAP would hide the pages from /proc/pid/pagemap.
 */
__rust_helper void rust_helper_vma_set_device_memory(struct vm_area_struct *vma, bool uncached)
{
	vm_flags_set(vma, VM_MIXEDMAP | VM_DONTEXPAND | VM_DONTDUMP | (uncached ? VM_IO : 0));
	if (uncached)
		vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
}
