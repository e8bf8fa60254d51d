/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Packets of RoCE v2 as they are on the wire: seen, and sent again as a peer
 * would that has no verbs to obey.
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
	int fd;
	struct sockaddr_ll to;
	uint8_t packet[9000];
	size_t length;
};

/* watches the network interface that @dev uses */
int mkt_replay_open(struct mkt_replay *replay, const struct mkt_dev *dev);
/* takes the last packet that @dev sent with @opcode; ENOENT for none */
int mkt_replay_find(struct mkt_replay *replay, uint8_t opcode);
/*
 * Sends the packet again. Returns how many READ responses came back in the
 * following half second whose @length bytes of payload are all @value.
 */
unsigned int mkt_replay_send(struct mkt_replay *replay, uint8_t value,
			     size_t length);
void mkt_replay_close(struct mkt_replay *replay);

#endif /* MKEY_TEST_REPLAY_H */
