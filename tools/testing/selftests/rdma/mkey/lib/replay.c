// SPDX-License-Identifier: GPL-2.0
/*
 * RoCE v2 packets by an AF_PACKET socket: those that a device has sent, and others with any headers
 * and the checksums that belong to them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "replay.h"

/* headers: Ethernet, IPv4 without options, UDP */
#define IP_AT 14
#define UDP_AT (IP_AT + 20)
#define BTH_AT (UDP_AT + 8)
#define EXT_AT (BTH_AT + 12)
#define PAYLOAD_AT (EXT_AT + 4)
#define ICRC 4
#define ROCE_PORT 4791

static int replay_socket(void *arg)
{
	struct mkt_replay *replay = arg;

	replay->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
	return replay->fd < 0 ? errno : 0;
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

int mkt_replay_find(struct mkt_replay *replay, uint8_t opcode)
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

unsigned int mkt_replay_send(struct mkt_replay *replay, uint8_t value, size_t length)
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
	int err;

	memset(replay, 0, sizeof(*replay));
	replay->fd = -1;
	err = mkt_in_netns(dev, replay_socket, replay);
	return err == ENOENT ? replay_socket(replay) : err;
}

void mkt_replay_close(struct mkt_replay *replay)
{
	if (replay->fd >= 0)
		close(replay->fd);
}

static void forge_put(uint8_t *at, uint64_t value, unsigned int bytes)
{
	while (bytes--) {
		at[bytes] = value;
		value >>= 8;
	}
}

static uint32_t forge_get(const uint8_t *at, unsigned int bytes)
{
	uint32_t value = 0;

	while (bytes--)
		value = value << 8 | *at++;
	return value;
}

static uint32_t forge_crc(uint32_t crc, const uint8_t *from, size_t length)
{
	unsigned int bit;

	while (length--) {
		crc ^= *from++;
		for (bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return crc;
}

/* the ICRC of a packet, without the fields that routers change; IBTA, annex A17 */
static uint32_t forge_icrc(const uint8_t *packet, size_t end)
{
	uint8_t headers[EXT_AT - IP_AT];
	static const uint8_t lrh[8] = {
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	};
	uint32_t crc;

	memcpy(headers, packet + IP_AT, sizeof(headers));
	headers[1] = 0xff;				/* TOS */
	headers[8] = 0xff;				/* TTL */
	memset(headers + 10, 0xff, 2);			/* checksum */
	memset(headers + UDP_AT - IP_AT + 6, 0xff, 2);	/* checksum */
	headers[BTH_AT - IP_AT + 4] = 0xff;		/* FECN, BECN */
	crc = forge_crc(~0u, lrh, sizeof(lrh));
	crc = forge_crc(crc, headers, sizeof(headers));
	return ~forge_crc(crc, packet + EXT_AT, end - EXT_AT);
}

/* sets the lengths and checksums of a packet whose payload ends at @end */
static void forge_seal(uint8_t *packet, size_t end)
{
	uint32_t sum = 0, icrc;
	unsigned int i;

	forge_put(packet + IP_AT + 2, end + ICRC - IP_AT, 2);
	forge_put(packet + IP_AT + 10, 0, 2);
	for (i = 0; i < 20; i += 2)
		sum += forge_get(packet + IP_AT + i, 2);
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	forge_put(packet + IP_AT + 10, ~sum, 2);
	forge_put(packet + UDP_AT + 4, end + ICRC - UDP_AT, 2);
	/* no checksum */
	forge_put(packet + UDP_AT + 6, 0, 2);
	icrc = forge_icrc(packet, end);
	for (i = 0; i < ICRC; i++)
		packet[end + i] = icrc >> 8 * i;
}

int mkt_forge_send(struct mkt_replay *replay, const struct mkt_forged *forged)
{
	bool reth = forged->opcode != MKT_BTH_WRITE_MIDDLE && forged->opcode != MKT_BTH_WRITE_LAST;
	unsigned int pad = -forged->payload & 3;
	uint8_t packet[sizeof(replay->packet)];
	uint8_t *at = packet + EXT_AT;

	if (EXT_AT + 20 + forged->payload + pad + ICRC > sizeof(packet))
		return EMSGSIZE;
	memcpy(packet, replay->packet, EXT_AT);
	packet[BTH_AT] = forged->opcode;
	packet[BTH_AT + 1] = (packet[BTH_AT + 1] & ~0x30) | pad << 4;
	/* it asks for an acknowledgment */
	packet[BTH_AT + 8] |= 0x80;
	forge_put(packet + BTH_AT + 9, forge_get(replay->packet + BTH_AT + 9, 3) + forged->psn, 3);
	if (forged->opcode == MKT_BTH_FLUSH) {
		forge_put(at, forged->feth, 4);
		at += 4;
	}
	if (reth) {
		forge_put(at, forged->va, 8);
		forge_put(at + 8, forged->rkey, 4);
		forge_put(at + 12, forged->length, 4);
		at += 16;
	}
	memset(at, forged->value, forged->payload);
	memset(at + forged->payload, 0, pad);
	at += forged->payload + pad;
	forge_seal(packet, at - packet);
	if (sendto(replay->fd, packet, at + ICRC - packet, 0, (struct sockaddr *)&replay->to,
		   sizeof(replay->to)) < 0) {
		mkt_diag("a packet cannot be sent: %s", strerror(errno));
		return errno;
	}
	return 0;
}

int mkt_forge_answer(struct mkt_replay *replay, uint32_t psn, uint8_t *opcode)
{
	uint8_t packet[sizeof(replay->packet)];
	struct sockaddr_ll from;

	psn = (forge_get(replay->packet + BTH_AT + 9, 3) + psn) & 0xffffff;
	while (replay_next(replay, packet, sizeof(packet), &from, 2000) > 0) {
		if (from.sll_pkttype == PACKET_OUTGOING ||
		    forge_get(packet + BTH_AT + 9, 3) != psn)
			continue;
		*opcode = packet[BTH_AT];
		return packet[EXT_AT];
	}
	return -1;
}
