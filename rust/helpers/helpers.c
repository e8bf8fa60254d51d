// SPDX-License-Identifier: GPL-2.0
/*
 * Callable copies of static inline functions and macros. Each file is in the
 * form that the kernel's rust/helpers expects.
 */

#ifndef __rust_helper
#define __rust_helper
#endif

#include "memory.c"
#include "rdma.c"
#include "sync.c"
#include "task.c"
