// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sends the same payloads to several destinations. Multicast groups are unreliable, so
 * the program uses a reliable connection to each destination instead. It copies each
 * payload to device memory once, and sends it from there to all destinations.
 *
 * usage: dm_multicast [-n PAYLOADS] DEVICE	the source; waits for DESTINATIONS
 *        dm_multicast DEVICE HOST		a destination of the one on HOST
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/mkey.h>

#include "peer.h"

#define DESTINATIONS 3
#define BUFFERS 2	/* the program fills one while the device sends the other one */

struct payload {
	uint64_t number;
	uint64_t copy;	/* number of this copy among all copies to device memory */
	uint8_t bytes[60000];
};

static void make_bytes(uint8_t *bytes, uint64_t number)
{
	for (size_t i = 0; i < sizeof(((struct payload *)0)->bytes); i++)
		bytes[i] = number * 29 + i * 3 + i / 256;
}

struct source {
	struct rc_dev dev;
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	int sock[DESTINATIONS];
	struct rc_conn conn[DESTINATIONS];
	uint64_t copies;
};

/* Copies a payload to device memory. Only this function writes device memory. */
static void write_payload(struct source *source, unsigned int buffer, uint64_t number)
{
	static struct payload payload;
	int ret;

	payload.number = number;
	payload.copy = source->copies++;
	make_bytes(payload.bytes, number);
	ret = ibv_memcpy_to_dm(source->dm, buffer * sizeof(payload), &payload,
			       sizeof(payload));
	if (ret)
		die(ret, "ibv_memcpy_to_dm");
}

static void send_payload(struct source *source, unsigned int buffer)
{
	struct ibv_sge sge = {
		.addr = buffer * sizeof(struct payload),
		.length = sizeof(struct payload),
		.lkey = source->mr->lkey,
	};

	for (int i = 0; i < DESTINATIONS; i++) {
		struct ibv_send_wr wr = {
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED,
		};

		rc_post(&source->conn[i], &wr);
	}
}

/*
 * Waits until all destinations have the oldest payload, so that its buffer can
 * be reused.
 */
static void wait_for_all(struct source *source)
{
	for (int i = 0; i < DESTINATIONS; i++)
		rc_wait(&source->conn[i]);
}

static void open_source(struct source *source)
{
	struct ibv_alloc_dm_attr attr = {
		.length = BUFFERS * sizeof(struct payload),
	};
	int listener = peer_listen();

	for (int i = 0; i < DESTINATIONS; i++) {
		source->sock[i] = peer_accept(listener);
		peer_link(&source->conn[i], &source->dev, source->sock[i],
			  "a destination");
	}
	close(listener);
	source->dm = ibv_alloc_dm(source->dev.ctx, &attr);
	if (!source->dm)
		err(1, "ibv_alloc_dm");
	source->mr = ibv_reg_dm_mr(source->dev.pd, source->dm, 0, attr.length,
				   IBV_ACCESS_ZERO_BASED);
	if (!source->mr)
		err(1, "ibv_reg_dm_mr");
}

static void close_source(struct source *source)
{
	int ret;

	rc_dereg(source->mr);
	ret = ibv_free_dm(source->dm);
	if (ret)
		die(ret, "ibv_free_dm");
	for (int i = 0; i < DESTINATIONS; i++) {
		rc_destroy(&source->conn[i]);
		close(source->sock[i]);
	}
}

static void run_source(struct source *source, uint64_t payloads)
{
	open_source(source);
	for (int i = 0; i < DESTINATIONS; i++)
		peer_tell(source->sock[i], &payloads, sizeof(payloads));

	for (uint64_t number = 0; number < payloads; number++) {
		if (number >= BUFFERS)
			wait_for_all(source);
		write_payload(source, number % BUFFERS, number);
		send_payload(source, number % BUFFERS);
	}
	for (uint64_t left = payloads < BUFFERS ? payloads : BUFFERS; left; left--)
		wait_for_all(source);

	/* Each destination sends the number of copies that it has seen. */
	for (int i = 0; i < DESTINATIONS; i++) {
		uint64_t seen;

		peer_hear(source->sock[i], &seen, sizeof(seen));
		if (seen != payloads || source->copies != payloads)
			errx(1, "destination %d has seen %llu of %llu copies of %llu payloads",
			     i, (unsigned long long)seen,
			     (unsigned long long)source->copies,
			     (unsigned long long)payloads);
		peer_meet(source->sock[i]);
	}
	printf("%llu payloads of %zu bytes, each copied to device memory once and sent to %d destinations: %llu copies\n",
	       (unsigned long long)payloads, sizeof(struct payload), DESTINATIONS,
	       (unsigned long long)source->copies);
	close_source(source);
}

static void check(const struct payload *payload, uint32_t received, uint64_t number)
{
	static uint8_t bytes[sizeof(payload->bytes)];

	make_bytes(bytes, number);
	if (received != sizeof(*payload) || payload->number != number ||
	    memcmp(payload->bytes, bytes, sizeof(bytes)))
		errx(1, "payload %llu is not what was sent", (unsigned long long)number);
	/* Copies for each destination would have different numbers. */
	if (payload->copy != number)
		errx(1, "payload %llu was copied more than once",
		     (unsigned long long)number);
}

static void run_destination(struct rc_dev *dev, const char *host)
{
	static struct payload into[BUFFERS];
	int sock = peer_connect(host);
	uint64_t payloads, seen = 0;
	struct rc_conn conn;
	struct ibv_mr *mr;

	mr = rc_reg(dev, into, sizeof(into), IBV_ACCESS_LOCAL_WRITE);
	peer_link(&conn, dev, sock, "the source");
	peer_hear(sock, &payloads, sizeof(payloads));
	for (unsigned int i = 0; i < BUFFERS; i++)
		rc_post_recv(&conn, i, mr, &into[i], sizeof(into[i]));

	while (seen < payloads) {
		struct ibv_wc wc = rc_wait(&conn);
		struct payload *payload = &into[wc.wr_id];

		check(payload, wc.byte_len, seen++);
		memset(payload, 0, sizeof(*payload));
		rc_post_recv(&conn, wc.wr_id, mr, payload, sizeof(*payload));
	}

	peer_tell(sock, &seen, sizeof(seen));
	/* The queue pair stays until the source has each acknowledgment. */
	peer_meet(sock);
	rc_destroy(&conn);
	rc_dereg(mr);
	close(sock);
	printf("%llu payloads received, every byte as it was sent\n",
	       (unsigned long long)seen);
}

int main(int argc, char **argv)
{
	unsigned long payloads = 200;
	struct source source = { 0 };
	int option, ret;

	while ((option = getopt(argc, argv, "n:")) != -1)
		payloads = option == 'n' ? strtoul(optarg, NULL, 10) : 0;
	argc -= optind;
	argv += optind;
	if (!payloads || argc < 1 || argc > 2)
		errx(2, "usage: dm_multicast [-n PAYLOADS] DEVICE [HOST]");

	rc_open(&source.dev, argv[0]);
	ret = ibmkey_enable(source.dev.ctx);
	if (ret)
		die(ret, "ibmkey_enable");
	if (argc == 1)
		run_source(&source, payloads);
	else
		run_destination(&source.dev, argv[1]);
	rc_close(&source.dev);
	return 0;
}
