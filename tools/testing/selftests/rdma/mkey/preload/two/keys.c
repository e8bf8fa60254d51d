// SPDX-License-Identifier: GPL-2.0
/* Protection domains, MRs and keys. */
#include <string.h>

#include "two.h"

/* the numbers of an MR that calls change */
struct two_numbers {
	uint32_t lkey, rkey, handle;
	uint64_t length;
};

/* gives the other machine the numbers of @mr; before two_end() */
void two_mr(const struct two_call *call, struct ibv_mr *mr)
{
	struct two_numbers n = {};

	if (mr)
		n = (struct two_numbers){ mr->lkey, mr->rkey, mr->handle, mr->length };
	two_data(call, &n, sizeof(n));
	if (!call->shared || call->run || !mr)
		return;
	mr->lkey = n.lkey;
	mr->rkey = n.rkey;
	mr->handle = n.handle;
	mr->length = n.length;
}

struct ibv_mr *two_new_mr(struct two_call *call, struct ibv_mr *mr, struct ibv_pd *pd,
			  void *addr, size_t length)
{
	struct ibv_mr far = {};
	bool shared = call->shared;

	two_mr(call, call->run ? mr : &far);
	mr = two_object(call, mr, sizeof(*mr));
	if (mr && !call->run) {
		*mr = far;
		mr->context = pd->context;
		mr->pd = pd;
		mr->addr = addr;
	}
	if (mr && shared && addr)
		two_memory(call->side, addr, length);
	return mr;
}

/* the addresses of work requests are those of both machines */
static void two_same_place(const struct two_call *call, const void *addr)
{
	uintptr_t theirs = (uintptr_t)addr;

	two_data(call, &theirs, sizeof(theirs));
	if (call->shared && theirs != (uintptr_t)addr)
		two_fail("memory that is registered is at 0x%lx there, at %p here", theirs, addr);
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct two_call call = two_begin(ctx, __func__);
	struct ibv_pd *pd = TWO_NEW(&call, struct ibv_pd, TWO_NEXT(ibv_alloc_pd)(ctx));

	if (pd && !call.run)
		pd->context = ctx;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct two_call call = two_begin(pd->context, __func__);
	int ret = two_end(&call, call.run ? TWO_NEXT(ibv_dealloc_pd)(pd) : 0);

	return two_gone(&call, ret, pd);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct two_call call = two_begin(pd->context, __func__);

	two_same_place(&call, addr);
	return two_new_mr(&call, call.run ? TWO_NEXT(ibv_reg_mr)(pd, addr, length, access) : NULL,
			  pd, addr, length);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       int access)
{
	struct two_call call = two_begin(pd->context, __func__);

	two_same_place(&call, addr);
	return two_new_mr(&call, call.run ? TWO_NEXT(ibv_reg_mr_iova)(pd, addr, length, iova,
								      access) : NULL,
			  pd, addr, length);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	struct two_call call = two_begin(pd->context, __func__);

	two_same_place(&call, addr);
	return two_new_mr(&call, call.run ? TWO_NEXT(ibv_reg_mr_iova2)(pd, addr, length, iova,
								       access) : NULL,
			  pd, addr, length);
}

struct ibv_mr *ibmkey_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
				    uint64_t iova, int fd, int access)
{
	struct two_call call = two_begin(pd->context, __func__);

	return two_new_mr(&call, call.run ? TWO_NEXT(ibmkey_reg_dmabuf_mr)(pd, offset, length, iova,
									   fd, access) : NULL,
			  pd, NULL, length);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct two_call call = two_begin(mr->context, __func__);
	void *addr = mr->addr;
	size_t length = mr->length;
	int ret = two_end(&call, call.run ? TWO_NEXT(ibv_dereg_mr)(mr) : 0);

	if (!ret && call.shared && addr)
		two_memory_gone(call.side, addr, length);
	return two_gone(&call, ret, mr);
}

/* a call that may change the length, the lkey and the rkey of a key */
#define TWO_KEY(key, call) do {						\
	struct two_call two_call = two_begin((key)->context, __func__);	\
	int two_ret = two_call.run ? (call) : 0;			\
									\
	two_mr(&two_call, key);						\
	return two_end(&two_call, two_ret);				\
} while (0)

struct ibv_mr *ibmkey_alloc(struct ibv_pd *pd, uint32_t max_entries)
{
	struct two_call call = two_begin(pd->context, __func__);

	return two_new_mr(&call, call.run ? TWO_NEXT(ibmkey_alloc)(pd, max_entries) : NULL, pd,
			  NULL, 0);
}

struct ibv_mr *ibmkey_alloc_ex(struct ibv_pd *pd, const struct ibmkey_alloc_attr *attr)
{
	struct two_call call = two_begin(pd->context, __func__);

	return two_new_mr(&call, call.run ? TWO_NEXT(ibmkey_alloc_ex)(pd, attr) : NULL, pd, NULL,
			  0);
}

struct ibv_mr *ibmkey_reg_iov(struct ibv_pd *pd, const struct iovec *iov, uint32_t num_iov,
			      int access)
{
	struct two_call call;

	if (!pd)
		return TWO_NEXT(ibmkey_reg_iov)(pd, iov, num_iov, access);
	call = two_begin(pd->context, __func__);
	return two_new_mr(&call, call.run ? TWO_NEXT(ibmkey_reg_iov)(pd, iov, num_iov, access) :
			  NULL, pd, NULL, 0);
}

int ibmkey_dereg(struct ibv_mr *mkey)
{
	struct two_call call;
	int ret;

	if (!mkey)
		return TWO_NEXT(ibmkey_dereg)(mkey);
	call = two_begin(mkey->context, __func__);
	ret = call.run ? TWO_NEXT(ibmkey_dereg)(mkey) : 0;
	/* it may stay, unbound */
	two_mr(&call, !call.run || ret ? mkey : NULL);
	ret = two_end(&call, ret);
	return two_gone(&call, ret, mkey);
}

int ibmkey_bind_list(struct ibv_mr *mkey, unsigned int access, uint32_t num,
		     const struct ibmkey_range *ranges)
{
	TWO_KEY(mkey, TWO_NEXT(ibmkey_bind_list)(mkey, access, num, ranges));
}

int ibv_rereg_mr_sg(struct ibv_mr *mkey, unsigned int access, uint32_t num,
		    const struct ibv_sge *sg_list)
{
	TWO_KEY(mkey, TWO_NEXT(ibv_rereg_mr_sg)(mkey, access, num, sg_list));
}

int ibmkey_bind_interleaved(struct ibv_mr *mkey, unsigned int access, uint32_t num_dims,
			    const uint64_t *repeat, uint32_t num,
			    const struct ibmkey_block *blocks)
{
	TWO_KEY(mkey, TWO_NEXT(ibmkey_bind_interleaved)(mkey, access, num_dims, repeat, num,
							blocks));
}

int ibv_rereg_mr_interleaved(struct ibv_mr *mkey, unsigned int access, uint32_t num_dims,
			     const uint64_t *repeat, uint32_t num,
			     const struct ibmkey_block *blocks)
{
	TWO_KEY(mkey, TWO_NEXT(ibv_rereg_mr_interleaved)(mkey, access, num_dims, repeat, num,
							 blocks));
}

int ibmkey_bind_indexed(struct ibv_mr *mkey, unsigned int access,
			const struct ibmkey_indexed *layout)
{
	TWO_KEY(mkey, TWO_NEXT(ibmkey_bind_indexed)(mkey, access, layout));
}

int ibmkey_unbind(struct ibv_mr *mkey)
{
	TWO_KEY(mkey, TWO_NEXT(ibmkey_unbind)(mkey));
}

int ibmkey_bind_many(const struct ibmkey_bind *binds, uint32_t num, uint32_t *failed)
{
	struct two_call call = two_begin(num ? binds->mkey->context : NULL, __func__);
	int ret = call.run ? TWO_NEXT(ibmkey_bind_many)(binds, num, failed) : 0;
	uint32_t i;

	for (i = 0; i < num; i++)
		two_mr(&call, binds[i].mkey);
	if (failed)
		two_data(&call, failed, sizeof(*failed));
	return two_end(&call, ret);
}

/* gives the other machine what a call that registers @mr again has changed */
static int two_moved(struct two_call *call, int ret, struct ibv_mr *mr, int flags,
		     struct ibv_pd *pd, void *addr)
{
	two_mr(call, mr);
	ret = two_end(call, ret);
	if (ret || call->run)
		return ret;
	if (flags & IBV_REREG_MR_CHANGE_PD)
		mr->pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		mr->addr = addr;
	return 0;
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		 int access)
{
	struct two_call call = two_begin(mr->context, __func__);
	int ret = call.run ? TWO_NEXT(ibv_rereg_mr)(mr, flags, pd, addr, length, access) : 0;

	return two_moved(&call, ret, mr, flags, pd, addr);
}

int ibmkey_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		    int access)
{
	struct two_call call;
	int ret;

	/* which the library refuses */
	if (!mr)
		return TWO_NEXT(ibmkey_rereg_mr)(mr, flags, pd, addr, length, access);
	call = two_begin(mr->context, __func__);
	ret = call.run ? TWO_NEXT(ibmkey_rereg_mr)(mr, flags, pd, addr, length, access) : 0;
	return two_moved(&call, ret, mr, flags, pd, addr);
}

int ibmkey_query(struct ibv_mr *mkey, struct ibmkey_info *info)
{
	struct two_call call = two_begin(mkey->context, __func__);
	int ret = call.run ? TWO_NEXT(ibmkey_query)(mkey, info) : 0;

	two_data(&call, info, sizeof(*info));
	return two_end(&call, ret);
}

int ibmkey_query_layout(struct ibv_mr *mkey, struct ibmkey_info *info, uint32_t max_dims,
			uint64_t *repeat, uint32_t max_blocks, struct ibmkey_block *blocks)
{
	struct two_call call = two_begin(mkey->context, __func__);
	int ret = call.run ? TWO_NEXT(ibmkey_query_layout)(mkey, info, max_dims, repeat, max_blocks,
							   blocks) : 0;

	two_data(&call, info, sizeof(*info));
	if (max_dims)
		two_data(&call, repeat, max_dims * sizeof(*repeat));
	if (max_blocks)
		two_data(&call, blocks, max_blocks * sizeof(*blocks));
	return two_end(&call, ret);
}

int ibmkey_query_indexed(struct ibv_mr *mkey, struct ibmkey_info *info,
			 struct ibmkey_indexed *layout, uint32_t max_indices, uint64_t *indices)
{
	struct two_call call = two_begin(mkey->context, __func__);
	int ret = call.run ? TWO_NEXT(ibmkey_query_indexed)(mkey, info, layout, max_indices,
							    indices) : 0;

	two_data(&call, info, sizeof(*info));
	two_data(&call, layout, sizeof(*layout));
	if (max_indices)
		two_data(&call, indices, max_indices * sizeof(*indices));
	return two_end(&call, ret);
}

int ibmkey_query_refused(struct ibv_mr *mkey, int *error, uint32_t *entry)
{
	struct two_call call = two_begin(mkey->context, __func__);
	int ret = call.run ? TWO_NEXT(ibmkey_query_refused)(mkey, error, entry) : 0;

	two_data(&call, error, sizeof(*error));
	two_data(&call, entry, sizeof(*entry));
	return two_end(&call, ret);
}

int ibmkey_post_bind(struct ibv_qp *qp, const struct ibmkey_wr *wr, uint64_t wr_id,
		     unsigned int flags)
{
	TWO_KEY(wr->mkey, TWO_NEXT(ibmkey_post_bind)(qp, wr, wr_id, flags));
}

int ibmkey_wr_bind(struct ibv_qp_ex *qp, const struct ibmkey_wr *wr)
{
	TWO_KEY(wr->mkey, TWO_NEXT(ibmkey_wr_bind)(qp, wr));
}

int ibmkey_post_unbind(struct ibv_qp *qp, struct ibv_mr *mkey, uint64_t wr_id,
		       unsigned int flags)
{
	TWO_KEY(mkey, TWO_NEXT(ibmkey_post_unbind)(qp, mkey, wr_id, flags));
}
