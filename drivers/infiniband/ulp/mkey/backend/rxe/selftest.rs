// SPDX-License-Identifier: GPL-2.0

//! Shows on a new device that the redirection is complete, before the device is extended.
//!
//! A call inside `rxe_mr.c` that a compiler inlined would not be redirected. The test therefore
//! goes through `copy_data()`, as rxe's requester does, and through each redirected function, and
//! looks at the bytes. Those that take a queue pair look at three of its fields; it gets one that
//! has nothing else. It needs no network.

use super::{
    bindings::{
        self, resp_states_RESPST_NONE, rxe_mr_copy_dir_RXE_FROM_MR_OBJ,
        rxe_mr_copy_dir_RXE_TO_MR_OBJ,
    },
    private,
};
use crate::{
    dm::{Buffer, DeviceMemory, Offer, Request, Wanted},
    kernel_ext::{
        error::eopnotsupp,
        rdma::{device::DeviceName, mr::Right, Access, Device, Mr, OwnedMr},
        sync::users::Patience,
    },
    key,
    layout::{Block, MAX_DIMS},
    mkey_core::Core,
    region::{
        binding::{self, Binding, Leaf, Place},
        rights::Origin,
        Kind, Region,
    },
};
use kernel::{error::to_result, ffi::c_int, page::PAGE_SIZE, prelude::*, sync::Arc};

/// One layout: as many blocks of a word, at this stride.
const BLOCKS: usize = 3;
const WORD: usize = 8;
const STRIDE: usize = 24;
const KEY_LEN: usize = WORD * BLOCKS;
const MEMORY_LEN: usize = STRIDE * BLOCKS;

/// The fetch-and-add of rxe's responder, `IB_OPCODE_RC_FETCH_ADD`.
const FETCH_ADD: c_int = crate::bindings::IB_OPCODE_RC_FETCH_ADD as c_int;

/// Runs the test in the device's own protection domain.
///
/// # Errors
///
/// `EIO` if an access did not come to the right bytes; what the accesses returned; `ENOMEM`.
pub(crate) fn run(core: &Core, device: &Device) -> Result {
    // Not of the device's own memory, of which there may be none.
    let (name, limit) = (DeviceName::new(device), PAGE_SIZE as u64);
    let own = DeviceMemory::new(name, Offer::HOST, device.node(), limit, limit)?;
    let request = Request {
        length: MEMORY_LEN as u64,
        log_align: 0,
        class: Wanted::Default,
        for_process: false,
    };
    let memory = Buffer::new(&core.hw, &core.pd, &own, &request)?;
    let mr = key::create(core, &core.pd, 1)?;
    let region = core.region_of(&mr).ok_or(EIO)?;

    let all = Right::LocalWrite | Right::RemoteWrite | Right::RemoteRead | Right::RemoteAtomic;
    let result = bound(core, &memory, all).and_then(|bound| {
        region.bind(&core.pins, &core.hw, &mr, bound)?;
        through_copy_data(core, &mr, &memory)?;
        through_each(&mr, &memory)
    });
    let result = result.and_then(|()| {
        let local = bound(core, &memory, Right::LocalWrite.into())?;
        region.bind(&core.pins, &core.hw, &mr, local)?;
        origins(core, &mr)?;
        let again = bound(core, &memory, all)?;
        region.bind(&core.pins, &core.hw, &mr, again)
    });

    let result = result.and_then(|()| invalidated(core, &mr));
    let unbound = region.unbind(&core.pins, &core.hw, &mr, Origin::Local, Patience::Endless);
    let result = result.and(unbound);
    forget(core, mr, &region);
    result?;

    let mr = OwnedMr::new(&core.pd, 1)?;
    let region = core.adopt_fast_reg(&mr, 2)?;
    let result = registered(core, &mr, &region);
    forget(core, mr, &region);
    result
}

/// Returns rxe's structure around a region.
fn rxe_mr_of(mr: &Mr) -> Result<*mut bindings::rxe_mr> {
    Ok(private(mr).ok_or(EINVAL)?.as_ptr())
}

/// Deregisters a region. The device's operations are stock still: nobody else removes the region.
fn forget(core: &Core, mr: OwnedMr, region: &Region) {
    let index = mr.index();
    drop(mr);
    core.forget(index, region);
}

fn bound(core: &Core, memory: &Buffer, access: Access) -> Result<Arc<Binding>> {
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
            place: Place::Memory {
                base: memory.base.clone(),
                delta: 0,
                mutable: false,
            },
            _pin: None,
        },
        GFP_KERNEL,
    )?;
    let layout = binding::interleaved(&[BLOCKS as u64], blocks)?;
    Binding::new(layout, leaves, access, &core.pd, None, None)
}

/// Looks whether block `block` of the memory holds `words` followed by a gap of zeros.
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
fn through_copy_data(core: &Core, mr: &Mr, memory: &Buffer) -> Result {
    let mut packet = [0u8; KEY_LEN];
    for (word, bytes) in packet.chunks_exact_mut(WORD).enumerate() {
        bytes.copy_from_slice(&(word as u64 + 1).to_ne_bytes());
    }
    let sent = packet;
    copy_data(core, mr.lkey(), 0, &mut packet, true)?;
    expect(memory, [1, 2, 3])?;
    packet.fill(0);
    copy_data(core, mr.lkey(), 0, &mut packet, false)?;
    if packet != sent {
        return Err(EIO);
    }
    Ok(())
}

/// Copies between a packet and an SGE of address `iova`, as rxe's requester and completer do.
fn copy_data(core: &Core, lkey: u32, iova: u64, packet: &mut [u8], write: bool) -> Result {
    let (access, direction) = if write {
        let access = Access::from(Right::LocalWrite).into_raw();
        (access as c_int, rxe_mr_copy_dir_RXE_TO_MR_OBJ)
    } else {
        (0, rxe_mr_copy_dir_RXE_FROM_MR_OBJ)
    };
    // SAFETY: The packet has as many bytes as are copied; the domain is of an rxe device.
    to_result(unsafe {
        bindings::ib_mkey_rxe_stock_copy_data(
            core.pd.as_raw(),
            access,
            lkey,
            iova,
            packet.as_mut_ptr().cast(),
            c_int::try_from(packet.len())?,
            direction,
        )
    })
}

/// Looks whether accesses of this node are told from those of peers: the key gives peers no right.
fn origins(core: &Core, mr: &Mr) -> Result {
    let mut word = [0; WORD];
    for write in [false, true] {
        copy_data(core, mr.lkey(), 0, &mut word, write)?;
        let direction = if write {
            rxe_mr_copy_dir_RXE_TO_MR_OBJ
        } else {
            rxe_mr_copy_dir_RXE_FROM_MR_OBJ
        };
        let (raw, at) = (rxe_mr_of(mr)?, word.as_mut_ptr().cast());
        // SAFETY: The MR is valid; the packet has a word.
        let remote =
            unsafe { bindings::ib_mkey_rxe_stock_copy(raw, 0, at, WORD as u32, direction) };
        if remote != EACCES.to_errno() {
            return Err(EIO);
        }
    }
    // SAFETY: The domain is of an rxe device.
    let refused = unsafe { bindings::ib_mkey_rxe_stock_invalidate_mr(core.pd.as_raw(), mr.rkey()) };
    if refused != EINVAL.to_errno() {
        return Err(EIO);
    }
    Ok(())
}

/// Invalidates the key as a peer's SEND does, which is to unbind it.
fn invalidated(core: &Core, mr: &Mr) -> Result {
    let mut byte = [0];
    // SAFETY: The domain is of an rxe device.
    to_result(unsafe { bindings::ib_mkey_rxe_stock_invalidate_mr(core.pd.as_raw(), mr.rkey()) })?;
    match copy_data(core, mr.lkey(), 0, &mut byte, false) {
        Ok(()) => Err(EIO),
        Err(_) => Ok(()),
    }
}

/// Registers a region as REG_MR does, writes to it, and invalidates it.
fn registered(core: &Core, mr: &Mr, region: &Region) -> Result {
    let Kind::FastReg(fast) = &region.kind else {
        return Err(EIO);
    };
    let memory = KBox::new([0u64; 4], GFP_KERNEL)?;
    let memory = KBox::into_raw(memory);
    let word = |index: u64| (memory as u64 + index * WORD as u64, WORD as u64);
    let key = mr.rkey() ^ 1;
    let mut packet = [1u8; 2 * WORD];
    let mut original = 0;
    let none = resp_states_RESPST_NONE as c_int;

    let mut steps = || {
        // SAFETY: Nobody else has the region. The domain is of an rxe device.
        unsafe {
            (*mr.as_raw()).iova = fast
                .map([word(3), word(1)].into_iter(), PAGE_SIZE as u32)?
                .start;
            let rights = Right::LocalWrite | Right::RemoteWrite | Right::RemoteAtomic;
            let access = rights.into_raw() as c_int;
            to_result(bindings::ib_mkey_rxe_stock_reg_fast_mr(
                mr.as_raw(),
                key,
                access,
            ))?;
        }
        copy_data(core, key, mr.iova(), &mut packet, true)?;
        let (raw, second) = (rxe_mr_of(mr)?, mr.iova().wrapping_add(WORD as u64));
        // SAFETY: As above; `original` is a place for a word.
        unsafe {
            to_result(bindings::ib_mkey_rxe_stock_check_range(raw, second, WORD))?;
            if bindings::ib_mkey_rxe_stock_check_range(raw, second, WORD + 1) == 0
                || bindings::ib_mkey_rxe_stock_atomic_write(raw, second, 7) != none
                || bindings::ib_mkey_rxe_stock_atomic_op(
                    raw,
                    second,
                    FETCH_ADD,
                    0,
                    2,
                    &mut original,
                ) != none
            {
                return Err(EIO);
            }
        }
        // SAFETY: As above.
        to_result(unsafe { bindings::ib_mkey_rxe_stock_invalidate_mr(core.pd.as_raw(), key) })?;
        match copy_data(core, key, mr.iova(), &mut packet, true) {
            Ok(()) => Err(EIO),
            Err(_) => Ok(()),
        }
    };
    let result = steps();
    // SAFETY: From `into_raw()` above; no access is left to it.
    let memory = unsafe { KBox::from_raw(memory) };
    result?;
    let ones = u64::from_ne_bytes([1; WORD]);
    if *memory != [0, 9, 0, ones] {
        return Err(EIO);
    }
    Ok(())
}

/// Calls each function that a region can be given to.
fn through_each(mr: &Mr, memory: &Buffer) -> Result {
    let raw = rxe_mr_of(mr)?;
    let mut word = 10u64.to_ne_bytes();
    let mut original = 0;
    let none = resp_states_RESPST_NONE as c_int;
    let at = |block: usize| (block * WORD) as u64;
    // SAFETY: The region is valid; the packet and the original value have a word each.
    unsafe {
        to_result(bindings::ib_mkey_rxe_stock_check_range(raw, 0, KEY_LEN))?;
        if bindings::ib_mkey_rxe_stock_check_range(raw, 1, KEY_LEN) == 0 {
            return Err(EIO);
        }
        to_result(bindings::ib_mkey_rxe_stock_copy(
            raw,
            at(0),
            word.as_mut_ptr().cast(),
            WORD as u32,
            rxe_mr_copy_dir_RXE_TO_MR_OBJ,
        ))?;
        if bindings::ib_mkey_rxe_stock_atomic_write(raw, at(1), 20) != none
            || bindings::ib_mkey_rxe_stock_atomic_op(raw, at(2), FETCH_ADD, 0, 27, &mut original)
                != none
            || original != 3
        {
            return Err(EIO);
        }
        // Stock rxe would say EINVAL.
        if bindings::ib_mkey_rxe_stock_flush(raw, 0, KEY_LEN as u32) != eopnotsupp().to_errno() {
            return Err(EIO);
        }
    }
    expect(memory, [10, 20, 30])
}
