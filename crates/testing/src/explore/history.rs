//! What a workload did, operation by operation, and what it was promised.

use std::collections::BTreeMap;

use crate::model::{Id, Model};
use crate::ops::{Change, Op};
use crate::problem::{Problem, Verdict};

/// What the end of an operation promises about the time before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// Names, attributes and small files are durable.
    Metadata,
    /// Everything is.
    All,
    /// One file is, and what was changed before it.
    File(Id),
    /// The content of one file is.
    Data(Id),
}

/// The states of a volume before and after each operation. Snapshot 0 is the
/// state in which the workload began.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// After each operation.
    pub snapshots: Vec<Model>,
    /// What the operation before each snapshot promised.
    pub acks: Vec<Option<Ack>>,
    /// Snapshots in which ids were given anew: older ones say nothing about the
    /// same ids.
    pub renewals: Vec<usize>,
    /// Files that replaced another by a rename: from that snapshot on they are
    /// at least what they were then.
    pub replacements: Vec<(Id, usize)>,
    /// Files that were renamed, and the snapshots after it.
    pub moves: Vec<(Id, usize)>,
    /// From these snapshots on the volume's devices are those.
    tables: BTreeMap<usize, String>,
    /// The changes of the devices before these snapshots.
    changes: BTreeMap<usize, Change>,
}

impl History {
    /// A history that starts with this state.
    pub fn new(model: Model) -> Self {
        Self {
            snapshots: vec![model],
            acks: vec![Some(Ack::All)],
            renewals: vec![0],
            replacements: Vec::new(),
            moves: Vec::new(),
            tables: BTreeMap::new(),
            changes: BTreeMap::new(),
        }
    }

    /// Takes note of the volume's devices as they are at the last snapshot, where they may change.
    pub fn note_table(&mut self, table: Option<String>) {
        let last = self.last();
        self.tables.extend(table.map(|table| (last, table)));
    }

    /// Takes note of a change of the devices that led to the last snapshot.
    pub fn note_change(&mut self, change: Change, table: Option<String>) {
        self.changes.insert(self.last(), change);
        self.note_table(table);
    }

    /// Whether the devices may be these after a crash: those after the last change that has ended, or after one that began.
    ///
    /// # Errors
    /// That they may not.
    pub fn allows_table(&self, level: &Level, found: Option<&String>) -> Verdict {
        let from = self.tables.range(..=level.table).next_back();
        let from = from.map_or(0, |(snapshot, _)| *snapshot);
        let mut allowed = self
            .tables
            .range(from..=level.ceiling)
            .map(|(_, table)| table);
        match found {
            Some(found) if !allowed.any(|table| table == found) => Err(Problem::new(
                "the devices are those of no moment",
                format!("{found}; changes since {}: {:?}", level.table, self.tables),
            )),
            _ => Ok(()),
        }
    }

    /// What finishes a change of the devices that a crash has interrupted, or that goes on in several steps.
    pub fn unfinished(&self, level: &Level) -> Vec<Op> {
        let begun = self.changes.range(..=level.ceiling);
        let leaving = begun.clone().filter_map(|(_, change)| match change {
            Change::Leave(part) => Some(*part),
            _ => None,
        });
        let leaving: Vec<u8> = leaving.collect();
        let is_open = |(snapshot, change): &(&usize, &Change)| {
            **snapshot > level.table || matches!(change, Change::Leave(_) | Change::Empty(_))
        };
        let last = begun.last().filter(is_open);
        let again = last.map(|(_, change)| change.again(&leaving));
        again.into_iter().flatten().map(Op::Change).collect()
    }

    /// The number of the newest snapshot.
    pub fn last(&self) -> usize {
        self.snapshots.len() - 1
    }

    /// Adds the state after an operation; its number.
    pub fn push(&mut self, model: Model, ack: Option<Ack>) -> usize {
        self.snapshots.push(model);
        self.acks.push(ack);
        self.last()
    }

    /// The last snapshot up to `at` in which an object became what it is at `at`,
    /// or got the name that it has.
    fn changed_at(&self, id: Id, at: usize) -> usize {
        let now = self.snapshots[at].get(id);
        let same = |s: &usize| self.snapshots[*s].get(id) == now;
        let floor = self.renewed(at);
        let changed = (floor..=at).rev().take_while(same).last().unwrap_or(at);
        let moves = self.moves.iter();
        let moves = moves.filter(|&&(moved, s)| moved == id && s <= at && s >= floor);
        moves.map(|&(_, s)| s).fold(changed, usize::max)
    }

    /// The same, as far as the content goes.
    fn written_at(&self, id: Id, at: usize) -> usize {
        let content = |s: usize| self.snapshots[s].get(id).and_then(|o| o.content());
        let now = content(at);
        let floor = self.renewed(at);
        let same = |s: &usize| content(*s) == now;
        (floor..=at).rev().take_while(same).last().unwrap_or(at)
    }

    /// The last snapshot up to `at` in which ids were given anew.
    pub fn renewed(&self, at: usize) -> usize {
        let earlier = self.renewals.iter().rev();
        earlier.copied().find(|&s| s <= at).unwrap_or(0)
    }
}

/// What must be there after a crash at some point, and what may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// The state is that of this snapshot or a later one.
    pub floor: usize,
    /// The state is that of this snapshot or an earlier one.
    pub ceiling: usize,
    /// Contents of large files are not older than this snapshot.
    pub contents: usize,
    /// Contents of these files are not older than these snapshots.
    pub files: BTreeMap<Id, usize>,
    /// The last change of the devices that has ended led to this snapshot.
    pub table: usize,
}

/// The mark in a recording that says: the operation before snapshot `s` begins.
pub const fn begins(snapshot: usize) -> u64 {
    2 * snapshot as u64
}

/// The mark that says: the operation before snapshot `s` has ended.
pub const fn ended(snapshot: usize) -> u64 {
    2 * snapshot as u64 + 1
}

impl Level {
    /// Takes note of a mark.
    pub fn pass(&mut self, mark: u64, history: &History) {
        let snapshot = (mark / 2) as usize;
        self.ceiling = self.ceiling.max(snapshot);
        if mark == begins(snapshot) {
            return;
        }
        if history.changes.contains_key(&snapshot) {
            self.table = snapshot;
        }
        match history.acks.get(snapshot).copied().flatten() {
            None => {}
            Some(Ack::Metadata) => self.floor = snapshot,
            Some(Ack::All) => {
                self.floor = snapshot;
                self.contents = snapshot;
            }
            Some(Ack::File(id)) => {
                // A file that did not change since some segment needs no other,
                // so that only what came before its own change is promised.
                self.floor = self.floor.max(history.changed_at(id, snapshot));
                self.files.insert(id, snapshot);
            }
            Some(Ack::Data(id)) => {
                let written = history.written_at(id, snapshot);
                self.floor = self.floor.max(written);
                self.files.insert(id, snapshot);
            }
        }
    }

    /// The snapshot before which nothing of a file's content may come from.
    pub fn content_floor(&self, id: Id) -> usize {
        let own = self.files.get(&id).copied().unwrap_or(0);
        self.contents.max(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{New, ROOT};

    const NEW: New = New {
        permissions: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
    };

    /// Makes A, then B; then fsync of A, of B, of B again, and sync.
    fn history() -> History {
        let mut model = Model::new(0o755, 0, 0);
        let mut history = History::new(model.clone());
        for (id, name) in [(10, b"a"), (11, b"b")] {
            model.create(ROOT, name, id, &NEW).unwrap();
            history.push(model.clone(), None);
        }
        for ack in [Ack::File(10), Ack::File(11), Ack::File(11), Ack::All] {
            history.push(model.clone(), Some(ack));
        }
        history
    }

    fn level_after(marks: &[u64]) -> Level {
        let history = history();
        let mut level = Level::default();
        for &mark in marks {
            level.pass(mark, &history);
        }
        level
    }

    #[test]
    fn an_operation_that_began_may_be_seen() {
        assert_eq!(level_after(&[begins(1)]).ceiling, 1);
        assert_eq!(level_after(&[begins(1), ended(1), begins(2)]).floor, 0);
    }

    #[test]
    fn an_fsync_promises_what_came_before_its_file() {
        let level = level_after(&[begins(1), begins(2), begins(4), ended(4)]);
        assert_eq!((level.floor, level.ceiling), (2, 4));
        assert_eq!(level.content_floor(11), 4);
        assert_eq!(level.content_floor(10), 0);
    }

    #[test]
    fn an_fsync_of_what_is_durable_promises_nothing_more() {
        assert_eq!(level_after(&[ended(4), ended(3), ended(5)]).floor, 2);
        assert_eq!(level_after(&[ended(3), ended(4), ended(6)]).floor, 6);
    }
}
