// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A socket between the parts of a sample; see peer.h. */
#include <err.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "peer.h"

#define PEER_PORT 18517
#define PEER_PATIENCE 300	/* time to wait for the other part, in tenths of a second */

/*
 * Sends small messages at once, because the other part waits for each of them. Finds
 * out in half a minute if the other machine is gone: the program must not wait for ever.
 */
static void peer_set_up(int sock)
{
	static const int yes = 1, idle = 15, interval = 5, probes = 3, lost_ms = 30000;

	if (setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) ||
	    setsockopt(sock, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes)) ||
	    setsockopt(sock, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) ||
	    setsockopt(sock, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval)) ||
	    setsockopt(sock, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes)) ||
	    setsockopt(sock, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost_ms, sizeof(lost_ms)))
		err(1, "setsockopt");
}

int peer_listen(void)
{
	static const int yes = 1;
	struct sockaddr_in any = {
		.sin_family = AF_INET,
		.sin_port = htons(PEER_PORT),
		.sin_addr.s_addr = htonl(INADDR_ANY),
	};
	int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	/* Connections of an earlier run may still use the port. */
	if (sock < 0 ||
	    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) ||
	    bind(sock, (struct sockaddr *)&any, sizeof(any)) ||
	    listen(sock, SOMAXCONN))
		err(1, "cannot listen on TCP port %d", PEER_PORT);
	return sock;
}

int peer_accept(int listener)
{
	int sock = accept(listener, NULL, NULL);

	if (sock < 0)
		err(1, "accept");
	peer_set_up(sock);
	return sock;
}

int peer_connect(const char *host)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
	struct sockaddr_in to;
	static const struct timeval patience = { .tv_sec = 10 };
	struct addrinfo *info;
	int ret, sock;

	ret = getaddrinfo(host, NULL, &hints, &info);
	if (ret)
		errx(1, "%s: %s", host, gai_strerror(ret));
	memcpy(&to, info->ai_addr, sizeof(to));
	to.sin_port = htons(PEER_PORT);
	freeaddrinfo(info);

	for (int i = 0; i < PEER_PATIENCE; i++) {
		sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		/* A host that answers nothing would let connect() wait for two minutes. */
		if (sock < 0 ||
		    setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)))
			err(1, "socket");
		if (!connect(sock, (struct sockaddr *)&to, sizeof(to))) {
			peer_set_up(sock);
			return sock;
		}
		if (errno == EINPROGRESS)
			errno = ETIMEDOUT;
		if (errno != ECONNREFUSED)
			break;
		/* The other part may start a moment later. */
		close(sock);
		usleep(100000);
	}
	err(1, "cannot reach %s, TCP port %d", host, PEER_PORT);
}

void peer_tell(int sock, const void *buffer, size_t length)
{
	if (send(sock, buffer, length, MSG_NOSIGNAL) != (ssize_t)length)
		err(1, "cannot tell the other node");
}

void peer_hear(int sock, void *buffer, size_t length)
{
	ssize_t n = recv(sock, buffer, length, MSG_WAITALL);

	if (n < 0)
		err(1, "cannot hear the other node");
	if ((size_t)n != length) {
		sleep(1);
		errx(1, "the other node has ended early");
	}
}

void peer_meet(int sock)
{
	char token = 0;

	peer_tell(sock, &token, sizeof(token));
	peer_hear(sock, &token, sizeof(token));
}

void peer_link(struct rc_conn *conn, struct rc_dev *dev, int sock,
	       const char *what)
{
	struct rc_addr mine, theirs;

	rc_create(conn, dev, what);
	mine = rc_address(conn, dev);
	peer_tell(sock, &mine, sizeof(mine));
	peer_hear(sock, &theirs, sizeof(theirs));
	rc_connect(conn, dev, &theirs);
	/* No request may be sent before the remote side can receive it. */
	peer_meet(sock);
}
