//! A directory's table of tracks: in the inode while it is short, else a tree of it.
//!
//! `range_of` and `prepare_put` may stop for missing nodes and change nothing; `put` follows its preparation and cannot fail.

use crate::blocks::{Blocks, Stop};
use crate::error::Corrupt;
use crate::tree::Tree;
use loamfs_format::dirent::KEYS_END;
use loamfs_format::inode::{Inode, TAIL, Table};
use loamfs_format::node::TreeRoot;
use loamfs_format::track::{
    SHORT_END, TableEntry, decode_inline, encode_inline, head_bytes, is_low,
};
use loamfs_format::{BlockKind, Geometry, Pointer, Ssn};

/// Bytes that a table must have in the inode's tail.
const LEAST: usize = TreeRoot::SIZE;

/// What the table says of keys from `low` on, up to `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub low: u64,
    pub high: u64,
    pub entry: TableEntry,
}

/// The tree of a directory's table.
pub(crate) fn tree(inode: &Inode) -> Tree {
    Tree::of_inode(inode, BlockKind::TrackNode)
}

fn inline(inode: &Inode, blocks: &Blocks) -> Result<Vec<(u64, TableEntry)>, Stop> {
    match &inode.table {
        Table::Inline(bytes) => {
            let table = decode_inline(bytes, blocks.fragment_size());
            Ok(table.ok_or_else(|| malformed(inode, 0))?)
        }
        Table::None | Table::Tree(_) => Ok(Vec::new()),
    }
}

const fn malformed(inode: &Inode, key: u64) -> Corrupt {
    let ino = inode.ino;
    Corrupt::Track { ino, key }
}

/// A key of the tree that a table is, if a range may begin there.
fn low_of(inode: &Inode, key: u64) -> Result<u64, Corrupt> {
    match is_low(key) {
        true => Ok(key),
        false => Err(malformed(inode, key)),
    }
}

/// The range that holds a key; `None` before the first one.
pub(crate) fn range_of(
    inode: &Inode,
    blocks: &mut Blocks,
    key: u64,
) -> Result<Option<KeyRange>, Stop> {
    let Table::Tree(root) = &inode.table else {
        let table = inline(inode, blocks)?;
        let behind = table.partition_point(|(low, _)| *low <= key);
        let high = table.get(behind).map_or(KEYS_END, |(low, _)| *low);
        let found = behind.checked_sub(1).and_then(|at| table.get(at));
        return Ok(found.map(|(low, entry)| KeyRange {
            low: *low,
            high,
            entry: *entry,
        }));
    };
    let tree = tree(inode);
    let Some(found) = tree.prev(root, blocks, key)? else {
        return Ok(None);
    };
    let low = low_of(inode, found.key())?;
    let entry = TableEntry::decode(found.value(), blocks.fragment_size());
    let entry = entry.ok_or_else(|| malformed(inode, low))?;
    let high = next_low(inode, blocks, key.saturating_add(1))?;
    Ok(Some(KeyRange { low, high, entry }))
}

/// Where the first range begins that does not begin before a key; else where keys end.
pub(crate) fn next_low(inode: &Inode, blocks: &mut Blocks, from: u64) -> Result<u64, Stop> {
    let next = match &inode.table {
        Table::Tree(root) => match tree(inode).next(root, blocks, from)? {
            Some(entry) => Some(low_of(inode, entry.key())?),
            None => None,
        },
        _ => inline(inode, blocks)?
            .into_iter()
            .map(|(low, _)| low)
            .find(|low| *low >= from),
    };
    Ok(next.unwrap_or(KEYS_END))
}

/// Bytes of the inode's tail that a table may take: beside it the root of a tree of names must fit, whatever stands there yet.
fn room(inode: &Inode) -> usize {
    let names = inode.body.len().max(TreeRoot::SIZE);
    TAIL.saturating_sub(names + inode.inline_xattrs.len())
}

/// Whether the inode has room for a table, whatever the next segment `ssn` says of its tracks: what stands in the inode then
/// must not need a tree.
pub(crate) fn has_room(inode: &Inode, geometry: &Geometry, ssn: Ssn) -> bool {
    let short = geometry.total_frags <= SHORT_END && ssn.0 < SHORT_END / 2;
    short && room(inode) >= LEAST
}

/// Reads what putting an entry at `key` needs.
pub(crate) fn prepare_put(inode: &Inode, blocks: &mut Blocks, key: u64) -> Result<(), Stop> {
    match &inode.table {
        Table::Tree(root) => tree(inode).prepare_put(root, blocks, key),
        Table::None | Table::Inline(_) => inline(inode, blocks).map(drop),
    }
}

/// Puts an entry at `key`, in the place of the one there.
pub(crate) fn put(
    inode: &mut Inode,
    blocks: &mut Blocks,
    key: u64,
    entry: &TableEntry,
) -> Result<(), Stop> {
    let tree = tree(inode);
    if let Table::Tree(mut root) = inode.table {
        tree.put(&mut root, blocks, key, &entry.encode())?;
        inode.table = Table::Tree(root);
        return Ok(());
    }
    let mut table = inline(inode, blocks)?;
    match table.binary_search_by_key(&key, |(low, _)| *low) {
        Ok(at) => table[at].1 = *entry,
        Err(at) => table.insert(at, (key, *entry)),
    }
    if let Some(bytes) = encode_inline(&table, room(inode)) {
        inode.table = Table::Inline(bytes);
        return Ok(());
    }
    let mut root = TreeRoot::EMPTY;
    for (low, entry) in &table {
        tree.put(&mut root, blocks, *low, &entry.encode())?;
    }
    inode.table = Table::Tree(root);
    Ok(())
}

/// Where the head of an entry's track is.
pub(crate) fn head_pointer(entry: &TableEntry, geometry: &Geometry) -> Pointer {
    let bytes = head_bytes(entry.slots.into());
    Pointer {
        addr: entry.addr,
        frags: geometry.frags_for(bytes as u64) as u32,
        stored: bytes as u32,
        birth: entry.ssn,
        checksum: entry.checksum,
        ..Pointer::NONE
    }
}
