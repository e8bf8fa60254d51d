// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0597]
// A region ends before a key that describes it.

use ibmkey::keys::{Access, Key, Pd};

pub fn example(pd: &Pd<'_>) -> ibmkey::Result {
    let mut key = Key::new(pd, 1)?;
    {
        let region = pd.register(vec![0u8; 100], Access::REMOTE_READ)?;
        key.bind_list(&[region.all()], Access::REMOTE_READ)?;
    }
    println!("{}", key.length());
    Ok(())
}
