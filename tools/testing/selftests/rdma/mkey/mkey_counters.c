// SPDX-License-Identifier: GPL-2.0
/*
 * subject: The file `counters' in debugfs: one access that is refused because the bytes are not
 * bound any more, one for its rights, one for its memory, one for another reason, one bind, one
 * unbind and one fault of a page. The count of each grows by one. All others stay, except that
 * of accesses.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "mkey_harness.h"
#include "raw.h"

#define PAGE 4096
#define COUNTERS "/sys/kernel/debug/ib_mkey/counters"

static const char *const names[] = {
	"binds", "unbinds", "refused_unbound", "refused_rights",
	"refused_memory", "refused_other", "odp_faults",
};

#define COUNTS ARRAY_SIZE(names)

struct counts {
	long long of[COUNTS];
};

/* returns the number of counts that were found; @accesses: the one that is not among them */
static unsigned int counts_read(struct counts *counts, long long *accesses)
{
	FILE *f = fopen(COUNTERS, "r");
	unsigned int i, found = 0;
	char line[128], name[64];
	long long count;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%63s %lld", name, &count) != 2)
			continue;
		if (accesses && !strcmp(name, "accesses"))
			*accesses = count;
		for (i = 0; i < COUNTS; i++)
			if (!strcmp(name, names[i])) {
				counts->of[i] = count;
				found++;
			}
	}
	if (f)
		fclose(f);
	return found;
}

FIXTURE(counters)
{
	struct mkt_setup s;
	struct counts before;
	/* of side 1: memory that no process has used, and its MR on demand */
	uint8_t *fresh;
	struct ibv_mr *odp;
};

FIXTURE_SETUP(counters)
{
	/* a request that is sent again would be counted again */
	MKT_SETUP(&self->s, .flags = MKT_QP_PATIENT, .host = 4 * PAGE, .max_entries = 4);
	if (counts_read(&self->before, NULL) != COUNTS)
		SKIP(return, "%s cannot be read", COUNTERS);
	self->fresh = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->fresh);
}

FIXTURE_TEARDOWN(counters)
{
	ibmkey_unbind(self->s.key[1]);
	if (self->odp)
		EXPECT_EQ(0, ibv_dereg_mr(self->odp));
	if (self->fresh)
		munmap(self->fresh, 4 * PAGE);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* Compares the counts with those of the last call: @name has grown by @by. */
#define EXPECT_COUNT(name, by)                                             \
	do {                                                               \
		struct counts now;                                         \
		unsigned int n_;                                           \
		ASSERT_EQ(COUNTS, counts_read(&now, NULL));                      \
		for (n_ = 0; n_ < COUNTS; n_++) {                          \
			EXPECT_EQ(strcmp(names[n_], name) ? 0 : (by),      \
				  now.of[n_] - self->before.of[n_])        \
				TH_LOG("%s changed", names[n_]);           \
		}                                                          \
		self->before = now;                                        \
	} while (0)

/* binds the key of side 1 to bytes of leaf 0 */
static int counters_bind(FIXTURE_DATA(counters) *self, uint32_t length)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];

	return mkt_bind_range(self->s.key[1], MKT_ACCESS_ALL, leaf->mr, leaf->addr, length);
}

/* binds the key of side 1 to fresh memory on demand; ENODEV if there is none */
static int counters_bind_odp(FIXTURE_DATA(counters) *self)
{
	self->odp = ibv_reg_mr(self->s.dev[1].pd, self->fresh, 4 * PAGE,
			       MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	return self->odp ? mkt_bind_range(self->s.key[1], MKT_ACCESS_ALL, self->odp,
					  (uintptr_t)self->fresh, 4 * PAGE) : ENODEV;
}

/* the status of a peer's WRITE of 64 bytes to the key of side 1 */
static int counters_write(FIXTURE_DATA(counters) *self, uint64_t addr)
{
	return mkt_touch(&self->s, self->s.key[1]->rkey, MKT_WRITE, addr, 64);
}

/* a bind that is refused does not count; each unbind counts, also of an unbound key */
TEST_F(counters, binds)
{
	ASSERT_EQ(0, counters_bind(self, 64));
	EXPECT_COUNT("binds", 1);
	ASSERT_EQ(ERANGE, counters_bind(self, 8 * PAGE));
	EXPECT_COUNT("binds", 0);
	ASSERT_EQ(0, ibmkey_unbind(self->s.key[1]));
	EXPECT_COUNT("unbinds", 1);
	ASSERT_EQ(0, ibmkey_unbind(self->s.key[1]));
	EXPECT_COUNT("unbinds", 1);
}

/* an invalidation unbinds, too */
TEST_F(counters, invalidation)
{
	struct mkt_wr wr = { .op = MKT_LOCAL_INV };

	ASSERT_EQ(0, counters_bind(self, 64));
	EXPECT_COUNT("binds", 1);
	wr.rkey = self->s.key[1]->rkey;
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	EXPECT_COUNT("unbinds", 1);
}

/* rxe refuses an unbound key, and tells ib_mkey */
TEST_F(counters, unbound)
{
	struct mkt_end *plain = self->s.plain;
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = { .length = 8, .lkey = self->s.key[0]->lkey },
		.num_sge = 1,
		.remote_addr = plain[1].addr,
		.rkey = plain[1].mr->rkey,
	};

	EXPECT_NE(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	EXPECT_COUNT("refused_unbound", 1);
}

/* the copy of each packet is an access */
TEST_F(counters, packets)
{
	long long before = -1, after = -1;

	ASSERT_EQ(0, counters_bind(self, PAGE));
	ASSERT_EQ(COUNTS, counts_read(&self->before, &before));
	ASSERT_LE(0, before);
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, self->s.key[1]->rkey, MKT_READ, 0, PAGE));
	ASSERT_EQ(COUNTS, counts_read(&self->before, &after));
	EXPECT_EQ(before + PAGE / 1024, after);
}

/* a peer writes by a key that allows it, over an MR that does not any more */
TEST_F(counters, rights)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];

	ASSERT_EQ(0, counters_bind(self, 64));
	EXPECT_COUNT("binds", 1);
	ASSERT_EQ(IBV_WC_SUCCESS, counters_write(self, 0));
	EXPECT_COUNT("", 0);
	ASSERT_EQ(0, mkt_raw_rereg(leaf->mr, IBV_REREG_MR_CHANGE_ACCESS,
				   self->s.dev[1].pd, 0));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, counters_write(self, 0));
	EXPECT_COUNT("refused_rights", 1);
}

/* a fresh page is faulted in once; two pages that one access needs, once each */
TEST_F(counters, faults)
{
	int err = counters_bind_odp(self);

	if (err == ENODEV)
		SKIP(return, "%s has no memory on demand", self->s.dev[1].name);
	ASSERT_EQ(0, err);
	EXPECT_COUNT("binds", 1);
	ASSERT_EQ(IBV_WC_SUCCESS, counters_write(self, 16));
	EXPECT_COUNT("odp_faults", 1);
	ASSERT_EQ(IBV_WC_SUCCESS, counters_write(self, 160));
	EXPECT_COUNT("", 0);
	ASSERT_EQ(IBV_WC_SUCCESS, counters_write(self, 2 * PAGE - 32));
	EXPECT_COUNT("odp_faults", 2);
}

/* the process has unmapped the memory, or may not write it; a fault finds out */
TEST_F(counters, memory)
{
	int err = counters_bind_odp(self);

	if (err == ENODEV)
		SKIP(return, "%s has no memory on demand", self->s.dev[1].name);
	ASSERT_EQ(0, err);
	EXPECT_COUNT("binds", 1);
	ASSERT_EQ(0, munmap(self->fresh, PAGE));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, counters_write(self, 0));
	/* the fault that failed is counted, too */
	self->before.of[COUNTS - 1]++;
	EXPECT_COUNT("refused_memory", 1);
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	ASSERT_EQ(0, mprotect(self->fresh + PAGE, PAGE, PROT_READ));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, counters_write(self, PAGE));
	self->before.of[COUNTS - 1]++;
	EXPECT_COUNT("refused_memory", 1);
	/* not to be unmapped twice */
	munmap(self->fresh + PAGE, 3 * PAGE);
	self->fresh = NULL;
}

TEST_HARNESS_MAIN
