//! Numbers that no writer makes are refused where they are read, so that nobody behind has to fear them.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_format::ifile::INO_MAX;
use loamfs_format::summary::{Dynamic, Header, SSN_MAX, SegmentKind, SummaryError};
use loamfs_format::superblock::{GROUPS_MAX, SuperblockError};
use loamfs_format::{Extent, FragAddr, Geometry, InodeBlockNo, Ssn, Token};

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
        Err(SuperblockError::Geometry {
            field: "volume size"
        })
    );
}
