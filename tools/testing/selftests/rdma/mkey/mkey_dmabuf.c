// SPDX-License-Identifier: GPL-2.0
/*
 * subject: MRs over dma-bufs, which rxe alone does not offer: they are used like any MR. Tests
 * the errors, what keeps a dma-buf, and what is freed. mkey_matrix uses them as leaves of keys.
 * needs: dma-buf
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "matrix.h"
#include "mkey_harness.h"
#include "raw.h"

#define PAGE 4096ul
#define SIZE (10 * PAGE)

FIXTURE(dmabuf)
{
	struct mkt_setup s;
	unsigned int leaf;		/* over a dma-buf, of side 1 */
};

FIXTURE_VARIANT(dmabuf)
{
	mkt_leaf_maker make;
};

FIXTURE_VARIANT_ADD(dmabuf, udmabuf) { .make = mkt_leaf_udmabuf };
FIXTURE_VARIANT_ADD(dmabuf, heap) { .make = mkt_leaf_heap };
FIXTURE_VARIANT_ADD(dmabuf, dm) { .make = mkt_leaf_dm_export };

FIXTURE_SETUP(dmabuf)
{
	struct mkt_arena *arena = &self->s.arena[1];
	int err;

	MKT_SETUP(&self->s, .host = 64 * 1024, .max_entries = 4);
	self->leaf = arena->num_leaves;
	err = variant->make(arena);
	if (err == ENODEV)
		SKIP(return, "this machine has no such dma-buf");
	ASSERT_EQ(0, err);
	ASSERT_EQ(0, mkt_arena_fill(arena, &self->s.rng));
}

FIXTURE_TEARDOWN(dmabuf)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* without a key: READs and WRITEs from both sides, of all bytes and of parts */
TEST_F(dmabuf, region)
{
	static const enum mkt_op ops[] = {
		MKT_SEND, MKT_WRITE, MKT_WRITE_IMM, MKT_READ,
	};
	struct mkt_end end;
	unsigned int o, side;

	ASSERT_EQ(0, mkt_end_leaf(&end, &self->s.arena[1], self->leaf));
	for (o = 0; o < ARRAY_SIZE(ops); o++)
		for (side = 0; side < 2; side++) {
			struct mkt_xfer xfer = {
				.op = ops[o],
				.side = side,
				.end = { &self->s.plain[0], &end },
				.offset = { o, side },
				.length = end.map.length - side - o,
				.num_sge = 3,
			};
			unsigned int from = mkt_xfer_source(&xfer);

			xfer.offset[1] = end.map.length - xfer.length;
			ASSERT_EQ(0, mkt_arena_fill(&self->s.arena[from],
						    &self->s.rng));
			ASSERT_EQ(0, mkt_xfer(&self->s.pair, &xfer));
		}
	mkt_end_free(&end);
}

TEST_F(dmabuf, atomics)
{
	static const enum mkt_op ops[] = {
		MKT_FETCH_ADD, MKT_CMP_SWAP, MKT_ATOMIC_WRITE,
	};
	struct mkt_end end;
	unsigned int o, i;

	ASSERT_EQ(0, mkt_end_leaf(&end, &self->s.arena[1], self->leaf));
	for (o = 0; o < ARRAY_SIZE(ops); o++)
		for (i = 0; i < 10; i++) {
			struct mkt_xfer xfer = {
				.op = ops[o],
				.end = { &self->s.plain[0], &end },
				.offset = { 0, (-end.addr & 7) + 800 * i },
				.length = 8,
				.num_sge = 1,
				.swap_add = mkt_rand(&self->s.rng),
			};

			ASSERT_EQ(0, mkt_xfer(&self->s.pair, &xfer));
		}
	mkt_end_free(&end);
}

/*
 * bytes before and after the MR are out of reach, although the dma-buf has more
 */
TEST_F(dmabuf, bounds)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[self->leaf];
	const uint64_t outside[] = {
		leaf->addr - 1, leaf->addr + leaf->length - 7,
		leaf->addr + leaf->length, 0, -8ull,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(outside); i++) {
		struct mkt_wr wr = mkt_plain_wr(&self->s, 0, MKT_WRITE, 8, outside[i],
						leaf->mr->rkey);

		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
			  mkt_status(&self->s.pair, 0, &wr));
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	}
	EXPECT_EQ(0, mkt_arena_check(&self->s.arena[1]));
}

/* the MR has no memory of a process, so it cannot be moved or prefetched */
TEST_F(dmabuf, stays)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[self->leaf];
	struct mkt_dev *dev = &self->s.dev[1];
	struct ibv_pd *pd = ibv_alloc_pd(dev->ctx);
	void *start = self->s.arena[1].mem[0].host;

	ASSERT_NE(NULL, pd);
	EXPECT_EQ(EOPNOTSUPP, mkt_raw_rereg_to(leaf->mr,
					       IBV_REREG_MR_CHANGE_TRANSLATION,
					       dev->pd, 0, start, 4096,
					       (uintptr_t)start));
	EXPECT_EQ(EOPNOTSUPP, mkt_raw_rereg(leaf->mr,
					    IBV_REREG_MR_CHANGE_ACCESS,
					    dev->pd, 0));
	EXPECT_EQ(EOPNOTSUPP, mkt_raw_rereg(leaf->mr, IBV_REREG_MR_CHANGE_PD,
					    pd, 0));
	EXPECT_EQ(EINVAL, mkt_raw_advise(dev->pd, IB_UVERBS_ADVISE_MR_FLAG_FLUSH, leaf->addr,
					 100, leaf->mr->lkey));
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

/* a key that is bound to the MR keeps it */
TEST_F(dmabuf, described)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[self->leaf];
	struct ibv_sge sge = { leaf->addr + 10, 100, leaf->mr->lkey };

	ASSERT_EQ(0, ibv_rereg_mr_sg(self->s.key[1], MKT_ACCESS_ALL, 1, &sge));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(leaf->mr));
	sge.length = leaf->length - 9;
	EXPECT_EQ(ERANGE, ibv_rereg_mr_sg(self->s.key[1], MKT_ACCESS_ALL, 1,
					  &sge));
	ASSERT_EQ(0, ibmkey_unbind(self->s.key[1]));
}

FIXTURE(buffer)
{
	struct mkt_dev dev;
	int fd;
};

FIXTURE_SETUP(buffer)
{
	MKT_OPEN_SIDE(&self->dev, 0);
	self->fd = mkt_heap_buffer(SIZE, O_RDWR);
	if (self->fd < 0)
		SKIP(return, "no DMA-BUF heap");
}

FIXTURE_TEARDOWN(buffer)
{
	close(self->fd);
	mkt_dev_close(&self->dev);
}

/* registers and deregisters an MR; returns 0 or an errno */
static int buffer_reg(struct mkt_dev *dev, int fd, uint64_t offset,
		      size_t length, uint64_t iova, int access)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibmkey_reg_dmabuf_mr(dev->pd, offset, length, iova, fd, access);
	return mr ? ibv_dereg_mr(mr) : errno;
}

TEST_F(buffer, ranges)
{
	struct mkt_dev *dev = &self->dev;

	EXPECT_EQ(0, buffer_reg(dev, self->fd, 0, SIZE, 0, MKT_ACCESS_ALL));
	EXPECT_EQ(0, buffer_reg(dev, self->fd, SIZE - 1, 1, PAGE - 1, 0));
	EXPECT_EQ(0, buffer_reg(dev, self->fd, 0, 1, -PAGE, 0));
	EXPECT_EQ(EINVAL, buffer_reg(dev, self->fd, 0, 0, 0, 0));
	EXPECT_EQ(EINVAL, buffer_reg(dev, self->fd, 0, SIZE + 1, 0, 0));
	EXPECT_EQ(EINVAL, buffer_reg(dev, self->fd, 1, SIZE, 1, 0));
	EXPECT_EQ(EINVAL, buffer_reg(dev, self->fd, SIZE, 1, 0, 0));
	EXPECT_EQ(EINVAL, buffer_reg(dev, self->fd, 0, -1ul, 0, 0));
	EXPECT_EQ(EINVAL, buffer_reg(dev, self->fd, -PAGE, 2 * PAGE, 0, 0));
	EXPECT_EQ(EINVAL, buffer_reg(dev, self->fd, 0, 8, 8, 0));
	EXPECT_EQ(EOVERFLOW, buffer_reg(dev, self->fd, 0, 2 * PAGE, -PAGE, 0));
}

TEST_F(buffer, rights)
{
	const int bad[] = {
		IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC,
		/* access flags that the method refuses on any device */
		IBV_ACCESS_MW_BIND, IBV_ACCESS_ZERO_BASED,
		IBV_ACCESS_ON_DEMAND, IBV_ACCESS_FLUSH_GLOBAL, 1 << 30,
	};
	int fd = mkt_heap_buffer(SIZE, O_RDONLY);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(EINVAL, buffer_reg(&self->dev, self->fd, 0, SIZE, 0,
					     bad[i]))
		{
			TH_LOG("rights 0x%x", bad[i]);
		}
	}
	ASSERT_LE(0, fd);
	EXPECT_EQ(EACCES, buffer_reg(&self->dev, fd, 0, SIZE, 0,
				     IBV_ACCESS_LOCAL_WRITE));
	EXPECT_EQ(0, buffer_reg(&self->dev, fd, 0, SIZE, 0,
				IBV_ACCESS_REMOTE_READ));
	close(fd);
}

TEST_F(buffer, descriptors)
{
	int other[2], closed = dup(self->fd);

	close(closed);
	EXPECT_EQ(EBADF, buffer_reg(&self->dev, closed, 0, SIZE, 0, 0));
	EXPECT_EQ(EBADF, buffer_reg(&self->dev, -1, 0, SIZE, 0, 0));
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, other));
	EXPECT_EQ(EINVAL, buffer_reg(&self->dev, other[0], 0, SIZE, 0, 0));
	EXPECT_EQ(EINVAL, buffer_reg(&self->dev, self->dev.ctx->cmd_fd, 0,
				     SIZE, 0, 0));
	close(other[0]);
	close(other[1]);
}

/* the standard verb, from the provider's library or from the preload library */
TEST_F(buffer, verb)
{
	const char *preload = getenv("LD_PRELOAD");
	struct ibv_mr *mr;

	mr = ibv_reg_dmabuf_mr(self->dev.pd, PAGE, PAGE, 0, self->fd,
			       MKT_ACCESS_ALL);
	if (!mr && !preload) {
		EXPECT_EQ(EOPNOTSUPP, errno);
		return;
	}
	ASSERT_NE(NULL, mr);
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_ERRNO(EINVAL, ibv_reg_dmabuf_mr(self->dev.pd, PAGE, SIZE, 0, self->fd,
					       MKT_ACCESS_ALL));
}

/* a revoked buffer cannot be imported again; the last MR frees it */
TEST_F(buffer, revoked)
{
	struct mkt_pool before, now;
	struct ibv_mr *mr;
	struct ibv_dm *dm;
	int fd;

	if (mkt_pool(&self->dev, "host", &before))
		SKIP(return, "no debugfs");
	dm = mkt_dm_alloc(&self->dev, SIZE, 0, IBMKEY_DM_HOST);
	ASSERT_NE(NULL, dm);
	ASSERT_EQ(0, ibmkey_export_dm(dm, &fd));
	mr = ibmkey_reg_dmabuf_mr(self->dev.pd, 0, SIZE, 0, fd, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, mr);
	EXPECT_EQ(0, buffer_reg(&self->dev, fd, 0, SIZE, 0, MKT_ACCESS_ALL));
	ASSERT_EQ(0, ibv_free_dm(dm));
	/* also while the MR keeps its mapping */
	EXPECT_EQ(ENODEV, buffer_reg(&self->dev, fd, 0, SIZE, 0, 0));
	EXPECT_EQ(0, mkt_pool(&self->dev, "host", &now));
	EXPECT_EQ(before.used + SIZE, now.used);
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_EQ(0, mkt_pool(&self->dev, "host", &now));
	EXPECT_EQ(before.used, now.used);
	EXPECT_EQ(ENODEV, buffer_reg(&self->dev, fd, 0, SIZE, 0, 0));
	close(fd);
}

/* an MR keeps the dma-buf after its descriptor was closed */
TEST_F(buffer, closed)
{
	struct mkt_pool before, now;
	struct ibv_mr *mr;
	struct ibv_dm *dm;
	int fd, i;

	if (mkt_pool(&self->dev, "host", &before))
		SKIP(return, "no debugfs");
	for (i = 0; i < 50; i++) {
		dm = mkt_dm_alloc(&self->dev, SIZE, 0, IBMKEY_DM_HOST);
		ASSERT_NE(NULL, dm);
		ASSERT_EQ(0, ibmkey_export_dm(dm, &fd));
		mr = ibmkey_reg_dmabuf_mr(self->dev.pd, 0, SIZE, 0, fd, 0);
		ASSERT_NE(NULL, mr);
		close(fd);
		if (i & 1) {
			ASSERT_EQ(0, ibv_free_dm(dm));
			ASSERT_EQ(0, ibv_dereg_mr(mr));
		} else {
			ASSERT_EQ(0, ibv_dereg_mr(mr));
			ASSERT_EQ(0, ibv_free_dm(dm));
		}
	}
	EXPECT_EQ(0, mkt_pool(&self->dev, "host", &now));
	EXPECT_EQ(before.used, now.used);
	EXPECT_EQ(before.buffers, now.buffers);
}

TEST_HARNESS_MAIN
