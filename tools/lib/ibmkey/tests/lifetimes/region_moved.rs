// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0505]
// A region is moved before a key that describes it is dropped.

use ibmkey::keys::{Access, Key, Pd, Region};

pub fn example<'c>(pd: &Pd<'c>) -> ibmkey::Result<Region<'c>> {
    let region = pd.register(vec![0u8; 100], Access::REMOTE_READ)?;
    let key = Key::of_strided(pd, region.slice(0..8)?, &[4], &[16], Access::REMOTE_READ)?;
    let moved = region;
    println!("{}", key.length());
    Ok(moved)
}
