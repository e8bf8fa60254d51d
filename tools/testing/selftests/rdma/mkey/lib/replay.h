/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Records RoCE v2 packets and sends them again, as a peer that does not use verbs could. Also sends
 * packets that rxe itself would not send, made from one that it has sent.
 */
#ifndef MKEY_TEST_REPLAY_H
#define MKEY_TEST_REPLAY_H

#include <stddef.h>
#include <stdint.h>

#include <linux/if_packet.h>

#include "mkey_test.h"

/* opcodes of RC, IBTA vol. 1, table 38 and annex A19 */
#define MKT_BTH_WRITE_FIRST 0x06
#define MKT_BTH_WRITE_MIDDLE 0x07
#define MKT_BTH_WRITE_LAST 0x08
#define MKT_BTH_WRITE_ONLY 0x0a
#define MKT_BTH_READ_REQUEST 0x0c
#define MKT_BTH_READ_RESPONSE_FIRST 0x0d
#define MKT_BTH_READ_RESPONSE_ONLY 0x10
#define MKT_BTH_ACKNOWLEDGE 0x11
#define MKT_BTH_FLUSH 0x1c
#define MKT_BTH_ATOMIC_WRITE 0x1d

struct mkt_replay {
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

/* syndromes of an AETH; those of all acknowledgments are below MKT_NAK */
#define MKT_NAK 0x60
#define MKT_NAK_INVALID_REQUEST 0x61
#define MKT_NAK_REMOTE_ACCESS 0x62

struct mkt_forged {
	uint8_t opcode;
	uint32_t psn;		/* after that of the recorded packet */
	/* a RETH, unless the opcode has none */
	uint64_t va;
	uint32_t rkey;
	uint32_t length;
	/* a FETH before the RETH, for a FLUSH */
	uint32_t feth;
	/* bytes of data, all of them @value */
	size_t payload;
	uint8_t value;
};

/*
 * Sends the packet @forged to the receiver of the packet that was recorded last. The
 * header of the network is that of the recorded packet, and so is the queue pair.
 */
int mkt_forge_send(struct mkt_replay *replay, const struct mkt_forged *forged);
/*
 * Waits for an answer to PSN @psn, counted as above. Returns its syndrome, or -1 if
 * there is none. Sets @opcode.
 */
int mkt_forge_answer(struct mkt_replay *replay, uint32_t psn, uint8_t *opcode);

#endif /* MKEY_TEST_REPLAY_H */
