// SPDX-License-Identifier: GPL-2.0

//! Tests that the driver calls this module, before a new device is extended.
//!
//! A compiler may inline a call within the driver, and the inlined call is not redirected. The test
//! therefore makes the calls of the driver's workers ([`DriverCalls`]) and compares the bytes. It
//! needs no network.

use crate::{
    backend::{interface::DriverCalls, Backend, Claimed, ClaimedMr, Hw},
    dm::{Buffer, ClassRequest, DmRequest, Offer, OfferedMemory},
    kernel_ext::{
        error::eopnotsupp,
        rdma::{device::DeviceName, mr::Right, Access, Device, OwnedMr},
        sync::users::Timeout,
    },
    key,
    layout::{Block, MAX_DIMS},
    mkey_core::Core,
    region::{
        binding::{self, Binding, Leaf, LeafPlace, UnusedMemory},
        rights::Origin,
        Kind, Region,
    },
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};

/// The layout of the test: this number of blocks of a word, at a stride.
const BLOCKS: usize = 3;
const WORD: usize = 8;
const STRIDE: usize = 24;
const KEY_LEN: usize = WORD * BLOCKS;
const MEMORY_LEN: usize = STRIDE * BLOCKS;

/// Runs the test in the device's own protection domain.
///
/// # Errors
///
/// `EIO` if an access reached other bytes than it should; those of the accesses; `ENOMEM`.
pub(crate) fn run(core: &Core, device: &Device) -> Result {
    // The test makes its own pool, because the device's own pools may have no memory.
    let (name, limit) = (DeviceName::new(device), PAGE_SIZE as u64);
    let own = OfferedMemory::new(name, Offer::HOST, device.node(), limit, Some(limit))?;
    let request = DmRequest {
        length: MEMORY_LEN as u64,
        log_align: 0,
        class: ClassRequest::Default,
        user: None,
    };
    let memory = Buffer::new(&core.hw, &core.pd, &own, &request)?;
    let owned = key::create(core, &core.pd, 1, false)?;
    let mr = Hw::claimed(&owned).ok_or(EIO)?;
    let region = core.region_of(mr).ok_or(EIO)?;

    let all = Right::LocalWrite | Right::RemoteWrite | Right::RemoteRead | Right::RemoteAtomic;
    let result = make_binding(core, &memory, all).and_then(|binding| {
        region.bind(&core.pins, mr, &binding)?;
        through_sge(core, mr, &memory)?;
        through_each(core, mr, &memory)
    });
    let result = result.and_then(|()| {
        let local = make_binding(core, &memory, Right::LocalWrite.into())?;
        region.bind(&core.pins, mr, &local)?;
        origins(core, mr)?;
        let again = make_binding(core, &memory, all)?;
        region.bind(&core.pins, mr, &again)
    });

    let result = result.and_then(|()| invalidated(core, mr));
    let unbound = region.unbind(&core.pins, mr, Origin::Call, None, Timeout::Never);
    let result = result.and(unbound);
    forget(core, owned, &region);
    result?;

    let (owned, region) = OwnedMr::new(&core.pd, 1, |new| core.adopt_fast_reg(new, 2))?;
    let mr = Hw::claimed(&owned).ok_or(EIO);
    let result = mr.and_then(|mr| registered(core, mr, &region));
    forget(core, owned, &region);
    result
}

/// Deregisters an MR and removes its region. The driver's operations are still in place, and do not
/// remove the region.
fn forget(core: &Core, mr: OwnedMr, region: &Region) {
    let index = mr.index();
    Core::hide(&mr);
    drop(mr);
    core.forget(index, region);
}

fn make_binding(core: &Core, memory: &Buffer, access: Access) -> Result<Arc<Binding>> {
    let mut stride = [0; MAX_DIMS];
    stride[0] = STRIDE as i64;
    let mut blocks = KVVec::new();
    blocks.push(Block::new(0, 0, WORD as u64, stride), GFP_KERNEL)?;
    let mut leaves = KVVec::new();
    leaves.push(
        Leaf {
            lkey: 0,
            start: 0,
            len: MEMORY_LEN as u64,
            access: Right::LocalWrite.into(),
            place: LeafPlace::Memory {
                base: memory.base.clone(),
                delta: 0,
                mutable: false,
            },
            _pin: None,
        },
        GFP_KERNEL,
    )?;
    let layout = binding::interleaved(&[BLOCKS as u64], blocks, None)?;
    let memory = UnusedMemory::default();
    Binding::new(layout, leaves, access, &core.pd, None, None, memory)
}

/// Checks that each block of the memory contains its word of `words` and is followed by zeros.
fn expect(memory: &Buffer, words: [u64; BLOCKS]) -> Result {
    for (block, word) in words.iter().enumerate() {
        let mut bytes = [0; STRIDE];
        memory.memory().read((block * STRIDE) as u64, &mut bytes)?;
        let (head, gap) = bytes.split_at(WORD);
        if head != word.to_ne_bytes() || gap.iter().any(|byte| *byte != 0) {
            return Err(EIO);
        }
    }
    Ok(())
}

/// Writes and reads the key as an SGE.
fn through_sge(core: &Core, mr: &Claimed, memory: &Buffer) -> Result {
    let mut packet = [0u8; KEY_LEN];
    for (word, bytes) in packet.chunks_exact_mut(WORD).enumerate() {
        bytes.copy_from_slice(&(word as u64 + 1).to_ne_bytes());
    }
    let sent = packet;
    core.hw
        .copy_sge(&core.pd, mr.lkey(), 0, &mut packet, true)?;
    expect(memory, [1, 2, 3])?;
    packet.fill(0);
    core.hw
        .copy_sge(&core.pd, mr.lkey(), 0, &mut packet, false)?;
    if packet != sent {
        return Err(EIO);
    }
    Ok(())
}

/// Returns `EIO` unless `result` is the error `expected`.
fn refused<T>(result: Result<T>, expected: Error) -> Result {
    match result {
        Err(err) if err == expected => Ok(()),
        _ => Err(EIO),
    }
}

/// Returns `EIO` unless `result` is an error.
fn fails<T>(result: Result<T>) -> Result {
    match result {
        Ok(_) => Err(EIO),
        Err(_) => Ok(()),
    }
}

/// Returns `EIO` unless all operations of a peer were refused.
fn all_refused(refused: bool) -> Result {
    if refused {
        Ok(())
    } else {
        Err(EIO)
    }
}

/// Checks that a key without remote access flags allows this node's accesses and refuses those of
/// peers.
fn origins(core: &Core, mr: &Claimed) -> Result {
    let mut word = [0; WORD];
    for write in [false, true] {
        core.hw.copy_sge(&core.pd, mr.lkey(), 0, &mut word, write)?;
        refused(core.hw.copy(mr, 0, &mut word, write), EACCES)?;
    }
    refused(core.hw.send_with_invalidate(&core.pd, mr.rkey()), EINVAL)
}

/// Invalidates the key as a peer's SEND with invalidate does, which unbinds the key.
fn invalidated(core: &Core, mr: &Claimed) -> Result {
    let mut byte = [0];
    core.hw.send_with_invalidate(&core.pd, mr.rkey())?;
    fails(core.hw.copy_sge(&core.pd, mr.lkey(), 0, &mut byte, false))
}

/// Registers an MR as REG_MR does, writes to it, and invalidates it.
fn registered(core: &Core, mr: &Claimed, region: &Region) -> Result {
    let Kind::FastReg(fast_reg) = &region.kind else {
        return Err(EIO);
    };
    // The driver writes to these words by their addresses.
    let memory = KBox::new([const { Atomic::<u64>::new(0) }; 4], GFP_KERNEL)?;
    let start = core::ptr::from_ref(&*memory) as u64;
    let word = |index: u64| (start + index * WORD as u64, WORD as u64);
    let key = mr.rkey() ^ 1;
    let mut packet = [1u8; 2 * WORD];

    let elements = [word(3), word(1)].into_iter();
    let start = fast_reg.map(elements, PAGE_SIZE as u32)?.start;
    let rights = Right::LocalWrite | Right::RemoteWrite | Right::RemoteAtomic;
    core.hw.reg_mr(mr, start, key, rights)?;
    let mut steps = || {
        core.hw.copy_sge(&core.pd, key, start, &mut packet, true)?;
        let second = start.wrapping_add(WORD as u64);
        core.hw.check_range(mr, second, WORD)?;
        fails(core.hw.check_range(mr, second, WORD + 1))?;
        core.hw.atomic_write(mr, second, 7)?;
        core.hw.fetch_add(mr, second, 2)?;
        one_element(core, mr, (start, second), key)
    };
    let result = steps();
    core.hw.send_with_invalidate(&core.pd, key)?;
    result?;
    fails(core.hw.copy_sge(&core.pd, key, start, &mut packet, true))?;
    let expected = [0, 9, 0, 5];
    for (word, expected) in memory.iter().zip(expected) {
        if word.load(ordering::Relaxed) != expected {
            return Err(EIO);
        }
    }
    Ok(())
}

/// Writes 5 to the first of two elements, which begin at the addresses `first` and `second`. Checks
/// that a peer may neither read nor write more than the elements, that it may not name another
/// registration than `key`, and that it must be in the MR's protection domain.
fn one_element(core: &Core, mr: &Claimed, (first, second): (u64, u64), key: u32) -> Result {
    let mut word = 5u64.to_ne_bytes();
    core.hw.copy(mr, first, &mut word, true)?;
    refused(core.hw.copy(mr, first, &mut word, false), EACCES)?;
    fails(core.hw.copy(mr, second, &mut [0; WORD + 1], true))?;
    // The driver finds the rkey of the peer's request here.
    mr.rekey(key ^ 2);
    let other = core.hw.copy(mr, first, &mut [0; WORD], true);
    mr.rekey(key);
    refused(other, EACCES)?;
    all_refused(core.hw.refuses_foreign(mr, first)?)
}

/// Makes each of the driver's calls that take an MR.
fn through_each(core: &Core, mr: &Claimed, memory: &Buffer) -> Result {
    let mut word = 10u64.to_ne_bytes();
    let at = |block: usize| (block * WORD) as u64;
    core.hw.check_range(mr, 0, KEY_LEN)?;
    fails(core.hw.check_range(mr, 1, KEY_LEN))?;
    core.hw.copy(mr, at(0), &mut word, true)?;
    core.hw.atomic_write(mr, at(1), 20)?;
    if core.hw.fetch_add(mr, at(2), 27)? != 3 {
        return Err(EIO);
    }
    // EOPNOTSUPP comes from this module: stock rxe would return EINVAL.
    refused(core.hw.flush(mr, 0, KEY_LEN as u32), eopnotsupp())?;
    all_refused(core.hw.refuses_unknown(mr)?)?;
    all_refused(core.hw.refuses_foreign(mr, at(0))?)?;
    expect(memory, [10, 20, 30])
}
