// SPDX-License-Identifier: GPL-2.0

//! Refused accesses, which the model does not record.

use crate::{
    backend::Claimed,
    kernel_ext::rdma::{mr::Right, Access},
    region::{rights::Peer, Region},
};
use kernel::error::Error;

#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) needed: Access,
    pub(crate) remote: bool,
    pub(crate) peer: Option<&'a Peer>,
}

impl<'a> Asked<'a> {
    pub(super) fn by(peer: &'a Peer, addr: u64, len: u64, needed: Right) -> Self {
        Self {
            addr,
            len,
            needed: needed.into(),
            remote: true,
            peer: Some(peer),
        }
    }
}

pub(super) fn record(_: &Region, _: &Claimed, _: Asked<'_>, _: Error) {}
