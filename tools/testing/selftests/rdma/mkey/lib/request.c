// SPDX-License-Identifier: GPL-2.0
/* Keys that are bound by work requests. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "request.h"

int mkt_request_init(struct mkt_request *request, struct ibv_pd *pd, size_t room)
{
	memset(request, 0, sizeof(*request));
	request->room = room;
	request->text = calloc(1, room);
	if (!request->text)
		return ENOMEM;
	request->mr = ibv_reg_mr(pd, request->text, room, IBV_ACCESS_LOCAL_WRITE);
	if (request->mr)
		return 0;
	free(request->text);
	return errno;
}

void mkt_request_free(struct mkt_request *request)
{
	if (request->mr)
		ibv_dereg_mr(request->mr);
	free(request->text);
}

int mkt_request_describe(struct mkt_request *request, const struct mkt_arena *arena,
			 const struct mkt_layout *layout)
{
	struct mkt_entries entries;
	size_t length = 0;

	if (!mkt_layout_entries(&entries, arena, layout))
		length = ibmkey_describe_at(&entries.bind, layout->first, request->text,
					    request->room);
	mkt_entries_free(&entries);
	if (!length || length > request->room) {
		mkt_diag("a description of %zu bytes in %zu bytes: %s", length, request->room,
			 strerror(errno));
		return EINVAL;
	}
	request->length = length;
	return 0;
}

void mkt_request_range(struct mkt_request *request, uint64_t mask, struct ibmkey_range range)
{
	struct ibmkey_bind bind = {
		.comp_mask = mask,
		.kind = IBMKEY_LIST,
		.num_entries = 1,
		.ranges = &range,
	};

	request->length = ibmkey_describe(&bind, request->text, request->room);
}

struct ibmkey_wr mkt_request_wr(const struct mkt_request *request, struct ibv_mr *key)
{
	return (struct ibmkey_wr){
		.mkey = key,
		.access = MKT_ACCESS_ALL,
		.length = request->length,
		.mr = request->mr,
		.addr = (uintptr_t)request->text,
	};
}

int mkt_request_status(struct mkt_qp *qp, const struct ibmkey_wr *wr)
{
	struct ibv_wc wc;
	int err;

	err = ibmkey_post_bind(qp->qp, wr, 77, IBV_SEND_SIGNALED);
	if (!err)
		err = mkt_poll(qp, &wc);
	if (err) {
		mkt_diag("bind by request: %s", strerror(err));
		return -1;
	}
	if (wc.wr_id != 77 || (!wc.status && wc.opcode != IBV_WC_BIND_MW)) {
		mkt_diag("completion of request %lu, opcode %d", (long)wc.wr_id, wc.opcode);
		return -1;
	}
	return wc.status;
}

int mkt_request_inline(struct mkt_qp *qp, const struct ibmkey_wr *wr)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp->qp);
	struct ibmkey_wr inlined = *wr;
	struct ibv_wc wc;
	int err;

	inlined.mr = NULL;
	ibv_wr_start(ex);
	ex->wr_id = 77;
	ex->wr_flags = IBV_SEND_SIGNALED;
	err = ibmkey_wr_bind(ex, &inlined);
	if (err) {
		ibv_wr_abort(ex);
	} else {
		err = ibv_wr_complete(ex);
		if (!err)
			err = mkt_poll(qp, &wc);
	}
	if (err) {
		mkt_diag("bind by an inline request: %s", strerror(err));
		return -1;
	}
	return wc.status;
}
