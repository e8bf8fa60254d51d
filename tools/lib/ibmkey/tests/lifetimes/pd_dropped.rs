// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0505]
// A protection domain is dropped before its key.

use ibmkey::{
    keys::{Key, Pd},
    verbs::Context,
};

pub fn example(context: &Context) -> ibmkey::Result {
    let verbs_pd = context.alloc_pd()?;
    let key = Key::new(&Pd::from(&verbs_pd), 1)?;
    drop(verbs_pd);
    println!("{}", key.length());
    Ok(())
}
