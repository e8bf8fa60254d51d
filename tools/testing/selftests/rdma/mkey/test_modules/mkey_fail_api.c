// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel user whose calls have their first allocation failing, then their second, and so on
 * until they succeed. What fails changes nothing. The module loads only if that is so. With
 * request=1 to 3 it posts one REG_MR, LOCAL_INV or SEND_WITH_INV instead, in which mkey_fail_add
 * has an allocation fail. Needs a kernel with fault injection.
 */

#include <linux/dma-buf.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <rdma/ib_mkey.h>

#include "mkey_module.h"
#include "mkey_ulp_client.c"
#include "mkey_ulp_link.c"

static char *device = "rxe0";
module_param(device, charp, 0444);

static char *peer = "rxe1";
module_param(peer, charp, 0444);

static uint request;
module_param(request, uint, 0444);

static bool refused;	/* the request was refused */
module_param(refused, bool, 0444);

#define ACCESS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ)
#define SIZE 65536
#define ENTRIES 300	/* more than a key has room for without an allocation */
#define OLD 8		/* bytes of the layout before each call */

struct api {
	struct ulp_link link;
	struct ib_pd *pd;
	struct ib_dm *dm;
	struct ib_mr *mr;	/* of all of it */
	struct ib_mr *key;	/* bound to OLD bytes before each call */
	struct ib_mr *fresh;	/* has never been bound */
	struct ib_mr *gaps;	/* of IB_MR_TYPE_SG_GAPS */
	struct ib_mkey_pool *pool;
	struct sg_table sgt;
	void *made;		/* by the call */
	struct ib_sge range[ENTRIES];
	u32 index[ENTRIES];
};

struct api_call {
	const char *name;
	int (*run)(struct api *api);
	int (*undo)(struct api *api);
	bool none;		/* it allocates nothing */
};

static const u64 repeat_count = 3;

static int made(struct api *api, void *object)
{
	api->made = object;
	return PTR_ERR_OR_ZERO(object);
}

static int alloc_dm(struct api *api)
{
	const struct ib_dm_alloc_attr attr = { .length = SIZE };

	return made(api, ib_alloc_dm(api->pd->device, &attr));
}

static int alloc_dm_class(struct api *api)
{
	const struct ib_dm_alloc_attr attr = { .length = SIZE };

	return made(api, ib_alloc_dm_class(api->pd->device, &attr, IB_MKEY_DM_HOST));
}

static int free_dm(struct api *api)
{
	return ib_free_dm(api->made);
}

static int reg_dm_mr(struct api *api)
{
	return made(api, ib_reg_dm_mr(api->pd, api->dm, 0, SIZE, ACCESS));
}

static int alloc_mkey(struct api *api)
{
	return made(api, ib_alloc_mkey(api->pd, ENTRIES));
}

static int alloc_gaps(struct api *api)
{
	return made(api, ib_alloc_mr(api->pd, IB_MR_TYPE_SG_GAPS, ENTRIES));
}

static int dereg(struct api *api)
{
	return ib_dereg_mr(api->made);
}

static int export_dm(struct api *api)
{
	return made(api, ib_export_dm(api->dm));
}

static int put_export(struct api *api)
{
	dma_buf_put(api->made);
	return 0;
}

static int dm_to_sgt(struct api *api)
{
	return ib_dm_to_sgt(api->dm, 0, SIZE, &api->sgt);
}

static int free_sgt(struct api *api)
{
	sg_free_table(&api->sgt);
	return 0;
}

static int create_pool(struct api *api)
{
	return made(api, ib_mkey_pool_create(api->pd, ENTRIES, 3));
}

static int destroy_pool(struct api *api)
{
	return ib_mkey_pool_destroy(api->made);
}

static int pool_get(struct api *api)
{
	api->made = ib_mkey_pool_get(api->pool);
	return api->made ? 0 : -EBADMSG;
}

static int pool_put(struct api *api)
{
	return ib_mkey_pool_put(api->pool, api->made);
}

/* pieces with gaps between them, at any addresses for the device */
static int map_gaps(struct api *api)
{
	struct scatterlist sg[2];
	int i;

	sg_init_table(sg, 2);
	for (i = 0; i < 2; i++) {
		sg_dma_address(&sg[i]) = (uintptr_t)&api->range[100 * i];
		sg_dma_len(&sg[i]) = 10;
	}
	return ib_map_mr_sg(api->gaps, sg, 2, NULL, PAGE_SIZE) == 2 ? 0 : -EBADMSG;
}

static int query_refused(struct api *api)
{
	struct ib_mkey_refused why;

	return ib_query_mkey_refused(api->key, &why);
}

static int bind_list(struct api *api)
{
	return ib_bind_mkey_list(api->key, api->range, ENTRIES, ACCESS);
}

/* ENTRIES blocks, one at each range */
static int bind_blocks(struct api *api, bool map)
{
	static struct ib_mkey_block block[ENTRIES];
	const struct ib_mkey_interleaved layout = {
		.num_dims = 1, .num_blocks = ENTRIES,
		.repeat_count = &repeat_count, .blocks = block,
	};
	int i;

	for (i = 0; i < ENTRIES; i++)
		block[i] = (struct ib_mkey_block){
			.addr = api->range[i].addr, .bytes_count = 2,
			.lkey = api->mr->lkey, .stride = { 5 },
		};
	return map ? ib_map_mkey_interleaved(api->fresh, &layout) :
		     ib_bind_mkey_interleaved(api->key, &layout, ACCESS);
}

static int bind_interleaved(struct api *api)
{
	return bind_blocks(api, false);
}

static int map_interleaved(struct api *api)
{
	return bind_blocks(api, true);
}

static struct ib_mkey_indexed indexed(struct api *api)
{
	return (struct ib_mkey_indexed){
		.unit = 20, .bytes_count = 7, .lkey = api->mr->lkey,
		.indices32 = api->index, .num_indices = ENTRIES,
	};
}

static int bind_indexed(struct api *api)
{
	const struct ib_mkey_indexed layout = indexed(api);

	return ib_bind_mkey_indexed(api->key, &layout, ACCESS);
}

static int map_indexed(struct api *api)
{
	const struct ib_mkey_indexed layout = indexed(api);

	return ib_map_mkey_indexed(api->fresh, &layout);
}

static int map_list(struct api *api)
{
	return ib_map_mkey_list(api->fresh, api->range, ENTRIES);
}

static int map_base(struct api *api)
{
	const struct ib_mkey_bind bind = {
		.mkey = api->fresh, .base_addr = SIZE,
		.sg_list = api->range, .num_sge = ENTRIES,
	};

	return ib_map_mkey(&bind);
}

/* both keys or neither */
static int bind_two(struct api *api)
{
	struct ib_mkey_bind bind[2] = {
		{ .mkey = api->key, .access = ACCESS, .sg_list = api->range, .num_sge = ENTRIES },
		{ .mkey = api->fresh, .access = ACCESS, .sg_list = api->range, .num_sge = ENTRIES },
	};
	int ret = ib_bind_mkeys(bind, 2, NULL);

	return !api->fresh->length == !!ret ? ret : -EBADMSG;
}

static int is_bound(struct api *api)
{
	return api->key->length == OLD ? -EBADMSG : 0;
}

static const struct api_call calls[] = {
	{ "ib_alloc_dm", alloc_dm, free_dm },
	{ "ib_alloc_dm_class", alloc_dm_class, free_dm },
	{ "ib_reg_dm_mr", reg_dm_mr, dereg },
	{ "ib_export_dm", export_dm, put_export },
	{ "ib_dm_to_sgt", dm_to_sgt, free_sgt },
	{ "ib_alloc_mkey", alloc_mkey, dereg },
	{ "ib_alloc_mr", alloc_gaps, dereg },
	{ "ib_mkey_pool_create", create_pool, destroy_pool },
	{ "ib_bind_mkey_list", bind_list, is_bound },
	{ "ib_bind_mkey_interleaved", bind_interleaved, is_bound },
	{ "ib_bind_mkey_indexed", bind_indexed, is_bound },
	{ "ib_bind_mkeys", bind_two, is_bound },
	{ "ib_map_mkey_list", map_list, NULL },
	{ "ib_map_mkey_interleaved", map_interleaved, NULL },
	{ "ib_map_mkey_indexed", map_indexed, NULL },
	{ "ib_map_mkey", map_base, NULL },
	{ "ib_mkey_pool_get", pool_get, pool_put, true },
	{ "ib_map_mr_sg", map_gaps, NULL, true },
	{ "ib_query_mkey_refused", query_refused, NULL, true },
};

/* makes the key of each call, and binds the other one */
static int prepare(struct api *api)
{
	struct ib_sge old = { .length = OLD, .lkey = api->mr->lkey };

	api->fresh = ib_alloc_mkey(api->pd, ENTRIES);
	if (IS_ERR(api->fresh))
		return PTR_ERR(api->fresh);
	return ib_bind_mkey_list(api->key, &old, 1, ACCESS);
}

/* makes the call with fault @nth; returns 1 if it came, 0 if not, or a negative errno */
static int call_once(struct api *api, const struct api_call *call, unsigned int nth)
{
	bool came;
	int ret;

	expect_is(prepare(api), 0);
	WRITE_ONCE(current->fail_nth, nth);
	ret = call->run(api);
	came = !READ_ONCE(current->fail_nth);
	WRITE_ONCE(current->fail_nth, 0);
	if (ret) {
		expect(came);
		expect_is(ret, -ENOMEM);
		expect(api->key->length == OLD);
	} else if (call->undo) {
		expect_is(call->undo(api), 0);
	}
	expect_is(ib_dereg_mr(api->fresh), 0);

	return came;
}

static int all_calls(struct api *api)
{
	unsigned int i, nth;
	int came;

	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		for (nth = 1, came = 1; came == 1; nth++)
			came = call_once(api, &calls[i], nth);
		pr_info("%s: %s: %u faults%s\n", KBUILD_MODNAME, calls[i].name, nth - 2,
			came ? ", the last one failed" : "");
		expect_is(came, 0);
		expect((nth > 2) == !calls[i].none);
	}

	return 0;
}

/* invalidates the key by a request, which always succeeds */
static int invalidate(struct api *api)
{
	struct ulp_side *here = &api->link.side[0], *there = &api->link.side[1];
	struct ib_send_wr inv = { .ex.invalidate_rkey = api->fresh->rkey };
	struct ib_recv_wr recv = {};
	enum ib_wc_status status;
	struct ib_wc wc;

	inv.opcode = request == 2 ? IB_WR_LOCAL_INV : IB_WR_SEND_WITH_INV;
	if (request == 3)
		expect_is(ib_post_recv(here->qp, &recv, NULL), 0);
	expect_is(ulp_run(request == 2 ? here : there, &inv, &status), 0);
	expect_is(status, IB_WC_SUCCESS);
	if (request == 3) {
		expect_is(module_wait(here, &wc), 0);
		expect(wc.status == IB_WC_SUCCESS && wc.wc_flags & IB_WC_WITH_INVALIDATE);
	}

	return 0;
}

static int one_request(struct api *api)
{
	struct ib_reg_wr reg = { .wr.opcode = IB_WR_REG_MR, .access = ACCESS };
	enum ib_wc_status status;
	int ret;

	expect_is(prepare(api), 0);
	reg.mr = api->fresh;
	reg.key = api->fresh->rkey;
	expect_is(map_list(api), 0);
	expect_is(ulp_run(&api->link.side[0], &reg.wr, &status), 0);
	refused = status != IB_WC_SUCCESS;
	ret = request > 1 ? invalidate(api) : 0;
	expect_is(ib_dereg_mr(api->fresh), 0);

	return ret;
}

static int with_key(struct api *api)
{
	int ret;

	api->key = ib_alloc_mkey(api->pd, ENTRIES);
	if (IS_ERR(api->key))
		return PTR_ERR(api->key);
	api->gaps = ib_alloc_mr(api->pd, IB_MR_TYPE_SG_GAPS, ENTRIES);
	api->pool = ib_mkey_pool_create(api->pd, ENTRIES, 1);
	ret = PTR_ERR_OR_ZERO(api->gaps) ?: PTR_ERR_OR_ZERO(api->pool);
	if (!ret)
		ret = request ? one_request(api) : all_calls(api);
	if (!IS_ERR(api->pool))
		ret = ib_mkey_pool_destroy(api->pool) ?: ret;
	if (!IS_ERR(api->gaps))
		ret = ib_dereg_mr(api->gaps) ?: ret;
	return ib_dereg_mr(api->key) ?: ret;
}

static int with_memory(struct api *api)
{
	const struct ib_dm_alloc_attr attr = { .length = SIZE };
	int i, ret;

	api->dm = ib_alloc_dm(api->pd->device, &attr);
	if (IS_ERR(api->dm))
		return PTR_ERR(api->dm);
	api->mr = ib_reg_dm_mr(api->pd, api->dm, 0, SIZE, ACCESS);
	ret = PTR_ERR_OR_ZERO(api->mr);
	for (i = 0; i < ENTRIES && !ret; i++) {
		/* not in order, so that they are not one range */
		api->index[i] = i * 7 % ENTRIES;
		api->range[i] = (struct ib_sge){
			.addr = api->index[i] * 100, .length = 50, .lkey = api->mr->lkey,
		};
	}
	if (!ret) {
		ret = with_key(api);
		ret = ib_dereg_mr(api->mr) ?: ret;
	}
	return ib_free_dm(api->dm) ?: ret;
}

static int api_run(struct ib_device *devices[2])
{
	struct api *api = kvzalloc_obj(*api);
	int ret;

	if (!api)
		return -ENOMEM;
	ret = ulp_link_open(&api->link, devices);
	if (!ret) {
		api->pd = api->link.side[0].pd;
		ret = with_memory(api);
		ulp_link_close(&api->link);
	}
	kvfree(api);

	return ret;
}

static int __init mkey_fail_api_init(void)
{
	return ulp_client_run("mkey_fail_api", device, peer, api_run);
}
module_init(mkey_fail_api_init);

static void __exit mkey_fail_api_exit(void)
{
}
module_exit(mkey_fail_api_exit);

MODULE_DESCRIPTION("Has allocations of calls of a kernel user fail, for tests of ib_mkey");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("IB_MKEY");
MODULE_IMPORT_NS("DMA_BUF");
