use super::*;
use crate::pointer::Pointer;
use crate::types::Ssn;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn identity(level: u8) -> Identity {
    Identity {
        kind: BlockKind::DirNode,
        level,
        ino: Ino(7),
        generation: 3,
        logical: 10,
    }
}

fn leaf(entries: &[(u64, &[u8])]) -> Page {
    let mut page = Page::new(&identity(0));
    for (key, value) in entries {
        page.insert(*key, value).unwrap();
    }
    page
}

fn patched(page: &Page, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut all = page.as_bytes().to_vec();
    all[at..at + bytes.len()].copy_from_slice(bytes);
    all
}

/// The live entries, and that everything that no entry owns is zero.
fn check(page: &Page, model: &BTreeMap<u64, Vec<u8>>) {
    assert!(
        page.iter()
            .eq(model.iter().map(|(key, value)| (*key, value.as_slice())))
    );
    let used: usize = model.values().map(|value| SLOT_SIZE + value.len()).sum();
    assert_eq!(page.used_bytes(), used);
    assert_eq!(page.used_bytes() + page.free_bytes(), CAPACITY);
    if !model.is_empty() {
        Page::verify(page.as_bytes(), &page.identity().unwrap()).unwrap();
    }
    let mut bytes = page.as_bytes().to_vec();
    for slot in page.slots() {
        bytes[slot.range()].fill(0);
    }
    bytes[..64 + SLOT_SIZE * page.count()].fill(0);
    assert!(bytes.iter().all(|byte| *byte == 0), "dead bytes are zero");
}

#[test]
fn golden_bytes_of_a_leaf() {
    let page = leaf(&[(0x1112, b"ab"), (10, b"xyz"), (11, b"")]);
    let mut bytes = [0u8; NODE_SIZE];
    bytes[..12].copy_from_slice(b"LNOD\x01\x00\x03\x00\x03\x00\xfb\x0f");
    bytes[16] = 7;
    bytes[24] = 3;
    bytes[32] = 10;
    bytes[64..76].copy_from_slice(b"\x0a\0\0\0\0\0\0\0\xfb\x0f\x03\0");
    bytes[76..88].copy_from_slice(b"\x0b\0\0\0\0\0\0\0\x00\x10\x00\0");
    bytes[88..100].copy_from_slice(b"\x12\x11\0\0\0\0\0\0\xfe\x0f\x02\0");
    bytes[4091..].copy_from_slice(b"xyzab");
    assert_eq!(page.as_bytes(), &bytes);
    assert_eq!(Page::verify(&bytes, &identity(0)), Ok(()));
}

#[test]
fn roots_and_children_survive_encoding() {
    let pointer = Pointer {
        addr: FragAddr(9),
        frags: 4,
        stored: 4096,
        birth: Ssn(5),
        checksum: 77,
        ..Pointer::NONE
    };
    let child = Child {
        pointer,
        aggregate: [1, 2, u64::MAX],
    };
    assert_eq!(Child::decode(&child.encode()), Some(child));
    let root = TreeRoot {
        pointer,
        low: 3,
        level: 2,
    };
    assert_eq!(TreeRoot::decode(&root.encode()), Some(root));
    assert_eq!(TreeRoot::decode(&[0; 64]), Some(TreeRoot::EMPTY));
    assert_eq!(TreeRoot::EMPTY.encode(), [0; 64]);
    for bad in [
        TreeRoot { level: 31, ..root },
        TreeRoot {
            pointer: Pointer {
                addr: temporary(1),
                ..pointer
            },
            ..root
        },
        TreeRoot {
            pointer: Pointer {
                frags: 17,
                ..pointer
            },
            ..root
        },
        TreeRoot {
            pointer: Pointer {
                stored: 8192,
                ..pointer
            },
            ..root
        },
        TreeRoot {
            low: 1,
            ..TreeRoot::EMPTY
        },
    ] {
        assert_eq!(TreeRoot::decode(&bad.encode()), None);
    }
    let mut reserved = root.encode();
    reserved[63] = 1;
    assert_eq!(TreeRoot::decode(&reserved), None);
    assert_eq!(TreeRoot::decode(&[0; 63]), None);
}

/// What is said of a leaf of three entries with other bytes at `at`.
fn damage(at: usize, bytes: &[u8]) -> NodeError {
    let page = leaf(&[(10, b"abc"), (12, b"defg"), (14, b"")]);
    Page::verify(&patched(&page, at, bytes), &identity(0)).unwrap_err()
}

#[test]
fn each_damage_of_a_header_has_its_name() {
    let id = identity(0);
    assert_eq!(
        Page::verify(&[0; 100], &id),
        Err(NodeError::Size { found: 100 })
    );
    assert_eq!(damage(0, &[0; 4]), NodeError::Magic { found: 0 });
    assert_eq!(damage(4, &[2]), NodeError::Version { found: 2 });
    assert_eq!(
        damage(6, &[4]),
        NodeError::Kind {
            found: 4,
            expected: 3
        }
    );
    assert_eq!(
        damage(7, &[1]),
        NodeError::Level {
            found: 1,
            expected: 0
        }
    );
    assert_eq!(damage(14, &[1]), NodeError::Reserved);
    assert_eq!(
        damage(16, &[8]),
        NodeError::Ino {
            found: 8,
            expected: 7
        }
    );
    assert_eq!(
        damage(24, &[1]),
        NodeError::Generation {
            found: 1,
            expected: 3
        }
    );
    assert_eq!(damage(28, &[1]), NodeError::Reserved);
    assert_eq!(
        damage(32, &[9]),
        NodeError::Low {
            found: 9,
            expected: 10
        }
    );
    assert_eq!(damage(63, &[1]), NodeError::Reserved);
    let level = LEVEL_MAX + 1;
    assert_eq!(
        Page::verify(leaf(&[(10, b"abc")]).as_bytes(), &Identity { level, ..id }),
        Err(NodeError::Level {
            found: 0,
            expected: level
        })
    );
}

#[test]
fn each_damage_of_the_heap_has_its_name() {
    assert_eq!(damage(8, &[0, 0]), NodeError::Empty);
    assert_eq!(
        damage(8, &[0xff, 0xff]),
        NodeError::Heap {
            count: 0xffff,
            heap_start: 4089
        }
    );
    assert_eq!(
        damage(10, &[1, 0x10]),
        NodeError::Heap {
            count: 3,
            heap_start: 4097
        }
    );
    assert_eq!(
        damage(10, &[99, 0]),
        NodeError::Heap {
            count: 3,
            heap_start: 99
        }
    );
    assert_eq!(
        damage(12, &[1]),
        NodeError::Garbage {
            heap: 7,
            live: 7,
            garbage: 1
        }
    );
}

#[test]
fn each_damage_of_an_entry_has_its_name() {
    assert_eq!(damage(64, &[9]), NodeError::Order { index: 0 });
    assert_eq!(damage(76, &[10]), NodeError::Order { index: 1 });
    assert_eq!(
        damage(72, &[0, 0]),
        NodeError::Value {
            index: 0,
            offset: 0,
            len: 3
        }
    );
    assert_eq!(
        damage(74, &[4, 0]),
        NodeError::Value {
            index: 0,
            offset: 4093,
            len: 4
        }
    );
    assert_eq!(
        damage(96, &[0, 0]),
        NodeError::Value {
            index: 2,
            offset: 0,
            len: 0
        }
    );
    assert_eq!(damage(84, &[0xfb, 0x0f]), NodeError::Overlap { index: 1 });
}

#[test]
fn keys_behind_the_greatest_are_out_of_order() {
    let page = leaf(&[(20, b""), (u64::MAX, b"")]);
    let bytes = patched(&page, 64, &[0xff; 8]);
    assert_eq!(
        Page::verify(&bytes, &identity(0)),
        Err(NodeError::Order { index: 1 })
    );
}

#[test]
fn children_on_disk_lead_to_nodes() {
    let good = Pointer {
        addr: FragAddr(9),
        frags: 4,
        stored: 4096,
        birth: Ssn(5),
        checksum: 77,
        ..Pointer::NONE
    };
    let verify = |value: &[u8]| {
        let mut page = Page::new(&identity(1));
        page.insert(10, value).unwrap();
        Page::verify(page.as_bytes(), &identity(1))
    };
    assert_eq!(verify(&Child::unsettled(good).encode()), Ok(()));
    let bad = [
        Pointer::NONE,
        Pointer {
            addr: temporary(4),
            ..good
        },
        Pointer {
            frags: u32::MAX,
            ..good
        },
        Pointer {
            stored: 4095,
            ..good
        },
    ];
    for pointer in bad {
        let child = Child::unsettled(pointer).encode();
        assert_eq!(verify(&child), Err(NodeError::Child { index: 0 }));
    }
    assert_eq!(verify(b"short"), Err(NodeError::Child { index: 0 }));
}

#[test]
fn appending_leaves_the_left_page_untouched() {
    let mut page = Page::new(&identity(0));
    let mut key = 10;
    while page.insert(key, &[1; 100]).is_ok() {
        key += 1;
    }
    let before = page.as_bytes().to_vec();
    let right = page.split_insert(key, &[1; 100], true).unwrap();
    assert_eq!(page.as_bytes(), before.as_slice());
    assert_eq!(
        (right.count(), right.low(), right.key(0)),
        (1, key, Some(key))
    );
}

#[test]
fn too_long_values_are_refused() {
    let mut page = Page::new(&identity(0));
    assert_eq!(page.insert(10, &[0; VALUE_MAX + 1]), Err(Full));
    assert_eq!(page.insert(10, &[0; VALUE_MAX]), Ok(0));
    assert_eq!(page.replace(0, &[0; VALUE_MAX + 1]), Err(Full));
    assert!(page.split_insert(11, &[0; VALUE_MAX + 1], false).is_err());
}

#[test]
fn a_dump_names_keys_and_children() {
    let text = leaf(&[(10, b"abc")]).to_string();
    assert_eq!(
        text,
        "DirNode level 0 ino 7 generation 3 low 10: 1 entries, 15 of 4032 bytes used, 0 garbage\n  10: 616263\n"
    );
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, usize),
    Remove(usize),
    Replace(usize, usize),
    Compact,
}

fn op() -> impl Strategy<Value = Op> {
    let len = || prop_oneof![0..60usize, 0..=VALUE_MAX];
    prop_oneof![
        4 => (10..200u64, len()).prop_map(|(key, len)| Op::Insert(key, len)),
        2 => any::<usize>().prop_map(Op::Remove),
        2 => (any::<usize>(), len()).prop_map(|(index, len)| Op::Replace(index, len)),
        1 => Just(Op::Compact),
    ]
}

proptest! {
    #[test]
    fn a_page_is_a_sorted_map(ops in prop::collection::vec(op(), 1..200)) {
        let mut page = Page::new(&identity(0));
        let mut model = BTreeMap::new();
        for (step, op) in ops.into_iter().enumerate() {
            let nth = |i: usize| model.keys().nth(i % model.len().max(1)).copied();
            match op {
                Op::Insert(key, len) => {
                    let value = vec![step as u8 | 1; len];
                    let old = model.get(&key).map_or(0, |value: &Vec<u8>| value.len() + SLOT_SIZE);
                    let fits = len + SLOT_SIZE <= page.free_bytes() + old;
                    let before = page.as_bytes().to_vec();
                    match page.insert(key, &value) {
                        Ok(_) => { model.insert(key, value); prop_assert!(fits) }
                        Err(Full) => {
                            prop_assert!(!fits);
                            prop_assert_eq!(page.as_bytes().as_slice(), before);
                        }
                    }
                }
                Op::Remove(i) => if let Some(key) = nth(i) {
                    page.remove(page.find(key).unwrap());
                    model.remove(&key);
                },
                Op::Replace(i, len) => if let Some(key) = nth(i) {
                    let value = vec![step as u8 | 1; len];
                    if page.replace(page.find(key).unwrap(), &value).is_ok() {
                        model.insert(key, value);
                    }
                },
                Op::Compact => page.compact(),
            }
            check(&page, &model);
        }
    }

    #[test]
    fn splits_keep_all_entries_and_merges_undo_them(
        entries in prop::collection::btree_map(10..500u64, 0..=VALUE_MAX, 2..60),
        key in 10..500u64, len in 0..=VALUE_MAX, append: bool,
    ) {
        let mut page = Page::new(&identity(0));
        let mut model = BTreeMap::new();
        for (key, len) in entries {
            if page.insert(key, &vec![5; len]).is_ok() {
                model.insert(key, vec![5; len]);
            }
        }
        prop_assume!(page.insert(key, &vec![9; len]).is_err());
        model.insert(key, vec![9; len]);
        let right = page.split_insert(key, &vec![9; len], append).unwrap();
        prop_assert!(!page.is_empty() && !right.is_empty());
        prop_assert_eq!(right.key(0), Some(right.low()));
        let high = model.split_off(&right.low());
        check(&page, &model);
        check(&right, &high);
        let fits = page.used_bytes() + right.used_bytes() <= CAPACITY;
        prop_assert_eq!(page.merge(&right).is_ok(), fits);
        if fits {
            model.extend(high);
        }
        check(&page, &model);
    }

    #[test]
    fn hostile_pages_never_panic(
        edits in prop::collection::vec((0..NODE_SIZE, any::<u8>()), 0..20),
        header in prop::collection::vec((8..16usize, any::<u8>()), 0..3),
        len in 0..200usize,
    ) {
        let mut page = Page::new(&identity(0));
        for key in 10..30 {
            let _ = page.insert(key, &vec![key as u8; len]);
        }
        let mut bytes = page.as_bytes().to_vec();
        for (at, byte) in edits.into_iter().chain(header) {
            bytes[at] = byte;
        }
        if let Ok(mut page) = Page::from_bytes(&bytes, &identity(0)) {
            prop_assert!(page.iter().count() == page.count());
            let _ = page.insert(15, &[1; 900]);
            let _ = page.split_insert(16, &[1; 1400], false);
            page.compact();
            page.remove(0);
        }
        // Even unverified, nothing reaches outside of the page.
        let mut page = Page(Box::new(RawNode::read_from_bytes(&bytes).unwrap()));
        let _ = (page.iter().count(), page.to_string(), page.find(12), page.free_bytes());
        page.compact();
    }
}
