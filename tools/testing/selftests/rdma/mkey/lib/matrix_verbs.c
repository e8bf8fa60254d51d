// SPDX-License-Identifier: GPL-2.0
/* The verbs that run through a key to a layout of any kind. */
#include <errno.h>
#include <string.h>

#include "matrix.h"

#define GRH 40
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static size_t mkt_shorter(struct mkt_matrix *m)
{
	size_t length = m->end[0]->map.length;

	return length < m->end[1]->map.length ? length : m->end[1]->map.length;
}

static int mkt_move(struct mkt_matrix *m, enum mkt_op op, unsigned int side, size_t length)
{
	struct mkt_xfer xfer = {
		.op = op,
		.side = side,
		.end = { m->end[0], m->end[1] },
		.length = length,
		.num_sge = mkt_between(&m->s.rng, 1, 4),
	};

	return mkt_xfer_drawn(&m->s.pair, &m->s.rng, &xfer);
}

/* parts that end near the end of a packet, and other short ones */
static int mkt_move_packets(struct mkt_matrix *m, enum mkt_op op, unsigned int side)
{
	size_t mtu = mkt_mtu_bytes(m->s.pair.mtu), all = mkt_shorter(m);
	const size_t lengths[] = {
		1, mtu - 1, mtu + 1, 2 * mtu + 1,
		/* left out in a short run */
		2, 7, 255, mtu, 2 * mtu - 1, 2 * mtu, 3 * mtu + 1,
	};
	unsigned int i, n = mkt_scale(ARRAY_SIZE(lengths), 4);
	int err = 0;

	for (i = 0; i < n && !err; i++)
		if (lengths[i] <= all)
			err = mkt_move(m, op, side, lengths[i]);
	return err;
}

/* the whole layout, and parts of it */
int mkt_matrix_move(struct mkt_matrix *m, enum mkt_op op, unsigned int side)
{
	size_t all = mkt_shorter(m);
	int err = mkt_move(m, op, side, all);

	err = err ?: mkt_move(m, op, side, mkt_between(&m->s.rng, 1, all));
	return err || !m->packets ? err : mkt_move_packets(m, op, side);
}

/* sends one datagram; the receiver gets 40 bytes of GRH before it */
int mkt_matrix_datagram(struct mkt_matrix *m, enum mkt_op op, unsigned int side)
{
	static const size_t lengths[] = { 1, 4, 39, 40, 1023, 1024, 4095, 4096 };
	struct mkt_end *from = m->end[side], *to = m->end[!side];
	/* one of them, or any other */
	size_t which = mkt_between(&m->s.rng, 0, 2 * ARRAY_SIZE(lengths) - 1), i;
	size_t length = which < ARRAY_SIZE(lengths) ? lengths[which] :
						      mkt_between(&m->s.rng, 1, 4096);
	size_t at[2] = {
		mkt_between(&m->s.rng, 0, from->map.length - length),
		mkt_between(&m->s.rng, 0, to->map.length - length - GRH),
	};
	struct mkt_wr wr = {
		.op = op,
		.sge[0] = { from->addr + at[0], length, from->mr->lkey },
		.num_sge = 1,
	};
	struct mkt_wr recv = {
		.sge[0] = { to->addr + at[1], GRH + length, to->mr->lkey },
		.num_sge = 1,
	};
	uint32_t *pos = to->map.pos + at[1];
	struct mkt_result result;
	int err;

	err = mkt_arena_fill(&m->s.arena[side], &m->s.rng);
	if (!err)
		err = mkt_exec(&m->s.pair, side, &wr, &recv, &result);
	if (err)
		return err;
	if (result.status != IBV_WC_SUCCESS ||
	    result.recv_status != IBV_WC_SUCCESS ||
	    result.byte_len != GRH + length) {
		mkt_diag("datagram of %zu bytes: \"%s\", \"%s\", %u bytes",
			 length, ibv_wc_status_str(result.status),
			 ibv_wc_status_str(result.recv_status),
			 result.byte_len);
		return EIO;
	}
	for (i = 0; i < GRH && !err; i++)
		err = mkt_arena_adopt(to->arena, pos[i], 1);
	/* the last four bytes are the receiver's address */
	for (i = 0; i < 4; i++)
		to->arena->expect[pos[GRH - 4 + i]] =
			m->s.dev[!side].gid.raw[12 + i];
	mkt_expect_copy(to, at[1] + GRH, from, at[0], length);
	if (!err)
		err = mkt_arena_check(from->arena);
	return err ?: mkt_arena_check(to->arena);
}

/* number of bytes from @offset to the end of its block */
static size_t mkt_in_block(const struct mkt_layout *layout, size_t offset)
{
	size_t tuple = 0;
	unsigned int b;

	for (b = 0; b < layout->num_blocks; b++)
		tuple += layout->block[b].bytes;
	offset %= tuple;
	for (b = 0; offset >= layout->block[b].bytes; b++)
		offset -= layout->block[b].bytes;
	return layout->block[b].bytes - offset;
}

/*
 * bytes that are not consecutive below a leaf that is a key cannot be an
 * operand
 */
static bool mkt_in_a_row(const uint32_t *pos)
{
	unsigned int i;

	for (i = 1; i < 8; i++)
		if (pos[i] != pos[0] + i)
			return false;
	return true;
}

int mkt_operand(struct mkt_rng *rng, const struct mkt_layout *layout,
		const struct mkt_map *map, size_t *offset)
{
	size_t n = map->length / 8, first = mkt_between(rng, 0, n - 1), i;

	for (i = 0; i < n; i++) {
		*offset = (first + i) % n * 8;
		if (!(map->pos[*offset] & 7) && mkt_in_a_row(map->pos + *offset) &&
		    (!layout || mkt_in_block(layout, *offset) >= 8))
			return 0;
	}
	return ENOENT;
}

/*
 * draws an operand in ordinary memory, where addresses are aligned like the
 * bytes
 */
static size_t mkt_plain_operand(struct mkt_rng *rng, const struct mkt_end *end)
{
	size_t first = -end->addr & 7;

	return first + 8 * mkt_between(rng, 0,
				       (end->map.length - first) / 8 - 1);
}

int mkt_matrix_atomic(struct mkt_matrix *m, enum mkt_op op, unsigned int side)
{
	struct mkt_end *target = m->end[!side];
	struct mkt_xfer xfer = {
		.op = op,
		.side = side,
		.end = { m->end[0], m->end[1] },
		.length = 8,
		.num_sge = 1,
	};
	unsigned int i;
	int err = 0;

	for (i = 0; i < 4 && !err; i++) {
		size_t at = mkt_plain_operand(&m->s.rng, target);

		if (m->drawn[!side])
			err = mkt_operand(&m->s.rng, &m->drawn[!side]->layout,
					  &target->map, &at);
		if (err)
			return err;
		xfer.offset[side] = mkt_between(&m->s.rng, 0,
						m->end[side]->map.length - 8);
		xfer.offset[!side] = at;
		xfer.swap_add = mkt_rand(&m->s.rng);
		xfer.compare = mkt_rand(&m->s.rng);
		/* every second comparison matches */
		if (i & 1)
			memcpy(&xfer.compare, target->arena->expect +
			       target->map.pos[at], sizeof(xfer.compare));
		err = mkt_xfer(&m->s.pair, &xfer);
	}
	return err;
}

static int mkt_matrix_status(struct mkt_matrix *m, unsigned int side,
			     const struct mkt_wr *wr, enum ibv_wc_status status)
{
	int seen = mkt_status(&m->s.pair, side, wr);

	if (seen == (int)status)
		return 0;
	mkt_diag("%s: \"%s\" instead of \"%s\"", mkt_op_name(wr->op),
		 seen < 0 ? "nothing" : ibv_wc_status_str(seen),
		 ibv_wc_status_str(status));
	return EIO;
}

int mkt_matrix_outside(struct mkt_matrix *m, enum mkt_op op, unsigned int side)
{
	struct mkt_end *target = m->end[!side];
	const uint64_t first = target->addr, last = first + target->map.length;
	const uint64_t outside[] = { first - 1, last - 7, last, -8ull };
	struct mkt_wr wr = {
		.op = op,
		.sge[0] = {
			.addr = m->end[side]->addr,
			.length = 8,
			.lkey = m->end[side]->mr->lkey,
		},
		.num_sge = 1,
		.rkey = target->mr->rkey,
	};
	unsigned int i;
	int err = 0;

	for (i = 0; i < ARRAY_SIZE(outside) && !err; i++) {
		wr.remote_addr = outside[i];
		err = mkt_matrix_status(m, side, &wr, IBV_WC_REM_ACCESS_ERR);
		err = err ?: mkt_pair_recover(&m->s.pair);
	}
	return err ?: mkt_arena_check(target->arena);
}

/* FLUSH succeeds for bytes that were written, and fails outside of the key or of the MR */
int mkt_matrix_flush(struct mkt_matrix *m, enum mkt_op op, unsigned int side)
{
	struct mkt_end *target = m->end[!side];
	struct mkt_wr wr = { .op = MKT_FLUSH, .rkey = target->mr->rkey };
	int err;

	err = mkt_matrix_move(m, op, side);
	if (err)
		return err;
	wr.flush_length = mkt_between(&m->s.rng, 1, target->map.length);
	wr.remote_addr = target->addr + mkt_between(&m->s.rng, 0,
						    target->map.length - wr.flush_length);
	err = mkt_matrix_status(m, side, &wr, IBV_WC_SUCCESS);
	if (err)
		return err;
	wr.remote_addr = target->addr + target->map.length - wr.flush_length + 1;
	err = mkt_matrix_status(m, side, &wr, IBV_WC_REM_ACCESS_ERR);
	if (!err)
		err = mkt_pair_recover(&m->s.pair);
	return err ?: mkt_arena_check(target->arena);
}

int mkt_matrix_window(struct mkt_matrix *m, enum mkt_op op, unsigned int side)
{
	struct mkt_end window, *target = m->end[!side];
	struct ibv_mr mr = *m->s.key[!side];
	struct ibv_mw *mw;
	int err;

	if (!m->drawn[!side])
		return 0;
	mw = ibv_alloc_mw(m->s.dev[!side].pd, m->window);
	if (!mw)
		return errno;
	err = mkt_bind_window(&m->s.pair.end[!side], mw, m->s.key[!side], target->addr,
			      mr.length,
			      MKT_ACCESS_ALL & ~IBV_ACCESS_LOCAL_WRITE);
	window = *target;
	window.mr = &mr;
	mr.rkey = mw->rkey;
	m->end[!side] = &window;
	if (!err)
		err = mkt_matrix_move(m, op, side);
	m->end[!side] = target;
	return ibv_dealloc_mw(mw) ?: err;
}

/* a SEND_WITH_INV that invalidates the receiver's key */
static int mkt_send_inv(struct mkt_matrix *m, unsigned int side,
			const struct mkt_end *from)
{
	struct mkt_end *to = &m->s.plain[!side];
	size_t length = mkt_between(&m->s.rng, 1, from->map.length);
	struct mkt_wr wr = {
		.op = MKT_SEND_INV,
		.sge[0] = { from->addr, length, from->mr->lkey },
		.num_sge = 1,
		.rkey = m->s.key[!side]->rkey,
	};
	struct mkt_wr recv = {
		.sge[0] = { to->addr, length, to->mr->lkey },
		.num_sge = 1,
	};
	struct mkt_result result;
	int err;

	err = mkt_arena_fill(&m->s.arena[side], &m->s.rng);
	if (!err)
		err = mkt_exec(&m->s.pair, side, &wr, &recv, &result);
	if (err)
		return err;
	if (result.status != IBV_WC_SUCCESS ||
	    result.recv_status != IBV_WC_SUCCESS)
		return EIO;
	mkt_expect_copy(to, 0, from, 0, length);
	return mkt_arena_check(to->arena);
}

int mkt_matrix_invalidate(struct mkt_matrix *m, enum mkt_op op, unsigned int side)
{
	struct ibv_mr *key = m->s.key[!side];
	struct mkt_wr write = {
		.op = MKT_WRITE,
		.sge[0] = {
			.addr = m->s.plain[side].addr,
			.length = 8,
			.lkey = m->s.plain[side].mr->lkey,
		},
		.num_sge = 1,
		.remote_addr = m->end[!side]->addr,
		.rkey = key->rkey,
	};
	struct mkt_wr inv = { .op = op, .rkey = key->rkey };
	struct ibmkey_info info;
	int err;

	if (!m->drawn[!side])
		return 0;
	err = mkt_matrix_move(m, MKT_WRITE, side);
	if (!err && op == MKT_SEND_INV)
		err = mkt_send_inv(m, side, m->end[side]);
	else if (!err)
		err = mkt_matrix_status(m, !side, &inv, IBV_WC_SUCCESS);
	if (!err)
		err = ibmkey_query(key, &info);
	if (!err && info.kind != IBMKEY_UNBOUND) {
		mkt_diag("the key is still bound");
		err = EBADMSG;
	}
	if (!err)
		err = mkt_matrix_status(m, side, &write, IBV_WC_REM_ACCESS_ERR);
	if (!err)
		err = mkt_pair_recover(&m->s.pair);
	if (!err)
		err = mkt_arena_check(&m->s.arena[!side]);
	/* the key can be bound again, for the other direction */
	return err ?: mkt_layout_bind(key, &m->s.arena[!side],
				      &m->drawn[!side]->layout, MKT_ACCESS_ALL);
}
