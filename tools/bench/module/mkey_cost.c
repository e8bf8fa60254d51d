// SPDX-License-Identifier: GPL-2.0
/*
 * Measures fast registration as a ULP uses it: map a list of pages, REG_MR, WRITE or READ by the
 * MR, LOCAL_INV. MRs with gaps (IB_MR_TYPE_SG_GAPS, of ib_mkey) are compared with those that rxe
 * has itself (IB_MR_TYPE_MEM_REG), over the same pages. Each byte is checked once.
 *
 * Loading the module measures, and writes a record of tools/bench for each way to the kernel log.
 */

#include <linux/completion.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/seq_buf.h>
#include <linux/slab.h>

/* Only the last request of each chain has a completion, so that the program wakes up once. */
#include <rdma/ib_verbs.h>
#define IB_SIGNAL_ALL_WR IB_SIGNAL_REQ_WR

#include "mkey_ulp_client.c"
#include "mkey_ulp_link.c"

static char *device = "rxe0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "RDMA device that registers and posts the requests");

static char *peer = "rxe1";
module_param(peer, charp, 0444);
MODULE_PARM_DESC(peer, "RDMA device that has the other memory");

static uint repetitions = 7;
module_param(repetitions, uint, 0444);
MODULE_PARM_DESC(repetitions, "Number of measurements of each way, at most 32");

#define MAX_PAGES 256
#define MAX_REPETITIONS 32
#define TIMES 8

enum access { ACCESS_NONE, ACCESS_WRITE, ACCESS_READ };
static const char *const access_names[] = { "no access", "WRITE", "READ" };

static const enum ib_mr_type types[] = { IB_MR_TYPE_MEM_REG, IB_MR_TYPE_SG_GAPS };
static const char *const type_names[] = { "mem_reg", "sg_gaps" };

struct cost {
	struct ulp_link link;
	struct ib_mr *mr[ARRAY_SIZE(types)];
	struct page *page[MAX_PAGES];
	struct scatterlist sg[MAX_PAGES];
	int pages;
	u8 *far;
	u64 far_addr;
	struct ib_mr *far_mr;
	struct completion done;
};

static void on_completion(struct ib_cq *cq, void *context)
{
	struct cost *cost = context;

	complete(&cost->done);
}

/* Maps the pages to @mr, registers it, moves all bytes by it and invalidates it. */
static int once(struct cost *cost, struct ib_mr *mr, enum access access)
{
	struct ulp_side *here = &cost->link.side[0];
	struct ib_sge sge = { .length = cost->pages * PAGE_SIZE };
	struct ib_send_wr inv = { .opcode = IB_WR_LOCAL_INV, .send_flags = IB_SEND_SIGNALED };
	struct ib_rdma_wr rdma = {
		.wr = {
			.next = &inv,
			.opcode = access == ACCESS_READ ? IB_WR_RDMA_READ : IB_WR_RDMA_WRITE,
			.sg_list = &sge,
			.num_sge = 1,
		},
		.remote_addr = cost->far_mr->iova,
		.rkey = cost->far_mr->rkey,
	};
	struct ib_reg_wr reg = {
		.wr = { .next = access ? &rdma.wr : &inv, .opcode = IB_WR_REG_MR },
		.mr = mr,
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE,
	};
	struct ib_wc wc;
	int ret;

	ret = ib_map_mr_sg(mr, cost->sg, cost->pages, NULL, PAGE_SIZE);
	if (ret != cost->pages)
		return ret < 0 ? ret : -EIO;
	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey));
	reg.key = mr->rkey;
	sge.addr = mr->iova;
	sge.lkey = mr->lkey;
	inv.ex.invalidate_rkey = mr->rkey;
	reinit_completion(&cost->done);
	ib_req_notify_cq(here->cq, IB_CQ_NEXT_COMP);
	ret = ib_post_send(here->qp, &reg.wr, NULL);
	if (ret)
		return ret;
	if (!wait_for_completion_timeout(&cost->done, 60 * HZ))
		return -ETIMEDOUT;
	if (ib_poll_cq(here->cq, 1, &wc) != 1)
		return -EIO;
	if (wc.status != IB_WC_SUCCESS)
		pr_err("mkey_cost: a request completed with status %d\n", wc.status);

	return wc.status == IB_WC_SUCCESS && wc.opcode == IB_WC_LOCAL_INV ? 0 : -EIO;
}

/* Moves bytes there and back, and compares them. */
static int check(struct cost *cost, struct ib_mr *mr)
{
	int i, j, ret;

	for (i = 0; i < cost->pages; i++) {
		u8 *page = page_address(cost->page[i]);

		for (j = 0; j < PAGE_SIZE; j++)
			page[j] = i * 31 + j * 7 + j / 256;
	}
	memset(cost->far, 0, cost->pages * PAGE_SIZE);
	ret = once(cost, mr, ACCESS_WRITE);
	for (i = 0; i < cost->pages && !ret; i++) {
		if (memcmp(cost->far + i * PAGE_SIZE, page_address(cost->page[i]), PAGE_SIZE))
			ret = -EIO;
		memset(page_address(cost->page[i]), 0, PAGE_SIZE);
	}
	ret = ret ?: once(cost, mr, ACCESS_READ);
	for (i = 0; i < cost->pages && !ret; i++)
		if (memcmp(cost->far + i * PAGE_SIZE, page_address(cost->page[i]), PAGE_SIZE))
			ret = -EIO;

	return ret;
}

static void print_record(const char *group, const char *name, const char *way, int size,
			 const u64 *ns)
{
	char line[600];
	struct seq_buf text;
	uint i;

	seq_buf_init(&text, line, sizeof(line));
	seq_buf_printf(&text, "{\"record\":\"series\",\"group\":\"%s\",\"name\":\"%s\",",
		       group, name);
	seq_buf_printf(&text, "\"way\":\"%s\",\"size\":%d,\"amount\":%d,\"unit\":\"operations\",",
		       way, size, TIMES);
	for (i = 0; i < repetitions; i++)
		seq_buf_printf(&text, "%s%llu", i ? "," : "\"ns\":[", ns[i]);
	pr_info("mkey_cost: %s]}\n", seq_buf_str(&text));
}

static int measure(struct cost *cost, enum access access)
{
	u64 ns[ARRAY_SIZE(types)][MAX_REPETITIONS];
	int way, i, ret = 0;
	uint repetition;
	u64 start;

	for (repetition = 0; repetition < repetitions; repetition++)
		for (way = 0; way < ARRAY_SIZE(types) && !ret; way++) {
			start = ktime_get_ns();
			for (i = 0; i < TIMES && !ret; i++)
				ret = once(cost, cost->mr[way], access);
			ns[way][repetition] = ktime_get_ns() - start;
		}
	for (way = 0; way < ARRAY_SIZE(types) && !ret; way++)
		print_record("ulp", access_names[access], type_names[way], cost->pages, ns[way]);

	return ret;
}

/* Each element of the list is one page. */
static int measure_pages(struct cost *cost, int pages)
{
	struct ib_device *here = cost->link.side[0].device;
	int i, ret = 0;

	cost->pages = pages;
	sg_init_table(cost->sg, pages);
	for (i = 0; i < pages; i++)
		sg_set_page(&cost->sg[i], cost->page[i], PAGE_SIZE, 0);
	if (ib_dma_map_sg(here, cost->sg, pages, DMA_BIDIRECTIONAL) != pages)
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(types) && !ret; i++)
		ret = check(cost, cost->mr[i]);
	ret = ret ?: measure(cost, ACCESS_NONE) ?: measure(cost, ACCESS_WRITE) ?:
	      measure(cost, ACCESS_READ);
	ib_dma_unmap_sg(here, cost->sg, pages, DMA_BIDIRECTIONAL);

	return ret;
}

/* Registers the peer's memory, by its own queue. */
static int register_far(struct cost *cost)
{
	struct ulp_side *there = &cost->link.side[1];
	struct ib_reg_wr reg = {
		.wr = { .opcode = IB_WR_REG_MR, .send_flags = IB_SEND_SIGNALED },
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE,
	};
	enum ib_wc_status status;
	struct scatterlist sg;
	struct ib_mr *mr;
	int ret;

	mr = ib_alloc_mr(there->pd, IB_MR_TYPE_MEM_REG, MAX_PAGES);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	cost->far_mr = mr;
	sg_init_one(&sg, cost->far, MAX_PAGES * PAGE_SIZE);
	if (ib_dma_map_sg(there->device, &sg, 1, DMA_BIDIRECTIONAL) != 1)
		return -ENOMEM;
	if (ib_map_mr_sg(mr, &sg, 1, NULL, PAGE_SIZE) != 1)
		return -EIO;
	reg.mr = mr;
	reg.key = mr->rkey;
	ret = ulp_run(there, &reg.wr, &status);

	return ret ?: status == IB_WC_SUCCESS ? 0 : -EIO;
}

static int all(struct cost *cost)
{
	struct ulp_side *here = &cost->link.side[0];
	struct ib_mr *mr;
	int i, pages, ret;

	cost->far = alloc_pages_exact(MAX_PAGES * PAGE_SIZE, GFP_KERNEL | __GFP_ZERO);
	if (!cost->far)
		return -ENOMEM;
	for (i = 0; i < MAX_PAGES; i++) {
		cost->page[i] = alloc_page(GFP_KERNEL);
		if (!cost->page[i])
			return -ENOMEM;
	}
	for (i = 0; i < ARRAY_SIZE(types); i++) {
		mr = ib_alloc_mr(here->pd, types[i], MAX_PAGES);
		if (IS_ERR(mr))
			return PTR_ERR(mr);
		cost->mr[i] = mr;
	}
	ret = register_far(cost);
	init_completion(&cost->done);
	here->cq->comp_handler = on_completion;
	here->cq->cq_context = cost;
	for (pages = 1; pages <= MAX_PAGES && !ret; pages *= 4)
		ret = measure_pages(cost, pages);

	return ret;
}

static int run(struct ib_device *devices[2])
{
	struct cost *cost = kvzalloc_obj(*cost);
	int i, ret;

	if (!cost)
		return -ENOMEM;
	ret = ulp_link_open(&cost->link, devices);
	if (ret)
		goto free;
	ret = all(cost);
	for (i = 0; i < ARRAY_SIZE(types); i++)
		if (cost->mr[i])
			ib_dereg_mr(cost->mr[i]);
	if (cost->far_mr)
		ib_dereg_mr(cost->far_mr);
	ulp_link_close(&cost->link);
	for (i = 0; i < MAX_PAGES; i++)
		if (cost->page[i])
			__free_page(cost->page[i]);
	if (cost->far)
		free_pages_exact(cost->far, MAX_PAGES * PAGE_SIZE);
free:
	kvfree(cost);
	return ret;
}

static int __init mkey_cost_init(void)
{
	repetitions = clamp(repetitions, 1u, (uint)MAX_REPETITIONS);

	return ulp_client_run("mkey_cost", device, peer, run);
}
module_init(mkey_cost_init);

static void __exit mkey_cost_exit(void)
{
}
module_exit(mkey_cost_exit);

MODULE_DESCRIPTION("Measures fast registration of lists of pages");
MODULE_LICENSE("GPL");
