// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Device memory by the standard verbs: it is allocated, copied to and from at any
 * offset, registered and freed. Invalid arguments are refused.
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

static const size_t dm_sizes[] = { 1, 7, 100, 4095, 4096, 4097, 1 << 20 };

/* new memory does not show old bytes */
TEST_F(dm, zeroed)
{
	uint8_t *bytes = malloc(1 << 20);
	unsigned int i, round;
	size_t at;

	ASSERT_NE(NULL, bytes);
	for (round = 0; round < 2; round++)
		for (i = 0; i < ARRAY_SIZE(dm_sizes); i++) {
			struct ibv_dm *dm = mkt_dm_alloc(&self->dev, dm_sizes[i], 0, 0);

			ASSERT_NE(NULL, dm);
			memset(bytes, 0xff, dm_sizes[i]);
			ASSERT_EQ(0, ibv_memcpy_from_dm(bytes, dm, 0,
							dm_sizes[i]));
			for (at = 0; at < dm_sizes[i]; at++) {
				ASSERT_EQ(0, bytes[at]);
			}
			memset(bytes, 0xee, dm_sizes[i]);
			ASSERT_EQ(0, ibv_memcpy_to_dm(dm, 0, bytes,
						      dm_sizes[i]));
			ASSERT_EQ(0, ibv_free_dm(dm));
		}
	free(bytes);
}

TEST_F(dm, alloc_refused)
{
	uint64_t max = self->dev.caps.max_dm_size;
	struct ibv_dm *dm;
	uint32_t align;

	EXPECT_ERRNO(EINVAL, mkt_dm_alloc(&self->dev, 0, 0, 0));
	EXPECT_ERRNO(ENOMEM, mkt_dm_alloc(&self->dev, max + 1, 0, 0));
	EXPECT_EQ(NULL, mkt_dm_alloc(&self->dev, SIZE_MAX, 0, 0));
	EXPECT_NE(0, errno);
	EXPECT_EQ(NULL, mkt_dm_alloc(&self->dev, 1ull << 32, 0, 0));
	EXPECT_NE(0, errno);
	for (align = 0; align <= 12; align++) {
		dm = mkt_dm_alloc(&self->dev, 100, align, 0);
		ASSERT_NE(NULL, dm);
		ASSERT_EQ(0, ibv_free_dm(dm));
	}
	for (align = 40; align < 200; align += 23) {
		EXPECT_ERRNO(EINVAL, mkt_dm_alloc(&self->dev, 100, align, 0));
	}
	EXPECT_ERRNO(EINVAL, mkt_dm_alloc(&self->dev, 100, UINT32_MAX, 0));
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

TEST_F(dm, copy_refused)
{
	static const struct {
		uint64_t offset, length;
	} outside[] = {
		{ 0, 101 }, { 100, 1 }, { 99, 2 }, { 101, 0 }, { 200, 1 },
		{ UINT64_MAX, 1 }, { UINT64_MAX, 2 }, { 1, UINT64_MAX },
		{ UINT64_MAX - 50, 100 }, { 1ull << 32, 1 },
	};
	struct ibv_dm *dm = mkt_dm_alloc(&self->dev, 100, 0, 0);
	uint8_t bytes[256], seen[100];
	unsigned int i;
	void *gone;

	ASSERT_NE(NULL, dm);
	memset(bytes, 0x77, sizeof(bytes));
	ASSERT_EQ(0, ibv_memcpy_to_dm(dm, 0, bytes, 100));
	memset(bytes, 0x11, sizeof(bytes));
	for (i = 0; i < ARRAY_SIZE(outside); i++) {
		EXPECT_EQ(EINVAL, ibv_memcpy_to_dm(dm, outside[i].offset,
						   bytes, outside[i].length));
		EXPECT_EQ(EINVAL, ibv_memcpy_from_dm(seen, dm,
						     outside[i].offset,
						     outside[i].length));
	}

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
	struct ibv_dm *dm = mkt_dm_alloc(&self->dev, 1000, 0, 0);
	struct ibv_pd *pd = self->dev.pd;
	struct ibv_mr *mr;

	ASSERT_NE(NULL, dm);
	EXPECT_ERRNO(EINVAL, ibv_reg_dm_mr(pd, dm, 0, 1000, MKT_ACCESS_ALL));
	EXPECT_ERRNO(EINVAL, ibv_reg_dm_mr(pd, dm, 0, 1001, zero));
	EXPECT_ERRNO(EINVAL, ibv_reg_dm_mr(pd, dm, 1, 1000, zero));
	EXPECT_ERRNO(EINVAL, ibv_reg_dm_mr(pd, dm, UINT64_MAX, 2, zero));
	EXPECT_ERRNO(EINVAL, ibv_reg_dm_mr(pd, dm, 2, UINT64_MAX, zero));
	EXPECT_ERRNO(EINVAL, ibv_reg_dm_mr(pd, dm, 1001, 0, zero));
	/* remote write without local write */
	EXPECT_ERRNO(EINVAL, ibv_reg_dm_mr(pd, dm, 0, 1000,
					   IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE));
	EXPECT_EQ(NULL, ibv_reg_dm_mr(pd, dm, 0, 1000, zero |
				      IBV_ACCESS_ON_DEMAND));
	EXPECT_NE(0, errno);
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
	struct ibv_sge sge = {};
	unsigned int i;

	ASSERT_NE(NULL, dm);
	ASSERT_NE(NULL, key);
	for (i = 0; i < ARRAY_SIZE(offset); i++) {
		mr = dm_reg(&self->dev, dm, offset[i], 0);
		ASSERT_NE(NULL, mr);
		EXPECT_EQ(0, mr->length);
		EXPECT_EQ(EBUSY, ibv_free_dm(dm));
		/* as for an unbound key */
		sge.lkey = mr->lkey;
		sge.length = 1;
		EXPECT_EQ(ERANGE, ibv_rereg_mr_sg(key, 0, 1, &sge));
		EXPECT_EQ(EINVAL, ibmkey_unbind(mr));
		EXPECT_EQ(0, ibv_dereg_mr(mr));
	}
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_free_dm(dm));
}

TEST_F(dm, busy_while_registered)
{
	struct ibv_dm *dm = mkt_dm_alloc(&self->dev, 5000, 0, 0);
	struct ibv_mr *one, *two, *key;
	struct ibv_sge sge = { .length = 100 };

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
	sge.lkey = two->lkey;
	ASSERT_EQ(0, ibv_rereg_mr_sg(key, MKT_ACCESS_ALL, 1, &sge));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(two));
	EXPECT_EQ(EBUSY, ibv_free_dm(dm));
	EXPECT_EQ(0, ibmkey_unbind(key));
	EXPECT_EQ(0, ibv_dereg_mr(two));
	EXPECT_EQ(0, ibv_free_dm(dm));
	EXPECT_EQ(0, ibv_dereg_mr(key));
}

#define DM_MANY 512

/* take all of the memory in pieces; a refused request loses none of it */
TEST_F(dm, all_of_it)
{
	uint64_t max = self->dev.caps.max_dm_size, piece = max / 16;
	struct ibv_dm *dms[DM_MANY];
	unsigned int n, round;
	uint64_t first = 0;

	if (max > 4ull << 30)
		SKIP(return, "%" PRIu64 " bytes are too many to take", max);
	for (round = 0; round < 3; round++) {
		uint64_t taken = 0;

		for (n = 0; n < DM_MANY; n++) {
			dms[n] = mkt_dm_alloc(&self->dev, piece, 0, 0);
			if (!dms[n])
				break;
			taken += piece;
		}
		EXPECT_EQ(ENOMEM, errno);
		ASSERT_LE(taken, max);
		ASSERT_GT(DM_MANY, n);
		ASSERT_LT(0, n);
		first = first ?: taken;
		EXPECT_EQ(first, taken);
		/* refused several times */
		EXPECT_EQ(NULL, mkt_dm_alloc(&self->dev, piece, 0, 0));
		EXPECT_EQ(NULL, mkt_dm_alloc(&self->dev, piece, 0, 0));
		EXPECT_EQ(0, ibv_free_dm(dms[--n]));
		dms[n] = mkt_dm_alloc(&self->dev, piece, 0, 0);
		EXPECT_NE(NULL, dms[n++]);
		while (n) {
			EXPECT_EQ(0, ibv_free_dm(dms[--n]));
		}
	}
}

/* the verb of programs that do not know ib_mkey */
TEST_F(dm, query_device)
{
	struct ibv_device_attr_ex attr;

	ASSERT_EQ(0, ibv_query_device_ex(self->dev.ctx, NULL, &attr));
	EXPECT_EQ(self->dev.caps.max_dm_size, attr.max_dm_size);
	EXPECT_LE(1 << 20, attr.max_dm_size);
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

TEST_HARNESS_MAIN
