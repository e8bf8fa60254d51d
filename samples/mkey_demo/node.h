/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A node: one process with one RDMA device, a connection to the other node, and a
 * socket. Over the socket the nodes exchange what programs exchange over TCP, such as
 * rkeys.
 */
#ifndef MKEY_DEMO_NODE_H
#define MKEY_DEMO_NODE_H

#include <stddef.h>
#include <stdint.h>

#include <rc.h>

struct node {
	const char *where;	/* "device@namespace", or "device" */
	int sock;
	struct rc_dev dev;
	struct rc_conn conn;
};

/*
 * Enters the node's network namespace, opens its device, enables ib_mkey's
 * verbs on it, and connects to the other node, which does the same.
 */
void node_open(struct node *node);
void node_close(struct node *node);

/* Send and receive whole messages. If the other node ends, the program ends. */
void node_tell(struct node *node, const void *buffer, size_t length);
void node_hear(struct node *node, void *buffer, size_t length);

/* Returns when both nodes have called it. */
void node_meet(struct node *node);

double now_ms(void);

#endif /* MKEY_DEMO_NODE_H */
