// SPDX-License-Identifier: GPL-2.0

//! The calls that are refused, and the error of each one.

use crate::{
    bindings,
    kernel_ext::rdma::ulp::{
        Access, BindRefused, Bound, DeviceMemory, DevicePd, DmClass, DmRegion, HostBuffer,
        LeafBlock, LeafRange, Local, Mkey, Remote, Right, Unbound, Work,
    },
    side::{all_access, Side, DM_LEN, HOST_LEN},
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
pub(crate) fn refusals(
    here: &Side,
    there: &Side,
    memory: &Arc<DeviceMemory>,
) -> Result<Mkey<Unbound>> {
    let no_bytes = DeviceMemory::new(&there.device, 0, 0, DmClass::Default);
    expect!(no_bytes.err() == Some(EINVAL));
    let not_offered = DeviceMemory::new(&there.device, DM_LEN, 0, DmClass::Node(Some(999)));
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
    let range = |at, len| LeafRange::new(&to_read, at, len);
    let key = Mkey::new(&there.pd, 2)?;
    let key = refused(key.bind_list(all, &[range(0, 8)]), EACCES)?;
    let key = refused(key.bind_list(read, &[range(DM_LEN - 7, 8)]), ERANGE)?;
    let three = [range(0, 8), range(8, 8), range(16, 8)];
    let key = refused(key.bind_list(read, &three), ENOSPC)?;
    // With the local DMA lkey alone, these two binds would succeed.
    let key = refused(key.bind_list(read, &[LeafRange::new(&near, 0, 8)]), EINVAL)?;
    let before = [LeafBlock::new(&far, 16, 8, &[-8])?];
    refused(key.bind_interleaved(read, &[4], &before), ERANGE)
}

/// Checks that memory of one protection domain is refused in another one, where its number may name
/// memory that was not lent.
pub(crate) fn other_domains(here: &mut Side, there: &mut Side, region: &Arc<DmRegion>) -> Result {
    let beside = DevicePd::new(&there.device)?;
    let remote = Remote { addr: 0, rkey: 0 };
    let of_region = Local::dm(region, 0, 8);
    expect!(here.qp.execute(Work::Write, of_region, remote) == Err(EINVAL));

    let range = [LeafRange::new(region, 0, 8)];
    for pd in [&here.pd, &beside] {
        let key = refused(Mkey::new(pd, 1)?.bind_list(all_access(), &range), EINVAL)?;
        let Err(BindRefused { key, error }) = key.stage_list(&range) else {
            return Err(EIO);
        };
        expect!(error == EINVAL);
        refused(key.bind_list(all_access(), &range), EINVAL)?;
    }

    let buffer = HostBuffer::new(&there.device, HOST_LEN)?;
    let range = [LeafRange::new(&buffer, 0, 8)];
    for pd in [&there.pd, &beside] {
        let key = Mkey::new(pd, 1)?.bind_list(all_access(), &range)?;
        let of_key = Local::key(&key, 0, 8);
        expect!(here.qp.execute(Work::Write, of_key, remote) == Err(EINVAL));
        expect!(here.qp.unbind(key).err() == Some(EINVAL));
        let staged = Mkey::new(pd, 1)?.stage_list(&range)?;
        expect!(here.qp.bind(staged, all_access()).err() == Some(EINVAL));
        let staged = Mkey::new(pd, 1)?.stage_list(&range)?;
        let sent = here.qp.execute_staged(staged, Work::Write, 8, remote);
        expect!(sent.err() == Some(EINVAL));
    }
    // Of the same device.
    let key = Mkey::new(&beside, 1)?.bind_list(all_access(), &range)?;
    let of_key = Local::key(&key, 0, 8);
    expect!(there.qp.execute(Work::Write, of_key, remote) == Err(EINVAL));
    Ok(())
}
