use super::*;
use crate::dirent::hash_key;
use crate::inode::TAIL;
use crate::node::TreeRoot;
use proptest::prelude::*;

const UUID: [u8; 16] = [7; 16];
const FRAGMENT: u32 = 1024;

/// A track of files of these sizes, in order of their keys, packed as densely as may be.
fn track(sizes: &[u32]) -> Head {
    let mut free = head_bytes(sizes.len()).div_ceil(FRAGMENT as usize) as u16;
    let mut slots = Vec::new();
    for (i, size) in (0u64..).zip(sizes) {
        let frags = size.div_ceil(FRAGMENT) as u16;
        slots.push(Slot {
            key: 512 + i * 256 + i % 3,
            second: i.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ino: Ino(32 + i),
            ssn: Ssn(i.min(9)),
            mode: mode::REGULAR | 0o644,
            start: if frags == 0 { 0 } else { free },
            frags,
            stored: *size,
            checksum: if frags == 0 { 0 } else { !i },
            ..Slot::default()
        });
        free += frags;
    }
    let identity = TrackIdentity {
        directory: Ino(2),
        generation: 5,
        low: 512,
        high: KEYS_END,
        addr: FragAddr(1000),
        frags: free,
        ssn: Ssn(9),
    };
    Head { identity, slots }
}

/// The bytes of a head that no writer would write, with a good checksum.
fn forged(head: &Head, change: impl FnOnce(&mut [u8])) -> (Vec<u8>, u64) {
    let (mut bytes, _) = head.encode(&UUID, FRAGMENT).unwrap();
    change(&mut bytes);
    let checksum = metadata_checksum(&UUID, &head.identity.block(), &bytes);
    (bytes, checksum)
}

fn refused(head: &Head, change: impl FnOnce(&mut [u8])) -> TrackError {
    let (bytes, checksum) = forged(head, change);
    Head::decode(&bytes, &UUID, &head.identity, checksum, FRAGMENT).unwrap_err()
}

/// Offset of a field of the `slot`-th slot.
const fn at(slot: usize, field: usize) -> usize {
    head_bytes(slot) + field
}

const KEY: usize = 0;
const NANOS: usize = 64;
const MODE: usize = 84;
const START: usize = 112;
const STORED: usize = 116;

proptest! {
    #[test]
    fn a_head_reads_back_and_nothing_else_passes_for_it(
        sizes in prop::collection::vec(0u32..6000, 1..=40),
        flip in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let head = track(&sizes);
        let (mut bytes, checksum) = head.encode(&UUID, FRAGMENT).unwrap();
        prop_assert_eq!(bytes.len(), head.len());
        let read = Head::decode(&bytes, &UUID, &head.identity, checksum, FRAGMENT);
        prop_assert_eq!(read.as_ref(), Ok(&head));
        for (i, slot) in head.slots.iter().enumerate() {
            prop_assert_eq!(head.find(slot.key & !255, slot.second), Some((i, slot)));
            prop_assert_eq!(head.find(slot.key & !255, !slot.second), None);
        }
        let flip = flip.index(bytes.len());
        bytes[flip] ^= 1 << bit;
        prop_assert!(Head::decode(&bytes, &UUID, &head.identity, checksum, FRAGMENT).is_err());
    }

    #[test]
    fn whatever_decodes_is_what_a_writer_may_write(
        place in at(0, 0)..at(3, 0),
        value in any::<[u8; 2]>(),
    ) {
        let head = track(&[100, 0, 5000]);
        let (bytes, checksum) = forged(&head, |bytes| {
            bytes[place.min(at(3, 0) - 2)..][..2].copy_from_slice(&value);
        });
        if let Ok(read) = Head::decode(&bytes, &UUID, &head.identity, checksum, FRAGMENT) {
            prop_assert_eq!(read.encode(&UUID, FRAGMENT), Ok((bytes, checksum)));
            for slot in &read.slots {
                prop_assert!(slot.start + slot.frags <= head.identity.frags);
            }
        }
    }

    #[test]
    fn a_table_entry_reads_back_or_is_refused(bytes in any::<[u8; TableEntry::SIZE]>(), slots in 1u8..=64) {
        let mut entry = bytes;
        // Mostly possible values, so that many entries pass.
        entry[36..40].copy_from_slice(&[40, 0, slots, 0]);
        for bytes in [bytes, entry] {
            if let Some(entry) = TableEntry::decode(&bytes, FRAGMENT) {
                prop_assert_eq!(TableEntry::decode(&entry.encode(), FRAGMENT), Some(entry));
                prop_assert_eq!(entry.stale & !entry.every_slot(), 0);
            }
        }
    }

    #[test]
    fn an_inline_table_is_in_order_and_fits_an_inode(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Some(table) = decode_inline(&bytes, FRAGMENT) {
            prop_assert!(table.is_sorted_by(|a, b| a.0 < b.0));
            prop_assert!(bytes.len() <= crate::inode::TAIL);
        }
    }
}

#[test]
fn a_head_that_lies_in_the_run_is_refused_field_by_field() {
    let head = track(&[100, 0, 5000]);
    let put = |place: usize, value: &[u8]| {
        refused(&head, |bytes| {
            bytes[place..place + value.len()].copy_from_slice(value);
        })
    };
    assert_eq!(put(0, b"LNOD"), TrackError::Header);
    assert_eq!(put(4, &[2]), TrackError::Header);
    assert_eq!(put(6, &[0]), TrackError::Header);
    assert_eq!(put(6, &[65]), TrackError::Header);
    assert_eq!(put(6, &[64]), TrackError::Short);
    for place in [16, 24, 28, 32, 40, 48] {
        assert_eq!(put(place, &[99]), TrackError::Identity, "{place}");
    }
    let foreign = [0u64, 511, KEYS_END, u64::MAX];
    for key in foreign {
        assert_eq!(put(at(0, KEY), &key.to_le_bytes()), TrackError::Key);
    }
    assert_eq!(put(at(1, KEY), &512u64.to_le_bytes()), TrackError::Key);
    assert_eq!(
        put(at(0, MODE), &mode::DIRECTORY.to_le_bytes()),
        TrackError::File
    );
    assert_eq!(put(at(0, NANOS), &u32::MAX.to_le_bytes()), TrackError::File);
    // Into the head, onto the data before it, outside the run, and longer than its fragments.
    assert_eq!(put(at(0, START), &[0, 0]), TrackError::Data);
    assert_eq!(put(at(2, START), &[1, 0]), TrackError::Data);
    assert_eq!(
        put(at(2, START), &[0xff, 0xff, 0xff, 0xff]),
        TrackError::Data
    );
    assert_eq!(
        put(at(2, STORED), &u32::MAX.to_le_bytes()),
        TrackError::Data
    );
    assert_eq!(put(at(1, START), &[3, 0]), TrackError::Data);
}

#[test]
fn a_track_of_another_place_or_time_is_refused() {
    let head = track(&[1, 2, 3]);
    let (bytes, checksum) = head.encode(&UUID, FRAGMENT).unwrap();
    let wrong = |id: TrackIdentity| Head::decode(&bytes, &UUID, &id, checksum, FRAGMENT);
    let id = head.identity;
    assert!(wrong(id).is_ok());
    for other in [
        TrackIdentity {
            directory: Ino(3),
            ..id
        },
        TrackIdentity {
            generation: 6,
            ..id
        },
        TrackIdentity { low: 256, ..id },
        TrackIdentity { high: 1024, ..id },
        TrackIdentity {
            addr: FragAddr(1),
            ..id
        },
        TrackIdentity {
            frags: id.frags - 1,
            ..id
        },
        TrackIdentity { ssn: Ssn(8), ..id },
    ] {
        assert!(wrong(other).is_err(), "{other:?}");
    }
    assert!(Head::decode(&bytes, &[8; 16], &id, checksum, FRAGMENT).is_err());
    assert!(Head::decode(&bytes[..bytes.len() - 1], &UUID, &id, checksum, FRAGMENT).is_err());
}

#[test]
fn no_track_is_longer_than_its_limits() {
    let mut head = track(&[0; SLOTS_MAX]);
    assert!(head.encode(&UUID, FRAGMENT).is_ok());
    head.identity.frags = 256;
    assert!(head.encode(&UUID, FRAGMENT).is_ok());
    head.identity.frags = 257;
    assert_eq!(head.encode(&UUID, FRAGMENT), Err(TrackError::Length));
    assert_eq!(
        track(&[0; 65]).encode(&UUID, FRAGMENT),
        Err(TrackError::Header)
    );
    assert_eq!(track(&[]).encode(&UUID, FRAGMENT), Err(TrackError::Header));
    assert_eq!(head.encode(&UUID, 0), Err(TrackError::Length));
}

/// An entry that just fits into an inode.
fn largest() -> TableEntry {
    TableEntry {
        addr: FragAddr(SHORT_END - 1),
        ssn: Ssn(2),
        checksum: 3,
        stale: 0,
        elsewhere: SHORT_ELSEWHERE_MAX,
        frags: 40,
        slots: 2,
        filter: 0x8000_0000_0001,
    }
}

#[test]
fn what_needs_more_room_in_an_inode_loses_its_filter_there() {
    let (entry, none) = (largest(), TableEntry::default());
    for long in [
        TableEntry { stale: 1, ..entry },
        TableEntry {
            elsewhere: SHORT_ELSEWHERE_MAX + 1,
            ..entry
        },
        TableEntry {
            addr: FragAddr(SHORT_END),
            ..entry
        },
    ] {
        let bytes = encode_inline(&[(256, long), (512, none)], TAIL).unwrap();
        let read = decode_inline(&bytes, FRAGMENT).unwrap();
        let filter = (1 << 48) - 1;
        assert_eq!(
            read,
            [(256, TableEntry { filter, ..long }), (512, none)],
            "without its filter"
        );
        assert_eq!(
            TableEntry::decode(&long.encode(), FRAGMENT),
            Some(long),
            "a node has room"
        );
    }
}

#[test]
fn a_table_of_five_tracks_fits_an_inode_beside_the_root_of_a_tree() {
    let entry = largest();
    let none = TableEntry::default();
    let last = KEYS_END - 256;
    let table = [
        (256, entry),
        (512, none),
        (1024, entry),
        (2048, entry),
        (last, entry),
    ];
    let bytes = encode_inline(&table, TAIL - TreeRoot::SIZE).unwrap();
    assert_eq!(encode_inline(&table, bytes.len() - 1), None);
    assert_eq!(decode_inline(&bytes, FRAGMENT).unwrap(), table);
    assert_eq!(decode_inline(&bytes[..bytes.len() - 1], FRAGMENT), None);
    let one = TableEntry::SHORT_SIZE;
    let turned = [&bytes[one..], &bytes[..one]].concat();
    assert_eq!(decode_inline(&turned, FRAGMENT), None);
    for wrong in [
        TableEntry { stale: 4, ..entry },
        TableEntry { slots: 65, ..entry },
        TableEntry {
            slots: 0,
            stale: 0,
            ..entry
        },
        TableEntry {
            frags: 257,
            ..entry
        },
        TableEntry { frags: 0, ..entry },
        TableEntry {
            addr: FragAddr(u64::MAX),
            ..entry
        },
        TableEntry {
            addr: FragAddr(0),
            ..entry
        },
    ] {
        assert_eq!(
            TableEntry::decode(&wrong.encode(), FRAGMENT),
            None,
            "{wrong:?}"
        );
    }
}

#[test]
fn a_filter_has_the_names_of_its_slots_and_few_others() {
    let slots: Vec<Slot> = (0..25)
        .map(|i| Slot {
            second: second_hash(&[3; 16], format!("file {i}").as_bytes()),
            ..Slot::default()
        })
        .collect();
    let entry = TableEntry {
        filter: filter_of(&slots),
        ..TableEntry::default()
    };
    assert!(slots.iter().all(|slot| entry.may_have(slot.second)));
    let others = (0..1000u32).map(|i| second_hash(&[3; 16], &i.to_le_bytes()));
    let met = others.filter(|second| entry.may_have(*second)).count();
    assert!((200..600).contains(&met), "{met} of 1000");
}

#[test]
fn an_answer_is_final_unless_the_slot_is_stale_or_names_live_elsewhere() {
    let entry = TableEntry {
        addr: FragAddr(9),
        stale: 0b10,
        frags: 40,
        slots: 3,
        ..TableEntry::default()
    };
    assert_eq!(entry.answer(Some((0, 'a'))), Answer::Slot('a'));
    assert_eq!(entry.answer(Some((1, 'b'))), Answer::AskDirectory);
    assert_eq!(entry.answer::<char>(None), Answer::Absent);
    let elsewhere = TableEntry {
        elsewhere: 1,
        ..entry
    };
    assert_eq!(elsewhere.answer(Some((0, 'a'))), Answer::Slot('a'));
    assert_eq!(elsewhere.answer::<char>(None), Answer::AskDirectory);
    assert_eq!(
        TableEntry::default().answer::<char>(None),
        Answer::AskDirectory
    );
}

#[test]
fn names_of_one_hash_are_told_apart_by_the_second() {
    let key = [3; 16];
    assert_ne!(second_hash(&key, b"a"), second_hash(&key, b"b"));
    assert_ne!(second_hash(&key, b"a") >> 9 << 8, hash_key(&key, b"a"));
    let mut head = track(&[1, 2, 3]);
    head.slots[1].key = head.slots[0].key + 1;
    assert_eq!(head.find(512, head.slots[1].second).unwrap().0, 1);
    assert_eq!(head.find(512, head.slots[2].second), None);
    assert_eq!(head.find(u64::MAX, 0), None);
}
