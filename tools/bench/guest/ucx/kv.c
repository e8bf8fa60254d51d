// SPDX-License-Identifier: GPL-2.0
/*
 * The group kv by UCX, in mkey_bench_ucx: a ucp_put_nbx() for each piece, and one flush. Both
 * workers are in this process.
 */
#include <err.h>

#include <ucp/api/ucp.h>

#include "kv_cache.h"

static struct {
	ucp_context_h context[2];
	ucp_worker_h worker[2];
	ucp_ep_h ep;
	ucp_mem_h memh[2][MAX_LAYERS];
	ucp_rkey_h rkey[MAX_LAYERS];
} ucx;

static void ucs_must(ucs_status_t status, const char *what)
{
	if (status != UCS_OK)
		errx(1, "%s: %s", what, ucs_status_string(status));
}

static void open_workers(void)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_RMA,
	};
	ucp_worker_params_t single = {};
	ucp_address_t *address;
	ucp_config_t *config;
	size_t length;

	ucs_must(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
	for (int s = NEAR; s <= FAR; s++) {
		ucs_must(ucp_init(&params, config, &ucx.context[s]), "ucp_init");
		ucs_must(ucp_worker_create(ucx.context[s], &single, &ucx.worker[s]),
			 "ucp_worker_create");
	}
	ucp_config_release(config);
	ucs_must(ucp_worker_get_address(ucx.worker[FAR], &address, &length),
		 "ucp_worker_get_address");
	ucp_ep_params_t to = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
		.address = address,
	};
	ucs_must(ucp_ep_create(ucx.worker[NEAR], &to, &ucx.ep), "ucp_ep_create");
	ucp_worker_release_address(ucx.worker[FAR], address);
}

static void wait_for(ucs_status_ptr_t request, const char *what)
{
	ucs_status_t status = UCS_OK;

	if (UCS_PTR_IS_ERR(request))
		ucs_must(UCS_PTR_STATUS(request), what);
	if (!request)
		return;
	do {
		ucp_worker_progress(ucx.worker[NEAR]);
		ucp_worker_progress(ucx.worker[FAR]);
		status = ucp_request_check_status(request);
	} while (status == UCS_INPROGRESS);
	ucp_request_free(request);
	ucs_must(status, what);
}

void kv_ucx_put(void *context)
{
	static ucs_status_ptr_t requests[MAX_IDS * MAX_LAYERS];
	ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_MEMH };
	const struct kv *kv = context;
	unsigned int n = 0;

	for (unsigned int i = 0; i < kv->num_ids; i++)
		for (unsigned int l = 0; l < kv->shape->layers; l++) {
			param.memh = ucx.memh[NEAR][l];
			requests[n++] = ucp_put_nbx(ucx.ep, piece(kv, NEAR, i, l), kv->width[l],
						    (uintptr_t)piece(kv, FAR, i, l), ucx.rkey[l],
						    &param);
		}
	param.op_attr_mask = 0;
	wait_for(ucp_ep_flush_nbx(ucx.ep, &param), "ucp_ep_flush_nbx");
	while (n--)
		wait_for(requests[n], "ucp_put_nbx");
}

void kv_ucx_open(const struct kv *kv)
{
	if (!ucx.ep)
		open_workers();
	for (unsigned int l = 0; l < kv->shape->layers; l++) {
		size_t length;
		void *packed;

		for (int s = NEAR; s <= FAR; s++) {
			ucp_mem_map_params_t map = {
				.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
					      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
				.address = kv->cache[s].memory[l],
				.length = kv->blocks * kv->width[l],
			};
			ucs_must(ucp_mem_map(ucx.context[s], &map, &ucx.memh[s][l]), "ucp_mem_map");
		}
		ucs_must(ucp_rkey_pack(ucx.context[FAR], ucx.memh[FAR][l], &packed, &length),
			 "ucp_rkey_pack");
		ucs_must(ucp_ep_rkey_unpack(ucx.ep, packed, &ucx.rkey[l]), "ucp_ep_rkey_unpack");
		ucp_rkey_buffer_release(packed);
	}
}

void kv_ucx_close(const struct kv *kv)
{
	for (unsigned int l = 0; l < kv->shape->layers; l++) {
		ucp_rkey_destroy(ucx.rkey[l]);
		for (int s = NEAR; s <= FAR; s++)
			ucs_must(ucp_mem_unmap(ucx.context[s], ucx.memh[s][l]), "ucp_mem_unmap");
	}
}
