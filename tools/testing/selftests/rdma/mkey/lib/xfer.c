// SPDX-License-Identifier: GPL-2.0
/* Transfers of every kind, and the bytes that they must change. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mkey_test.h"

#define MKT_IMM 0xcafe0000u

int mkt_end_leaf(struct mkt_end *end, struct mkt_arena *arena, unsigned int num)
{
	struct mkt_leaf *leaf = &arena->leaf[num];
	struct mkt_block block = { .leaf = num, .bytes = leaf->length };
	struct mkt_layout all = { .num_blocks = 1, .block = &block };

	memset(end, 0, sizeof(*end));
	end->arena = arena;
	end->mr = leaf->mr;
	end->addr = leaf->addr;
	return mkt_layout_map(arena, &all, &end->map);
}

int mkt_end_key(struct mkt_end *end, struct ibv_mr *key,
		struct mkt_arena *arena, const struct mkt_layout *layout,
		int access)
{
	int err;

	memset(end, 0, sizeof(*end));
	end->arena = arena;
	end->mr = key;
	end->addr = layout->first;
	err = mkt_layout_bind(key, arena, layout, access);
	if (err)
		return err;
	err = mkt_layout_map(arena, layout, &end->map);
	if (!err && key->length != end->map.length) {
		mkt_diag("the key's length is %zu, not %zu", key->length,
			 end->map.length);
		err = EBADMSG;
	}
	return err;
}

void mkt_end_free(struct mkt_end *end)
{
	mkt_map_free(&end->map);
}

/* cuts a range into at most @num_sge pieces of unequal length */
static void mkt_sge_list(struct mkt_wr *wr, const struct mkt_end *end,
			 size_t offset, size_t length, int num_sge)
{
	size_t piece;

	wr->num_sge = 0;
	while (length) {
		struct ibv_sge *sge = &wr->sge[wr->num_sge++];

		piece = length;
		if (wr->num_sge < num_sge && length > 1)
			piece = (length + 2) / 3;
		sge->addr = end->addr + offset;
		sge->length = piece;
		sge->lkey = end->mr->lkey;
		offset += piece;
		length -= piece;
	}
}

void mkt_expect_copy(const struct mkt_end *to, size_t to_offset, const struct mkt_end *from,
		     size_t from_offset, size_t length)
{
	size_t i;

	for (i = 0; i < length; i++)
		to->arena->expect[to->map.pos[to_offset + i]] =
			from->arena->expect[from->map.pos[from_offset + i]];
}

static uint64_t mkt_expect_load(const struct mkt_end *end, size_t offset)
{
	uint8_t bytes[sizeof(uint64_t)];
	uint64_t value;
	size_t i;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = end->arena->expect[end->map.pos[offset + i]];
	memcpy(&value, bytes, sizeof(value));
	return value;
}

static void mkt_expect_store(const struct mkt_end *end, size_t offset,
			     uint64_t value)
{
	uint8_t bytes[sizeof(uint64_t)];
	size_t i;

	memcpy(bytes, &value, sizeof(bytes));
	for (i = 0; i < sizeof(bytes); i++)
		end->arena->expect[end->map.pos[offset + i]] = bytes[i];
}

static void mkt_expect(const struct mkt_xfer *xfer)
{
	const struct mkt_end *self = xfer->end[xfer->side];
	const struct mkt_end *peer = xfer->end[!xfer->side];
	size_t here = xfer->offset[xfer->side];
	size_t there = xfer->offset[!xfer->side];
	uint64_t old;

	switch (xfer->op) {
	case MKT_READ:
		mkt_expect_copy(self, here, peer, there, xfer->length);
		break;
	case MKT_FETCH_ADD:
		old = mkt_expect_load(peer, there);
		mkt_expect_store(peer, there, old + xfer->swap_add);
		mkt_expect_store(self, here, old);
		break;
	case MKT_CMP_SWAP:
		old = mkt_expect_load(peer, there);
		if (old == xfer->compare)
			mkt_expect_store(peer, there, xfer->swap_add);
		mkt_expect_store(self, here, old);
		break;
	case MKT_ATOMIC_WRITE:
		mkt_expect_store(peer, there, xfer->swap_add);
		break;
	default:
		mkt_expect_copy(peer, there, self, here, xfer->length);
	}
}

/* true if the other side must post a receive, which may have zero bytes */
static bool mkt_receives(enum mkt_op op)
{
	return op == MKT_SEND || op == MKT_SEND_IMM || op == MKT_WRITE_IMM;
}

static void mkt_xfer_wrs(const struct mkt_xfer *xfer, struct mkt_wr *wr,
			 struct mkt_wr *recv)
{
	const struct mkt_end *self = xfer->end[xfer->side];
	const struct mkt_end *peer = xfer->end[!xfer->side];
	size_t here = xfer->offset[xfer->side];
	size_t there = xfer->offset[!xfer->side];

	memset(wr, 0, sizeof(*wr));
	memset(recv, 0, sizeof(*recv));
	wr->op = xfer->op;
	wr->remote_addr = peer->addr + there;
	wr->rkey = peer->mr->rkey;
	wr->imm = MKT_IMM + (xfer->length & 0xffff);
	wr->compare = xfer->compare;
	wr->swap_add = xfer->swap_add;
	if (xfer->op != MKT_ATOMIC_WRITE)
		mkt_sge_list(wr, self, here, xfer->length, xfer->num_sge);
	if (xfer->op == MKT_SEND || xfer->op == MKT_SEND_IMM)
		mkt_sge_list(recv, peer, there, xfer->length, xfer->num_sge);
}

static int mkt_xfer_look(const struct mkt_xfer *xfer)
{
	struct mkt_arena *one = xfer->end[0]->arena, *two = xfer->end[1]->arena;
	int err;

	mkt_expect(xfer);
	err = mkt_arena_check(one);
	if (!err && two != one)
		err = mkt_arena_check(two);
	return err;
}

static void mkt_xfer_print(const struct mkt_xfer *xfer)
{
	mkt_diag("%s from side %u, %zu bytes, offsets %zu and %zu, %d SGEs",
		 mkt_op_name(xfer->op), xfer->side, xfer->length,
		 xfer->offset[0], xfer->offset[1], xfer->num_sge);
}

int mkt_xfer(struct mkt_pair *pair, const struct mkt_xfer *xfer)
{
	bool receives = mkt_receives(xfer->op);
	struct mkt_result result;
	struct mkt_wr wr, recv;
	int err;

	mkt_xfer_wrs(xfer, &wr, &recv);
	err = mkt_exec(pair, xfer->side, &wr, receives ? &recv : NULL, &result);
	if (err)
		goto out;
	if (result.status != IBV_WC_SUCCESS ||
	    (receives && result.recv_status != IBV_WC_SUCCESS)) {
		mkt_diag("completed with \"%s\"%s%s%s",
			 ibv_wc_status_str(result.status),
			 result.received ? ", receive with \"" : "",
			 result.received ?
				ibv_wc_status_str(result.recv_status) : "",
			 result.received ? "\"" : "");
		err = EIO;
		goto out;
	}
	if (receives && result.byte_len != xfer->length) {
		mkt_diag("%u bytes received", result.byte_len);
		err = EBADMSG;
		goto out;
	}
	if (receives && result.imm != (xfer->op == MKT_SEND ? 0 : wr.imm)) {
		mkt_diag("immediate 0x%x received", result.imm);
		err = EBADMSG;
		goto out;
	}
	err = mkt_xfer_look(xfer);
out:
	if (err)
		mkt_xfer_print(xfer);
	return err;
}

int mkt_xfer_drawn(struct mkt_pair *pair, struct mkt_rng *rng, struct mkt_xfer *xfer)
{
	unsigned int side;
	int err;

	for (side = 0; side < 2; side++)
		xfer->offset[side] = mkt_between(rng, 0,
						 xfer->end[side]->map.length - xfer->length);
	err = mkt_arena_fill(xfer->end[mkt_xfer_source(xfer)]->arena, rng);
	return err ?: mkt_xfer(pair, xfer);
}

int mkt_xfer_queue(struct mkt_pair *pair, const struct mkt_xfer *xfer,
		   unsigned int count)
{
	struct mkt_qp *self = &pair->end[xfer->side];
	struct mkt_qp *peer = &pair->end[!xfer->side];
	bool receives = mkt_receives(xfer->op);
	struct mkt_wr wr, recv;
	struct ibv_wc wc;
	unsigned int i;
	int err = 0;

	mkt_xfer_wrs(xfer, &wr, &recv);
	for (i = 0; i < count && !err && receives; i++)
		err = mkt_post_recv(peer, recv.sge, recv.num_sge, i);
	for (i = 0; i < count && !err; i++)
		err = mkt_post_send(self, &wr, i);
	for (i = 0; i < count && !err; i++) {
		err = mkt_poll(self, &wc);
		if (!err && (wc.status != IBV_WC_SUCCESS || wc.wr_id != i)) {
			mkt_diag("request %u: completion %u is \"%s\"", i,
				 (unsigned int)wc.wr_id,
				 ibv_wc_status_str(wc.status));
			err = EIO;
		}
		if (!err && receives)
			err = mkt_poll(peer, &wc);
		if (!err && receives && wc.status != IBV_WC_SUCCESS)
			err = EIO;
	}
	if (!err)
		err = mkt_xfer_look(xfer);
	if (err)
		mkt_xfer_print(xfer);
	return err;
}
