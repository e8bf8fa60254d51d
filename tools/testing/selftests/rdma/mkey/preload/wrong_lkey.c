// SPDX-License-Identifier: GPL-2.0
/*
 * Preloaded into a program: each MR that it registers says a wrong lkey, so that a bind
 * of a key to it fails. Tests what a program says then.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#undef ibv_reg_mr

/*
 * The index of the MR is above the low eight bits. One of the functions below may call
 * the other.
 */
static struct ibv_mr *wrong(struct ibv_mr *mr)
{
	if (mr)
		mr->lkey |= 0x500000;
	return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *(*next)(struct ibv_pd *pd, void *addr, size_t length, int access);

	next = dlsym(RTLD_NEXT, "ibv_reg_mr");
	return wrong(next(pd, addr, length, access));
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	struct ibv_mr *(*next)(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       unsigned int access);

	next = dlsym(RTLD_NEXT, "ibv_reg_mr_iova2");
	return wrong(next(pd, addr, length, iova, access));
}
