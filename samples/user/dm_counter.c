// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counts in device memory. The standard verbs allocate it, set it, register it
 * and add to it. Only ibmkey_enable() belongs to ib_mkey; a program with
 * LD_PRELOAD=libibmkey-preload.so does not need it.
 *
 * usage: dm_counter [DEVICE]
 */
#include <err.h>
#include <stdio.h>

#include <infiniband/mkey.h>

#include "rc.h"

#define ADDITIONS 100
#define STEP 3

/*
 * Adds STEP to the counter at @offset of device memory. Returns the old value.
 */
static uint64_t add(struct rc_conn *conn, uint64_t offset, uint32_t rkey,
		    uint64_t *old, uint32_t lkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)old,
		.length = sizeof(*old),
		.lkey = lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {
			.remote_addr = offset,
			.rkey = rkey,
			.compare_add = STEP,
		},
	};

	rc_post(conn, &wr);
	rc_wait(conn);
	return *old;
}

int main(int argc, char **argv)
{
	struct ibv_alloc_dm_attr attr = { .length = 4096, .log_align_req = 3 };
	const uint64_t first = 1000, offset = 128;
	struct ibv_mr *counter_mr, *old_mr;
	struct rc_conn pair[2];
	struct rc_dev dev;
	struct ibv_dm *dm;
	uint64_t old, last;
	int ret;

	rc_open(&dev, argc > 1 ? argv[1] : NULL);
	ret = ibmkey_enable(dev.ctx);
	if (ret)
		die(ret, "ibmkey_enable");
	rc_create_loop(pair, &dev);

	dm = ibv_alloc_dm(dev.ctx, &attr);
	if (!dm)
		err(1, "ibv_alloc_dm");
	ret = ibv_memcpy_to_dm(dm, offset, &first, sizeof(first));
	if (ret)
		die(ret, "ibv_memcpy_to_dm");
	/* Device memory has no address, so its MRs are zero-based. */
	counter_mr = ibv_reg_dm_mr(dev.pd, dm, 0, attr.length,
				   IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE |
				   IBV_ACCESS_REMOTE_ATOMIC);
	if (!counter_mr)
		err(1, "ibv_reg_dm_mr");
	old_mr = rc_reg(&dev, &old, sizeof(old), IBV_ACCESS_LOCAL_WRITE);

	for (int i = 0; i < ADDITIONS; i++)
		if (add(&pair[0], offset, counter_mr->rkey, &old,
			old_mr->lkey) != first + STEP * i)
			errx(1, "addition %d found %llu", i, (unsigned long long)old);

	ret = ibv_memcpy_from_dm(&last, dm, offset, sizeof(last));
	if (ret)
		die(ret, "ibv_memcpy_from_dm");
	if (last != first + STEP * ADDITIONS)
		errx(1, "the counter is %llu", (unsigned long long)last);

	/*
	 * Deregister the MR first: device memory cannot be freed while it is registered.
	 */
	rc_dereg(counter_mr);
	rc_dereg(old_mr);
	ret = ibv_free_dm(dm);
	if (ret)
		die(ret, "ibv_free_dm");
	rc_destroy_loop(pair);
	rc_close(&dev);
	printf("%d additions of %d in device memory: %llu\n", ADDITIONS, STEP,
	       (unsigned long long)last);
	return 0;
}
