// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Keys of a layout: one for each group with dimensions, and a list over them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ibmkey_mpi.h"

struct ibmkey_mpi_key {
	uint32_t num_parts;
	struct ibv_mr **parts;
	struct ibv_mr *whole;
};

/* Returns the group's blocks with addresses of the MR. */
static struct ibmkey_block *blocks_at(const struct ibmkey_mpi_group *group,
				      const void *buffer, uint32_t lkey)
{
	struct ibmkey_block *blocks = malloc(group->num_blocks * sizeof(*blocks));

	if (!blocks)
		return NULL;
	memcpy(blocks, group->blocks, group->num_blocks * sizeof(*blocks));
	for (uint32_t i = 0; i < group->num_blocks; i++) {
		blocks[i].addr += (uintptr_t)buffer;
		blocks[i].lkey = lkey;
	}
	return blocks;
}

/* Binds a new key to blocks; without dimensions they are ranges, one after another. */
static int bind_blocks(struct ibv_pd *pd, const struct ibmkey_mpi_group *group,
		       const struct ibmkey_block *blocks, unsigned int access,
		       struct ibv_mr **key)
{
	static const uint64_t once = 1;
	int ret;

	*key = ibmkey_alloc(pd, group->num_blocks);
	if (!*key)
		return errno;
	ret = ibmkey_bind_interleaved(*key, access, group->num_dims ? group->num_dims : 1,
				      group->num_dims ? group->repeat : &once,
				      group->num_blocks, blocks);
	if (ret) {
		ibv_dereg_mr(*key);
		*key = NULL;
	}
	return ret;
}

/* Adds the group's blocks to the list, or a key of the group. */
static int add_group(struct ibv_pd *pd, const struct ibmkey_mpi_group *group,
		     struct ibmkey_block *blocks, unsigned int access,
		     struct ibmkey_mpi_key *key, struct ibmkey_mpi_group *list)
{
	struct ibmkey_block part = { 0 };
	int ret;

	if (!group->num_dims) {
		memcpy(list->blocks + list->num_blocks, blocks,
		       group->num_blocks * sizeof(*blocks));
		list->num_blocks += group->num_blocks;
		return 0;
	}
	ret = bind_blocks(pd, group, blocks, access, &key->parts[key->num_parts]);
	if (ret)
		return ret;
	part.bytes_count = key->parts[key->num_parts]->length;
	part.lkey = key->parts[key->num_parts]->lkey;
	key->num_parts++;
	list->blocks[list->num_blocks++] = part;
	return 0;
}

static int bind_groups(struct ibv_pd *pd, const void *buffer, struct ibv_mr *mr,
		       const struct ibmkey_mpi_layout *layout, unsigned int access,
		       struct ibmkey_mpi_key *key)
{
	struct ibmkey_mpi_group list = { 0 };
	int ret = 0;

	key->parts = calloc(layout->num_groups, sizeof(struct ibv_mr *));
	list.blocks = calloc(ibmkey_mpi_entries(layout), sizeof(*list.blocks));
	if (!key->parts || !list.blocks)
		ret = ENOMEM;
	for (uint32_t i = 0; i < layout->num_groups && !ret; i++) {
		const struct ibmkey_mpi_group *group = &layout->groups[i];
		struct ibmkey_block *blocks = blocks_at(group, buffer, mr->lkey);

		if (!blocks)
			ret = ENOMEM;
		else if (layout->num_groups == 1)
			ret = bind_blocks(pd, group, blocks, access, &key->whole);
		else
			ret = add_group(pd, group, blocks, access, key, &list);
		free(blocks);
	}
	if (!ret && layout->num_groups > 1)
		ret = bind_blocks(pd, &list, list.blocks, access, &key->whole);
	free(list.blocks);
	return ret;
}

int ibmkey_mpi_bind(struct ibv_pd *pd, const void *buffer, struct ibv_mr *mr,
		    const struct ibmkey_mpi_layout *layout, unsigned int access,
		    struct ibmkey_mpi_key **key)
{
	int ret;

	if (!layout->num_groups)
		return EINVAL;
	*key = calloc(1, sizeof(**key));
	if (!*key)
		return ENOMEM;
	ret = bind_groups(pd, buffer, mr, layout, access, *key);
	if (ret) {
		ibmkey_mpi_unbind(*key);
		*key = NULL;
	}
	return ret;
}

struct ibv_mr *ibmkey_mpi_mr(struct ibmkey_mpi_key *key)
{
	return key->whole;
}

int ibmkey_mpi_unbind(struct ibmkey_mpi_key *key)
{
	int ret;

	/* The list first, because the keys under it are busy until then. */
	ret = key->whole ? ibv_dereg_mr(key->whole) : 0;
	if (ret)
		return ret;
	key->whole = NULL;
	while (key->num_parts) {
		ret = ibv_dereg_mr(key->parts[key->num_parts - 1]);
		if (ret)
			return ret;
		key->num_parts--;
	}
	free(key->parts);
	free(key);
	return 0;
}
