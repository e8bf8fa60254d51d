// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0597]
// Memory is lent for longer than it exists.

use ibmkey::keys::{Access, Pd};

pub fn example(pd: &Pd<'_>) -> ibmkey::Result {
    pd.scope(|scope| {
        let mut array = [0u32; 4];
        scope.register(&mut array, Access::LOCAL_WRITE)?;
        Ok(())
    })
}
