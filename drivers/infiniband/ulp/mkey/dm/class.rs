// SPDX-License-Identifier: GPL-2.0

//! Classes of memory. The parameter `dm_class` names a class as text, an allocation as a number.
//!
//! `dm_class` is a list of `[DEVICE/]CLASS`, with CLASS one of `host`, `node=N`, `p2p=DDDD:BB:DD.F`
//! and `pmem=N`. An entry without a device applies to all devices. A device offers the classes of
//! its entries, and `host`. The first entry is its default.

use crate::bindings;

use kernel::{fmt, prelude::*};

const HOST: u32 = bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_HOST;
const NODE: u32 = bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_NODE;
const P2P: u32 = bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_P2P;
const PMEM: u32 = bindings::ib_uverbs_mkey_dm_class_IB_UVERBS_MKEY_DM_PMEM;

/// In the number of a class: the caches of the processor are coherent with the memory.
// CAST: bindgen takes the highest bit for a sign.
const COHERENT: u64 = bindings::IB_MKEY_DM_COHERENT as u64;

/// A class of memory: the place where the memory is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// RAM, near the device.
    Host,
    /// RAM of one NUMA node.
    Node(u16),
    /// Memory of a PCI function.
    P2p {
        /// PCI domain.
        domain: u32,
        /// Bus.
        bus: u8,
        /// Device and function.
        devfn: u8,
    },
    /// The DAX device `pmemN`.
    Pmem(u16),
}

impl Class {
    /// Parses the name of a class in the parameter.
    fn parse(text: &str) -> Option<Self> {
        if text == "host" {
            return Some(Self::Host);
        }
        let (class, which) = text.split_once('=')?;
        match class {
            "node" => Some(Self::Node(which.parse().ok()?)),
            "pmem" => Some(Self::Pmem(which.parse().ok()?)),
            "p2p" => {
                let (domain, rest) = which.split_once(':')?;
                let (bus, rest) = rest.split_once(':')?;
                let (slot, function) = rest.split_once('.')?;
                let slot = u8::from_str_radix(slot, 16)
                    .ok()
                    .filter(|slot| *slot < 32)?;
                let function = function
                    .parse()
                    .ok()
                    .filter(|function: &u8| *function < 8)?;
                Some(Self::P2p {
                    domain: u32::from_str_radix(domain, 16).ok()?,
                    bus: u8::from_str_radix(bus, 16).ok()?,
                    devfn: slot << 3 | function,
                })
            }
            _ => None,
        }
    }

    /// Returns the bit of the class in `enum ib_uverbs_mkey_dm_class`.
    pub(crate) fn bit(self) -> u32 {
        match self {
            Self::Host => HOST,
            Self::Node(_) => NODE,
            Self::P2p { .. } => P2P,
            Self::Pmem(_) => PMEM,
        }
    }

    /// Returns `true` if the caches of the processor are coherent with the memory. The processor does
    /// not cache memory of a PCI function at all.
    pub(crate) fn is_coherent(self) -> bool {
        !matches!(self, Self::P2p { .. })
    }

    /// Returns the number of the class, which `include/uapi/rdma/ib_mkey_ioctl.h` describes.
    pub(crate) fn into_raw(self) -> u64 {
        let coherent = if self.is_coherent() { COHERENT } else { 0 };
        u64::from(self.bit()) | self.which() << 8 | coherent
    }

    /// Returns the number by which an allocation names this class among those of its kind: at least
    /// 1, or 0 for `host`.
    fn which(self) -> u64 {
        match self {
            Self::Host => 0,
            Self::Node(n) | Self::Pmem(n) => u64::from(n) + 1,
            Self::P2p { domain, bus, devfn } => {
                (u64::from(domain) << 16 | u64::from(bus) << 8 | u64::from(devfn)) + 1
            }
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Node(n) => write!(f, "node={n}"),
            Self::P2p { domain, bus, devfn } => write!(
                f,
                "p2p={domain:04x}:{bus:02x}:{:02x}.{}",
                devfn >> 3,
                devfn & 7
            ),
            Self::Pmem(n) => write!(f, "pmem={n}"),
        }
    }
}

/// The class that an allocation asks for.
#[derive(Clone, Copy)]
pub(crate) struct ClassRequest {
    wanted: Wanted,
    /// `true` for coherent memory only.
    coherent: bool,
}

/// The class that an allocation names.
#[derive(Clone, Copy)]
enum Wanted {
    /// None: the first one that the device offers.
    Any,
    /// The first class of a kind that the device offers.
    First(u32),
    /// The class of a kind that has this number.
    This(u32, u64),
}

impl ClassRequest {
    /// The device's default.
    pub(crate) const DEFAULT: Self = Self {
        wanted: Wanted::Any,
        coherent: false,
    };

    /// Decodes the number of a class, which `include/uapi/rdma/ib_mkey_ioctl.h` describes.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an unknown class.
    pub(crate) fn from_raw(raw: u64) -> Result<Self> {
        let coherent = raw & COHERENT != 0;
        let raw = raw & !COHERENT;
        // CAST: The lowest 8 bits fit.
        let (kind, which) = ((raw & 0xff) as u32, raw >> 8);
        let wanted = match (kind, which) {
            (0, 0) => Wanted::Any,
            (HOST | NODE | P2P | PMEM, 0) => Wanted::First(kind),
            (NODE | P2P | PMEM, which) => Wanted::This(kind, which),
            _ => return Err(EINVAL),
        };
        Ok(Self { wanted, coherent })
    }

    /// Returns `true` if `class` satisfies the request.
    pub(crate) fn is(self, class: Class) -> bool {
        let named = match self.wanted {
            Wanted::Any => true,
            Wanted::First(kind) => class.bit() == kind,
            Wanted::This(kind, which) => class.bit() == kind && class.which() == which,
        };
        named && (class.is_coherent() || !self.coherent)
    }
}

/// An entry of the parameter.
struct OfferEntry<'a> {
    device: Option<&'a str>,
    class: Class,
}

/// The value of the parameter `dm_class`.
#[derive(Clone, Copy)]
pub(crate) struct Offer<'a>(&'a str);

impl<'a> Offer<'a> {
    /// Checks the parameter.
    ///
    /// # Errors
    ///
    /// `EINVAL`, with a line in the log, for an entry that names no class.
    pub(crate) fn new(text: &'a str) -> Result<Self> {
        let this = Self(text);
        for entry in this.texts() {
            if Self::entry(entry).is_none() {
                pr_err!("dm_class: '{}' is no class of device memory\n", entry);
                return Err(EINVAL);
            }
        }
        Ok(this)
    }

    fn texts(self) -> impl Iterator<Item = &'a str> {
        self.0.trim().split(',').filter(|entry| !entry.is_empty())
    }

    fn entry(text: &'a str) -> Option<OfferEntry<'a>> {
        let (device, class) = match text.split_once('/') {
            Some((device, class)) => (Some(device), class),
            None => (None, text),
        };
        Class::parse(class).map(|class| OfferEntry { device, class })
    }

    /// Returns the classes that the device `name` offers, its default first. `host` is the last one
    /// and may occur twice.
    pub(crate) fn to(self, name: &'a str) -> impl Iterator<Item = Class> + 'a {
        let named = self
            .texts()
            .filter_map(Self::entry)
            .filter(move |entry| entry.device.is_none_or(|device| device == name))
            .map(|entry| entry.class);
        Iterator::chain(named, [Class::Host])
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "class_kunit.rs"]
mod kunit;
