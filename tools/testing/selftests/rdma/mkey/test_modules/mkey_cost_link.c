// SPDX-License-Identifier: GPL-2.0

/* Only the last request of each chain has a completion, so that the program wakes up once. */
#include <rdma/ib_verbs.h>
#define IB_SIGNAL_ALL_WR IB_SIGNAL_REQ_WR

#include "mkey_ulp_link.c"
