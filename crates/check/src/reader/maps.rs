//! The IFILE and the lazy map as they stand now: the checkpoint's trees and what changed since, merged by key.

use super::tree::Entries;
use super::{LazyChange, State, Volume};
use crate::MapFault;
use loamfs_format::ifile::IfileEntry;
use loamfs_format::maps::LazyEntry;
use loamfs_format::{BlockKind, Ino};
use std::collections::btree_map;
use std::iter::Peekable;

/// The entries of a map, by key, merged with the changes since the checkpoint. Damaged parts are errors, and the walk
/// goes on behind them.
pub struct Merged<'v, V, C> {
    state: &'v State,
    kind: BlockKind,
    tree: Entries<'v>,
    changes: Peekable<btree_map::Range<'v, u64, C>>,
    decode: fn(&[u8]) -> Option<V>,
    /// What holds for a key now, given what the checkpoint says.
    now: fn(&State, u64, Option<V>) -> Option<V>,
}

/// The entries of the IFILE by the numbers of their blocks.
pub type Ifile<'v> = Merged<'v, IfileEntry, IfileEntry>;
/// The entries of the lazy map by their homes.
pub type Lazy<'v> = Merged<'v, LazyEntry, LazyChange>;

impl<'v> Ifile<'v> {
    pub(crate) fn ifile(volume: &'v Volume<'v>, from: u64) -> Ifile<'v> {
        let state = volume.state();
        Merged {
            state,
            kind: BlockKind::IfileNode,
            tree: Entries::new(volume, volume.map(BlockKind::IfileNode), from),
            changes: state.ifile.range(from..).peekable(),
            decode: IfileEntry::decode,
            now: ifile_now,
        }
    }
}

impl<'v> Lazy<'v> {
    pub(crate) fn lazy(volume: &'v Volume<'v>, from: u64) -> Lazy<'v> {
        let state = volume.state();
        Merged {
            state,
            kind: BlockKind::LazyNode,
            tree: Entries::new(volume, volume.map(BlockKind::LazyNode), from),
            changes: state.lazy.range(from..).peekable(),
            decode: LazyEntry::decode,
            now: State::lazy_now,
        }
    }
}

fn ifile_now(state: &State, key: u64, old: Option<IfileEntry>) -> Option<IfileEntry> {
    state
        .ifile
        .get(&key)
        .copied()
        .or(old)
        .filter(|entry| entry.live != 0)
}

impl<V, C> Iterator for Merged<'_, V, C> {
    type Item = Result<(u64, V), MapFault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let changed = self.changes.peek().map(|(key, _)| **key);
            let stored = match self.tree.peek() {
                Some(Ok(entry)) => Some(entry.key()),
                Some(Err(_)) => return self.tree.next().and_then(Result::err).map(Err),
                None => None,
            };
            let key = match (stored, changed) {
                (Some(stored), Some(changed)) => stored.min(changed),
                (stored, changed) => stored.or(changed)?,
            };
            let mut old = None;
            if stored == Some(key)
                && let Some(Ok(entry)) = self.tree.next()
            {
                old = (self.decode)(entry.value());
                if old.is_none() && changed != Some(key) {
                    return Some(Err(MapFault::Entry {
                        kind: self.kind,
                        ino: Ino(0),
                        key,
                    }));
                }
            }
            if changed == Some(key) {
                self.changes.next();
            }
            if let Some(value) = (self.now)(self.state, key, old) {
                return Some(Ok((key, value)));
            }
        }
    }
}
