// SPDX-License-Identifier: GPL-2.0
/* Keys and queue pairs that change or are destroyed while requests are in the queue. */

#include <linux/delay.h>
#include <linux/kprobes.h>

#include "mkey_reg.h"

/* The attempts to bind a key by REG_MR that were refused. */
static atomic_t refused;

static int count_refused(struct kretprobe_instance *call, struct pt_regs *regs)
{
	if (regs_return_value(regs))
		atomic_inc(&refused);

	return 0;
}

static struct kretprobe attempts = {
	.kp.symbol_name = "ib_mkey_rxe_reg_mkey",
	.handler = count_refused,
};

/* Waits until an attempt was refused. */
static int wait_refused(void)
{
	unsigned long end = jiffies + 60 * HZ;

	while (!atomic_read(&refused) && time_before(jiffies, end))
		usleep_range(100, 200);

	return atomic_read(&refused) ? 0 : -ETIMEDOUT;
}

/* Stops a queue pair from beginning requests, or undoes that once the queue pair has stopped. */
static int drain(struct ulp_side *side, bool stop)
{
	struct ib_qp_attr attr = { .qp_state = stop ? IB_QPS_SQD : IB_QPS_RTS };
	unsigned long end = jiffies + 60 * HZ;
	int ret;

	do {
		usleep_range(10, 20);
		ret = ib_modify_qp(side->qp, &attr, IB_QP_STATE);
	} while (ret && time_before(jiffies, end));

	return ret;
}

/* Stages there's first byte. Returns the key. */
static struct ib_mr *staged_key(struct reg_side *there)
{
	struct ib_sge one = reg_range(there, 0, 1);
	struct ib_mr *key = ib_alloc_mkey(there->side->pd, 1);
	int ret;

	if (IS_ERR(key))
		return key;
	ret = ib_map_mkey_list(key, &one, 1);
	if (!ret)
		return key;
	ib_dereg_mr(key);

	return ERR_PTR(ret);
}

/* Posts a request to bind @key to what is staged. */
static noinline_for_stack int post_bind(struct reg_side *there, struct ib_mr *key)
{
	struct reg_chain chain = {};

	reg_bind(&chain, key, key->rkey, REG_ACCESS);
	return reg_post(there->side, &chain);
}

/* Posts a LOCAL_INV. */
static noinline_for_stack int post_inv(struct reg_side *there, u32 rkey)
{
	struct reg_chain chain = {};

	reg_inv(&chain, rkey);
	return reg_post(there->side, &chain);
}

/* The key is deregistered before the request executes, or before it is flushed. */
static int key_goes(struct reg_test *test, bool flush)
{
	struct reg_side *there = &test->there;
	struct ib_qp_attr error = { .qp_state = IB_QPS_ERR };
	struct ib_mr *key = staged_key(there);
	struct ib_wc wc;
	u32 rkey;

	expect(!IS_ERR(key));
	rkey = key->rkey;
	expect(!drain(there->side, true));
	expect(!post_bind(there, key));
	expect(!ib_dereg_mr(key));
	if (flush)
		expect(!ib_modify_qp(there->side->qp, &error, IB_QP_STATE));
	else
		expect(!drain(there->side, false));
	/* rxe looks at the queue again when a request is posted. */
	expect(!post_inv(there, rkey));
	expect(!module_wait(there->side, &wc));
	/* If the state changes while rxe looks at the request, rxe refuses it. */
	expect(wc.status == IB_WC_WR_FLUSH_ERR || (!flush && wc.status == IB_WC_LOC_QP_OP_ERR));
	expect(!module_wait(there->side, &wc));
	expect_is(wc.status, IB_WC_WR_FLUSH_ERR);

	return ulp_link_connect(&test->link);
}

/*
 * The queue pair is destroyed while a request to bind a bound key waits for a request that is never
 * answered. The key keeps its binding. There is memory at @addr.
 */
static noinline_for_stack int queue_goes(struct ulp_link *link, u64 addr)
{
	struct ulp_side *here = &link->side[0], *there = &link->side[1];
	struct ib_qp_attr reset = { .qp_state = IB_QPS_RESET };
	struct reg_chain bind = {}, chain = {};
	struct ib_sge some = { .addr = addr, .length = 3, .lkey = there->pd->local_dma_lkey };
	struct ib_mr *key;
	u32 bound, next;

	key = ib_alloc_mkey(there->pd, 1);
	expect(!IS_ERR(key));
	bound = key->rkey;
	expect(!ib_map_mkey_list(key, &some, 1));
	reg_bind(&bind, key, bound, REG_ACCESS);
	expect(!reg_run(there, &bind));
	expect_is(bind.status[0], IB_WC_SUCCESS);
	expect(key->length == 3);

	next = reg_next_key(key);
	some.length = 5;
	expect(!ib_map_mkey_list(key, &some, 1));
	expect(!ib_modify_qp(here->qp, &reset, IB_QP_STATE));
	reg_rdma(&chain, IB_WR_RDMA_WRITE, 0, bound, 1, 0, 0x12345678);
	reg_bind(&chain, key, next, REG_ACCESS);
	reg_inv(&chain, next);
	expect(!reg_post(there, &chain));
	ib_destroy_qp(there->qp);
	there->qp = NULL;
	expect(key->length == 3);

	return ib_dereg_mr(key);
}

/* The destruction of a queue pair, by a work item. */
struct destruction {
	struct work_struct work;
	struct ib_qp *qp;
};

static void destroy_qp(struct work_struct *work)
{
	ib_destroy_qp(container_of(work, struct destruction, work)->qp);
}

/*
 * A work item of a queue with WQ_MEM_RECLAIM destroys a queue pair while rxe executes its requests.
 * The kernel warns if the destruction flushes rxe's queue, which has not that flag: memory reclaim
 * must not wait for it. check-clean finds the warning.
 */
static noinline_for_stack int reclaim_destroys(struct ulp_link *link, u64 addr)
{
	struct workqueue_struct *queue;
	struct ulp_side *here = &link->side[0], *there = &link->side[1];
	struct ib_qp_attr reset = { .qp_state = IB_QPS_RESET };
	struct destruction destruction = { .qp = there->qp };
	struct reg_chain chain = {};
	int i;

	queue = alloc_workqueue("mkey_reg", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	expect(queue);
	expect(!ib_modify_qp(here->qp, &reset, IB_QP_STATE));
	for (i = 0; i < REG_CHAIN; i++)
		reg_rdma(&chain, IB_WR_RDMA_WRITE, addr, there->pd->local_dma_lkey, REG_LAYOUT, 0,
			 0x12345678);
	expect(!reg_post(there, &chain));
	INIT_WORK_ONSTACK(&destruction.work, destroy_qp);
	queue_work(queue, &destruction.work);
	destroy_workqueue(queue);
	destroy_work_on_stack(&destruction.work);
	there->qp = NULL;

	return 0;
}

/*
 * A request to bind an unbound key is tried before the SEND in front of it has completed. It is
 * refused, because the leaf is not bound, and tried again when the SEND has completed. The layout
 * is staged until then. No layout of another rkey takes its place.
 */
static noinline_for_stack int tried_again(struct reg_test *test)
{
	struct reg_side *here = &test->here, *there = &test->there;
	struct ib_sge one = reg_range(there, 0, 1);
	struct ib_sge room = reg_range(here, 0, 1);
	struct ib_recv_wr recv = { .sg_list = &room, .num_sge = 1 };
	struct ib_mr *leaf = ib_alloc_mkey(there->side->pd, 1);
	struct ib_mr *key = ib_alloc_mkey(there->side->pd, 1);
	struct reg_chain chain = {};
	struct ib_sge range;
	struct ib_wc wc;
	u32 rkey, i;
	int ret;

	expect(!IS_ERR(leaf) && !IS_ERR(key));
	rkey = key->rkey;
	range = (struct ib_sge){ .length = 1, .lkey = leaf->lkey };
	expect_is(ib_map_mkey_list(key, &range, 1), 0);
	reg_rdma(&chain, IB_WR_SEND, one.addr, one.lkey, 1, 0, 0);
	reg_bind(&chain, key, rkey, REG_ACCESS);
	atomic_set(&refused, 0);
	/* as it was before the last registration */
	attempts.kp.addr = NULL;
	expect_is(register_kretprobe(&attempts), 0);
	ret = reg_post(there->side, &chain) ?: wait_refused();
	unregister_kretprobe(&attempts);
	expect_is(ret, 0);
	expect(!key->length);
	for (i = 1; i < IB_MKEY_MAX_STAGED; i++) {
		reg_next_key(key);
		expect_is(ib_map_mkey_list(key, &one, 1), 0);
	}
	reg_next_key(key);
	expect_is(ib_map_mkey_list(key, &one, 1), -EBUSY);
	expect(!ib_bind_mkey_list(leaf, &one, 1, REG_ACCESS));
	expect(!ib_post_recv(here->side->qp, &recv, NULL));
	for (i = 0; i < 2; i++) {
		expect(!module_wait(there->side, &wc));
		expect_is(wc.status, IB_WC_SUCCESS);
	}
	expect(!module_wait(here->side, &wc));
	expect(key->length == 1);
	expect(!ib_dereg_mr(key));

	return ib_dereg_mr(leaf);
}

/* Destroys keys and queue pairs with requests in the queue. */
int reg_lives(struct reg_test *test)
{
	struct ib_device *devices[2] = { test->here.side->device, test->there.side->device };
	struct ulp_link link;
	int i, ret;

	ret = tried_again(test) ?: key_goes(test, false) ?: key_goes(test, true);
	if (!ret)
		ret = ulp_link_open(&link, devices);
	if (ret)
		return ret;
	ret = queue_goes(&link, test->there.addr);
	ulp_link_close(&link);
	for (i = 0; i < 30 && !ret; i++) {
		ret = ulp_link_open(&link, devices);
		if (ret)
			break;
		ret = reclaim_destroys(&link, test->there.addr);
		ulp_link_close(&link);
	}

	return ret;
}

/* Leaves a key and a queue pair behind, with requests in the queue. */
int reg_linger(struct reg_test *test)
{
	struct reg_side *there = &test->there;
	struct ib_sge one = reg_range(there, 0, 1);
	struct reg_chain chain = {};

	expect(!ib_map_mkey_list(there->key, &one, 1));
	expect(!drain(there->side, true));
	reg_bind(&chain, there->key, there->key->rkey, REG_ACCESS);
	reg_inv(&chain, there->key->rkey);

	return reg_post(there->side, &chain);
}
