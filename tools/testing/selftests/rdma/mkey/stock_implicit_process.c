// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A process that has an implicit MR exits, is killed or executes another program under
 * traffic, or its memory goes while another process keeps the device open. It needs no ib_mkey.
 * needs: on-demand
 * sets: smp
 */
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "odp.h"

#define PAGES 512
/* the requests of the parent before the process ends */
#define BEFORE 20

enum process_end { BY_EXIT, BY_EXEC, BY_KILL, MEMORY_ONLY };

/* what the process tells its parent */
struct process_info {
	struct mkt_peer peer;
	uint32_t rkey;
	uint64_t addr;
};

FIXTURE(process)
{
	struct mkt_dev dev[2];
	struct mkt_arena arena;		/* on device 0 */
	struct mkt_qp qp;		/* on device 0, to the process on device 1 */
	int count[2];			/* MRs and QPs of device 1 before */
	int fd[2];			/* of the parent and of the process */
	pid_t pid;
};

FIXTURE_VARIANT(process)
{
	enum process_end end;
};

FIXTURE_VARIANT_ADD(process, exit) { .end = BY_EXIT };
FIXTURE_VARIANT_ADD(process, exec) { .end = BY_EXEC };
FIXTURE_VARIANT_ADD(process, kill) { .end = BY_KILL };
FIXTURE_VARIANT_ADD(process, memory) { .end = MEMORY_ONLY };

FIXTURE_SETUP(process)
{
	MKT_OPEN(self->dev);
	MKT_ON_DEMAND(&self->dev[1]);
	mkt_arena_init(&self->arena, &self->dev[0]);
	ASSERT_EQ(0, mkt_arena_add_host(&self->arena, MKT_PAGE));
	ASSERT_EQ(0, mkt_arena_add_leaf(&self->arena, 0, 0, MKT_PAGE, MKT_ACCESS_ALL, 0));
	ASSERT_EQ(0, mkt_qp_create(&self->qp, &self->dev[0], MKT_QP_BRIEF));
	self->count[0] = mkt_dev_count(&self->dev[1], "mr");
	self->count[1] = mkt_dev_count(&self->dev[1], "qp");
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, self->fd));
}

FIXTURE_TEARDOWN(process)
{
	mkt_qp_destroy(&self->qp);
	EXPECT_EQ(0, mkt_arena_free(&self->arena));
	mkt_dev_close(&self->dev[0]);
	mkt_dev_close(&self->dev[1]);
}

/* the process; returns if something fails */
static void process_run(int fd, const struct mkt_peer *parent, enum process_end end)
{
	uint8_t *memory = mkt_untouched(PAGES * MKT_PAGE);
	struct process_info info = {};
	struct mkt_dev dev = {};
	struct ibv_mr *mr;
	struct mkt_qp qp;
	char byte;

	if (!memory || mkt_dev_open(&dev, 1) || mkt_qp_create(&qp, &dev, MKT_QP_BRIEF))
		return;
	mr = ibv_reg_mr(dev.pd, NULL, SIZE_MAX, MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	if (!mr || mkt_qp_connect(&qp, parent, IBV_MTU_1024))
		return;
	mkt_qp_self(&qp, &info.peer);
	info.rkey = mr->rkey;
	info.addr = (uintptr_t)memory;
	if (write(fd, &info, sizeof(info)) != sizeof(info) || read(fd, &byte, 1) != 1)
		return;
	if (end == BY_EXIT)
		_exit(0);
	if (end == BY_EXEC)
		execl("/bin/true", "true", NULL);
	/* the child keeps the device open until the parent closes its socket */
	if (end == MEMORY_ONLY && fork() > 0)
		_exit(0);
	while (read(fd, &byte, 1) > 0)
		;
	_exit(0);
}

/* writes to one page after another, until an access fails; returns its status */
static int process_traffic(FIXTURE_DATA(process) *self, const struct process_info *info,
			   enum process_end end, unsigned int *done)
{
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = { self->arena.leaf[0].addr, 64, self->arena.leaf[0].mr->lkey },
		.num_sge = 1,
		.rkey = info->rkey,
	};
	struct ibv_wc wc;

	for (*done = 0;; ++*done) {
		mkt_alive();
		wr.remote_addr = info->addr + (uint64_t)(*done % PAGES) * MKT_PAGE;
		if (mkt_post_send(&self->qp, &wr, 0) || mkt_poll(&self->qp, &wc))
			return -1;
		if (wc.status != IBV_WC_SUCCESS)
			return wc.status;
		if (*done == BEFORE && write(self->fd[0], "x", 1) != 1)
			return -1;
		if (*done == BEFORE && end == BY_KILL && kill(self->pid, SIGKILL))
			return -1;
	}
}

/* nothing of it is left, and the device works for the next one */
TEST_F(process, ends)
{
	unsigned int i, done, rounds = mkt_scale(5, 2);
	struct process_info info;
	struct mkt_peer peer;
	int status;

	for (i = 0; i < rounds; i++) {
		mkt_qp_self(&self->qp, &peer);
		self->pid = fork();
		ASSERT_LE(0, self->pid);
		if (!self->pid) {
			close(self->fd[0]);
			process_run(self->fd[1], &peer, variant->end);
			_exit(1);
		}
		ASSERT_EQ(0, close(self->fd[1]));
		ASSERT_EQ(sizeof(info), read(self->fd[0], &info, sizeof(info)));
		ASSERT_EQ(0, mkt_qp_connect(&self->qp, &info.peer, IBV_MTU_1024));
		status = process_traffic(self, &info, variant->end, &done);
		EXPECT_LT(BEFORE, done);
		/* the queue pair of the process goes, or only its memory */
		if (variant->end == MEMORY_ONLY) {
			EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, status);
		} else {
			EXPECT_TRUE(status == IBV_WC_RETRY_EXC_ERR ||
				    status == IBV_WC_REM_ACCESS_ERR ||
				    status == IBV_WC_REM_INV_REQ_ERR);
		}
		ASSERT_EQ(0, close(self->fd[0]));
		ASSERT_EQ(self->pid, waitpid(self->pid, &status, 0));
		if (variant->end == BY_KILL) {
			EXPECT_EQ(SIGKILL, WTERMSIG(status));
		} else {
			EXPECT_EQ(0, status);
		}
		mkt_qp_destroy(&self->qp);
		ASSERT_EQ(0, mkt_qp_create(&self->qp, &self->dev[0], MKT_QP_BRIEF));
		EXPECT_TRUE(mkt_until(mkt_dev_count(&self->dev[1], "mr") == self->count[0] &&
				      mkt_dev_count(&self->dev[1], "qp") == self->count[1]));
		ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, self->fd));
	}
}

TEST_HARNESS_MAIN
