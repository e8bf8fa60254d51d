// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Datagrams from keys and to keys: the message and the 40 bytes of GRH before it are
 * scattered like any other data.
 */
#include "mkey_harness.h"

#define GRH 40

FIXTURE_VARIANT(ud)
{
	enum mkt_kind kind;
	unsigned int flags;
};

MKT_FIXTURE(ud, .mtu = IBV_MTU_4096, .flags = MKT_QP_UD | variant->flags, .host = 64 * 1024,
	    .dm = 32 * 1024, .max_entries = 32)

FIXTURE_VARIANT_ADD(ud, list) { .kind = MKT_LIST };
FIXTURE_VARIANT_ADD(ud, indexed) { .kind = MKT_INDEXED };
FIXTURE_VARIANT_ADD(ud, strided) { .kind = MKT_STRIDED };
FIXTURE_VARIANT_ADD(ud, interleaved_srq) { .kind = MKT_INTERLEAVED, .flags = MKT_QP_SRQ };

static int ud_bind(struct mkt_setup *s, struct mkt_end *end, unsigned int side,
		   enum mkt_kind kind)
{
	struct mkt_draw draw = {
		.min_length = 4096 + GRH,
		.max_length = 16 * 1024,
		.max_block = 2000,
		.max_blocks = 32,
		.max_dims = 1,
	};

	return mkt_end_draw(end, s, side, kind, &draw, IBV_ACCESS_LOCAL_WRITE);
}

/*
 * The first 40 bytes are the GRH. They are accepted as they are, except that
 * the last four bytes must be the receiver's address.
 */
static int ud_look(struct mkt_setup *s, const struct mkt_end *from,
		   const struct mkt_end *to, size_t length)
{
	const union ibv_gid *gid = &s->dev[1].gid;
	struct mkt_arena *arena = to->arena;
	size_t i;
	int err;

	for (i = 0; i < GRH; i++) {
		err = mkt_arena_adopt(arena, to->map.pos[i], 1);
		if (err)
			return err;
	}
	for (i = 0; i < 4; i++)
		arena->expect[to->map.pos[GRH - 4 + i]] = gid->raw[12 + i];
	for (i = 0; i < length; i++)
		arena->expect[to->map.pos[GRH + i]] =
			from->arena->expect[from->map.pos[i]];
	err = mkt_arena_check(from->arena);
	return err ?: mkt_arena_check(arena);
}

static int ud_message(struct mkt_setup *s, const struct mkt_end *from,
		      const struct mkt_end *to, size_t length)
{
	struct mkt_wr wr = {
		.op = MKT_SEND,
		.sge[0] = {
			.addr = from->addr,
			.length = length,
			.lkey = from->mr->lkey,
		},
		.num_sge = 1,
	};
	struct mkt_wr recv = {
		.sge[0] = {
			.addr = to->addr,
			.length = GRH + length,
			.lkey = to->mr->lkey,
		},
		.num_sge = 1,
	};
	struct mkt_result result;
	int err;

	err = mkt_exec(&s->pair, 0, &wr, &recv, &result);
	if (err)
		return err;
	if (result.status != IBV_WC_SUCCESS ||
	    result.recv_status != IBV_WC_SUCCESS ||
	    result.byte_len != GRH + length) {
		mkt_diag("\"%s\", \"%s\", %u bytes",
			 ibv_wc_status_str(result.status),
			 ibv_wc_status_str(result.recv_status),
			 result.byte_len);
		return EIO;
	}
	return ud_look(s, from, to, length);
}

TEST_F(ud, send)
{
	static const size_t lengths[] = { 1, 4, 39, 40, 1023, 1024, 4095, 4096 };
	unsigned int keys, l, i;

	for (keys = 1; keys < 4; keys++) {
		struct mkt_end key[2] = {}, *end[2];

		for (i = 0; i < 2; i++) {
			end[i] = &self->s.plain[i];
			if (keys & (1 << i)) {
				end[i] = &key[i];
				ASSERT_EQ(0, ud_bind(&self->s, end[i], i,
						     variant->kind));
			}
		}
		for (l = 0; l < ARRAY_SIZE(lengths); l++) {
			ASSERT_EQ(0, mkt_arena_fill(&self->s.arena[0],
						    &self->s.rng));
			ASSERT_EQ(0, ud_message(&self->s, end[0], end[1],
						lengths[l]));
		}
		mkt_end_free(&key[0]);
		mkt_end_free(&key[1]);
	}
}

TEST_HARNESS_MAIN
