// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// error[E0597]
// A protection domain ends before its key.

use ibmkey::{
    keys::{Key, Pd},
    verbs::Context,
};

pub fn example(context: &Context) -> ibmkey::Result {
    let key;
    {
        let verbs_pd = context.alloc_pd()?;
        key = Key::new(&Pd::from(&verbs_pd), 1)?;
    }
    println!("{}", key.length());
    Ok(())
}
