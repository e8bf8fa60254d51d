// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error: lifetime may not live long enough
// What is lent leaves its scope.

use ibmkey::keys::{Access, Pd};

pub fn example(pd: &Pd<'_>, array: &mut [u32]) -> ibmkey::Result {
    let lent = pd.scope(|scope| scope.register(array, Access::LOCAL_WRITE))?;
    println!("{}", lent.rkey());
    Ok(())
}
