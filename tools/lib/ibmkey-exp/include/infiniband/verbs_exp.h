/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The experimental verbs of MLNX_OFED 4 for memory keys (UMR), over libibmkey: a program that was
 * written for them is compiled with this header instead, and runs on devices on which ib_mkey
 * makes the keys. See ibmkey-exp(7).
 *
 * As in MLNX_OFED, the verbs are inline functions. This header declares only what it offers, so the
 * compiler names each verb, flag and field that a program needs and that is missing here.
 */
#ifndef INFINIBAND_VERBS_EXP_H
#define INFINIBAND_VERBS_EXP_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mkey.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ibv_exp_start_values {
	IBV_EXP_START_ENUM = 0x40,
	IBV_EXP_START_FLAG_LOC = 0x20,
	IBV_EXP_START_FLAG = 1ULL << IBV_EXP_START_FLAG_LOC,
};

/* Devices */

/* bits of exp_device_cap_flags, whose low 32 bits are those of enum ibv_device_cap_flags */
enum ibv_exp_device_cap_flags {
	IBV_EXP_DEVICE_UMR = IBV_EXP_START_FLAG << 6,
	IBV_EXP_DEVICE_UMR_FIXED_SIZE = IBV_EXP_START_FLAG << 25,
	IBV_EXP_DEVICE_MR_ALLOCATE = IBV_EXP_START_FLAG << 30,
};

/* bits of ibv_exp_device_attr.comp_mask: what is asked for, and afterwards what is filled in */
enum ibv_exp_device_attr_comp_mask {
	IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS = 1 << 3,
	IBV_EXP_DEVICE_ATTR_UMR = 1 << 9,
	IBV_EXP_DEVICE_ATTR_COMP_MASK_2 = 1U << 31,
};

/* bits of ibv_exp_device_attr.comp_mask_2 */
enum ibv_exp_device_attr_comp_mask_2 {
	IBV_EXP_DEVICE_ATTR_UMR_FIXED_SIZE_CAPS = 1 << 0,
};

struct ibv_exp_umr_caps {
	uint32_t max_klm_list_size;
	uint32_t max_send_wqe_inline_klms;
	uint32_t max_umr_recursion_depth;
	uint32_t max_umr_stride_dimension;
};

struct ibv_exp_umr_fixed_size_caps {
	uint64_t max_entity_size;
};

enum ibv_exp_atomic_cap {
	IBV_EXP_ATOMIC_NONE = IBV_ATOMIC_NONE,
	IBV_EXP_ATOMIC_HCA = IBV_ATOMIC_HCA,
	IBV_EXP_ATOMIC_GLOB = IBV_ATOMIC_GLOB,
};

/* The fields before comp_mask have the places of those of struct ibv_device_attr. */
struct ibv_exp_device_attr {
	char fw_ver[64];
	uint64_t node_guid;
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	int reserved;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int max_ee_init_rd_atom;
	enum ibv_exp_atomic_cap exp_atomic_cap;
	int max_ee;
	int max_rdd;
	int max_mw;
	int max_raw_ipv6_qp;
	int max_raw_ethy_qp;
	int max_mcast_grp;
	int max_mcast_qp_attach;
	int max_total_mcast_qp_attach;
	int max_ah;
	int max_fmr;
	int max_map_per_fmr;
	int max_srq;
	int max_srq_wr;
	int max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
	uint32_t comp_mask;
	uint64_t exp_device_cap_flags;
	struct ibv_exp_umr_caps umr_caps;
	uint64_t comp_mask_2;
	struct ibv_exp_umr_fixed_size_caps umr_fixed_size_caps;
};

/* Descriptions with this number of blocks fit into a request of rxe, which has 512 inline bytes. */
#define IBMKEY_EXP_INLINE_KLMS 5
#define IBMKEY_EXP_INLINE_BYTES 512
/* The bytes of the longest description with a number of ranges or blocks. */
#define IBMKEY_EXP_BYTES(num) (sizeof(struct ib_uverbs_mkey_layout) + 2 * sizeof(uint64_t) + \
			       (size_t)(num) * sizeof(struct ibmkey_block))
/* A ConnectX had this limit. A range may be longer here. */
#define IBMKEY_EXP_ENTITY_SIZE (1ULL << 31)

static inline int ibv_exp_query_device(struct ibv_context *context,
				       struct ibv_exp_device_attr *attr)
{
	const uint64_t needs = IBMKEY_CAP_LIST | IBMKEY_CAP_INTERLEAVED | IBMKEY_CAP_REQUEST;
	const uint32_t asked = attr->comp_mask;
	const uint64_t asked_2 = asked & IBV_EXP_DEVICE_ATTR_COMP_MASK_2 ? attr->comp_mask_2 : 0;
	struct ibv_device_attr device;
	struct ibmkey_caps caps;
	int err;

	err = ibv_query_device(context, &device);
	if (err)
		return err;
	memset(attr, 0, sizeof(*attr));
	memcpy(attr, &device, offsetof(struct ibv_exp_device_attr, comp_mask));
	attr->reserved = 0;
	attr->exp_device_cap_flags = device.device_cap_flags | IBV_EXP_DEVICE_MR_ALLOCATE;
	attr->comp_mask = asked & (IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS |
				   IBV_EXP_DEVICE_ATTR_COMP_MASK_2);
	if (ibmkey_query_caps(context, &caps) || (caps.flags & needs) != needs)
		return 0;
	attr->exp_device_cap_flags |= IBV_EXP_DEVICE_UMR | IBV_EXP_DEVICE_UMR_FIXED_SIZE;
	if (asked & IBV_EXP_DEVICE_ATTR_UMR) {
		attr->comp_mask |= IBV_EXP_DEVICE_ATTR_UMR;
		attr->umr_caps.max_klm_list_size = caps.max_entries;
		attr->umr_caps.max_send_wqe_inline_klms = IBMKEY_EXP_INLINE_KLMS;
		attr->umr_caps.max_umr_recursion_depth = caps.max_depth;
		attr->umr_caps.max_umr_stride_dimension = 1;
	}
	if (asked_2 & IBV_EXP_DEVICE_ATTR_UMR_FIXED_SIZE_CAPS) {
		attr->comp_mask_2 = IBV_EXP_DEVICE_ATTR_UMR_FIXED_SIZE_CAPS;
		attr->umr_fixed_size_caps.max_entity_size = IBMKEY_EXP_ENTITY_SIZE;
	}
	return 0;
}

/* MRs and keys */

enum ibv_exp_access_flags {
	IBV_EXP_ACCESS_LOCAL_WRITE = IBV_ACCESS_LOCAL_WRITE,
	IBV_EXP_ACCESS_REMOTE_WRITE = IBV_ACCESS_REMOTE_WRITE,
	IBV_EXP_ACCESS_REMOTE_READ = IBV_ACCESS_REMOTE_READ,
	IBV_EXP_ACCESS_REMOTE_ATOMIC = IBV_ACCESS_REMOTE_ATOMIC,
	IBV_EXP_ACCESS_MW_BIND = IBV_ACCESS_MW_BIND,
	IBV_EXP_ACCESS_ALLOCATE_MR = IBV_EXP_START_FLAG << 5,
	IBV_EXP_ACCESS_ON_DEMAND = IBV_EXP_START_FLAG << 14,
};

struct ibv_exp_reg_mr_in {
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint64_t exp_access;	/* enum ibv_exp_access_flags */
	uint32_t comp_mask;	/* 0 */
};

enum ibv_exp_rereg_mr_flags {
	IBV_EXP_REREG_MR_CHANGE_TRANSLATION = IBV_REREG_MR_CHANGE_TRANSLATION,
	IBV_EXP_REREG_MR_CHANGE_PD = IBV_REREG_MR_CHANGE_PD,
	IBV_EXP_REREG_MR_CHANGE_ACCESS = IBV_REREG_MR_CHANGE_ACCESS,
};

struct ibv_exp_rereg_mr_attr {
	uint32_t comp_mask;	/* 0 */
};

enum ibv_exp_mr_create_flags {
	IBV_EXP_MR_INDIRECT_KLMS = 1 << 1,
	IBV_EXP_MR_FIXED_BUFFER_SIZE = 1 << 2,
};

struct ibv_exp_mr_init_attr {
	uint32_t max_klm_list_size;
	uint32_t create_flags;		/* one of enum ibv_exp_mr_create_flags */
	uint64_t exp_access_flags;	/* enum ibv_exp_access_flags; a request sets the access */
};

struct ibv_exp_create_mr_in {
	struct ibv_pd *pd;
	struct ibv_exp_mr_init_attr attr;
	uint32_t comp_mask;	/* 0 */
};

struct ibv_exp_mkey_attr {
	uint32_t max_klm_list_size;
	uint32_t comp_mask;	/* 0 */
};

/* Translates access flags for a key. Returns EINVAL for a flag that a key cannot have. */
static inline int ibmkey_exp_access(uint64_t exp_access, unsigned int *access)
{
	const unsigned int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
				   IBV_ACCESS_MW_BIND;

	*access = exp_access & known;
	return exp_access & ~(uint64_t)known ? EINVAL : 0;
}

/* Translates access flags for an MR with memory. Ignores IBV_EXP_ACCESS_ALLOCATE_MR. */
static inline int ibmkey_exp_mr_access(uint64_t exp_access, unsigned int *access)
{
	const uint64_t others = IBV_EXP_ACCESS_ON_DEMAND | IBV_EXP_ACCESS_ALLOCATE_MR;
	int err = ibmkey_exp_access(exp_access & ~others, access);

	if (exp_access & IBV_EXP_ACCESS_ON_DEMAND)
		*access |= IBV_ACCESS_ON_DEMAND;
	return err;
}

static inline struct ibv_mr *ibv_exp_reg_mr(struct ibv_exp_reg_mr_in *in)
{
	const int allocates = !!(in->exp_access & IBV_EXP_ACCESS_ALLOCATE_MR);
	unsigned int access;

	if (in->comp_mask || ibmkey_exp_mr_access(in->exp_access, &access) ||
	    (allocates && in->addr)) {
		errno = EINVAL;
		return NULL;
	}
	if (allocates)
		return ibmkey_reg_alloc(in->pd, in->length, access);
	return ibv_reg_mr(in->pd, in->addr, in->length, access);
}

static inline int ibv_exp_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
				   size_t length, uint64_t exp_access,
				   struct ibv_exp_rereg_mr_attr *attr)
{
	unsigned int access = 0;

	if (attr && attr->comp_mask)
		return EINVAL;
	if (flags & ~(IBV_EXP_REREG_MR_CHANGE_TRANSLATION | IBV_EXP_REREG_MR_CHANGE_PD |
		      IBV_EXP_REREG_MR_CHANGE_ACCESS))
		return EINVAL;
	if (flags & IBV_EXP_REREG_MR_CHANGE_ACCESS) {
		if (ibmkey_exp_mr_access(exp_access, &access))
			return EINVAL;
		if (exp_access & IBV_EXP_ACCESS_ALLOCATE_MR)
			flags |= IBMKEY_REREG_ALLOC;
	}
	return ibmkey_rereg_mr(mr, flags, pd, addr, length, access);
}

/* Creates a key, which ibv_dereg_mr() destroys. As on a ConnectX, it does not keep its MRs. */
static inline struct ibv_mr *ibv_exp_create_mr(struct ibv_exp_create_mr_in *in)
{
	struct ibmkey_alloc_attr attr;
	unsigned int access;

	if (in->comp_mask || ibmkey_exp_access(in->attr.exp_access_flags, &access) ||
	    (in->attr.create_flags != IBV_EXP_MR_INDIRECT_KLMS &&
	     in->attr.create_flags != IBV_EXP_MR_FIXED_BUFFER_SIZE)) {
		errno = EINVAL;
		return NULL;
	}
	memset(&attr, 0, sizeof(attr));
	attr.max_entries = in->attr.max_klm_list_size;
	attr.flags = IBMKEY_ALLOC_REVOCABLE;
	return ibmkey_alloc_ex(in->pd, &attr);
}

static inline int ibv_exp_query_mkey(struct ibv_mr *mr, struct ibv_exp_mkey_attr *attr)
{
	struct ibv_mr copy = *mr;
	struct ibmkey_info info;
	int err;

	if (attr->comp_mask)
		return EINVAL;
	/* A query may store another key portion, but the lkey and rkey of @mr do not change. */
	err = ibmkey_query(&copy, &info);
	if (!err)
		attr->max_klm_list_size = info.max_entries;
	return err;
}

/* Memory for descriptions that are not inline */

enum ibv_exp_mkey_list_type {
	IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR,
};

struct ibv_exp_mkey_list_container_attr {
	struct ibv_pd *pd;
	uint32_t mkey_list_type;	/* enum ibv_exp_mkey_list_type */
	uint32_t max_klm_list_size;
	uint32_t comp_mask;		/* 0 */
};

struct ibv_exp_mkey_list_container {
	uint32_t max_klm_list_size;
	struct ibv_context *context;
	struct ibv_mr *mr;		/* internal: the memory */
};

static inline struct ibv_exp_mkey_list_container *
ibv_exp_alloc_mkey_list_memory(struct ibv_exp_mkey_list_container_attr *attr)
{
	size_t bytes = IBMKEY_EXP_BYTES(attr->max_klm_list_size);
	struct ibv_exp_mkey_list_container *list;
	void *memory;
	int err;

	if (attr->comp_mask || attr->mkey_list_type != IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR ||
	    !attr->max_klm_list_size || attr->max_klm_list_size > IB_MKEY_MAX_ENTRIES) {
		errno = EINVAL;
		return NULL;
	}
	list = (struct ibv_exp_mkey_list_container *)calloc(1, sizeof(*list));
	memory = calloc(1, bytes);
	if (list && memory) {
		list->max_klm_list_size = attr->max_klm_list_size;
		list->context = attr->pd->context;
		list->mr = ibv_reg_mr(attr->pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
		if (list->mr)
			return list;
	}
	err = errno;
	free(memory);
	free(list);
	errno = err;
	return NULL;
}

static inline int ibv_exp_dealloc_mkey_list_memory(struct ibv_exp_mkey_list_container *mem)
{
	void *memory = mem->mr->addr;
	int err = ibv_dereg_mr(mem->mr);

	if (err)
		return err;
	free(memory);
	free(mem);
	return 0;
}

/* Queue pairs */

enum ibv_exp_qp_init_attr_comp_mask {
	IBV_EXP_QP_INIT_ATTR_PD = 1 << 0,
	IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS = 1 << 2,
	IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS = 1 << 6,
};

enum ibv_exp_qp_create_flags {
	IBV_EXP_QP_CREATE_UMR = 1 << 9,
};

struct ibv_exp_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
	uint32_t comp_mask;		/* enum ibv_exp_qp_init_attr_comp_mask */
	struct ibv_pd *pd;
	uint32_t exp_create_flags;	/* enum ibv_exp_qp_create_flags */
	uint32_t max_inl_send_klms;
};

/* Stores the inline bytes that a QP needs for UMR, 0 without UMR. */
static inline int ibmkey_exp_inline_of(const struct ibv_exp_qp_init_attr *attr, uint32_t *bytes)
{
	const uint32_t known = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS |
			       IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
	uint32_t flags = attr->comp_mask & IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS ?
			 attr->exp_create_flags : 0;

	*bytes = 0;
	if (attr->comp_mask & ~known || !(attr->comp_mask & IBV_EXP_QP_INIT_ATTR_PD) ||
	    flags & ~(uint32_t)IBV_EXP_QP_CREATE_UMR ||
	    !flags != !(attr->comp_mask & IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS))
		return EINVAL;
	if (!flags)
		return 0;
	if (attr->max_inl_send_klms > IBMKEY_EXP_INLINE_KLMS)
		return EINVAL;
	*bytes = IBMKEY_EXP_BYTES(attr->max_inl_send_klms);
	return 0;
}

static inline struct ibv_qp *ibv_exp_create_qp(struct ibv_context *context,
					       struct ibv_exp_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex wants;
	struct ibv_qp *qp;
	uint32_t bytes;

	if (ibmkey_exp_inline_of(attr, &bytes)) {
		errno = EINVAL;
		return NULL;
	}
	memset(&wants, 0, sizeof(wants));
	wants.qp_context = attr->qp_context;
	wants.send_cq = attr->send_cq;
	wants.recv_cq = attr->recv_cq;
	wants.srq = attr->srq;
	wants.cap = attr->cap;
	wants.qp_type = attr->qp_type;
	wants.sq_sig_all = attr->sq_sig_all;
	wants.comp_mask = IBV_QP_INIT_ATTR_PD;
	wants.pd = attr->pd;
	if (bytes) {
		wants.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		wants.send_ops_flags = IBV_QP_EX_WITH_BIND_MW;
		if (wants.cap.max_inline_data < bytes)
			wants.cap.max_inline_data = bytes;
	}
	qp = ibv_create_qp_ex(context, &wants);
	if (qp)
		attr->cap = wants.cap;
	return qp;
}

/* As in MLNX_OFED, ibv_dereg_mr() also frees the memory of IBV_EXP_ACCESS_ALLOCATE_MR. */
static inline int ibmkey_exp_dereg_mr(struct ibv_mr *mr)
{
	/* EINVAL: the library has allocated no memory for this MR. */
	int err = mr->addr ? ibmkey_dereg(mr) : EINVAL;

	return err == EINVAL ? ibv_dereg_mr(mr) : err;
}

#define ibv_dereg_mr(mr) ibmkey_exp_dereg_mr(mr)

#ifdef __cplusplus
}
#endif

#include <infiniband/verbs_exp_wr.h>

#endif /* INFINIBAND_VERBS_EXP_H */
