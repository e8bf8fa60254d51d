/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the parts of a program on two nodes settle over TCP: the addresses of
 * queue pairs, keys, and when to go on. Any error ends the program with one
 * line, as in rc.h; so does the end of the other part.
 */
#ifndef SAMPLES_PEER_H
#define SAMPLES_PEER_H

#include <stddef.h>

#include "rc.h"

/* A socket on which others can find this program. */
int peer_listen(void);
/* Waits for the next connection. */
int peer_accept(int listener);
/* Connects to the program on @host, for which it waits half a minute. */
int peer_connect(const char *host);

/* Whole messages of a length that both know. */
void peer_tell(int sock, const void *buffer, size_t length);
void peer_hear(int sock, void *buffer, size_t length);
/* Returns when both parts have called it. */
void peer_meet(int sock);

/* Makes @conn and connects it to what the other part makes by the same call. */
void peer_link(struct rc_conn *conn, struct rc_dev *dev, int sock,
	       const char *what);

#endif /* SAMPLES_PEER_H */
