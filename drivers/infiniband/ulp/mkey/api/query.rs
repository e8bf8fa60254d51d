// SPDX-License-Identifier: GPL-2.0

//! The uverbs method that queries the binding of a key.

use crate::{
    api::kapi::with_key,
    bindings::{
        ib_uverbs_mkey_block as UapiBlock, ib_uverbs_mkey_indexed as UapiIndexed,
        ib_uverbs_mkey_info, ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INDEXED as KIND_INDEXED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INTERLEAVED as KIND_INTERLEAVED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_LIST as KIND_LIST,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_UNBOUND as KIND_UNBOUND, ib_uverbs_mkey_refused,
    },
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        export_c::{export_c, ArrayMut, Given},
        rdma::export::HeldMr,
        uaccess::{write_all, write_array},
    },
    key::{indexed, Key},
    layout::{Layout, MAX_DIMS},
    region::binding::Binding,
};
use kernel::prelude::*;

/// Returns the description of entry or block `index`.
fn describe(binding: &Binding, index: usize) -> Option<UapiBlock> {
    let (leaf, addr, bytes_count, stride) = match &binding.layout {
        Layout::List(list) => {
            let entry = list.entries().get(index)?;
            (entry.leaf(), entry.addr(), entry.length(), [0; MAX_DIMS])
        }
        Layout::Interleaved(interleaved) => {
            let block = interleaved.blocks().get(index)?;
            (
                block.leaf(),
                block.addr(),
                block.bytes_count(),
                *block.stride(),
            )
        }
        Layout::Indexed(_) => return None,
    };
    Some(UapiBlock {
        addr,
        bytes_count,
        stride,
        lkey: binding.leaves.get(leaf as usize)?.lkey,
        comp_mask: 0,
    })
}

/// The input and the output of a query.
struct Query<'a> {
    info: &'a mut ib_uverbs_mkey_info,
    repeat_count: &'a mut [u64; MAX_DIMS],
    /// The user address of the room for indices, and the number of indices that fit.
    wanted: &'a UapiIndexed,
    indexed: &'a mut UapiIndexed,
    /// The number of blocks that fit into user memory.
    num_blocks: u32,
    described: KVVec<UapiBlock>,
    indices: KVVec<u64>,
}

impl Query<'_> {
    /// Describes the binding. Returns `(0, 0)` if it did, or else the number of blocks and of
    /// indices that the caller must make room for: an allocation here would keep binds waiting.
    fn look(&mut self, binding: Option<&Binding>) -> Result<(usize, usize)> {
        let Some(binding) = binding else {
            self.info.kind = KIND_UNBOUND;
            return Ok((0, 0));
        };
        let count = binding.layout.count();
        let (blocks, places) = match &binding.layout {
            Layout::Indexed(_) => (0, count.min(self.wanted.num_indices as usize)),
            _ => (count.min(self.num_blocks as usize), 0),
        };
        if blocks > self.described.capacity() || places > self.indices.capacity() {
            return Ok((blocks, places));
        }
        let info = &mut *self.info;
        info.length = binding.layout.length();
        info.access = binding.access.into_raw();
        info.num_entries = u32::try_from(count)?;
        info.kind = KIND_LIST;
        if let Layout::Interleaved(interleaved) = &binding.layout {
            info.kind = KIND_INTERLEAVED;
            info.num_dims = u32::try_from(interleaved.repeat_counts().len())?;
            for (to, count) in self
                .repeat_count
                .iter_mut()
                .zip(interleaved.repeat_counts())
            {
                *to = count;
            }
        }
        if let Layout::Indexed(layout) = &binding.layout {
            info.kind = KIND_INDEXED;
            *self.indexed = indexed::describe_binding(layout, info.num_entries, &binding.leaves);
            let all = layout.indices();
            for index in (0..places).map_while(|at| all.get(at)) {
                // Checked above: the index fits.
                let _ = self.indices.push_within_capacity(index);
            }
        }
        for block in (0..blocks).map_while(|index| describe(binding, index)) {
            // Checked above: the block fits.
            let _ = self.described.push_within_capacity(block);
        }
        Ok((0, 0))
    }

    /// Describes `key` and its binding. Writes the blocks to the user address `blocks`.
    fn answer(mut self, key: &Key<'_>, blocks: u64) -> Result {
        self.info.lkey = key.mr().lkey();
        self.info.rkey = key.mr().rkey();
        self.info.max_entries = key.max_entries();
        // A longer layout may be bound between an allocation and the next look.
        loop {
            let missing = key.inspect(|binding| self.look(binding))?;
            if missing == (0, 0) {
                break;
            }
            self.described.reserve(missing.0, GFP_MAYFAIL)?;
            self.indices.reserve(missing.1, GFP_MAYFAIL)?;
        }
        // After the look: a fault in user memory would keep binds waiting.
        write_array(blocks, self.num_blocks, self.described.iter())?;
        write_all(self.wanted.indices, &self.indices)
    }
}

export_c! {
    in crate::api::bindings;

    fn ib_mkey_uapi_query(
        mkey: HeldMr<'_>,
        info: &mut ib_uverbs_mkey_info,
        repeat_count: ArrayMut<'_, u64, MAX_DIMS>,
        wanted: Given<'_, UapiIndexed>,
        indexed: &mut UapiIndexed,
        blocks: u64,
        num_blocks: u32,
        refused: &mut ib_uverbs_mkey_refused,
    ) -> Result {
        let query = Query {
            info,
            repeat_count: repeat_count.0,
            wanted: &wanted,
            indexed,
            num_blocks,
            described: KVVec::new(),
            indices: KVVec::new(),
        };
        with_key(mkey, |key| {
            (refused.error, refused.entry) = key.region().refused();
            query.answer(key, blocks)
        })
    }
}
