// SPDX-License-Identifier: GPL-2.0

//! The sides of a connection before it is made.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

use super::{
    id::{Net, RawId},
    HeldDevice,
};
use crate::kernel_ext::{rdma::Device, thread::Wake};
use core::{marker::PhantomData, net::SocketAddrV4};
use kernel::{prelude::*, sync::Arc};

/// The side that connects.
pub(crate) struct Active;
/// The side that accepts.
pub(crate) struct Passive;
/// The side that connects has asked the other side.
pub(crate) struct Requested;
/// Connected.
pub(crate) struct Connected;

/// Listens for connections, on all devices of the namespace.
pub(crate) struct Listener(RawId);

impl Listener {
    /// Listens at `port` of all addresses. `wake` is set for each connection that comes.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`, `ENOMEM`.
    pub(crate) fn new(net: &Net, port: u16, wake: &Arc<Wake>) -> Result<Self> {
        let id = RawId::new(net, wake)?;
        id.listen(port)?;
        Ok(Self(id))
    }

    /// Returns a side that waits to be accepted. Dropping it rejects the connection.
    pub(crate) fn next(&self) -> Option<Endpoint<Passive>> {
        let id = Arc::new(self.0.next()?, GFP_KERNEL).ok()?;
        Some(Endpoint {
            id,
            _side: PhantomData,
        })
    }
}

/// One side of a connection that is not made yet, and has a device.
///
/// # Invariants
///
/// The id has a device.
pub(crate) struct Endpoint<Side> {
    pub(super) id: Arc<RawId>,
    _side: PhantomData<Side>,
}

impl Endpoint<Active> {
    /// Resolves an address and the route to it. Everything that happens to the connection sets
    /// `wake`.
    ///
    /// # Errors
    ///
    /// `ENODEV` and other errors of `rdma_resolve_addr()`, `ENOTCONN` if there is no way to the
    /// address, `ETIMEDOUT`, `ENOMEM`.
    pub(crate) fn resolve(net: &Net, to: SocketAddrV4, wake: &Arc<Wake>) -> Result<Self> {
        let id = RawId::new(net, wake)?;
        id.resolve(to)?;
        // INVARIANT: An id whose address is resolved has a device.
        Ok(Self {
            id: Arc::new(id, GFP_KERNEL)?,
            _side: PhantomData,
        })
    }
}

impl Endpoint<Passive> {
    /// Copies the private data of the other side. Returns their length.
    pub(crate) fn private_data(&self, to: &mut [u8]) -> usize {
        self.id.private_data(to)
    }

    /// Rejects the connection, with private data of up to [`PRIVATE_MAX`](super::PRIVATE_MAX) bytes.
    /// The other side gets them from [`Link::wait`](super::Link::wait).
    ///
    /// # Errors
    ///
    /// `EINVAL` for too many bytes, or if the other side is gone; `ENOMEM`. The other side gets no
    /// answer then.
    pub(crate) fn reject(self, private: &[u8]) -> Result {
        self.id.reject(private)
    }
}

impl<Side> Endpoint<Side> {
    /// Returns the device. It is not removed while it is held: the owner of a connection that is
    /// lost drops what holds the device.
    pub(crate) fn device(&self) -> HeldDevice {
        // SAFETY: By the type invariant. `rdma_cm` lets no device go that has ids.
        let device = unsafe { Device::from_raw((*self.id.as_raw()).device) };
        HeldDevice::by_id(device, &self.id)
    }
}
