//! The worked example and the test vectors of `docs/FORMAT.md`: the bytes that it shows are what it says of them. (That they
//! are those of the golden volume, `docs/check.py` sees to.)

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_format::checksum::unit_crc;
use loamfs_format::dirent::{Dirent, InlineMap, hash_key};
use loamfs_format::ifile::{IfileEntry, block_of, slot_of};
use loamfs_format::inode::{self, Body, Inode, ROOT_INO};
use loamfs_format::node::{NODE_SIZE, Page, TreeRoot};
use loamfs_format::pointer::metadata_checksum;
use loamfs_format::summary::{HEADER_SIZE, Header};
use loamfs_format::superblock::{self, Superblock};
use loamfs_format::{BlockKind, Identity, Ino};
use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use std::hash::Hasher;
use xxhash_rust::xxh3::xxh3_64;

const DOCUMENT: &str = include_str!("../../../docs/FORMAT.md");

/// The bytes that the example shows, by their offsets on the device.
struct Example(BTreeMap<u64, u8>);

impl Example {
    fn read() -> Example {
        let mut bytes = BTreeMap::new();
        let blocks = DOCUMENT.split("\n```hex placed\n").skip(1);
        for line in blocks.flat_map(|block| block.split("```").next().unwrap().lines()) {
            let (offset, rest) = line.split_once(": ").unwrap();
            let shown = rest.split("  ").next().unwrap().split(' ');
            for (at, byte) in (u64::from_str_radix(offset, 16).unwrap()..).zip(shown) {
                let byte = u8::from_str_radix(byte, 16).unwrap();
                assert_eq!(bytes.insert(at, byte), None, "{at:#x} stands there twice");
            }
        }
        Example(bytes)
    }

    /// Bytes of the device; what is not shown is zero.
    fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let shown = (at..).take(len).map(|at| self.0.get(&at).copied());
        shown.map(Option::unwrap_or_default).collect()
    }

    fn superblock(&self) -> Superblock {
        Superblock::decode(&self.get(superblock::OFFSETS[0], superblock::SIZE)).unwrap()
    }

    fn header(&self, sb: &Superblock) -> Header {
        let at = sb.geometry.byte_offset(sb.checkpoint.addr);
        Header::decode(&self.get(at, HEADER_SIZE)).unwrap()
    }

    /// The root of the IFILE's tree, from the one record that is shown.
    fn ifile(&self) -> TreeRoot {
        let (at, _) = self.0.range(0x0092_8ee0..).next().unwrap();
        assert_eq!(self.get(*at, 4), [10, BlockKind::IfileNode as u8, 64, 0]);
        TreeRoot::decode(&self.get(at + 4, TreeRoot::SIZE)).unwrap()
    }
}

fn ifile_identity(root: &TreeRoot) -> Identity {
    root.identity(BlockKind::IfileNode, Ino(0), 0)
}

#[test]
fn the_example_leads_from_the_superblock_to_an_entry_of_the_root_directory() {
    let example = Example::read();
    let sb = example.superblock();
    assert_eq!(sb.label, b"golden placed");
    let header = example.header(&sb);
    let named = (sb.uuid, sb.checkpoint.ssn, sb.checkpoint.token);
    assert_eq!((header.uuid, header.ssn, header.token), named);

    let root = example.ifile();
    let at = sb.geometry.byte_offset(root.pointer.addr);
    let bytes = example.get(at, NODE_SIZE);
    let identity = ifile_identity(&root);
    let checksum = metadata_checksum(&sb.uuid, &identity, &bytes);
    assert_eq!(checksum, root.pointer.checksum);
    let node = Page::from_bytes(&bytes, &identity).unwrap();
    let (_, entry) = node
        .iter()
        .find(|(key, _)| *key == block_of(ROOT_INO).0)
        .unwrap();
    let entry = IfileEntry::decode(entry).unwrap();

    let at = sb.geometry.byte_offset(entry.pointer.addr);
    let block = example.get(at, entry.pointer.stored as usize);
    let identity = Identity {
        kind: BlockKind::InodeBlock,
        level: 0,
        ino: Ino(0),
        generation: 0,
        logical: block_of(ROOT_INO).0,
    };
    let checksum = metadata_checksum(&sb.uuid, &identity, &block);
    assert_eq!(checksum, entry.pointer.checksum);
    let offset = entry.offset_of(slot_of(ROOT_INO)).unwrap();
    let root = Inode::decode(&block[offset..][..inode::SIZE]).unwrap();
    assert!(root.is_dir() && root.ino == ROOT_INO && root.parent == ROOT_INO);
    let Body::InlineDir(body) = &root.body else {
        panic!("{:?}", root.body);
    };
    let entries = InlineMap::decode(body).unwrap();
    let value = entries.get(hash_key(&sb.hash_key, b"dir")).unwrap();
    let found = Dirent::decode(value).unwrap();
    assert_eq!((found.ino, found.name), (Ino(32), &b"dir"[..]));
}

/// What the table of test vectors says of something.
fn vector(what: &str) -> &'static str {
    let (_, table) = DOCUMENT.split_once("\n## Test vectors\n").unwrap();
    let rows = table
        .lines()
        .map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let found = rows.filter(|cells| cells.get(1) == Some(&what));
    let found: Vec<_> = found.map(|cells| cells[3]).collect();
    assert_eq!(found.len(), 1, "{what}: {found:?}");
    found[0]
}

#[test]
fn the_test_vectors_are_right() {
    let example = Example::read();
    let sb = example.superblock();
    let root = example.ifile();
    let node = example.get(sb.geometry.byte_offset(root.pointer.addr), NODE_SIZE);
    let mut identity = [0u8; 40];
    identity[..16].copy_from_slice(&sb.uuid);
    identity[16] = BlockKind::IfileNode as u8;
    let mut name = SipHasher13::new_with_key(&sb.hash_key);
    name.write(b"dir");
    let key: [u8; 16] = std::array::from_fn(|i| i as u8);
    let code = example.header(&sb).code_under(&key);
    let code: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
    let zeros = [0u8; 4096];
    let mut chosen = zeros;
    chosen[4092..].copy_from_slice(&[0xc5, 0xc3, 0xd2, 0x3c]);
    let crc = |unit| format!("{:08x}", unit_crc(unit));
    let long = |number: u64| format!("{number:016x}");
    let found = [
        ("XXH3-64, seed 0", long(xxh3_64(b""))),
        ("seed of a metadata block", long(xxh3_64(&identity))),
        (
            "checksum of a metadata block",
            long(metadata_checksum(&sb.uuid, &ifile_identity(&root), &node)),
        ),
        ("SipHash-1-3, 64 bits", long(name.finish())),
        ("key of a name", long(hash_key(&sb.hash_key, b"dir"))),
        ("code of a header, 16 bytes", code),
        ("CRC32C", format!("{:08x}", crc32c::crc32c(b"123456789"))),
        ("CRC of a unit", crc(&zeros)),
        ("CRC of a unit whose CRC32C is 0", crc(&chosen)),
    ];
    for (what, found) in found {
        assert_eq!(vector(what), found, "{what}");
    }
}
