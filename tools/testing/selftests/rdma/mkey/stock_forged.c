// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Requests at the limits of the protocol, and of a peer that does not keep to it: the
 * length in the header is not that of the data. rxe answers that such a request is invalid, and
 * copies nothing of it. Requests that a process writes into its queue itself: rxe shares the memory
 * of the queue with the process, so the library cannot check them. It needs no ib_mkey.
 */
#include <string.h>
#include <sys/mman.h>

#include <rdma/rdma_user_rxe.h>

#include "replay.h"
#include "mkey_harness.h"
#include "raw.h"

#define MTU 1024
#define VALUE 0xa5

FIXTURE(forged)
{
	struct mkt_setup s;
	struct mkt_replay replay;
	bool recorded;
	uint64_t addr;		/* of side 1, aligned */
	uint32_t rkey;
	unsigned long tainted;
};

FIXTURE_SETUP(forged)
{
	struct mkt_leaf *leaf;

	MKT_OPEN(self->s.dev);
	if (geteuid())
		SKIP(return, "not root");
	MKT_MAKE(&self->s, .host = 64 * 1024);
	leaf = &self->s.arena[1].leaf[0];
	self->addr = (leaf->addr + 4095) & ~4095ull;
	self->rkey = leaf->mr->rkey;
	self->tainted = mkt_tainted();
	ASSERT_EQ(0, mkt_replay_open(&self->replay, &self->s.dev[0]));
	self->recorded = true;
}

FIXTURE_TEARDOWN(forged)
{
	if (self->recorded)
		mkt_replay_close(&self->replay);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* sends a WRITE of no bytes as usual; the packets that follow are forged */
static int forged_begin(FIXTURE_DATA(forged) *self)
{
	struct mkt_wr nothing = { .op = MKT_WRITE };
	int status = mkt_status(&self->s.pair, 0, &nothing);

	if (status != IBV_WC_SUCCESS)
		return EIO;
	return mkt_replay_find(&self->replay, MKT_BTH_WRITE_ONLY);
}

/* a packet of a request, and the length that its RETH has */
struct forged_packet {
	uint8_t opcode;
	uint32_t length;
	size_t payload;
};

/* @qp_num 0 is the queue pair of side 1 */
static int forged_put(FIXTURE_DATA(forged) *self, const struct forged_packet *forged,
		      unsigned int number, uint32_t qp_num)
{
	struct mkt_packet packet = {
		.opcode = forged->opcode,
		.qp_num = qp_num,
		.psn = mkt_packet_psn(&self->replay) + number,
		.payload = forged->payload,
		.value = VALUE,
	};
	uint8_t opcode = forged->opcode & 0x1f;

	if (opcode > MKT_BTH_SEND_ONLY && opcode != MKT_BTH_WRITE_MIDDLE &&
	    opcode != MKT_BTH_WRITE_LAST) {
		mkt_packet_put(packet.ext, self->addr, 8);
		mkt_packet_put(packet.ext + 8, self->rkey, 4);
		mkt_packet_put(packet.ext + 12, forged->length, 4);
		packet.ext_length = 16;
	}
	return mkt_packet_send(&self->replay, &packet);
}

static int forged_send(FIXTURE_DATA(forged) *self, const struct forged_packet *packet,
		       unsigned int number)
{
	return forged_put(self, packet, number, 0);
}

/* returns the syndrome of the answer to the last packet of a request, or -1 */
static int forged_ask(FIXTURE_DATA(forged) *self, const struct forged_packet *packet,
		      unsigned int num, uint8_t *opcode)
{
	static struct mkt_answer answer;
	unsigned int i;

	for (i = 0; i < num; i++)
		if (forged_send(self, &packet[i], i + 1))
			return -1;
	while (mkt_answer_next(&self->replay, &answer, 2000))
		if (answer.psn == ((mkt_packet_psn(&self->replay) + num) & 0xffffff)) {
			*opcode = answer.opcode;
			return answer.syndrome;
		}
	return -1;
}

#define FORGED_MAX 2

struct forged_case {
	const char *what;
	struct forged_packet packet[FORGED_MAX];
	unsigned int num;
};

static const struct forged_case refused[] = {
	{ "WRITE of 0 bytes with data",
	  { { .opcode = MKT_BTH_WRITE_ONLY, .payload = 64 } }, 1 },
	{ "WRITE of 0 bytes with a byte",
	  { { .opcode = MKT_BTH_WRITE_ONLY, .payload = 1 } }, 1 },
	{ "first packet of a WRITE of 0 bytes",
	  { { .opcode = MKT_BTH_WRITE_FIRST, .payload = MTU } }, 1 },
	{ "WRITE with more data than its length",
	  { { .opcode = MKT_BTH_WRITE_ONLY, .length = 32, .payload = 64 } }, 1 },
	{ "WRITE with less data than its length",
	  { { .opcode = MKT_BTH_WRITE_ONLY, .length = 128, .payload = 64 } }, 1 },
	{ "WRITE of one packet, longer than one",
	  { { .opcode = MKT_BTH_WRITE_ONLY, .length = 2 * MTU, .payload = MTU } }, 1 },
	{ "first packet with all of a WRITE",
	  { { .opcode = MKT_BTH_WRITE_FIRST, .length = MTU, .payload = MTU } }, 1 },
	{ "last packet with more than the rest",
	  { { .opcode = MKT_BTH_WRITE_FIRST, .length = MTU + 8, .payload = MTU },
	    { .opcode = MKT_BTH_WRITE_LAST, .payload = 64 } }, 2 },
	{ "last packet with less than the rest",
	  { { .opcode = MKT_BTH_WRITE_FIRST, .length = MTU + 64, .payload = MTU },
	    { .opcode = MKT_BTH_WRITE_LAST, .payload = 8 } }, 2 },
	{ "last packet before the rest",
	  { { .opcode = MKT_BTH_WRITE_FIRST, .length = 3 * MTU, .payload = MTU },
	    { .opcode = MKT_BTH_WRITE_LAST, .payload = MTU } }, 2 },
	{ "middle packet with all of the rest",
	  { { .opcode = MKT_BTH_WRITE_FIRST, .length = 2 * MTU, .payload = MTU },
	    { .opcode = MKT_BTH_WRITE_MIDDLE, .payload = MTU } }, 2 },
	{ "middle packet after the rest",
	  { { .opcode = MKT_BTH_WRITE_FIRST, .length = MTU + 8, .payload = MTU },
	    { .opcode = MKT_BTH_WRITE_MIDDLE, .payload = MTU } }, 2 },
	{ "ATOMIC_WRITE of 0 bytes",
	  { { .opcode = MKT_BTH_ATOMIC_WRITE, .payload = 8 } }, 1 },
	{ "ATOMIC_WRITE without data",
	  { { .opcode = MKT_BTH_ATOMIC_WRITE, .length = 8 } }, 1 },
	{ "ATOMIC_WRITE with two words",
	  { { .opcode = MKT_BTH_ATOMIC_WRITE, .length = 8, .payload = 16 } }, 1 },
	{ "ATOMIC_WRITE of two words",
	  { { .opcode = MKT_BTH_ATOMIC_WRITE, .length = 16, .payload = 16 } }, 1 },
};

TEST_F(forged, lengths)
{
	const volatile uint8_t *bytes = (void *)(uintptr_t)self->addr;
	unsigned int c, i;
	uint8_t opcode;

	for (c = 0; c < ARRAY_SIZE(refused); c++) {
		const struct forged_case *now = &refused[c];
		/* the first of several packets may be copied */
		const bool unchanged = now->num == 1;

		memset((void *)(uintptr_t)self->addr, 0, 3 * MTU);
		ASSERT_EQ(0, forged_begin(self));
		EXPECT_EQ(MKT_NAK_INVALID_REQUEST, forged_ask(self, now->packet, now->num, &opcode))
			TH_LOG("%s", now->what);
		for (i = 0; unchanged && i < 3 * MTU; i++)
			if (bytes[i])
				break;
		EXPECT_TRUE(!unchanged || i == 3 * MTU)
			TH_LOG("%s: byte %u was written", now->what, i);
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	}
	EXPECT_EQ(self->tainted, mkt_tainted());
}

/* sends a request that is accepted, and answered by a packet with the opcode @answer */
static void forged_accepted(struct __test_metadata *_metadata, FIXTURE_DATA(forged) *self,
			    struct forged_packet packet, uint8_t answer)
{
	uint8_t opcode = 0;
	int syndrome;

	ASSERT_EQ(0, forged_begin(self));
	syndrome = forged_ask(self, &packet, 1, &opcode);
	EXPECT_LE(0, syndrome);
	EXPECT_GT(MKT_NAK, syndrome);
	EXPECT_EQ(answer, opcode);
	/* this ends a READ that has further answers */
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
}

/* requests of no bytes, whose address and rkey mean nothing */
TEST_F(forged, nothing)
{
	struct forged_packet write = { .opcode = MKT_BTH_WRITE_ONLY };
	struct forged_packet read = { .opcode = MKT_BTH_READ_REQUEST };

	self->rkey ^= 0x5500;
	forged_accepted(_metadata, self, write, MKT_BTH_ACKNOWLEDGE);
	forged_accepted(_metadata, self, read, MKT_BTH_READ_RESPONSE_ONLY);
	EXPECT_EQ(self->tainted, mkt_tainted());
}

/* a packet of a UC queue pair, and its PSN from that of the recorded packet */
struct forged_uc {
	struct forged_packet packet;
	unsigned int psn;
};

/* the rest of a message is lost, or has a wrong length; other messages follow */
static const struct forged_uc cut_off[] = {
	{ { .opcode = 0x20 | MKT_BTH_SEND_FIRST, .payload = MTU }, 1 },
	{ { .opcode = 0x20 | MKT_BTH_SEND_MIDDLE, .payload = 8 }, 2 },
	{ { .opcode = 0x20 | MKT_BTH_SEND_MIDDLE, .payload = MTU }, 2 },
	{ { .opcode = 0x20 | MKT_BTH_SEND_FIRST, .payload = MTU }, 5 },
	{ { .opcode = 0x20 | MKT_BTH_SEND_ONLY, .payload = 8 }, 7 },
	{ { .opcode = 0x20 | MKT_BTH_SEND_ONLY, .payload = 8 }, 8 },
	{ { .opcode = 0x20 | MKT_BTH_WRITE_FIRST, .length = 2 * MTU, .payload = MTU }, 9 },
	{ { .opcode = 0x20 | MKT_BTH_WRITE_ONLY, .length = 8, .payload = 8 }, 11 },
	{ { .opcode = 0x20 | MKT_BTH_WRITE_ONLY, .length = 8, .payload = 8 }, 12 },
	{ { .opcode = 0x20 | MKT_BTH_SEND_ONLY, .payload = 16 }, 13 },
};

/* A message of a UC queue pair that is cut off takes at most the next one with it. */
TEST_F(forged, uc_cut_off)
{
	static const unsigned int flags[] = { MKT_QP_UC | MKT_QP_SRQ, MKT_QP_UC };
	const struct mkt_end *to = &self->s.plain[1];
	const struct ibv_sge into = { to->addr, 4 * MTU, to->mr->lkey };
	unsigned int f, i;

	for (f = 0; f < ARRAY_SIZE(flags); f++) {
		struct mkt_pair pair;
		struct ibv_wc wc;

		ASSERT_EQ(0, mkt_pair_create(&pair, &self->s.dev[0], &self->s.dev[1],
					     IBV_MTU_1024, flags[f]));
		for (i = 0; i < ARRAY_SIZE(cut_off); i++)
			ASSERT_EQ(0, mkt_post_recv(&pair.end[1], &into, 1, i));
		ASSERT_EQ(0, forged_begin(self));
		for (i = 0; i < ARRAY_SIZE(cut_off); i++)
			ASSERT_EQ(0, forged_put(self, &cut_off[i].packet, cut_off[i].psn,
						pair.end[1].qp->qp_num));
		do {
			ASSERT_EQ(0, mkt_poll(&pair.end[1], &wc));
			if (wc.status != IBV_WC_SUCCESS)
				EXPECT_EQ(IBV_WC_REM_INV_REQ_ERR, wc.status);
		} while (wc.status != IBV_WC_SUCCESS || wc.byte_len != 16);
		mkt_pair_destroy(&pair);
	}
	EXPECT_EQ(self->tainted, mkt_tainted());
}

/* the longest message; its bytes are the zeros of memory that was never written */
TEST_F(forged, read_most)
{
	const uint32_t length = 1u << 31;
	struct forged_packet packet = { .opcode = MKT_BTH_READ_REQUEST, .length = length };
	struct ibv_mr *mr;
	void *memory;

	MKT_ON_DEMAND(&self->s.dev[1]);
	memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ASSERT_NE(MAP_FAILED, memory);
	mr = ibv_reg_mr(self->s.dev[1].pd, memory, length,
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
	ASSERT_NE(NULL, mr);
	self->addr = (uintptr_t)memory;
	self->rkey = mr->rkey;
	forged_accepted(_metadata, self, packet, MKT_BTH_READ_RESPONSE_FIRST);
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	munmap(memory, length);
}

/* connects side 1 again as a QP that serves no READ, no atomic and no FLUSH */
static int forged_without_resources(FIXTURE_DATA(forged) *self)
{
	struct mkt_qp *qp = &self->s.pair.end[1];
	struct ibv_qp_attr attr = {};
	struct ibv_qp_init_attr init;
	int err;

	err = ibv_query_qp(qp->qp, &attr, IBV_QP_AV | IBV_QP_ACCESS_FLAGS, &init);
	err = err ?: mkt_qp_state(qp, IBV_QPS_RESET);
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	err = err ?: ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						  IBV_QP_ACCESS_FLAGS);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = self->s.pair.mtu;
	attr.dest_qp_num = qp->peer.qp_num;
	attr.rq_psn = qp->peer.psn;
	attr.max_dest_rd_atomic = 0;
	attr.min_rnr_timer = 12;
	err = err ?: ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						  IBV_QP_MAX_DEST_RD_ATOMIC |
						  IBV_QP_MIN_RNR_TIMER);
	return err;
}

TEST_F(forged, no_resources)
{
	static const enum mkt_op ops[] = { MKT_READ, MKT_FETCH_ADD, MKT_ATOMIC_WRITE, MKT_FLUSH };
	struct mkt_wr wr = mkt_plain_wr(&self->s, 0, MKT_READ, 8, self->addr, 0);
	struct ibv_mr *mr;
	unsigned int o;

	mr = ibv_reg_mr(self->s.dev[1].pd, (void *)(uintptr_t)self->addr, 4096,
			MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL);
	ASSERT_NE(NULL, mr);
	wr.rkey = mr->rkey;
	wr.flush_length = 8;
	for (o = 0; o < ARRAY_SIZE(ops); o++) {
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
		ASSERT_EQ(0, forged_without_resources(self));
		wr.op = ops[o];
		EXPECT_EQ(IBV_WC_REM_INV_REQ_ERR, mkt_status(&self->s.pair, 0, &wr))
			TH_LOG("%s", mkt_op_name(ops[o]));
	}
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	ASSERT_EQ(0, ibv_dereg_mr(mr));
}

/*
 * Answers that are none to the READ of side 1. It fails, although none of its bytes has come, and
 * rxe does not warn.
 */
TEST_F(forged, answers)
{
	static const struct mkt_packet answers[] = {
		{ .opcode = MKT_BTH_READ_RESPONSE_MIDDLE, .payload = 64 },
		{ .opcode = MKT_BTH_READ_RESPONSE_ONLY, .payload = 64, .ext_length = 4,
		  .ext = { MKT_NAK } },
		{ .opcode = MKT_BTH_ATOMIC_ACKNOWLEDGE, .ext_length = 12 },
		{ .opcode = MKT_BTH_ACKNOWLEDGE, .ext_length = 4, .ext = { 0x40 } },
	};
	struct mkt_qp *end = self->s.pair.end;
	struct mkt_wr read = mkt_plain_wr(&self->s, 1, MKT_READ, 64, self->s.plain[0].addr,
					  self->s.plain[0].mr->rkey);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(answers); i++) {
		struct mkt_packet answer = answers[i];
		struct ibv_wc wc;

		ASSERT_EQ(0, forged_begin(self));
		/* the peer does not answer */
		ASSERT_EQ(0, mkt_qp_state(&end[0], IBV_QPS_RESET));
		answer.psn = end[1].psn;
		ASSERT_EQ(0, mkt_post_send(&end[1], &read, 0));
		ASSERT_EQ(0, mkt_packet_send(&self->replay, &answer));
		ASSERT_EQ(0, mkt_poll(&end[1], &wc));
		EXPECT_EQ(IBV_WC_BAD_RESP_ERR, wc.status)
			TH_LOG("opcode 0x%x", answer.opcode);
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	}
	EXPECT_EQ(self->tainted, mkt_tainted());
}

/*
 * A WRITE that arrives again is acked with the PSN of the last request that was executed. Such an
 * ack does not complete a READ or an atomic operation, whose data it does not have.
 */
TEST_F(forged, ack_without_data)
{
	static const enum mkt_op ops[] = { MKT_READ, MKT_FETCH_ADD };
	struct mkt_qp *end = self->s.pair.end;
	uint64_t *got = (void *)(uintptr_t)self->s.plain[1].addr, expected;
	unsigned int o;

	memset(&expected, VALUE, sizeof(expected));
	for (o = 0; o < ARRAY_SIZE(ops); o++) {
		struct mkt_wr wr = mkt_plain_wr(&self->s, 1, ops[o], 8, self->addr, self->rkey);
		struct mkt_packet ack = { .opcode = MKT_BTH_ACKNOWLEDGE, .ext_length = 4 };
		struct mkt_packet data = { .opcode = MKT_BTH_READ_RESPONSE_ONLY, .ext_length = 4,
					   .payload = 8, .value = VALUE };
		struct ibv_wc wc;

		if (ops[o] == MKT_FETCH_ADD) {
			data = (struct mkt_packet){ .opcode = MKT_BTH_ATOMIC_ACKNOWLEDGE,
						    .ext_length = 12 };
			memset(data.ext + 4, VALUE, 8);
		}
		*got = 0;
		ASSERT_EQ(0, forged_begin(self));
		/* the peer does not answer */
		ASSERT_EQ(0, mkt_qp_state(&end[0], IBV_QPS_RESET));
		ack.psn = end[1].psn;
		data.psn = end[1].psn;
		ASSERT_EQ(0, mkt_post_send(&end[1], &wr, 0));
		ASSERT_EQ(0, mkt_packet_send(&self->replay, &ack));
		ASSERT_EQ(0, mkt_packet_send(&self->replay, &data));
		ASSERT_EQ(0, mkt_poll(&end[1], &wc));
		EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(expected, *got)
			TH_LOG("%s has not got its data", mkt_op_name(ops[o]));
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	}
}

/* enum ib_wr_opcode values for kernel QPs */
#define REG_MR 0x20

/* finds request @wr_id in the queues that this process shares with rxe */
static struct rxe_send_wr *forged_find(uint64_t wr_id)
{
	unsigned long start, end = 0, at;

	while (mkt_next_ring(&start, &end))
		for (at = start; at + sizeof(struct rxe_send_wr) <= end; at += 8)
			if (((struct rxe_send_wr *)at)->wr_id == wr_id)
				return (void *)at;
	return NULL;
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
