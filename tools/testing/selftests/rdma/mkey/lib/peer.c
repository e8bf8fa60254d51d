// SPDX-License-Identifier: GPL-2.0
/* The second process of tests that need one. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "odp.h"
#include "peer.h"

struct mkt_child_state {
	struct mkt_dev dev;
	struct mkt_arena arena;
	struct mkt_qp qp;
	struct ibv_mr *key;		/* or the implicit MR */
	uint8_t *untouched;
};

#define UNTOUCHED (2 << 20)

static int mkt_child_bind(struct mkt_child_state *state)
{
	struct mkt_leaf *leaf = &state->arena.leaf[0];
	struct ibmkey_block block = {
		.addr = leaf->addr,
		.bytes_count = 32,
		.lkey = leaf->mr->lkey,
		.stride = { 64 },
	};
	const uint64_t repeat = leaf->length / 64;

	state->key = ibmkey_alloc(state->dev.pd, 1);
	if (!state->key)
		return errno;
	return ibv_rereg_mr_interleaved(state->key, MKT_ACCESS_ALL, 1, &repeat,
					1, &block);
}

static int mkt_child_implicit(struct mkt_child_state *state)
{
	state->untouched = mkt_untouched(UNTOUCHED);
	state->key = ibv_reg_mr(state->dev.pd, NULL, SIZE_MAX, ON_DEMAND);
	return state->untouched && state->key ? 0 : errno;
}

static int mkt_child_setup(struct mkt_child_state *state,
			   const struct mkt_peer *peer, size_t host, size_t dm)
{
	struct mkt_rng rng = { .state = getpid() };
	int err;

	err = mkt_dev_open(&state->dev, 1);
	if (!err)
		err = mkt_arena_standard(&state->arena, &state->dev, host, dm);
	if (!err)
		err = mkt_arena_fill(&state->arena, &rng);
	if (!err)
		err = dm ? mkt_child_bind(state) : mkt_child_implicit(state);
	if (!err)
		err = mkt_qp_create(&state->qp, &state->dev, 0);
	if (!err)
		err = mkt_qp_connect(&state->qp, peer, IBV_MTU_1024);
	return err;
}

static void mkt_child_info(const struct mkt_child_state *state,
			   struct mkt_peer_info *info)
{
	mkt_qp_self(&state->qp, &info->qp);
	info->rkey = state->key->rkey;
	info->lkey = state->key->lkey;
	info->handle = state->key->handle;
	info->addr = (uintptr_t)state->untouched;
	info->length = state->untouched ? 64 * 1024 : state->key->length;
	info->total = state->untouched ? UNTOUCHED : info->length;
	info->leaf_rkey = state->arena.leaf[0].mr->rkey;
	info->leaf_addr = state->arena.leaf[0].addr;
	if (state->arena.num_mems > 1)
		info->dm_handle = state->arena.mem[1].dm->handle;
}

static int mkt_child_answer(struct mkt_child_state *state,
			    enum mkt_question question)
{
	switch (question) {
	case MKT_CHILD_CHECK:
		return mkt_arena_check(&state->arena);
	case MKT_CHILD_UNBIND:
		return ibmkey_unbind(state->key);
	case MKT_CHILD_EXEC:
		execl("/bin/true", "true", NULL);
		_exit(1);
	case MKT_CHILD_MEMORY:
		/* the child reads the end of the socket */
		if (!fork())
			return 0;
		_exit(0);
	default:
		/* the kernel frees everything */
		_exit(0);
	}
}

static void mkt_child_main(int fd, const struct mkt_peer *peer, size_t host,
			   size_t dm)
{
	static struct mkt_child_state state;
	struct mkt_peer_info info = {};
	enum mkt_question question;
	int err;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	err = mkt_child_setup(&state, peer, host, dm);
	if (write(fd, &err, sizeof(err)) != sizeof(err) || err)
		_exit(1);
	mkt_child_info(&state, &info);
	if (write(fd, &info, sizeof(info)) != sizeof(info))
		_exit(1);
	while (read(fd, &question, sizeof(question)) == sizeof(question)) {
		err = mkt_child_answer(&state, question);
		if (write(fd, &err, sizeof(err)) != sizeof(err))
			break;
	}
	_exit(1);
}

int mkt_child_start(struct mkt_child *child, const struct mkt_peer *self,
		    size_t host, size_t dm)
{
	int fd[2], err = 0;

	memset(child, 0, sizeof(*child));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
		return errno;
	child->pid = fork();
	if (child->pid < 0)
		return errno;
	if (!child->pid) {
		close(fd[0]);
		mkt_child_main(fd[1], self, host, dm);
	}
	close(fd[1]);
	child->fd = fd[0];
	if (read(child->fd, &err, sizeof(err)) != sizeof(err))
		err = ECONNRESET;
	if (!err && read(child->fd, &child->info, sizeof(child->info)) !=
		    sizeof(child->info))
		err = ECONNRESET;
	if (err) {
		mkt_diag("the second process does not come up: %s",
			 strerror(err));
		mkt_child_end(child, true);
	}
	return err;
}

int mkt_child_ask(struct mkt_child *child, enum mkt_question question)
{
	int err;

	if (send(child->fd, &question, sizeof(question), MSG_NOSIGNAL) !=
	    sizeof(question))
		return ECONNRESET;
	if (read(child->fd, &err, sizeof(err)) != sizeof(err))
		return ECONNRESET;
	return err;
}

int mkt_child_tell(struct mkt_child *child, enum mkt_question how)
{
	if (how == MKT_CHILD_KILL)
		return kill(child->pid, SIGKILL);
	return send(child->fd, &how, sizeof(how), MSG_NOSIGNAL) == sizeof(how) ? 0 : ECONNRESET;
}

int mkt_child_end(struct mkt_child *child, bool by_force)
{
	int status;

	if (by_force)
		kill(child->pid, SIGKILL);
	close(child->fd);
	if (waitpid(child->pid, &status, 0) != child->pid)
		return errno;
	return by_force ? WTERMSIG(status) != SIGKILL : status;
}
