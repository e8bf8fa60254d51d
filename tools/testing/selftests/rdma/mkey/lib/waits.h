/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Objects of a process that end, or a process that is killed, while an access of rxe to the memory
 * of the process waits for a page. The access holds the lock of the address space. So a child has
 * the memory, and the parent looks at it.
 */
#ifndef MKEY_WAITS_H
#define MKEY_WAITS_H

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>

#include "fuse.h"
#include "mkey_harness.h"
#include "raw.h"

#define PAGE 4096
#define SIZE (16 * PAGE)
/* rxe waits for 50 */
#define PATIENCE_SECONDS 40
#define KILL_SECONDS 10

enum access { BY_WRITE, BY_SEND, BY_DATAGRAM, BY_WINDOW, BY_PREFETCH, BY_KEY };
enum end {
	DESTROY_QP,
	DESTROY_QP_LIBRARY,
	RESET_QP,
	DEREG_MR,
	DEREG_OTHER,
	DESTROY_AH,
	DEALLOC_MW,
	BIND_KEY,
	DEREG_KEY,
	CLOSE,
	NOTHING,
};

static const char *const kinds[] = { "mr", "qp", "pd", "cq" };

/* what parent and child share */
struct waits_shared {
	atomic_bool begun;	/* the access waits, seen by the child */
	atomic_bool go;
	atomic_bool done;
	atomic_int result;
};

struct waits_child {
	struct mkt_dev dev[2];
	struct mkt_qp qp[2];
	struct mkt_fuse own;
	struct mkt_fuse *fuse;
	struct ibv_mr *mr;	/* of all of it, on demand, side 1 */
	struct ibv_mr *other;	/* of present memory, on demand, side 1 */
	struct ibv_mr *plain;	/* side 0 */
	struct ibv_mw *mw;	/* over mr */
	struct ibv_mr *key;	/* over mr */
	uint8_t bytes[PAGE];
};

struct waits {
	struct mkt_dev dev[2];
	struct mkt_fuse fuse;
	struct waits_shared *shared;
	int before[2][ARRAY_SIZE(kinds)];
	bool open;
};

static inline double waits_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1000000000.0;
}

/* waits until @flag is set, for a number of seconds */
static inline bool waits_for(const atomic_bool *flag, unsigned int seconds)
{
	double end = waits_seconds() + seconds;

	while (!atomic_load(flag) && waits_seconds() < end) {
		usleep(10000);
		mkt_alive();
	}
	return atomic_load(flag);
}

/* The rings of queues keep the file of the device open as long as the process has its memory. */
static inline void waits_unmap_rings(void)
{
	unsigned long start, end;
	char line[512];
	FILE *maps;
	bool found;

	do {
		found = false;
		maps = fopen("/proc/self/maps", "r");
		while (maps && fgets(line, sizeof(line), maps))
			if (strstr(line, "uverbs") &&
			    sscanf(line, "%lx-%lx", &start, &end) == 2) {
				found = true;
				break;
			}
		if (maps)
			fclose(maps);
		if (found)
			munmap((void *)start, end - start);
	} while (found);
}

static inline int waits_open(struct waits_child *c, unsigned int flags)
{
	unsigned int i;

	for (i = 0; i < 2; i++)
		if (mkt_dev_try_open(&c->dev[i], i))
			return 1;
	/* older than the queue pair, so that it is destroyed later when the file is closed */
	c->mr = ibv_reg_mr(c->dev[1].pd, c->fuse->map, SIZE,
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
static inline int waits_bind(struct waits_child *c)
{
	struct ibmkey_range range = {
		.addr = (uintptr_t)c->fuse->map,
		.length = SIZE,
		.lkey = c->mr->lkey,
	};

	return ibmkey_bind_list(c->key, MKT_ACCESS_ALL, 1, &range);
}

/* Begins an access to a page of side 1. With @unmap, no ring is mapped when it begins. */
static inline int waits_begin(struct waits_child *c, enum access by, bool unmap)
{
	struct mkt_wr write = {
		.op = MKT_WRITE,
		.sge[0] = { (uintptr_t)c->bytes, 8, c->plain->lkey },
		.num_sge = 1,
		.remote_addr = (uintptr_t)c->fuse->map,
		.rkey = c->mr->rkey,
	};
	struct mkt_wr send = {
		.op = MKT_SEND,
		.sge[0] = { (uintptr_t)c->fuse->map, 8, c->mr->lkey },
		.num_sge = 1,
	};
	struct mkt_peer self[2];
	unsigned int i;

	for (i = 0; i < 2; i++)
		mkt_qp_self(&c->qp[i], &self[i]);
	if (by == BY_KEY) {
		/* younger than the queue pair: it is destroyed first */
		c->key = ibmkey_alloc(c->dev[1].pd, 1);
		if (!c->key || waits_bind(c))
			return EIO;
		write.rkey = c->key->rkey;
		write.remote_addr = 0;
		by = BY_WRITE;
	}
	if (by == BY_PREFETCH) {
		struct ib_uverbs_sge list[] = {
			{ (uintptr_t)c->fuse->map, PAGE, c->mr->lkey },
			{ (uintptr_t)c->bytes, 8, 0 },
		};

		c->other = ibv_reg_mr(c->dev[1].pd, c->bytes, sizeof(c->bytes),
				      MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
		if (!c->other)
			return EIO;
		list[1].lkey = c->other->lkey;
		return mkt_raw_advise_list(c->dev[1].pd, 0, list, 2);
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
	c->mw = ibv_alloc_mw(c->dev[1].pd, IBV_MW_TYPE_2);
	if (!c->mw || mkt_bind_window(&c->qp[1], c->mw, c->mr, (uintptr_t)c->fuse->map, SIZE,
				      IBV_ACCESS_REMOTE_WRITE))
		return EIO;
	write.rkey = c->mw->rkey;
	return mkt_post_send(&c->qp[0], &write, 1);
}

static inline int waits_end(struct waits_child *c, enum end end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	switch (end) {
	case DESTROY_QP:
		return mkt_raw_qp_destroy(c->qp[1].qp);
	case DESTROY_QP_LIBRARY:
		return ibv_destroy_qp(c->qp[1].qp);
	case RESET_QP:
		return ibv_modify_qp(c->qp[1].qp, &attr, IBV_QP_STATE);
	case DEREG_MR:
		return ibv_dereg_mr(c->mr);
	case DEREG_OTHER:
		return ibv_dereg_mr(c->other);
	case DESTROY_AH:
		return ibv_destroy_ah(c->qp[1].ah);
	case DEALLOC_MW:
		return ibv_dealloc_mw(c->mw);
	case BIND_KEY:
		return waits_bind(c);
	case DEREG_KEY:
		return ibv_dereg_mr(c->key);
	case CLOSE:
		return close(c->dev[1].ctx->cmd_fd);
	default:
		pause();
		return 0;
	}
}

/* the child: begins an access, and ends something of it when the parent says so; does not return */
static inline void waits_child(struct waits *w, enum access by, enum end end, bool own,
			       bool unmap)
{
	struct waits_shared *shared = w->shared;
	static struct waits_child c;
	int err;

	c.fuse = &w->fuse;
	if (own) {
		/* before the devices: of the files, the last one is closed first */
		if (mkt_fuse_open(&c.own, SIZE))
			_exit(10);
		mkt_fuse_hold(&c.own, true);
		c.fuse = &c.own;
	}
	err = waits_open(&c, by == BY_DATAGRAM ? MKT_QP_UD : MKT_QP_LOSSY);
	if (!err)
		err = waits_begin(&c, by, unmap);
	if (err) {
		mkt_diag("no access: %s", strerror(err));
		_exit(12);
	}
	if (own) {
		if (mkt_fuse_wait(&c.own))
			_exit(11);
		atomic_store(&shared->begun, true);
	}
	waits_for(&shared->go, PATIENCE_SECONDS);
	atomic_store(&shared->result, waits_end(&c, end));
	atomic_store(&shared->done, true);
	pause();
}

static inline pid_t waits_fork(struct waits *w, enum access by, enum end end, bool own,
			       bool unmap)
{
	pid_t pid;

	mkt_fuse_hold(&w->fuse, true);
	memset(w->shared, 0, sizeof(*w->shared));
	pid = fork();
	if (!pid)
		waits_child(w, by, end, own, unmap);
	return pid;
}

/* kills the process; true if it is gone soon */
static inline bool waits_kill(pid_t pid)
{
	double end = waits_seconds() + KILL_SECONDS;
	int status;

	kill(pid, SIGKILL);
	while (waits_seconds() < end) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
		usleep(10000);
	}
	return false;
}

/* true if the process has left nothing on the devices; what is freed may be freed late */
static inline bool waits_is_clean(struct waits *w)
{
	double end = waits_seconds() + PATIENCE_SECONDS;
	bool clean = false;
	unsigned int i, j;

	while (!clean && waits_seconds() < end) {
		usleep(100000);
		clean = true;
		for (i = 0; i < 2; i++)
			for (j = 0; j < ARRAY_SIZE(kinds); j++)
				clean = clean && mkt_dev_count(&w->dev[i], kinds[j]) ==
						 w->before[i][j];
	}
	return clean;
}

/* waits for a child that could not be killed before its page was there */
static inline void waits_reap(struct waits *w, pid_t pid)
{
	mkt_fuse_hold(&w->fuse, false);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* 0, an errno value, or -1 if the test must be skipped */
static inline int waits_setup(struct waits *w)
{
	struct ibv_device_attr_ex attr;
	unsigned int i, j;
	int err;

	if (ibv_query_device_ex(w->dev[1].ctx, NULL, &attr) ||
	    !(attr.odp_caps.general_caps & IBV_ODP_SUPPORT))
		return -1;
	err = mkt_fuse_open(&w->fuse, SIZE);
	if (err)
		return err == ENOENT || err == EPERM ? -1 : err;
	w->open = true;
	w->shared = mmap(NULL, sizeof(*w->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (w->shared == MAP_FAILED)
		return errno;
	for (i = 0; i < 2; i++)
		for (j = 0; j < ARRAY_SIZE(kinds); j++)
			w->before[i][j] = mkt_dev_count(&w->dev[i], kinds[j]);
	return 0;
}

static inline void waits_teardown(struct waits *w)
{
	unsigned int i;

	if (w->open)
		mkt_fuse_close(&w->fuse);
	for (i = 0; i < 2; i++)
		mkt_dev_close(&w->dev[i]);
}

#define WAITS_SETUP(w) do {							\
	int __err;								\
										\
	MKT_OPEN((w)->dev);							\
	__err = waits_setup(w);							\
	if (__err < 0)								\
		SKIP(return, "no memory on demand, or FUSE cannot be mounted");	\
	ASSERT_EQ(0, __err);							\
} while (0)

#endif /* MKEY_WAITS_H */
