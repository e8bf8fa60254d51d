// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Layouts for MRs of ibv_reg_mr(): ibv_rereg_mr_sg() and ibv_rereg_mr_interleaved() make
 * the MR a key, and ibmkey_rereg_mr() makes the key an MR again. A refused call changes nothing.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "mkey_harness.h"

#define TRANSLATION IBV_REREG_MR_CHANGE_TRANSLATION
#define ROWS 50
#define COLUMNS 40

FIXTURE(relayout)
{
	struct mkt_setup s;
	double (*m)[COLUMNS];
	struct ibv_mr *mr;		/* over m, on side 1 */
	uint32_t lkey;			/* of mr before it has a layout */
	uint8_t *far;			/* plain memory of side 0 */
	int mrs;
};

FIXTURE_SETUP(relayout)
{
	unsigned int r, c;

	MKT_SETUP(&self->s, .host = 64 * 1024, .max_entries = 4);
	self->far = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	self->mrs = mkt_dev_count(&self->s.dev[1], "mr");
	self->m = calloc(ROWS, sizeof(*self->m));
	ASSERT_NE(NULL, self->m);
	for (r = 0; r < ROWS; r++)
		for (c = 0; c < COLUMNS; c++)
			self->m[r][c] = 1000 * r + c;
	self->mr = ibv_reg_mr(self->s.dev[1].pd, self->m, ROWS * sizeof(*self->m), MKT_ACCESS_ALL);
	ASSERT_NE(NULL, self->mr);
	self->lkey = self->mr->lkey;
}

FIXTURE_TEARDOWN(relayout)
{
	if (self->mr) {
		EXPECT_EQ(0, ibmkey_dereg(self->mr));
	}
	EXPECT_EQ(self->mrs, mkt_dev_count(&self->s.dev[1], "mr"));
	free(self->m);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

static struct ibmkey_block relayout_column(const FIXTURE_DATA(relayout) *self, unsigned int c)
{
	return (struct ibmkey_block){
		.addr = (uintptr_t)&self->m[0][c],
		.bytes_count = sizeof(double),
		.lkey = self->lkey,
		.stride = { sizeof(*self->m) },
	};
}

/* reads all bytes of @mr; 0 if they are column @c */
static int relayout_read(FIXTURE_DATA(relayout) *self, unsigned int c)
{
	double *got = (double *)self->far;
	unsigned int r;

	if (self->mr->addr || self->mr->length != ROWS * sizeof(double))
		return EINVAL;
	if (mkt_try(&self->s, self->mr->rkey, MKT_READ, 0, self->mr->length) != IBV_WC_SUCCESS)
		return EIO;
	for (r = 0; r < ROWS; r++)
		if (got[r] != 1000 * r + c)
			return EBADMSG;
	return 0;
}

/* all bytes of the matrix by the addresses of the process */
static int relayout_plain(FIXTURE_DATA(relayout) *self)
{
	if (self->mr->addr != self->m || self->mr->length != ROWS * sizeof(*self->m) ||
	    self->mr->lkey != self->mr->rkey)
		return EINVAL;
	if (mkt_try(&self->s, self->mr->rkey, MKT_READ, (uintptr_t)self->m, self->mr->length) !=
	    IBV_WC_SUCCESS)
		return EIO;
	return memcmp(self->far, self->m, self->mr->length) ? EBADMSG : 0;
}

/* a column of the MR's own memory, then another one, then the matrix again */
TEST_F(relayout, column_of_itself)
{
	struct mkt_setup *s = &self->s;
	struct ibmkey_block column = relayout_column(self, 7);
	uint64_t rows = ROWS;
	unsigned int i, r;
	uint32_t rkey;

	for (i = 0; i < 3; i++) {
		column = relayout_column(self, 7);
		ASSERT_EQ(0, ibv_rereg_mr_interleaved(self->mr, MKT_ACCESS_ALL, 1, &rows, 1,
						      &column));
		EXPECT_EQ(0, relayout_read(self, 7));
		EXPECT_EQ(self->mr->length, ibmkey_sge(self->mr).length);
		EXPECT_EQ(IBMKEY_INTERLEAVED, mkt_kind_of(self->mr));
		/* the key stays from then on */
		rkey = self->mr->rkey;
		column = relayout_column(self, 39);
		ASSERT_EQ(0, ibv_rereg_mr_interleaved(self->mr, MKT_ACCESS_ALL, 1, &rows, 1,
						      &column));
		EXPECT_EQ(rkey, self->mr->rkey);
		EXPECT_EQ(0, relayout_read(self, 39));
		memset(self->far, 0, self->mr->length);
		EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(s, rkey, MKT_WRITE, 0, self->mr->length));
		for (r = 0; r < ROWS; r++) {
			EXPECT_EQ(0, self->m[r][39]);
			EXPECT_EQ(1000 * r + 38, self->m[r][38]);
			self->m[r][39] = 1000 * r + 39;
		}
		/* two MRs of the kernel: the key and its memory */
		EXPECT_EQ(self->mrs + 2, mkt_dev_count(&s->dev[1], "mr"));

		ASSERT_EQ(0, ibmkey_rereg_mr(self->mr, TRANSLATION, NULL, self->m,
					     ROWS * sizeof(*self->m), 0));
		EXPECT_EQ(0, relayout_plain(self));
		EXPECT_EQ(self->mrs + 1, mkt_dev_count(&s->dev[1], "mr"));
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(s, rkey, MKT_READ, 0, 8));
		self->lkey = self->mr->lkey;
	}
	/* with a layout, ibmkey_dereg() of the teardown deregisters both */
	column = relayout_column(self, 1);
	ASSERT_EQ(0, ibv_rereg_mr_interleaved(self->mr, MKT_ACCESS_ALL, 1, &rows, 1, &column));
	EXPECT_EQ(0, relayout_read(self, 1));
}

/* a composite region of other MRs; the MR's own memory is let go */
TEST_F(relayout, composite)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mr *leaf = s->arena[1].leaf[0].mr;
	uint8_t *host = (uint8_t *)(uintptr_t)s->plain[1].addr;
	struct ibv_sge parts[3] = {
		{ (uintptr_t)host + 3000, 100, leaf->lkey },
		{ (uintptr_t)host, 1000, leaf->lkey },
		{ (uintptr_t)host + 500, 1, leaf->lkey },
	};

	ASSERT_EQ(0, ibv_rereg_mr_sg(self->mr, IBV_ACCESS_REMOTE_READ, 3, parts));
	EXPECT_EQ(1101, self->mr->length);
	EXPECT_EQ(NULL, self->mr->addr);
	EXPECT_EQ(self->mrs + 1, mkt_dev_count(&s->dev[1], "mr"));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(s, self->mr->rkey, MKT_READ, 0, 1101));
	EXPECT_EQ(0, memcmp(self->far, host + 3000, 100));
	EXPECT_EQ(0, memcmp(self->far + 100, host, 1000));
	EXPECT_EQ(host[500], self->far[1100]);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(s, self->mr->rkey, MKT_WRITE, 0, 8));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(s, self->lkey, MKT_READ, (uintptr_t)self->m, 8));

	/* the access flags stay, unless the call changes them */
	ASSERT_EQ(0, ibmkey_rereg_mr(self->mr, TRANSLATION, NULL, self->m,
				     ROWS * sizeof(*self->m), 0));
	EXPECT_EQ(0, relayout_plain(self));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(s, self->mr->rkey, MKT_WRITE, (uintptr_t)self->m, 8));
	ASSERT_EQ(0, ibv_rereg_mr_sg(self->mr, 0, 3, parts));
	ASSERT_EQ(0, ibmkey_rereg_mr(self->mr, TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS |
				     IBV_REREG_MR_CHANGE_PD, s->dev[1].pd, self->m,
				     ROWS * sizeof(*self->m), MKT_ACCESS_ALL));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  mkt_try(s, self->mr->rkey, MKT_WRITE, (uintptr_t)self->m, 8));
	EXPECT_EQ(0, relayout_plain(self));
}

/* memory of the library is freed with the MR, or goes with the key that names it */
TEST_F(relayout, library_memory)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mr *leaf = s->arena[1].leaf[0].mr, *mr;
	struct ibv_sge sge = { s->plain[1].addr, 100, leaf->lkey };
	void *addr;
	int names;

	EXPECT_EQ(0, ibv_dereg_mr(self->mr));
	self->mr = NULL;
	for (names = 0; names < 2; names++) {
		mr = ibmkey_reg_alloc(s->dev[1].pd, 5000, MKT_ACCESS_ALL);
		ASSERT_NE(NULL, mr);
		addr = mr->addr;
		if (names)
			sge = (struct ibv_sge){ (uintptr_t)addr + 10, 100, mr->lkey };
		ASSERT_EQ(0, ibv_rereg_mr_sg(mr, MKT_ACCESS_ALL, 1, &sge));
		EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(s, mr->rkey, MKT_WRITE, 0, 100));
		EXPECT_EQ(names ? 0 : -1, msync(addr, 8192, MS_ASYNC));
		if (names)
			EXPECT_EQ(0, memcmp((char *)addr + 10, self->far, 100));
		/* new memory of the library */
		ASSERT_EQ(0, ibmkey_rereg_mr(mr, TRANSLATION | IBMKEY_REREG_ALLOC, NULL, NULL,
					     5000, 0));
		EXPECT_EQ(-1, names ? msync(addr, 8192, MS_ASYNC) : -1);
		EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(s, mr->rkey, MKT_WRITE, (uintptr_t)mr->addr,
						  5000));
		EXPECT_EQ(0, memcmp(mr->addr, self->far, 5000));
		addr = mr->addr;
		EXPECT_EQ(0, ibmkey_dereg(mr));
		EXPECT_EQ(-1, msync(addr, 8192, MS_ASYNC));
	}
}

/* a refused call leaves the MR, or the key, as it was */
TEST_F(relayout, refused)
{
	struct mkt_setup *s = &self->s;
	struct ibv_sge sge = { (uintptr_t)self->m, 100, self->lkey }, wrong;
	struct ibmkey_block column = relayout_column(self, 0);
	struct ibv_mr same = *self->mr;
	uint64_t rows = ROWS + 1;

	EXPECT_EQ(EINVAL, ibv_rereg_mr_sg(NULL, 0, 1, &sge));
	EXPECT_EQ(EINVAL, ibv_rereg_mr_sg(self->mr, 0, 0, &sge));
	EXPECT_EQ(EFAULT, ibv_rereg_mr_sg(self->mr, 0, 1, NULL));
	EXPECT_EQ(EINVAL, ibv_rereg_mr_sg(self->mr, 1 << 19, 1, &sge));
	wrong = (struct ibv_sge){ sge.addr, 100, sge.lkey ^ 0xff };
	EXPECT_EQ(ENOENT, ibv_rereg_mr_sg(self->mr, 0, 1, &wrong));
	wrong = (struct ibv_sge){ sge.addr - 1, 100, sge.lkey };
	EXPECT_EQ(ERANGE, ibv_rereg_mr_sg(self->mr, 0, 1, &wrong));
	EXPECT_EQ(ERANGE, ibv_rereg_mr_interleaved(self->mr, 0, 1, &rows, 1, &column));
	EXPECT_EQ(EFAULT, ibv_rereg_mr_interleaved(self->mr, 0, 1, NULL, 1, &column));
	EXPECT_EQ(self->mrs + 1, mkt_dev_count(&s->dev[1], "mr"));
	/*
	 * Another key refers to the memory that would be let go. From then on, the kernel does not
	 * count the MR, because it ends the count before the deregistration fails.
	 */
	wrong = (struct ibv_sge){ s->plain[1].addr, 100, s->plain[1].mr->lkey };
	ASSERT_EQ(0, mkt_bind_range(s->key[1], 0, self->mr, (uintptr_t)self->m, 8));
	EXPECT_EQ(EBUSY, ibv_rereg_mr_sg(self->mr, 0, 1, &wrong));
	EXPECT_EQ(0, memcmp(&same, self->mr, sizeof(same)));
	EXPECT_EQ(0, relayout_plain(self));
	ASSERT_EQ(0, ibmkey_unbind(s->key[1]));
	/* the functions of the library take keys only */
	EXPECT_EQ(EINVAL, mkt_bind_range(self->mr, 0, s->plain[1].mr, s->plain[1].addr, 8));

	rows = ROWS;
	ASSERT_EQ(0, ibv_rereg_mr_interleaved(self->mr, MKT_ACCESS_ALL, 1, &rows, 1, &column));
	same = *self->mr;
	EXPECT_EQ(ENOENT, ibv_rereg_mr_sg(self->mr, 0, 1, &(struct ibv_sge){ 0, 1, 1 }));
	EXPECT_EQ(EINVAL, ibmkey_rereg_mr(self->mr, TRANSLATION, NULL, self->m, 0, 0));
	EXPECT_EQ(EFAULT, ibmkey_rereg_mr(self->mr, TRANSLATION, NULL, NULL, 4096, 0));
	EXPECT_EQ(EOPNOTSUPP, ibmkey_rereg_mr(self->mr, TRANSLATION | 1 << 20, NULL, self->m, 8,
					      0));
	EXPECT_EQ(EINVAL, ibmkey_rereg_mr(self->mr, TRANSLATION | IBV_REREG_MR_CHANGE_PD, NULL,
					  self->m, 8, 0));
	EXPECT_EQ(EOPNOTSUPP, ibmkey_rereg_mr(self->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
					      MKT_ACCESS_ALL));
	/* a key over the key */
	ASSERT_EQ(0, mkt_bind_range(s->key[1], 0, self->mr, 0, 8));
	EXPECT_EQ(EBUSY, ibmkey_rereg_mr(self->mr, TRANSLATION, NULL, self->m, 8, 0));
	EXPECT_EQ(EBUSY, ibmkey_dereg(self->mr));
	ASSERT_EQ(0, ibmkey_unbind(s->key[1]));
	EXPECT_EQ(0, memcmp(&same, self->mr, sizeof(same)));
	EXPECT_EQ(0, relayout_read(self, 0));
}

/* another key keeps the former memory, until mr is deregistered after it */
TEST_F(relayout, former_memory_in_use)
{
	struct mkt_setup *s = &self->s;
	struct ibmkey_block column = relayout_column(self, 3);
	struct ibv_mr former = *self->mr;
	uint64_t rows = ROWS;

	ASSERT_EQ(0, mkt_bind_range(s->key[1], MKT_ACCESS_ALL, &former, (uintptr_t)self->m, 80));
	ASSERT_EQ(0, ibv_rereg_mr_interleaved(self->mr, MKT_ACCESS_ALL, 1, &rows, 1, &column));
	EXPECT_EQ(0, relayout_read(self, 3));
	/* then the key is unbound, as with ibmkey_reg_iov() */
	EXPECT_EQ(EBUSY, ibmkey_dereg(self->mr));
	EXPECT_EQ(IBMKEY_UNBOUND, mkt_kind_of(self->mr));
	ASSERT_EQ(0, ibv_rereg_mr_interleaved(self->mr, MKT_ACCESS_ALL, 1, &rows, 1, &column));
	EXPECT_EQ(0, relayout_read(self, 3));
	ASSERT_EQ(0, ibmkey_rereg_mr(self->mr, TRANSLATION, NULL, self->m,
				     ROWS * sizeof(*self->m), 0));
	EXPECT_EQ(0, relayout_plain(self));
	EXPECT_EQ(EBUSY, ibmkey_dereg(self->mr));
	EXPECT_EQ(0, relayout_plain(self));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(s, s->key[1]->rkey, MKT_READ, 0, 80));
	EXPECT_EQ(0, memcmp(self->far, self->m, 80));
	ASSERT_EQ(0, ibmkey_unbind(s->key[1]));
}

/* ibv_dereg_mr() destroys the key, whose struct ibv_mr the provider's library allocated */
TEST_F(relayout, by_libibverbs)
{
	struct mkt_setup *s = &self->s;
	struct ibv_sge sge = { s->plain[1].addr, 100, s->plain[1].mr->lkey };
	unsigned int i;

	for (i = 0; i < 20; i++) {
		ASSERT_EQ(0, ibv_rereg_mr_sg(self->mr, MKT_ACCESS_ALL, 1, &sge));
		EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(s, self->mr->rkey, MKT_WRITE, 0, 100));
		EXPECT_EQ(0, ibv_dereg_mr(self->mr));
		EXPECT_EQ(self->mrs, mkt_dev_count(&s->dev[1], "mr"));
		self->mr = ibv_reg_mr(s->dev[1].pd, self->m, ROWS * sizeof(*self->m),
				      MKT_ACCESS_ALL);
		ASSERT_NE(NULL, self->mr);
		/* the new one is an MR of libibverbs, whatever structure it has */
		EXPECT_EQ(EINVAL, ibmkey_dereg(self->mr));
		EXPECT_EQ(0, relayout_plain(self));
	}
	EXPECT_EQ(0, ibv_dereg_mr(self->mr));
	self->mr = NULL;
}

TEST_HARNESS_MAIN
