/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Records RoCE v2 packets and sends them again, as a peer that does not use
 * verbs could.
 */
#ifndef MKEY_TEST_REPLAY_H
#define MKEY_TEST_REPLAY_H

#include <stddef.h>
#include <stdint.h>

#include <linux/if_packet.h>

#include "mkey_test.h"

/* opcodes of RC, IBTA vol. 1, table 38 */
#define MKT_BTH_READ_REQUEST 0x0c
#define MKT_BTH_READ_RESPONSE_FIRST 0x0d
#define MKT_BTH_READ_RESPONSE_ONLY 0x10

struct mkt_replay {
	const struct mkt_dev *dev;
	int fd;
	struct sockaddr_ll to;
	uint8_t packet[9000];
	size_t length;
};

/* records packets of the network interface of @dev, on the machine of @dev */
int mkt_replay_open(struct mkt_replay *replay, const struct mkt_dev *dev);
/* takes the last packet that @dev sent with @opcode; ENOENT if there is none */
int mkt_replay_find(struct mkt_replay *replay, uint8_t opcode);
/*
 * Sends the packet again. Counts the READ responses of the following half
 * second whose payload has @length bytes and all bytes are @value.
 */
unsigned int mkt_replay_send(struct mkt_replay *replay, uint8_t value,
			     size_t length);
void mkt_replay_close(struct mkt_replay *replay);

#endif /* MKEY_TEST_REPLAY_H */
