use super::*;
use crate::types::Extent;

fn sample() -> Superblock {
    Superblock {
        uuid: [7; 16],
        membership_epoch: 1,
        device: 0,
        devices: vec![DeviceEntry {
            addr: FragAddr(0),
            frags: 65_536,
            ..DeviceEntry::default()
        }],
        geometry: Geometry {
            fragment_size: 1024,
            block_size: 16_384,
            small_size: 16_384,
            group_frags: 8192,
            total_frags: 65_536,
            segment_max: 1 << 20,
            checkpoint_segments_max: 64,
            checkpoint_summary_max: 1 << 20,
            checkpoint_nodes_max: 2048,
        },
        checksum_algorithm: 1,
        compatible: 0,
        ro_compatible: 0,
        incompatible: 0,
        checkpoint: CheckpointRef {
            ssn: Ssn(1),
            token: Token(9),
            addr: FragAddr(100),
        },
        hash_key: [3; 16],
        label: b"field".to_vec(),
        created: -5,
        avg_file_size: 16_384,
        files_per_dir: 64,
        profile: b"hfs".to_vec(),
        disk: None,
        scrub: ScrubMark::default(),
        log_key: [9; 16],
        copied: Ssn(0),
        copied_at: 0,
        durable: Ssn(7),
        clean: true,
    }
}

#[test]
fn a_superblock_survives_the_round_trip() {
    let sb = sample();
    assert_eq!(Superblock::decode(&sb.encode()[..]), Ok(sb));
}

#[test]
fn figures_that_no_disk_has_were_not_said() {
    let with = |disk| {
        let sb = Superblock {
            disk: Some(disk),
            ..sample()
        };
        Superblock::decode(&sb.encode()[..]).map(|sb| sb.disk)
    };
    let turning = DiskFigures::TURNING;
    assert_eq!(with(turning), Ok(Some(turning)));
    let shingled = DiskFigures::SHINGLED;
    assert_eq!(with(shingled), Ok(Some(shingled)));
    assert_eq!(with(DiskFigures { rate: 0, ..turning }), Ok(None));
    let shortest_seek = turning.average_seek + 1;
    let longer = DiskFigures {
        shortest_seek,
        ..turning
    };
    assert_eq!(with(longer), Ok(None));
    let turn = u32::MAX;
    assert_eq!(with(DiskFigures { turn, ..turning }), Ok(None));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = sample().encode();
    for bit in 0..SIZE * 8 {
        let mut torn = bytes.clone();
        torn[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::decode(&torn[..]).is_err(), "bit {bit}");
    }
}

/// A volume of so many bytes, with all places reserved.
fn of_bytes(bytes: u64) -> Superblock {
    let mut sb = sample();
    sb.geometry.total_frags = bytes / u64::from(sb.geometry.fragment_size);
    sb.ro_compatible = RO_COMPATIBLE_PLACES;
    sb
}

#[test]
fn every_place_that_a_volume_reaches_is_reserved() {
    let at = |offset: u64, frags| Extent::new(FragAddr(offset >> 10), frags);
    let boot = at(0, 68);
    let (small, large) = (at(128 << 10, 4), at(8 << 20, 4));
    for (bytes, expected) in [
        (4 << 20, vec![boot, small]),
        (8 << 20, vec![boot, small]),
        // It ends inside of the place, and behind it.
        ((8 << 20) + 1024, vec![boot, small, at(8 << 20, 1)]),
        ((8 << 20) + 4096, vec![boot, small, large]),
        ((16 << 20) - 4096, vec![boot, small, large]),
        (16 << 20, vec![boot, large, small]),
        (1 << 40, vec![boot, large, small]),
    ] {
        let sb = of_bytes(bytes);
        assert_eq!(sb.reserved_extents(), expected, "{bytes} bytes");
        let old = Superblock {
            ro_compatible: 0,
            ..sb
        };
        assert_eq!(old.reserved_extents(), old.copy_extents(), "{bytes} bytes");
    }
}

#[test]
fn an_unknown_incompatible_feature_is_refused_by_name() {
    for unknown in [1 << 40, 1 << 7] {
        let sb = Superblock {
            incompatible: unknown,
            ..sample()
        };
        assert_eq!(
            Superblock::decode(&sb.encode()[..]),
            Err(SuperblockError::Incompatible { unknown })
        );
    }
}

/// 32 MiB on a fast device and 32 MiB on another one, the copy on that.
fn on_two() -> Superblock {
    let entry = |number: u8, kind| DeviceEntry {
        uuid: [number + 1; 16],
        kind,
        addr: FragAddr(32_768 * u64::from(number)),
        frags: 32_768,
        device: u32::from(number) + 5,
        offset: u64::from(number) << 24,
        ..DeviceEntry::default()
    };
    Superblock {
        incompatible: INCOMPATIBLE_DEVICES,
        device: 6,
        devices: vec![entry(0, DeviceKind::Fast), entry(1, DeviceKind::Slow)],
        ..sample()
    }
}

#[test]
fn a_table_of_devices_survives_the_round_trip() {
    let sb = on_two();
    assert_eq!(Superblock::decode(&sb.encode()[..]), Ok(sb.clone()));
    assert_eq!(sb.own_device(), Some(&sb.devices[1]));
    assert_eq!(sb.bytes_of(&sb.devices[1]), 32 << 20..64 << 20);
    let mut most = on_two();
    most.devices = (0..DEVICES_MAX as u64)
        .map(|number| DeviceEntry {
            uuid: [number as u8 + 1; 16],
            addr: FragAddr(number * 16_384),
            frags: 16_384,
            device: number as u32,
            offset: if number == 0 { 0 } else { 16 << 20 },
            kind: DeviceKind::Slow,
            ..DeviceEntry::default()
        })
        .collect();
    most.geometry.total_frags = 64 * 16_384;
    assert_eq!(Superblock::decode(&most.encode()[..]), Ok(most));
}

/// What is changed, and how.
type Change = (&'static str, fn(&mut Superblock));

#[test]
fn a_table_that_cannot_be_is_refused() {
    let refused = Err(SuperblockError::Geometry {
        field: "device table",
    });
    let changes: [Change; 12] = [
        ("a copy of no device", |sb| sb.device = 7),
        ("the same number", |sb| sb.devices[0].device = 6),
        ("the same identity", |sb| {
            sb.devices[0].uuid = sb.devices[1].uuid
        }),
        ("no identity", |sb| sb.devices[1].uuid = [0; 16]),
        ("the first that leaves", |sb| {
            sb.devices[0].state = DeviceState::Leaving
        }),
        ("no whole groups", |sb| {
            sb.devices[0].frags += 16;
            sb.devices[1].addr.0 += 16;
            sb.devices[1].frags -= 16;
        }),
        ("more than there is", |sb| sb.devices[1].frags += 1),
        ("one that wraps", |sb| sb.devices[1].frags = u64::MAX),
        ("the first elsewhere", |sb| sb.devices[0].offset = 16 << 20),
        ("where the copies are", |sb| sb.devices[1].offset = 8 << 20),
        ("far away", |sb| sb.devices[1].offset = u64::MAX - 4095),
        ("no device", |sb| sb.devices.clear()),
    ];
    for (what, change) in changes {
        let mut sb = on_two();
        change(&mut sb);
        assert_eq!(Superblock::decode(&sb.encode()[..]), refused, "{what}");
    }
    // What no table entry of this version says, in the bytes: a kind, a state.
    for at in [44, 45] {
        let mut bytes = on_two().encode();
        bytes[MEMBERS_AT + at] = 3;
        let sum = checksum(&bytes);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Superblock::decode(&bytes[..]), refused, "byte {at}");
    }
}

#[test]
fn the_copy_of_the_leading_device_ends_where_what_its_holder_counts_begins() {
    let mut sb = on_two();
    let len = sb.bytes_of(&sb.devices[0]).end;
    sb.devices[1].has_copy = true;
    sb.devices[1].offset = (16 << 20) + len;
    let plain = Superblock::decode(&sb.encode()[..]).unwrap();
    assert_eq!(
        plain.copy(),
        None,
        "without the feature the bit says nothing"
    );
    assert!(plain.devices.iter().all(|device| !device.has_copy));
    sb.ro_compatible |= RO_COMPATIBLE_COPY;
    let decoded = Superblock::decode(&sb.encode()[..]).unwrap();
    assert_eq!(decoded, sb);
    assert_eq!(decoded.copy(), Some((&sb.devices[1], 16 << 20)));
    // It keeps its room, as long as there is one fast device, which leads.
    assert_eq!(decoded.place_for_copy(), decoded.copy());
    let mut room = decoded.clone();
    room.devices[1].has_copy = false;
    let place = Some((&room.devices[1], 16 << 20));
    assert_eq!((room.copy(), room.place_for_copy()), (None, place));
    let none: [fn(&mut Superblock); 4] = [
        |sb| sb.devices[0].frags += sb.geometry.group_frags,
        |sb| sb.devices[0].kind = DeviceKind::Slow,
        |sb| sb.devices[1].kind = DeviceKind::Fast,
        |sb| sb.devices[1].state = DeviceState::Leaving,
    ];
    for change in none {
        let mut without = room.clone();
        change(&mut without);
        assert_eq!(without.place_for_copy(), None);
    }
    let changes: [fn(&mut Superblock); 3] = [
        |sb| sb.devices[0].has_copy = true,
        |sb| sb.devices[1].offset = 16 << 20,
        |sb| {
            sb.devices[0].has_copy = true;
            sb.devices[1].has_copy = false;
        },
    ];
    for change in changes {
        let mut wrong = sb.clone();
        change(&mut wrong);
        assert!(Superblock::decode(&wrong.encode()[..]).is_err());
    }
}

#[test]
fn an_older_checkpoint_of_the_leading_device_has_the_same_place() {
    let mut sb = on_two();
    let len = sb.bytes_of(&sb.devices[0]).end;
    sb.devices[1].is_behind = true;
    sb.devices[1].offset = (16 << 20) + len;
    (sb.copied, sb.copied_at) = (Ssn(5), -7);
    let plain = Superblock::decode(&sb.encode()[..]).unwrap();
    assert_eq!((plain.behind(), plain.copied), (None, Ssn(0)));
    sb.ro_compatible |= RO_COMPATIBLE_BEHIND;
    let decoded = Superblock::decode(&sb.encode()[..]).unwrap();
    assert_eq!(decoded, sb);
    let place = Some((&sb.devices[1], 16 << 20));
    assert_eq!((decoded.behind(), decoded.copy()), (place, None));
    assert_eq!(decoded.place_for_copy(), place);
    // Not both kinds, nor too little room.
    let changes: [fn(&mut Superblock); 2] = [
        |sb| {
            sb.devices[1].has_copy = true;
            sb.ro_compatible |= RO_COMPATIBLE_COPY;
        },
        |sb| sb.devices[1].offset = 16 << 20,
    ];
    for change in changes {
        let mut wrong = sb.clone();
        change(&mut wrong);
        assert!(Superblock::decode(&wrong.encode()[..]).is_err());
    }
}

#[test]
fn a_section_is_that_of_flash_blocks_which_groups_can_have() {
    let mut sb = on_two();
    let section = Section::new(256 << 10, 64 << 10).unwrap();
    sb.devices[0].section = Some(section);
    sb.devices[1].offset += 32 << 10;
    sb.devices[1].section = Section::new(4096, 8 << 20);
    let plain = Superblock::decode(&sb.encode()[..]).unwrap();
    assert_eq!(plain.sections().count(), 0, "without the feature");
    sb.ro_compatible |= RO_COMPATIBLE_SECTIONS;
    assert_eq!(Superblock::decode(&sb.encode()[..]), Ok(sb.clone()));
    let sections: Vec<_> = sb
        .sections()
        .map(|(_, sizes, first)| (sizes, first))
        .collect();
    assert_eq!(sections[0], (section, 0));
    assert_eq!(
        (section.flash_block(), section.extent()),
        (256 << 10, 64 << 10)
    );
    // The device holds it from a byte on that is no border.
    sb.devices[1].section = Some(section);
    assert_eq!(
        sb.sections().nth(1),
        Some((&sb.devices[1], section, 224 << 10))
    );
    let none: [fn(&mut Superblock); 3] = [
        // Longer than a group of 8 MiB.
        |sb| sb.devices[0].section = Section::new(4096, 16 << 20),
        |sb| sb.devices[0].section = Section::new(16 << 20, 4096),
        // No block of 16 KiB begins where a flash block does.
        |sb| sb.devices[1].offset += 4096,
    ];
    for change in none {
        let mut wrong = sb.clone();
        change(&mut wrong);
        assert!(Superblock::decode(&wrong.encode()[..]).is_err());
    }
    for (flash, extent) in [(0, 4096), (4096, 2048), (3 << 12, 4096), (4096, 128 << 20)] {
        assert_eq!(Section::new(flash, extent), None);
    }
    for raw in 0..=255u8 {
        let allowed = (raw == 0) || (raw & 15 != 0 && raw >> 4 != 0);
        assert_eq!(Section::decode(raw).is_some(), allowed, "{raw}");
        if let Some(section) = Section::decode(raw) {
            assert_eq!(Section::encode(section), raw);
        }
    }
}

#[test]
fn gaps_are_between_devices_and_behind_the_last_one() {
    let mut sb = on_two();
    sb.devices[0].frags -= 4;
    sb.devices[1].addr.0 += 8192;
    sb.devices[1].frags -= 2 * 8192;
    sb.devices[1].state = DeviceState::Leaving;
    assert_eq!(Superblock::decode(&sb.encode()[..]), Ok(sb.clone()));
    let gap = |start, frags| Extent::new(FragAddr(start), frags);
    assert_eq!(sb.gaps(), [gap(32_764, 8196), gap(57_344, 8192)]);
    assert!(!sb.gives(gap(40_959, 2)) && sb.gives(gap(40_960, 4)));
    assert!(sb.leaving_groups().into_iter().flatten().eq([5, 6]));
    assert_eq!(on_two().gaps(), []);
}

#[test]
fn a_volume_without_a_table_has_one_device_from_its_first_byte_on() {
    for change in [
        |sb: &mut Superblock| sb.devices[0].offset = 4096,
        |sb: &mut Superblock| sb.devices = on_two().devices,
    ] {
        let mut sb = sample();
        change(&mut sb);
        assert!(Superblock::decode(&sb.encode()[..]).is_err());
    }
}

proptest::proptest! {
    /// Whatever stands in the table, under a good checksum: what is taken can be gone by.
    #[test]
    fn a_table_of_any_bytes_is_refused_or_holds_the_volume(
        changes in proptest::collection::vec(
            (0usize..112, proptest::prop_oneof![0u64..4, 8191u64..8194, proptest::num::u64::ANY]),
            1..4,
        ),
        count in 0u16..70,
        device in 4u32..8,
    ) {
        let mut bytes = on_two().encode();
        for (at, value) in changes {
            bytes[MEMBERS_AT + at..MEMBERS_AT + at + 8].copy_from_slice(&value.to_le_bytes());
        }
        if count < 60 {
            bytes[172..174].copy_from_slice(&(count % 4).to_le_bytes());
        }
        bytes[20..24].copy_from_slice(&device.to_le_bytes());
        let sum = checksum(&bytes);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        if let Ok(sb) = Superblock::decode(&bytes[..]) {
            let ranges: Vec<_> = sb.devices.iter().map(|entry| sb.bytes_of(entry)).collect();
            proptest::prop_assert_eq!(ranges[0].start, 0);
            proptest::prop_assert!(ranges.windows(2).all(|two| two[0].end <= two[1].start));
            proptest::prop_assert!(ranges.last().is_some_and(|last| last.end <= sb.volume_bytes()));
            proptest::prop_assert!(sb.own_device().is_some());
            proptest::prop_assert!(sb.fast_groups().iter().all(|g| g.start <= g.end));
        }
    }
}
