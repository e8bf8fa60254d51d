// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Device memory by the standard verbs: it is allocated, copied to and from at any
 * offset, registered and freed. Invalid arguments are refused. mkey_matrix moves its bytes.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "mkey_harness.h"

FIXTURE(dm)
{
	struct mkt_dev dev;
	struct mkt_rng rng;
};

FIXTURE_SETUP(dm)
{
	MKT_OPEN_SIDE(&self->dev, 0);
	mkt_rng_init(&self->rng, _metadata->name);
}

FIXTURE_TEARDOWN(dm)
{
	mkt_dev_close(&self->dev);
}

static struct ibv_mr *dm_reg(struct mkt_dev *dev, struct ibv_dm *dm,
			     uint64_t offset, size_t length)
{
	return ibv_reg_dm_mr(dev->pd, dm, offset, length,
			     MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
}

TEST_F(dm, alloc_refused)
{
	const struct {
		uint64_t length;
		uint32_t log_align;
		int err;	/* 0: any */
	} refused[] = {
		{ 0, 0, EINVAL }, { self->dev.caps.max_dm_size + 1, 0, ENOMEM },
		{ SIZE_MAX, 0, 0 }, { 1ull << 32, 0, 0 }, { 100, 40, EINVAL },
		{ 100, 63, EINVAL }, { 100, 64, EINVAL }, { 100, 128, EINVAL },
		{ 100, 199, EINVAL }, { 100, UINT32_MAX, EINVAL },
	};
	struct ibv_dm *dm;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		EXPECT_EQ(NULL, mkt_dm_alloc(&self->dev, refused[i].length, refused[i].log_align,
					     0));
		EXPECT_NE(0, errno);
		EXPECT_EQ(refused[i].err ?: errno, errno)
			TH_LOG("%#" PRIx64 " bytes", refused[i].length);
	}
	for (i = 0; i <= 12; i++) {
		dm = mkt_dm_alloc(&self->dev, 100, i, 0);
		ASSERT_NE(NULL, dm);
		ASSERT_EQ(0, ibv_free_dm(dm));
	}
}

/* a bit of a later version of libibverbs; nothing is allocated */
TEST_F(dm, alloc_comp_mask)
{
	int64_t before, bytes;
	unsigned int bit, n;

	before = mkt_owner_bytes(&self->dev, getuid());
	for (bit = 0; bit < 32; bit++) {
		struct ibv_alloc_dm_attr attr = {
			.length = 4096,
			.comp_mask = 1u << bit,
		};

		errno = 0;
		EXPECT_ERRNO(EINVAL, ibv_alloc_dm(self->dev.ctx, &attr));
		for (n = 0; n < 2; n++) {
			errno = 0;
			EXPECT_ERRNO(EINVAL, ibmkey_alloc_dm(self->dev.ctx, &attr,
							     n ? IBMKEY_DM_HOST : 0));
		}
	}
	bytes = mkt_owner_bytes(&self->dev, getuid());
	EXPECT_EQ(before, bytes);
}

/* copies of any length at any offset, compared with an array */
TEST_F(dm, copy)
{
	unsigned int i, rounds = mkt_scale(1500, 200);
	size_t size = 20000;
	uint8_t *expect = calloc(1, size), *seen = malloc(size + 64);
	uint8_t *from = malloc(size + 64);
	struct ibv_dm *dm = mkt_dm_alloc(&self->dev, size, 0, 0);

	ASSERT_TRUE(expect && seen && from && dm);
	for (i = 0; i < rounds; i++) {
		size_t length = mkt_rand_size(&self->rng, size);
		size_t offset = mkt_between(&self->rng, 0, size - length);
		size_t shift = mkt_between(&self->rng, 0, 63);

		mkt_rand_bytes(&self->rng, from + shift, length);
		ASSERT_EQ(0, ibv_memcpy_to_dm(dm, offset, from + shift,
					      length));
		memcpy(expect + offset, from + shift, length);

		length = mkt_rand_size(&self->rng, size);
		offset = mkt_between(&self->rng, 0, size - length);
		memset(seen, 0xa5, size + 64);
		ASSERT_EQ(0, ibv_memcpy_from_dm(seen + shift, dm, offset,
						length));
		ASSERT_EQ(0, memcmp(expect + offset, seen + shift, length));
		/* the bytes beside the range are unchanged */
		ASSERT_TRUE(!shift || seen[shift - 1] == 0xa5);
		ASSERT_EQ(0xa5, seen[shift + length]);
	}
	ASSERT_EQ(0, ibv_memcpy_from_dm(seen, dm, 0, size));
	ASSERT_EQ(0, memcmp(expect, seen, size));
	/* a length of zero is valid */
	ASSERT_EQ(0, ibv_memcpy_to_dm(dm, size, from, 0));
	ASSERT_EQ(0, ibv_memcpy_from_dm(from, dm, 0, 0));
	ASSERT_EQ(0, ibv_free_dm(dm));
	free(expect);
	free(seen);
	free(from);
}

/* memory of the process that is not there; dm_view has ranges outside of the buffer */
TEST_F(dm, copy_refused)
{
	struct ibv_dm *dm = mkt_dm_alloc(&self->dev, 100, 0, 0);
	uint8_t bytes[256], seen[100];
	unsigned int i;
	void *gone;

	ASSERT_NE(NULL, dm);
	memset(bytes, 0x77, sizeof(bytes));
	ASSERT_EQ(0, ibv_memcpy_to_dm(dm, 0, bytes, 100));
	gone = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, gone);
	ASSERT_EQ(0, munmap(gone + 4096, 4096));
	EXPECT_EQ(EFAULT, ibv_memcpy_to_dm(dm, 0, gone + 4096, 1));
	EXPECT_EQ(EFAULT, ibv_memcpy_from_dm(gone + 4096, dm, 0, 1));
	EXPECT_EQ(EFAULT, ibv_memcpy_from_dm(NULL, dm, 0, 100));
	/* an address of the kernel */
	EXPECT_EQ(EFAULT, ibv_memcpy_from_dm((void *)~0xfffull, dm, 0, 100));
	ASSERT_EQ(0, mprotect(gone, 4096, PROT_READ));
	EXPECT_EQ(EFAULT, ibv_memcpy_from_dm(gone, dm, 0, 100));
	EXPECT_EQ(0, ibv_memcpy_to_dm(dm, 0, gone, 1));

	ASSERT_EQ(0, ibv_memcpy_from_dm(seen, dm, 0, 100));
	EXPECT_EQ(0, seen[0]);
	for (i = 1; i < 100; i++) {
		ASSERT_EQ(0x77, seen[i]);
	}
	munmap(gone, 4096);
	EXPECT_EQ(0, ibv_free_dm(dm));
}

TEST_F(dm, register_refused)
{
	const int zero = MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED;
	const struct {
		uint64_t offset, length;
		int access;
		int err;	/* 0: any */
	} refused[] = {
		{ 0, 1000, MKT_ACCESS_ALL, EINVAL }, { 0, 1001, zero, EINVAL },
		{ 1, 1000, zero, EINVAL }, { UINT64_MAX, 2, zero, EINVAL },
		{ 2, UINT64_MAX, zero, EINVAL }, { 1001, 0, zero, EINVAL },
		/* remote write without local write */
		{ 0, 1000, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE, EINVAL },
		{ 0, 1000, zero | IBV_ACCESS_ON_DEMAND, 0 },
	};
	struct ibv_dm *dm = mkt_dm_alloc(&self->dev, 1000, 0, 0);
	struct ibv_mr *mr;
	unsigned int i;

	ASSERT_NE(NULL, dm);
	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		errno = 0;
		EXPECT_EQ(NULL, ibv_reg_dm_mr(self->dev.pd, dm, refused[i].offset,
					      refused[i].length, refused[i].access));
		EXPECT_NE(0, errno);
		EXPECT_EQ(refused[i].err ?: errno, errno)
			TH_LOG("row %u", i);
	}
	/* the last byte alone */
	mr = dm_reg(&self->dev, dm, 999, 1);
	ASSERT_NE(NULL, mr);
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_EQ(0, ibv_free_dm(dm));
}

/* an MR of zero bytes is an MR: the memory cannot be freed while it exists */
TEST_F(dm, no_bytes)
{
	struct ibv_dm *dm = mkt_dm_alloc(&self->dev, 1000, 0, 0);
	static const uint64_t offset[] = { 0, 7, 1000 };
	struct ibv_mr *mr, *key = ibmkey_alloc(self->dev.pd, 1);
	unsigned int i;

	ASSERT_NE(NULL, dm);
	ASSERT_NE(NULL, key);
	for (i = 0; i < ARRAY_SIZE(offset); i++) {
		mr = dm_reg(&self->dev, dm, offset[i], 0);
		ASSERT_NE(NULL, mr);
		EXPECT_EQ(0, mr->length);
		EXPECT_EQ(EBUSY, ibv_free_dm(dm));
		/* as for an unbound key */
		EXPECT_EQ(ERANGE, mkt_bind_range(key, 0, mr, 0, 1));
		EXPECT_EQ(EINVAL, ibmkey_unbind(mr));
		EXPECT_EQ(0, ibv_dereg_mr(mr));
	}
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_free_dm(dm));
}

/* a key over an MR of a part reaches no byte after that part, although the memory has more */
TEST_F(dm, a_part_ends)
{
	struct ibv_dm *dm = mkt_dm_alloc(&self->dev, 1000, 0, 0);
	struct ibv_mr *mr, *key = ibmkey_alloc(self->dev.pd, 1);

	ASSERT_NE(NULL, dm);
	ASSERT_NE(NULL, key);
	mr = dm_reg(&self->dev, dm, 100, 50);
	ASSERT_NE(NULL, mr);
	EXPECT_EQ(0, mkt_bind_range(key, MKT_ACCESS_ALL, mr, 49, 1));
	EXPECT_EQ(ERANGE, mkt_bind_range(key, MKT_ACCESS_ALL, mr, 49, 2));
	EXPECT_EQ(ERANGE, mkt_bind_range(key, MKT_ACCESS_ALL, mr, 50, 1));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_EQ(0, ibv_free_dm(dm));
}

TEST_F(dm, busy_while_registered)
{
	struct ibv_dm *dm = mkt_dm_alloc(&self->dev, 5000, 0, 0);
	struct ibv_mr *one, *two, *key;

	ASSERT_NE(NULL, dm);
	one = dm_reg(&self->dev, dm, 0, 5000);
	two = dm_reg(&self->dev, dm, 4093, 900);
	ASSERT_NE(NULL, one);
	ASSERT_NE(NULL, two);
	EXPECT_NE(one->lkey, two->lkey);
	EXPECT_EQ(EBUSY, ibv_free_dm(dm));
	EXPECT_EQ(0, ibv_dereg_mr(one));
	EXPECT_EQ(EBUSY, ibv_free_dm(dm));

	/* a key keeps the MR, and the MR keeps the memory */
	key = ibmkey_alloc(self->dev.pd, 1);
	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, mkt_bind_range(key, MKT_ACCESS_ALL, two, 0, 100));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(two));
	EXPECT_EQ(EBUSY, ibv_free_dm(dm));
	EXPECT_EQ(0, ibmkey_unbind(key));
	EXPECT_EQ(0, ibv_dereg_mr(two));
	EXPECT_EQ(0, ibv_free_dm(dm));
	EXPECT_EQ(0, ibv_dereg_mr(key));
}

/*
 * a program that cannot allocate any is told of none, unless the administrator says
 * so
 */
TEST_F(dm, announced)
{
	const char *announced = getenv("MKEY_TEST_ANNOUNCED");
	struct ibv_device_attr_ex attr;
	struct ibv_context *plain;

	plain = mkt_dev_reopen(&self->dev);
	ASSERT_NE(NULL, plain);
	ASSERT_EQ(0, ibv_query_device_ex(plain, NULL, &attr));
	EXPECT_EQ(announced ? self->dev.caps.max_dm_size : 0,
		  attr.max_dm_size);
	ASSERT_EQ(0, ibmkey_enable(plain));
	ASSERT_EQ(0, ibv_query_device_ex(plain, NULL, &attr));
	EXPECT_EQ(self->dev.caps.max_dm_size, attr.max_dm_size);
	EXPECT_EQ(0, ibv_close_device(plain));
}

/* device memory of side 1, which side 0 reaches */
MKT_FIXTURE(dm_rdma, .host = 128 * 1024, .dm = 64 * 1024)

TEST_F(dm_rdma, rights)
{
	struct mkt_arena *arena = &self->s.arena[1];
	unsigned int leaf = arena->num_leaves;
	enum mkt_op op;
	uint32_t rkey;

	ASSERT_EQ(0, mkt_arena_add_leaf(arena, 1, 16, 1000, IBV_ACCESS_REMOTE_READ, 0));
	rkey = arena->leaf[leaf].mr->rkey;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, rkey, MKT_WRITE, 0, 8));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, rkey, MKT_FETCH_ADD, 0, 8));
	/* beyond the MR's end, which is not the buffer's end */
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, rkey, MKT_READ, 993, 8));
	EXPECT_EQ(0, mkt_arena_check(arena));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, rkey, MKT_READ, 992, 8));
	/* an MR of zero bytes */
	leaf = arena->num_leaves;
	ASSERT_EQ(0, mkt_arena_add_leaf(arena, 1, 16, 0, MKT_ACCESS_ALL, 0));
	rkey = arena->leaf[leaf].mr->rkey;
	for (op = MKT_READ; op <= MKT_ATOMIC_WRITE; op++)
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, rkey, op, 0, 8));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, rkey, MKT_WRITE, 0, 8));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, rkey, MKT_WRITE, 0, 0));
}

TEST_HARNESS_MAIN
