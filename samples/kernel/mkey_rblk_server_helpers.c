// SPDX-License-Identifier: GPL-2.0

#define __rust_helper
#include "../../rust/helpers/rdma.c"
