// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Objects of a process are destroyed, or the process is killed, while an access of rxe
 * to its memory on demand waits for a page. It needs no ib_mkey; an access by a key, or by a
 * window over one, does. The page does not arrive before that is done. Where rxe waits for the
 * access, it does so for 50 seconds, and then frees what the access uses. A change of a key waits
 * for the access, until the process is killed, and other devices can be removed meanwhile.
 * needs: on-demand
 *
 * The access holds the lock of the address space. So a child has the memory, and the parent looks
 * at it.
 */
#include <fcntl.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>

#include "raw.h"
#include "request.h"
#include "waits.h"

#define SIZE (16 * PAGE)

enum access { BY_WRITE, BY_SEND, BY_DATAGRAM, BY_WINDOW, BY_WINDOW_1, BY_PREFETCH, BY_KEY };
enum end {
	DESTROY_QP,
	DESTROY_QP_LIBRARY,
	RESET_QP,
	DEREG_MR,
	DEREG_OTHER,
	DESTROY_AH,
	DEALLOC_MW,
	INVALIDATE_MW,
	BIND_MW,
	BIND_KEY,
	UNBIND_KEY,
	REQUESTS_KEY,
	DEREG_KEY,
	CLOSE,
	NOTHING,
};

static const char *const kinds[] = { "mr", "qp", "pd", "cq" };

struct waits_child {
	struct mkt_dev dev[2];
	struct mkt_qp qp[2];
	struct mkt_slow own;
	uint8_t *map;		/* whose pages come late */
	struct ibv_mr *mr;	/* of all of it, on demand, side 1 */
	struct ibv_mr *other;	/* of present memory, on demand, side 1 */
	struct ibv_mr *plain;	/* side 0 */
	struct ibv_mw *mw;	/* over mr or over key, of type 2 or 1 */
	struct ibv_mr *key;	/* over mr */
	struct mkt_request text;	/* to bind it by a request */
	struct slow_thread thread;
	uint8_t bytes[PAGE];
};

FIXTURE(waits)
{
	struct mkt_dev dev[2];
	struct mkt_slow slow;
	struct waits_shared *shared;
	int before[2][ARRAY_SIZE(kinds)];
	bool open;
};

FIXTURE_VARIANT(waits)
{
	enum access by;
	enum mkt_op op;		/* of BY_KEY, instead of a WRITE */
	enum end end;
	bool over_key;	/* the window is over a key */
	bool own;	/* the process serves its pages */
	bool unmap;	/* and closes the devices before it stops to, if it is killed */
	bool stays;	/* the call does not return, until the process is killed */
	int status;	/* of the access, or the state after a reset; 0: only with @arrives */
	bool arrives;	/* the page does after the call, so that an access succeeds */
	bool removes;	/* devices and network namespaces go before the page arrives */
};

/* calls that do not wait for the page */
FIXTURE_VARIANT_ADD(waits, destroy_qp_write) { .by = BY_WRITE, .end = DESTROY_QP };
FIXTURE_VARIANT_ADD(waits, destroy_qp_send) { .by = BY_SEND, .end = DESTROY_QP };
FIXTURE_VARIANT_ADD(waits, destroy_qp_window) { .by = BY_WINDOW, .end = DESTROY_QP };
FIXTURE_VARIANT_ADD(waits, destroy_qp_datagram) { .by = BY_DATAGRAM, .end = DESTROY_QP };
FIXTURE_VARIANT_ADD(waits, destroy_qp_key) { .by = BY_KEY, .end = DESTROY_QP };
FIXTURE_VARIANT_ADD(waits, reset_qp_write) { .by = BY_WRITE, .end = RESET_QP, .arrives = true };
FIXTURE_VARIANT_ADD(waits, reset_qp_send) { .by = BY_SEND, .end = RESET_QP, .arrives = true };
FIXTURE_VARIANT_ADD(waits, reset_qp_key) { .by = BY_KEY, .end = RESET_QP, .arrives = true };
FIXTURE_VARIANT_ADD(waits, dereg_mr_write) {
	.by = BY_WRITE, .end = DEREG_MR, .status = IBV_WC_REM_ACCESS_ERR,
};
FIXTURE_VARIANT_ADD(waits, dereg_mr_send) { .by = BY_SEND, .end = DEREG_MR };
FIXTURE_VARIANT_ADD(waits, dereg_mr_prefetch) { .by = BY_PREFETCH, .end = DEREG_MR };
FIXTURE_VARIANT_ADD(waits, dereg_other_prefetch) { .by = BY_PREFETCH, .end = DEREG_OTHER };
FIXTURE_VARIANT_ADD(waits, destroy_ah) { .by = BY_DATAGRAM, .end = DESTROY_AH, .arrives = true };
FIXTURE_VARIANT_ADD(waits, dealloc_mw) {
	.by = BY_WINDOW, .end = DEALLOC_MW, .status = IBV_WC_REM_ACCESS_ERR,
};
FIXTURE_VARIANT_ADD(waits, dealloc_mw_1) {
	.by = BY_WINDOW_1, .end = DEALLOC_MW, .status = IBV_WC_REM_ACCESS_ERR,
};
FIXTURE_VARIANT_ADD(waits, invalidate_mw) {
	.by = BY_WINDOW, .end = INVALIDATE_MW, .status = IBV_WC_REM_ACCESS_ERR,
};
FIXTURE_VARIANT_ADD(waits, bind_mw) {
	.by = BY_WINDOW_1, .end = BIND_MW, .status = IBV_WC_REM_ACCESS_ERR,
};
FIXTURE_VARIANT_ADD(waits, dealloc_mw_key) {
	.by = BY_WINDOW, .over_key = true, .end = DEALLOC_MW, .status = IBV_WC_REM_ACCESS_ERR,
};
FIXTURE_VARIANT_ADD(waits, invalidate_mw_key) {
	.by = BY_WINDOW, .over_key = true, .end = INVALIDATE_MW, .status = IBV_WC_REM_ACCESS_ERR,
};
FIXTURE_VARIANT_ADD(waits, bind_mw_key) {
	.by = BY_WINDOW_1, .over_key = true, .end = BIND_MW, .status = IBV_WC_REM_ACCESS_ERR,
};
FIXTURE_VARIANT_ADD(waits, close_file) { .by = BY_WRITE, .end = CLOSE, .unmap = true };
/* calls that wait for the page, or a process that makes none */
FIXTURE_VARIANT_ADD(waits, bind_key) { .by = BY_KEY, .end = BIND_KEY, .stays = true };
FIXTURE_VARIANT_ADD(waits, bind_key_read) {
	.by = BY_KEY, .op = MKT_READ, .end = BIND_KEY, .stays = true,
};
FIXTURE_VARIANT_ADD(waits, bind_key_atomic) {
	.by = BY_KEY, .op = MKT_FETCH_ADD, .end = BIND_KEY, .stays = true,
};
FIXTURE_VARIANT_ADD(waits, unbind_key) { .by = BY_KEY, .end = UNBIND_KEY, .stays = true };
FIXTURE_VARIANT_ADD(waits, requests_key) { .by = BY_KEY, .end = REQUESTS_KEY, .stays = true };
FIXTURE_VARIANT_ADD(waits, dereg_key) { .by = BY_KEY, .end = DEREG_KEY, .stays = true };
FIXTURE_VARIANT_ADD(waits, own_bind_key) {
	.by = BY_KEY, .end = BIND_KEY, .own = true, .stays = true,
};
FIXTURE_VARIANT_ADD(waits, own_dereg_key) {
	.by = BY_KEY, .end = DEREG_KEY, .own = true, .stays = true,
};
FIXTURE_VARIANT_ADD(waits, own_destroy_qp_key) {
	.by = BY_KEY, .end = DESTROY_QP_LIBRARY, .own = true, .stays = true,
};
FIXTURE_VARIANT_ADD(waits, own_destroy_qp_write) {
	.by = BY_WRITE, .end = DESTROY_QP_LIBRARY, .own = true, .stays = true,
};
/* the file of the device is closed before that of the file system */
FIXTURE_VARIANT_ADD(waits, own_closed_key) {
	.by = BY_KEY, .end = NOTHING, .own = true, .unmap = true, .stays = true,
};
FIXTURE_VARIANT_ADD(waits, own_closed_write) {
	.by = BY_WRITE, .end = NOTHING, .own = true, .unmap = true, .stays = true,
};
/* The page arrives long after the process that accesses it, and the devices, are gone. */
FIXTURE_VARIANT_ADD(waits, devices_are_removed) {
	.by = BY_WRITE, .end = NOTHING, .unmap = true, .stays = true, .removes = true,
};

FIXTURE_SETUP(waits)
{
	unsigned int i, j;

	MKT_OPEN(self->dev);
	if (variant->removes && geteuid())
		SKIP(return, "not root");
	if ((variant->by == BY_KEY || variant->over_key) && !self->dev[1].extended)
		SKIP(return, "%s is not extended by ib_mkey", self->dev[1].name);
	SLOW_TRY(mkt_slow_try(&self->slow, self->dev, SIZE));
	self->open = true;
	self->shared = waits_share();
	ASSERT_NE(MAP_FAILED, (void *)self->shared);
	for (i = 0; i < 2; i++)
		for (j = 0; j < ARRAY_SIZE(kinds); j++)
			self->before[i][j] = mkt_dev_count(&self->dev[i], kinds[j]);
}

FIXTURE_TEARDOWN(waits)
{
	unsigned int i;

	if (self->open)
		mkt_slow_close(&self->slow);
	for (i = 0; i < 2; i++)
		mkt_dev_close(&self->dev[i]);
}

/* The rings of queues keep the file of the device open as long as the process has its memory. */
static void waits_unmap_rings(void)
{
	unsigned long start, end = 0;

	while (mkt_next_ring(&start, &end))
		munmap((void *)start, end - start);
}

static int waits_open(struct waits_child *c, unsigned int flags)
{
	unsigned int i;

	for (i = 0; i < 2; i++)
		if (mkt_dev_try_open(&c->dev[i], i))
			return 1;
	/* older than the queue pair, so that it is destroyed later when the file is closed */
	c->mr = ibv_reg_mr(c->dev[1].pd, c->map, SIZE,
			   MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND);
	c->plain = ibv_reg_mr(c->dev[0].pd, c->bytes, sizeof(c->bytes), IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr || !c->plain)
		return 2;
	for (i = 0; i < 2; i++)
		if (mkt_qp_create(&c->qp[i], &c->dev[i], flags))
			return 3;
	return 0;
}

/* binds the key to all of the memory */
static int waits_bind(void *arg)
{
	struct waits_child *c = arg;

	return mkt_bind_range(c->key, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND, c->mr,
			      (uintptr_t)c->map, SIZE);
}

/*
 * Begins an access to a page of side 1. With unmap, no ring is mapped when it begins. With
 * over_key, the window is over a key.
 */
static int waits_begin(struct waits_child *c, const FIXTURE_VARIANT(waits) *variant)
{
	enum access by = variant->by;
	bool unmap = variant->unmap, over_key = variant->over_key;
	struct mkt_wr write = {
		.op = variant->op ?: MKT_WRITE,
		.sge[0] = { (uintptr_t)c->bytes, 8, c->plain->lkey },
		.num_sge = 1,
		.remote_addr = (uintptr_t)c->map,
		.rkey = c->mr->rkey,
	};
	struct mkt_wr send = {
		.op = MKT_SEND,
		.sge[0] = { (uintptr_t)c->map, 8, c->mr->lkey },
		/* it fails when the page is there: this is in no MR */
		.sge[1] = { 0, 8, 0 },
		.num_sge = by == BY_SEND ? 2 : 1,
	};
	struct mkt_peer self[2];
	unsigned int i;

	for (i = 0; i < 2; i++)
		mkt_qp_self(&c->qp[i], &self[i]);
	if (by == BY_KEY || over_key) {
		/* younger than the queue pair: it is destroyed first */
		c->key = ibmkey_alloc(c->dev[1].pd, 1);
		if (!c->key || waits_bind(c) || slow_thread_create(&c->thread) ||
		    mkt_request_init(&c->text, c->dev[1].pd, PAGE))
			return EIO;
		write.rkey = c->key->rkey;
		write.remote_addr = 0;
		by = over_key ? by : BY_WRITE;
	}
	if (by == BY_PREFETCH) {
		struct ib_uverbs_sge list[] = {
			{ (uintptr_t)c->map, PAGE, c->mr->lkey },
			{ (uintptr_t)c->bytes, 8, 0 },
		};

		c->other = ibv_reg_mr(c->dev[1].pd, c->bytes, sizeof(c->bytes),
				      MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
		if (!c->other)
			return EIO;
		list[1].lkey = c->other->lkey;
		return mkt_raw_advise_list(c->dev[1].pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH, 0,
					   list, 2);
	}
	if (by == BY_WRITE && unmap) {
		/* Side 1 drops the packets until it is connected. They are sent again. */
		if (mkt_qp_connect(&c->qp[0], &self[1], IBV_MTU_1024) ||
		    mkt_post_send(&c->qp[0], &write, 1))
			return EIO;
		waits_unmap_rings();
		return mkt_qp_connect(&c->qp[1], &self[0], IBV_MTU_1024);
	}
	for (i = 0; i < 2; i++)
		if (mkt_qp_connect(&c->qp[i], &self[!i], IBV_MTU_1024))
			return EIO;
	if (by == BY_WRITE)
		return mkt_post_send(&c->qp[0], &write, 1);
	if (by == BY_SEND || by == BY_DATAGRAM)
		return mkt_post_send(&c->qp[1], &send, 1);
	c->mw = ibv_alloc_mw(c->dev[1].pd, by == BY_WINDOW_1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	if (!c->mw || mkt_bind_window(&c->qp[1], c->mw, over_key ? c->key : c->mr,
				      write.remote_addr, SIZE, IBV_ACCESS_REMOTE_WRITE))
		return EIO;
	write.rkey = c->mw->rkey;
	return mkt_post_send(&c->qp[0], &write, 1);
}

/* the status of the access, or the state of a queue pair that was reset; -1 on an error */
static int waits_outcome(struct mkt_qp *qp, enum end end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;

	if (end != RESET_QP)
		return mkt_poll(qp, &wc) ? -1 : (int)wc.status;
	/* the page arrives meanwhile */
	sleep(1);
	return ibv_query_qp(qp->qp, &attr, IBV_QP_STATE, &init) ? -1 : (int)attr.qp_state;
}

/*
 * Binds the key by a call, and by several requests behind it. The first of them executes, and waits
 * for the call for two seconds.
 */
static int waits_requests(struct waits_child *c)
{
	struct ibmkey_wr wr;
	unsigned int i;
	int err = 0;

	slow_run(&c->thread, waits_bind, c);
	usleep(300000);
	mkt_request_range(&c->text, 0, (struct ibmkey_range){
		.addr = (uintptr_t)c->map, .length = SIZE, .lkey = c->mr->lkey,
	});
	wr = mkt_request_wr(&c->text, c->key);
	for (i = 0; i < 4 && !err; i++)
		err = ibmkey_post_bind(c->qp[1].qp, &wr, i, IBV_SEND_SIGNALED);
	return err ?: slow_join(&c->thread);
}

static int waits_end(struct waits_child *c, enum end end)
{
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };
	struct ibv_wc wc;

	switch (end) {
	case DESTROY_QP:
		return mkt_raw_qp_destroy(c->qp[1].qp);
	case DESTROY_QP_LIBRARY:
		return ibv_destroy_qp(c->qp[1].qp);
	case RESET_QP:
		return mkt_qp_state(&c->qp[1], IBV_QPS_RESET);
	case DEREG_MR:
		return ibv_dereg_mr(c->mr);
	case DEREG_OTHER:
		return ibv_dereg_mr(c->other);
	case DESTROY_AH:
		return ibv_destroy_ah(c->qp[1].ah);
	case DEALLOC_MW:
		return ibv_dealloc_mw(c->mw);
	case INVALIDATE_MW:
		/* the access fails, and puts the queue pair into the error state */
		inv.rkey = c->mw->rkey;
		return mkt_post_send(&c->qp[1], &inv, 1) ?: mkt_poll(&c->qp[1], &wc);
	case BIND_MW:
		/* to nothing; it may complete as flushed for the same reason */
		mkt_bind_window(&c->qp[1], c->mw, c->mr, (uintptr_t)c->map, 0, 0);
		return 0;
	case BIND_KEY:
		return waits_bind(c);
	case UNBIND_KEY:
		return ibmkey_unbind(c->key);
	case REQUESTS_KEY:
		return waits_requests(c);
	case DEREG_KEY:
		return ibv_dereg_mr(c->key);
	case CLOSE:
		return close(c->dev[1].ctx->cmd_fd);
	default:
		pause();
		return 0;
	}
}

/*
 * The child begins an access, does what the variant says when the parent says so, and waits for the
 * access if its status counts. It does not return.
 */
static void waits_child(FIXTURE_DATA(waits) *self, const FIXTURE_VARIANT(waits) *variant)
{
	struct waits_shared *shared = self->shared;
	static struct waits_child c;
	struct mkt_qp *qp = &c.qp[variant->by == BY_DATAGRAM || variant->end == RESET_QP];
	int err;

	c.map = self->slow.map;
	if (variant->own) {
		/* before the devices: of the files, the last one is closed first */
		if (mkt_slow_open(&c.own, SIZE))
			_exit(10);
		mkt_slow_hold(&c.own, true);
		c.map = c.own.map;
	}
	err = waits_open(&c, variant->by == BY_DATAGRAM ? MKT_QP_UD : MKT_QP_LOSSY);
	if (!err)
		err = waits_begin(&c, variant);
	if (err) {
		mkt_diag("no access: %s", strerror(err));
		_exit(12);
	}
	if (variant->own) {
		if (mkt_slow_wait(&c.own, 1))
			_exit(11);
		atomic_store(&shared->begun, true);
	}
	waits_for(&shared->go, PATIENCE_SECONDS);
	atomic_store(&shared->result, waits_end(&c, variant->end));
	atomic_store(&shared->done, true);
	if (variant->status || variant->arrives) {
		atomic_store(&shared->status, waits_outcome(qp, variant->end));
		/* nothing refers to the key any more */
		if (variant->over_key)
			atomic_store(&shared->result, ibmkey_unbind(c.key));
		atomic_store(&shared->completed, true);
	}
	pause();
}

static pid_t waits_fork(FIXTURE_DATA(waits) *self, const FIXTURE_VARIANT(waits) *variant)
{
	pid_t pid;

	mkt_slow_hold(&self->slow, true);
	memset(self->shared, 0, sizeof(*self->shared));
	pid = fork();
	if (!pid)
		waits_child(self, variant);
	return pid;
}

/* true if the process has left nothing on the devices; what is freed may be freed late */
static bool waits_is_clean(FIXTURE_DATA(waits) *self)
{
	double end = mkt_seconds() + PATIENCE_SECONDS;
	bool clean = false;
	unsigned int i, j;

	while (!clean && mkt_seconds() < end) {
		usleep(100000);
		clean = true;
		for (i = 0; i < 2; i++)
			for (j = 0; j < ARRAY_SIZE(kinds); j++)
				clean = clean && mkt_dev_count(&self->dev[i], kinds[j]) ==
						 self->before[i][j];
	}
	return clean;
}

/* waits for a child that could not be killed before its page was there */
static void waits_reap(FIXTURE_DATA(waits) *self, pid_t pid)
{
	mkt_slow_hold(&self->slow, false);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* true if the command ends without help, within so many seconds, and succeeds */
static bool waits_run(const char *command, unsigned int seconds)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(!!system(command));
	return mkt_ended(pid, seconds, &status) && WIFEXITED(status) &&
	       !WEXITSTATUS(status);
}

#define WAITS_NETNS "for i in 0 1; do ip netns add mkt_wait$i || exit; done; "			\
	"ip link add mkt_wait0 netns mkt_wait0 type veth peer name mkt_wait1 netns mkt_wait1 && "\
	"for i in 0 1; do ip -n mkt_wait$i addr add 10.77.0.$((i + 1))/24 dev mkt_wait$i && "	\
	"ip -n mkt_wait$i link set mkt_wait$i up && "						\
	"ip netns exec mkt_wait$i "								\
	"rdma link add mkt_wait$i type rxe netdev mkt_wait$i || exit; done; sleep 3"

static const char other_device[] =
	"rdma link add mkt_other type rxe netdev lo && rdma link delete mkt_other";

static const char peer_is_gone[] =
	"while ip -n mkt_wait0 link show mkt_wait0; do sleep 0.1; done >/dev/null 2>&1";

/* makes devices in two network namespaces, and lets a child use these */
static bool waits_make_devices(void)
{
	return waits_run(WAITS_NETNS, 20 * PATIENCE_SECONDS) &&
	       !setenv("MKEY_TEST_DEV0", "mkt_wait0", 1) &&
	       !setenv("MKEY_TEST_DEV1", "mkt_wait1", 1) &&
	       !setenv("MKEY_TEST_NETNS0", "mkt_wait0", 1) &&
	       !setenv("MKEY_TEST_NETNS1", "mkt_wait1", 1);
}

static bool waits_remove_devices(void)
{
	return waits_run("ip netns exec mkt_wait1 rdma link delete mkt_wait1", PATIENCE_SECONDS) &&
	       waits_run("ip netns delete mkt_wait1", PATIENCE_SECONDS) &&
	       /* the other end of the veth goes when the namespace does */
	       waits_run(peer_is_gone, PATIENCE_SECONDS) &&
	       waits_run("ip netns delete mkt_wait0", PATIENCE_SECONDS);
}

TEST_F(waits, ends)
{
	struct waits_shared *shared = self->shared;
	pid_t pid;

	if (variant->removes)
		ASSERT_TRUE(waits_make_devices());
	pid = waits_fork(self, variant);
	ASSERT_LE(0, pid);
	if (variant->own) {
		EXPECT_TRUE(waits_for(&shared->begun, PATIENCE_SECONDS));
	} else {
		EXPECT_EQ(0, mkt_slow_wait(&self->slow, 1));
	}
	atomic_store(&shared->go, true);
	if (variant->stays) {
		sleep(1);
		/*
		 * The library unmaps the queues of a queue pair. That waits for the page up to
		 * Linux 7.2, where a fault keeps the lock of the address space.
		 */
		if (variant->end != DESTROY_QP_LIBRARY)
			EXPECT_FALSE(atomic_load(&shared->done));
		/*
		 * The debug kernel takes half a minute for this. A request is not killed while it
		 * waits then.
		 */
		if (variant->by == BY_KEY && variant->end != REQUESTS_KEY && !geteuid())
			EXPECT_TRUE(waits_run(other_device, 20 * PATIENCE_SECONDS));
		if (variant->end != DESTROY_QP_LIBRARY)
			EXPECT_FALSE(atomic_load(&shared->done));
	} else {
		EXPECT_TRUE(waits_for(&shared->done, PATIENCE_SECONDS));
	}
	if (variant->arrives)
		mkt_slow_hold(&self->slow, false);
	if (variant->status || variant->arrives) {
		EXPECT_TRUE(waits_for(&shared->completed, PATIENCE_SECONDS));
		EXPECT_EQ(variant->status, atomic_load(&shared->status));
	}
	EXPECT_EQ(0, atomic_load(&shared->result));
	EXPECT_TRUE(waits_kill(pid));
	if (variant->removes)
		EXPECT_TRUE(waits_remove_devices());
	waits_reap(self, pid);
	EXPECT_TRUE(waits_is_clean(self));
}

TEST_HARNESS_MAIN
