// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0505]
// A region is dropped before a key that describes it.

use ibmkey::keys::{Access, Key, Pd};

pub fn example(pd: &Pd<'_>) -> ibmkey::Result {
    let region = pd.register(vec![0u8; 100], Access::REMOTE_READ)?;
    let key = Key::of_slices(pd, &[region.slice(10..20)?], Access::REMOTE_READ)?;
    drop(region);
    println!("{}", key.length());
    Ok(())
}
