// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0506]
// Memory is written while it is shared.

use ibmkey::keys::{Access, Pd};

pub fn example(pd: &Pd<'_>) -> ibmkey::Result {
    let mut array = [0u32; 4];
    pd.scope(|scope| {
        let key = scope.gather_shared([&array[..2], &array[2..]], Access::REMOTE_READ)?;
        array[0] = 1;
        println!("{}", key.rkey());
        Ok(())
    })
}
