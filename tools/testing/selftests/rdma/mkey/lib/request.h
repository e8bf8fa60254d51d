/* SPDX-License-Identifier: GPL-2.0 */
/* Keys that are bound by work requests. */
#ifndef MKEY_REQUEST_H
#define MKEY_REQUEST_H

#include "mkey_test.h"

/* registered memory for the description of a layout */
struct mkt_request {
	uint8_t *text;
	size_t room;
	size_t length;
	struct ibv_mr *mr;
};

int mkt_request_init(struct mkt_request *request, struct ibv_pd *pd, size_t room);
void mkt_request_free(struct mkt_request *request);
/* writes the description of @layout over the leaves of @arena */
int mkt_request_describe(struct mkt_request *request, const struct mkt_arena *arena,
			 const struct mkt_layout *layout);
/* the description of one range; @mask: bits of struct ibmkey_bind */
void mkt_request_range(struct mkt_request *request, uint64_t mask, struct ibmkey_range range);
/* a request that binds @key to it with all access flags */
struct ibmkey_wr mkt_request_wr(const struct mkt_request *request, struct ibv_mr *key);
/* posts @wr and waits; returns its status, or -1 */
int mkt_request_status(struct mkt_qp *qp, const struct ibmkey_wr *wr);
/* the same with the description as inline data, on an RC queue pair */
int mkt_request_inline(struct mkt_qp *qp, const struct ibmkey_wr *wr);

#endif /* MKEY_REQUEST_H */
