// SPDX-License-Identifier: GPL-2.0
/*
 * subject: FLUSH of device memory of each class, by an MR and by keys. Only persistent memory
 * can be flushed to persistence.
 * needs: classes
 */
#include "dm_class.h"

#define TRACING "/sys/kernel/tracing/"

/* start to count how often the kernel writes caches back to pmem */
static bool writebacks_begin(void)
{
	return !system("echo p:mkt_wb arch_wb_cache_pmem >>" TRACING
		       "kprobe_events && echo 1 >" TRACING
		       "events/kprobes/mkt_wb/enable");
}

static int writebacks_end(void)
{
	char line[64] = "";

	mkt_command(line, sizeof(line),
		    "awk '$1 == \"mkt_wb\" { print $2 }' " TRACING
		    "kprobe_profile");
	if (system("echo 0 >" TRACING "events/kprobes/mkt_wb/enable && echo -:mkt_wb >>"
		   TRACING "kprobe_events"))
		return -1;
	return *line ? atoi(line) : -1;
}

/*
 * a key of 4 GiB is flushed as well, although rxe reports an MR's length in 32 bits
 */
static void class_flush_whole(struct __test_metadata *_metadata,
			      FIXTURE_DATA(class) *self, struct ibv_mr *mr,
			      struct ibv_mr *key)
{
	const int access = MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_PERSISTENT;
	const uint64_t pages = 1 << 20, two = 2;
	/* begin at the buffer's second page */
	struct ibmkey_block block = {
		.addr = 3996,
		.bytes_count = 4096,
		.lkey = mr->lkey,
	};
	struct mkt_wr wr = {
		.op = MKT_FLUSH,
		.rkey = key->rkey,
		.persistent = true,
		.whole = true,
	};

	ASSERT_EQ(0, ibv_rereg_mr_interleaved(key, access, 1, &pages, 1,
					      &block));
	ASSERT_EQ(1ull << 32, key->length);
	if (!writebacks_begin())
		return;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	EXPECT_EQ(pages, writebacks_end());

	/* a shorter key, with a FLUSH of zero bytes */
	block.bytes_count = 100;
	block.stride[0] = 4096;
	ASSERT_EQ(0, ibv_rereg_mr_interleaved(key, access, 1, &two, 1,
					      &block));
	ASSERT_TRUE(writebacks_begin());
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	wr.whole = false;
	wr.remote_addr = 4;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	EXPECT_EQ(2, writebacks_end());
}

/*
 * a flush of a key over other keys, or over several MRs, takes no longer than that of
 * a key over one: all of them may be over the same bytes
 */
static void class_flush_shared(struct __test_metadata *_metadata,
			       FIXTURE_DATA(class) *self, struct ibv_mr *mr)
{
	const int access = MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_PERSISTENT;
	const uint64_t half = 450000, one = 1;
	struct ibmkey_block block = { .bytes_count = 10000, .lkey = mr->lkey };
	struct ibmkey_block both[2] = {};
	struct ibv_mr *inner[2], *outer;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		inner[i] = ibmkey_alloc(self->s.dev[0].pd, 1);
		ASSERT_NE(NULL, inner[i]);
		ASSERT_EQ(0, ibv_rereg_mr_interleaved(inner[i], access, 1, &half, 1, &block));
		both[i].bytes_count = inner[i]->length;
		both[i].lkey = inner[i]->lkey;
	}
	outer = ibmkey_alloc(self->s.dev[0].pd, 2);
	ASSERT_NE(NULL, outer);
	/* 9,000,000,000 bytes in 900,000 pieces */
	EXPECT_EQ(EOPNOTSUPP, ibv_rereg_mr_interleaved(outer, access, 1, &one, 2, both));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "access has IBV_ACCESS_FLUSH_PERSISTENT"));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "up to blocks[1]"));
	EXPECT_EQ(0, ibv_rereg_mr_interleaved(outer, MKT_ACCESS_ALL, 1, &one, 2, both));
	both[1].bytes_count = 4000000000;
	EXPECT_EQ(0, ibv_rereg_mr_interleaved(outer, access, 1, &one, 2, both));
	ASSERT_EQ(0, ibv_dereg_mr(outer));
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, ibv_dereg_mr(inner[i]));
}

/*
 * only persistent memory can be flushed to persistence; all can be flushed to
 * visibility
 */
TEST_F(class, flush)
{
	int access = MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED |
		     IBV_ACCESS_FLUSH_GLOBAL;
	const uint64_t two = 2, most = 1 << 20, many = most + 1;
	struct ibmkey_block block = { .bytes_count = 8, .stride = { 8192 } };
	struct ibv_mr *mr, *key;
	struct ibv_sge sge;
	struct ibv_dm *dm;
	struct mkt_wr wr;
	bool counted;

	dm = mkt_dm_alloc(&self->s.dev[0], 20000, 0, self->which);
	ASSERT_NE(NULL, dm);
	errno = 0;
	mr = ibv_reg_dm_mr(self->s.dev[0].pd, dm, 100, 10000,
			   access | IBV_ACCESS_FLUSH_PERSISTENT);
	if (variant->place != PMEM) {
		EXPECT_REFUSED(EOPNOTSUPP, mr);
		ASSERT_EQ(0, ibv_free_dm(dm));
		return;
	}
	ASSERT_NE(NULL, mr);
	wr = (struct mkt_wr){
		.op = MKT_FLUSH,
		.remote_addr = 1000,
		.rkey = mr->rkey,
		.flush_length = 9000,
		.persistent = true,
	};
	/* bytes 1100 to 10100 of the buffer: parts of three pages */
	counted = writebacks_begin();
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	if (counted) {
		EXPECT_EQ(3, writebacks_end());
	} else {
		TH_LOG("no kprobe events: what a flush does is not looked at");
	}
	/* a range beyond the end */
	wr.flush_length = 9001;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_status(&self->s.pair, 1, &wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));

	/*
	 * a key with three blocks of 8 bytes, in each second page of the buffer
	 */
	key = ibmkey_alloc(self->s.dev[0].pd, 1);
	ASSERT_NE(NULL, key);
	block.lkey = mr->lkey;
	ASSERT_EQ(0, ibv_rereg_mr_interleaved(key, MKT_ACCESS_ALL |
					      IBV_ACCESS_FLUSH_PERSISTENT, 1,
					      &two, 1, &block));
	wr.remote_addr = 4;
	wr.rkey = key->rkey;
	wr.flush_length = 10;
	counted = writebacks_begin();
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	if (counted) {
		EXPECT_EQ(2, writebacks_end());
	}
	/* more pieces than can be flushed while a request waits */
	block.stride[0] = 0;
	EXPECT_EQ(EOPNOTSUPP,
		  ibv_rereg_mr_interleaved(key, IBV_ACCESS_FLUSH_PERSISTENT, 1,
					   &many, 1, &block));
	EXPECT_EQ(0, ibv_rereg_mr_interleaved(key, IBV_ACCESS_FLUSH_PERSISTENT, 1,
					      &most, 1, &block));
	/* more bytes, which the leaf has only once */
	block.bytes_count = 10000;
	EXPECT_EQ(EOPNOTSUPP,
		  ibv_rereg_mr_interleaved(key, IBV_ACCESS_FLUSH_PERSISTENT, 1,
					   &most, 1, &block));
	EXPECT_EQ(0, ibv_rereg_mr_interleaved(key, 0, 1, &most, 1, &block));
	class_flush_whole(_metadata, self, mr, key);
	class_flush_shared(_metadata, self, mr);
	ASSERT_EQ(0, ibv_dereg_mr(key));

	/* an MR without this access flag */
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	wr.remote_addr = 1000;
	mr = ibv_reg_dm_mr(self->s.dev[0].pd, dm, 100, 10000, access);
	ASSERT_NE(NULL, mr);
	wr.rkey = mr->rkey;
	wr.flush_length = 9000;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_status(&self->s.pair, 1, &wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));

	/* a key over it cannot have the flag either */
	key = ibmkey_alloc(self->s.dev[0].pd, 1);
	ASSERT_NE(NULL, key);
	sge = (struct ibv_sge){ .addr = 0, .length = 100, .lkey = mr->lkey };
	EXPECT_EQ(EACCES,
		  ibv_rereg_mr_sg(key, IBV_ACCESS_FLUSH_PERSISTENT, 1, &sge));
	ASSERT_EQ(0, ibv_dereg_mr(key));
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	ASSERT_EQ(0, ibv_free_dm(dm));
}

TEST_HARNESS_MAIN
