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

void mkt_packet_put(uint8_t *at, uint64_t value, unsigned int bytes)
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
	static uint32_t table[256];
	unsigned int i, bit;

	/* of one thread, as all of this file */
	for (i = 0; i < 256 && !table[255]; i++) {
		uint32_t value = i;

		for (bit = 0; bit < 8; bit++)
			value = value >> 1 ^ (value & 1 ? 0xedb88320 : 0);
		table[i] = value;
	}
	while (length--)
		crc = crc >> 8 ^ table[(crc ^ *from++) & 0xff];
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

	mkt_packet_put(packet + IP_AT + 2, end + ICRC - IP_AT, 2);
	mkt_packet_put(packet + IP_AT + 10, 0, 2);
	for (i = 0; i < 20; i += 2)
		sum += forge_get(packet + IP_AT + i, 2);
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	mkt_packet_put(packet + IP_AT + 10, ~sum, 2);
	mkt_packet_put(packet + UDP_AT + 4, end + ICRC - UDP_AT, 2);
	/* no checksum */
	mkt_packet_put(packet + UDP_AT + 6, 0, 2);
	icrc = forge_icrc(packet, end);
	for (i = 0; i < ICRC; i++)
		packet[end + i] = icrc >> 8 * i;
}

uint32_t mkt_packet_psn(const struct mkt_replay *replay)
{
	return forge_get(replay->packet + BTH_AT + 9, 3);
}

int mkt_packet_send(struct mkt_replay *replay, const struct mkt_packet *packet)
{
	unsigned int pad = -packet->payload & 3;
	uint8_t bytes[sizeof(replay->packet)];
	uint8_t *at = bytes + EXT_AT;

	if (EXT_AT + packet->ext_length + packet->payload + pad + ICRC > sizeof(bytes))
		return EMSGSIZE;
	memcpy(bytes, replay->packet, EXT_AT);
	bytes[BTH_AT] = packet->opcode;
	bytes[BTH_AT + 1] = ((bytes[BTH_AT + 1] & ~0x30) | ((pad + packet->more_pad) & 3) << 4) ^
			    packet->flags;
	if (packet->qp_num)
		mkt_packet_put(bytes + BTH_AT + 5, packet->qp_num, 3);
	/* it asks for an acknowledgment */
	bytes[BTH_AT + 8] |= 0x80;
	mkt_packet_put(bytes + BTH_AT + 9, packet->psn, 3);
	memcpy(at, packet->ext, packet->ext_length);
	at += packet->ext_length;
	memset(at, packet->value, packet->payload);
	memset(at + packet->payload, 0, pad);
	at += packet->payload + pad;
	forge_seal(bytes, at - bytes);
	*at ^= packet->broken;
	if (sendto(replay->fd, bytes, at + ICRC - bytes, 0, (struct sockaddr *)&replay->to,
		   sizeof(replay->to)) < 0) {
		mkt_diag("a packet cannot be sent: %s", strerror(errno));
		return errno;
	}
	return 0;
}

int mkt_answers_only(struct mkt_replay *replay)
{
	int on = 1, room = 16 << 20;

	if (setsockopt(replay->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) ||
	    setsockopt(replay->fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)))
		return errno;
	return 0;
}

bool mkt_answer_next(struct mkt_replay *replay, struct mkt_answer *answer, int timeout)
{
	uint8_t packet[sizeof(replay->packet)];
	struct sockaddr_ll from;
	size_t at = EXT_AT;
	ssize_t n;

	do
		n = replay_next(replay, packet, sizeof(packet), &from, timeout);
	while (n > 0 && from.sll_pkttype == PACKET_OUTGOING);
	if (n <= 0)
		return false;
	answer->opcode = packet[BTH_AT];
	answer->psn = forge_get(packet + BTH_AT + 9, 3);
	answer->syndrome = 0;
	answer->length = 0;
	if (answer->opcode < MKT_BTH_READ_RESPONSE_FIRST ||
	    answer->opcode > MKT_BTH_ATOMIC_ACKNOWLEDGE)
		return true;
	if (answer->opcode != MKT_BTH_READ_RESPONSE_MIDDLE) {
		answer->syndrome = packet[at];
		at += 4;
	}
	n -= at + ICRC + (packet[BTH_AT + 1] >> 4 & 3);
	if (n > 0 && n <= (ssize_t)sizeof(answer->data)) {
		answer->length = n;
		memcpy(answer->data, packet + at, n);
	}
	return true;
}

unsigned long mkt_tainted(void)
{
	unsigned long value = 0;
	FILE *file = fopen("/proc/sys/kernel/tainted", "re");

	if (file) {
		if (fscanf(file, "%lu", &value) != 1)
			value = 0;
		fclose(file);
	}
	return value & 1u << 9;
}
