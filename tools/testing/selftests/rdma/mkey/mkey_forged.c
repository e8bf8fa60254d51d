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

/* leaves @wr in a queue that does not run yet, and finds it there; NULL on an error */
static struct rxe_send_wr *forged_leave(struct mkt_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_send_wr *bad;

	if (ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE))
		return NULL;
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 };
	if (ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					 IBV_QP_ACCESS_FLAGS))
		return NULL;
	/* the request is in the queue even if the kernel refuses to process it now */
	ibv_post_send(qp->qp, wr, &bad);
	return forged_find(wr->wr_id);
}

/*
 * REG_MR names its MR by a kernel pointer. A process could write any address
 * there.
 */
TEST_F(forged, reg_mr)
{
	struct mkt_qp *qp = &self->s.pair.end[1];
	struct ibv_send_wr *bad, wr = {
		.wr_id = 0x6d6b65795f726567ULL,
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
	request->opcode = REG_MR;
	memset(&request->wr, 0x41, 24);
	mkt_qp_self(&self->s.pair.end[0], &peer);
	ASSERT_EQ(0, mkt_qp_connect(qp, &peer, self->s.pair.mtu));
	ASSERT_EQ(REG_MR, request->opcode);
	wr.wr_id++;
	ASSERT_EQ(0, ibv_post_send(qp->qp, &wr, &bad));
	ASSERT_EQ(0, mkt_poll(qp, &wc));
	EXPECT_NE(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(wr.wr_id - 1, wc.wr_id);
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
}

/* an opcode is no index into a table of the kernel before it was compared with the table */
TEST_F(forged, opcode)
{
	static const uint32_t opcodes[] = { 0x21, 0x7fffffff, 0xffffffff };
	struct mkt_qp *qp = &self->s.pair.end[1];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(opcodes); i++) {
		struct ibv_send_wr *bad, wr = {
			.wr_id = 0x6d6b65795f6f7063ULL + i,
			.opcode = IBV_WR_LOCAL_INV,
			.send_flags = IBV_SEND_SIGNALED,
			.invalidate_rkey = 0x1234567,
		};
		struct rxe_send_wr *request;
		struct mkt_peer peer;
		struct ibv_wc wc;

		request = forged_leave(qp, &wr);
		ASSERT_NE(NULL, request);
		request->opcode = opcodes[i];
		mkt_qp_self(&self->s.pair.end[0], &peer);
		ASSERT_EQ(0, mkt_qp_connect(qp, &peer, self->s.pair.mtu));
		wr.wr_id = 0;
		ASSERT_EQ(0, ibv_post_send(qp->qp, &wr, &bad));
		ASSERT_EQ(0, mkt_poll(qp, &wc));
		EXPECT_EQ(IBV_WC_LOC_QP_OP_ERR, wc.status);
		EXPECT_EQ(0x6d6b65795f6f7063ULL + i, wc.wr_id);
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	}
}

TEST_HARNESS_MAIN
