// SPDX-License-Identifier: GPL-2.0

//! The calls that are refused, and the error of each one.

use crate::{
    bindings,
    kernel_ext::rdma::ulp::{
        Access, BindRefused, Bound, DeviceMemory, DevicePd, DmRegion, HostBuffer, Layout,
        LeafBlock, Mkey, Op, Remote, Right, Unbound, Wr,
    },
    side::{all_access, Pair, Step, DM_LEN, HOST_LEN},
};
use kernel::{prelude::*, sync::Arc};

/// Returns the unchanged key of a bind that must be refused.
pub(crate) fn refused(
    bind: Result<Mkey<Bound>, BindRefused>,
    error: Error,
) -> Result<Mkey<Unbound>> {
    let Err(refused) = bind else {
        pr_err!("a bind succeeded that must fail with {error:?}\n");
        return Err(EIO);
    };
    if refused.error != error {
        pr_err!("a bind failed with {:?}, not {error:?}\n", refused.error);
        return Err(EIO);
    }
    Ok(refused.key)
}

/// Checks the errno of refused calls. A refused bind returns the key.
pub(crate) fn refusals(pair: &Pair, memory: &Arc<DeviceMemory>) -> Result<Mkey<Unbound>> {
    let Pair { here, there, .. } = pair;
    let no_bytes = DeviceMemory::new(&there.device, 0, 0, 0);
    expect!(no_bytes.err() == Some(EINVAL));
    let node_999 = u64::from(bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_NODE) | 1000 << 8;
    let not_offered = DeviceMemory::new(&there.device, DM_LEN, 0, node_999);
    expect!(not_offered.is_err_and(|err| err.to_errno() == -(bindings::EOPNOTSUPP as i32)));
    expect!(memory.write(DM_LEN, &[0]) == Err(EINVAL));
    let outside = DmRegion::new(&there.pd, memory, 1, DM_LEN, all_access());
    expect!(outside.err() == Some(EINVAL));
    let elsewhere = DmRegion::new(&here.pd, memory, 0, DM_LEN, all_access());
    expect!(elsewhere.err() == Some(EINVAL));

    let to_read = DmRegion::new(&there.pd, memory, 0, DM_LEN, Right::RemoteRead.into())?;
    let near = HostBuffer::new(&here.device, HOST_LEN)?;
    let far = HostBuffer::new(&there.device, HOST_LEN)?;
    let all = all_access();
    let read: Access = Right::RemoteRead.into();
    let range = |at, len| LeafBlock::new(&to_read, at, len);
    let key = Mkey::new(&there.pd, 2)?;
    let key = refused(key.bind(all, Layout::List(&[range(0, 8)])), EACCES)?;
    let key = refused(
        key.bind(read, Layout::List(&[range(DM_LEN - 7, 8)])),
        ERANGE,
    )?;
    let three = [range(0, 8), range(8, 8), range(16, 8)];
    let key = refused(key.bind(read, Layout::List(&three)), ENOSPC)?;
    // With the local DMA lkey alone, these two binds would succeed.
    let key = refused(
        key.bind(read, Layout::List(&[LeafBlock::new(&near, 0, 8)])),
        EINVAL,
    )?;
    let before = Layout::Interleaved {
        repeat: &[4],
        blocks: &[LeafBlock::new(&far, 16, 8).with_stride([-8])],
    };
    refused(key.bind(read, before), ERANGE)
}

/// Checks that memory of one protection domain is refused in another one, where its number may name
/// memory that was not lent.
pub(crate) fn other_domains(pair: &mut Pair, region: &Arc<DmRegion>) -> Result {
    let Pair { here, there, .. } = pair;
    let beside = DevicePd::new(&there.device)?;
    let remote = Remote { addr: 0, rkey: 0 };
    let write = Op::Write(remote);
    expect!(here.execute(write, region, 0, 8) == Err(EINVAL));

    let range = [LeafBlock::new(region, 0, 8)];
    let range = Layout::List(&range);
    for pd in [&here.pd, &beside] {
        let key = refused(Mkey::new(pd, 1)?.bind(all_access(), range), EINVAL)?;
        let Err(BindRefused { key, error }) = key.stage(range) else {
            return Err(EIO);
        };
        expect!(error == EINVAL);
        refused(key.bind(all_access(), range), EINVAL)?;
    }

    let buffer = HostBuffer::new(&there.device, HOST_LEN)?;
    let range = [LeafBlock::new(&buffer, 0, 8)];
    let range = Layout::List(&range);
    for pd in [&there.pd, &beside] {
        let key = Mkey::new(pd, 1)?.bind(all_access(), range)?;
        let mut of_key = Wr::with_key(Step, key)?;
        of_key.add_own(8)?;
        let refused = here.link.as_ref().ok_or(EIO)?.post(of_key, write);
        let refused = refused.err().ok_or(EIO)?;
        expect!(refused.error == EINVAL);
        expect!(here.post(refused.wr, Op::Invalidate) == Err(EINVAL));
        let staged = Wr::with_key(Step, Mkey::new(pd, 1)?.stage(range)?)?;
        expect!(here.post(staged, Op::Register(all_access())) == Err(EINVAL));
    }
    // Of the same device.
    let key = Mkey::new(&beside, 1)?.bind(all_access(), range)?;
    let mut of_key = Wr::with_key(Step, key)?;
    of_key.add_own(8)?;
    expect!(there.post(of_key, write) == Err(EINVAL));
    Ok(())
}
