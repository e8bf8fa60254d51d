// SPDX-License-Identifier: GPL-2.0
/*
 * subject: ibmkey_reg_iov(): one key over scattered memory. It moves the bytes of the elements
 * in their order, registers each page once, and leaves nothing when a registration fails.
 * sets: long
 */
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "mkey_harness.h"

#define IOV_PAGES 64
#define IOV_MAX_ELEMENTS 40
#define REGISTRATIONS 8

FIXTURE(iov)
{
	struct mkt_setup s;
	struct ibv_pd *pd;		/* of side 1 */
	size_t page;
	uint8_t *memory;
	struct mkt_rng rng;
};

FIXTURE_SETUP(iov)
{
	MKT_SETUP(&self->s, .mtu = IBV_MTU_4096, .host = 1024 * 1024);
	self->pd = self->s.dev[1].pd;
	self->page = sysconf(_SC_PAGESIZE);
	self->memory = mmap(NULL, IOV_PAGES * self->page, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->memory);
	mkt_rng_init(&self->rng, _metadata->name);
	mkt_rand_bytes(&self->rng, self->memory, IOV_PAGES * self->page);
}

FIXTURE_TEARDOWN(iov)
{
	munmap(self->memory, IOV_PAGES * self->page);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* the number of MRs of the device, keys included */
static int iov_mrs(struct mkt_setup *s)
{
	return mkt_dev_count(&s->dev[1], "mr");
}

static int iov_transfer(struct mkt_setup *s, enum mkt_op op, struct ibv_mr *key)
{
	return mkt_touch(s, key->rkey, op, 0, key->length);
}

static uint8_t *iov_plain(struct mkt_setup *s)
{
	return (uint8_t *)(uintptr_t)s->plain[0].addr;
}

/* draws elements; some are empty, equal, overlap, or continue the one before */
static unsigned int iov_draw(struct mkt_rng *rng, uint8_t *memory, size_t bytes,
			     struct iovec *iov)
{
	unsigned int i, n = mkt_between(rng, 1, IOV_MAX_ELEMENTS);

	for (i = 0; i < n; i++) {
		size_t at = mkt_between(rng, 0, bytes - 1);

		if (i && mkt_between(rng, 0, 3) == 0)
			at = (uint8_t *)iov[i - 1].iov_base + iov[i - 1].iov_len - memory;
		iov[i].iov_base = memory + at;
		iov[i].iov_len = at < bytes ?
			mkt_between(rng, i ? 0 : 1, bytes - at < 9000 ? bytes - at : 9000) : 0;
	}
	return n;
}

/* the bytes of a READ and of a WRITE, against those of the elements */
TEST_F(iov, random)
{
	size_t bytes = IOV_PAGES * self->page;
	uint8_t *expected = malloc(bytes);
	unsigned int round, i, n;
	struct ibv_mr *key;
	size_t at;

	ASSERT_NE(NULL, expected);
	for (round = 0; round < mkt_scale(200, 20); round++) {
		struct iovec iov[IOV_MAX_ELEMENTS];

		n = iov_draw(&self->rng, self->memory, bytes, iov);
		key = ibmkey_reg_iov(self->pd, iov, n, MKT_ACCESS_ALL);
		ASSERT_NE(NULL, key);
		ASSERT_EQ(IBV_WC_SUCCESS, iov_transfer(&self->s, MKT_READ, key));
		for (at = 0, i = 0; i < n; at += iov[i++].iov_len)
			ASSERT_EQ(0, memcmp(iov_plain(&self->s) + at, iov[i].iov_base,
					    iov[i].iov_len));
		EXPECT_EQ(at, key->length);

		mkt_rand_bytes(&self->rng, iov_plain(&self->s), key->length);
		memcpy(expected, self->memory, bytes);
		for (at = 0, i = 0; i < n; at += iov[i++].iov_len)
			memcpy(expected + ((uint8_t *)iov[i].iov_base - self->memory),
			       iov_plain(&self->s) + at, iov[i].iov_len);
		ASSERT_EQ(IBV_WC_SUCCESS, iov_transfer(&self->s, MKT_WRITE, key));
		EXPECT_EQ(0, memcmp(expected, self->memory, bytes));
		ASSERT_EQ(0, ibmkey_dereg(key));
	}
	free(expected);
}

/* each page is registered once; entries are as few as possible */
TEST_F(iov, registrations)
{
	uint8_t *m = self->memory;
	size_t p = self->page;
	struct iovec iov[REGISTRATIONS] = {
		{ m + 10, 20 },			/* three elements of one page */
		{ m + 100, 20 },
		{ m + 10, 20 },
		{ m + p, 5 },			/* the next page */
		{ m + 4 * p, 2 * p },		/* others, in two elements */
		{ m + 6 * p, 7 },
		{ NULL, 0 },
		{ m + 6 * p + 7, 1 },
	};
	int before = iov_mrs(&self->s);
	struct ibmkey_info info = {};
	struct ibv_mr *key;

	key = ibmkey_reg_iov(self->pd, iov, REGISTRATIONS, 0);
	ASSERT_NE(NULL, key);
	EXPECT_EQ(before + 3, iov_mrs(&self->s));
	EXPECT_EQ(0, ibmkey_query(key, &info));
	EXPECT_EQ(5, info.num_entries);
	EXPECT_EQ(5, info.max_entries);
	EXPECT_EQ(IBMKEY_LIST, info.kind);
	EXPECT_EQ(65 + 2 * p + 8, info.length);
	EXPECT_EQ(info.length, key->length);
	EXPECT_EQ(0, ibmkey_dereg(key));
	EXPECT_EQ(before, iov_mrs(&self->s));
}

/* the MRs reach no byte outside of the elements of neighbouring pages */
TEST_F(iov, reach)
{
	struct iovec iov = { self->memory + 100, 50 };
	struct ibmkey_block block;
	struct ibmkey_info info = {};
	struct ibv_mr *key, *other, below = {};

	key = ibmkey_reg_iov(self->pd, &iov, 1, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, ibmkey_query_layout(key, &info, 0, NULL, 1, &block));
	other = ibmkey_alloc(self->pd, 1);
	ASSERT_NE(NULL, other);
	below.lkey = block.lkey;
	EXPECT_EQ(0, mkt_bind_range(other, 0, &below, block.addr, 50));

	/* An MR that it owns is busy: the key stays, and the call can be repeated. */
	EXPECT_EQ(EBUSY, ibmkey_dereg(key));
	EXPECT_EQ(0, key->length);
	EXPECT_EQ(IBMKEY_UNBOUND, mkt_kind_of(key));

	EXPECT_EQ(ERANGE, mkt_bind_range(other, 0, &below, block.addr, 51));
	EXPECT_EQ(ERANGE, mkt_bind_range(other, 0, &below, block.addr - 1, 50));
	EXPECT_EQ(0, ibmkey_dereg(other));
	EXPECT_EQ(0, ibmkey_dereg(key));
}

/* a peer reaches the bytes of the key, and nothing by the keys of the MRs under it */
TEST_F(iov, peers_have_no_rights_to_the_mrs)
{
	static const enum mkt_op ops[] = {
		MKT_READ, MKT_WRITE, MKT_FETCH_ADD, MKT_ATOMIC_WRITE,
	};
	struct iovec iov[2] = {
		{ self->memory + 64, 64 },
		{ self->memory + 1024, 64 },
	};
	struct ibmkey_block block[2];
	struct ibmkey_info info = {};
	struct ibv_mr *key;
	unsigned int i, k;

	key = ibmkey_reg_iov(self->pd, iov, 2, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND);
	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, ibmkey_query_layout(key, &info, 0, NULL, 2, block));
	EXPECT_EQ(block[0].lkey, block[1].lkey);
	for (i = 0; i < ARRAY_SIZE(ops); i++) {
		uint32_t length = ops[i] == MKT_READ || ops[i] == MKT_WRITE ? 64 : 8;

		EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, key->rkey, ops[i], 0, length));
		/*
		 * An element, and the bytes between them. The lkey of an MR of rxe is its
		 * rkey, too.
		 */
		for (k = 0; k < 2; k++)
			EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
				  mkt_try(&self->s, block[0].lkey, ops[i], block[0].addr + k * 512,
					  length))
				TH_LOG("%s", mkt_op_name(ops[i]));
	}
	EXPECT_EQ(0, ibmkey_dereg(key));
}

/* memory that cannot be written: peers may read it */
TEST_F(iov, read_only)
{
	struct iovec iov[2] = {
		{ self->memory, 100 },
		{ self->memory + 3 * self->page, 100 },
	};
	struct ibv_mr *key;

	ASSERT_EQ(0, mprotect(self->memory, IOV_PAGES * self->page, PROT_READ));
	EXPECT_ERRNO(EFAULT, ibmkey_reg_iov(self->pd, iov, 2, MKT_ACCESS_ALL));
	key = ibmkey_reg_iov(self->pd, iov, 2, IBV_ACCESS_REMOTE_READ);
	ASSERT_NE(NULL, key);
	EXPECT_EQ(IBV_WC_SUCCESS, iov_transfer(&self->s, MKT_READ, key));
	EXPECT_EQ(0, memcmp(iov_plain(&self->s), self->memory, 100));
	EXPECT_EQ(0, memcmp(iov_plain(&self->s) + 100, iov[1].iov_base, 100));
	EXPECT_EQ(0, ibmkey_dereg(key));
}

/* the k-th registration fails: no MR remains, and the reason comes through */
TEST_F(iov, registration_fails)
{
	struct iovec iov[8];
	unsigned int k, i;
	int before;

	for (k = 0; k < 8; k++) {
		for (i = 0; i < 8; i++)
			iov[i] = (struct iovec){ self->memory + 4 * i * self->page, 100 };
		before = iov_mrs(&self->s);
		ASSERT_EQ(0, munmap(iov[k].iov_base, self->page));
		errno = 0;
		EXPECT_ERRNO(EFAULT, ibmkey_reg_iov(self->pd, iov, 8, MKT_ACCESS_ALL));
		EXPECT_EQ(before, iov_mrs(&self->s));
		ASSERT_EQ(iov[k].iov_base,
			  mmap(iov[k].iov_base, self->page, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	}
}

/* the key cannot be bound, or not be created, after the registrations: no MR remains */
TEST_F(iov, key_fails)
{
	const struct ibmkey_caps *caps = &self->s.dev[1].caps;
	/* more than a list has room for, and more than any key */
	const unsigned int elements[] = {
		caps->max_entries + 1,
		caps->max_indices + 1,
	};
	int before = iov_mrs(&self->s);
	unsigned int i, k;

	for (k = 0; k < 2; k++) {
		struct iovec *iov = calloc(elements[k], sizeof(*iov));

		ASSERT_NE(NULL, iov);
		for (i = 0; i < elements[k]; i++)
			iov[i] = (struct iovec){ self->memory + 2 * (i % 1000), 1 };
		errno = 0;
		EXPECT_ERRNO(ENOSPC, ibmkey_reg_iov(self->pd, iov, elements[k], 0));
		EXPECT_EQ(before, iov_mrs(&self->s));
		free(iov);
	}
}

TEST_F(iov, arguments)
{
	struct iovec one = { self->memory, 100 }, none = { self->memory, 0 };
	struct iovec huge = { self->memory, SIZE_MAX };
	const struct {
		struct ibv_pd *pd;
		struct iovec *iov;
		unsigned int num;
		int access, err;
	} refused[] = {
		{ NULL, &one, 1, 0, EINVAL }, { self->pd, NULL, 1, 0, EFAULT },
		{ self->pd, &one, 0, 0, EINVAL }, { self->pd, &none, 1, 0, EINVAL },
		{ self->pd, &huge, 1, 0, EOVERFLOW },
		/* ibv_reg_mr() refuses remote writes without local writes, too */
		{ self->pd, &one, 1, IBV_ACCESS_REMOTE_WRITE, EINVAL },
	};
	int before = iov_mrs(&self->s);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		errno = 0;
		EXPECT_EQ(NULL, ibmkey_reg_iov(refused[i].pd, refused[i].iov, refused[i].num,
					       refused[i].access));
		EXPECT_EQ(refused[i].err, errno)
			TH_LOG("row %u", i);
	}
	EXPECT_EQ(EINVAL, ibmkey_dereg(NULL));
	EXPECT_EQ(before, iov_mrs(&self->s));
}

/* a box of a grid, with its second axis turned round */
TEST_F(iov, strided)
{
	enum { X = 5, Y = 7, CELL = 24 };
	const uint64_t repeat[2] = { X, Y };
	const int64_t stride[2] = { 4096, -160 };
	int before = iov_mrs(&self->s);
	uint8_t *first = self->memory + 9 + Y * 160, *got = iov_plain(&self->s);
	struct ibv_mr *key = ibmkey_reg_strided(self->pd, first, CELL, 2, repeat, stride,
						MKT_ACCESS_ALL);
	unsigned int i;

	ASSERT_NE(NULL, key);
	EXPECT_EQ(before + 2, iov_mrs(&self->s));
	EXPECT_EQ(X * Y * CELL, key->length);
	ASSERT_EQ(IBV_WC_SUCCESS, iov_transfer(&self->s, MKT_READ, key));
	for (i = 0; i < X * Y; i++)
		EXPECT_EQ(0, memcmp(got + i * CELL,
				    first + i / Y * stride[0] + i % Y * stride[1], CELL));
	EXPECT_EQ(0, ibmkey_dereg(key));
	EXPECT_EQ(before, iov_mrs(&self->s));
}

TEST_F(iov, strided_refused)
{
	const uint64_t repeat[2] = { 2, 0 }, many[2] = { 2, UINT64_MAX };
	const int64_t stride[2] = { 8, 16 };
	int before = iov_mrs(&self->s);
	struct {
		size_t bytes;
		uint32_t dims;
		const uint64_t *repeat;
		const int64_t *stride;
		int error;
		const char *words;
	} refused[] = {
		{ 0, 1, repeat, stride, EINVAL, "bytes is 0" },
		{ 8, 0, repeat, stride, EINVAL, "num_dims is 0" },
		{ 8, 9, repeat, stride, EINVAL, "num_dims is 9" },
		{ 8, 2, repeat, stride, EINVAL, "repeat_count[1] is 0" },
		{ 8, 2, many, stride, EOVERFLOW, "64 bits" },
		{ 8, 1, NULL, stride, EFAULT, "repeat_count is NULL" },
		{ 8, 1, repeat, NULL, EFAULT, "stride is NULL" },
		{ SIZE_MAX / 4, 1, repeat, stride, 0, "" },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		errno = 0;
		EXPECT_EQ(NULL, ibmkey_reg_strided(self->pd, self->memory, refused[i].bytes,
						   refused[i].dims, refused[i].repeat,
						   refused[i].stride, 0));
		EXPECT_NE(0, errno);
		if (refused[i].error)
			EXPECT_EQ(refused[i].error, errno);
		EXPECT_NE(NULL, strstr(ibmkey_last_error(), refused[i].words));
	}
	EXPECT_EQ(NULL, ibmkey_reg_strided(NULL, self->memory, 8, 1, repeat, stride, 0));
	EXPECT_EQ(before, iov_mrs(&self->s));
}

/* an MR of ibv_reg_mr() is named as that, and stays */
TEST_F(iov, leaf)
{
	struct ibv_mr *mr = self->s.plain[1].mr;

	EXPECT_EQ(EINVAL, ibmkey_dereg(mr));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "ibv_dereg_mr()"));
	EXPECT_EQ(self->s.plain[1].addr, ibmkey_sge(mr).addr);
	EXPECT_EQ(mr->length, ibmkey_sge(mr).length);
}

/* keys of ibmkey_alloc(), and keys that are busy */
TEST_F(iov, other_keys)
{
	struct iovec one = { self->memory, 100 };
	struct ibv_mr *key = ibmkey_reg_iov(self->pd, &one, 1, MKT_ACCESS_ALL);
	struct ibv_mr *outer = ibmkey_alloc(self->pd, 1);

	ASSERT_NE(NULL, key);
	ASSERT_NE(NULL, outer);
	ASSERT_EQ(0, mkt_bind_range(outer, MKT_ACCESS_ALL, key, 0, 100));
	EXPECT_EQ(EBUSY, ibmkey_dereg(key));
	EXPECT_EQ(100, key->length);
	EXPECT_EQ(IBV_WC_SUCCESS, iov_transfer(&self->s, MKT_READ, outer));
	EXPECT_EQ(0, memcmp(iov_plain(&self->s), self->memory, 100));
	EXPECT_EQ(0, ibmkey_dereg(outer));
	/* bound to something else meanwhile */
	EXPECT_EQ(0, mkt_bind_range(key, 0, self->s.plain[1].mr, self->s.plain[1].addr, 100));
	EXPECT_EQ(0, ibmkey_dereg(key));
}

/*
 * ibv_dereg_mr() destroys the key alone. The MRs under it stay until the context is
 * closed, and keep the PD.
 */
TEST_F(iov, destroyed_by_libibverbs)
{
	struct iovec iov[2] = {
		{ self->memory, 100 },
		{ self->memory + 2 * self->page, 100 },
	};
	struct ibv_context *ctx = mkt_dev_reopen(&self->s.dev[1]);
	int before = iov_mrs(&self->s);
	struct ibv_mr *key;
	struct ibv_pd *pd;

	ASSERT_NE(NULL, ctx);
	pd = ibv_alloc_pd(ctx);
	ASSERT_NE(NULL, pd);
	key = ibmkey_reg_iov(pd, iov, 2, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, key);
	EXPECT_EQ(before + 3, iov_mrs(&self->s));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(before + 2, iov_mrs(&self->s));
	EXPECT_EQ(EBUSY, ibv_dealloc_pd(pd));
	EXPECT_EQ(0, ibv_close_device(ctx));
	EXPECT_EQ(before, iov_mrs(&self->s));
}

static int iov_rounds(struct ibv_pd *pd, const struct iovec *iov, unsigned int n,
		      unsigned int rounds)
{
	struct ibv_mr *key;
	int err = 0;

	while (rounds-- && !err) {
		key = ibmkey_reg_iov(pd, iov, n, MKT_ACCESS_ALL);
		err = key ? ibmkey_dereg(key) : errno;
		mkt_alive();
	}
	return err;
}

/* four MRs each, one of them the key */
TEST_F(iov, ten_thousand_leave_nothing)
{
	struct iovec iov[3];
	long long memory;
	unsigned int i;
	size_t heap;
	int mrs;

	for (i = 0; i < 3; i++)
		iov[i] = (struct iovec){ self->memory + 2 * i * self->page, 100 };
	/* buffers of libibverbs and of the allocator that stay */
	ASSERT_EQ(0, iov_rounds(self->pd, iov, 3, 50));
	mrs = iov_mrs(&self->s);
	memory = mkt_keys_charged(&self->s.dev[1]);
	heap = mallinfo2().uordblks;
	ASSERT_EQ(0, iov_rounds(self->pd, iov, 3, mkt_scale(2500, 250)));
	EXPECT_EQ(mrs, iov_mrs(&self->s));
	EXPECT_EQ(memory, mkt_keys_charged(&self->s.dev[1]));
	/* a file's buffer may be part of it */
	EXPECT_GE(heap + 8192, mallinfo2().uordblks);
}

TEST_HARNESS_MAIN
