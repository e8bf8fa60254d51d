// SPDX-License-Identifier: GPL-2.0
/* Input of bindgen, see Kbuild. */

#define __rust_helper
#include "../../rust/helpers/rdma.c"
#include "../../rust/helpers/rdma_ulp.c"
