// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Stages outgoing messages in device memory. The program composes each message
 * in a slot of a ring, piece by piece, and sends it from there. A device with
 * its own memory then does not read the host's memory. The program uses a slot
 * again when the request that sent its message has completed.
 *
 * usage: dm_staging [-n MESSAGES] DEVICE	receives
 *        dm_staging [-n MESSAGES] DEVICE HOST	sends to the one on HOST
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/mkey.h>

#include "peer.h"

#define SLOTS 8
#define SLOT_SIZE 4096

struct header {
	uint64_t number;
	uint32_t length;	/* bytes of the payload */
	uint32_t sum;		/* sum of these bytes */
};

#define MAX_PAYLOAD (SLOT_SIZE - sizeof(struct header))

struct message {
	struct header header;
	uint8_t payload[MAX_PAYLOAD];
};

/*
 * Both sides compute the contents of a message from its number, so that the receiver can
 * check them.
 */
static uint32_t payload_length(uint64_t number)
{
	return number % 5 ? (number * 977) % MAX_PAYLOAD + 1 : MAX_PAYLOAD;
}

static void make_payload(uint8_t *payload, uint64_t number)
{
	for (uint32_t i = 0; i < payload_length(number); i++)
		payload[i] = number * 13 + i * 7 + i / 256;
}

static uint32_t sum_of(const uint8_t *payload, uint32_t length)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < length; i++)
		sum += payload[i];
	return sum;
}

/* Writes message @number to @slot; returns its length. */
static size_t compose(struct ibv_dm *dm, unsigned int slot, uint64_t number)
{
	uint8_t payload[MAX_PAYLOAD];
	struct header header = { .number = number, .length = payload_length(number) };
	size_t half = header.length / 2, at = (size_t)slot * SLOT_SIZE;
	int ret;

	/*
	 * Write the payload first, in two pieces. The header comes later, because it has
	 * the sum of the payload.
	 */
	make_payload(payload, number);
	ret = ibv_memcpy_to_dm(dm, at + sizeof(header), payload, half);
	if (!ret)
		ret = ibv_memcpy_to_dm(dm, at + sizeof(header) + half,
				       payload + half, header.length - half);
	header.sum = sum_of(payload, header.length);
	if (!ret)
		ret = ibv_memcpy_to_dm(dm, at, &header, sizeof(header));
	if (ret)
		die(ret, "ibv_memcpy_to_dm");
	return sizeof(header) + header.length;
}

static void send_slot(struct rc_conn *conn, struct ibv_mr *ring, unsigned int slot,
		      size_t length)
{
	struct ibv_sge sge = {
		/* Device memory has no address, so its MRs are zero-based. */
		.addr = (uint64_t)slot * SLOT_SIZE,
		.length = length,
		.lkey = ring->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = slot,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	rc_post(conn, &wr);
}

/* Waits until the oldest message has been sent. Requests complete in the order of posting. */
static void free_slot(struct rc_conn *conn, unsigned int oldest)
{
	struct ibv_wc wc = rc_wait(conn);

	if (wc.wr_id != oldest)
		errx(1, "slot %llu is free before slot %u",
		     (unsigned long long)wc.wr_id, oldest);
}

static void send_all(struct rc_dev *dev, const char *host, uint64_t messages)
{
	struct ibv_alloc_dm_attr attr = { .length = SLOTS * SLOT_SIZE };
	int sock = peer_connect(host), ret;
	uint64_t in_flight = 0, waited = 0;
	struct rc_conn conn;
	struct ibv_mr *ring;
	struct ibv_dm *dm;

	peer_link(&conn, dev, sock, "the receiver");
	dm = ibv_alloc_dm(dev->ctx, &attr);
	if (!dm)
		err(1, "ibv_alloc_dm");
	/* The device only reads through the MR, so no other access flag is needed. */
	ring = ibv_reg_dm_mr(dev->pd, dm, 0, attr.length, IBV_ACCESS_ZERO_BASED);
	if (!ring)
		err(1, "ibv_reg_dm_mr");
	peer_tell(sock, &messages, sizeof(messages));

	for (uint64_t number = 0; number < messages; number++) {
		unsigned int slot = number % SLOTS;

		if (in_flight == SLOTS) {
			free_slot(&conn, slot);
			in_flight--;
			waited++;
		}
		send_slot(&conn, ring, slot, compose(dm, slot, number));
		in_flight++;
	}
	while (in_flight--)
		rc_wait(&conn);

	peer_meet(sock);
	rc_dereg(ring);
	ret = ibv_free_dm(dm);
	if (ret)
		die(ret, "ibv_free_dm");
	rc_destroy(&conn);
	close(sock);
	printf("%llu messages from %d slots of device memory, %llu of them filled again\n",
	       (unsigned long long)messages, SLOTS, (unsigned long long)waited);
}

static void check(const struct message *message, size_t received, uint64_t number)
{
	const struct header *header = &message->header;
	uint8_t payload[MAX_PAYLOAD];

	if (header->number != number)
		errx(1, "received message %llu instead of %llu",
		     (unsigned long long)header->number, (unsigned long long)number);
	if (header->length != payload_length(number) ||
	    received != sizeof(*header) + header->length)
		errx(1, "message %llu has %zu bytes", (unsigned long long)number,
		     received);
	make_payload(payload, number);
	if (memcmp(message->payload, payload, header->length) ||
	    header->sum != sum_of(message->payload, header->length))
		errx(1, "message %llu is not what was composed",
		     (unsigned long long)number);
}

static void receive_all(struct rc_dev *dev)
{
	static struct message into[RC_RECV_DEPTH];
	int listener = peer_listen(), sock = peer_accept(listener);
	struct rc_conn conn;
	uint64_t messages;
	struct ibv_mr *mr;

	close(listener);
	mr = rc_reg(dev, into, sizeof(into), IBV_ACCESS_LOCAL_WRITE);
	peer_link(&conn, dev, sock, "the sender");
	peer_hear(sock, &messages, sizeof(messages));
	for (uint64_t i = 0; i < RC_RECV_DEPTH; i++)
		rc_post_recv(&conn, i, mr, &into[i], sizeof(into[i]));

	for (uint64_t number = 0; number < messages; number++) {
		struct ibv_wc wc = rc_wait(&conn);
		struct message *message = &into[wc.wr_id];

		check(message, wc.byte_len, number);
		/*
		 * Clear the buffer, so that the check of the next message does not accept
		 * bytes of this one.
		 */
		memset(message, 0, sizeof(*message));
		rc_post_recv(&conn, wc.wr_id, mr, message, sizeof(*message));
	}

	peer_meet(sock);
	rc_destroy(&conn);
	rc_dereg(mr);
	close(sock);
	printf("%llu messages received, every byte as it was composed\n",
	       (unsigned long long)messages);
}

int main(int argc, char **argv)
{
	unsigned long messages = 5000;
	struct rc_dev dev;
	int option, ret;

	while ((option = getopt(argc, argv, "n:")) != -1)
		messages = option == 'n' ? strtoul(optarg, NULL, 10) : 0;
	argc -= optind;
	argv += optind;
	if (!messages || argc < 1 || argc > 2)
		errx(2, "usage: dm_staging [-n MESSAGES] DEVICE [HOST]");

	rc_open(&dev, argv[0]);
	ret = ibmkey_enable(dev.ctx);
	if (ret)
		die(ret, "ibmkey_enable");
	if (argc == 1)
		receive_all(&dev);
	else
		send_all(&dev, argv[1], messages);
	rc_close(&dev);
	return 0;
}
