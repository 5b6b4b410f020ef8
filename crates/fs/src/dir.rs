//! Directories: inline (H6), else a tree, changed from one to the other as entries come and go (H7).
//!
//! `lookup`, `next` and `prepare_*` may stop for missing nodes and change nothing; `insert`, `replace` and `remove`
//! follow their preparation and cannot fail.

use crate::blocks::{Blocks, Stop};
use crate::error::Corrupt;
use crate::tree::{NodeStore, Tree};
use loamfs_format::dirent::{
    DISCRIMINATORS, Dirent, FIRST_KEY, INLINE_OVERHEAD, InlineMap, KEYS_END, hash_key,
};
use loamfs_format::inode::{Body, Inode, TAIL};
use loamfs_format::node::TreeRoot;
use loamfs_format::{BlockKind, Ino};
use std::ops::ControlFlow;

/// An entry that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundEntry {
    pub key: u64,
    pub ino: Ino,
    pub file_type: u8,
    pub name: Vec<u8>,
}

/// The tree of a directory's entries.
pub(crate) fn tree(inode: &Inode) -> Tree {
    Tree::of_inode(inode, BlockKind::DirNode)
}

fn inline(inode: &Inode) -> Result<InlineMap, Stop> {
    match &inode.body {
        Body::InlineDir(bytes) => Ok(InlineMap::decode(bytes).ok_or(Corrupt::Dirent {
            ino: inode.ino,
            key: 0,
        })?),
        _ => Ok(InlineMap::default()),
    }
}

fn decode(inode: &Inode, key: u64, value: &[u8]) -> Result<FoundEntry, Stop> {
    let entry = Dirent::decode(value)
        .filter(|_| (FIRST_KEY..KEYS_END).contains(&key))
        .ok_or(Corrupt::Dirent {
            ino: inode.ino,
            key,
        })?;
    Ok(FoundEntry {
        key,
        ino: entry.ino,
        file_type: entry.file_type,
        name: entry.name.to_vec(),
    })
}

/// The first entry at position `from` or behind it.
pub(crate) fn next(
    inode: &Inode,
    blocks: &mut Blocks,
    from: u64,
) -> Result<Option<FoundEntry>, Stop> {
    match &inode.body {
        Body::DirTree(root) => match tree(inode).next(root, blocks, from)? {
            Some(entry) => decode(inode, entry.key(), entry.value()).map(Some),
            None => Ok(None),
        },
        _ => match inline(inode)?.next(from) {
            Some((key, value)) => decode(inode, key, value).map(Some),
            None => Ok(None),
        },
    }
}

/// Entries from position `from` on, at most `max`; fewer when blocks are missing but some were found.
pub(crate) fn list(
    inode: &Inode,
    blocks: &mut Blocks,
    from: u64,
    max: usize,
) -> Result<Vec<FoundEntry>, Stop> {
    let mut found = Vec::new();
    let mut bad = None;
    let mut visit = |key: u64, value: &[u8]| {
        match decode(inode, key, value) {
            Ok(entry) => found.push(entry),
            Err(stop) => bad = Some(stop),
        }
        if found.len() >= max || bad.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let walked = match &inode.body {
        Body::DirTree(root) => tree(inode).scan(root, blocks, from, visit).map(drop),
        _ => {
            for (key, value) in inline(inode)?.0.iter().filter(|(key, _)| *key >= from) {
                if visit(*key, value).is_break() {
                    break;
                }
            }
            Ok(())
        }
    };
    match (walked, bad) {
        (_, Some(stop)) => Err(stop),
        (Err(stop), None) if found.is_empty() => Err(stop),
        _ => Ok(found),
    }
}

/// The entry of `name`.
pub(crate) fn lookup(
    inode: &Inode,
    blocks: &mut Blocks,
    hash: &[u8; 16],
    name: &[u8],
) -> Result<Option<FoundEntry>, Stop> {
    let first = hash_key(hash, name);
    let mut from = first;
    while let Some(found) = next(inode, blocks, from)?
        && found.key < first + DISCRIMINATORS
    {
        if found.name == name {
            return Ok(Some(found));
        }
        from = found.key + 1;
    }
    Ok(None)
}

/// Finds the key for a new entry of `name`, which must not exist, and reads what inserting it needs.
pub(crate) fn prepare_insert(
    inode: &Inode,
    blocks: &mut Blocks,
    hash: &[u8; 16],
    name: &[u8],
) -> Result<u64, Stop> {
    let first = hash_key(hash, name);
    let mut key = first;
    while let Some(found) = next(inode, blocks, key)?
        && found.key == key
    {
        key += 1;
        if key >= first + DISCRIMINATORS {
            return Err(crate::error::Error::NoSpace.into());
        }
    }
    if let Body::DirTree(root) = &inode.body {
        tree(inode).prepare_put(root, blocks, key)?;
    }
    Ok(key)
}

/// Reads what replacing the entry at `key` needs.
pub(crate) fn prepare_replace(inode: &Inode, blocks: &mut Blocks, key: u64) -> Result<(), Stop> {
    match &inode.body {
        Body::DirTree(root) => tree(inode).prepare_put(root, blocks, key),
        _ => Ok(()),
    }
}

/// Reads what removing the entry at `key` needs.
pub(crate) fn prepare_remove(inode: &Inode, blocks: &mut Blocks, key: u64) -> Result<(), Stop> {
    match &inode.body {
        Body::DirTree(root) => tree(inode).prepare_remove(root, blocks, key),
        _ => Ok(()),
    }
}

/// Bytes by which an entry adds to the directory's size.
fn entry_size(value: &[u8]) -> u64 {
    (INLINE_OVERHEAD + value.len()) as u64
}

/// Bytes by which an entry that was found adds to it.
pub(crate) fn size_of(entry: &FoundEntry) -> u64 {
    let dirent = Dirent {
        ino: entry.ino,
        file_type: entry.file_type,
        name: &entry.name,
    };
    entry_size(&dirent.encode())
}

/// Puts an entry at `key`, which is free.
pub(crate) fn insert(
    inode: &mut Inode,
    blocks: &mut Blocks,
    key: u64,
    entry: &Dirent<'_>,
) -> Result<(), Stop> {
    let value = entry.encode();
    if let Body::DirTree(mut root) = inode.body {
        tree(inode).put(&mut root, blocks, key, &value)?;
        inode.body = Body::DirTree(root);
    } else {
        let mut map = inline(inode)?;
        map.put(key, value.clone());
        store(inode, blocks, map)?;
    }
    inode.size += entry_size(&value);
    Ok(())
}

/// Keeps the entries inline when they fit, else plants a tree.
fn store(inode: &mut Inode, blocks: &mut Blocks, map: InlineMap) -> Result<(), Stop> {
    if map.0.is_empty() {
        inode.body = Body::Empty;
    } else if map.size() <= inode.room() + inode.body.len() {
        inode.body = Body::InlineDir(map.encode());
    } else {
        let mut root = TreeRoot::EMPTY;
        let tree = tree(inode);
        for (key, value) in &map.0 {
            tree.put(&mut root, blocks, *key, value)?;
        }
        inode.body = Body::DirTree(root);
    }
    Ok(())
}

/// Puts another entry of the same name at `key`.
pub(crate) fn replace(
    inode: &mut Inode,
    blocks: &mut Blocks,
    key: u64,
    entry: &Dirent<'_>,
) -> Result<(), Stop> {
    let value = entry.encode();
    if let Body::DirTree(mut root) = inode.body {
        tree(inode).put(&mut root, blocks, key, &value)?;
        inode.body = Body::DirTree(root);
    } else {
        let mut map = inline(inode)?;
        map.put(key, value);
        inode.body = Body::InlineDir(map.encode());
    }
    Ok(())
}

/// Takes the entry at `key` out; a tree that has become small goes back into the inode.
pub(crate) fn remove(
    inode: &mut Inode,
    blocks: &mut Blocks,
    found: &FoundEntry,
) -> Result<(), Stop> {
    let entry = Dirent {
        ino: found.ino,
        file_type: found.file_type,
        name: &found.name,
    };
    inode.size = inode.size.saturating_sub(entry_size(&entry.encode()));
    if let Body::DirTree(mut root) = inode.body {
        let tree = tree(inode);
        tree.remove(&mut root, blocks, found.key)?;
        inode.body = Body::DirTree(root);
        // Half the tail, so that one entry more or less does not go to and fro.
        let room = (TAIL / 2).saturating_sub(inode.inline_xattrs.len() + inode.table.len());
        let small = inode.size <= room as u64;
        // What a damaged tree comes down to nobody may have read: it stays a tree.
        let leaf = tree.identity(root.level, root.low);
        if small && root.level == 0 && blocks.peek(&root.pointer, &leaf).is_some() {
            let mut map = InlineMap::default();
            let _ = tree.scan(&root, blocks, 0, |key, value| {
                map.0.push((key, value.to_vec()));
                ControlFlow::Continue(())
            })?;
            tree.trim_step(&mut root, blocks, 0, usize::MAX, |_, _| {})?;
            store(inode, blocks, map)?;
        }
    } else {
        let mut map = inline(inode)?;
        map.remove(found.key);
        store(inode, blocks, map)?;
    }
    Ok(())
}
