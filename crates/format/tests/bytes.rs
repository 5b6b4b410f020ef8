//! Every structure on disk, byte by byte, at the offsets of `docs/FORMAT.md`: a field that moves, shrinks or changes its
//! order is noticed, in writing and in reading. (Nodes have such tests beside their code.)

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_format::checksum::{CrcRun, unit_crc};
use loamfs_format::dirent::{Dirent, InlineMap, hash_key};
use loamfs_format::group::{GroupDesc, Role};
use loamfs_format::ifile::{IfileEntry, block_of, ino_at, slot_of};
use loamfs_format::inode::{
    Body, FileExtent, Inode, InodeError, Placement, Settled, TAIL, Table, Tier, Tiering, Timestamp,
    mode,
};
use loamfs_format::maps::{LazyEntry, OwnerRecord};
use loamfs_format::node::{Child, TreeRoot};
use loamfs_format::pointer::{data_checksum, metadata_checksum};
use loamfs_format::summary::{
    Allocation, Dynamic, HEADER_SIZE, Header, Record, Records, SegmentKind, Unwritten, Wait,
};
use loamfs_format::superblock::{
    self, CheckpointRef, DeviceEntry, DeviceKind, DiskFigures, INCOMPATIBLE_DEVICES, ScrubMark,
    Section, Superblock,
};
use loamfs_format::xattr::{Value, Xattr};
use loamfs_format::{
    BlockKind, Extent, FragAddr, Geometry, GroupNo, Identity, Ino, InodeBlockNo, Pointer, Ssn,
    Token,
};
use zerocopy::{FromBytes, IntoBytes};

/// Pieces of a structure in hex, each at its offset.
type Pieces = [(usize, &'static str)];

/// `len` bytes that are zero but for these pieces.
fn bytes(len: usize, pieces: &[(usize, &str)]) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (offset, hex) in pieces {
        let digits: Vec<u8> = hex.bytes().filter(|c| *c != b' ').collect();
        for (at, pair) in (*offset..).zip(digits.chunks(2)) {
            assert_eq!(bytes[at], 0, "two pieces at {at}");
            bytes[at] = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
    }
    bytes
}

/// Compares bytes, and shows where they differ.
#[track_caller]
fn same(what: &str, found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    if let Some(at) = differs {
        let end = (at + 16).min(found.len());
        panic!(
            "{what}: at {at} there is {:02x?}, not {:02x?}",
            &found[at..end],
            &expected[at..end]
        );
    }
}

const POINTER: Pointer = Pointer {
    addr: FragAddr(0x0807_0605_0403_0201),
    frags: 0x1413_1211,
    stored: 0x1817_1615,
    birth: Ssn(0x2827_2625_2423_2221),
    checksum: 0x3837_3635_3433_3231,
    unwritten: false,
};
const POINTER_HEX: &str = "0102030405060708 11121314 15161718 2122232425262728 00 00 0000 00000000 \
                           3132333435363738";
const UUID: [u8; 16] = *b"0123456789abcdef";
const UUID_HEX: &str = "30313233343536373839616263646566";

/// A tree root that can be: a node of 4,096 bytes.
fn root() -> TreeRoot {
    TreeRoot {
        pointer: Pointer {
            frags: 4,
            stored: 4096,
            addr: FragAddr(0x77),
            ..POINTER
        },
        low: 0x4847_4645_4443_4241,
        level: 5,
    }
}
/// The pointer in it.
const NODE_HEX: &str =
    "7700000000000000 04000000 00100000 2122232425262728 0000000000000000 3132333435363738";
const ROOT_HEX: &str = "7700000000000000 04000000 00100000 2122232425262728 0000000000000000 3132333435363738 \
                        4142434445464748 05";

/// A superblock with all that may be in one.
fn superblock_of_one() -> Superblock {
    Superblock {
        uuid: UUID,
        membership_epoch: 0x0101_0102,
        device: 3,
        devices: vec![DeviceEntry {
            frags: 0x9000,
            device: 3,
            ..DeviceEntry::default()
        }],
        geometry: Geometry {
            fragment_size: 512,
            block_size: 8192,
            small_size: 8192,
            group_frags: 0x1000,
            total_frags: 0x9000,
            segment_max: 0x0003_0000,
            checkpoint_segments_max: 0x0405,
            checkpoint_summary_max: 0x0006_0708,
            checkpoint_nodes_max: 0x090a,
        },
        checksum_algorithm: 1,
        compatible: 0x1111,
        ro_compatible: 0x2222,
        incompatible: 0,
        checkpoint: CheckpointRef {
            ssn: Ssn(0x3333),
            token: Token(0x4444),
            addr: FragAddr(0x5555),
        },
        hash_key: *b"ABCDEFGHIJKLMNOP",
        label: b"name".to_vec(),
        created: -2,
        avg_file_size: 0x6666,
        files_per_dir: 0x7777,
        profile: b"hfs".to_vec(),
        disk: Some(DiskFigures {
            shortest_seek: 0x0000_0102,
            average_seek: 0x0000_0304,
            turn: 0x0000_0506,
            rate: 0x0000_0708,
            shingled: true,
        }),
        scrub: ScrubMark {
            next: FragAddr(0x0102),
            since: -3,
            until: 0x0304,
            damaged: 0x0506,
            healed: 0x0708,
        },
        log_key: *b"abcdefghijklmnop",
        copied: Ssn(0),
        copied_at: 0,
        durable: Ssn(0x8888),
        clean: true,
    }
}

#[test]
fn superblock() {
    let sb = superblock_of_one();
    let expected = bytes(
        superblock::SIZE,
        &[
            (0, "4c6f616d4653011a"),
            (8, "500cd6aed57bb784"),
            (16, "01000000"),
            (20, "03000000"),
            (24, UUID_HEX),
            (40, "02010101"),
            (48, "1111"),
            (56, "2222"),
            (72, "00020000"),
            (76, "00200000"),
            (80, "0010"),
            (88, "0090"),
            (96, "00000300"),
            (100, "0504"),
            (104, "08070600"),
            (108, "0a09"),
            (112, "3333"),
            (120, "4444"),
            (128, "5555"),
            (136, "4142434445464748494a4b4c4d4e4f50"),
            (152, "feffffffffffffff"),
            (160, "6666"),
            (164, "7777"),
            (168, "01 04 03"),
            (172, "01"),
            (176, "6e616d65"),
            (240, "686673"),
            (264, "0090"),
            (280, "03"),
            (768, "0201 0000 0403 0000 0605 0000 0807"),
            (784, "0201 000000000000 fdff ffffffffffff"),
            (800, "0403 000000000000 0605 000000000000 0807"),
            (824, "01"),
            (4064, "6162636465666768696a6b6c6d6e6f70"),
            (4080, "8888000000000000 01"),
        ],
    );
    same("superblock", &sb.encode()[..], &expected);
    assert_eq!(Superblock::decode(&expected), Ok(sb));
}

#[test]
fn table_of_devices() {
    let sb = Superblock {
        incompatible: INCOMPATIBLE_DEVICES,
        devices: vec![
            DeviceEntry {
                uuid: *b"ABCDEFGHIJKLMNOP",
                kind: DeviceKind::Fast,
                addr: FragAddr(0),
                frags: 0x8000,
                device: 3,
                offset: 0,
                section: Section::new(256 << 10, 16 << 10),
                ..DeviceEntry::default()
            },
            DeviceEntry {
                uuid: *b"QRSTUVWXYZabcdef",
                kind: DeviceKind::Slow,
                addr: FragAddr(0x8000),
                frags: 0x1000,
                device: 4,
                offset: 0x0201_0000_0000,
                ..DeviceEntry::default()
            },
        ],
        ..superblock_of_one()
    };
    let encoded = sb.encode();
    assert_eq!(encoded[64..72], 4u64.to_le_bytes());
    assert_eq!(encoded[172..174], [2, 0]);
    assert!(encoded[256..768].iter().all(|byte| *byte == 0));
    let table = bytes(
        64 * 48,
        &[
            (0, "4142434445464748494a4b4c4d4e4f50"),
            (24, "0080"),
            (40, "03000000 01 00 00 37"),
            (48, "5152535455565758595a616263646566"),
            (64, "0080"),
            (72, "0010"),
            (80, "00000000 0102"),
            (88, "04000000 00"),
        ],
    );
    same("table of devices", &encoded[832..832 + 64 * 48], &table);
    assert_eq!(Superblock::decode(&encoded[..]), Ok(sb));
}

#[test]
fn summary_header() {
    let header = Header {
        uuid: UUID,
        ssn: Ssn(0x0102),
        previous: Token(0x0304),
        token: Token(0x0506),
        next: FragAddr(0x0708),
        durable: Ssn(0x090a),
        kind: SegmentKind::Mount,
        dynamic: Dynamic {
            inodes: 0x0b0c,
            next_inode_block: InodeBlockNo(0x0d0e),
            sealed: -3,
            unwritten: Unwritten {
                extents: 0x0f10,
                frags: 0x1112,
            },
        },
        extents: vec![
            Extent::new(FragAddr(0x1112), 0x0304),
            Extent::new(FragAddr(0x1516), 0x1718),
        ],
        records_len: 0x191a,
        records_checksum: 0x1b1c,
        code: *b"ABCDEFGHIJKLMNOP",
    };
    let expected = bytes(
        HEADER_SIZE,
        &[
            (0, "4c6f616d53656701"),
            (8, "0b6804d7e324984d"),
            (16, UUID_HEX),
            (32, "0201"),
            (40, "0403"),
            (48, "0605"),
            (56, "0807"),
            (64, "0a09"),
            (72, "1a19"),
            (80, "1c1b"),
            (88, "0c0b"),
            (96, "0e0d"),
            (104, "fdffffffffffffff"),
            (112, "03"),
            (114, "02"),
            (120, "100f"),
            (128, "1211"),
            (144, "4142434445464748494a4b4c4d4e4f50"),
            (160, "1211000000000000 0403000000000000"),
            (176, "1615000000000000 1817000000000000"),
        ],
    );
    assert_eq!(HEADER_SIZE, 3360);
    same("header", &header.encode(), &expected);
    assert_eq!(Header::decode(&expected), Ok(header.clone()));
    assert_eq!(
        header.encode_copy().as_ref().map(|copy| &copy[..]),
        expected.get(..512)
    );
    assert_eq!(Header::decode_copy(&expected[..512]), Ok(header.clone()));
    let long = Header {
        extents: (0..23).map(|i| Extent::new(FragAddr(8 * i), 8)).collect(),
        ..header
    };
    assert_eq!(long.encode_copy(), None);
    for (kind, number) in [(SegmentKind::Normal, 1), (SegmentKind::Checkpoint, 2)] {
        assert_eq!(kind as u8, number);
    }
}

#[test]
fn records() {
    let run = Extent::new(FragAddr(0x0102), 0x0304);
    let run_hex = "0201000000000000 0403000000000000";
    let allocation = Allocation {
        extent: Extent::new(FragAddr(0x0102), 0x0304),
        kind: BlockKind::ExtentNode,
        level: 5,
        ino: Ino(0x0607),
        generation: 0x0809,
        version: 0x0a0b,
        logical: 0x0c0d,
        stored: 0x0e0f,
        checksum: 0x1011,
        in_body: true,
    };
    let ifile = IfileEntry {
        pointer: Pointer {
            stored: 1024,
            ..POINTER
        },
        live: 0x0000_0102,
        packed: 0x0000_0102,
        orphan: 0x0000_0100,
        ssn: Ssn(0x0506),
    };
    let ifile_hex = "0102030405060708 11121314 00040000 2122232425262728 0000000000000000 3132333435363738 \
                     02010000 00010000 0605000000000000";
    let lazy = LazyEntry {
        image: FragAddr(0x0708),
        crc: 0x090a_0b0c,
        ssn: Ssn(0x0d0e),
        ino: Ino(0x0f10),
        unit: 0x1112,
    };
    let lazy_hex =
        "0807000000000000 0c0b0a09 00000000 0e0d000000000000 100f000000000000 1211000000000000";
    let home = FragAddr(0x1314);
    let table: [(Record, String); 13] = [
        (
            Record::Allocate(allocation),
            "01 01 3400 0201000000000000 04030000 0f0e0000 04 05 0000 09080000 0b0a0000 \
             0706000000000000 0d0c000000000000 1110000000000000"
                .into(),
        ),
        (
            Record::Allocate(Allocation {
                in_body: false,
                ..allocation
            }),
            "01 00 3400 0201000000000000 04030000 0f0e0000 04 05 0000 09080000 0b0a0000 \
             0706000000000000 0d0c000000000000 1110000000000000"
                .into(),
        ),
        (Record::Free(run), format!("02 00 1000 {run_hex}")),
        (Record::Retire(run), format!("03 00 1000 {run_hex}")),
        (
            Record::Ifile(InodeBlockNo(0x1516), ifile),
            format!("04 00 4000 1615000000000000 {ifile_hex}"),
        ),
        (
            Record::Image(home, lazy),
            format!("05 00 3000 1413000000000000 {lazy_hex}"),
        ),
        (Record::Revoke(run), format!("06 00 1000 {run_hex}")),
        (
            Record::Settled {
                home,
                image: FragAddr(0x1718),
            },
            "07 00 1000 1413000000000000 1817000000000000".into(),
        ),
        (
            Record::Role(GroupNo(0x191a), Role::Data),
            "08 02 0400 1a190000".into(),
        ),
        (
            Record::Anchored(GroupNo(0x191a), -2),
            "09 00 0800 1a190000 feffffff".into(),
        ),
        (
            Record::Root(BlockKind::LazyNode, root()),
            format!("0a 0e 4000 {ROOT_HEX} {}", "00".repeat(15)),
        ),
        (
            Record::Held(run, Wait::Durable(Ssn(0x1b1c))),
            format!("0b 00 1800 {run_hex} 1c1b000000000000"),
        ),
        (
            Record::Held(run, Wait::Checkpoint(Ssn(0x1b1c))),
            format!("0b 01 1800 {run_hex} 1c1b000000000000"),
        ),
    ];
    for (record, hex) in table {
        let len = hex.bytes().filter(|c| *c != b' ').count() / 2;
        let expected = bytes(len, &[(0, &hex)]);
        let mut found = Vec::new();
        record.encode(&mut found);
        same(&format!("{record:?}"), &found, &expected);
        let records = Records::new(expected).unwrap();
        assert_eq!(records.iter().collect::<Vec<_>>(), [record]);
    }
}

#[test]
fn pointers_roots_and_children() {
    let expected = bytes(40, &[(0, POINTER_HEX)]);
    same("pointer", POINTER.encode().as_bytes(), &expected);
    let raw = loamfs_format::pointer::RawPointer::ref_from_bytes(&expected).unwrap();
    assert_eq!(Pointer::decode(raw), POINTER);

    let expected = bytes(64, &[(0, ROOT_HEX)]);
    same("root", &root().encode(), &expected);
    assert_eq!(TreeRoot::decode(&expected), Some(root()));

    let child = Child {
        pointer: root().pointer,
        aggregate: [0x0102, 0x0304, 0x0506],
    };
    let expected = bytes(
        64,
        &[(0, NODE_HEX), (40, "0201"), (48, "0403"), (56, "0605")],
    );
    same("child", &child.encode(), &expected);
    assert_eq!(Child::decode(&expected), Some(child));
}

#[test]
fn values_of_the_maps() {
    let entry = IfileEntry {
        pointer: Pointer {
            stored: 1536,
            ..POINTER
        },
        live: 0x8000_0101,
        packed: 0x8000_0101,
        orphan: 0x8000_0000,
        ssn: Ssn(0x0506),
    };
    let expected = bytes(
        56,
        &[
            (0, "0102030405060708 11121314 00060000 2122232425262728"),
            (32, "3132333435363738"),
            (40, "01010080"),
            (44, "00000080"),
            (48, "0605"),
        ],
    );
    same("IFILE entry", &entry.encode(), &expected);
    assert_eq!(IfileEntry::decode(&expected), Some(entry));
    // Slots are packed: the third live inode of the block is its third inode.
    assert_eq!(entry.offset_of(31), Some(1024));
    // One went from slot 0 and one came to slot 3, while the block stays.
    let apart = IfileEntry {
        live: 0x8000_0108,
        ..entry
    };
    let expected = bytes(
        56,
        &[
            (0, "0102030405060708 11121314 00060000 2122232425262728"),
            (28, "09"),
            (32, "3132333435363738"),
            (40, "08010080"),
            (44, "00000080"),
            (48, "0605"),
        ],
    );
    same("IFILE entry", &apart.encode(), &expected);
    assert_eq!(IfileEntry::decode(&expected), Some(apart));
    assert_eq!(
        (apart.offset_of(31), apart.offset_of(3)),
        (Some(1024), None)
    );
    assert_eq!((block_of(Ino(95)), slot_of(Ino(95))), (InodeBlockNo(2), 31));
    assert_eq!(ino_at(InodeBlockNo(2), 31), Ino(95));

    let owner = OwnerRecord {
        frags: 0x0102_0304,
        kind: BlockKind::Homed,
        level: 6,
        ino: Ino(0x0708),
        logical: 0x090a,
    };
    let expected = bytes(24, &[(0, "04030201 0f 06"), (8, "0807"), (16, "0a09")]);
    same("owner record", &owner.encode(), &expected);
    assert_eq!(OwnerRecord::decode(&expected), Some(owner));

    let group = GroupDesc {
        role: Role::Data,
        used: 0x0102_0304_0506,
        directories: 0x0708_090a,
    };
    let expected = bytes(32, &[(0, "02"), (4, "0a090807"), (8, "060504030201")]);
    same("group descriptor", &group.encode(), &expected);
    assert_eq!(GroupDesc::decode(&expected), Some(group));

    let lazy = LazyEntry {
        image: FragAddr(0x0102),
        crc: 0x0304_0506,
        ssn: Ssn(0x0708),
        ino: Ino(0x090a),
        unit: 0x0b0c,
    };
    let expected = bytes(
        40,
        &[
            (0, "0201"),
            (8, "06050403"),
            (16, "0807"),
            (24, "0a09"),
            (32, "0c0b"),
        ],
    );
    same("lazy entry", &lazy.encode(), &expected);
    assert_eq!(LazyEntry::decode(&expected), Some(lazy));

    let mut run = CrcRun::default();
    (run.0[0], run.0[2]) = (0x0102_0304, 0x0506_0708);
    let expected = bytes(12, &[(0, "04030201"), (8, "08070605")]);
    same("checksums", &run.encode().unwrap(), &expected);
    assert_eq!(CrcRun::decode(&expected), Some(run));
}

fn inode(body: Body) -> Inode {
    Inode {
        ino: Ino(0x0102),
        mode: 0o100_644,
        nlink: 0x0304,
        uid: 0x0506,
        gid: 0x0708,
        project: 0x090a,
        flags: 0x0b0c,
        generation: 0x0d0e,
        version: 0x0f10,
        size: 3,
        atime: Timestamp {
            seconds: -1,
            nanos: 0x1112,
        },
        mtime: Timestamp {
            seconds: 0x1314,
            nanos: 0x1516,
        },
        ctime: Timestamp {
            seconds: 0x1718,
            nanos: 0x191a,
        },
        btime: Timestamp {
            seconds: 0x1b1c,
            nanos: 0x1d1e,
        },
        parent: Ino(0x1f20),
        ssn: Ssn(0x2122),
        anchor: GroupNo(0x2324),
        rdev: 0x2526,
        truncating: 0x2728,
        frags: 0x292a,
        checksums: root(),
        crcs: Vec::new(),
        xattrs: TreeRoot { level: 6, ..root() },
        inline_xattrs: b"zz".to_vec(),
        body,
        table: Table::None,
        placement: Placement::Auto,
        tier: Tiering::default(),
    }
}

#[test]
fn inodes() {
    let fixed = [
        (0, "0201"),
        (12, "0403"),
        (16, "0605"),
        (20, "0807"),
        (24, "0a09"),
        (28, "0c0b"),
        (32, "0e0d"),
        (36, "100f"),
        (48, "ffffffffffffffff"),
        (56, "1413"),
        (64, "1817"),
        (72, "1c1b"),
        (80, "1211"),
        (84, "1615"),
        (88, "1a19"),
        (92, "1e1d"),
        (96, "201f"),
        (104, "2221"),
        (112, "2423"),
        (116, "2625"),
        (128, "2a29"),
        (140, "02"),
        (144, ROOT_HEX),
        (208, &ROOT_HEX[..ROOT_HEX.len() - 2]),
        (256, "06"),
        (510, "7a7a"),
    ];
    let extent = |block| FileExtent {
        block,
        pointer: Pointer {
            stored: 0,
            checksum: 0,
            ..POINTER
        },
    };
    let extent_hex = "0102030405060708 11121314 00000000 2122232425262728";
    let small = Pointer {
        stored: 3,
        ..POINTER
    };
    let small_hex =
        "0102030405060708 11121314 03000000 2122232425262728 0000000000000000 3132333435363738";
    let (file, directory) = ("a4810000", "ed410000");
    let table: [(Body, &str, &Pieces); 8] = [
        (Body::Empty, file, &[]),
        (
            Body::Inline(b"abc".to_vec()),
            file,
            &[(136, "01"), (138, "03"), (272, "616263")],
        ),
        (
            Body::InlineDir(b"abcd".to_vec()),
            directory,
            &[(136, "02"), (138, "04"), (272, "61626364")],
        ),
        (
            Body::Small(small),
            file,
            &[(136, "03"), (138, "28"), (272, small_hex)],
        ),
        (
            Body::Extents(vec![extent(0x0304), extent(0x0506)]),
            file,
            &[
                (136, "04"),
                (138, "60"),
                (272, "0403"),
                (280, extent_hex),
                (320, "0605"),
                (328, extent_hex),
            ],
        ),
        (
            Body::ExtentTree(root()),
            file,
            &[(136, "05"), (138, "40"), (272, ROOT_HEX)],
        ),
        (
            Body::DirTree(root()),
            directory,
            &[(136, "06"), (138, "40"), (272, ROOT_HEX)],
        ),
        (
            Body::Settled(Settled {
                pointer: small,
                slot: 0x3f,
                key: 0x0304,
            }),
            file,
            &[
                (136, "07"),
                (137, "3f"),
                (138, "30"),
                (272, small_hex),
                (312, "0403"),
            ],
        ),
    ];
    for (body, mode, pieces) in table {
        let mut inode = inode(body);
        inode.mode = u32::from_le_bytes(bytes(4, &[(0, mode)]).try_into().unwrap());
        // Only files can be in the middle of a truncate.
        let truncating = if mode == file {
            "2827"
        } else {
            "ffffffffffffffff"
        };
        if mode == directory {
            inode.truncating = u64::MAX;
        }
        let own = [(8, mode), (40, "03"), (120, truncating)];
        let all = [&fixed[..], &own, pieces].concat();
        let expected = bytes(512, &all);
        same(&format!("{:?}", inode.body), &inode.encode(), &expected);
        assert_eq!(Inode::decode(&expected), Ok(inode));
    }
}

#[test]
fn a_directory_has_its_table_behind_its_body() {
    let root_table = (Table::Tree(root()), "4080", ROOT_HEX);
    let inline = (Table::Inline(vec![1, 2, 3]), "0300", "010203");
    for (table, mark, shown) in [root_table, inline] {
        let inode = Inode {
            truncating: u64::MAX,
            table,
            ..Inode::new(Ino(0x0102), mode::DIRECTORY, 1, Timestamp::default())
        };
        let inode = Inode {
            body: Body::InlineDir(b"ab".to_vec()),
            inline_xattrs: b"zz".to_vec(),
            ..inode
        };
        let encoded = inode.encode();
        assert_eq!(encoded[142..144], bytes(2, &[(0, mark)]));
        let len = inode.table.len();
        assert_eq!(encoded[274..274 + len], bytes(len, &[(0, shown)]));
        assert_eq!(inode.room(), TAIL - 4 - TreeRoot::SIZE, "of {len}");
        assert_eq!(Inode::decode(&encoded), Ok(inode));
    }
}

#[test]
fn a_directory_says_where_small_files_go() {
    let new = |mode| Inode::new(Ino(32), mode, 1, Timestamp::default());
    let words = ["auto", "log", "data", "hash"];
    for (number, (placement, word)) in (0u8..).zip(Placement::ALL.into_iter().zip(words)) {
        assert_eq!(
            (placement.word(), Placement::of_word(word)),
            (word, Some(placement))
        );
        let dir = Inode {
            placement,
            ..new(mode::DIRECTORY)
        };
        let encoded = dir.encode();
        assert_eq!(encoded[137], number);
        assert_eq!(Inode::decode(&encoded), Ok(dir));
    }
    let placement = |inode: &Inode, number| {
        let mut bytes = inode.encode();
        bytes[137] = number;
        Inode::decode(&bytes).map(|inode| inode.placement)
    };
    // What a later program says, and what stands there of a file.
    assert_eq!(placement(&new(mode::DIRECTORY), 4), Ok(Placement::Auto));
    assert_eq!(placement(&new(mode::REGULAR), 2), Ok(Placement::Auto));
}

#[test]
fn a_directory_says_on_which_devices_large_files_go() {
    let new = |mode| Inode::new(Ino(32), mode, 1, Timestamp::default());
    let words = ["auto", "fast", "slow", "32K", "64K"];
    for (number, (tier, word)) in (0u8..).zip(Tiering::all().zip(words)) {
        assert_eq!((tier.word(), Tiering::of_word(word)), (word, Some(tier)));
        for placement in Placement::ALL {
            let dir = Inode {
                placement,
                tier,
                ..new(mode::DIRECTORY)
            };
            let encoded = dir.encode();
            assert_eq!(encoded[137], number << 4 | placement as u8);
            assert_eq!(Inode::decode(&encoded), Ok(dir));
        }
    }
    for (on, byte) in [("bypass", 0x07), ("write-back", 0x17)] {
        let dir = Inode {
            placement: Placement::Hash,
            tier: Tiering::of_word(on).unwrap(),
            ..new(mode::DIRECTORY)
        };
        let encoded = dir.encode();
        assert_eq!((encoded[137], dir.tier.word()), (byte, on));
        assert_eq!(Inode::decode(&encoded), Ok(dir));
    }
    let said = |inode: &Inode, byte| {
        let mut bytes = inode.encode();
        bytes[137] = byte;
        let inode = Inode::decode(&bytes).unwrap();
        (inode.placement, inode.tier)
    };
    // What a later program says, and what stands there of a file.
    let dir = new(mode::DIRECTORY);
    let megabyte = Tiering::of_word("1M").unwrap();
    assert_eq!(said(&dir, 0x82), (Placement::Data, megabyte));
    assert_eq!(said(&dir, 0x23), (Placement::Hash, Tier::Slow.into()));
    assert_eq!(said(&dir, 0x27), (Placement::Hash, Tiering::default()));
    assert_eq!(said(&dir, 0xfd), (Placement::Log, Tiering::default()));
    let file = new(mode::REGULAR);
    assert_eq!(said(&file, 0x11), (Placement::Auto, Tiering::default()));
    assert_eq!(Tiering::all().nth(15), Tiering::of_word("128M"));
    assert_eq!(Tiering::all().count(), 18);
    let sized = |bytes| megabyte.of_size(bytes);
    assert_eq!(
        [1 << 20, (1 << 20) + 1].map(sized),
        [Tier::Fast, Tier::Slow]
    );
    let most = Tiering::of_word("128M").unwrap();
    assert_eq!(most.of_size(128 << 20), Tier::Fast);
    assert_eq!(most.of_size((128 << 20) + 1), Tier::Slow);
}

#[test]
fn checksums_stand_behind_the_body() {
    let extent = FileExtent {
        block: 3,
        pointer: POINTER,
    };
    let file = |count: u32| Inode {
        size: 1 << 20,
        body: Body::Extents(vec![extent]),
        crcs: (0..count).map(|unit| 0x0403_0201 + unit).collect(),
        ..Inode::new(Ino(32), mode::REGULAR, 1, Timestamp::default())
    };
    for count in [0, 1, 48] {
        let inode = file(count);
        let bytes = inode.encode();
        assert_eq!(bytes[142..144], (4 * count as u16).to_le_bytes());
        assert_eq!(Inode::decode(&bytes), Ok(inode));
    }
    let bytes = file(2).encode();
    assert_eq!(bytes[272 + 48..][..8], [1, 2, 3, 4, 2, 2, 3, 4]);
    let said = |count: u16| {
        let mut bytes = file(1).encode();
        bytes[142..144].copy_from_slice(&count.to_le_bytes());
        Inode::decode(&bytes).map(drop)
    };
    assert_eq!(said(192), Ok(()));
    for count in [3, 196, 240] {
        assert_eq!(said(count), Err(InodeError::Tail), "{count} bytes");
    }
    // Attributes come first.
    assert!(!file(48).has_room_for_crcs(49));
    let attributed = Inode {
        inline_xattrs: vec![0; 20],
        ..file(40)
    };
    assert!(attributed.has_room_for_crcs(43) && !attributed.has_room_for_crcs(44));
}

#[test]
fn what_no_inode_may_say_of_tracks_is_refused() {
    let put = |inode: &Inode, at: usize, value: &[u8]| {
        let mut bytes = inode.encode();
        bytes[at..at + value.len()].copy_from_slice(value);
        Inode::decode(&bytes).map(drop)
    };
    let new = |mode| Inode::new(Ino(32), mode, 1, Timestamp::default());
    let dir = Inode {
        table: Table::Inline(vec![7; 48]),
        ..new(mode::DIRECTORY)
    };
    assert_eq!(put(&dir, 142, &[241, 0]), Err(InodeError::Tail));
    assert_eq!(put(&dir, 142, &[48, 0x80]), Err(InodeError::Root));
    // Of what is neither a directory nor a regular file the field says nothing.
    assert_eq!(put(&new(mode::FIFO), 142, &[241, 0]), Ok(()));
    let settled = Inode {
        size: 3,
        body: Body::Settled(Settled {
            pointer: Pointer {
                stored: 3,
                ..POINTER
            },
            slot: 63,
            key: 512,
        }),
        ..new(mode::REGULAR)
    };
    assert_eq!(put(&settled, 0, &[32]), Ok(()));
    assert_eq!(put(&settled, 137, &[64]), Err(InodeError::Body));
    assert_eq!(put(&settled, 138, &[47]), Err(InodeError::Body));
    assert_eq!(put(&settled, 40, &[4]), Err(InodeError::Body));
    assert_eq!(put(&settled, 8, &[0, 0, 0xa0, 0]), Err(InodeError::Body));
}

#[test]
fn names_and_attributes() {
    let entry = Dirent {
        ino: Ino(0x0102),
        file_type: 8,
        name: b"name",
    };
    let expected = bytes(13, &[(0, "0201"), (8, "08 6e616d65")]);
    same("directory entry", &entry.encode(), &expected);
    assert_eq!(Dirent::decode(&expected), Some(entry));

    let map = InlineMap(vec![(0x0102, b"ab".to_vec()), (0x0304, b"c".to_vec())]);
    let expected = bytes(
        23,
        &[
            (0, "0201000000000000 0200 6162"),
            (12, "0403000000000000 0100 63"),
        ],
    );
    same("inline map", &map.encode(), &expected);
    assert_eq!(InlineMap::decode(&expected), Some(map));

    let table: [(u8, Value, Vec<u8>); 2] = [
        (
            1,
            Value::Bytes(b"value".to_vec()),
            bytes(12, &[(0, "01 00 04 6e616d65 76616c7565")]),
        ),
        (
            4,
            Value::Log(vec![POINTER]),
            bytes(47, &[(0, "04 01 04 6e616d65"), (7, POINTER_HEX)]),
        ),
    ];
    for (namespace, value, expected) in table {
        let xattr = Xattr {
            namespace,
            name: b"name".to_vec(),
            value,
        };
        same("attribute", &xattr.encode(), &expected);
        assert_eq!(Xattr::decode(&expected), Some(xattr));
    }
    assert_eq!(Xattr::split_name(b"security.x"), Some((3, &b"x"[..])));
    assert_eq!(Xattr::split_name(b"trusted.x"), Some((2, &b"x"[..])));
}

/// The functions of bytes that a reader must have, at one point each.
#[test]
fn checksums_and_hashes() {
    let identity = Identity {
        kind: BlockKind::DirNode,
        level: 1,
        ino: Ino(0x0203),
        generation: 0x0405,
        logical: 0x0607,
    };
    let kinds: Vec<u8> = BlockKind::ALL.iter().map(|kind| *kind as u8).collect();
    assert_eq!(kinds, (1..=18).collect::<Vec<u8>>());
    for (what, found, expected) in [
        ("data", data_checksum(b"loam"), 0x80a4_366e_1b15_72a4),
        (
            "metadata",
            metadata_checksum(&UUID, &identity, b"loam"),
            0xb291_755b_518e_a50d,
        ),
        ("unit", unit_crc(b"123456789").into(), 0xe306_9283),
        ("name", hash_key(&UUID, b"loam"), 0x0a78_9eab_32ef_ce00),
    ] {
        assert_eq!(found, expected, "{what}: {found:#018x}");
    }
}
