// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Lets the remote side write a message, which consists of a header and a payload, by one
 * request into two buffers with separate MRs. The remote side needs to know one rkey
 * only.
 *
 * usage: header_payload [DEVICE]
 */
#include <err.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "rc.h"

struct header {
	uint32_t type;
	uint32_t length;
};

static struct {
	struct header header;
	char payload[100000];
} message;

static struct header header;
static char payload[sizeof(message.payload)];

/*
 * Makes a key that has the bytes of the header, and then those of the payload.
 */
static struct ibv_mr *message_key(struct rc_dev *dev, struct ibv_mr *header_mr,
				  struct ibv_mr *payload_mr, unsigned int access)
{
	struct ibmkey_range parts[] = {
		{
			.addr = (uintptr_t)&header,
			.length = sizeof(header),
			.lkey = header_mr->lkey,
		},
		{
			.addr = (uintptr_t)payload,
			.length = sizeof(payload),
			.lkey = payload_mr->lkey,
		},
	};
	struct ibv_mr *key = ibmkey_alloc(dev->pd, 2);
	int ret;

	if (!key)
		err(1, "ibmkey_alloc");
	ret = ibmkey_bind_list(key, access, 2, parts);
	if (ret)
		die(ret, "ibmkey_bind_list: %s", ibmkey_last_error());
	return key;
}

/* Does the remote side's part. It knows one rkey, and not the two buffers. */
static void write_message(struct rc_conn *conn, struct ibv_mr *from, uint32_t rkey)
{
	struct ibv_sge all = {
		.addr = (uintptr_t)&message,
		.length = sizeof(message),
		.lkey = from->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &all,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = 0, .rkey = rkey },
	};

	rc_post(conn, &wr);
	rc_wait(conn);
}

int main(int argc, char **argv)
{
	const unsigned int access = IBV_ACCESS_LOCAL_WRITE |
				    IBV_ACCESS_REMOTE_WRITE;
	struct ibv_mr *header_mr, *payload_mr, *message_mr, *key;
	struct rc_conn pair[2];
	struct rc_dev dev;

	message.header.type = 7;
	message.header.length = sizeof(message.payload);
	for (size_t i = 0; i < sizeof(message.payload); i++)
		message.payload[i] = i * 31 + i / 256;

	rc_open(&dev, argc > 1 ? argv[1] : NULL);
	rc_create_loop(pair, &dev);

	/* A key can allow what all of its leaves allow, and no more. */
	header_mr = rc_reg(&dev, &header, sizeof(header), access);
	payload_mr = rc_reg(&dev, payload, sizeof(payload), access);
	key = message_key(&dev, header_mr, payload_mr, access);

	message_mr = rc_reg(&dev, &message, sizeof(message), 0);
	write_message(&pair[1], message_mr, key->rkey);

	if (memcmp(&header, &message.header, sizeof(header)) ||
	    memcmp(payload, message.payload, sizeof(payload)))
		errx(1, "the received message differs from the one that was sent");

	/* Deregister the key first: an MR cannot be deregistered while a key describes it. */
	rc_dereg(key);
	rc_dereg(header_mr);
	rc_dereg(payload_mr);
	rc_dereg(message_mr);
	rc_destroy_loop(pair);
	rc_close(&dev);
	printf("a header of %zu bytes and a payload of %u in one write\n",
	       sizeof(header), header.length);
	return 0;
}
