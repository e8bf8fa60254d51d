/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A socket between the two parts of a program on two nodes. Over TCP they exchange the
 * addresses of queue pairs, rkeys, and messages that say when to continue. An error ends
 * the program with one line, as in rc.h. The end of the other part is such an error.
 */
#ifndef SAMPLES_PEER_H
#define SAMPLES_PEER_H

#include <stddef.h>

#include "rc.h"

/* Opens a socket that the other parts connect to. */
int peer_listen(void);
/* Waits for the next connection. */
int peer_accept(int listener);
/* Connects to the program on @host; waits at most half a minute for it. */
int peer_connect(const char *host);

/* Send and receive whole messages of a length that both parts know. */
void peer_tell(int sock, const void *buffer, size_t length);
void peer_hear(int sock, void *buffer, size_t length);
/* Returns when both parts have called it. */
void peer_meet(int sock);

/*
 * Makes @conn and connects it to the connection of the other part. Both parts must call this.
 */
void peer_link(struct rc_conn *conn, struct rc_dev *dev, int sock,
	       const char *what);

#endif /* SAMPLES_PEER_H */
