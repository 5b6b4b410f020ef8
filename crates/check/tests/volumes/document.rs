//! `docs/FORMAT.md` against the structures: its tables have no gaps, and the fields are where they say.

use crate::builder::Builder;
use loamfs_format::inode::{self, Inode, ROOT_INO};
use loamfs_format::summary::{HEADER_SIZE, Header};
use loamfs_format::superblock;
use std::collections::BTreeMap;

const DOCUMENT: &str = include_str!("../../../../docs/FORMAT.md");

/// A field: offset and size.
type Fields = BTreeMap<String, (usize, usize)>;

/// A size as the document writes it: `4,096`, `16 * 32`, `12 each`.
fn size(text: &str) -> Option<usize> {
    text.split('*')
        .map(|factor| factor.trim().replace(',', "").parse::<usize>().ok())
        .product()
}

/// The tables of offsets: the heading above each, and its fields.
fn tables() -> Vec<(String, Fields)> {
    let mut tables = Vec::new();
    let mut heading = String::new();
    let mut fields: Option<Fields> = None;
    for line in DOCUMENT.lines().chain([""]) {
        if line.starts_with('#') {
            heading = line.trim_start_matches('#').trim().to_owned();
        } else if line.starts_with("| offset | size |") {
            fields = Some(Fields::new());
        } else if let (Some(table), true) = (&mut fields, line.starts_with("| ")) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if let (Some(offset), Some(size)) = (size(cells[1]), size(cells[2])) {
                let name = cells[3].split('`').nth(1).unwrap_or(cells[1]).to_owned();
                table.insert(name, (offset, size));
            }
        } else if !line.starts_with('|') {
            tables.extend(fields.take().map(|fields| (heading.clone(), fields)));
        }
    }
    tables
}

fn table(heading: &str) -> Fields {
    let found = tables()
        .into_iter()
        .find(|(name, _)| name.contains(heading));
    found
        .unwrap_or_else(|| panic!("no table under {heading}"))
        .1
}

/// The number that the field has in bytes.
fn number(bytes: &[u8], fields: &Fields, name: &str) -> u64 {
    let (offset, size) = fields[name];
    bytes[offset..offset + size]
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[test]
fn the_tables_have_no_gaps_and_the_sizes_that_their_headings_say() {
    let tables = tables();
    assert!(tables.len() >= 11, "{}", tables.len());
    for (heading, fields) in tables {
        let mut rows: Vec<(usize, usize)> = fields.values().copied().collect();
        rows.sort_unstable();
        let end = rows.iter().fold(0, |end, (offset, size)| {
            assert_eq!(*offset, end, "{heading}");
            end + size
        });
        if let Some(said) = heading
            .strip_suffix(" bytes")
            .and_then(|h| h.rsplit(", ").next())
        {
            let said = size(said)
                .or_else(|| heading.contains("4,096").then_some(4096))
                .unwrap();
            // The table of a node ends where its slots begin.
            assert!(
                end == said || heading.starts_with("Node"),
                "{heading}: {end}"
            );
        }
    }
}

#[test]
fn the_superblock_and_a_header_are_as_documented() {
    let b = Builder::sample();
    let bytes = b.sb.encode();
    let fields = table("Superblock, ");
    for (name, value) in [
        ("version", superblock::VERSION.into()),
        ("fragment_size", 1024),
        ("block_size", 16_384),
        ("group_frags", 512),
        ("total_frags", 4096),
        ("checkpoint_nodes_max", 2048),
        ("checkpoint_ssn", 2),
        ("checkpoint_token", 22),
        ("checkpoint_addr", 1024),
        ("avg_file_size", 16_384),
        ("checksum_algorithm", 1),
        ("label_len", 4),
        ("device_count", 1),
    ] {
        assert_eq!(number(&bytes[..], &fields, name), value, "{name}");
    }
    let device = b.finish();
    let bytes = device.peek(1024 * 1024, HEADER_SIZE).unwrap();
    let header = Header::decode(&bytes).unwrap();
    let fields = table("Header, ");
    for (name, value) in [
        ("ssn", 2),
        ("previous", 11),
        ("token", 22),
        ("next", header.next.0),
        ("durable", 1),
        ("records_len", header.records_len),
        ("records_checksum", header.records_checksum),
        ("inodes", header.dynamic.inodes),
        ("next_inode_block", 2),
        ("sealed", 1),
        ("kind", 2),
        ("extent_count", 1),
    ] {
        assert_eq!(number(&bytes, &fields, name), value, "{name}");
    }
    let (extents, len) = fields["extents"];
    assert_eq!((bytes[extents + 1], extents + len), (4, HEADER_SIZE));
}

#[test]
fn an_inode_is_as_documented() {
    let b = Builder::sample();
    let inode = Inode {
        uid: 7,
        gid: 8,
        rdev: 9,
        frags: 10,
        ..b.inodes[&ROOT_INO].clone()
    };
    let bytes = inode.encode();
    assert_eq!(bytes.len(), inode::SIZE);
    let fields = table("Inodes");
    for (name, value) in [
        ("ino", 2),
        ("mode", inode.mode.into()),
        ("nlink", inode.nlink.into()),
        ("uid", 7),
        ("gid", 8),
        ("generation", 1002),
        ("size", inode.size),
        ("parent", 2),
        ("ssn", 1),
        ("rdev", 9),
        ("truncating", u64::MAX),
        ("frags", 10),
        ("body_len", 0),
    ] {
        assert_eq!(number(&bytes, &fields, name), value, "{name}");
    }
}
