/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Headers of which bindgen makes Rust bindings. Types that the kernel crate binds
 * are taken from that crate, see mod.rs.
 */
#include <rdma/ib_cache.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/ib_pack.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_std_types.h>
#include <rdma/ib_mkey.h>
#include <rdma/ib_mkey_ioctl.h>
#include <rdma/rdma_cm.h>
#include <rdma/restrack.h>
#include <linux/dax.h>
#include <linux/dma-buf.h>
#include <linux/genalloc.h>
#include <linux/module.h>
#include <linux/pci-p2pdma.h>
#include <linux/scatterlist.h>
