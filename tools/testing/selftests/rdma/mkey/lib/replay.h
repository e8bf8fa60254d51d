/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Records RoCE v2 packets and sends them again, as a peer that does not use verbs could. Also sends
 * packets that rxe itself would not send, made from one that it has sent.
 */
#ifndef MKEY_TEST_REPLAY_H
#define MKEY_TEST_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/if_packet.h>

#include "mkey_test.h"

/* opcodes of RC, IBTA vol. 1, table 38 and annex A19 */
#define MKT_BTH_SEND_FIRST 0x00
#define MKT_BTH_SEND_MIDDLE 0x01
#define MKT_BTH_SEND_LAST 0x02
#define MKT_BTH_SEND_ONLY 0x04
#define MKT_BTH_WRITE_FIRST 0x06
#define MKT_BTH_WRITE_MIDDLE 0x07
#define MKT_BTH_WRITE_LAST 0x08
#define MKT_BTH_WRITE_ONLY 0x0a
#define MKT_BTH_READ_REQUEST 0x0c
#define MKT_BTH_READ_RESPONSE_FIRST 0x0d
#define MKT_BTH_READ_RESPONSE_MIDDLE 0x0e
#define MKT_BTH_READ_RESPONSE_LAST 0x0f
#define MKT_BTH_READ_RESPONSE_ONLY 0x10
#define MKT_BTH_ACKNOWLEDGE 0x11
#define MKT_BTH_ATOMIC_ACKNOWLEDGE 0x12
#define MKT_BTH_CMP_SWAP 0x13
#define MKT_BTH_FETCH_ADD 0x14
#define MKT_BTH_SEND_LAST_INV 0x16
#define MKT_BTH_SEND_ONLY_INV 0x17
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

/* a packet with any headers, which need not fit its opcode */
struct mkt_packet {
	uint8_t opcode;
	uint8_t flags;		/* SE, M and TVer, beside the pad count */
	uint8_t more_pad;	/* is added to the pad count */
	uint32_t qp_num;	/* 0: that of the recorded packet */
	uint32_t psn;
	uint8_t ext[32];	/* what follows the BTH */
	unsigned int ext_length;
	size_t payload;
	uint8_t value;
	bool broken;		/* the ICRC is wrong */
};

/* the PSN of the recorded packet */
uint32_t mkt_packet_psn(const struct mkt_replay *replay);
int mkt_packet_send(struct mkt_replay *replay, const struct mkt_packet *packet);
/* writes the low @bytes bytes of @value in the order of the network */
void mkt_packet_put(uint8_t *at, uint64_t value, unsigned int bytes);

struct mkt_answer {
	uint8_t opcode;
	uint8_t syndrome;	/* if the opcode has an AETH */
	uint32_t psn;
	size_t length;		/* of the data of a READ or of an atomic operation */
	uint8_t data[4200];
};

/* from now on, packets that the device sends are not recorded, and answers have much room */
int mkt_answers_only(struct mkt_replay *replay);
/* receives an answer to the recorded queue pair within @timeout ms; false if there is none */
bool mkt_answer_next(struct mkt_replay *replay, struct mkt_answer *answer, int timeout);

/* not 0 if the kernel has printed a warning: bit 9 of its taint */
unsigned long mkt_tainted(void);

#endif /* MKEY_TEST_REPLAY_H */
