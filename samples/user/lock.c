// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Two peers update a record under a lock; the lock and the record are in device memory. The
 * numbers of the record are every second word, which one key makes contiguous.
 *
 * usage: lock [DEVICE]
 */
#include <err.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "rc.h"

#define ROUNDS 20
#define NUMBERS 7
#define FREE 0

/* The contents of device memory. */
struct shared {
	uint64_t lock;			/* number of the peer that has the lock */
	uint64_t unused;
	struct {
		uint64_t number, unused;
	} record[NUMBERS];
};

/* Ordinary memory of the peer that updates: the source and the target of its requests. */
static struct {
	uint64_t old, numbers[NUMBERS];
} mine;

/* Runs one request and waits for it. */
static void run(struct rc_conn *conn, struct ibv_send_wr wr, void *local, uint32_t length,
		uint32_t lkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)local, .length = length, .lkey = lkey };

	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_SIGNALED;
	rc_post(conn, &wr);
	rc_wait(conn);
}

/* Stores @to in the lock if the lock is @from. Returns the old value. */
static uint64_t swap(struct rc_conn *conn, struct ibv_mr *shared, struct ibv_mr *own,
		     uint64_t from, uint64_t to)
{
	run(conn, (struct ibv_send_wr){
		.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
		.wr.atomic = {
			.remote_addr = offsetof(struct shared, lock),
			.rkey = shared->rkey,
			.compare_add = from,
			.swap = to,
		},
	    }, &mine.old, sizeof(mine.old), own->lkey);
	return mine.old;
}

/* Updates the record under the lock, as the peer with this number. */
static void update(struct rc_conn *conn, struct ibv_mr *shared, struct ibv_mr *record,
		   struct ibv_mr *own, uint64_t peer)
{
	struct ibv_send_wr wr = { .wr.rdma = { .remote_addr = 0, .rkey = record->rkey } };

	while (swap(conn, shared, own, FREE, peer) != FREE)
		;
	if (swap(conn, shared, own, FREE, peer + 1) != peer)
		errx(1, "a second peer got the lock");
	wr.opcode = IBV_WR_RDMA_READ;
	run(conn, wr, mine.numbers, sizeof(mine.numbers), own->lkey);
	for (int i = 0; i < NUMBERS; i++)
		mine.numbers[i] += i + 1;
	wr.opcode = IBV_WR_RDMA_WRITE;
	run(conn, wr, mine.numbers, sizeof(mine.numbers), own->lkey);
	if (swap(conn, shared, own, peer, FREE) != peer)
		errx(1, "the lock was lost");
}

int main(int argc, char **argv)
{
	const unsigned int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_alloc_dm_attr attr = { .length = sizeof(struct shared) };
	struct ibv_mr *shared, *record, *own;
	struct shared all = { .lock = FREE };
	struct rc_conn pair[2];
	struct rc_dev dev;
	struct ibv_dm *dm;
	int ret;

	rc_open(&dev, argc > 1 ? argv[1] : NULL);
	rc_create_loop(pair, &dev);
	ret = ibmkey_enable(dev.ctx);		/* makes ibv_alloc_dm() work */
	if (ret)
		die(ret, "ibmkey_enable");
	dm = ibv_alloc_dm(dev.ctx, &attr);
	if (!dm)
		err(1, "ibv_alloc_dm");
	ret = ibv_memcpy_to_dm(dm, 0, &all, sizeof(all));
	if (ret)
		die(ret, "ibv_memcpy_to_dm");
	shared = ibv_reg_dm_mr(dev.pd, dm, 0, sizeof(all), access | IBV_ACCESS_ZERO_BASED);
	own = rc_reg(&dev, &mine, sizeof(mine), IBV_ACCESS_LOCAL_WRITE);
	record = ibmkey_alloc(dev.pd, 1);
	if (!shared || !record)
		err(1, "ibv_reg_dm_mr or ibmkey_alloc");
	struct ibmkey_block number = {
		.addr = offsetof(struct shared, record),
		.bytes_count = sizeof(uint64_t),
		.lkey = shared->lkey,
		.stride = { sizeof(all.record[0]) },
	};
	ret = ibmkey_bind_interleaved(record, access, 1, &(uint64_t){ NUMBERS }, 1, &number);
	if (ret)
		die(ret, "ibmkey_bind_interleaved: %s", ibmkey_last_error());

	for (int i = 0; i < ROUNDS; i++)
		update(&pair[i % 2], shared, record, own, 1 + i % 2);

	ret = ibv_memcpy_from_dm(&all, dm, 0, sizeof(all));
	if (ret)
		die(ret, "ibv_memcpy_from_dm");
	for (int i = 0; i < NUMBERS; i++)
		if (all.record[i].number != ROUNDS * (i + 1ull) || all.record[i].unused || all.lock)
			errx(1, "number %d is %llu", i, (unsigned long long)all.record[i].number);
	printf("%d updates of %d numbers under a lock in device memory\n", ROUNDS, NUMBERS);

	rc_dereg(record);			/* the key, its leaf, the memory */
	rc_dereg(shared);
	rc_dereg(own);
	ret = ibv_free_dm(dm);
	if (ret)
		die(ret, "ibv_free_dm");
	rc_destroy_loop(pair);
	rc_close(&dev);
	return 0;
}
