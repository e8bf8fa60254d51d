// SPDX-License-Identifier: GPL-2.0

#define __rust_helper
#include "../../rust/helpers/block.c"
#include "../../rust/helpers/rdma.c"
#include "../../rust/helpers/sync.c"
#include "../../rust/helpers/task.c"
