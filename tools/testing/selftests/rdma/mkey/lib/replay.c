// SPDX-License-Identifier: GPL-2.0
/* RoCE v2 packets by an AF_PACKET socket. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "replay.h"

/* headers: Ethernet, IPv4 without options, UDP */
#define BTH_AT (14 + 20 + 8)
#define PAYLOAD_AT (BTH_AT + 12 + 4)
#define ROCE_PORT 4791

static int replay_open(struct mkt_replay *replay, const struct mkt_dev *dev)
{
	char path[96];
	int here, there, err = 0;

	snprintf(path, sizeof(path), "/run/netns/%s", dev->netns);
	there = open(path, O_RDONLY | O_CLOEXEC);
	here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (here < 0 || (there >= 0 && setns(there, CLONE_NEWNET)))
		err = errno;
	replay->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
	if (!err && replay->fd < 0)
		err = errno;
	if (there >= 0) {
		if (setns(here, CLONE_NEWNET) && !err)
			err = errno;
		close(there);
	}
	if (here >= 0)
		close(here);
	return err;
}

/*
 * receives the next RoCE v2 packet within @timeout ms; returns 0 if there is
 * none
 */
static ssize_t replay_next(struct mkt_replay *replay, uint8_t *packet,
			   size_t size, struct sockaddr_ll *from, int timeout)
{
	struct pollfd poll_fd = { .fd = replay->fd, .events = POLLIN };

	while (poll(&poll_fd, 1, timeout) > 0) {
		socklen_t length = sizeof(*from);
		ssize_t n = recvfrom(replay->fd, packet, size, 0,
				     (struct sockaddr *)from, &length);

		if (n > PAYLOAD_AT && packet[12] == 8 && !packet[13] &&
		    packet[23] == IPPROTO_UDP &&
		    (packet[36] << 8 | packet[37]) == ROCE_PORT)
			return n;
	}
	return 0;
}

static int replay_find(struct mkt_replay *replay, uint8_t opcode)
{
	uint8_t packet[sizeof(replay->packet)];
	struct sockaddr_ll from;
	ssize_t n;

	replay->length = 0;
	while ((n = replay_next(replay, packet, sizeof(packet), &from, 200)) > 0) {
		if (from.sll_pkttype != PACKET_OUTGOING || packet[BTH_AT] != opcode)
			continue;
		memcpy(replay->packet, packet, n);
		replay->length = n;
		replay->to = from;
	}
	return replay->length ? 0 : ENOENT;
}

static unsigned int replay_send(struct mkt_replay *replay, uint8_t value, size_t length)
{
	uint8_t packet[sizeof(replay->packet)];
	struct sockaddr_ll from;
	unsigned int count = 0;
	ssize_t n, i;

	if (sendto(replay->fd, replay->packet, replay->length, 0,
		   (struct sockaddr *)&replay->to, sizeof(replay->to)) < 0) {
		mkt_diag("a packet cannot be sent again: %s", strerror(errno));
		return -1;
	}
	while ((n = replay_next(replay, packet, sizeof(packet), &from, 500)) > 0) {
		bool all = n >= PAYLOAD_AT + (ssize_t)length;

		if (from.sll_pkttype == PACKET_OUTGOING ||
		    packet[BTH_AT] < MKT_BTH_READ_RESPONSE_FIRST ||
		    packet[BTH_AT] > MKT_BTH_READ_RESPONSE_ONLY)
			continue;
		for (i = 0; all && i < (ssize_t)length; i++)
			all = packet[PAYLOAD_AT + i] == value;
		count += all;
	}
	return count;
}

int mkt_replay_open(struct mkt_replay *replay, const struct mkt_dev *dev)
{
	memset(replay, 0, sizeof(*replay));
	replay->dev = dev;
	replay->fd = -1;
	return replay_open(replay, dev);
}

int mkt_replay_find(struct mkt_replay *replay, uint8_t opcode)
{
	return replay_find(replay, opcode);
}

unsigned int mkt_replay_send(struct mkt_replay *replay, uint8_t value, size_t length)
{
	return replay_send(replay, value, length);
}

void mkt_replay_close(struct mkt_replay *replay)
{
	if (replay->fd >= 0)
		close(replay->fd);
}
