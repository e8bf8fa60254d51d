// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of `srcu.rs`.

use kernel::prelude::*;

#[kunit_tests(rust_srcu)]
mod tests {
    use super::super::*;

    #[test]
    fn no_grace_period_outlives_the_use() -> Result {
        let cell = Cell::empty();
        drop(cell.swap(Some(Arc::new(5, GFP_KERNEL)?)));
        let used = InUse::new();
        let reader = read();
        let retired = cell.swap(None);
        // There is a reader, so a period begins, for which no caller waits.
        assert!(!retired.is_over());
        drop(reader);
        drop(used);
        assert!(retired.has_passed());
        Ok(())
    }

    #[test]
    fn indices_rise_and_find_what_is_there() -> Result {
        let table = KBox::pin_init(Table::new(), GFP_KERNEL)?;
        assert!(table.indices().next().is_none());
        for index in [7, 0, u32::MAX, 300] {
            table.insert(index, Arc::new(index, GFP_KERNEL)?)?;
        }
        assert!(table.indices().eq([0, 7, 300, u32::MAX]));
        let mut indices = table.indices();
        assert!(indices.next() == Some(0));
        if let Some(seven) = table.get_arc(7) {
            table.remove(7, &seven);
        }
        assert!(indices.next() == Some(300));
        assert!(indices.next() == Some(u32::MAX));
        assert!(indices.next().is_none());
        Ok(())
    }
}
