// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0506]
// Memory is used while it is lent.

use ibmkey::keys::{Access, Pd};

pub fn example(pd: &Pd<'_>) -> ibmkey::Result {
    let mut array = [0u32; 4];
    pd.scope(|scope| {
        let lent = scope.register(&mut array, Access::LOCAL_WRITE)?;
        array = [1; 4];
        println!("{}", lent.rkey());
        Ok(())
    })
}
