/* SPDX-License-Identifier: GPL-2.0 */
/* A second process that opens the other device and has its own queue pair. */
#ifndef MKEY_TEST_PEER_H
#define MKEY_TEST_PEER_H

#include <sys/types.h>

#include "mkey_test.h"

/* the information that the two processes exchange */
struct mkt_peer_info {
	struct mkt_peer qp;
	uint32_t rkey;			/* of its key, or of its implicit MR */
	uint32_t leaf_rkey;
	uint32_t lkey;
	uint32_t handle;		/* of its key */
	uint32_t dm_handle;
	uint64_t leaf_addr;
	uint64_t addr;			/* of the key, or of memory that was not touched */
	uint64_t length;		/* of a request */
	uint64_t total;
};

struct mkt_child {
	pid_t pid;
	int fd;				/* a socket to it */
	struct mkt_peer_info info;
};

/*
 * Starts a process that opens device 1, makes an arena of @host and @dm bytes
 * with a strided key over it, or an implicit MR if @dm is 0, connects a queue
 * pair to *@self, and then serves mkt_child_ask().
 */
int mkt_child_start(struct mkt_child *child, const struct mkt_peer *self,
		    size_t host, size_t dm);

enum mkt_question {
	MKT_CHILD_CHECK,	/* is every byte what it was? */
	MKT_CHILD_UNBIND,	/* unbind the key */
	/* it leaves without freeing anything */
	MKT_CHILD_EXIT,
	MKT_CHILD_EXEC,
	MKT_CHILD_MEMORY,	/* but a child of it keeps the device open until mkt_child_end() */
	MKT_CHILD_KILL,
};

/*
 * returns the child's answer, an errno value; ECONNRESET if the child has ended
 */
int mkt_child_ask(struct mkt_child *child, enum mkt_question question);
/* lets it leave, or kills it */
int mkt_child_tell(struct mkt_child *child, enum mkt_question how);
/*
 * waits until it has ended, by itself and without an error, or because of SIGKILL; @kill: kills it
 */
int mkt_child_end(struct mkt_child *child, bool kill);

#endif /* MKEY_TEST_PEER_H */
