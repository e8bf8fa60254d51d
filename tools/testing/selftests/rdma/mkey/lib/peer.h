/* SPDX-License-Identifier: GPL-2.0 */
/* A second process that opens the other device and has its own queue pair. */
#ifndef MKEY_TEST_PEER_H
#define MKEY_TEST_PEER_H

#include <sys/types.h>

#include "mkey_test.h"

/* the information that the two processes exchange */
struct mkt_peer_info {
	struct mkt_peer qp;
	uint32_t rkey;			/* of its key */
	uint32_t leaf_rkey;
	uint32_t lkey;
	uint32_t handle;		/* of its key */
	uint32_t dm_handle;
	uint64_t leaf_addr;
	uint64_t length;
};

struct mkt_child {
	pid_t pid;
	int fd;				/* a socket to it */
	struct mkt_peer_info info;
};

/*
 * Starts a process that opens device 1, makes an arena of @host and @dm bytes
 * with a strided key over it, connects a queue pair to *@self, and then serves
 * mkt_child_ask().
 */
int mkt_child_start(struct mkt_child *child, const struct mkt_peer *self,
		    size_t host, size_t dm);

enum mkt_question {
	MKT_CHILD_CHECK,	/* is every byte what it was? */
	MKT_CHILD_UNBIND,	/* unbind the key */
	MKT_CHILD_EXIT,		/* leave without freeing anything */
};

/*
 * returns the child's answer, an errno value; ECONNRESET if the child has ended
 */
int mkt_child_ask(struct mkt_child *child, enum mkt_question question);
/* waits until it has ended; @kill: kills it with SIGKILL */
int mkt_child_end(struct mkt_child *child, bool kill);

#endif /* MKEY_TEST_PEER_H */
