// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel user that registers scatterlists with gaps and binds keys by work requests. Loading the
 * module runs it once between two devices. The module loads only if every byte was in its place and
 * everything invalid was refused. With linger=1 it leaves requests in a queue, until it is unloaded
 * or a device is removed.
 */

#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "mkey_reg.h"
#include "mkey_ulp_link.c"

static char *device = "rxe0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "RDMA device on one side");

static char *peer = "rxe1";
module_param(peer, charp, 0444);
MODULE_PARM_DESC(peer, "RDMA device on the other side");

static uint seed = 1;
module_param(seed, uint, 0444);
MODULE_PARM_DESC(seed, "Seed of the random layouts, lists and bytes");

static uint rounds = 200;
module_param(rounds, uint, 0444);
MODULE_PARM_DESC(rounds, "Number of chains of requests");

static bool linger;
module_param(linger, bool, 0444);
MODULE_PARM_DESC(linger, "Leave requests in a queue");

static bool bare;
module_param(bare, bool, 0444);
MODULE_PARM_DESC(bare, "The first device is not extended by ib_mkey");

static struct ib_device *found[2];
static struct reg_test *left;

static int open_side(struct reg_side *side, struct ulp_side *of)
{
	struct ib_mr *mr;

	side->side = of;
	side->memory = alloc_pages_exact(REG_MEMORY, GFP_KERNEL | __GFP_ZERO);
	side->expected = vzalloc(REG_MEMORY);
	if (!side->memory || !side->expected)
		return -ENOMEM;
	side->addr = ib_dma_map_single(of->device, side->memory, REG_MEMORY, DMA_BIDIRECTIONAL);
	mr = ib_alloc_mkey(of->pd, REG_ENTRIES);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	side->key = mr;
	expect(of->device->attrs.kernel_cap_flags & IBK_SG_GAPS_REG);
	mr = ib_alloc_mr(of->pd, IB_MR_TYPE_SG_GAPS, REG_ELEMENTS);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	side->mr = mr;

	return 0;
}

static int close_side(struct reg_side *side)
{
	int ret = side->key ? ib_dereg_mr(side->key) : 0;

	if (side->mr)
		ret = ib_dereg_mr(side->mr) ?: ret;
	if (side->addr)
		ib_dma_unmap_single(side->side->device, side->addr, REG_MEMORY, DMA_BIDIRECTIONAL);
	vfree(side->expected);
	if (side->memory)
		free_pages_exact(side->memory, REG_MEMORY);

	return ret;
}

static int test_close(struct reg_test *test)
{
	int ret;

	ret = close_side(&test->here);
	ret = close_side(&test->there) ?: ret;
	ulp_link_close(&test->link);
	kvfree(test);

	return ret;
}

static int run(struct ib_device *devices[2])
{
	struct reg_test *test;
	int ret, closed;

	if (bare)
		return reg_bare(devices[0]);
	test = kvzalloc_obj(*test);
	if (!test)
		return -ENOMEM;
	prandom_seed_state(&test->random, seed);
	ret = ulp_link_open(&test->link, devices);
	if (ret) {
		kvfree(test);
		return ret;
	}
	ret = open_side(&test->here, &test->link.side[0]) ?:
	      open_side(&test->there, &test->link.side[1]);
	if (!ret && linger)
		ret = reg_linger(test);
	else if (!ret)
		ret = reg_steps(test) ?: reg_refusals(test) ?: reg_lives(test) ?:
		      reg_order(test, rounds) ?: gaps_order(test);
	if (!ret && linger) {
		left = test;
		return 0;
	}
	closed = test_close(test);

	return ret ?: closed;
}

static int client_add(struct ib_device *ibdev)
{
	if (!strcmp(dev_name(&ibdev->dev), device))
		found[0] = ibdev;
	else if (!strcmp(dev_name(&ibdev->dev), peer))
		found[1] = ibdev;

	return 0;
}

/* A queue pair and a key are destroyed with requests in the queue. */
static void client_remove(struct ib_device *ibdev, void *data)
{
	struct reg_test *test = left;

	if (!test || (ibdev != found[0] && ibdev != found[1]))
		return;
	left = NULL;
	if (test_close(test))
		pr_err("mkey_reg: a key cannot be deregistered\n");
}

static struct ib_client client = {
	.name = "mkey_reg",
	.add = client_add,
	.remove = client_remove,
};

static int __init mkey_reg_init(void)
{
	int ret = ib_register_client(&client);

	if (ret)
		return ret;
	ret = found[0] && found[1] ? run(found) : -ENODEV;
	if (ret)
		ib_unregister_client(&client);

	return ret > 0 ? -EIO : ret;
}
module_init(mkey_reg_init);

static void __exit mkey_reg_exit(void)
{
	ib_unregister_client(&client);
}
module_exit(mkey_reg_exit);

MODULE_DESCRIPTION("Test of a kernel user that registers lists with gaps and keys by work requests");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("IB_MKEY");
