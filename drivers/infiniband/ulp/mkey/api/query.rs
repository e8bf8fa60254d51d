// SPDX-License-Identifier: GPL-2.0

//! The uverbs method that queries the binding of a key, and queries of refused accesses.

use crate::{
    access::refused,
    api::kapi::with_key,
    backend::rxe,
    bindings::{
        ib_uverbs_mkey_block as UapiBlock, ib_uverbs_mkey_indexed as UapiIndexed,
        ib_uverbs_mkey_info, ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INDEXED as KIND_INDEXED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INTERLEAVED as KIND_INTERLEAVED,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_LIST as KIND_LIST,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_UNBOUND as KIND_UNBOUND, ib_uverbs_mkey_refused,
        ib_uverbs_mkey_refused_access,
    },
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        export_c::{export_c, Given, Out},
        rdma::{export::HeldMr, pd::UserContext},
        sched,
        uaccess::write_all,
    },
    key::{indexed, Key},
    layout::{Layout, MAX_DIMS},
    mkey_core::{Core, Lookup},
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
    /// The address of the first byte.
    base: &'a mut u64,
    repeat_count: &'a mut [u64],
    /// The user address of the array for indices, and the number of indices that fit.
    wanted: &'a UapiIndexed,
    indexed: &'a mut UapiIndexed,
    /// The number of blocks that fit into user memory.
    num_blocks: u32,
    described: KVVec<UapiBlock>,
    indices: KVVec<u64>,
}

impl Query<'_> {
    /// Describes `binding`. Binds wait meanwhile, so this allocates nothing. If there is too little
    /// memory, returns the numbers of blocks and indices that need it.
    fn look(&mut self, binding: Option<&Binding>) -> Result<Option<(usize, usize)>> {
        self.begin(binding)?;
        let Some(binding) = binding else {
            return Ok(None);
        };
        let count = binding.layout.count();
        let (blocks, indices) = match &binding.layout {
            Layout::Indexed(_) => (0, count.min(self.wanted.num_indices as usize)),
            _ => (count.min(self.num_blocks as usize), 0),
        };
        if blocks > self.described.capacity() || indices > self.indices.capacity() {
            return Ok(Some((blocks, indices)));
        }
        // Checked above: the blocks and indices fit.
        for block in (0..blocks).map_while(|index| describe(binding, index)) {
            let _ = self.described.push_within_capacity(block);
        }
        if let Layout::Indexed(layout) = &binding.layout {
            let all = layout.indices();
            for index in (0..indices).map_while(|at| all.get(at)) {
                let _ = self.indices.push_within_capacity(index);
            }
        }
        Ok(None)
    }

    /// Describes everything but the blocks or indices.
    fn begin(&mut self, binding: Option<&Binding>) -> Result {
        self.described.clear();
        self.indices.clear();
        *self.info = Zeroable::zeroed();
        *self.base = 0;
        self.repeat_count.fill(0);
        *self.indexed = Zeroable::zeroed();
        let Some(binding) = binding else {
            self.info.kind = KIND_UNBOUND;
            return Ok(());
        };
        let info = &mut *self.info;
        info.length = binding.layout.length();
        *self.base = binding.start;
        info.access = binding.access.into_raw();
        info.num_entries = u32::try_from(binding.layout.count())?;
        match &binding.layout {
            Layout::List(_) => info.kind = KIND_LIST,
            Layout::Interleaved(interleaved) => {
                info.kind = KIND_INTERLEAVED;
                info.num_dims = u32::try_from(interleaved.repeat_counts().len())?;
                let counts = interleaved.repeat_counts();
                for (to, count) in self.repeat_count.iter_mut().zip(counts) {
                    *to = count;
                }
            }
            Layout::Indexed(layout) => {
                info.kind = KIND_INDEXED;
                *self.indexed =
                    indexed::describe_binding(layout, info.num_entries, &binding.leaves);
            }
        }
        Ok(())
    }

    /// Describes `key` and its binding. Writes the blocks to the user address `blocks`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EFAULT`; `EINTR` if the process was killed.
    fn answer(mut self, key: &Key<'_>, blocks: u64) -> Result {
        // Another layout may be bound before the next look.
        while let Some((blocks, indices)) = key.inspect(|binding| self.look(binding))? {
            self.described.reserve(blocks, GFP_MAYFAIL)?;
            self.indices.reserve(indices, GFP_MAYFAIL)?;
            sched::check_killed()?;
        }
        self.info.lkey = key.mr().lkey();
        self.info.rkey = key.mr().rkey();
        self.info.max_entries = key.max_entries();
        // After the last look, because binds would wait for a fault in user memory.
        write_all(blocks, &self.described)?;
        write_all(self.wanted.indices, &self.indices)
    }
}

export_c! {
    in crate::api::bindings;

    fn ib_mkey_uapi_query(
        mkey: HeldMr<'_>,
        info: &mut ib_uverbs_mkey_info,
        base: &mut u64,
        repeat_count[max_dims]: &mut [u64],
        max_dims: u32,
        wanted: &Given<UapiIndexed>,
        indexed: &mut UapiIndexed,
        blocks: u64,
        num_blocks: u32,
        refused: &mut ib_uverbs_mkey_refused,
        refused_access: &mut ib_uverbs_mkey_refused_access,
    ) -> Result {
        let query = Query {
            info,
            base,
            repeat_count,
            wanted,
            indexed,
            num_blocks,
            described: KVVec::new(),
            indices: KVVec::new(),
        };
        with_key(mkey, |key| {
            *refused = key.region().refused().to_uapi();
            *refused_access = key.region().refused_access();
            query.answer(key, blocks)
        })
    }

    fn ib_mkey_uapi_query_refused_access(
        context: &UserContext,
        refused_access: Out<'_, ib_uverbs_mkey_refused_access>,
    ) -> Result {
        let core = Core::of(context.device())?;
        refused_access.set(refused::last_of(core, rxe::user(context)));
        Ok(())
    }
}
