/* SPDX-License-Identifier: GPL-2.0 */
/* MRs on demand: advice, the statistics of their page faults, and pages that are mapped. */
#ifndef MKEY_TEST_ODP_H
#define MKEY_TEST_ODP_H

#include "mkey_test.h"
#include "raw.h"

#define MKT_PAGE 4096

/* names of rdma-statistic(8) without "page_" */
struct mkt_odp_stats {
	unsigned long long faults, faults_handled;
	unsigned long long invalidations, invalidations_handled;
	unsigned long long prefetch;
};

/* the statistics of an MR or a key of @dev; ENODATA if it has none, ENOENT if rdma finds no MR */
int mkt_odp_stats(const struct mkt_dev *dev, const struct ibv_mr *mr,
		  struct mkt_odp_stats *stats);
/* the same; subtracts what was read before from what is read now, and puts the rest into @since */
int mkt_odp_since(const struct mkt_dev *dev, const struct ibv_mr *mr,
		  const struct mkt_odp_stats *before, struct mkt_odp_stats *since);

#define PAGE MKT_PAGE
#define ON_DEMAND (MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND)

/* ibv_advise_mr() */
#define PREFETCH IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH
#define PREFETCH_WRITE IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE
#define NO_FAULT IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
#define NOW IB_UVERBS_ADVISE_MR_FLAG_FLUSH

/* memory that has never been touched; NULL if there is none */
uint8_t *mkt_untouched(size_t length);
/* the numbers of the first 32 pages of @memory that the process has mapped, as bits */
uint32_t mkt_mapped(const uint8_t *memory, unsigned int pages);

/*
 * memory that the process can write without a fault, and whose pages are clean; NULL if there is
 * none. It is a file, which the process has read, or else was freed by MADV_FREE.
 */
uint8_t *mkt_clean_pages(bool shared, unsigned int pages);
/* lets the kernel take pages away; true if it took the last one, which is still clean */
bool mkt_reclaim(uint8_t *memory, unsigned int pages);

#endif /* MKEY_TEST_ODP_H */
