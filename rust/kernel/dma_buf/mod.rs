// SPDX-License-Identifier: GPL-2.0

//! dma-bufs.
//!
//! | file | what |
//! |---|---|
//! | `export.rs` | memory as a dma-buf: mapped by processes, used by devices, revoked when it is freed |
//! | `export/ops.rs` | the operations of such a dma-buf, and of mappings by processes |
//! | `import.rs` | a dma-buf of another exporter, as pages that the kernel can reach |
//!
//! C header: [`include/linux/dma-buf.h`](srctree/include/linux/dma-buf.h)

mod export;
mod import;

pub(crate) use export::{Backing, Export};
pub(crate) use import::{DmaBuf, Import};
