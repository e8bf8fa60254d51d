// SPDX-License-Identifier: GPL-2.0
/*
 * Not a test: opens a device and holds device memory, a key, a key of 24 bytes
 * over it, an indexed key of 120 bytes and a queue pair until it is killed. The key of 24
 * bytes has refused an access. Prints "ready" when it has them.
 *
 * usage: mkey_hold [0|1 [NAME]]
 *        mkey_hold pmem
 *
 * The number is that of the device. NAME is the name that the process takes. "pmem" holds
 * persistent device memory of the first device instead; prints the errno's name if the allocation
 * fails.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "mkey_test.h"

static int __attribute__((noreturn)) hold(const char *said)
{
	puts(said);
	fflush(stdout);
	for (;;)
		pause();
}

static int hold_pmem(void)
{
	struct mkt_dev dev;

	if (mkt_dev_open(&dev, 0))
		return 1;
	if (mkt_dm_alloc(&dev, 8192, 0, IBMKEY_DM_PMEM))
		hold("ready");
	puts(strerrorname_np(errno));
	return 0;
}

/* reads 32 bytes at an address that is not in @key */
static int be_refused(struct mkt_qp *qp, const struct ibv_mr *key)
{
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = { .addr = 0x10000, .length = 32, .lkey = key->lkey },
		.num_sge = 1,
	};
	struct mkt_peer self;
	struct ibv_wc wc;

	mkt_qp_self(qp, &self);
	return mkt_qp_connect(qp, &self, IBV_MTU_1024) ?: mkt_post_send(qp, &wr, 0) ?:
	       mkt_poll(qp, &wc);
}

int main(int argc, char **argv)
{
	struct mkt_block block = { .bytes = 8, .stride = { 16 } };
	struct mkt_layout layout = mkt_layout_repeated(&block, 100);
	struct mkt_arena arena;
	struct mkt_dev dev;
	struct ibmkey_range range[2] = {
		{ .addr = 0, .length = 16 }, { .addr = 100, .length = 8 },
	};
	static uint8_t table[4096];
	static uint32_t rows[] = { 5, 2, 9 };
	struct ibmkey_indexed indexed = {
		.addr = (uintptr_t)table,
		.unit = 64,
		.bytes_count = 40,
		.indices = (uintptr_t)rows,
		.index_bytes = 4,
		.num_indices = 3,
	};
	struct ibmkey_bind bind = {
		.kind = IBMKEY_LIST, .access = MKT_ACCESS_ALL, .num_entries = 2,
	};
	struct ibv_mr *key, *outer, *mr, *by_index;
	struct mkt_qp qp;

	if (argc > 1 && !strcmp(argv[1], "pmem"))
		return hold_pmem();
	if (argc > 2 && prctl(PR_SET_NAME, argv[2]))
		return 1;
	if (mkt_dev_open(&dev, argc > 1 ? atoi(argv[1]) : 0) ||
	    mkt_arena_standard(&arena, &dev, 65536, 65536) ||
	    mkt_qp_create(&qp, &dev, 0))
		return 1;
	key = ibmkey_alloc(dev.pd, 1);
	if (!key || mkt_layout_bind(key, &arena, &layout, MKT_ACCESS_ALL))
		return 1;
	outer = ibmkey_alloc(dev.pd, 3);
	range[0].lkey = key->lkey;
	range[1].lkey = key->lkey;
	bind.mkey = outer;
	bind.ranges = range;
	if (!outer || ibmkey_bind_at(&bind, 0x50000) || be_refused(&qp, outer))
		return 1;
	mr = ibv_reg_mr(dev.pd, table, sizeof(table), MKT_ACCESS_ALL);
	by_index = ibmkey_alloc(dev.pd, 3);
	if (!mr || !by_index)
		return 1;
	indexed.lkey = mr->lkey;
	if (ibmkey_bind_indexed(by_index, MKT_ACCESS_ALL, &indexed))
		return 1;
	hold("ready");
}
