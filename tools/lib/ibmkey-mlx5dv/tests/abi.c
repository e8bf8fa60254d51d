// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Prints the sizes, offsets and values of mlx5dv.h. `tests/check` compiles this file with the
 * header of this directory and with rdma-core's, and compares the outputs.
 */
#include <stddef.h>
#include <stdio.h>

#include <infiniband/mlx5dv.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(struct type))
#define AT(type, member) printf(#type "." #member " %zu %zu\n", offsetof(struct type, member), \
				sizeof(((struct type *)NULL)->member))
#define VALUE(name) printf(#name " %lld\n", (long long)(name))

static void devices(void)
{
	SIZE(mlx5dv_context_attr);
	AT(mlx5dv_context_attr, flags);
	AT(mlx5dv_context_attr, comp_mask);
	SIZE(mlx5dv_context);
	AT(mlx5dv_context, version);
	AT(mlx5dv_context, flags);
	AT(mlx5dv_context, comp_mask);
	AT(mlx5dv_context, cqe_comp_caps);
	AT(mlx5dv_context, sw_parsing_caps);
	AT(mlx5dv_context, striding_rq_caps);
	AT(mlx5dv_context, tunnel_offloads_caps);
	AT(mlx5dv_context, max_dynamic_bfregs);
	AT(mlx5dv_context, max_clock_info_update_nsec);
	AT(mlx5dv_context, flow_action_flags);
	AT(mlx5dv_context, dc_odp_caps);
	AT(mlx5dv_context, hca_core_clock);
	AT(mlx5dv_context, num_lag_ports);
	AT(mlx5dv_context, sig_caps);
	AT(mlx5dv_context, dci_streams_caps);
	AT(mlx5dv_context, max_wr_memcpy_length);
	AT(mlx5dv_context, crypto_caps);
	AT(mlx5dv_context, max_dc_rd_atom);
	AT(mlx5dv_context, max_dc_init_rd_atom);
	AT(mlx5dv_context, reg_c0);
	AT(mlx5dv_context, ooo_recv_wrs_caps);
	AT(mlx5dv_sig_caps, block_prot);
	AT(mlx5dv_sig_caps, crc_type);
	AT(mlx5dv_crypto_caps, flags);
	SIZE(mlx5dv_alloc_dm_attr);
	AT(mlx5dv_alloc_dm_attr, comp_mask);
	VALUE(MLX5DV_CONTEXT_FLAGS_DEVX);
	VALUE(MLX5DV_CONTEXT_MASK_CQE_COMPRESION);
	VALUE(MLX5DV_CONTEXT_MASK_SWP);
	VALUE(MLX5DV_CONTEXT_MASK_STRIDING_RQ);
	VALUE(MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS);
	VALUE(MLX5DV_CONTEXT_MASK_DYN_BFREGS);
	VALUE(MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE);
	VALUE(MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS);
	VALUE(MLX5DV_CONTEXT_MASK_DC_ODP_CAPS);
	VALUE(MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK);
	VALUE(MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS);
	VALUE(MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD);
	VALUE(MLX5DV_CONTEXT_MASK_DCI_STREAMS);
	VALUE(MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH);
	VALUE(MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD);
	VALUE(MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM);
	VALUE(MLX5DV_CONTEXT_MASK_REG_C0);
	VALUE(MLX5DV_CONTEXT_MASK_OOO_RECV_WRS);
	VALUE(MLX5DV_DM_TYPE_MEMIC);
	VALUE(MLX5DV_DM_TYPE_STEERING_SW_ICM);
	VALUE(MLX5DV_DM_TYPE_HEADER_MODIFY_SW_ICM);
	VALUE(MLX5DV_DM_TYPE_HEADER_MODIFY_PATTERN_SW_ICM);
	VALUE(MLX5DV_DM_TYPE_ENCAP_SW_ICM);
}

static void objects(void)
{
	SIZE(mlx5dv_mkey_init_attr);
	AT(mlx5dv_mkey_init_attr, pd);
	AT(mlx5dv_mkey_init_attr, create_flags);
	AT(mlx5dv_mkey_init_attr, max_entries);
	SIZE(mlx5dv_mkey);
	AT(mlx5dv_mkey, lkey);
	AT(mlx5dv_mkey, rkey);
	SIZE(mlx5dv_mkey_err);
	AT(mlx5dv_mkey_err, err_type);
	AT(mlx5dv_mkey_err, err);
	AT(mlx5dv_sig_err, actual_value);
	AT(mlx5dv_sig_err, expected_value);
	AT(mlx5dv_sig_err, offset);
	SIZE(mlx5dv_cq_init_attr);
	AT(mlx5dv_cq_init_attr, cqe_comp_res_format);
	AT(mlx5dv_cq_init_attr, flags);
	AT(mlx5dv_cq_init_attr, cqe_size);
	SIZE(mlx5dv_qp_init_attr);
	AT(mlx5dv_qp_init_attr, comp_mask);
	AT(mlx5dv_qp_init_attr, create_flags);
	AT(mlx5dv_qp_init_attr, dc_init_attr);
	AT(mlx5dv_qp_init_attr, send_ops_flags);
	VALUE(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT);
	VALUE(MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE);
	VALUE(MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO);
	VALUE(MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG);
	VALUE(MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE);
	VALUE(MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
	VALUE(MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG);
	VALUE(MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG);
	VALUE(MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS);
	VALUE(MLX5DV_QP_INIT_ATTR_MASK_DC);
	VALUE(MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS);
	VALUE(MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS);
	VALUE(MLX5DV_QP_CREATE_TUNNEL_OFFLOADS);
	VALUE(MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE);
	VALUE(MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE);
	VALUE(MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE);
	VALUE(MLX5DV_QP_CREATE_SIG_PIPELINING);
	VALUE(MLX5DV_QP_CREATE_OOO_DP);
	VALUE(MLX5DV_QP_EX_WITH_MR_INTERLEAVED);
	VALUE(MLX5DV_QP_EX_WITH_MR_LIST);
	VALUE(MLX5DV_QP_EX_WITH_MKEY_CONFIGURE);
	VALUE(MLX5DV_QP_EX_WITH_RAW_WQE);
	VALUE(MLX5DV_QP_EX_WITH_MEMCPY);
}

static void requests(void)
{
	SIZE(mlx5dv_mr_interleaved);
	AT(mlx5dv_mr_interleaved, addr);
	AT(mlx5dv_mr_interleaved, bytes_count);
	AT(mlx5dv_mr_interleaved, bytes_skip);
	AT(mlx5dv_mr_interleaved, lkey);
	SIZE(mlx5dv_mkey_conf_attr);
	AT(mlx5dv_mkey_conf_attr, conf_flags);
	AT(mlx5dv_mkey_conf_attr, comp_mask);
	SIZE(mlx5dv_sig_t10dif);
	SIZE(mlx5dv_sig_crc);
	SIZE(mlx5dv_sig_block_domain);
	SIZE(mlx5dv_sig_block_attr);
	AT(mlx5dv_sig_block_attr, check_mask);
	SIZE(mlx5dv_crypto_attr);
	AT(mlx5dv_crypto_attr, dek);
	SIZE(mlx5dv_qp_ex);
	AT(mlx5dv_qp_ex, comp_mask);
	AT(mlx5dv_qp_ex, wr_set_dc_addr);
	AT(mlx5dv_qp_ex, wr_mr_interleaved);
	AT(mlx5dv_qp_ex, wr_mr_list);
	AT(mlx5dv_qp_ex, wr_mkey_configure);
	AT(mlx5dv_qp_ex, wr_set_mkey_access_flags);
	AT(mlx5dv_qp_ex, wr_set_mkey_layout_list);
	AT(mlx5dv_qp_ex, wr_set_mkey_layout_interleaved);
	AT(mlx5dv_qp_ex, wr_set_mkey_sig_block);
	AT(mlx5dv_qp_ex, wr_raw_wqe);
	AT(mlx5dv_qp_ex, wr_set_dc_addr_stream);
	AT(mlx5dv_qp_ex, wr_memcpy);
	AT(mlx5dv_qp_ex, wr_set_mkey_crypto);
	VALUE(MLX5DV_WC_UMR);
	VALUE(MLX5DV_WC_RAW_WQE);
	VALUE(MLX5DV_WC_MEMCPY);
	VALUE(MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR);
	VALUE(MLX5DV_SIG_TYPE_CRC);
	VALUE(MLX5DV_SIG_CRC_TYPE_CRC64_XP10);
	VALUE(MLX5DV_SIG_T10DIF_CSUM);
	VALUE(MLX5DV_BLOCK_SIZE_4160);
}

int main(void)
{
	devices();
	objects();
	requests();
	return 0;
}
