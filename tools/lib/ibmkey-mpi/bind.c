// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Makes the keys of a layout: one for each group. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "form.h"

struct ibmkey_mpi_key {
	uint32_t num_keys;
	struct ibv_mr **keys;	/* the last one describes the whole datatype */
};

static __thread char error[256];

const char *ibmkey_mpi_last_error(void)
{
	return error;
}

/* Stores the part of the datatype that @group is, and the reason. Returns @ret. */
static int explain(const struct ibmkey_mpi_group *group, const char *reason, int ret)
{
	char part[96];

	part_name(&group->part, part, sizeof(part));
	snprintf(error, sizeof(error), "%s: %s", part, reason);
	return ret;
}

/* Returns a copy of the group's blocks, with addresses in @mr and the lkeys of @mr and @keys. */
static struct ibmkey_block *blocks_of(const struct ibmkey_mpi_group *group, const void *buffer,
				      const struct ibv_mr *mr, struct ibv_mr *const *keys)
{
	struct ibmkey_block *blocks = malloc(group->num_blocks * sizeof(*blocks));

	if (!blocks)
		return NULL;
	memcpy(blocks, group->blocks, group->num_blocks * sizeof(*blocks));
	for (uint32_t i = 0; i < group->num_blocks; i++) {
		if (blocks[i].lkey) {
			blocks[i].lkey = keys[blocks[i].lkey - 1]->lkey;
		} else {
			blocks[i].addr += (uintptr_t)buffer;
			blocks[i].lkey = mr->lkey;
		}
	}
	return blocks;
}

/* Makes the key of a group. A group without dimensions is bound with one repetition. */
static int bind_group(struct ibv_pd *pd, const void *buffer, struct ibv_mr *mr,
		      const struct ibmkey_mpi_group *group, unsigned int access,
		      struct ibmkey_mpi_key *key)
{
	static const uint64_t once = 1;
	struct ibmkey_block *blocks;
	struct ibv_mr *new;
	int ret;

	blocks = blocks_of(group, buffer, mr, key->keys);
	if (!blocks)
		return explain(group, strerror(ENOMEM), ENOMEM);
	new = ibmkey_alloc(pd, group->num_blocks);
	if (!new) {
		ret = explain(group, ibmkey_last_error(), errno);
		free(blocks);
		return ret;
	}
	ret = ibmkey_bind_interleaved(new, access, group->num_dims ? group->num_dims : 1,
				      group->num_dims ? group->repeat : &once,
				      group->num_blocks, blocks);
	free(blocks);
	if (ret) {
		explain(group, ibmkey_last_error(), ret);
		ibv_dereg_mr(new);
		return ret;
	}
	key->keys[key->num_keys++] = new;
	return 0;
}

static int check_entries(const struct ibmkey_mpi_layout *layout, uint32_t most)
{
	char reason[96];

	for (uint32_t i = 0; i < layout->num_groups; i++) {
		const struct ibmkey_mpi_group *group = &layout->groups[i];

		if (group->num_blocks <= most)
			continue;
		snprintf(reason, sizeof(reason), "%u entries, the device allows %u for a key",
			 group->num_blocks, most);
		return explain(group, reason, ENOSPC);
	}
	return 0;
}

static int bind_groups(struct ibv_pd *pd, const void *buffer, struct ibv_mr *mr,
		       const struct ibmkey_mpi_layout *layout, unsigned int access,
		       struct ibmkey_mpi_key **key)
{
	struct ibmkey_mpi_key *new = calloc(1, sizeof(*new));
	int ret = 0;

	if (new)
		new->keys = calloc(layout->num_groups, sizeof(struct ibv_mr *));
	if (!new || !new->keys) {
		free(new);
		return explain(&layout->groups[layout->num_groups - 1], strerror(ENOMEM), ENOMEM);
	}
	for (uint32_t i = 0; i < layout->num_groups && !ret; i++)
		ret = bind_group(pd, buffer, mr, &layout->groups[i], access, new);
	if (ret)
		ibmkey_mpi_unbind(new);
	else
		*key = new;
	return ret;
}

int ibmkey_mpi_bind(struct ibv_pd *pd, const void *buffer, struct ibv_mr *mr,
		    const struct ibmkey_mpi_layout *layout, unsigned int access,
		    struct ibmkey_mpi_key **key)
{
	const char *null = !pd ? "pd" : !mr ? "mr" : !layout ? "layout" : !key ? "key" : NULL;
	struct ibmkey_caps caps = { 0 };
	struct ibmkey_mpi_layout plain;
	int ret;

	if (key)
		*key = NULL;
	if (null) {
		snprintf(error, sizeof(error), "%s is NULL", null);
		return EINVAL;
	}
	if (!layout->num_groups) {
		snprintf(error, sizeof(error), "the layout has no bytes");
		return EINVAL;
	}
	ret = ibmkey_query_caps(pd->context, &caps);
	if (ret) {
		snprintf(error, sizeof(error), "%s", ibmkey_last_error());
		return ret;
	}
	ret = check_entries(layout, caps.max_entries);
	if (ret)
		return ret;
	ret = bind_groups(pd, buffer, mr, layout, access, key);
	if (ret != ELOOP)
		return ret;
	/*
	 * The keys have too many levels or pieces. A plain layout is one key, which cannot be
	 * refused for that, or a list of keys, which still can.
	 */
	ret = layout_plain(layout, caps.max_entries, &plain);
	if (ret == ENOSPC)
		snprintf(error, sizeof(error), "%s: more than %d entries without keys over keys",
			 plain.part, IBMKEY_MPI_MAX_ENTRIES);
	else if (ret)
		snprintf(error, sizeof(error), "%s: %s", plain.part, strerror(ret));
	if (!ret)
		ret = check_entries(&plain, caps.max_entries);
	if (!ret)
		ret = bind_groups(pd, buffer, mr, &plain, access, key);
	ibmkey_mpi_free(&plain);
	return ret;
}

struct ibv_mr *ibmkey_mpi_mr(struct ibmkey_mpi_key *key)
{
	return key ? key->keys[key->num_keys - 1] : NULL;
}

int ibmkey_mpi_unbind(struct ibmkey_mpi_key *key)
{
	int ret;

	if (!key)
		return 0;
	/* Destroy a key before the keys that it refers to. */
	while (key->num_keys) {
		ret = ibv_dereg_mr(key->keys[key->num_keys - 1]);
		if (ret)
			return ret;
		key->num_keys--;
	}
	free(key->keys);
	free(key);
	return 0;
}
