// SPDX-License-Identifier: GPL-2.0
/*
 * Binds a key by work requests. One chain of requests binds the key to the parts of a
 * message, sends the message and unbinds the key.
 */

#include <linux/delay.h>
#include <rdma/ib_mkey.h>

#include "mkey_ulp.h"
#include "mkey_ulp_expect.h"

#define PARTS 3
#define PART 40
#define LENGTH (PARTS * PART)

/* Binds, uses and unbinds @key in one chain. No function here sleeps. */
static int post_message(struct ulp_side *side, struct ib_mr *key, const struct ib_sge *parts,
			u64 remote_addr, u32 rkey)
{
	struct ib_sge whole = { .addr = 0, .length = LENGTH };
	struct ib_send_wr unbind = { .opcode = IB_WR_LOCAL_INV };
	struct ib_rdma_wr write = {
		.wr = { .opcode = IB_WR_RDMA_WRITE, .sg_list = &whole, .num_sge = 1 },
		.remote_addr = remote_addr,
		.rkey = rkey,
	};
	struct ib_reg_wr bind = {
		.wr = { .opcode = IB_WR_REG_MR },
		.mr = key,
		.access = IB_ACCESS_LOCAL_WRITE,
	};
	int ret;

	/* Use another rkey for each message: the rkey of an earlier message is then invalid. */
	ib_update_fast_reg_key(key, ib_inc_rkey(key->rkey));
	ret = ib_map_mkey_list(key, parts, PARTS);
	if (ret)
		return ret;
	bind.key = key->rkey;
	whole.lkey = key->lkey;
	unbind.ex.invalidate_rkey = key->rkey;
	bind.wr.next = &write.wr;
	write.wr.next = &unbind;

	return ib_post_send(side->qp, &bind.wr, NULL);
}

/* Reads the completion of one request. */
static int completion(struct ulp_side *side)
{
	struct ib_wc wc;

	while (!ib_poll_cq(side->cq, 1, &wc))
		usleep_range(50, 100);

	return wc.status;
}

/**
 * ulp_request() - send messages whose parts a key describes
 * @here: the side that posts the requests
 * @from: its memory, 4096 bytes
 * @from_addr: the DMA address of that memory
 * @to: the peer's memory, 4096 bytes
 * @remote_addr: the address of that memory for the peer
 * @rkey: the rkey of that memory
 *
 * Return: 0, a negative errno, or the status of a request that failed.
 */
int ulp_request(struct ulp_side *here, u8 *from, u64 from_addr, u8 *to, u64 remote_addr, u32 rkey)
{
	struct ib_sge parts[PARTS];
	int message, i, ret = 0;
	struct ib_mr *key;

	key = ib_alloc_mkey(here->pd, PARTS);
	if (IS_ERR(key))
		return PTR_ERR(key);
	for (message = 0; message < 10 && !ret; message++) {
		for (i = 0; i < 4096; i++) {
			from[i] = message + i * 7;
			to[i] = 0;
		}
		for (i = 0; i < PARTS; i++)
			parts[i] = (struct ib_sge){
				.addr = from_addr + message * 300 + i * 50,
				.length = PART,
				.lkey = here->pd->local_dma_lkey,
			};
		ret = post_message(here, key, parts, remote_addr, rkey);
		for (i = 0; i < 3 && !ret; i++)
			ret = completion(here);
		for (i = 0; i < 4096 && !ret; i++) {
			u8 want = i < LENGTH ? from[message * 300 + i / PART * 50 + i % PART] : 0;

			if (to[i] != want) {
				pr_err("mkey_ulp: byte %d of message %d is wrong\n", i, message);
				ret = -EIO;
			}
		}
	}
	/* The last request has unbound the key. */
	ib_dereg_mr(key);

	return ret;
}
