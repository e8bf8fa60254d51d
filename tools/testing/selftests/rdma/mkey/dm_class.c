// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Classes of device memory: the bytes are where the class says, aligned as requested
 * and zero at first. Copies and a mapping see the same bytes. FLUSH by an MR and by keys:
 * only persistent memory can be flushed to persistence.
 * needs: classes
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "calls.h"
#include "mkey_harness.h"

enum place { HOST, NODE, P2P, PMEM };

FIXTURE(class)
{
	struct mkt_setup s;
	uint64_t which;
	unsigned int domain, bus, devfn;	/* of the PCI function */
	char what[64];
};

FIXTURE_VARIANT(class)
{
	enum place place;
	uint32_t bit;
};

FIXTURE_VARIANT_ADD(class, host) { .place = HOST, .bit = IBMKEY_DM_HOST };
FIXTURE_VARIANT_ADD(class, node) { .place = NODE, .bit = IBMKEY_DM_NODE };
FIXTURE_VARIANT_ADD(class, p2p) { .place = P2P, .bit = IBMKEY_DM_P2P };
FIXTURE_VARIANT_ADD(class, pmem) { .place = PMEM, .bit = IBMKEY_DM_PMEM };

/* the node that the device offers */
#define FAR_NODE 1

FIXTURE_SETUP(class)
{
	unsigned int slot, function;

	if (geteuid())
		SKIP(return, "not root: physical addresses are not shown");
	MKT_OPEN_EXTENDED(self->s.dev);
	if (!(self->s.dev[0].caps.dm_classes & variant->bit))
		SKIP(return, "%s does not offer this class", self->s.dev[0].name);
	switch (variant->place) {
	case HOST:
		self->which = IBMKEY_DM_HOST;
		break;
	case NODE:
		self->which = IBMKEY_DM_THE_NODE(FAR_NODE);
		break;
	case P2P:
		if (!mkt_hardware(self->what, sizeof(self->what), "p2p"))
			SKIP(return, "no PCI function with memory for peers");
		if (sscanf(self->what, "%x:%x:%x.%u", &self->domain, &self->bus,
			   &slot, &function) != 4)
			ASSERT_STREQ("a PCI function", self->what);
		self->devfn = slot << 3 | function;
		self->which = IBMKEY_DM_THE_P2P(self->domain, self->bus, self->devfn);
		break;
	case PMEM:
		if (!mkt_hardware(self->what, sizeof(self->what), "pmem"))
			SKIP(return, "no persistent memory");
		self->which = IBMKEY_DM_THE_PMEM(atoi(self->what));
		break;
	}
	/* gigabytes are flushed, which takes long */
	MKT_MAKE(&self->s, .flags = MKT_QP_PATIENT, .host = 256 * 1024);
}

FIXTURE_TEARDOWN(class)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

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
			struct ibv_dm *dm = mkt_dm_alloc(&self->s.dev[0], sizes[i], 0, asked[a]);
			uint8_t *map;

			ASSERT_NE(NULL, dm);
			map = mkt_dm_map(dm, sizes[i]);
			ASSERT_NE(NULL, map);
			for (at = 0; at < sizes[i]; at += 4096) {
				uint64_t physical = mkt_physical(map + at);

				ASSERT_NE(0, physical);
				ASSERT_TRUE(is_there(variant->place, self->what,
						     physical))
					TH_LOG("byte %zu of %zu is at %#" PRIx64,
					       at, sizes[i], physical);
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
			struct ibv_dm *dm = mkt_dm_alloc(&self->s.dev[0], size, log, self->which);
			uint8_t *map;

			ASSERT_NE(NULL, dm)
				TH_LOG("%zu bytes aligned to 1 << %u: %s", size,
				       log, strerror(errno));
			map = mkt_dm_map(dm, size);
			ASSERT_NE(NULL, map);
			ASSERT_NE(0, mkt_physical(map));
			ASSERT_EQ(0, mkt_physical(map) & ((1ull << log) - 1));
			munmap(map, size);
			ASSERT_EQ(0, ibv_free_dm(dm));
		}
	EXPECT_ERRNO(EINVAL, mkt_dm_alloc(&self->s.dev[0], 100, 23, self->which));
}

/* new memory does not show the bytes of its previous owner */
TEST_F(class, zeroed)
{
	unsigned int i, round;
	size_t at;

	for (round = 0; round < 2; round++)
		for (i = 0; i < ARRAY_SIZE(sizes); i++) {
			struct ibv_dm *dm = mkt_dm_alloc(&self->s.dev[0], sizes[i], 0, self->which);
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
}

/* copies and a mapping see the same bytes; mkey_matrix compares RDMA with copies */
TEST_F(class, mapping)
{
	const size_t length = 200001;
	uint8_t *bytes = malloc(length), *map;
	struct ibv_dm *dm = mkt_dm_alloc(&self->s.dev[0], length, 0, self->which);
	size_t i;

	ASSERT_NE(NULL, bytes);
	ASSERT_NE(NULL, dm);
	map = mkt_dm_map(dm, length);
	ASSERT_NE(NULL, map);
	for (i = 0; i < length; i++)
		bytes[i] = i * 7 + (i >> 8);
	ASSERT_EQ(0, ibv_memcpy_to_dm(dm, 11, bytes, 100000));
	EXPECT_EQ(0, memcmp(map + 11, bytes, 100000));
	for (i = 0; i < length; i++)
		map[i] = i * 5 + (i >> 9);
	memset(bytes, 0, length);
	ASSERT_EQ(0, ibv_memcpy_from_dm(bytes, dm, 0, length));
	EXPECT_EQ(0, memcmp(map, bytes, length));
	munmap(map, length);
	ASSERT_EQ(0, ibv_free_dm(dm));
	free(bytes);
}

/*
 * The processor, through a mapping, and RDMA change one word in turn. Each sees what the other one
 * has just stored. This also holds for memory that is not cached, which a request for coherent
 * memory refuses.
 */
TEST_F(class, coherent)
{
	const int access = MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED;
	struct ibv_dm *dm = mkt_dm_alloc(&self->s.dev[0], 100, 0, self->which);
	const bool coherent = variant->place != P2P;
	uint64_t dm_class, expected = 0;
	struct ibv_mr *mr, *key;
	uint64_t *map, *before;
	unsigned int i;
	struct mkt_wr wr = {
		.op = MKT_FETCH_ADD,
		.sge[0] = { self->s.plain[1].addr + (-self->s.plain[1].addr & 7), 8,
			    self->s.plain[1].mr->lkey },
		.num_sge = 1,
		.swap_add = 1000,
		.remote_addr = 8,
	};

	ASSERT_NE(NULL, dm);
	EXPECT_EQ(coherent, !!(self->s.dev[0].caps.flags & IBMKEY_CAP_COHERENT(variant->bit)));
	ASSERT_EQ(0, ibmkey_query_dm(dm, &dm_class));
	EXPECT_EQ(self->which | (coherent ? IBMKEY_DM_COHERENT : 0), dm_class);
	EXPECT_EQ(EFAULT, ibmkey_query_dm(dm, NULL));
	map = mkt_dm_map(dm, 100);
	ASSERT_NE(NULL, map);
	mr = ibv_reg_dm_mr(self->s.dev[0].pd, dm, 0, 100, access);
	ASSERT_NE(NULL, mr);
	key = ibmkey_alloc(self->s.dev[0].pd, 1);
	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, mkt_bind_range(key, MKT_ACCESS_ALL, mr, 0, 100));
	before = (uint64_t *)(uintptr_t)wr.sge[0].addr;
	for (i = 0; i < 200; i++) {
		/* an atomic operation of the processor works only in coherent memory */
		if (coherent) {
			EXPECT_EQ(expected, __atomic_fetch_add(&map[1], 1, __ATOMIC_SEQ_CST));
		} else {
			__atomic_store_n(&map[1], expected + 1, __ATOMIC_SEQ_CST);
		}
		expected++;
		wr.rkey = i % 2 ? mr->rkey : key->rkey;
		ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
		ASSERT_EQ(expected, *before);
		expected += 1000;
		ASSERT_EQ(expected, __atomic_load_n(&map[1], __ATOMIC_SEQ_CST));
	}
	munmap(map, 100);
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_EQ(0, ibv_free_dm(dm));

	dm = mkt_dm_alloc(&self->s.dev[0], 100, 0, self->which | IBMKEY_DM_COHERENT);
	EXPECT_EQ(coherent, !!dm);
	if (dm)
		EXPECT_EQ(0, ibv_free_dm(dm));
	/* without a class, another one than the default may be taken, or be missing */
	dm = mkt_dm_alloc(&self->s.dev[0], 100, 0, IBMKEY_DM_COHERENT);
	if (!dm) {
		ASSERT_EQ(EOPNOTSUPP, errno);
		return;
	}
	ASSERT_EQ(0, ibmkey_query_dm(dm, &dm_class));
	EXPECT_TRUE(dm_class & IBMKEY_DM_COHERENT);
	EXPECT_EQ(0, ibv_free_dm(dm));
}

TEST_F(class, refused)
{
	static const uint64_t unknown[] = {
		3, 0x10, 0x20, 0x100, IBMKEY_DM_HOST | 0x100, 1ull << 32,
		IBMKEY_DM_HOST | 1ull << 62, IBMKEY_DM_HOST | IBMKEY_DM_NODE,
		IBMKEY_DM_COHERENT | 0x10, UINT32_MAX, UINT64_MAX,
	};
	static const uint64_t not_offered[] = {
		IBMKEY_DM_THE_NODE(0), IBMKEY_DM_THE_NODE(77),
		IBMKEY_DM_THE_NODE(UINT32_MAX), IBMKEY_DM_THE_P2P(0, 0, 0),
		IBMKEY_DM_THE_P2P(0, 0, 1), IBMKEY_DM_THE_P2P(255, 255, 255),
		IBMKEY_DM_THE_P2P(UINT32_MAX, 255, 255), IBMKEY_DM_THE_PMEM(9),
		IBMKEY_DM_PMEM | 0xffffff00, IBMKEY_DM_NODE | 1ull << 62,
		IBMKEY_DM_P2P | 1ull << 62, IBMKEY_DM_P2P | IBMKEY_DM_COHERENT,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(unknown); i++) {
		EXPECT_ERRNO(EINVAL, mkt_dm_alloc(&self->s.dev[0], 100, 0, unknown[i]));
	}
	for (i = 0; i < ARRAY_SIZE(not_offered); i++) {
		EXPECT_ERRNO(EOPNOTSUPP, mkt_dm_alloc(&self->s.dev[0], 100, 0, not_offered[i]));
	}
	/* the same bus and function in other domains */
	for (i = 0; variant->place == P2P && i < 32; i++) {
		EXPECT_ERRNO(EOPNOTSUPP, mkt_dm_alloc(&self->s.dev[0], 100, 0,
						      IBMKEY_DM_THE_P2P(self->domain ^ 1u << i,
									self->bus, self->devfn)));
	}
	/* persistent memory belongs to one device */
	if (variant->place == PMEM) {
		EXPECT_ERRNO(EOPNOTSUPP, mkt_dm_alloc(&self->s.dev[1], 100, 0, self->which));
	}
}

/*
 * a key of 4 GiB is flushed as well, although rxe reports an MR's length in 32 bits
 */
static void class_flush_whole(struct __test_metadata *_metadata,
			      FIXTURE_DATA(class) *self, struct ibv_mr *mr,
			      struct ibv_mr *key)
{
	const int access = MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_PERSISTENT;
	const uint64_t pages = 1 << 20;
	struct mkt_wr wr = {
		.op = MKT_FLUSH,
		.rkey = key->rkey,
		.persistent = true,
		.whole = true,
	};

	/* begin at the buffer's second page */
	ASSERT_EQ(0, mkt_bind_strided(key, access, mr, 3996, 4096, 0, pages));
	ASSERT_EQ(1ull << 32, key->length);
	if (!mkt_calls_begin("arch_wb_cache_pmem"))
		return;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	EXPECT_EQ(pages, mkt_calls_end());

	/* a shorter key, with a FLUSH of zero bytes */
	ASSERT_EQ(0, mkt_bind_strided(key, access, mr, 3996, 100, 4096, 2));
	ASSERT_TRUE(mkt_calls_begin("arch_wb_cache_pmem"));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	wr.whole = false;
	wr.remote_addr = 4;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	EXPECT_EQ(2, mkt_calls_end());
}

/*
 * a flush of a key over other keys, or over several MRs, takes no longer than that of
 * a key over one: all of them may be over the same bytes
 */
static void class_flush_shared(struct __test_metadata *_metadata,
			       FIXTURE_DATA(class) *self, struct ibv_mr *mr)
{
	const int access = MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_PERSISTENT;
	const uint64_t one = 1;
	struct ibmkey_block both[2] = {};
	struct ibv_mr *inner[2], *outer;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		inner[i] = ibmkey_alloc(self->s.dev[0].pd, 1);
		ASSERT_NE(NULL, inner[i]);
		ASSERT_EQ(0, mkt_bind_strided(inner[i], access, mr, 0, 10000, 0, 450000));
		both[i].bytes_count = inner[i]->length;
		both[i].lkey = inner[i]->lkey;
	}
	outer = ibmkey_alloc(self->s.dev[0].pd, 2);
	ASSERT_NE(NULL, outer);
	/* 9,000,000,000 bytes in 900,000 pieces */
	EXPECT_EQ(EOPNOTSUPP, ibv_rereg_mr_interleaved(outer, access, 1, &one, 2, both));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "access has IBV_ACCESS_FLUSH_PERSISTENT"));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "more than 8589934592 bytes"));
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
	const uint64_t most = 1 << 20;
	struct ibv_mr *mr, *key;
	struct ibv_dm *dm;
	struct mkt_wr wr;
	bool counted;

	dm = mkt_dm_alloc(&self->s.dev[0], 20000, 0, self->which);
	ASSERT_NE(NULL, dm);
	errno = 0;
	mr = ibv_reg_dm_mr(self->s.dev[0].pd, dm, 100, 10000,
			   access | IBV_ACCESS_FLUSH_PERSISTENT);
	if (variant->place != PMEM) {
		EXPECT_ERRNO(EOPNOTSUPP, mr);
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
	counted = mkt_calls_begin("arch_wb_cache_pmem");
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	if (counted) {
		EXPECT_EQ(3, mkt_calls_end());
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
	ASSERT_EQ(0, mkt_bind_strided(key, MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_PERSISTENT, mr, 0, 8,
				      8192, 2));
	wr.remote_addr = 4;
	wr.rkey = key->rkey;
	wr.flush_length = 10;
	counted = mkt_calls_begin("arch_wb_cache_pmem");
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	if (counted) {
		EXPECT_EQ(2, mkt_calls_end());
	}
	/* more pieces than can be flushed while a request waits */
	EXPECT_EQ(EOPNOTSUPP, mkt_bind_strided(key, IBV_ACCESS_FLUSH_PERSISTENT, mr, 0, 8, 0,
					       most + 1));
	EXPECT_EQ(0, mkt_bind_strided(key, IBV_ACCESS_FLUSH_PERSISTENT, mr, 0, 8, 0, most));
	/* more bytes, which the leaf has only once */
	EXPECT_EQ(EOPNOTSUPP, mkt_bind_strided(key, IBV_ACCESS_FLUSH_PERSISTENT, mr, 0, 10000, 0,
					       most));
	EXPECT_EQ(0, mkt_bind_strided(key, 0, mr, 0, 10000, 0, most));
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
	EXPECT_EQ(EACCES, mkt_bind_range(key, IBV_ACCESS_FLUSH_PERSISTENT, mr, 0, 100));
	ASSERT_EQ(0, ibv_dereg_mr(key));
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	ASSERT_EQ(0, ibv_free_dm(dm));
}

TEST_HARNESS_MAIN
