// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A program of mlx5dv: requests that are refused, and what a device of ib_mkey does not
 * offer.
 */
#include <sys/mman.h>

#include "mlx5dv_test.h"
#include "refusals.h"

/* the words of the library on standard error, with IBMKEY_DEBUG=1 */
struct said {
	int fd, old;
	char text[512];
};

static void said_begin(struct said *said)
{
	memset(said, 0, sizeof(*said));
	said->old = dup(STDERR_FILENO);
	said->fd = memfd_create("said", 0);
	dup2(said->fd, STDERR_FILENO);
	setenv("IBMKEY_DEBUG", "1", 1);
}

/* true if the library has said @words */
static bool said_end(struct said *said, const char *words)
{
	ssize_t length = pread(said->fd, said->text, sizeof(said->text) - 1, 0);

	unsetenv("IBMKEY_DEBUG");
	dup2(said->old, STDERR_FILENO);
	close(said->old);
	close(said->fd);
	if (length > 0 && strstr(said->text, words))
		return true;
	mkt_diag("no \"%s\" in: %s", words, said->text);
	return false;
}

/* the layout as a list of mlx5dv; the number of its entries, or -1 if mlx5dv cannot express it */
static int list_of(const struct mkt_text *text, struct ibv_sge *sge)
{
	struct ibmkey_bind bind;
	unsigned int i;

	if (!mkt_text_bind(text, IB_UVERBS_MKEY_LIST, &bind) || bind.comp_mask || bind.num_dims ||
	    bind.repeat_count || bind.ranges != text->range || !bind.num_entries ||
	    bind.num_entries > MKT_REFUSALS_ROOM || bind.access & ~MKT_ACCESS_ALL)
		return -1;
	for (i = 0; i < bind.num_entries; i++) {
		const struct ibmkey_range *range = &bind.ranges[i];

		if (range->comp_mask || range->length > UINT32_MAX)
			return -1;
		sge[i] = (struct ibv_sge){ range->addr, range->length, range->lkey };
	}
	return bind.num_entries;
}

/* the errors of mkey_errors that a program of mlx5dv can make */
TEST_F(mlx5dv, table)
{
	struct ibv_sge sge[MKT_REFUSALS_ROOM];
	struct mkt_refusals_of of;
	struct mkt_text text;
	unsigned int i, tried = 0;

	ASSERT_EQ(0, mkt_refusals_open(&of, self->dev, self->mkey->lkey));
	for (i = 0; i < mkt_num_refusals(); i++) {
		const struct mkt_refusal *refusal = &__start_mkt_refusals[i];
		struct ibv_wc wc;
		struct said said;
		int num, err;
		bool told;

		mkt_refusal_text(refusal, &of, &text);
		num = list_of(&text, sge);
		if (num < 0)
			continue;
		tried++;
		err = bind_list(self, text.bind.access, num, sge);
		if (err) {
			/* the library refuses what mlx5dv does */
			EXPECT_EQ(refusal->err, err)
				TH_LOG("%s", refusal->name);
			continue;
		}
		if (!refusal->err) {
			EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7))
				TH_LOG("%s", refusal->name);
			continue;
		}
		said_begin(&said);
		ASSERT_EQ(0, mkt_poll(&self->pair.end[0], &wc));
		told = said_end(&said, "");
		EXPECT_TRUE(told && wc.status == IBV_WC_MW_BIND_ERR && wc.wr_id == 7)
			TH_LOG("%s", refusal->name);
		ASSERT_EQ(0, mkt_pair_recover(&self->pair));
	}
	EXPECT_LT(20, tried);
	EXPECT_EQ(0, mlx5dv_destroy_mkey(self->mkey));
	self->mkey = NULL;
	EXPECT_EQ(0, mkt_refusals_close(&of));
}

/* one way to build a request that ibv_wr_complete() must refuse */
struct refusal {
	const char *what;
	int err;
	void (*build)(FIXTURE_DATA(mlx5dv) *self, struct ibv_sge *sge,
		      struct mlx5dv_mkey_conf_attr *conf);
};

#define REFUSAL(name, error, ...)						\
	static void build_##name(FIXTURE_DATA(mlx5dv) *self, struct ibv_sge *sge,	\
				 struct mlx5dv_mkey_conf_attr *conf)		\
	{									\
		struct mlx5dv_qp_ex *mqp = self->mqp;				\
		struct mlx5dv_mkey *mkey = self->mkey;				\
		__VA_ARGS__							\
	}									\
	static const struct refusal name = { #name, error, build_##name }

REFUSAL(not_inline, EOPNOTSUPP, self->qpx->wr_flags = IBV_SEND_SIGNALED;
	mlx5dv_wr_mr_list(mqp, mkey, 0, 1, sge););
REFUSAL(no_entries, EINVAL, mlx5dv_wr_mr_list(mqp, mkey, 0, 0, sge););
REFUSAL(no_list, EINVAL, mlx5dv_wr_mr_list(mqp, mkey, 0, 1, NULL););
REFUSAL(no_blocks, EINVAL, mlx5dv_wr_mr_interleaved(mqp, mkey, 0, 1, 0, NULL););
REFUSAL(no_mkey, EINVAL, mlx5dv_wr_mr_list(mqp, NULL, 0, 1, sge);(void)mkey;);
REFUSAL(too_many, ENOMEM, mlx5dv_wr_mr_list(mqp, mkey, 0, MAX_ENTRIES + 1, sge););
REFUSAL(access_flag, EINVAL, mlx5dv_wr_mr_list(mqp, mkey, IBV_ACCESS_HUGETLB, 1, sge););
REFUSAL(no_conf, EINVAL, mlx5dv_wr_mkey_configure(mqp, mkey, 0, NULL););
REFUSAL(conf_flag, EOPNOTSUPP, conf->conf_flags = 2;
	mlx5dv_wr_mkey_configure(mqp, mkey, 1, conf););
REFUSAL(conf_mask, EOPNOTSUPP, conf->comp_mask = 1;
	mlx5dv_wr_mkey_configure(mqp, mkey, 1, conf););
REFUSAL(missing_setter, EINVAL, mlx5dv_wr_mkey_configure(mqp, mkey, 2, conf);
	mlx5dv_wr_set_mkey_layout_list(mqp, 1, sge););
REFUSAL(setter_too_many, EINVAL, mlx5dv_wr_mkey_configure(mqp, mkey, 1, conf);
	mlx5dv_wr_set_mkey_layout_list(mqp, 1, sge); mlx5dv_wr_set_mkey_access_flags(mqp, 0););
REFUSAL(access_twice, EINVAL, mlx5dv_wr_mkey_configure(mqp, mkey, 3, conf);
	mlx5dv_wr_set_mkey_access_flags(mqp, 0); mlx5dv_wr_set_mkey_access_flags(mqp, 0););
REFUSAL(layout_twice, EINVAL, mlx5dv_wr_mkey_configure(mqp, mkey, 3, conf);
	mlx5dv_wr_set_mkey_layout_list(mqp, 1, sge);
	mlx5dv_wr_set_mkey_layout_interleaved(mqp, 1, 1, NULL););
REFUSAL(setter_alone, EINVAL, mlx5dv_wr_set_mkey_access_flags(mqp, 0);(void)mkey;);
REFUSAL(two_at_once, EINVAL, mlx5dv_wr_mkey_configure(mqp, mkey, 1, conf);
	mlx5dv_wr_mr_list(mqp, mkey, 0, 1, sge););
REFUSAL(signature, EOPNOTSUPP, mlx5dv_wr_mkey_configure(mqp, mkey, 2, conf);
	mlx5dv_wr_set_mkey_layout_list(mqp, 1, sge); mlx5dv_wr_set_mkey_sig_block(mqp, NULL););
REFUSAL(crypto, EOPNOTSUPP, mlx5dv_wr_mkey_configure(mqp, mkey, 2, conf);
	mlx5dv_wr_set_mkey_layout_list(mqp, 1, sge); mlx5dv_wr_set_mkey_crypto(mqp, NULL););
REFUSAL(dma_copy, EOPNOTSUPP, mlx5dv_wr_memcpy(mqp, 0, 0, 0, 0, 1);(void)mkey;);
REFUSAL(raw, EOPNOTSUPP, mlx5dv_wr_raw_wqe(mqp, NULL);(void)mkey;);
REFUSAL(dc, EOPNOTSUPP, mlx5dv_wr_set_dc_addr(mqp, NULL, 0, 0);(void)mkey;);
REFUSAL(dc_stream, EOPNOTSUPP, mlx5dv_wr_set_dc_addr_stream(mqp, NULL, 0, 0, 0);(void)mkey;);

static const struct refusal *const refusals[] = {
	&not_inline, &no_entries, &no_list, &no_blocks, &no_mkey, &too_many, &access_flag, &no_conf,
	&conf_flag, &conf_mask, &missing_setter, &setter_too_many, &access_twice, &layout_twice,
	&setter_alone, &two_at_once, &signature, &crypto, &dma_copy, &raw, &dc, &dc_stream,
};

/* Nothing of a batch with such a request is posted, and the mkey stays as it was. */
TEST_F(mlx5dv, refused_before_posting)
{
	struct ibv_sge sge = range(self, 5000, 64), other = range(self, 100, 64);
	struct ibv_wc wc;
	size_t i;

	ASSERT_EQ(0, bind_list(self, IBV_ACCESS_LOCAL_WRITE, 1, &sge));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	for (i = 0; i < ARRAY_SIZE(refusals); i++) {
		const char *words = refusals[i] == &too_many ? "the mkey was created for" : ": ";
		struct mlx5dv_mkey_conf_attr conf = {};
		struct said said;
		int err;

		said_begin(&said);
		ibv_wr_start(self->qpx);
		add_write(self, 1, 64, 1024);
		next(self, 2);
		refusals[i]->build(self, &other, &conf);
		add_write(self, 3, 64, 1024);
		err = ibv_wr_complete(self->qpx);
		EXPECT_TRUE(said_end(&said, words));
		EXPECT_EQ(refusals[i]->err, err)
			mkt_diag("%s: %d", refusals[i]->what, err);
	}
	ibv_wr_start(self->qpx);
	mlx5dv_wr_mr_list(self->mqp, self->mkey, 0, 1, &other);
	ibv_wr_abort(self->qpx);

	ibv_wr_start(self->qpx);
	add_write(self, 8, 64, 0);
	ASSERT_EQ(0, ibv_wr_complete(self->qpx));
	EXPECT_EQ(IBV_WC_RDMA_WRITE, completed(self, 8));
	ASSERT_TRUE(arrived(self, 63, self->src[5063]));
	EXPECT_EQ(0, memcmp(self->dst, self->src + 5000, 64));
	EXPECT_EQ(0xee, self->dst[1024]);
	EXPECT_EQ(0, ibv_poll_cq(self->pair.end[0].cq, 1, &wc));
}

/* A QP has only the requests that it was created for. */
TEST_F(mlx5dv, qp_without_the_request)
{
	const uint64_t ops[] = { MLX5DV_QP_EX_WITH_MR_LIST, MLX5DV_QP_EX_WITH_MR_INTERLEAVED,
				 MLX5DV_QP_EX_WITH_MKEY_CONFIGURE };
	struct ibv_sge sge = range(self, 5000, 64);
	struct mlx5dv_mr_interleaved data[2];
	size_t has, used;

	blocks(self, data);
	for (has = 0; has < 3; has++) {
		struct ibv_qp *qp = create_mkey_qp(&self->dev[0], self->pair.end[0].cq,
						   variant->type, ops[has]);
		struct ibv_qp_ex *qpx;
		struct mlx5dv_qp_ex *mqp;

		ASSERT_NE(NULL, qp);
		qpx = ibv_qp_to_qp_ex(qp);
		mqp = mlx5dv_qp_ex_from_ibv_qp_ex(qpx);
		ASSERT_NE(NULL, mqp);
		for (used = 0; used < 3; used++) {
			struct mlx5dv_mkey_conf_attr conf = {};

			if (used == has)
				continue;
			ibv_wr_start(qpx);
			qpx->wr_flags = IBV_SEND_INLINE;
			if (used == 0)
				mlx5dv_wr_mr_list(mqp, self->mkey, 0, 1, &sge);
			else if (used == 1)
				mlx5dv_wr_mr_interleaved(mqp, self->mkey, 0, 1, 2, data);
			else
				mlx5dv_wr_mkey_configure(mqp, self->mkey, 0, &conf);
			EXPECT_EQ(EOPNOTSUPP, ibv_wr_complete(qpx));
		}
		EXPECT_EQ(0, ibv_destroy_qp(qp));
	}
}

TEST_F(mlx5dv, creation_is_refused)
{
	struct mlx5dv_qp_init_attr qp[] = {
		{ .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC },
		{ .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS },
		{ .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		  .send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE },
		{ .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		  .send_ops_flags = MLX5DV_QP_EX_WITH_MEMCPY },
		{ .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		  .create_flags = MLX5DV_QP_CREATE_SIG_PIPELINING },
		{ .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		  .create_flags = MLX5DV_QP_CREATE_OOO_DP },
	};
	const uint32_t mkey[] = {
		0, MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE,
		1 | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
		1 | MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO,
		1 | MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG, 1 | 1 << 5,
	};
	struct mlx5dv_qp_init_attr unknown = { .comp_mask = 1 << 4 };
	struct mlx5dv_qp_init_attr both = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE |
				MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE,
	};
	struct mlx5dv_qp_init_attr ud = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST,
	};
	struct mlx5dv_cq_init_attr cq = { .comp_mask = 1 };
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 4 };
	struct ibv_cq *own = self->pair.end[0].cq;
	struct mlx5dv_mkey_err mkey_err;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(qp); i++) {
		errno = 0;
		EXPECT_EQ(NULL, create_qp(&self->dev[0], own, variant->type, &qp[i], 0));
		EXPECT_EQ(EOPNOTSUPP, errno);
	}
	EXPECT_EQ(NULL, create_qp(&self->dev[0], own, variant->type, &unknown, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(NULL, create_qp(&self->dev[0], own, variant->type, &both, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(NULL, create_qp(&self->dev[0], own, IBV_QPT_UD, &ud, 0));
	EXPECT_EQ(EOPNOTSUPP, errno);
	EXPECT_EQ(NULL, mlx5dv_create_qp(self->dev[0].ctx, NULL, NULL));
	EXPECT_EQ(EINVAL, errno);
	for (i = 0; i < ARRAY_SIZE(mkey); i++) {
		errno = 0;
		EXPECT_EQ(NULL, create_mkey(&self->dev[0], mkey[i], 4));
		EXPECT_EQ(EOPNOTSUPP, errno);
	}
	EXPECT_EQ(NULL, create_mkey(&self->dev[0], MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(NULL, mlx5dv_create_mkey(NULL));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(EINVAL, mlx5dv_destroy_mkey(NULL));
	EXPECT_EQ(EOPNOTSUPP, mlx5dv_mkey_check(self->mkey, &mkey_err));
	EXPECT_EQ(NULL, mlx5dv_create_cq(self->dev[0].ctx, &cq_attr, &cq));
	EXPECT_EQ(EOPNOTSUPP, errno);
}

FIXTURE(device)
{
	struct mkt_dev dev[2];
};

FIXTURE_SETUP(device)
{
	MKT_OPEN_EXTENDED(self->dev);
}

FIXTURE_TEARDOWN(device)
{
	mkt_dev_close(&self->dev[0]);
	mkt_dev_close(&self->dev[1]);
}

TEST_F(device, caps)
{
	const uint64_t none = MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE |
			      MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK | MLX5DV_CONTEXT_MASK_REG_C0 |
			      MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS;
	const uint64_t all = (MLX5DV_CONTEXT_MASK_OOO_RECV_WRS << 1) - 1;
	struct mlx5dv_context caps;

	memset(&caps, 0xff, sizeof(caps));
	ASSERT_EQ(0, mlx5dv_query_device(self->dev[0].ctx, &caps));
	EXPECT_EQ(all & ~none, caps.comp_mask);
	EXPECT_EQ(0, caps.version);
	EXPECT_EQ(0, caps.flags);
	EXPECT_EQ(0, caps.sig_caps.block_prot);
	EXPECT_EQ(0, caps.sig_caps.block_size);
	EXPECT_EQ(0, caps.crypto_caps.flags);
	EXPECT_EQ(0, caps.crypto_caps.crypto_engines);
	EXPECT_EQ(0, caps.max_wr_memcpy_length);
	EXPECT_EQ(0, caps.cqe_comp_caps.max_num);
	EXPECT_EQ(0, caps.dc_odp_caps);
	EXPECT_EQ(0, caps.ooo_recv_wrs_caps.max_rc);

	/* Fields that the caller does not know stay as they are. */
	memset(&caps, 0xff, sizeof(caps));
	caps.comp_mask = MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD;
	ASSERT_EQ(0, mlx5dv_query_device(self->dev[0].ctx, &caps));
	EXPECT_EQ(MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD, caps.comp_mask);
	EXPECT_EQ(0, caps.sig_caps.block_prot);
	EXPECT_EQ(UINT64_MAX, caps.max_wr_memcpy_length);
	EXPECT_EQ(UINT32_MAX, caps.ooo_recv_wrs_caps.max_uc);
	EXPECT_EQ(EINVAL, mlx5dv_query_device(self->dev[0].ctx, NULL));
	EXPECT_EQ(EINVAL, mlx5dv_query_device(NULL, &caps));
}

TEST_F(device, open)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct mlx5dv_context_attr attr = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	struct ibv_device_attr_ex device = {};
	struct ibv_context *ctx;

	ASSERT_NE(NULL, list);
	EXPECT_FALSE(mlx5dv_is_supported(NULL));
	if (!list[0])
		SKIP(return, "this network namespace has no device");
	ASSERT_TRUE(mlx5dv_is_supported(list[0]));
	ctx = mlx5dv_open_device(list[0], &attr);
	ASSERT_NE(NULL, ctx);
	/* device memory needs no more calls */
	ASSERT_EQ(0, ibv_query_device_ex(ctx, NULL, &device));
	EXPECT_NE(0, device.max_dm_size);
	EXPECT_EQ(0, ibv_close_device(ctx));
	attr.flags = 2;
	EXPECT_EQ(NULL, mlx5dv_open_device(list[0], &attr));
	EXPECT_EQ(EINVAL, errno);
	attr.flags = 0;
	attr.comp_mask = 1;
	EXPECT_EQ(NULL, mlx5dv_open_device(list[0], &attr));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(NULL, mlx5dv_open_device(list[0], NULL));
	EXPECT_EQ(EINVAL, errno);
	ibv_free_device_list(list);
}

TEST_HARNESS_MAIN
