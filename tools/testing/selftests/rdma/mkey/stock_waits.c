// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Objects of a process are destroyed, or the process is killed, while an access of rxe
 * to its memory on demand waits for a page. It needs no ib_mkey. The page does not arrive before
 * that is done. Where rxe waits for the access, it does so for 50 seconds, and then frees what
 * the access uses.
 * needs: on-demand
 */
#include "waits.h"

FIXTURE(call)
{
	struct waits w;
};

FIXTURE(killed)
{
	struct waits w;
};

FIXTURE_VARIANT(call)
{
	enum access by;
	enum end end;
	bool unmap;
};

FIXTURE_VARIANT_ADD(call, destroy_qp_write) { .by = BY_WRITE, .end = DESTROY_QP };
FIXTURE_VARIANT_ADD(call, destroy_qp_send) { .by = BY_SEND, .end = DESTROY_QP };
FIXTURE_VARIANT_ADD(call, destroy_qp_window) { .by = BY_WINDOW, .end = DESTROY_QP };
FIXTURE_VARIANT_ADD(call, destroy_qp_datagram) { .by = BY_DATAGRAM, .end = DESTROY_QP };
FIXTURE_VARIANT_ADD(call, reset_qp_write) { .by = BY_WRITE, .end = RESET_QP };
FIXTURE_VARIANT_ADD(call, reset_qp_send) { .by = BY_SEND, .end = RESET_QP };
FIXTURE_VARIANT_ADD(call, dereg_mr_write) { .by = BY_WRITE, .end = DEREG_MR };
FIXTURE_VARIANT_ADD(call, dereg_mr_send) { .by = BY_SEND, .end = DEREG_MR };
FIXTURE_VARIANT_ADD(call, dereg_mr_prefetch) { .by = BY_PREFETCH, .end = DEREG_MR };
FIXTURE_VARIANT_ADD(call, dereg_other_prefetch) { .by = BY_PREFETCH, .end = DEREG_OTHER };
FIXTURE_VARIANT_ADD(call, destroy_ah) { .by = BY_DATAGRAM, .end = DESTROY_AH };
FIXTURE_VARIANT_ADD(call, dealloc_mw) { .by = BY_WINDOW, .end = DEALLOC_MW };
FIXTURE_VARIANT_ADD(call, close_file) { .by = BY_WRITE, .end = CLOSE, .unmap = true };

FIXTURE_SETUP(call)
{
	WAITS_SETUP(&self->w);
}

FIXTURE_TEARDOWN(call)
{
	waits_teardown(&self->w);
}

/* A call does not wait for the page. */
TEST_F(call, returns)
{
	struct waits *w = &self->w;
	pid_t pid = waits_fork(w, variant->by, variant->end, false, variant->unmap);

	ASSERT_LE(0, pid);
	EXPECT_EQ(0, mkt_fuse_wait(&w->fuse));
	atomic_store(&w->shared->go, true);
	EXPECT_TRUE(waits_for(&w->shared->done, PATIENCE_SECONDS));
	EXPECT_EQ(0, atomic_load(&w->shared->result));
	EXPECT_TRUE(waits_kill(pid));
	waits_reap(w, pid);
	EXPECT_TRUE(waits_is_clean(w));
}

static const char peer_is_gone[] =
	"while ip -n mkt_wait0 link show mkt_wait0; do sleep 0.1; done >/dev/null 2>&1";

FIXTURE_SETUP(killed)
{
	WAITS_SETUP(&self->w);
}

FIXTURE_TEARDOWN(killed)
{
	waits_teardown(&self->w);
}

/* A process that serves its own pages is killed in a call. The page never arrives. */
TEST_F(killed, in_a_call)
{
	struct waits *w = &self->w;
	pid_t pid = waits_fork(w, BY_WRITE, DESTROY_QP_LIBRARY, true, false);

	ASSERT_LE(0, pid);
	EXPECT_TRUE(waits_for(&w->shared->begun, PATIENCE_SECONDS));
	atomic_store(&w->shared->go, true);
	sleep(1);
	EXPECT_TRUE(waits_kill(pid));
	EXPECT_TRUE(waits_is_clean(w));
}

/* The file of the device is closed before that of the file system. */
TEST_F(killed, devices_are_closed_first)
{
	struct waits *w = &self->w;
	pid_t pid = waits_fork(w, BY_WRITE, NOTHING, true, true);

	ASSERT_LE(0, pid);
	EXPECT_TRUE(waits_for(&w->shared->begun, PATIENCE_SECONDS));
	atomic_store(&w->shared->go, true);
	sleep(1);
	EXPECT_TRUE(waits_kill(pid));
	EXPECT_TRUE(waits_is_clean(w));
}

/* true if the command ends without help and succeeds */
static bool waits_run(const char *command)
{
	double end = waits_seconds() + PATIENCE_SECONDS;
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(!!system(command));
	while (waits_seconds() < end) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) && !WEXITSTATUS(status);
		usleep(10000);
		mkt_alive();
	}
	return false;
}

#define WAITS_NETNS "for i in 0 1; do ip netns add mkt_wait$i || exit; done; "			\
	"ip link add mkt_wait0 netns mkt_wait0 type veth peer name mkt_wait1 netns mkt_wait1 && "\
	"for i in 0 1; do ip -n mkt_wait$i addr add 10.77.0.$((i + 1))/24 dev mkt_wait$i && "	\
	"ip -n mkt_wait$i link set mkt_wait$i up && "						\
	"ip netns exec mkt_wait$i "								\
	"rdma link add mkt_wait$i type rxe netdev mkt_wait$i || exit; done; sleep 3"

/*
 * The page is served by another process, and arrives long after the process that accesses it, the
 * devices, and the network namespaces are gone.
 */
TEST_F(killed, devices_are_removed)
{
	struct waits *w = &self->w;
	pid_t pid;

	if (geteuid())
		SKIP(return, "not root");
	ASSERT_TRUE(waits_run(WAITS_NETNS));
	setenv("MKEY_TEST_DEV0", "mkt_wait0", 1);
	setenv("MKEY_TEST_DEV1", "mkt_wait1", 1);
	setenv("MKEY_TEST_NETNS0", "mkt_wait0", 1);
	setenv("MKEY_TEST_NETNS1", "mkt_wait1", 1);
	pid = waits_fork(w, BY_WRITE, NOTHING, false, true);
	ASSERT_LE(0, pid);
	EXPECT_EQ(0, mkt_fuse_wait(&w->fuse));
	EXPECT_TRUE(waits_kill(pid));
	EXPECT_TRUE(waits_run("ip netns exec mkt_wait1 rdma link delete mkt_wait1"));
	EXPECT_TRUE(waits_run("ip netns delete mkt_wait1"));
	/* the other end of the veth goes when the namespace does */
	EXPECT_TRUE(waits_run(peer_is_gone));
	EXPECT_TRUE(waits_run("ip netns delete mkt_wait0"));
	waits_reap(w, pid);
}

TEST_HARNESS_MAIN
