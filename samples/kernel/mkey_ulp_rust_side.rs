// SPDX-License-Identifier: GPL-2.0

//! Shared by the parts of the sample: a device with a queue pair, sizes and a check.

use crate::kernel_ext::rdma::ulp::{Access, Cq, DevicePd, HeldDevice, Qp, Right};
use kernel::{prelude::*, sync::Arc};

/// Returns `EIO` from the caller, and logs the line, unless the condition holds.
macro_rules! expect {
    ($condition:expr) => {
        if !$condition {
            let what = stringify!($condition);
            pr_err!("line {}: {} does not hold\n", line!(), what);
            return Err(EIO);
        }
    };
}

/// The bytes of device memory.
pub(crate) const DM_LEN: u64 = 4096;
/// The bytes of a buffer of host memory.
pub(crate) const HOST_LEN: usize = 4096;

/// Returns the access flags of keys and MRs in this sample.
pub(crate) fn all_access() -> Access {
    Access::from(Right::LocalWrite) | Right::RemoteWrite | Right::RemoteRead | Right::RemoteAtomic
}

/// A device with a queue pair.
pub(crate) struct Side {
    pub(crate) device: HeldDevice,
    pub(crate) pd: Arc<DevicePd>,
    pub(crate) qp: Qp,
}

impl Side {
    /// Opens the device: a protection domain, and a queue pair that is not connected.
    pub(crate) fn new(device: HeldDevice) -> Result<Self> {
        let pd = DevicePd::new(&device)?;
        let qp = Qp::new(&pd, Cq::new(&device, 4)?)?;
        Ok(Self { device, pd, qp })
    }
}
