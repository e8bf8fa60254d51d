/* SPDX-License-Identifier: GPL-2.0 */
/* What a test finds out about its machine, or changes there. Part of mkey_test.h. */
#ifndef MKEY_TEST_PLACE_H
#define MKEY_TEST_PLACE_H

#include "dev.h"

/* the physical place of device memory */

/*
 * Prepares the memory of class "p2p" or "pmem". Writes its place to @what: a
 * PCI function, or N of /dev/pmemN. Returns false if the machine has none.
 */
bool mkt_hardware(char *what, size_t size, const char *class);

/* allocates device memory of a class, 0 for the standard verb; NULL and errno */
struct ibv_dm *mkt_dm_alloc(const struct mkt_dev *dev, size_t length, uint32_t log_align,
			    uint64_t class);

struct mkt_pool {
	uint64_t total;		/* bytes; 0 before the pool's first use */
	uint64_t used;
	uint64_t high;
	uint64_t buffers;
};

/* the first pool of @dev in debugfs whose class begins with @class */
int mkt_pool(const struct mkt_dev *dev, const char *class,
	     struct mkt_pool *pool);
/* true if the pool has @more bytes in use than at @before, and as many buffers if that is 0 */
bool mkt_pool_grew(const struct mkt_dev *dev, const char *class, const struct mkt_pool *before,
		   uint64_t more);
/* maps whole pages of @dm; NULL and errno; munmap() unmaps them */
void *mkt_dm_map(struct ibv_dm *dm, size_t length);
/* the physical address of a byte, 0 if unknown; needs root */
uint64_t mkt_physical(const void *at);
/* bytes of device memory that debugfs shows for a user; -1 if he has none */
int64_t mkt_owner_bytes(const struct mkt_dev *dev, uid_t uid);
/* bytes of the default class that a user may have, with the default parameters */
uint64_t mkt_dm_share(const struct mkt_dev *dev);
/* the NUMA node of RAM; -1 for an address that is not RAM */
int mkt_node_of(uint64_t physical);
bool mkt_in_bar(uint64_t physical, const char *device);
bool mkt_in_iomem(uint64_t physical, const char *what);

/* allocations that fail, on a kernel with fault injection */

bool mkt_write_file(const char *path, const char *text);
/* lets allocations that may sleep fail, too, without a line in the log for each */
bool mkt_faults_may_sleep(bool on);

/* a link that loses packets or changes their order; needs root */

struct mkt_netem {
	const struct mkt_dev *dev;
	char netdev[32];
};

/* false if @dev is not in a namespace of its own */
bool mkt_netem_open(struct mkt_netem *netem, const struct mkt_dev *dev);
/* "loss 12%" happens to what the device sends; false if there is no netem */
bool mkt_netem_set(struct mkt_netem *netem, const char *what);
void mkt_netem_close(struct mkt_netem *netem);

#endif /* MKEY_TEST_PLACE_H */
