// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A peer that forges its packets: any opcode, PSN, rkey, address, length, headers and
 * data, repeats and fragments, to MRs, keys, windows, device memory and memory on demand. Meanwhile
 * keys are bound to other memory, and MRs are registered again, over other memory, with other flags
 * or in another PD. No byte is returned or changed without a right to it, and the queue pair works
 * afterwards or is in ERR. MKEY_TEST_SECONDS=n or MKEY_TEST_PACKETS=n: for so long.
 * sets: first smp
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "mkey_harness.h"
#include "raw.h"
#include "replay.h"

/*
 * The oracle: bit 7 of each byte that the peer may not read is set, and bit 7 of each byte that it
 * may read is clear. All bytes that it sends have a clear bit 7. So a set bit 7 in an answer is a
 * byte without a right, at whatever time the answer was made.
 */
#define SECRET 0x80
#define PUBLIC 0x11

#define MTU 1024
#define SLOT 4096
#define HOST_SLOTS 14
#define DM_SLOTS 2
#define BYTES ((HOST_SLOTS + DM_SLOTS) * SLOT)
#define DM_AT (HOST_SLOTS * SLOT)
#define HANG_SECONDS 60
#define RECENT 64

enum right { NONE, READ = 1, WRITE = 2 };

/* what an rkey is of; the slots are those of @base */
enum object {
	ALL_RIGHTS, READ_ONLY, WRITE_ONLY, KEY, WINDOW, RENEWED, REREG, ON_DEMAND, DEVICE,
	FOREIGN, LOCAL, UNBOUND, GONE, NUM_OBJECTS,
};

/* LOCAL is over all slots; the peer has no right to it */
#define REREG_OTHER LOCAL

static const unsigned int slot_of[NUM_OBJECTS] = { 0, 1, 2, 3, 5, 7, 8, 9, HOST_SLOTS, 11, 12 };

struct wire_object {
	uint32_t rkey;
	uint64_t addr;
	uint64_t length;
};

FIXTURE(wire)
{
	struct mkt_setup s;
	struct mkt_replay replay;
	struct mkt_answer answer;
	uint8_t *host, *dm;
	struct ibv_dm *buffer;
	struct ibv_pd *foreign;
	struct ibv_mr *mr[NUM_OBJECTS];
	struct ibv_mr *under;		/* the key under the window */
	struct ibv_mw *mw;
	struct wire_object object[NUM_OBJECTS];
	/* for each byte: bits by which it may change, bits that are clear, what it was */
	uint64_t may_change[BYTES / 8], clear[BYTES / 8], was[BYTES / 8];
	uint32_t psn;			/* what side 1 expects, as far as known */
	uint32_t left;			/* of a message whose first packets were sent */
	bool sending;			/* it is a SEND */
	struct mkt_packet recent[RECENT];
	unsigned long long packets, answers, data, errors, changes;
	unsigned long tainted;
};

static volatile uint64_t *wire_word(FIXTURE_DATA(wire) *self, unsigned int w)
{
	return w < DM_AT / 8 ? (volatile uint64_t *)self->host + w :
			       (volatile uint64_t *)self->dm + w - DM_AT / 8;
}

/* EBADMSG if a byte has changed that may not change */
static int wire_check(FIXTURE_DATA(wire) *self)
{
	unsigned int w;

	for (w = 0; w < BYTES / 8; w++) {
		uint64_t now = *wire_word(self, w);

		if ((now ^ self->was[w]) & ~self->may_change[w]) {
			mkt_diag("slot %u, byte 0x%x: %016" PRIx64 " instead of %016" PRIx64,
				 w * 8 / SLOT, w * 8 % SLOT, now, self->was[w]);
			return EBADMSG;
		}
	}
	return 0;
}

/* sets bit 7 of all bytes by their rights, and remembers all bytes */
static void wire_settle(FIXTURE_DATA(wire) *self)
{
	const uint64_t secret = SECRET * 0x0101010101010101ull;
	unsigned int w;

	for (w = 0; w < BYTES / 8; w++) {
		volatile uint64_t *word = wire_word(self, w);
		uint64_t now = *word, wanted = (now | secret) & ~self->clear[w];

		/* a WRITE may come between, but not to a byte that it may not change */
		if (now != wanted)
			*word = wanted;
		self->was[w] = wanted;
	}
}

/* gives or takes rights to @num blocks of @bytes bytes, from byte @at on */
static void wire_rights(FIXTURE_DATA(wire) *self, unsigned int at, unsigned int bytes,
			unsigned int stride, unsigned int num, enum right rights, bool take)
{
	uint8_t *change = (uint8_t *)self->may_change, *clear = (uint8_t *)self->clear;
	unsigned int b, i;

	for (b = 0; b < num; b++)
		for (i = at + b * stride; i < at + b * stride + bytes; i++) {
			change[i] = rights & WRITE ? 0xff : take ? 0 : change[i];
			clear[i] = rights & READ ? SECRET : take ? 0 : clear[i];
		}
}

static unsigned int wire_access(enum right rights)
{
	return IBV_ACCESS_LOCAL_WRITE | (rights & READ ? IBV_ACCESS_REMOTE_READ : 0) |
	       (rights & WRITE ? IBV_ACCESS_REMOTE_WRITE : 0) |
	       /* an atomic operation returns what it has read */
	       (rights == (READ | WRITE) ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

/* takes all rights to the slots of @object and gives new ones to some bytes */
static int wire_settled(FIXTURE_DATA(wire) *self, enum object object, unsigned int num_slots,
			unsigned int at, unsigned int bytes, unsigned int stride,
			unsigned int num, enum right rights)
{
	int err = wire_check(self);

	wire_rights(self, slot_of[object] * SLOT, SLOT, SLOT, num_slots, NONE, true);
	wire_rights(self, slot_of[object] * SLOT + at, bytes, stride, num, rights, false);
	wire_settle(self);
	self->changes++;
	return err;
}

static enum right wire_draw_rights(FIXTURE_DATA(wire) *self)
{
	return mkt_between(&self->s.rng, 0, 3) ? mkt_between(&self->s.rng, 1, 3) : NONE;
}

static void wire_name(FIXTURE_DATA(wire) *self, enum object object, uint32_t rkey, uint64_t addr,
		      uint64_t length)
{
	self->object[object] = (struct wire_object){ rkey, addr, length };
}

/* gives the key other bytes, while packets are on their way */
static int wire_bind_key(FIXTURE_DATA(wire) *self)
{
	unsigned int bytes = 8 << mkt_between(&self->s.rng, 0, 5), stride = 2 * bytes;
	unsigned int at = mkt_between(&self->s.rng, 0, 3) * SLOT / 2 +
			  mkt_between(&self->s.rng, 0, 1) * bytes;
	unsigned int num = SLOT / 2 / stride;
	enum right rights = wire_draw_rights(self);
	struct ibv_mr *key = self->mr[KEY], *leaf = self->mr[LOCAL];
	uint64_t from = (uintptr_t)self->host + slot_of[KEY] * SLOT + at;
	int err = 0;

	if (!mkt_between(&self->s.rng, 0, 2))
		err = ibmkey_unbind(key);
	/* an access may read the bytes before the bind returns */
	wire_rights(self, slot_of[KEY] * SLOT + at, bytes, stride, num, rights, false);
	err = err ?: wire_check(self);
	wire_settle(self);
	err = err ?: mkt_bind_strided(key, wire_access(rights), leaf, from, bytes, stride, num);
	wire_name(self, KEY, key->rkey, 0, num * bytes);
	return err ?: wire_settled(self, KEY, 2, at, bytes, stride, num, rights);
}

/* binds a window to other bytes of the key under it; nothing is on its way */
static int wire_bind_window(FIXTURE_DATA(wire) *self)
{
	unsigned int at = mkt_between(&self->s.rng, 0, SLOT) & ~7u;
	unsigned int length = mkt_between(&self->s.rng, 1, SLOT - 8);
	enum right rights = wire_draw_rights(self);
	struct mkt_qp *owner = &self->s.pair.end[1];
	struct mkt_wr invalidate = { .op = MKT_LOCAL_INV, .rkey = self->mw ? self->mw->rkey : 0 };
	struct ibv_wc wc;
	int err = 0;

	/* a SEND may have invalidated it, which ends the queue pair here */
	if (self->mw && mkt_between(&self->s.rng, 0, 1)) {
		err = mkt_post_send(owner, &invalidate, 0) ?: mkt_poll(owner, &wc);
		if (!err && wc.status != IBV_WC_SUCCESS)
			err = mkt_pair_recover(&self->s.pair);
	}
	if (self->mw)
		err = ibv_dealloc_mw(self->mw) ?: err;
	self->mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	if (err || !self->mw)
		return err ?: errno;
	wire_rights(self, slot_of[WINDOW] * SLOT + at, length, 0, 1, rights, false);
	err = wire_check(self);
	wire_settle(self);
	err = err ?: mkt_bind_window(owner, self->mw, self->under, at, length,
				     wire_access(rights) & ~IBV_ACCESS_LOCAL_WRITE);
	wire_name(self, WINDOW, self->mw->rkey, at, length);
	return err ?: wire_settled(self, WINDOW, 2, at, length, 0, 1, rights);
}

/*
 * registers an MR again, over the other one of two slots, with other access flags or in a PD in
 * which the peer has no right, while packets are on their way
 */
static int wire_rereg(FIXTURE_DATA(wire) *self)
{
	const uint32_t what = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS |
			      IBV_REREG_MR_CHANGE_PD;
	bool foreign = !mkt_between(&self->s.rng, 0, 3), other = mkt_between(&self->s.rng, 0, 1);
	struct ibv_pd *pd = foreign ? self->foreign : self->s.dev[1].pd;
	enum right flags = wire_draw_rights(self), rights = foreign ? NONE : flags;
	unsigned int at = slot_of[other ? REREG_OTHER : REREG] * SLOT;
	int err = wire_check(self);

	wire_rights(self, at, SLOT, 0, 1, rights, false);
	wire_settle(self);
	/* an access in progress prevents it */
	if (!err)
		mkt_until((err = mkt_raw_rereg_to(self->mr[REREG], what, pd, wire_access(flags),
						  self->host + at, SLOT,
						  self->object[REREG].addr)) != EBUSY);
	err = err ?: wire_check(self);
	wire_rights(self, slot_of[REREG] * SLOT, SLOT, 0, 1, NONE, true);
	wire_rights(self, slot_of[REREG_OTHER] * SLOT, SLOT, 0, 1, NONE, true);
	wire_rights(self, at, SLOT, 0, 1, rights, false);
	wire_settle(self);
	self->changes++;
	return err;
}

/* registers memory again, so that its rkey before is that of no MR */
static int wire_renew(FIXTURE_DATA(wire) *self)
{
	struct ibv_mr *before = self->mr[RENEWED];
	uint8_t *at = self->host + slot_of[RENEWED] * SLOT;
	enum right rights = wire_draw_rights(self);
	int err = before ? ibv_dereg_mr(before) : 0;

	if (before)
		self->object[GONE] = self->object[RENEWED];
	err = err ?: wire_settled(self, RENEWED, 1, 0, SLOT, 0, 1, rights);
	self->mr[RENEWED] = ibv_reg_mr(self->s.dev[1].pd, at, SLOT, wire_access(rights));
	if (err || !self->mr[RENEWED])
		return err ?: errno;
	wire_name(self, RENEWED, self->mr[RENEWED]->rkey, (uintptr_t)at, SLOT);
	return 0;
}

static int wire_register(FIXTURE_DATA(wire) *self, enum object object, struct ibv_pd *pd,
			 unsigned int access, unsigned int num_slots, enum right rights)
{
	uint8_t *at = self->host + slot_of[object] * SLOT;

	self->mr[object] = ibv_reg_mr(pd, at, num_slots * SLOT, access);
	if (!self->mr[object])
		return errno;
	wire_name(self, object, self->mr[object]->rkey, (uintptr_t)at, num_slots * SLOT);
	wire_rights(self, slot_of[object] * SLOT, num_slots * SLOT, 0, 1, rights, true);
	return 0;
}

static int wire_objects(FIXTURE_DATA(wire) *self)
{
	const unsigned int all = wire_access(READ | WRITE);
	struct ibv_pd *pd = self->s.dev[1].pd;
	struct ibv_mr *local;
	int err;

	/* keys are over all of the memory */
	local = ibv_reg_mr(pd, self->host, DM_AT, IBV_ACCESS_LOCAL_WRITE);
	self->mr[LOCAL] = local;
	if (!local)
		return errno;
	wire_name(self, LOCAL, local->rkey, (uintptr_t)self->host, DM_AT);
	err = wire_register(self, ALL_RIGHTS, pd, all, 1, READ | WRITE);
	err = err ?: wire_register(self, READ_ONLY, pd, wire_access(READ), 1, READ);
	err = err ?: wire_register(self, WRITE_ONLY, pd, wire_access(WRITE), 1, WRITE);
	err = err ?: wire_register(self, REREG, pd, all, 1, READ | WRITE);
	err = err ?: wire_register(self, ON_DEMAND, pd, all | IBV_ACCESS_ON_DEMAND, 2,
				   READ | WRITE);
	err = err ?: wire_register(self, FOREIGN, self->foreign, all, 1, NONE);
	if (err)
		return err;
	self->mr[DEVICE] = ibv_reg_dm_mr(pd, self->buffer, 1000, SLOT,
					 all | IBV_ACCESS_ZERO_BASED);
	self->mr[KEY] = ibmkey_alloc(pd, 1);
	self->mr[UNBOUND] = ibmkey_alloc(pd, 1);
	self->under = ibmkey_alloc(pd, 1);
	if (!self->mr[DEVICE] || !self->mr[KEY] || !self->mr[UNBOUND] || !self->under)
		return errno;
	wire_name(self, DEVICE, self->mr[DEVICE]->rkey, 0, SLOT);
	wire_name(self, UNBOUND, self->mr[UNBOUND]->rkey, 0, SLOT);
	wire_rights(self, DM_AT + 1000, SLOT, 0, 1, READ | WRITE, true);
	return mkt_bind_range(self->under, all | IBV_ACCESS_MW_BIND, local,
			      (uintptr_t)self->host + slot_of[WINDOW] * SLOT, 2 * SLOT);
}

/* reads all answers; EBADMSG if one has a byte that the peer may not read */
static int wire_answers(FIXTURE_DATA(wire) *self, int timeout, uint32_t psn, uint8_t opcode,
			bool *answered)
{
	struct mkt_answer *answer = &self->answer;
	size_t i;

	while (mkt_answer_next(&self->replay, answer, timeout)) {
		self->answers++;
		self->data += answer->length;
		for (i = 0; i < answer->length; i++)
			if (answer->data[i] & SECRET) {
				mkt_diag("opcode 0x%x, PSN 0x%x: byte %zu is 0x%x",
					 answer->opcode, answer->psn, i, answer->data[i]);
				return EBADMSG;
			}
		if (answered && answer->psn == psn && answer->opcode == opcode &&
		    answer->syndrome < MKT_NAK) {
			*answered = true;
			return 0;
		}
	}
	return 0;
}

/* connects the queue pairs again, and lets side 1 receive and read */
static int wire_recover(FIXTURE_DATA(wire) *self)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)self->host + 13 * SLOT,
		.length = SLOT / 2,
		.lkey = self->mr[LOCAL]->lkey,
	};
	struct mkt_wr read = {
		.op = MKT_READ,
		.sge = { sge },
		.num_sge = 1,
		.remote_addr = self->s.plain[0].addr,
		.rkey = self->s.plain[0].mr->rkey,
	};
	unsigned int i;
	int err = mkt_pair_recover(&self->s.pair);

	for (i = 0; i < 16 && !err; i++)
		err = mkt_post_recv(&self->s.pair.end[1], &sge, 1, i);
	if (!err && !mkt_between(&self->s.rng, 0, 3))
		err = mkt_post_send(&self->s.pair.end[1], &read, 100);
	self->psn = self->s.pair.end[0].psn;
	self->left = 0;
	self->errors++;
	return err;
}

/*
 * Waits until all packets were processed: until side 1 answers one more, a READ of eight bytes with
 * the right PSN, or is in ERR. Then it can be used again.
 */
static int wire_drain(FIXTURE_DATA(wire) *self)
{
	const struct wire_object *object = &self->object[READ_ONLY];
	struct mkt_packet read = { .opcode = MKT_BTH_READ_REQUEST, .ext_length = 16 };
	double end = mkt_seconds() + HANG_SECONDS;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	bool answered = false;
	int err;

	mkt_packet_put(read.ext, object->addr, 8);
	mkt_packet_put(read.ext + 8, object->rkey, 4);
	mkt_packet_put(read.ext + 12, 8, 4);
	do {
		err = ibv_query_qp(self->s.pair.end[1].qp, &attr, IBV_QP_STATE | IBV_QP_RQ_PSN,
				   &init);
		if (err || attr.qp_state == IBV_QPS_ERR)
			return err ?: wire_answers(self, 0, 0, 0, NULL) ?: wire_recover(self);
		if (attr.qp_state != IBV_QPS_RTS) {
			mkt_diag("the queue pair is in state %d", attr.qp_state);
			return EIO;
		}
		read.psn = attr.rq_psn;
		err = mkt_packet_send(&self->replay, &read) ?:
		      wire_answers(self, 2, read.psn, MKT_BTH_READ_RESPONSE_ONLY, &answered);
		if (!err && answered) {
			self->psn = (read.psn + 1) & 0xffffff;
			self->left = 0;
			return 0;
		}
	} while (!err && mkt_seconds() < end);
	mkt_diag("the queue pair is in RTS and does not answer PSN 0x%x", read.psn);
	return err ?: ETIMEDOUT;
}

/* sets the RETH of a request to a random part of a random object; returns its length */
static uint32_t wire_reth(FIXTURE_DATA(wire) *self, struct mkt_packet *packet, unsigned int skip)
{
	struct mkt_rng *rng = &self->s.rng;
	/* often one that has all rights, so that the packets that follow are executed */
	static const enum object usual[] = { KEY, WINDOW, RENEWED, REREG, ON_DEMAND, DEVICE,
					     ALL_RIGHTS };
	enum object any = mkt_between(rng, 0, mkt_between(rng, 0, 15) ? DEVICE : NUM_OBJECTS - 1);
	const struct wire_object *object =
		&self->object[mkt_between(rng, 0, 7) ? usual[mkt_between(rng, 0, 6)] : any];
	uint32_t length = mkt_rand_size(rng, object->length ?: 1);
	uint64_t at = object->length ? mkt_between(rng, 0, object->length - length) : 0;
	uint32_t rkey = object->rkey;

	switch (mkt_between(rng, 0, 47)) {
	case 0:		/* beyond an end by a few bytes */
		at = mkt_between(rng, 0, 1) ? object->length - length + mkt_between(rng, 1, 9) :
					      0 - mkt_between(rng, 1, 9);
		break;
	case 1:
		at = mkt_rand(rng) >> mkt_between(rng, 0, 63);
		break;
	case 2:
		length = mkt_between(rng, 0, 1) ? mkt_rand(rng) : 1u << mkt_between(rng, 12, 31);
		break;
	case 3:		/* the key portion */
		rkey ^= mkt_between(rng, 1, 255);
		break;
	case 4:
		rkey = mkt_rand(rng) >> mkt_between(rng, 0, 31);
		break;
	}
	mkt_packet_put(packet->ext + skip, object->addr + at, 8);
	mkt_packet_put(packet->ext + skip + 8, rkey, 4);
	mkt_packet_put(packet->ext + skip + 12, length, 4);
	packet->ext_length = skip + 16;
	return length;
}

static uint32_t wire_min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* the next packet of a message, if side 1 takes all before; returns the number of its PSNs */
static unsigned int wire_next(FIXTURE_DATA(wire) *self, struct mkt_packet *packet)
{
	struct mkt_rng *rng = &self->s.rng;
	uint32_t length;

	memset(packet, 0, sizeof(*packet));
	packet->psn = self->psn;
	packet->value = mkt_between(rng, 0, 3) ? PUBLIC : mkt_between(rng, 0, 0x7f);
	if (self->left) {
		bool last = self->left <= MTU;

		packet->opcode = self->sending ?
				 last ? MKT_BTH_SEND_LAST : MKT_BTH_SEND_MIDDLE :
				 last ? MKT_BTH_WRITE_LAST : MKT_BTH_WRITE_MIDDLE;
		packet->payload = wire_min(self->left, MTU);
		self->left -= packet->payload;
		return 1;
	}
	switch (mkt_between(rng, 0, 9)) {
	case 0:
		self->sending = true;
		length = mkt_between(rng, 0, SLOT / 2);
		packet->opcode = length > MTU ? MKT_BTH_SEND_FIRST : MKT_BTH_SEND_ONLY;
		packet->payload = wire_min(length, MTU);
		self->left = length - packet->payload;
		return 1;
	case 1:
		packet->opcode = mkt_between(rng, 0, 1) ? MKT_BTH_CMP_SWAP : MKT_BTH_FETCH_ADD;
		wire_reth(self, packet, 0);
		/* eight-byte words; the sum has no carry, because 0 is added */
		packet->ext[7] &= ~7;
		memset(packet->ext + 12, packet->opcode == MKT_BTH_CMP_SWAP ? PUBLIC : 0, 16);
		packet->ext[12] ^= packet->opcode == MKT_BTH_CMP_SWAP;
		packet->ext_length = 28;
		return 1;
	case 2:
		packet->opcode = mkt_between(rng, 0, 7) ? MKT_BTH_ATOMIC_WRITE : MKT_BTH_FLUSH;
		wire_reth(self, packet, packet->opcode == MKT_BTH_FLUSH ? 4 : 0);
		if (packet->opcode == MKT_BTH_FLUSH) {
			packet->ext[3] = mkt_between(rng, 0, 0x33);
			return 1;
		}
		packet->ext[7] &= ~7;
		mkt_packet_put(packet->ext + 12, 8, 4);
		packet->payload = 8;
		return 1;
	case 3:
		if (mkt_between(rng, 0, 7))
			break;
		packet->opcode = MKT_BTH_SEND_ONLY_INV;
		packet->ext_length = 4;
		mkt_packet_put(packet->ext,
			       self->object[mkt_between(rng, 0, NUM_OBJECTS - 1)].rkey, 4);
		return 1;
	case 4 ... 6:
		length = wire_reth(self, packet, 0);
		packet->opcode = MKT_BTH_READ_REQUEST;
		return length ? (length + MTU - 1) / MTU : 1;
	}
	length = wire_reth(self, packet, 0);
	self->sending = false;
	packet->opcode = length > MTU ? MKT_BTH_WRITE_FIRST : MKT_BTH_WRITE_ONLY;
	packet->payload = wire_min(length, MTU);
	self->left = wire_min(length - packet->payload, 2 * SLOT);
	return 1;
}

/* makes one thing of a packet wrong */
static void wire_spoil(FIXTURE_DATA(wire) *self, struct mkt_packet *packet)
{
	struct mkt_rng *rng = &self->s.rng;

	switch (mkt_between(rng, 0, 8)) {
	case 0:
		packet->opcode = mkt_between(rng, 0, 3) ? mkt_between(rng, 0, 0x1f) : mkt_rand(rng);
		break;
	case 1:
		packet->psn = (packet->psn + mkt_between(rng, 0, 40) - 20) & 0xffffff;
		break;
	case 2:		/* as an answer to a request of side 1 */
		packet->opcode = mkt_between(rng, MKT_BTH_READ_RESPONSE_FIRST,
					     MKT_BTH_ATOMIC_ACKNOWLEDGE);
		packet->psn = self->s.pair.end[1].psn + mkt_between(rng, 0, 3);
		packet->ext_length = 4;
		packet->ext[0] = mkt_between(rng, 0, 0x7f);
		break;
	case 3:
		packet->payload = mkt_between(rng, 0, 2 * MTU);
		break;
	case 4:
		packet->ext_length = mkt_between(rng, 0, sizeof(packet->ext));
		break;
	case 5:
		packet->ext[mkt_between(rng, 0, 27)] ^= 1 << mkt_between(rng, 0, 7);
		break;
	case 6:
		packet->more_pad = mkt_between(rng, 1, 3);
		packet->flags = mkt_rand(rng) & ~0x30;
		break;
	case 7:
		packet->qp_num = mkt_between(rng, 0, 64);
		break;
	default:
		packet->broken = true;
	}
}

/* clears bit 7 of headers that are data for this opcode; a sum could set it again */
static void wire_keep_clear(struct mkt_packet *packet)
{
	bool no_header = packet->opcode >= MKT_BTH_WRITE_MIDDLE &&
			 packet->opcode < MKT_BTH_WRITE_ONLY;
	unsigned int i;

	for (i = 0; i < sizeof(packet->ext); i++)
		if (no_header || (packet->opcode == MKT_BTH_CMP_SWAP && i >= 12 && i < 20))
			packet->ext[i] &= 0x7f;
	if (packet->opcode != MKT_BTH_FETCH_ADD)
		return;
	memset(packet->ext + 12, 0, 8);
	/* the payload would be the sum */
	if (packet->ext_length < 28)
		packet->payload = 0;
}

static int wire_burst(FIXTURE_DATA(wire) *self)
{
	unsigned int num = mkt_between(&self->s.rng, 1, 32), i;
	int err = 0;

	for (i = 0; i < num && !err; i++) {
		struct mkt_packet *packet = &self->recent[self->packets % RECENT];

		if (mkt_between(&self->s.rng, 0, 9)) {
			unsigned int psns = wire_next(self, packet);

			if (mkt_between(&self->s.rng, 0, 31))
				self->psn = (self->psn + psns) & 0xffffff;
			else
				wire_spoil(self, packet);
		} else {
			*packet = self->recent[mkt_between(&self->s.rng, 0, RECENT - 1)];
		}
		wire_keep_clear(packet);
		err = mkt_packet_send(&self->replay, packet);
		self->packets++;
	}
	return err ?: wire_answers(self, 0, 0, 0, NULL);
}

/* connects the queue pair again if it is in ERR; other packets may be on their way */
static int wire_revive(FIXTURE_DATA(wire) *self)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err = ibv_query_qp(self->s.pair.end[1].qp, &attr, IBV_QP_STATE, &init);

	return err || attr.qp_state != IBV_QPS_ERR ? err : wire_recover(self);
}

/* changes the rights to some bytes */
static int wire_change(FIXTURE_DATA(wire) *self)
{
	int err;

	if (mkt_between(&self->s.rng, 0, 1))
		return mkt_between(&self->s.rng, 0, 2) ? wire_bind_key(self) : wire_rereg(self);
	err = wire_drain(self);
	switch (mkt_between(&self->s.rng, 0, 2)) {
	case 0:
		/* without the completions of side 1 until now */
		return err ?: mkt_pair_recover(&self->s.pair) ?: wire_bind_window(self) ?:
		       wire_recover(self);
	case 1:
		return err ?: wire_renew(self);
	default:
		/* the memory keeps the bytes, and the MR faults them in again */
		if (madvise(self->host + slot_of[ON_DEMAND] * SLOT, 2 * SLOT, MADV_DONTNEED))
			return errno;
		return err;
	}
}

FIXTURE_SETUP(wire)
{
	struct mkt_setup *s = &self->s;
	struct ibv_alloc_dm_attr attr = { .length = DM_SLOTS * SLOT };
	struct mkt_wr nothing = { .op = MKT_WRITE };
	int fd;

	MKT_OPEN_EXTENDED(s->dev);
	if (geteuid())
		SKIP(return, "not root");
	MKT_MAKE(s, .mtu = IBV_MTU_1024, .host = 64 * 1024);
	ASSERT_EQ(0, mkt_replay_open(&self->replay, &s->dev[0]));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&s->pair, 0, &nothing));
	ASSERT_EQ(0, mkt_replay_find(&self->replay, MKT_BTH_WRITE_ONLY));
	ASSERT_EQ(0, mkt_answers_only(&self->replay));
	self->tainted = mkt_tainted();
	/* memory that keeps its bytes when the process unmaps its pages */
	fd = memfd_create("wire", MFD_CLOEXEC);
	ASSERT_EQ(0, ftruncate(fd, DM_AT));
	self->host = mmap(NULL, DM_AT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	ASSERT_NE(MAP_FAILED, self->host);
	self->buffer = ibv_alloc_dm(s->dev[1].ctx, &attr);
	ASSERT_NE(NULL, self->buffer);
	self->dm = mkt_dm_map(self->buffer, attr.length);
	ASSERT_NE(NULL, self->dm);
	self->foreign = ibv_alloc_pd(s->dev[1].ctx);
	ASSERT_NE(NULL, self->foreign);
	memset(self->host, PUBLIC, DM_AT);
	memset(self->dm, PUBLIC, attr.length);
	ASSERT_EQ(0, wire_objects(self));
	/* what side 1 receives and reads */
	wire_rights(self, 13 * SLOT, SLOT / 2, 0, 1, WRITE, true);
	wire_settle(self);
	ASSERT_EQ(0, wire_renew(self));
	ASSERT_EQ(0, wire_bind_key(self));
	ASSERT_EQ(0, wire_bind_window(self));
	ASSERT_EQ(0, wire_recover(self));
}

FIXTURE_TEARDOWN(wire)
{
	unsigned int i;

	if (!self->foreign)
		return;
	if (self->mw)
		EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	EXPECT_EQ(0, ibv_dereg_mr(self->under));
	EXPECT_EQ(0, ibv_dereg_mr(self->mr[KEY]));
	for (i = 0; i < NUM_OBJECTS; i++)
		if (self->mr[i] && i != KEY)
			EXPECT_EQ(0, ibv_dereg_mr(self->mr[i]));
	EXPECT_EQ(0, ibv_dealloc_pd(self->foreign));
	munmap(self->dm, DM_SLOTS * SLOT);
	EXPECT_EQ(0, ibv_free_dm(self->buffer));
	mkt_replay_close(&self->replay);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

TEST_F(wire, forged)
{
	const char *packets = getenv("MKEY_TEST_PACKETS"), *seconds = getenv("MKEY_TEST_SECONDS");
	unsigned long long most = packets ? strtoull(packets, NULL, 0) : ~0ull;
	double begin = mkt_seconds(), end;
	unsigned int round;
	int err = 0;

	end = packets ? 1e12 : begin + (seconds ? strtod(seconds, NULL) : mkt_rounds(30, 10));
	for (round = 0; self->packets < most && mkt_seconds() < end && !err; round++) {
		err = wire_burst(self) ?: wire_revive(self);
		switch (mkt_between(&self->s.rng, 0, 15)) {
		case 0:
			err = err ?: wire_drain(self) ?: wire_check(self);
			break;
		case 1 ... 3:
			err = err ?: wire_change(self);
			break;
		}
		/* a usual request of a usual peer */
		if (!err && !(round % 256)) {
			err = wire_drain(self) ?: mkt_pair_recover(&self->s.pair);
			ASSERT_EQ(0, err);
			ASSERT_EQ(IBV_WC_SUCCESS,
				  mkt_touch(&self->s, self->object[ALL_RIGHTS].rkey, MKT_READ,
					    self->object[ALL_RIGHTS].addr, SLOT));
			err = wire_recover(self);
		}
		mkt_alive();
	}
	EXPECT_EQ(0, err) TH_LOG("%s, in round %u", strerror(err), round);
	EXPECT_EQ(0, wire_drain(self));
	EXPECT_EQ(0, wire_check(self));
	EXPECT_EQ(self->tainted, mkt_tainted());
	EXPECT_LT(1000, self->data);
	EXPECT_LT(10, self->changes);
	TH_LOG("%llu packets in %.0f s, %llu answers with %llu bytes, %llu changes, %llu times ERR",
	       self->packets, mkt_seconds() - begin, self->answers, self->data, self->changes,
	       self->errors);
}

TEST_HARNESS_MAIN
