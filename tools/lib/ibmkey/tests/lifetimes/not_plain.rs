// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0277]
// Memory has values that a peer could make invalid.

use ibmkey::keys::{Access, Pd};

pub fn example(pd: &Pd<'_>) -> ibmkey::Result {
    pd.register(vec![true], Access::LOCAL_WRITE).map(drop)
}
