// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Requests that a process writes into its queue itself. rxe shares the memory of the
 * queue with the process, so the library cannot check them.
 */
#include <stdio.h>
#include <string.h>

#include <rdma/rdma_user_rxe.h>

#include "mkey_harness.h"

FIXTURE(forged)
{
	struct mkt_setup s;
};

FIXTURE_SETUP(forged)
{
	struct mkt_wants wants = { .mtu = IBV_MTU_1024, .host = 4096 };

	MKT_OPEN(self->s.dev);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
}

FIXTURE_TEARDOWN(forged)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* enum ib_wr_opcode values for kernel QPs */
#define REG_MR 0x20

/* finds request @wr_id in the queues that this process shares with rxe */
static struct rxe_send_wr *forged_find(uint64_t wr_id)
{
	struct rxe_send_wr *found = NULL;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "re");

	while (maps && !found && fgets(line, sizeof(line), maps)) {
		unsigned long start, end, at;

		if (!strstr(line, "uverbs") ||
		    sscanf(line, "%lx-%lx rw", &start, &end) != 2)
			continue;
		for (at = start; at + sizeof(*found) <= end && !found; at += 8)
			if (((struct rxe_send_wr *)at)->wr_id == wr_id)
				found = (void *)at;
	}
	if (maps)
		fclose(maps);
	return found;
}

/* leaves a request in a queue that does not run yet, and finds it there; NULL on an error */
static struct rxe_send_wr *forged_leave(struct mkt_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_send_wr *bad;

	if (mkt_qp_state(qp, IBV_QPS_RESET) ||
	    ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					 IBV_QP_ACCESS_FLAGS))
		return NULL;
	/* the request is in the queue even if the kernel refuses to process it now */
	ibv_post_send(qp->qp, wr, &bad);
	return forged_find(wr->wr_id);
}

/*
 * Changes the opcode of a request in the queue to @opcode, lets the queue run, and posts another
 * request. @status is that of the changed one.
 */
static void forged_run(struct __test_metadata *_metadata, struct mkt_pair *pair, uint32_t opcode,
		       enum ibv_wc_status *status)
{
	struct mkt_qp *qp = &pair->end[1];
	struct ibv_send_wr *bad, wr = {
		.wr_id = 0x6d6b6579ULL << 32 | opcode,
		.opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = 0x1234567,
	};
	struct rxe_send_wr *request;
	struct mkt_peer peer;
	struct ibv_wc wc;

	request = forged_leave(qp, &wr);
	ASSERT_NE(NULL, request);
	ASSERT_EQ(IBV_WR_LOCAL_INV, request->opcode);
	request->opcode = opcode;
	memset(&request->wr, 0x41, 24);
	mkt_qp_self(&pair->end[0], &peer);
	ASSERT_EQ(0, mkt_qp_connect(qp, &peer, pair->mtu));
	ASSERT_EQ(opcode, request->opcode);
	wr.wr_id++;
	ASSERT_EQ(0, ibv_post_send(qp->qp, &wr, &bad));
	ASSERT_EQ(0, mkt_poll(qp, &wc));
	EXPECT_EQ(wr.wr_id - 1, wc.wr_id);
	*status = wc.status;
	ASSERT_EQ(0, mkt_pair_recover(pair));
}

/*
 * REG_MR names its MR by a kernel pointer. A process could write any address
 * there.
 */
TEST_F(forged, reg_mr)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	forged_run(_metadata, &self->s.pair, REG_MR, &status);
	EXPECT_NE(IBV_WC_SUCCESS, status);
}

/* an opcode is no index into a table of the kernel before it was compared with the table */
TEST_F(forged, opcode)
{
	static const uint32_t opcodes[] = { 0x21, 0x7fffffff, 0xffffffff };
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(opcodes); i++) {
		forged_run(_metadata, &self->s.pair, opcodes[i], &status);
		EXPECT_EQ(IBV_WC_LOC_QP_OP_ERR, status);
	}
}

TEST_HARNESS_MAIN
