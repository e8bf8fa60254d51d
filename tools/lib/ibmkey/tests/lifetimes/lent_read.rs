// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0502]
// Memory that a peer may write is read while it is lent.

use ibmkey::keys::{Access, Pd};

pub fn example(pd: &Pd<'_>) -> ibmkey::Result {
    let mut array = [0u32; 4];
    pd.scope(|scope| {
        // The registration lasts to the end of the scope, whether or not this is kept.
        scope.register(&mut array, Access::LOCAL_WRITE)?;
        println!("{:?}", array);
        Ok(())
    })
}
