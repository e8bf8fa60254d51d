// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Lets the remote side write a message, which consists of a header and a payload, by one
 * request into two buffers. The remote side needs to know one rkey only.
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

int main(int argc, char **argv)
{
	struct ibv_mr *message_mr, *key;
	struct rc_conn pair[2];
	struct rc_dev dev;

	message.header.type = 7;
	message.header.length = sizeof(message.payload);
	for (size_t i = 0; i < sizeof(message.payload); i++)
		message.payload[i] = i * 31 + i / 256;

	rc_open(&dev, argc > 1 ? argv[1] : NULL);
	rc_create_loop(pair, &dev);

	const struct iovec parts[] = {
		{ &header, sizeof(header) },
		{ payload, sizeof(payload) },
	};
	key = ibmkey_reg_iov(dev.pd, parts, 2, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!key)
		err(1, "ibmkey_reg_iov: %s", ibmkey_last_error());

	/* The remote side knows one rkey, and not the two buffers. */
	message_mr = rc_reg(&dev, &message, sizeof(message), 0);
	rc_transfer(&pair[1], IBV_WR_RDMA_WRITE, ibmkey_sge(message_mr), 0, key->rkey);

	if (memcmp(&header, &message.header, sizeof(header)) ||
	    memcmp(payload, message.payload, sizeof(payload)))
		errx(1, "the received message differs from the one that was sent");

	if (ibmkey_dereg(key))	/* and the MRs under it */
		errx(1, "ibmkey_dereg: %s", ibmkey_last_error());
	rc_dereg(message_mr);
	rc_destroy_loop(pair);
	rc_close(&dev);
	printf("a header of %zu bytes and a payload of %u in one write\n",
	       sizeof(header), header.length);
	return 0;
}
