//! Numbers that no writer makes are refused where they are read, so that nobody behind has to fear them.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_format::geometry::{GROUPS_MAX, OutOfRange};
use loamfs_format::ifile::{INO_MAX, INODE_BLOCKS_MAX, IfileEntry};
use loamfs_format::summary::{
    Dynamic, Header, Record, Records, SSN_MAX, SegmentKind, SummaryError,
};
use loamfs_format::{Extent, FragAddr, Geometry, InodeBlockNo, Pointer, Ssn, Token};

fn header() -> Header {
    Header {
        uuid: [1; 16],
        ssn: Ssn(2),
        previous: Token(3),
        token: Token(4),
        next: FragAddr(5),
        durable: Ssn(1),
        kind: SegmentKind::Normal,
        dynamic: Dynamic::default(),
        extents: vec![
            Extent::new(FragAddr(100), 8),
            Extent::new(FragAddr(10), 8),
            Extent::new(FragAddr(18), 8),
        ],
        records_len: 0,
        records_checksum: 0,
        code: [0; 16],
    }
}

#[test]
fn headers() {
    let refused = |change: fn(&mut Header)| {
        let mut header = header();
        change(&mut header);
        match Header::decode(&header.encode()) {
            Err(SummaryError::Field { field }) => field,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(Header::decode(&header().encode()), Ok(header()));
    // A chain ends because sequence numbers rise: the last of all must never come.
    assert_eq!(refused(|h| h.ssn = Ssn(SSN_MAX + 1)), "sequence number");
    assert_eq!(
        refused(|h| h.dynamic.inodes = INO_MAX + 1),
        "number of inodes"
    );
    assert_eq!(
        refused(|h| h.dynamic.next_inode_block = InodeBlockNo(INO_MAX)),
        "number of inodes"
    );
    // The same fragments again and again would make a summary longer than the volume.
    assert_eq!(
        refused(|h| h.extents[2] = Extent::new(FragAddr(17), 1)),
        "extents"
    );
    assert_eq!(refused(|h| h.extents[1].frags = 0), "extents");
    assert_eq!(refused(|h| h.extents[1].frags = u64::MAX), "extents");
}

#[test]
fn volumes_of_countless_groups() {
    let geometry = |groups: u64| Geometry {
        fragment_size: 4096,
        block_size: 4096,
        small_size: 4096,
        group_frags: 8,
        total_frags: groups * 8,
        segment_max: 1 << 16,
        checkpoint_segments_max: 2,
        checkpoint_summary_max: 4096,
        checkpoint_nodes_max: 8,
    };
    assert_eq!(geometry(GROUPS_MAX).validate(), Ok(()));
    assert_eq!(
        geometry(GROUPS_MAX + 1).validate(),
        Err(OutOfRange {
            field: "volume size"
        })
    );
}

#[test]
fn records_of_inode_blocks_without_numbers() {
    let of_block = |block| {
        let pointer = Pointer {
            addr: FragAddr(8),
            frags: 1,
            stored: 512,
            ..Pointer::default()
        };
        let entry = IfileEntry {
            pointer,
            live: 1,
            packed: 1,
            ..IfileEntry::default()
        };
        let mut bytes = Vec::new();
        Record::Ifile(InodeBlockNo(block), entry).encode(&mut bytes);
        Records::new(bytes).map(|records| records.iter().count())
    };
    assert_eq!(of_block(INODE_BLOCKS_MAX - 1), Ok(1));
    let malformed = Err(SummaryError::Record { index: 0 });
    assert_eq!(of_block(INODE_BLOCKS_MAX), malformed);
    assert_eq!(of_block(u64::MAX), malformed);
}
