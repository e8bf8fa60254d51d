// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0502]
// Memory is lent also after what describes it was leaked.

use ibmkey::keys::{Access, Pd};

pub fn example(pd: &Pd<'_>) -> ibmkey::Result {
    let mut array = [0u32; 4];
    pd.scope(|scope| {
        std::mem::forget(scope.strided(&mut array, 0..1, &[2], &[2], Access::LOCAL_WRITE)?);
        println!("{:?}", array);
        Ok(())
    })
}
