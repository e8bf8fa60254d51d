// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Classes of device memory: the bytes are where the class says, aligned as requested
 * and zero at first. RDMA, copies and a mapping see the same bytes.
 * needs: classes
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dm_class.h"

static bool is_there(enum place place, const char *what, uint64_t physical)
{
	switch (place) {
	case HOST:
		return mkt_node_of(physical) >= 0;
	case NODE:
		return mkt_node_of(physical) == FAR_NODE;
	case P2P:
		return mkt_node_of(physical) < 0 && mkt_in_bar(physical, what);
	case PMEM:
		return mkt_in_iomem(physical, "Persistent Memory");
	}
	return false;
}

static const size_t sizes[] = { 1, 100, 4096, 4097, 70000, 1 << 20 };

/* every page of a buffer is where the class says */
TEST_F(class, place)
{
	uint64_t asked[] = { self->which, variant->bit };
	unsigned int i, a;
	size_t at;

	for (a = 0; a < 2; a++)
		for (i = 0; i < ARRAY_SIZE(sizes); i++) {
			struct ibv_dm *dm = mkt_dm_alloc(&self->s.dev[0],
							sizes[i], 0, asked[a]);
			uint8_t *map;

			ASSERT_NE(NULL, dm);
			map = mkt_dm_map(dm, sizes[i]);
			ASSERT_NE(NULL, map);
			for (at = 0; at < sizes[i]; at += 4096) {
				uint64_t physical = mkt_physical(map + at);

				ASSERT_NE(0, physical);
				ASSERT_TRUE(is_there(variant->place, self->what,
						     physical)) {
					TH_LOG("byte %zu of %zu is at %#" PRIx64,
					       at, sizes[i], physical);
				}
			}
			munmap(map, sizes[i]);
			ASSERT_EQ(0, ibv_free_dm(dm));
		}
}

/* the alignment applies to the physical address, up to the largest block */
TEST_F(class, alignment)
{
	uint32_t log;
	size_t size;

	for (log = 0; log <= 22; log++)
		for (size = 100; size <= 300000; size += 299900) {
			struct ibv_dm *dm = mkt_dm_alloc(&self->s.dev[0], size,
							log, self->which);
			uint8_t *map;

			ASSERT_NE(NULL, dm) {
				TH_LOG("%zu bytes aligned to 1 << %u: %s", size,
				       log, strerror(errno));
			}
			map = mkt_dm_map(dm, size);
			ASSERT_NE(NULL, map);
			ASSERT_NE(0, mkt_physical(map));
			ASSERT_EQ(0, mkt_physical(map) & ((1ull << log) - 1));
			munmap(map, size);
			ASSERT_EQ(0, ibv_free_dm(dm));
		}
	EXPECT_REFUSED(EINVAL, mkt_dm_alloc(&self->s.dev[0], 100, 23, self->which));
}

/* new memory does not show the bytes of its previous owner */
TEST_F(class, zeroed)
{
	uint8_t *bytes = malloc(1 << 20);
	unsigned int i, round;
	size_t at;

	ASSERT_NE(NULL, bytes);
	for (round = 0; round < 2; round++)
		for (i = 0; i < ARRAY_SIZE(sizes); i++) {
			struct ibv_dm *dm = mkt_dm_alloc(&self->s.dev[0],
							sizes[i], 0,
							self->which);
			size_t pages = (sizes[i] + 4095) / 4096 * 4096;
			uint8_t *map;

			ASSERT_NE(NULL, dm);
			/* the rest of the last page, too */
			map = mkt_dm_map(dm, pages);
			ASSERT_NE(NULL, map);
			for (at = 0; at < pages; at++) {
				ASSERT_EQ(0, map[at]);
			}
			memset(map, 0xee, pages);
			munmap(map, pages);
			ASSERT_EQ(0, ibv_free_dm(dm));
		}
	free(bytes);
}

/* RDMA in both directions and atomics agree with copies and with the mapping */
TEST_F(class, traffic)
{
	struct mkt_arena *far = &self->s.arena[1];
	struct mkt_end *plain = &self->s.plain[1];
	uint8_t *seen, *map, *host;
	struct mkt_result result;
	struct ibv_mr *mr;
	struct ibv_dm *dm;
	struct mkt_wr wr;
	uint64_t value;
	size_t i;

	/* leaf 0 is in the first memory of the arena */
	host = far->mem[0].host + far->leaf[0].at;
	dm = mkt_dm_alloc(&self->s.dev[0], 200001, 0, self->which);
	ASSERT_NE(NULL, dm);
	mr = ibv_reg_dm_mr(self->s.dev[0].pd, dm, 8, 150000,
			   MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	ASSERT_NE(NULL, mr);
	seen = malloc(100000);
	ASSERT_NE(NULL, seen);

	/* WRITE from the peer's host memory */
	wr = (struct mkt_wr){
		.op = MKT_WRITE,
		.sge = { { .addr = plain->addr, .length = 100000,
			   .lkey = plain->mr->lkey } },
		.num_sge = 1,
		.remote_addr = 3,
		.rkey = mr->rkey,
	};
	ASSERT_EQ(0, mkt_exec(&self->s.pair, 1, &wr, NULL, &result));
	ASSERT_EQ(IBV_WC_SUCCESS, result.status);
	ASSERT_EQ(0, ibv_memcpy_from_dm(seen, dm, 11, 100000));
	ASSERT_EQ(0, memcmp(seen, host, 100000));
	map = mkt_dm_map(dm, 200001);
	ASSERT_NE(NULL, map);
	ASSERT_EQ(0, memcmp(map + 11, host, 100000));

	/* READ back the bytes that the mapping has written */
	for (i = 0; i < 100000; i++)
		map[9 + i] = i * 7 + (i >> 8);
	wr.op = MKT_READ;
	wr.remote_addr = 1;
	ASSERT_EQ(0, mkt_exec(&self->s.pair, 1, &wr, NULL, &result));
	ASSERT_EQ(IBV_WC_SUCCESS, result.status);
	ASSERT_EQ(0, memcmp(map + 9, host, 100000));

	/* an 8-byte word for the atomics */
	value = 40;
	ASSERT_EQ(0, ibv_memcpy_to_dm(dm, 16, &value, sizeof(value)));
	wr = (struct mkt_wr){
		.op = MKT_FETCH_ADD,
		.sge = { { .addr = plain->addr, .length = 8,
			   .lkey = plain->mr->lkey } },
		.num_sge = 1,
		.remote_addr = 8,
		.rkey = mr->rkey,
		.swap_add = 2,
	};
	ASSERT_EQ(0, mkt_exec(&self->s.pair, 1, &wr, NULL, &result));
	ASSERT_EQ(IBV_WC_SUCCESS, result.status);
	ASSERT_EQ(0, memcmp(&value, host, 8));
	memcpy(&value, map + 16, 8);
	ASSERT_EQ(42, value);

	munmap(map, 200001);
	free(seen);
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	ASSERT_EQ(0, ibv_free_dm(dm));
	/* the arena expects the bytes that were read */
	ASSERT_EQ(0, mkt_arena_adopt(far, far->leaf[0].at, 100000));
}

/*
 * all memory of the class and no more can be allocated, and all of it again
 * after a free
 */
TEST_F(class, exhausted)
{
	unsigned int n, round, had = 0;
	struct ibv_dm *dm[512];

	for (round = 0; round < 2; round++) {
		for (n = 0; n < ARRAY_SIZE(dm); n++) {
			dm[n] = mkt_dm_alloc(&self->s.dev[0], 1 << 20, 0,
					    self->which);
			if (!dm[n])
				break;
		}
		EXPECT_EQ(ENOMEM, errno);
		EXPECT_LT(n, ARRAY_SIZE(dm));
		EXPECT_LE(8, n);
		if (round)
			EXPECT_EQ(had, n);
		had = n;
		while (n--)
			ASSERT_EQ(0, ibv_free_dm(dm[n]));
	}
}

TEST_F(class, refused)
{
	static const uint64_t unknown[] = {
		3, 0x10, 0x20, 0x100, IBMKEY_DM_HOST | 0x100, 1ull << 32,
		IBMKEY_DM_HOST | 1ull << 63, IBMKEY_DM_HOST | IBMKEY_DM_NODE,
		UINT32_MAX, UINT64_MAX,
	};
	static const uint64_t not_offered[] = {
		IBMKEY_DM_THE_NODE(0), IBMKEY_DM_THE_NODE(77),
		IBMKEY_DM_THE_NODE(UINT32_MAX), IBMKEY_DM_THE_P2P(0, 0, 0),
		IBMKEY_DM_THE_P2P(0, 0, 1), IBMKEY_DM_THE_P2P(255, 255, 255),
		IBMKEY_DM_THE_P2P(UINT32_MAX, 255, 255), IBMKEY_DM_THE_PMEM(9),
		IBMKEY_DM_PMEM | 0xffffff00, IBMKEY_DM_NODE | 1ull << 63,
		IBMKEY_DM_P2P | 1ull << 63,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(unknown); i++) {
		EXPECT_REFUSED(EINVAL, mkt_dm_alloc(&self->s.dev[0], 100, 0, unknown[i]));
	}
	for (i = 0; i < ARRAY_SIZE(not_offered); i++) {
		EXPECT_REFUSED(EOPNOTSUPP, mkt_dm_alloc(&self->s.dev[0], 100, 0, not_offered[i]));
	}
	/* the same bus and function in other domains */
	for (i = 0; variant->place == P2P && i < 32; i++) {
		EXPECT_REFUSED(EOPNOTSUPP, mkt_dm_alloc(&self->s.dev[0], 100, 0,
						       IBMKEY_DM_THE_P2P(self->domain ^ 1u << i, self->bus, self->devfn)));
	}
	/* persistent memory belongs to one device */
	if (variant->place == PMEM) {
		EXPECT_REFUSED(EOPNOTSUPP, mkt_dm_alloc(&self->s.dev[1], 100, 0, self->which));
	}
}

TEST_HARNESS_MAIN
