/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by the samples: two devices with a connected queue pair on each. */
#ifndef MKEY_ULP_H
#define MKEY_ULP_H

#include <rdma/ib_verbs.h>

struct ulp_side {
	struct ib_device *device;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
};

struct ulp_link {
	struct ulp_side side[2];
};

int ulp_client_run(const char *name, const char *device, const char *peer,
		   int (*run)(struct ib_device *devices[2]));
int ulp_link_open(struct ulp_link *link, struct ib_device *devices[2]);
void ulp_link_close(struct ulp_link *link);
int ulp_link_connect(struct ulp_link *link);
int ulp_run(struct ulp_side *side, const struct ib_send_wr *wr,
	    enum ib_wc_status *status);
int ulp_keys(struct ib_pd *pd, struct ib_dm *dm);
int ulp_limits(struct ib_pd *pd, u64 addr);

#endif /* MKEY_ULP_H */
