// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0499]
// Memory is lent twice.

use ibmkey::keys::{Access, Pd};

pub fn example(pd: &Pd<'_>) -> ibmkey::Result {
    let mut array = [0u32; 4];
    pd.scope(|scope| {
        scope.register(&mut array, Access::LOCAL_WRITE)?;
        scope.register(&mut array, Access::LOCAL_WRITE)?;
        Ok(())
    })
}
