// SPDX-License-Identifier: GPL-2.0
/* Random keys over keys, and the bytes that the outermost key has. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "request.h"

/*
 * the leaves that the keys of one level can refer to, and the place of their
 * bytes
 */
struct mkt_below {
	struct mkt_arena arena;
	uint32_t *pos;
};

static int mkt_below_add(struct mkt_below *below, struct ibv_mr *mr,
			 uint64_t addr, const uint32_t *pos, size_t length)
{
	struct mkt_leaf *leaf = &below->arena.leaf[below->arena.num_leaves];
	size_t size = below->arena.size + length;
	uint32_t *all;

	all = realloc(below->pos, size * sizeof(*all));
	if (!all)
		return ENOMEM;
	memcpy(all + below->arena.size, pos, length * sizeof(*all));
	below->pos = all;
	leaf->mr = mr;
	leaf->addr = addr;
	leaf->length = length;
	leaf->at = below->arena.size;
	below->arena.size = size;
	below->arena.num_leaves++;
	return 0;
}

static int mkt_below_add_leaf(struct mkt_below *below, struct mkt_arena *arena,
			      unsigned int num)
{
	struct mkt_end end;
	int err;

	err = mkt_end_leaf(&end, arena, num);
	if (!err)
		err = mkt_below_add(below, end.mr, end.addr, end.map.pos,
				    end.map.length);
	mkt_end_free(&end);
	return err;
}

/* adds a key over any of the leaves in @below */
static int mkt_nest_add(struct mkt_nest *nest, struct mkt_rng *rng,
			const struct mkt_below *below)
{
	struct mkt_draw draw = {
		.max_length = 16 + mkt_rand_size(rng, 24 * 1024),
		.max_block = 8 * 1024,
		.max_blocks = 12,
		.max_dims = nest->arena->dev->caps.max_dims,
	};
	struct mkt_map *map = &nest->map[nest->num_keys];
	struct mkt_layout layout;
	struct ibmkey_wr wr;
	struct ibv_mr *key;
	size_t i;
	int err;

	err = mkt_draw_layout(&layout, rng, &below->arena,
			      mkt_between(rng, MKT_LIST, MKT_GENERAL), &draw);
	if (err)
		return err;
	key = ibmkey_alloc(nest->arena->dev->pd, 12);
	if (!key) {
		err = errno;
		goto out;
	}
	layout.first = mkt_draw_first(rng);
	nest->key[nest->num_keys] = key;
	nest->first[nest->num_keys] = layout.first;
	err = mkt_layout_map(&below->arena, &layout, map);
	nest->num_keys++;
	for (i = 0; !err && i < map->length; i++)
		map->pos[i] = below->pos[map->pos[i]];
	if (!err && nest->qp && mkt_between(rng, 0, 1)) {
		err = mkt_request_describe(nest->request, &below->arena, &layout);
		wr = mkt_request_wr(nest->request, key);
		if (!err && mkt_request_status(nest->qp, &wr))
			err = EIO;
	} else if (!err) {
		err = mkt_layout_bind(key, &below->arena, &layout, MKT_ACCESS_ALL);
	}
out:
	mkt_layout_free(&layout);
	return err;
}

/* two keys per level and one at the top, each over keys of the level below */
int mkt_nest_build(struct mkt_nest *nest, struct mkt_rng *rng,
		   struct mkt_arena *arena, unsigned int depth)
{
	unsigned int level, i, first = 0, next;
	int err = 0;

	nest->num_keys = 0;
	nest->arena = arena;
	for (level = 0; level < depth && !err; level++) {
		unsigned int keys = level == depth - 1 ? 1 : 2;
		struct mkt_below below = {};

		next = nest->num_keys;
		for (i = first; i < next && !err; i++)
			err = mkt_below_add(&below, nest->key[i], nest->first[i],
					    nest->map[i].pos,
					    nest->map[i].length);
		/* one level in three has an ordinary leaf, too */
		for (i = 0; i < arena->num_leaves && !err; i++)
			if (!level || !mkt_between(rng, 0, 11))
				err = mkt_below_add_leaf(&below, arena, i);
		for (i = 0; i < keys && !err; i++)
			err = mkt_nest_add(nest, rng, &below);
		free(below.pos);
		first = next;
	}
	return err;
}

void mkt_nest_end(const struct mkt_nest *nest, struct mkt_end *end)
{
	memset(end, 0, sizeof(*end));
	end->arena = nest->arena;
	end->mr = nest->key[nest->num_keys - 1];
	end->addr = nest->first[nest->num_keys - 1];
	end->map = nest->map[nest->num_keys - 1];
}

int mkt_nest_free(struct mkt_nest *nest)
{
	int err, first = 0;

	while (nest->num_keys) {
		err = ibv_dereg_mr(nest->key[--nest->num_keys]);
		first = first ?: err;
		mkt_map_free(&nest->map[nest->num_keys]);
	}
	return first;
}
