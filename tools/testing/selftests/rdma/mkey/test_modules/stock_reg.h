/* SPDX-License-Identifier: GPL-2.0 */
/* Ordinary MRs for fast registration: the shared declarations. */
#ifndef STOCK_REG_H
#define STOCK_REG_H

#include "mkey_module.h"

int stock_uc_connect(struct ib_qp *qp, struct ib_qp *peer);

#endif /* STOCK_REG_H */
