// SPDX-License-Identifier: GPL-2.0
/* Queue pairs and windows: creation, requests and completions. */
#include <string.h>
#include <unistd.h>

#include "two.h"

/* before a poll says that there is nothing, it looks for a fortieth of a second */
#define POLLS 100

static struct ibv_context_ops two_next;
static struct ibv_qp *(*two_next_create_qp_ex)(struct ibv_context *ctx,
					       struct ibv_qp_init_attr_ex *attr);
static int (*two_next_complete)(struct ibv_qp_ex *qp);

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	struct two_call call = two_begin(ctx, __func__);
	struct ibv_cq *cq = TWO_NEW(&call, struct ibv_cq,
				    TWO_NEXT(ibv_create_cq)(ctx, cqe, cq_context, channel, vector));

	if (cq && !call.run)
		cq->context = ctx;
	return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct two_call call = two_begin(cq->context, __func__);
	int ret = two_end(&call, call.run ? TWO_NEXT(ibv_destroy_cq)(cq) : 0);

	return two_gone(&call, ret, cq);
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct two_call call = two_begin(pd->context, __func__);
	struct ibv_srq *srq = TWO_NEW(&call, struct ibv_srq, TWO_NEXT(ibv_create_srq)(pd, attr));

	if (srq && !call.run) {
		srq->context = pd->context;
		srq->pd = pd;
	}
	return srq;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct two_call call = two_begin(srq->context, __func__);
	int ret = two_end(&call, call.run ? TWO_NEXT(ibv_destroy_srq)(srq) : 0);

	return two_gone(&call, ret, srq);
}

typedef void (*two_op)(struct ibv_qp_ex *qp);

/* the functions of ibv_wr_*() fill in a request; the last one posts it */
static void two_ignore(struct ibv_qp_ex *qp)
{
}

static int two_complete(struct ibv_qp_ex *qp)
{
	TWO_INT(qp->qp_base.context, two_next_complete(qp));
}

static void two_hook_qp_ex(struct ibv_qp_ex *ex, bool here)
{
	two_op *op, *last = (two_op *)&ex->wr_flush;

	if (ex->wr_complete == two_complete)
		return;
	if (here)
		two_next_complete = ex->wr_complete;
	else
		for (op = (two_op *)&ex->wr_atomic_cmp_swp; op <= last; op++)
			*op = two_ignore;
	ex->wr_complete = two_complete;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct ibv_qp_ex *ex;

	if (!two_here(qp->context)) {
		ex = (struct ibv_qp_ex *)qp;
		return ex->comp_mask ? ex : NULL;
	}
	two_enter();
	ex = TWO_NEXT(ibv_qp_to_qp_ex)(qp);
	two_leave();
	if (ex && two_side() >= 0)
		two_hook_qp_ex(ex, true);
	return ex;
}

/* a stand-in with a comp_mask has the functions of ibv_wr_*() */
static struct ibv_qp *two_qp(struct two_call *call, struct ibv_qp *qp, struct ibv_pd *pd,
			     struct ibv_cq *cq, enum ibv_qp_type type, uint64_t ops)
{
	uint32_t num = qp ? qp->qp_num : 0;

	two_data(call, &num, sizeof(num));
	qp = two_object(call, qp, sizeof(struct ibv_qp_ex));
	if (qp && !call->run) {
		qp->context = pd->context;
		qp->pd = pd;
		qp->send_cq = cq;
		qp->recv_cq = cq;
		qp->qp_num = num;
		qp->qp_type = type;
		((struct ibv_qp_ex *)qp)->comp_mask = ops;
		two_hook_qp_ex((struct ibv_qp_ex *)qp, false);
	}
	return qp;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct two_call call = two_begin(pd->context, __func__);

	return two_qp(&call, call.run ? TWO_NEXT(ibv_create_qp)(pd, attr) : NULL, pd,
		      attr->send_cq, attr->qp_type, 0);
}

static struct ibv_qp *two_create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr)
{
	struct two_call call = two_begin(ctx, __func__);

	return two_qp(&call, call.run ? two_next_create_qp_ex(ctx, attr) : NULL, attr->pd,
		      attr->send_cq, attr->qp_type,
		      attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct two_call call = two_begin(qp->context, __func__);
	int ret = two_end(&call, call.run ? TWO_NEXT(ibv_destroy_qp)(qp) : 0);

	return two_gone(&call, ret, qp);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	TWO_INT(qp->context, TWO_NEXT(ibv_modify_qp)(qp, attr, mask));
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	struct two_call call = two_begin(qp->context, __func__);
	int ret = call.run ? TWO_NEXT(ibv_query_qp)(qp, attr, mask, init) : 0;

	two_data(&call, attr, sizeof(*attr));
	return two_end(&call, ret);
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct two_call call = two_begin(pd->context, __func__);
	struct ibv_ah *ah = TWO_NEW(&call, struct ibv_ah, TWO_NEXT(ibv_create_ah)(pd, attr));

	if (ah && !call.run)
		ah->context = pd->context;
	return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	struct two_call call = two_begin(ah->context, __func__);
	int ret = two_end(&call, call.run ? TWO_NEXT(ibv_destroy_ah)(ah) : 0);

	return two_gone(&call, ret, ah);
}

static int two_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	TWO_INT(qp->context, two_next.post_send(qp, wr, bad));
}

static int two_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	TWO_INT(qp->context, two_next.post_recv(qp, wr, bad));
}

static int two_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			     struct ibv_recv_wr **bad)
{
	TWO_INT(srq->context, two_next.post_srq_recv(srq, wr, bad));
}

static int two_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	struct two_call call = two_begin(cq->context, __func__);
	unsigned int i;
	int n = 0;

	for (i = 0; call.run && i < (call.shared ? POLLS : 1); i++) {
		n = two_next.poll_cq(cq, max, wc);
		if (n)
			break;
		if (call.shared)
			usleep(250);
	}
	two_data(&call, &n, sizeof(n));
	if (n > 0) {
		two_data(&call, wc, n * sizeof(*wc));
		if (call.shared)
			two_mirror();
	}
	return two_end(&call, n);
}

static struct ibv_mw *two_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct two_call call = two_begin(pd->context, __func__);
	struct ibv_mw *mw = call.run ? two_next.alloc_mw(pd, type) : NULL;
	uint32_t rkey = mw ? mw->rkey : 0;

	two_data(&call, &rkey, sizeof(rkey));
	mw = two_object(&call, mw, sizeof(*mw));
	/* ibv_alloc_mw() of libibverbs sets what a provider need not set */
	if (mw && !call.run) {
		mw->context = pd->context;
		mw->pd = pd;
		mw->type = type;
		mw->rkey = rkey;
	}
	return mw;
}

static int two_dealloc_mw(struct ibv_mw *mw)
{
	struct two_call call = two_begin(mw->context, __func__);
	int ret = two_end(&call, call.run ? two_next.dealloc_mw(mw) : 0);

	return two_gone(&call, ret, mw);
}

static int two_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct two_call call = two_begin(mw->context, __func__);
	int ret = call.run ? two_next.bind_mw(qp, mw, bind) : 0;

	two_data(&call, &mw->rkey, sizeof(mw->rkey));
	return two_end(&call, ret);
}

void two_hook_queues(struct ibv_context *ctx)
{
	struct verbs_context *vctx = verbs_get_ctx(ctx);
	struct ibv_context_ops *ops = &ctx->ops;

	if (two_here(ctx)) {
		two_next = *ops;
		two_next_create_qp_ex = vctx->create_qp_ex;
	}
	ops->post_send = two_post_send;
	ops->post_recv = two_post_recv;
	ops->post_srq_recv = two_post_srq_recv;
	ops->poll_cq = two_poll_cq;
	ops->alloc_mw = two_alloc_mw;
	ops->dealloc_mw = two_dealloc_mw;
	ops->bind_mw = two_bind_mw;
	vctx->create_qp_ex = two_create_qp_ex;
}
