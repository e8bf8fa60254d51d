// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0502]
// A key is bound again while another one describes it.

use ibmkey::keys::{Access, Key, Pd, Region};

pub fn example<'r>(pd: &'r Pd<'r>, region: &'r Region<'r>, mut inner: Key<'r>) -> ibmkey::Result {
    let outer = Key::of_slices(pd, &[inner.all()], Access::REMOTE_READ)?;
    inner.bind_list(&[region.all()], Access::REMOTE_READ)?;
    println!("{}", outer.length());
    Ok(())
}
