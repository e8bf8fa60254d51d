// SPDX-License-Identifier: GPL-2.0

//! RDMA devices, and operations that a client fills in or wraps.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    client::{ClientOps, ModulePin},
    dm::Dm,
    eopnotsupp, fast_reg,
    memory::import::{DmaBuf, Import},
    mr::{Access, Mr, Pd, Right},
};
use crate::bindings;
use core::{cell::UnsafeCell, ptr};
use kernel::{
    error::{from_err_ptr, from_result, to_result},
    ffi::c_int,
    prelude::*,
    str::CStr,
    sync::ArcBorrow,
    types::Opaque,
};

/// A registered RDMA device.
#[repr(transparent)]
pub(crate) struct Device(Opaque<bindings::ib_device>);

impl Device {
    /// # Safety
    ///
    /// `raw` must be a registered device for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: By the safety requirement, and the type is transparent.
        unsafe { &*raw.cast::<Self>() }
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::ib_device {
        self.0.get()
    }

    /// Returns the name, such as `rxe0`.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: The core keeps the name terminated.
        unsafe { CStr::from_char_ptr((*self.as_raw()).name.as_ptr().cast()) }
    }

    /// Returns which driver it is of, `enum rdma_driver_id`.
    pub(crate) fn driver_id(&self) -> u32 {
        // SAFETY: The operations are set before the device is registered.
        unsafe { (*self.as_raw()).ops.driver_id }
    }

    /// Returns the NUMA node it is near, negative for none.
    pub(crate) fn node(&self) -> i32 {
        // SAFETY: The device is registered.
        unsafe { bindings::ib_device_node(self.as_raw()) }
    }
}

/// A device's name, for those who outlive the device.
///
/// # Invariants
///
/// A reference to the `struct device` in the `ib_device` is held: its memory is not freed.
pub(crate) struct DeviceName(ptr::NonNull<bindings::ib_device>);

// SAFETY: The name is read as the core reads it.
unsafe impl Send for DeviceName {}
// SAFETY: As above.
unsafe impl Sync for DeviceName {}

impl DeviceName {
    /// Refers to the name of `device`, whatever it will be.
    pub(crate) fn new(device: &Device) -> Self {
        let raw = device.as_raw();
        // SAFETY: The device is registered, so that it has references, and is not null.
        // INVARIANT: The reference is taken here.
        unsafe {
            bindings::get_device((&raw mut (*raw).__bindgen_anon_1).cast());
            Self(ptr::NonNull::new_unchecked(raw))
        }
    }

    /// Returns the name.
    pub(crate) fn get(&self) -> &CStr {
        // SAFETY: By the type invariant the memory is valid, and the name in it is terminated.
        unsafe { Device::from_raw(self.0.as_ptr()) }.name()
    }
}

impl Drop for DeviceName {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::put_device((&raw mut (*self.0.as_ptr()).__bindgen_anon_1).cast()) };
    }
}

/// A memory region that its device's driver made but `ib_core` does not know yet.
///
/// # Invariants
///
/// The pointer came from the driver's `alloc_mr` or `reg_user_mr`.
pub(crate) struct DriverMr {
    raw: *mut bindings::ib_mr,
    dereg: Option<DeregMr>,
}

type DeregMr =
    unsafe extern "C" fn(mr: *mut bindings::ib_mr, udata: *mut bindings::ib_udata) -> c_int;

impl DriverMr {
    pub(super) fn into_raw(self) -> *mut bindings::ib_mr {
        core::mem::ManuallyDrop::new(self).raw
    }
}

impl core::ops::Deref for DriverMr {
    type Target = Mr;

    fn deref(&self) -> &Mr {
        // SAFETY: By the type invariant.
        unsafe { Mr::from_raw(self.raw) }
    }
}

impl Drop for DriverMr {
    fn drop(&mut self) {
        if let Some(dereg) = self.dereg {
            // SAFETY: By the type invariant; the region was never given away.
            unsafe { dereg(self.raw, ptr::null_mut()) };
        }
    }
}

/// What a client does in a device's stead.
pub(crate) trait DeviceOps: ClientOps {
    /// What the client keeps with a device memory object.
    type Dm: Send + Sync;

    /// Returns the device's operations, as they were and as they are now.
    fn overlay(&self) -> &Overlay;

    /// Bytes of device memory, for all users together.
    fn max_dm_size(&self) -> u64;

    /// Allocates device memory of `attr.length` bytes, for a process or for a kernel user.
    fn alloc_dm(
        this: ArcBorrow<'_, Self>,
        attr: &bindings::ib_dm_alloc_attr,
        for_process: bool,
    ) -> Result<KBox<Dm<Self::Dm>>>;

    /// Makes `mr` a region in `pd` over `length` bytes of `dm`. The core checked the range.
    fn reg_dm_mr(
        this: ArcBorrow<'_, Self>,
        mr: &Mr,
        pd: &Pd,
        dm: &Dm<Self::Dm>,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result;

    /// Makes `mr` a region for up to `max` elements of a scatterlist, which may have gaps.
    fn alloc_fast(this: ArcBorrow<'_, Self>, mr: &Mr, max: u32) -> Result;

    /// Maps elements to such a region, as many of the first ones as there is room for: what its
    /// next registration is over. Must not sleep or allocate.
    fn map_fast(&self, mr: &Mr, elements: fast_reg::Elements<'_>) -> Result<fast_reg::Mapped>;

    /// May the driver change what another region for fast registration is over? Must not sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if somebody relies on it.
    fn may_map(&self, mr: &Mr) -> Result;

    /// Deregisters a region: decides, and calls `stock` to do it.
    fn dereg_mr(&self, mr: &Mr, stock: impl FnOnce() -> Result) -> Result;

    /// Can a region over a dma-buf have these rights?
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if it cannot.
    fn may_import(&self, access: Access) -> Result;

    /// May a dma-buf be mapped in the kernel?
    ///
    /// # Errors
    ///
    /// If it is one of the client's and was taken back.
    fn check_dma_buf(buffer: &DmaBuf) -> Result;

    /// Makes `mr` a region over `length` bytes of `import`, from `offset` on, whose first address is
    /// `addr`; for as many pages it was made.
    fn reg_dmabuf_mr(
        this: ArcBorrow<'_, Self>,
        mr: &Mr,
        import: Import,
        offset: u64,
        length: u64,
        addr: u64,
        access: Access,
    ) -> Result;

    /// May the region's protection domain or rights be changed?
    fn may_rereg(&self, mr: &Mr) -> Result;

    /// Returns the rights of a region of the driver's own.
    fn rights(&self, mr: &Mr) -> Access;

    /// Puts a region over the memory of `spare`, which nobody uses, as `range.1` bytes from address
    /// `range.0` on; `spare` then has the old memory. `finish` has the driver do the rest. On an
    /// error nothing has changed.
    fn retranslate(
        &self,
        mr: &Mr,
        spare: &Mr,
        range: (u64, u64),
        finish: impl FnOnce() -> Result,
    ) -> Result;

    /// What keeps regions from being deregistered.
    type Held;

    /// Keeps the regions that `lkeys` name, while the driver is told how they will be used.
    ///
    /// # Errors
    ///
    /// If the driver must not be told.
    fn hold_for_advice(&self, pd: &Pd, lkeys: impl Iterator<Item = u32>) -> Result<Self::Held>;

    /// Keeps the client's code while a driver's operation runs that user memory can hold up.
    fn pin(&self) -> Result<ModulePin>;
}

/// A device's operations: what they were before a client changed them.
pub(crate) struct Overlay {
    pub(super) stock: bindings::ib_device_ops,
    stock_def: *const bindings::uapi_definition,
    stock_max_dm_size: u64,
    stock_cap_flags: u64,
    /// Our table after the device's own, where it has one.
    chain: UnsafeCell<[bindings::uapi_definition; 3]>,
}

// SAFETY: `stock` and the pointers are only read; `chain` is written once, by `install()`.
unsafe impl Send for Overlay {}
// SAFETY: As above.
unsafe impl Sync for Overlay {}

impl Overlay {
    /// Remembers the operations of `device`, which must not be installed on.
    pub(crate) fn new(device: &Device) -> Self {
        let raw = device.as_raw();
        // SAFETY: Operations and attributes are set before a device is registered and changed by
        // nobody else later. All-zero is a valid `uapi_definition`, the end of a table.
        unsafe {
            Self {
                stock: ptr::read(&raw const (*raw).ops),
                stock_def: (*raw).driver_def,
                stock_max_dm_size: (*raw).attrs.max_dm_size,
                stock_cap_flags: (*raw).attrs.kernel_cap_flags,
                chain: core::mem::MaybeUninit::zeroed().assume_init(),
            }
        }
    }

    /// Does the device lack device memory, so that ours is filled in?
    pub(crate) fn fills_dm(&self) -> bool {
        self.stock.alloc_dm.is_none()
    }

    /// Does the device refuse scatterlists with gaps, but do fast registration otherwise?
    fn fills_gaps(&self) -> bool {
        let gaps = u64::from(bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG);
        self.stock.alloc_mr.is_some()
            && self.stock.map_mr_sg.is_some()
            && self.stock_cap_flags & gaps == 0
    }

    /// Fills in what the device lacks and wraps what must be wrapped, by way of `T`.
    pub(crate) fn install<T: DeviceOps>(&self, device: &Device, max_dm_size: u64) {
        let raw = device.as_raw();
        // SAFETY: Called from a client's `add`, before a user of the device that was registered
        // later can call an operation. What runs at the same time, such as the core's own calls
        // to `query_device`, finds the old pointer or the new one.
        unsafe {
            let ops = &raw mut (*raw).ops;
            if self.fills_dm() {
                (*ops).alloc_dm = Some(alloc_dm::<T>);
                (*ops).dealloc_dm = Some(dealloc_dm::<T>);
                (*ops).reg_dm_mr = Some(reg_dm_mr::<T>);
                (*ops).query_device = Some(query_device::<T>);
                (*raw).attrs.max_dm_size = max_dm_size;
            }
            if self.fills_gaps() {
                (*ops).alloc_mr = Some(fast_reg::alloc_mr::<T>);
                (*ops).map_mr_sg = Some(fast_reg::map_mr_sg::<T>);
                (*raw).attrs.kernel_cap_flags |=
                    u64::from(bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG);
            }
            (*ops).dereg_mr = Some(dereg_mr::<T>);
            if self.stock.reg_user_mr_dmabuf.is_none() {
                (*ops).reg_user_mr_dmabuf = Some(reg_user_mr_dmabuf::<T>);
            }
            if self.stock.rereg_user_mr.is_some() {
                (*ops).rereg_user_mr = Some(rereg_user_mr::<T>);
            }
            if self.stock.advise_mr.is_some() {
                (*ops).advise_mr = Some(advise_mr::<T>);
            }
            (*raw).driver_def = if self.stock_def.is_null() {
                (&raw const bindings::ib_mkey_uapi_defs).cast()
            } else {
                let chain = self.chain.get().cast::<bindings::uapi_definition>();
                bindings::ib_mkey_uapi_chain(chain, self.stock_def);
                chain
            };
        }
    }

    /// Puts the operations back. Those that run go on, see [`Self::drain`].
    pub(crate) fn uninstall(&self, device: &Device) {
        let raw = device.as_raw();
        // SAFETY: As for `install()`: called from a client's `remove`, when all users that were
        // registered later are gone.
        unsafe {
            let ops = &raw mut (*raw).ops;
            (*ops).alloc_dm = self.stock.alloc_dm;
            (*ops).dealloc_dm = self.stock.dealloc_dm;
            (*ops).reg_dm_mr = self.stock.reg_dm_mr;
            (*ops).query_device = self.stock.query_device;
            (*ops).alloc_mr = self.stock.alloc_mr;
            (*ops).map_mr_sg = self.stock.map_mr_sg;
            (*ops).dereg_mr = self.stock.dereg_mr;
            (*ops).reg_user_mr_dmabuf = self.stock.reg_user_mr_dmabuf;
            (*ops).rereg_user_mr = self.stock.rereg_user_mr;
            (*ops).advise_mr = self.stock.advise_mr;
            (*raw).attrs.max_dm_size = self.stock_max_dm_size;
            (*raw).attrs.kernel_cap_flags = self.stock_cap_flags;
            (*raw).driver_def = self.stock_def;
        }
    }

    /// Waits for the operations that run: a kernel user that was registered before the client may
    /// be in one. Sleeps.
    pub(crate) fn drain() {
        // SAFETY: No preconditions.
        unsafe { bindings::rdma_ops_drain() };
    }

    /// Has the driver make a region for `pages` pages, which `ib_core` does not know.
    pub(super) fn alloc_mr(&self, pd: &Pd, pages: u32) -> Result<DriverMr> {
        let alloc_mr = self.stock.alloc_mr.ok_or_else(eopnotsupp)?;
        // SAFETY: The protection domain is of this device.
        let raw = from_err_ptr(unsafe {
            alloc_mr(pd.as_raw(), bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, pages)
        })?;
        // SAFETY: `raw` is a new region. The core sets these in `ib_alloc_mr()`, or after
        // `reg_dm_mr()` returns; `device` and `pd` are needed before.
        unsafe {
            (*raw).device = pd.device().as_raw();
            (*raw).pd = pd.as_raw();
        }
        // INVARIANT: As just allocated.
        Ok(DriverMr {
            raw,
            dereg: self.stock.dereg_mr,
        })
    }
}

/// A wrapped operation that runs: the client's data for the device stays until it is dropped.
pub(super) struct Running<'a, T: DeviceOps> {
    pub(super) data: ArcBorrow<'a, T>,
    index: c_int,
}

impl<'a, T: DeviceOps> Running<'a, T> {
    /// # Errors
    ///
    /// `ENODEV` if the client was removed meanwhile.
    pub(super) fn on(device: &'a Device) -> Result<Self> {
        // SAFETY: No preconditions.
        let index = unsafe { bindings::rdma_ops_enter() };
        match T::client().data(device) {
            Some(data) => Ok(Self { data, index }),
            None => {
                // SAFETY: As entered above.
                unsafe { bindings::rdma_ops_leave(index) };
                Err(ENODEV)
            }
        }
    }
}

impl<T: DeviceOps> Drop for Running<'_, T> {
    fn drop(&mut self) {
        // SAFETY: `on()` entered, in this thread.
        unsafe { bindings::rdma_ops_leave(self.index) };
    }
}

/// # Safety
///
/// Only for `ib_core` to call, as `ib_device_ops.query_device` of a device that `T` extends.
unsafe extern "C" fn query_device<T: DeviceOps>(
    raw: *mut bindings::ib_device,
    attr: *mut bindings::ib_device_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core calls with a registered device.
        let running = Running::<T>::on(unsafe { Device::from_raw(raw) })?;
        let data = running.data;
        let stock = data.overlay().stock.query_device.ok_or_else(eopnotsupp)?;
        // SAFETY: The arguments are the core's.
        to_result(unsafe { stock(raw, attr, udata) })?;
        // SAFETY: `attr` is valid for writes.
        unsafe { (*attr).max_dm_size = data.max_dm_size() };
        Ok(0)
    })
}

/// # Safety
///
/// Only for `ib_core` to call, as `ib_device_ops.alloc_dm` of a device that `T` extends.
unsafe extern "C" fn alloc_dm<T: DeviceOps>(
    raw: *mut bindings::ib_device,
    _context: *mut bindings::ib_ucontext,
    attr: *mut bindings::ib_dm_alloc_attr,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_dm {
    // SAFETY: The core calls with a registered device and attributes that are its own.
    let (device, attr) = unsafe { (Device::from_raw(raw), &mut *attr) };
    let mut alloc = || {
        let running = Running::<T>::on(device)?;
        // SAFETY: The core calls for a method of a process.
        to_result(unsafe { bindings::ib_mkey_uapi_dm_class(attrs, &mut attr.flags) })?;
        T::alloc_dm(running.data, attr, true).map(Dm::into_raw)
    };
    alloc().unwrap_or_else(|err: Error| err.to_ptr())
}

/// # Safety
///
/// Only for `ib_core` to call, as `ib_device_ops.dealloc_dm` of a device that `T` extends.
unsafe extern "C" fn dealloc_dm<T: DeviceOps>(
    raw: *mut bindings::ib_dm,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    // SAFETY: The core frees an object that `alloc_dm()` made, once, and not while a region
    // refers to it.
    drop(unsafe { Dm::<T::Dm>::take(raw) });
    0
}

/// # Safety
///
/// Only for `ib_core` to call, as `ib_device_ops.reg_dm_mr` of a device that `T` extends.
unsafe extern "C" fn reg_dm_mr<T: DeviceOps>(
    pd: *mut bindings::ib_pd,
    dm: *mut bindings::ib_dm,
    attr: *mut bindings::ib_dm_mr_attr,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_mr {
    // SAFETY: The core calls with valid objects of one device; the memory came from `alloc_dm()`.
    let (pd, dm, attr) = unsafe { (Pd::from_raw(pd), Dm::<T::Dm>::from_raw(dm), &*attr) };
    let register = || {
        let running = Running::<T>::on(pd.device())?;
        let data = running.data;
        let mr = data.overlay().alloc_mr(pd, 1)?;
        let access = Access::from_raw(attr.access_flags);
        T::reg_dm_mr(data, &mr, pd, dm, attr.offset, attr.length, access)?;
        Ok(mr.into_raw())
    };
    register().unwrap_or_else(|err: Error| err.to_ptr())
}

/// Pages of a region over a dma-buf: what one allocation of the driver's can tell of.
const MAX_DMABUF_PAGES: u64 = 1 << 18;

/// # Safety
///
/// Only for `ib_core` to call, as `ib_device_ops.reg_user_mr_dmabuf` of a device that `T` extends.
unsafe extern "C" fn reg_user_mr_dmabuf<T: DeviceOps>(
    pd: *mut bindings::ib_pd,
    offset: u64,
    length: u64,
    addr: u64,
    fd: c_int,
    access: c_int,
    dmah: *mut bindings::ib_dmah,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_mr {
    // SAFETY: The core calls with a valid protection domain.
    let pd = unsafe { Pd::from_raw(pd) };
    let register = || {
        let access = Access::from_raw(access as u32);
        let running = Running::<T>::on(pd.device())?;
        running.data.may_import(access)?;
        if !dmah.is_null() {
            return Err(eopnotsupp());
        }
        addr.checked_add(length).ok_or(EOVERFLOW)?;
        let _pin = running.data.pin()?;
        // The exporter may let it wait: nobody who removes another device may wait for that. This
        // one is not removed, for its user has it open.
        drop(running);
        let import = Import::new(fd, access.contains(Right::LocalWrite), T::check_dma_buf)?;
        let pages = import.pages(offset, length)?.len() as u64;
        if pages > MAX_DMABUF_PAGES {
            return Err(ENOMEM);
        }
        let running = Running::<T>::on(pd.device())?;
        let data = running.data;
        let mr = data.overlay().alloc_mr(pd, u32::try_from(pages)?)?;
        T::reg_dmabuf_mr(data, &mr, import, offset, length, addr, access)?;
        Ok(mr.into_raw())
    };
    register().unwrap_or_else(|err: Error| err.to_ptr())
}

/// # Safety
///
/// Only for `ib_core` to call, as `ib_device_ops.dereg_mr` of a device that `T` extends.
unsafe extern "C" fn dereg_mr<T: DeviceOps>(
    raw: *mut bindings::ib_mr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core calls with a region that is not deregistered.
        let mr = unsafe { Mr::from_raw(raw) };
        // The region is gone before `running` is dropped; the device is not.
        // SAFETY: As above.
        let device = unsafe { Device::from_raw((*raw).device) };
        let Ok(running) = Running::<T>::on(device) else {
            // The client was removed meanwhile: what it put back is there to be called.
            // SAFETY: The arguments are the core's.
            return Ok(unsafe {
                match (*device.as_raw()).ops.dereg_mr {
                    Some(stock) => stock(raw, udata),
                    None => ENODEV.to_errno(),
                }
            });
        };
        let data = running.data;
        let stock = data.overlay().stock.dereg_mr.ok_or_else(eopnotsupp)?;
        // SAFETY: The arguments are the core's.
        data.dereg_mr(mr, || to_result(unsafe { stock(raw, udata) }))?;
        Ok(0)
    })
}

/// # Safety
///
/// Only for `ib_core` to call, as `ib_device_ops.rereg_user_mr` of a device that `T` extends.
unsafe extern "C" fn rereg_user_mr<T: DeviceOps>(
    raw: *mut bindings::ib_mr,
    flags: c_int,
    start: u64,
    length: u64,
    virt_addr: u64,
    access: c_int,
    pd: *mut bindings::ib_pd,
    udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    // SAFETY: The core calls with a valid region.
    let mr = unsafe { Mr::from_raw(raw) };
    let rereg = || {
        let running = Running::<T>::on(mr.device())?;
        running.data.may_rereg(mr)?;
        let stock = running.data.overlay().stock.rereg_user_mr;
        let stock = stock.ok_or_else(eopnotsupp)?;
        let translation = bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS as c_int;
        if flags & translation == 0 {
            // SAFETY: The arguments are the core's.
            return Ok(unsafe { stock(raw, flags, start, length, virt_addr, access, pd, udata) });
        }
        let rights = if flags & bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS as c_int != 0 {
            access
        } else {
            running.data.rights(mr).into_raw() as c_int
        };
        let (register, dereg) = {
            let ops = &running.data.overlay().stock;
            (ops.reg_user_mr.ok_or_else(eopnotsupp)?, ops.dereg_mr)
        };
        let _pin = running.data.pin()?;
        // It faults user memory in: nobody who removes another device may wait for that. This one
        // is not removed, for the region's owner has it open.
        drop(running);
        // SAFETY: The arguments are the core's, but for the rights.
        let spare = from_err_ptr(unsafe {
            register(pd, start, length, virt_addr, rights, ptr::null_mut(), udata)
        })?;
        // INVARIANT: As just registered.
        let spare = DriverMr { raw: spare, dereg };
        let running = Running::<T>::on(mr.device())?;
        let finish = || {
            let rest = flags & !translation;
            if rest != 0 {
                // SAFETY: The arguments are the core's.
                from_err_ptr(unsafe {
                    stock(raw, rest, start, length, virt_addr, access, pd, udata)
                })?;
            }
            Ok(())
        };
        let range = (virt_addr, length);
        running.data.retranslate(mr, &spare, range, finish)?;
        Ok(ptr::null_mut())
    };
    rereg().unwrap_or_else(|err: Error| err.to_ptr())
}

/// # Safety
///
/// Only for `ib_core` to call, as `ib_device_ops.advise_mr` of a device that `T` extends.
unsafe extern "C" fn advise_mr<T: DeviceOps>(
    pd: *mut bindings::ib_pd,
    advice: bindings::ib_uverbs_advise_mr_advice,
    flags: u32,
    sg_list: *mut bindings::ib_sge,
    num_sge: u32,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    from_result(|| {
        // SAFETY: The core calls with a valid protection domain and `num_sge` entries.
        let (domain, list) = unsafe {
            (
                Pd::from_raw(pd),
                core::slice::from_raw_parts(sg_list, num_sge as usize),
            )
        };
        let running = Running::<T>::on(domain.device())?;
        let _pin = running.data.pin()?;
        let lkeys = list.iter().map(|sge| sge.lkey);
        let _held = running.data.hold_for_advice(domain, lkeys)?;
        let stock = running.data.overlay().stock.advise_mr;
        let stock = stock.ok_or_else(eopnotsupp)?;
        // It faults user memory in: nobody who removes another device may wait for that.
        drop(running);
        // SAFETY: The arguments are the core's.
        to_result(unsafe { stock(pd, advice, flags, sg_list, num_sge, attrs) })?;
        Ok(0)
    })
}
