// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A user whose accesses wait for pages leaves workers of rxe to other users. It needs
 * no ib_mkey. The pages are those of a file that this process serves. An access of a child to an
 * MR on demand waits for one of them. rxe has 2048 workers for the tasks of queue pairs, and
 * 2048 for page faults; a node of the machine has its part.
 * needs: on-demand
 */
#include <grp.h>

#include "waits.h"

#define PAGES 2048
#define USER 12345
/* half of the workers, an eighth, and some more */
#define WAITS (1024 + 64)
#define FAULTS (256 + 64)

struct limits_child {
	struct mkt_dev dev[2];
	struct mkt_qp qp;	/* of datagrams, connected to itself */
	struct ibv_cq *cq;	/* of many */
	struct ibv_qp *many[WAITS];
	struct ibv_mr *mr;	/* of all pages, on demand */
};

/* becomes another user, who registers the memory */
static int limits_open(struct limits_child *c, struct mkt_slow *slow)
{
	struct mkt_peer self;

	if (setgroups(0, NULL) || setgid(USER) || setuid(USER))
		return 1;
	if (mkt_dev_try_open(&c->dev[0], 0) || mkt_dev_try_open(&c->dev[1], 1) ||
	    mkt_qp_create(&c->qp, &c->dev[1], MKT_QP_UD))
		return 2;
	mkt_qp_self(&c->qp, &self);
	if (mkt_qp_connect(&c->qp, &self, IBV_MTU_1024))
		return 3;
	c->mr = ibv_reg_mr(c->dev[1].pd, slow->map, PAGES * PAGE,
			   MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	return c->mr ? 0 : 4;
}

/* one more queue pair of datagrams, which can send */
static struct ibv_qp *limits_qp(struct limits_child *c)
{
	struct ibv_qp_init_attr init = {
		.send_cq = c->cq,
		.recv_cq = c->cq,
		.qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = MKT_QKEY };
	struct ibv_qp *qp = ibv_create_qp(c->dev[1].pd, &init);

	if (!qp || ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					    IBV_QP_QKEY))
		return NULL;
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		return NULL;
	attr.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) ? NULL : qp;
}

/* sends bytes of a page */
static int limits_send(struct limits_child *c, struct ibv_qp *qp, struct mkt_slow *slow,
		       unsigned int page)
{
	struct ibv_sge sge = { (uintptr_t)slow->map + (uint64_t)page * PAGE, 8, c->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { c->qp.ah, c->qp.qp->qp_num, MKT_QKEY },
	};

	return ibv_post_send(qp, &wr, &bad);
}

/* the status of the next completion, or -1 if none comes within so many milliseconds */
static int limits_poll(struct ibv_cq *cq, unsigned int ms)
{
	double end = mkt_seconds() + ms / 1000.0;
	struct ibv_wc wc;

	do {
		if (ibv_poll_cq(cq, 1, &wc) == 1)
			return wc.status;
		usleep(200);
		mkt_alive();
	} while (mkt_seconds() < end);
	return -1;
}

/* Begins waits of many queue pairs. Returns 0 if some of them fail at once, and the rest later. */
static int limits_wait(struct limits_child *c, struct mkt_slow *slow, struct waits_shared *shared)
{
	unsigned int i, failed = 0, done;

	c->cq = ibv_create_cq(c->dev[1].ctx, WAITS, NULL, NULL, 0);
	if (!c->cq)
		return 4;
	for (i = 0; i < WAITS; i++) {
		c->many[i] = limits_qp(c);
		if (!c->many[i])
			return 5;
		mkt_alive();
	}
	/* From here on, nothing may change the address space: the faults have its lock. */
	for (i = 0; i < WAITS; i++)
		if (limits_send(c, c->many[i], slow, 0))
			return 6;
	while (failed < 64 && limits_poll(c->cq, PATIENCE_SECONDS * 1000) > IBV_WC_SUCCESS)
		failed++;
	/* an access that fails counts for a moment, so a few more may fail */
	while (failed < WAITS / 4 && limits_poll(c->cq, 1000) > IBV_WC_SUCCESS)
		failed++;
	atomic_store(&shared->begun, true);
	if (failed < 64 || failed == WAITS / 4)
		return 7;
	waits_for(&shared->go, PATIENCE_SECONDS);
	for (done = failed; done < WAITS; done++)
		if (limits_poll(c->cq, PATIENCE_SECONDS * 1000) != IBV_WC_SUCCESS)
			return 8;
	return 0;
}

/* resets the queue pair of datagrams, which ends what it waits for, and connects it again */
static int limits_anew(struct limits_child *c)
{
	struct mkt_peer self;

	mkt_qp_self(&c->qp, &self);
	return mkt_qp_state(&c->qp, IBV_QPS_RESET) ?: mkt_qp_connect(&c->qp, &self, IBV_MTU_1024);
}

/*
 * Begins faults of many pages and ends the wait for each by a reset of the queue pair. Returns 0 if
 * an access fails at once after so many, and if one works when the pages are there.
 */
static int limits_leave(struct limits_child *c, struct mkt_slow *slow, struct waits_shared *shared)
{
	unsigned int i;
	int status = -1;

	for (i = 0; i < FAULTS && status < 0; i++) {
		if (limits_send(c, c->qp.qp, slow, i))
			return 4;
		status = limits_poll(c->qp.cq, 20);
		if (limits_anew(c))
			return 5;
	}
	atomic_store(&shared->begun, true);
	if (i <= FAULTS / 2 || status <= IBV_WC_SUCCESS)
		return 6;
	waits_for(&shared->go, PATIENCE_SECONDS);
	/* the faults continue until all pages are there */
	do {
		if (limits_send(c, c->qp.qp, slow, PAGES - 1))
			return 7;
		status = limits_poll(c->qp.cq, PATIENCE_SECONDS * 1000);
		if (limits_anew(c))
			return 8;
	} while (status != IBV_WC_SUCCESS && i-- > 0);
	return status;
}

FIXTURE(limits)
{
	struct mkt_setup s;
	struct mkt_slow slow;
	struct waits_shared *shared;
	bool open;
	pid_t pid;
};

FIXTURE_VARIANT(limits)
{
	/* what the child does */
	int (*run)(struct limits_child *c, struct mkt_slow *slow, struct waits_shared *shared);
};

FIXTURE_VARIANT_ADD(limits, waits) { .run = limits_wait };
FIXTURE_VARIANT_ADD(limits, faults_that_nobody_waits_for) { .run = limits_leave };

FIXTURE_SETUP(limits)
{
	MKT_OPEN(self->s.dev);
	if (geteuid())
		SKIP(return, "not root");
	SLOW_TRY(mkt_slow_try(&self->slow, self->s.dev, PAGES * PAGE));
	self->open = true;
	MKT_MAKE(&self->s, .host = 64 * 1024);
	mkt_slow_hold(&self->slow, true);
	self->shared = waits_share();
	ASSERT_NE(MAP_FAILED, (void *)self->shared);
}

FIXTURE_TEARDOWN(limits)
{
	if (self->pid > 0)
		EXPECT_TRUE(waits_kill(self->pid));
	if (self->open)
		mkt_slow_close(&self->slow);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

static pid_t limits_fork(FIXTURE_DATA(limits) *self,
			 int (*run)(struct limits_child *, struct mkt_slow *,
				    struct waits_shared *))
{
	static struct limits_child c;
	pid_t pid = fork();
	int err;

	if (pid)
		return pid;
	err = limits_open(&c, &self->slow);
	if (!err)
		err = run(&c, &self->slow, self->shared);
	atomic_store(&self->shared->result, err);
	atomic_store(&self->shared->begun, true);
	atomic_store(&self->shared->done, true);
	pause();
	_exit(0);
}

/* accesses of this user to memory on demand, by a request of side 1 and by one of side 0 */
static int limits_other(FIXTURE_DATA(limits) *self)
{
	const struct mkt_end *to = &self->s.plain[0];
	struct mkt_wr wr = mkt_plain_wr(&self->s, 1, MKT_WRITE, 8, to->addr, to->mr->rkey);
	uint8_t *memory;
	struct ibv_mr *mr;
	int status;

	memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mr = ibv_reg_mr(self->s.dev[1].pd, memory, 2 * PAGE,
			MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	if (!mr)
		return -1;
	wr.sge[0] = (struct ibv_sge){ (uintptr_t)memory, 8, mr->lkey };
	status = mkt_status(&self->s.pair, 1, &wr) ?:
		 mkt_touch(&self->s, mr->rkey, MKT_WRITE, (uintptr_t)memory + PAGE, 8);
	ibv_dereg_mr(mr);
	munmap(memory, 2 * PAGE);
	return status;
}

/* The child reaches the limit, and this user does not notice. */
TEST_F(limits, leave_workers)
{
	self->pid = limits_fork(self, variant->run);
	ASSERT_LE(0, self->pid);
	EXPECT_TRUE(waits_for(&self->shared->begun, MKT_STALL_SECONDS));
	EXPECT_EQ(0, limits_other(self));
	mkt_slow_hold(&self->slow, false);
	atomic_store(&self->shared->go, true);
	EXPECT_TRUE(waits_for(&self->shared->done, MKT_STALL_SECONDS));
	EXPECT_EQ(0, atomic_load(&self->shared->result));
}

TEST_HARNESS_MAIN
