// SPDX-License-Identifier: GPL-2.0
/* Keys with simple layouts, and what is known of a key. */
#include <stdlib.h>

#include "mkey_test.h"

int mkt_bind_range(struct ibv_mr *key, unsigned int access, const struct ibv_mr *mr,
		   uint64_t addr, uint64_t length)
{
	struct ibmkey_range range = { .addr = addr, .length = length, .lkey = mr->lkey };

	return ibmkey_bind_list(key, access, 1, &range);
}

int mkt_bind_as(struct ibv_mr *key, unsigned int access, uint32_t rkey, struct ibmkey_range range)
{
	struct ibmkey_bind bind = {
		.comp_mask = rkey ? IBMKEY_BIND_RKEY : 0,
		.mkey = key,
		.kind = IBMKEY_LIST,
		.access = access,
		.num_entries = 1,
		.ranges = &range,
		.rkey = rkey,
	};

	return ibmkey_bind_many(&bind, 1, NULL);
}

int mkt_bind_strided(struct ibv_mr *key, unsigned int access, const struct ibv_mr *mr,
		     uint64_t addr, uint64_t bytes, int64_t stride, uint64_t count)
{
	struct ibmkey_block block = {
		.addr = addr,
		.bytes_count = bytes,
		.lkey = mr->lkey,
		.stride = { stride },
	};

	return ibmkey_bind_interleaved(key, access, 1, &count, 1, &block);
}

int mkt_kind_of(struct ibv_mr *key)
{
	struct ibmkey_info info = {};

	return ibmkey_query(key, &info) ? -1 : (int)info.kind;
}

long long mkt_keys_charged(const struct mkt_dev *dev)
{
	static const char file[] = "/sys/kernel/debug/ib_mkey/keys";
	char line[32];

	if (!mkt_command(line, sizeof(line), "awk '$1 == \"%s\" && $2 == \"-\" { print $3 }' %s",
			 dev->name, file))
		return -1;
	return atoll(line);
}
