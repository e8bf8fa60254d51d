// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel user of fast registration over scatterlists with gaps. It does what
 * storage protocols do for each request, on a device that ib_mkey extends.
 * Loading the module runs it once between two devices. The module loads only if
 * every byte was correct, also those between the pieces.
 */

#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/prandom.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "mkey_gaps.h"

static char *device = "rxe0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "RDMA device that posts the requests");

static char *peer = "rxe1";
module_param(peer, charp, 0444);
MODULE_PARM_DESC(peer, "RDMA device that has the memory");

static uint seed = 1;
module_param(seed, uint, 0444);
MODULE_PARM_DESC(seed, "Seed of the random lists and bytes");

static uint rounds = 24;
module_param(rounds, uint, 0444);
MODULE_PARM_DESC(rounds, "Number of random lists");

/*
 * Draws a range that exists in both sides' pieces: at most all of the shorter
 * one.
 */
static void draw_range(struct gaps *gaps, u32 *here, u32 *there, u32 *length)
{
	struct rnd_state *random = gaps->random;

	*length = min(gaps->here.length, gaps->there.length);
	if (prandom_u32_state(random) % 4)
		*length = 1 + prandom_u32_state(random) % *length;
	*here = prandom_u32_state(random) % (gaps->here.length - *length + 1);
	*there = prandom_u32_state(random) % (gaps->there.length - *length + 1);
}

/*
 * One chain registers an MR, moves bytes between the pieces of both sides, and
 * invalidates the MR.
 */
static int move(struct gaps *gaps, enum ib_wr_opcode opcode)
{
	struct gaps_side *here = &gaps->here, *there = &gaps->there;
	struct gaps_chain chain = {};
	u32 here_at, there_at, length;

	draw_range(gaps, &here_at, &there_at, &length);
	ib_update_fast_reg_key(here->mr, ib_inc_rkey(here->mr->rkey));
	/* A READ writes to local memory. */
	gaps_reg(&chain, here, opcode == IB_WR_RDMA_READ ? IB_ACCESS_LOCAL_WRITE : 0);
	gaps_rdma(&chain, opcode, here->mr->iova + here_at, here->mr->lkey, length,
		  there->mr->iova + there_at, there->mr->rkey);
	gaps_inv(&chain, here->mr->rkey);
	expect(!gaps_run(here->side, &chain));
	expect(chain.status[0] == IB_WC_SUCCESS);
	expect(chain.status[1] == IB_WC_SUCCESS);
	expect(chain.status[2] == IB_WC_SUCCESS);
	if (opcode == IB_WR_RDMA_READ)
		gaps_copy(here, here_at, there, there_at, length);
	else
		gaps_copy(there, there_at, here, here_at, length);

	return gaps_same(here) ?: gaps_same(there);
}

/* Sends the bytes of the local pieces to the remote ones, and invalidates their MR. */
static int send_with_invalidate(struct gaps *gaps)
{
	struct gaps_side *here = &gaps->here, *there = &gaps->there;
	struct gaps_chain chain = {};
	u32 here_at, there_at, length;
	struct ib_recv_wr recv = { .num_sge = 1 };
	struct ib_sge into;
	struct ib_wc wc;

	draw_range(gaps, &here_at, &there_at, &length);
	into = (struct ib_sge){
		.addr = there->mr->iova + there_at,
		.length = length,
		.lkey = there->mr->lkey,
	};
	recv.sg_list = &into;
	expect(!ib_post_recv(there->side->qp, &recv, NULL));
	ib_update_fast_reg_key(here->mr, ib_inc_rkey(here->mr->rkey));
	gaps_reg(&chain, here, 0);
	gaps_send(&chain, here->mr->iova + here_at, here->mr->lkey, length);
	chain.wr[1].send.opcode = IB_WR_SEND_WITH_INV;
	chain.wr[1].send.ex.invalidate_rkey = there->mr->rkey;
	gaps_inv(&chain, here->mr->rkey);
	expect(!gaps_run(here->side, &chain));
	expect(chain.status[1] == IB_WC_SUCCESS);
	expect(chain.status[2] == IB_WC_SUCCESS);
	expect(!module_wait(there->side, &wc));
	expect(wc.status == IB_WC_SUCCESS);
	expect(wc.byte_len == length);
	expect(wc.wc_flags & IB_WC_WITH_INVALIDATE);
	expect(wc.ex.invalidate_rkey == there->mr->rkey);
	gaps_copy(there, there_at, here, here_at, length);

	return gaps_same(here) ?: gaps_same(there);
}

static int transfers(struct gaps *gaps)
{
	expect(!gaps_register(&gaps->there, GAPS_ACCESS));
	return move(gaps, IB_WR_RDMA_WRITE) ?: move(gaps, IB_WR_RDMA_READ) ?:
	       send_with_invalidate(gaps);
}

/* Draws a number of pieces, or returns the most that the MR takes. */
static int draw_count(struct gaps *gaps, uint round)
{
	if (round % 6 == 0)
		return GAPS_ELEMENTS;
	if (round % 6 == 1)
		return 1;
	return 1 + prandom_u32_state(gaps->random) % (2 << prandom_u32_state(gaps->random) % 9);
}

static int one_round(struct gaps *gaps, uint round)
{
	struct gaps_side *here = &gaps->here, *there = &gaps->there;
	int ret;

	gaps_draw(gaps, here, draw_count(gaps, round));
	gaps_draw(gaps, there, draw_count(gaps, round % 5));
	gaps_fill(gaps, here);
	gaps_fill(gaps, there);
	ret = gaps_map(here);
	if (ret < 0)
		return ret;
	expect(ret == here->nents);
	expect(here->mr->length == here->length);
	expect(here->mr->iova == sg_dma_address(here->sg));
	ret = gaps_map(there);
	if (ret == there->nents)
		ret = transfers(gaps);
	else
		ret = ret < 0 ? ret : -EIO;
	gaps_unmap(there);
	gaps_unmap(here);
	if (ret)
		pr_err("mkey_gaps: seed %u, round %u: %d and %d pieces\n", seed, round,
		       here->nents, there->nents);

	return ret;
}

/* Measures a registration and an invalidation with nothing between them. */
static int pace(struct gaps *gaps)
{
	struct gaps_side *here = &gaps->here;
	const int times = 200;
	ktime_t start;
	int i, ret = 0;

	gaps_draw(gaps, here, 8);
	expect(gaps_map(here) == 8);
	start = ktime_get();
	for (i = 0; i < times && !ret; i++) {
		struct gaps_chain chain = {};

		ib_update_fast_reg_key(here->mr, ib_inc_rkey(here->mr->rkey));
		gaps_reg(&chain, here, 0);
		gaps_inv(&chain, here->mr->rkey);
		ret = gaps_run(here->side, &chain) ?: chain.status[1];
	}
	gaps_unmap(here);
	pr_info("mkey_gaps: REG_MR and LOCAL_INV take %lld us\n",
		ktime_us_delta(ktime_get(), start) / times);

	return ret;
}

static int steps(struct gaps *gaps)
{
	uint round;
	int ret;

	ret = gaps_order(gaps) ?: gaps_refusals(gaps);
	for (round = 0; round < rounds && !ret; round++)
		ret = one_round(gaps, round);

	return ret ?: pace(gaps);
}

static int open_side(struct gaps_side *side, struct ulp_side *of)
{
	struct ib_mr *mr;

	side->side = of;
	side->memory = alloc_pages_exact(GAPS_MEMORY, GFP_KERNEL);
	side->expected = vmalloc(GAPS_MEMORY);
	if (!side->memory || !side->expected)
		return -ENOMEM;
	expect(of->device->attrs.kernel_cap_flags & IBK_SG_GAPS_REG);
	mr = ib_alloc_mr(of->pd, IB_MR_TYPE_SG_GAPS, GAPS_ELEMENTS);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	side->mr = mr;

	return 0;
}

static int close_side(struct gaps_side *side)
{
	int ret = side->mr ? ib_dereg_mr(side->mr) : 0;

	vfree(side->expected);
	if (side->memory)
		free_pages_exact(side->memory, GAPS_MEMORY);

	return ret;
}

static int gaps(struct ib_device *devices[2])
{
	struct rnd_state random;
	struct gaps *gaps;
	int ret;

	gaps = kvzalloc_obj(*gaps);
	if (!gaps)
		return -ENOMEM;
	prandom_seed_state(&random, seed);
	gaps->random = &random;
	ret = ulp_link_open(&gaps->link, devices);
	if (ret) {
		pr_err("mkey_gaps: no link from %s to %s: error %d\n", device, peer, ret);
		goto free;
	}
	ret = open_side(&gaps->here, &gaps->link.side[0]) ?:
	      open_side(&gaps->there, &gaps->link.side[1]) ?: steps(gaps);
	ret = close_side(&gaps->here) ?: ret;
	ret = close_side(&gaps->there) ?: ret;
	ulp_link_close(&gaps->link);
free:
	kvfree(gaps);
	return ret;
}

static int __init mkey_gaps_init(void)
{
	int ret = ulp_client_run("mkey_gaps", device, peer, gaps);

	if (!ret)
		pr_info("mkey_gaps: scatterlists with gaps work from %s to %s\n", device, peer);

	return ret;
}
module_init(mkey_gaps_init);

static void __exit mkey_gaps_exit(void)
{
}
module_exit(mkey_gaps_exit);

MODULE_DESCRIPTION("Test of a kernel user of fast registration with gaps");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("IB_MKEY");
