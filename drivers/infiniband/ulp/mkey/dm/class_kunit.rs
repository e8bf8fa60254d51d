// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of `class.rs`.

use kernel::prelude::*;

#[kunit_tests(ib_mkey_dm_class)]
mod tests {
    use super::super::*;
    use kernel::str::CString;

    const GPU: Class = Class::P2p {
        domain: 0,
        bus: 0x3b,
        devfn: 0x1f << 3 | 7,
    };

    fn shows_as(class: Class, text: &str) -> Result<bool> {
        let shown = CString::try_from_fmt(fmt!("{class}"))?;
        Ok(shown.to_bytes() == text.as_bytes())
    }

    /// Returns `true` if the parameter `text` offers exactly `classes` to the device `name`.
    fn offers(text: &str, name: &str, classes: &[Class]) -> bool {
        match Offer::new(text) {
            Ok(offer) => offer.to(name).eq(classes.iter().copied()),
            Err(_) => false,
        }
    }

    #[test]
    fn each_class_is_parsed() {
        assert!(Class::parse("host") == Some(Class::Host));
        assert!(Class::parse("node=0") == Some(Class::Node(0)));
        assert!(Class::parse("node=65535") == Some(Class::Node(65535)));
        assert!(Class::parse("pmem=12") == Some(Class::Pmem(12)));
        assert!(Class::parse("p2p=0000:3b:1f.7") == Some(GPU));
        let far = Class::P2p {
            domain: 0x1_0000,
            bus: 0xff,
            devfn: 0,
        };
        assert!(Class::parse("p2p=10000:ff:00.0") == Some(far));
    }

    #[test]
    fn other_text_is_no_class() {
        for text in [
            "",
            "=",
            "hosts",
            "Host",
            "host=0",
            "host=",
            "node",
            "node=",
            "node=x",
            "node=-1",
            "node=65536",
            "node=1 ",
            "pmem",
            "pmem=",
            "pmem=0x1",
            "pmem=65536",
            "gpu=0",
            "p2p",
            "p2p=",
            "p2p=3b:1f.7",
            "p2p=0000:3b:1f",
            "p2p=0000:3b:20.0",
            "p2p=0000:3b:1f.8",
            "p2p=0000:100:00.0",
            "p2p=0000:3b:1f.",
            "p2p=0000:3b:.7",
            "p2p=:3b:1f.7",
            "p2p=100000000:3b:1f.7",
            "p2p=0000:zz:1f.7",
        ] {
            assert!(Class::parse(text).is_none());
        }
    }

    #[test]
    fn a_class_is_shown_as_it_is_parsed() -> Result {
        assert!(shows_as(Class::Host, "host")?);
        assert!(shows_as(Class::Node(3), "node=3")?);
        assert!(shows_as(Class::Pmem(0), "pmem=0")?);
        assert!(shows_as(GPU, "p2p=0000:3b:1f.7")?);
        Ok(())
    }

    #[test]
    fn an_allocation_names_a_class_by_number() -> Result {
        let default = ClassRequest::from_raw(0)?;
        assert!(default.is(Class::Host) && default.is(GPU));
        let (host, node, p2p) = (u64::from(HOST), u64::from(NODE), u64::from(P2P));
        assert!(ClassRequest::from_raw(host)?.is(Class::Host));
        let first_node = ClassRequest::from_raw(node)?;
        assert!(first_node.is(Class::Node(0)) && first_node.is(Class::Node(9)));
        assert!(!first_node.is(Class::Host) && !first_node.is(Class::Pmem(0)));
        // Numbers are counted from one, because 0 asks for the first.
        let node_2 = ClassRequest::from_raw(node | 3 << 8)?;
        assert!(node_2.is(Class::Node(2)) && !node_2.is(Class::Node(3)));
        assert!(!node_2.is(Class::Pmem(2)));
        let function = ClassRequest::from_raw(p2p | ((0x3b << 8 | 0xff) + 1) << 8)?;
        assert!(function.is(GPU));
        // No function has the number of another one, or of the first one, in any domain.
        for domain in [1, 0x100, 0x1_0000, u32::MAX] {
            let far = Class::P2p {
                domain,
                bus: 0x3b,
                devfn: 0xff,
            };
            let number = ((u64::from(domain) << 16 | 0x3bff) + 1) << 8;
            assert!(!function.is(far) && ClassRequest::from_raw(p2p)?.is(far));
            let that = ClassRequest::from_raw(p2p | number)?;
            assert!(that.is(far) && !that.is(GPU));
        }
        let zero = ClassRequest::from_raw(p2p | 1 << 8)?;
        assert!(!zero.is(GPU));
        assert!(zero.is(Class::P2p {
            domain: 0,
            bus: 0,
            devfn: 0
        }));
        Ok(())
    }

    #[test]
    fn coherent_memory_is_that_of_no_pci_function() -> Result {
        let any = ClassRequest::from_raw(COHERENT)?;
        assert!(any.is(Class::Host) && any.is(Class::Pmem(1)) && !any.is(GPU));
        assert!(!ClassRequest::from_raw(COHERENT | u64::from(P2P))?.is(GPU));
        let node = ClassRequest::from_raw(COHERENT | u64::from(NODE) | 3 << 8)?;
        assert!(node.is(Class::Node(2)) && !node.is(Class::Node(3)));
        for class in [Class::Host, Class::Node(2), GPU, Class::Pmem(7)] {
            let raw = class.into_raw();
            assert!(ClassRequest::from_raw(raw)?.is(class));
            assert!((raw & COHERENT != 0) == class.is_coherent());
        }
        Ok(())
    }

    #[test]
    fn other_numbers_are_refused() {
        let (host, node, p2p) = (u64::from(HOST), u64::from(NODE), u64::from(P2P));
        let unknown = host | node | p2p | u64::from(PMEM);
        for raw in [
            unknown,
            0xff,
            1 << 8,
            host | 1 << 8,
            node | p2p,
            COHERENT | 1 << 8,
            u64::MAX,
        ] {
            assert!(ClassRequest::from_raw(raw).err() == Some(EINVAL));
        }
    }

    #[test]
    fn a_device_is_offered_its_entries_and_host() {
        assert!(offers("", "rxe0", &[Class::Host]));
        assert!(offers("node=1", "rxe0", &[Class::Node(1), Class::Host]));
        let text = "rxe1/pmem=0,node=1,rxe0/p2p=0000:3b:1f.7,\n";
        assert!(offers(text, "rxe0", &[Class::Node(1), GPU, Class::Host]));
        assert!(offers(
            text,
            "rxe1",
            &[Class::Pmem(0), Class::Node(1), Class::Host]
        ));
        assert!(offers(text, "rxe", &[Class::Node(1), Class::Host]));
        assert!(offers(
            "host,node=1",
            "a",
            &[Class::Host, Class::Node(1), Class::Host]
        ));
    }

    #[test]
    fn one_wrong_entry_refuses_the_parameter() {
        for text in [
            "gpu",
            "host,gpu",
            "rxe0/",
            "rxe0/rxe1/host",
            "node=1,node=",
            " host, host",
        ] {
            assert!(Offer::new(text).err() == Some(EINVAL));
        }
    }
}
