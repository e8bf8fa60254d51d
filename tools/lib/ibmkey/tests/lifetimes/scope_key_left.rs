// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0521]
// A key of a scope leaves it.

use ibmkey::keys::{Access, Key, Pd};

pub fn example<'r>(pd: &Pd<'r>, array: &'r mut [u32], kept: &mut Option<Key<'r>>) -> ibmkey::Result {
    pd.scope(|scope| {
        *kept = Some(scope.strided(array, 0..1, &[2], &[2], Access::LOCAL_WRITE)?);
        Ok(())
    })
}
