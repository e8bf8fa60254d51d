// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// no error
// What the others try, in a good order.

use ibmkey::{
    keys::{Access, Key, Pd},
    verbs::Context,
};

pub fn example(context: Context) -> ibmkey::Result {
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let verbs_pd = context.alloc_pd()?;
    let mut array = [0u32; 4];
    {
        // The object that names the protection domain need not stay.
        let region = Pd::from(&verbs_pd).register(vec![0f64; 100], access)?;
        let key;
        {
            let pd = Pd::from(&verbs_pd);
            key = Key::of_strided(&pd, region.slice(0..8)?, &[4], &[16], access)?;
        }
        println!("{}", key.length());
    }
    let pd = Pd::from(&verbs_pd);
    let length = pd.scope(|scope| {
        let lent = scope.register(&mut array, access)?;
        let inner = Key::of_slices(scope.pd(), &[lent.slice(4..8)?], access)?;
        let outer = Key::of_slices(&pd, &[inner.all(), lent.all()], access)?;
        Ok::<u64, ibmkey::Errno>(outer.length())
    })?;
    array[0] = 1;
    println!("{length} {array:?}");
    drop(verbs_pd);
    drop(context);
    Ok(())
}
