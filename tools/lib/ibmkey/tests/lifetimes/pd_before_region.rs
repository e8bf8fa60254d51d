// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0505]
// A protection domain is dropped before its memory.

use ibmkey::{
    keys::{Access, Pd},
    verbs::Context,
};

pub fn example(context: &Context) -> ibmkey::Result {
    let verbs_pd = context.alloc_pd()?;
    let region = Pd::from(&verbs_pd).register(vec![0u8; 8], Access::REMOTE_READ)?;
    drop(verbs_pd);
    println!("{}", region.rkey());
    Ok(())
}
