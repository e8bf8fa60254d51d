/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The part of mlx5dv.h that describes memory, for devices on which ib_mkey makes the
 * keys: mkeys, the work requests that configure them, device memory and capabilities.
 *
 * Names, values and structures are those of rdma-core, so a program that was compiled with
 * rdma-core's header runs with this library, too. mlx5dv_is_supported() tells whether a
 * device works with the library. Functions and flags that are marked "not offered" always
 * fail with EOPNOTSUPP. The library also has the functions of rdma-core that this header
 * does not declare; they fail with EOPNOTSUPP, too.
 *
 * Functions that return int return 0 or an errno value. Functions that return a pointer
 * return NULL and set errno. The functions that add a work request return nothing. If the
 * library refuses a request, ibv_wr_complete() returns the errno value and posts none of
 * the requests:
 *
 * EOPNOTSUPP	the QP was not created for this request, IBV_SEND_INLINE is not set, the
 *		request asks for a signature or for encryption, or it has no layout and no
 *		earlier request had one
 * EINVAL	an unknown access flag, no entries, setters that are missing, repeated or too
 *		many
 * ENOMEM	more entries than the mkey has, or no memory
 * ENOSPC	the send queue is full
 */
#ifndef _MLX5DV_H_
#define _MLX5DV_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- devices --- */

/** enum mlx5dv_context_attr_flags - bits of mlx5dv_context_attr.flags */
enum mlx5dv_context_attr_flags {
	/** @MLX5DV_CONTEXT_FLAGS_DEVX: accepted, because mkeys need it on a ConnectX */
	MLX5DV_CONTEXT_FLAGS_DEVX = 1 << 0,
};

/**
 * struct mlx5dv_context_attr - how to open a device
 * @flags: enum mlx5dv_context_attr_flags
 * @comp_mask: zero
 */
struct mlx5dv_context_attr {
	uint32_t flags;
	uint64_t comp_mask;
};

/**
 * mlx5dv_is_supported - check whether a device works with this library
 * @device: a device
 *
 * Opens the device to ask the kernel.
 *
 * Return: true if the kernel offers keys that work requests can bind.
 */
bool mlx5dv_is_supported(struct ibv_device *device);

/**
 * mlx5dv_open_device - open a device
 * @device: a device
 * @attr: how to open it
 *
 * Device memory works on the context, see ibv_alloc_dm(). The functions of this header also
 * work on a context that ibv_open_device() returned.
 *
 * Return: the context, to be closed by ibv_close_device(); or NULL and errno: EOPNOTSUPP
 * if the device is not supported, EINVAL for unknown flags.
 */
struct ibv_context *mlx5dv_open_device(struct ibv_device *device,
				       struct mlx5dv_context_attr *attr);

/** enum mlx5dv_context_comp_mask - which fields of struct mlx5dv_context are valid */
enum mlx5dv_context_comp_mask {
	MLX5DV_CONTEXT_MASK_CQE_COMPRESION = 1 << 0,
	MLX5DV_CONTEXT_MASK_SWP = 1 << 1,
	MLX5DV_CONTEXT_MASK_STRIDING_RQ = 1 << 2,
	MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS = 1 << 3,
	MLX5DV_CONTEXT_MASK_DYN_BFREGS = 1 << 4,
	MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE = 1 << 5,
	MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS = 1 << 6,
	MLX5DV_CONTEXT_MASK_DC_ODP_CAPS = 1 << 7,
	MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK = 1 << 8,
	MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS = 1 << 9,
	MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD = 1 << 10,
	MLX5DV_CONTEXT_MASK_DCI_STREAMS = 1 << 11,
	MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH = 1 << 12,
	MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD = 1 << 13,
	MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM = 1 << 14,
	MLX5DV_CONTEXT_MASK_REG_C0 = 1 << 15,
	MLX5DV_CONTEXT_MASK_OOO_RECV_WRS = 1 << 16,
};

struct mlx5dv_cqe_comp_caps {
	uint32_t max_num;
	uint32_t supported_format;
};

struct mlx5dv_sw_parsing_caps {
	uint32_t sw_parsing_offloads;
	uint32_t supported_qpts;
};

struct mlx5dv_striding_rq_caps {
	uint32_t min_single_stride_log_num_of_bytes;
	uint32_t max_single_stride_log_num_of_bytes;
	uint32_t min_single_wqe_log_num_of_strides;
	uint32_t max_single_wqe_log_num_of_strides;
	uint32_t supported_qpts;
};

struct mlx5dv_dci_streams_caps {
	uint8_t max_log_num_concurent;
	uint8_t max_log_num_errored;
};

struct mlx5dv_sig_caps {
	uint64_t block_size;
	uint32_t block_prot;
	uint16_t t10dif_bg;
	uint16_t crc_type;
};

struct mlx5dv_crypto_caps {
	uint16_t failed_selftests;
	uint8_t crypto_engines;
	uint8_t wrapped_import_method;
	uint8_t log_max_num_deks;
	uint32_t flags;
};

struct mlx5dv_ooo_recv_wrs_caps {
	uint32_t max_rc;
	uint32_t max_xrc;
	uint32_t max_dct;
	uint32_t max_ud;
	uint32_t max_uc;
};

struct mlx5dv_reg {
	uint32_t value;
	uint32_t mask;
};

/**
 * struct mlx5dv_context - capabilities
 * @version: 0
 * @flags: 0; the flags describe queues of a ConnectX, which these devices do not have
 * @comp_mask: in and out: enum mlx5dv_context_comp_mask
 *
 * The other fields are 0, because these devices have none of these abilities. Fields that
 * have no meaning for these devices, such as the clock, are never valid.
 */
struct mlx5dv_context {
	uint8_t version;
	uint64_t flags;
	uint64_t comp_mask;
	struct mlx5dv_cqe_comp_caps cqe_comp_caps;
	struct mlx5dv_sw_parsing_caps sw_parsing_caps;
	struct mlx5dv_striding_rq_caps striding_rq_caps;
	uint32_t tunnel_offloads_caps;
	uint32_t max_dynamic_bfregs;
	uint64_t max_clock_info_update_nsec;
	uint32_t flow_action_flags;
	uint32_t dc_odp_caps;
	void *hca_core_clock;
	uint8_t num_lag_ports;
	struct mlx5dv_sig_caps sig_caps;
	struct mlx5dv_dci_streams_caps dci_streams_caps;
	size_t max_wr_memcpy_length;
	struct mlx5dv_crypto_caps crypto_caps;
	uint64_t max_dc_rd_atom;
	uint64_t max_dc_init_rd_atom;
	struct mlx5dv_reg reg_c0;
	struct mlx5dv_ooo_recv_wrs_caps ooo_recv_wrs_caps;
};

/**
 * mlx5dv_query_device - query capabilities
 * @ctx_in: an open context
 * @attrs_out: filled in. Before the call, comp_mask has the bits of the fields that the
 *	caller knows; after it, those of the fields that are valid.
 *
 * Return: 0 or an errno value.
 */
int mlx5dv_query_device(struct ibv_context *ctx_in,
			struct mlx5dv_context *attrs_out);

/* --- device memory --- */

/** enum mlx5dv_alloc_dm_type - kinds of device memory */
enum mlx5dv_alloc_dm_type {
	/** @MLX5DV_DM_TYPE_MEMIC: memory for data; the only kind that is offered */
	MLX5DV_DM_TYPE_MEMIC,
	MLX5DV_DM_TYPE_STEERING_SW_ICM,
	MLX5DV_DM_TYPE_HEADER_MODIFY_SW_ICM,
	MLX5DV_DM_TYPE_HEADER_MODIFY_PATTERN_SW_ICM,
	MLX5DV_DM_TYPE_ENCAP_SW_ICM,
};

/**
 * struct mlx5dv_alloc_dm_attr - which device memory to allocate
 * @type: its kind
 * @comp_mask: zero
 */
struct mlx5dv_alloc_dm_attr {
	enum mlx5dv_alloc_dm_type type;
	uint64_t comp_mask;
};

/**
 * mlx5dv_alloc_dm - allocate device memory
 * @context: an open context
 * @dm_attr: as for ibv_alloc_dm()
 * @mlx5_dm_attr: the kind
 *
 * Return: the memory, to be freed by ibv_free_dm(); or NULL and errno.
 */
struct ibv_dm *mlx5dv_alloc_dm(struct ibv_context *context,
			       struct ibv_alloc_dm_attr *dm_attr,
			       struct mlx5dv_alloc_dm_attr *mlx5_dm_attr);

/** mlx5dv_dm_map_op_addr - not offered; use the atomic operations of a QP */
void *mlx5dv_dm_map_op_addr(struct ibv_dm *dm, uint8_t op);

/* --- mkeys --- */

/** enum mlx5dv_mkey_init_attr_flags - bits of mlx5dv_mkey_init_attr.create_flags */
enum mlx5dv_mkey_init_attr_flags {
	/** @MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT: required */
	MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT = 1 << 0,
	/** @MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE: not offered */
	MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE = 1 << 1,
	/** @MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO: not offered */
	MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO = 1 << 2,
	/** @MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG: not offered */
	MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG = 1 << 3,
	/**
	 * @MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE: a peer may invalidate the mkey by
	 * SEND with invalidate. Without this flag, a peer may do so only while the mkey has
	 * a remote access flag.
	 */
	MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE = 1 << 4,
};

/**
 * struct mlx5dv_mkey_init_attr - which mkey to create
 * @pd: protection domain of the mkey, of its leaves and of the QPs
 * @create_flags: enum mlx5dv_mkey_init_attr_flags
 * @max_entries: largest number of entries of a layout, not zero. An interleaved layout
 *	needs no entry for its header, unlike on a ConnectX.
 */
struct mlx5dv_mkey_init_attr {
	struct ibv_pd *pd;
	uint32_t create_flags;
	uint16_t max_entries;
};

/**
 * struct mlx5dv_mkey - an mkey
 * @lkey: for requests of this process
 * @rkey: for requests of a peer
 *
 * The lkey and the rkey never change. After LOCAL_INV or SEND with invalidate they are
 * invalid until the next request that configures the mkey. Addresses begin at 0.
 */
struct mlx5dv_mkey {
	uint32_t lkey;
	uint32_t rkey;
};

/**
 * mlx5dv_create_mkey - create an mkey
 * @mkey_init_attr: which one
 *
 * Return: the mkey, which has no layout; or NULL and errno: EOPNOTSUPP for a flag that is
 * not offered.
 */
struct mlx5dv_mkey *
mlx5dv_create_mkey(struct mlx5dv_mkey_init_attr *mkey_init_attr);

/**
 * mlx5dv_destroy_mkey - destroy an mkey
 * @mkey: an mkey that no request uses or configures any more
 *
 * Return: 0; EBUSY while a window or another key refers to it.
 */
int mlx5dv_destroy_mkey(struct mlx5dv_mkey *mkey);

/** enum mlx5dv_mkey_err_type - kinds of errors of a signature */
enum mlx5dv_mkey_err_type {
	MLX5DV_MKEY_NO_ERR,
	MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD,
	MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG,
	MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG,
};

struct mlx5dv_sig_err {
	uint64_t actual_value;
	uint64_t expected_value;
	uint64_t offset;
};

struct mlx5dv_mkey_err {
	enum mlx5dv_mkey_err_type err_type;
	union {
		struct mlx5dv_sig_err sig;
	} err;
};

int _mlx5dv_mkey_check(struct mlx5dv_mkey *mkey,
		       struct mlx5dv_mkey_err *err_info, size_t err_info_size);

/** mlx5dv_mkey_check - not offered, because no mkey has a signature */
static inline int mlx5dv_mkey_check(struct mlx5dv_mkey *mkey,
				    struct mlx5dv_mkey_err *err_info)
{
	return _mlx5dv_mkey_check(mkey, err_info, sizeof(*err_info));
}

/* --- completion queues and QPs --- */

/** enum mlx5dv_wc_opcode - opcodes of completions */
enum mlx5dv_wc_opcode {
	/** @MLX5DV_WC_UMR: a request that configured an mkey */
	MLX5DV_WC_UMR = IBV_WC_DRIVER1,
	MLX5DV_WC_RAW_WQE = IBV_WC_DRIVER2,
	MLX5DV_WC_MEMCPY = IBV_WC_DRIVER3,
};

/**
 * struct mlx5dv_cq_init_attr - which CQ to create
 * @comp_mask: zero; the other fields are not offered
 */
struct mlx5dv_cq_init_attr {
	uint64_t comp_mask;
	uint8_t cqe_comp_res_format;
	uint32_t flags;
	uint16_t cqe_size;
};

/**
 * mlx5dv_create_cq - create a CQ
 * @context: an open context
 * @cq_attr: as for ibv_create_cq_ex()
 * @mlx5_cq_attr: struct mlx5dv_cq_init_attr
 *
 * A CQ of ibv_create_cq() or ibv_create_cq_ex() serves as well.
 *
 * Return: the CQ; or NULL and errno.
 */
struct ibv_cq_ex *mlx5dv_create_cq(struct ibv_context *context,
				   struct ibv_cq_init_attr_ex *cq_attr,
				   struct mlx5dv_cq_init_attr *mlx5_cq_attr);

/** enum mlx5dv_qp_init_attr_mask - which fields of struct mlx5dv_qp_init_attr are valid */
enum mlx5dv_qp_init_attr_mask {
	MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS = 1 << 0,
	/** @MLX5DV_QP_INIT_ATTR_MASK_DC: not offered */
	MLX5DV_QP_INIT_ATTR_MASK_DC = 1 << 1,
	MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS = 1 << 2,
	/** @MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS: not offered */
	MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS = 1 << 3,
};

/** enum mlx5dv_qp_create_flags - bits of mlx5dv_qp_init_attr.create_flags */
enum mlx5dv_qp_create_flags {
	MLX5DV_QP_CREATE_TUNNEL_OFFLOADS = 1 << 0,
	MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC = 1 << 1,
	MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC = 1 << 2,
	/** @MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE: accepted; no data is in a CQE */
	MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE = 1 << 3,
	/** @MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE: accepted; no data is in a CQE */
	MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE = 1 << 4,
	MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE = 1 << 5,
	MLX5DV_QP_CREATE_SIG_PIPELINING = 1 << 6,
	MLX5DV_QP_CREATE_OOO_DP = 1 << 7,
};

/** enum mlx5dv_qp_create_send_ops_flags - bits of mlx5dv_qp_init_attr.send_ops_flags */
enum mlx5dv_qp_create_send_ops_flags {
	/** @MLX5DV_QP_EX_WITH_MR_INTERLEAVED: mlx5dv_wr_mr_interleaved() */
	MLX5DV_QP_EX_WITH_MR_INTERLEAVED = 1 << 0,
	/** @MLX5DV_QP_EX_WITH_MR_LIST: mlx5dv_wr_mr_list() */
	MLX5DV_QP_EX_WITH_MR_LIST = 1 << 1,
	/** @MLX5DV_QP_EX_WITH_MKEY_CONFIGURE: mlx5dv_wr_mkey_configure() and its setters */
	MLX5DV_QP_EX_WITH_MKEY_CONFIGURE = 1 << 2,
	/** @MLX5DV_QP_EX_WITH_RAW_WQE: not offered */
	MLX5DV_QP_EX_WITH_RAW_WQE = 1 << 3,
	/** @MLX5DV_QP_EX_WITH_MEMCPY: not offered */
	MLX5DV_QP_EX_WITH_MEMCPY = 1 << 4,
};

enum mlx5dv_dc_type {
	MLX5DV_DCTYPE_DCT = 1,
	MLX5DV_DCTYPE_DCI,
};

struct mlx5dv_dci_streams {
	uint8_t log_num_concurent;
	uint8_t log_num_errored;
};

struct mlx5dv_dc_init_attr {
	enum mlx5dv_dc_type dc_type;
	union {
		uint64_t dct_access_key;
		struct mlx5dv_dci_streams dci_streams;
	};
};

/**
 * struct mlx5dv_qp_init_attr - which QP to create
 * @comp_mask: enum mlx5dv_qp_init_attr_mask
 * @create_flags: enum mlx5dv_qp_create_flags
 * @dc_init_attr: not offered
 * @send_ops_flags: enum mlx5dv_qp_create_send_ops_flags
 */
struct mlx5dv_qp_init_attr {
	uint64_t comp_mask;
	uint32_t create_flags;
	struct mlx5dv_dc_init_attr dc_init_attr;
	uint64_t send_ops_flags;
};

/**
 * mlx5dv_create_qp - create a QP
 * @context: an open context
 * @qp_attr: as for ibv_create_qp_ex()
 * @mlx5_qp_attr: further attributes, or NULL
 *
 * Creates a QP as ibv_create_qp_ex() does. A QP that configures mkeys must be of type RC
 * or UC. It has all work requests that the device has for its type, like a QP of a
 * ConnectX. max_inline_data may become larger than the caller asked for.
 *
 * Return: the QP; or NULL and errno: EOPNOTSUPP for what is not offered.
 */
struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context,
				struct ibv_qp_init_attr_ex *qp_attr,
				struct mlx5dv_qp_init_attr *mlx5_qp_attr);

/* --- work requests --- */

/**
 * struct mlx5dv_mr_interleaved - a repeated block
 * @addr: address of its first byte
 * @bytes_count: bytes of the block
 * @bytes_skip: bytes between the end of the block and its next repetition
 * @lkey: lkey of the MR
 */
struct mlx5dv_mr_interleaved {
	uint64_t addr;
	uint32_t bytes_count;
	uint32_t bytes_skip;
	uint32_t lkey;
};

/** enum mlx5dv_mkey_conf_flags - bits of mlx5dv_mkey_conf_attr.conf_flags */
enum mlx5dv_mkey_conf_flags {
	/** @MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR: accepted; no mkey has a signature */
	MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR = 1 << 0,
};

/**
 * struct mlx5dv_mkey_conf_attr - attributes of a configuration
 * @conf_flags: enum mlx5dv_mkey_conf_flags
 * @comp_mask: zero
 */
struct mlx5dv_mkey_conf_attr {
	uint32_t conf_flags;
	uint64_t comp_mask;
};

enum mlx5dv_sig_type {
	MLX5DV_SIG_TYPE_T10DIF,
	MLX5DV_SIG_TYPE_CRC,
};

enum mlx5dv_block_size {
	MLX5DV_BLOCK_SIZE_512,
	MLX5DV_BLOCK_SIZE_520,
	MLX5DV_BLOCK_SIZE_4048,
	MLX5DV_BLOCK_SIZE_4096,
	MLX5DV_BLOCK_SIZE_4160,
};

enum mlx5dv_sig_t10dif_bg_type {
	MLX5DV_SIG_T10DIF_CRC,
	MLX5DV_SIG_T10DIF_CSUM,
};

enum mlx5dv_sig_crc_type {
	MLX5DV_SIG_CRC_TYPE_CRC32,
	MLX5DV_SIG_CRC_TYPE_CRC32C,
	MLX5DV_SIG_CRC_TYPE_CRC64_XP10,
};

struct mlx5dv_sig_t10dif {
	enum mlx5dv_sig_t10dif_bg_type bg_type;
	uint16_t bg;
	uint16_t app_tag;
	uint32_t ref_tag;
	uint16_t flags;
};

struct mlx5dv_sig_crc {
	enum mlx5dv_sig_crc_type type;
	uint64_t seed;
};

struct mlx5dv_sig_block_domain {
	enum mlx5dv_sig_type sig_type;
	union {
		const struct mlx5dv_sig_t10dif *dif;
		const struct mlx5dv_sig_crc *crc;
	} sig;
	enum mlx5dv_block_size block_size;
	uint64_t comp_mask;
};

struct mlx5dv_sig_block_attr {
	const struct mlx5dv_sig_block_domain *mem;
	const struct mlx5dv_sig_block_domain *wire;
	uint32_t flags;
	uint8_t check_mask;
	uint8_t copy_mask;
	uint64_t comp_mask;
};

enum mlx5dv_crypto_standard {
	MLX5DV_CRYPTO_STANDARD_AES_XTS,
};

enum mlx5dv_signature_crypto_order {
	MLX5DV_SIGNATURE_CRYPTO_ORDER_SIGNATURE_AFTER_CRYPTO_ON_TX,
	MLX5DV_SIGNATURE_CRYPTO_ORDER_SIGNATURE_BEFORE_CRYPTO_ON_TX,
};

struct mlx5dv_dek;

struct mlx5dv_crypto_attr {
	enum mlx5dv_crypto_standard crypto_standard;
	bool encrypt_on_tx;
	enum mlx5dv_signature_crypto_order signature_crypto_order;
	enum mlx5dv_block_size data_unit_size;
	char initial_tweak[16];
	struct mlx5dv_dek *dek;
	char keytag[8];
	uint64_t comp_mask;
};

/**
 * struct mlx5dv_qp_ex - work requests of a QP; the inline functions below call them
 * @comp_mask: 0
 *
 * No pointer is NULL. A function that is not offered, or for which the QP was not created,
 * makes ibv_wr_complete() return EOPNOTSUPP.
 */
struct mlx5dv_qp_ex {
	uint64_t comp_mask;
	void (*wr_set_dc_addr)(struct mlx5dv_qp_ex *mqp, struct ibv_ah *ah,
			       uint32_t remote_dctn, uint64_t remote_dc_key);
	void (*wr_mr_interleaved)(struct mlx5dv_qp_ex *mqp,
				  struct mlx5dv_mkey *mkey,
				  uint32_t access_flags, uint32_t repeat_count,
				  uint16_t num_interleaved,
				  struct mlx5dv_mr_interleaved *data);
	void (*wr_mr_list)(struct mlx5dv_qp_ex *mqp, struct mlx5dv_mkey *mkey,
			   uint32_t access_flags, uint16_t num_sges,
			   struct ibv_sge *sge);
	void (*wr_mkey_configure)(struct mlx5dv_qp_ex *mqp,
				  struct mlx5dv_mkey *mkey, uint8_t num_setters,
				  struct mlx5dv_mkey_conf_attr *attr);
	void (*wr_set_mkey_access_flags)(struct mlx5dv_qp_ex *mqp,
					 uint32_t access_flags);
	void (*wr_set_mkey_layout_list)(struct mlx5dv_qp_ex *mqp,
					uint16_t num_sges,
					const struct ibv_sge *sge);
	void (*wr_set_mkey_layout_interleaved)(struct mlx5dv_qp_ex *mqp,
					       uint32_t repeat_count,
					       uint16_t num_interleaved,
					       const struct mlx5dv_mr_interleaved *data);
	void (*wr_set_mkey_sig_block)(struct mlx5dv_qp_ex *mqp,
				      const struct mlx5dv_sig_block_attr *attr);
	void (*wr_raw_wqe)(struct mlx5dv_qp_ex *mqp, const void *wqe);
	void (*wr_set_dc_addr_stream)(struct mlx5dv_qp_ex *mqp,
				      struct ibv_ah *ah, uint32_t remote_dctn,
				      uint64_t remote_dc_key,
				      uint16_t stream_id);
	void (*wr_memcpy)(struct mlx5dv_qp_ex *mqp, uint32_t dest_lkey,
			  uint64_t dest_addr, uint32_t src_lkey,
			  uint64_t src_addr, size_t length);
	void (*wr_set_mkey_crypto)(struct mlx5dv_qp_ex *mqp,
				   const struct mlx5dv_crypto_attr *attr);
};

/**
 * mlx5dv_qp_ex_from_ibv_qp_ex - get the work requests of a QP
 * @qp: a QP of mlx5dv_create_qp()
 *
 * Return: the work requests, which exist as long as the QP; or NULL and EINVAL for another
 * QP.
 */
struct mlx5dv_qp_ex *mlx5dv_qp_ex_from_ibv_qp_ex(struct ibv_qp_ex *qp);

/**
 * mlx5dv_wr_mr_list - bind an mkey to ranges, one after another
 * @mqp: the work requests of a QP between ibv_wr_start() and ibv_wr_complete(), with
 *	IBV_SEND_INLINE in wr_flags
 * @mkey: an mkey in the QP's protection domain
 * @access_flags: enum ibv_access_flags
 * @num_sges: number of ranges
 * @sge: the ranges
 *
 * The request executes in the order of the queue: earlier requests use the old layout, and
 * later ones use the new layout. The request completes with MLX5DV_WC_UMR. If the kernel
 * refuses the layout, the request completes with IBV_WC_MW_BIND_ERR, and the mkey keeps the
 * old layout.
 */
static inline void mlx5dv_wr_mr_list(struct mlx5dv_qp_ex *mqp,
				     struct mlx5dv_mkey *mkey,
				     uint32_t access_flags, uint16_t num_sges,
				     struct ibv_sge *sge)
{
	mqp->wr_mr_list(mqp, mkey, access_flags, num_sges, sge);
}

/**
 * mlx5dv_wr_mr_interleaved - bind an mkey to blocks that repeat
 * @mqp: as for mlx5dv_wr_mr_list()
 * @mkey: as for mlx5dv_wr_mr_list()
 * @access_flags: as for mlx5dv_wr_mr_list()
 * @repeat_count: how often the blocks repeat
 * @num_interleaved: number of blocks
 * @data: the blocks. The mkey describes the first repetition of all blocks in order, then
 *	the second one, and so on.
 */
static inline void mlx5dv_wr_mr_interleaved(struct mlx5dv_qp_ex *mqp,
					    struct mlx5dv_mkey *mkey,
					    uint32_t access_flags,
					    uint32_t repeat_count,
					    uint16_t num_interleaved,
					    struct mlx5dv_mr_interleaved *data)
{
	mqp->wr_mr_interleaved(mqp, mkey, access_flags, repeat_count,
			       num_interleaved, data);
}

/**
 * mlx5dv_wr_mkey_configure - begin a request that configures an mkey
 * @mqp: as for mlx5dv_wr_mr_list()
 * @mkey: as for mlx5dv_wr_mr_list()
 * @num_setters: number of setters that follow, each one at most once
 * @attr: attributes of the configuration
 *
 * The last setter adds the request. If no setter sets a layout, the mkey is bound to the
 * layout of the last request that had one. If no setter sets access flags, the mkey has
 * those of the last request, or 0 if there was none.
 */
static inline void mlx5dv_wr_mkey_configure(struct mlx5dv_qp_ex *mqp,
					    struct mlx5dv_mkey *mkey,
					    uint8_t num_setters,
					    struct mlx5dv_mkey_conf_attr *attr)
{
	mqp->wr_mkey_configure(mqp, mkey, num_setters, attr);
}

/**
 * mlx5dv_wr_set_mkey_access_flags - set the access flags
 * @mqp: after mlx5dv_wr_mkey_configure()
 * @access_flags: enum ibv_access_flags, which replace the earlier ones
 */
static inline void mlx5dv_wr_set_mkey_access_flags(struct mlx5dv_qp_ex *mqp,
						   uint32_t access_flags)
{
	mqp->wr_set_mkey_access_flags(mqp, access_flags);
}

/**
 * mlx5dv_wr_set_mkey_layout_list - set a layout as for mlx5dv_wr_mr_list()
 * @mqp: after mlx5dv_wr_mkey_configure()
 * @num_sges: number of ranges
 * @sge: the ranges
 */
static inline void mlx5dv_wr_set_mkey_layout_list(struct mlx5dv_qp_ex *mqp,
						  uint16_t num_sges,
						  const struct ibv_sge *sge)
{
	mqp->wr_set_mkey_layout_list(mqp, num_sges, sge);
}

/**
 * mlx5dv_wr_set_mkey_layout_interleaved - set a layout as for mlx5dv_wr_mr_interleaved()
 * @mqp: after mlx5dv_wr_mkey_configure()
 * @repeat_count: how often the blocks repeat
 * @num_interleaved: number of blocks
 * @data: the blocks
 */
static inline void
mlx5dv_wr_set_mkey_layout_interleaved(struct mlx5dv_qp_ex *mqp,
				      uint32_t repeat_count,
				      uint16_t num_interleaved,
				      const struct mlx5dv_mr_interleaved *data)
{
	mqp->wr_set_mkey_layout_interleaved(mqp, repeat_count, num_interleaved,
					    data);
}

/** mlx5dv_wr_set_mkey_sig_block - not offered */
static inline void
mlx5dv_wr_set_mkey_sig_block(struct mlx5dv_qp_ex *mqp,
			     const struct mlx5dv_sig_block_attr *attr)
{
	mqp->wr_set_mkey_sig_block(mqp, attr);
}

/** mlx5dv_wr_set_mkey_crypto - not offered */
static inline void mlx5dv_wr_set_mkey_crypto(struct mlx5dv_qp_ex *mqp,
					     const struct mlx5dv_crypto_attr *attr)
{
	mqp->wr_set_mkey_crypto(mqp, attr);
}

/** mlx5dv_wr_memcpy - not offered */
static inline void mlx5dv_wr_memcpy(struct mlx5dv_qp_ex *mqp,
				    uint32_t dest_lkey, uint64_t dest_addr,
				    uint32_t src_lkey, uint64_t src_addr,
				    size_t length)
{
	mqp->wr_memcpy(mqp, dest_lkey, dest_addr, src_lkey, src_addr, length);
}

/** mlx5dv_wr_raw_wqe - not offered */
static inline void mlx5dv_wr_raw_wqe(struct mlx5dv_qp_ex *mqp, const void *wqe)
{
	mqp->wr_raw_wqe(mqp, wqe);
}

/** mlx5dv_wr_set_dc_addr - not offered */
static inline void mlx5dv_wr_set_dc_addr(struct mlx5dv_qp_ex *mqp,
					 struct ibv_ah *ah, uint32_t remote_dctn,
					 uint64_t remote_dc_key)
{
	mqp->wr_set_dc_addr(mqp, ah, remote_dctn, remote_dc_key);
}

/** mlx5dv_wr_set_dc_addr_stream - not offered */
static inline void mlx5dv_wr_set_dc_addr_stream(struct mlx5dv_qp_ex *mqp,
						struct ibv_ah *ah,
						uint32_t remote_dctn,
						uint64_t remote_dc_key,
						uint16_t stream_id)
{
	mqp->wr_set_dc_addr_stream(mqp, ah, remote_dctn, remote_dc_key, stream_id);
}

#ifdef __cplusplus
}
#endif

#endif /* _MLX5DV_H_ */
