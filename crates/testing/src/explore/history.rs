//! What a workload did, operation by operation, and what it was promised.

use std::collections::BTreeMap;

use crate::model::{Id, Model};

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
        }
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
