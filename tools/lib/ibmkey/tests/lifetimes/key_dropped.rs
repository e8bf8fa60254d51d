// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0505]
// A key is dropped before another one that describes it.

use ibmkey::keys::{Access, Key, Pd};

pub fn example(pd: &Pd<'_>, inner: Key<'_>) -> ibmkey::Result {
    let outer = Key::of_slices(pd, &[inner.all()], Access::REMOTE_READ)?;
    drop(inner);
    println!("{}", outer.length());
    Ok(())
}
