// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0505]
// Device memory is dropped before a key that describes it.

use ibmkey::keys::{Access, Key, Pd};

pub fn example(pd: &Pd<'_>) -> ibmkey::Result {
    let memory = pd.alloc_dm(4096, Access::REMOTE_READ)?;
    let key = Key::of_slices(pd, &[memory.all()], Access::REMOTE_READ)?;
    drop(memory);
    println!("{}", key.length());
    Ok(())
}
