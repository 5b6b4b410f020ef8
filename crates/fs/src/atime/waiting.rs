//! Access times that are in memory alone.

use crate::blocks::Stop;
use crate::types::AtimeRule;
use loamfs_format::atime::Atime;
use loamfs_format::ifile::{block_of, ino_at};
use loamfs_format::{Ino, InodeBlockNo};
use std::collections::BTreeMap;

/// Bytes of cache for each time that may wait: they take about a fiftieth of it.
const CACHE_PER_TIME: usize = 2048;
/// Most times that wait whatever the cache, and fewest.
const WAITING_MAX: usize = 1 << 20;
const WAITING_MIN: usize = 4096;

/// What is known of the atime file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum File {
    /// Nobody looked yet.
    #[default]
    Unknown,
    /// It is made with the first time that is kept.
    Absent,
    There,
    /// It is damaged: until the next mount there are only the inodes' own times.
    Unusable,
}

/// Access times that wait, and what decides of them.
#[derive(Debug, Default)]
pub(crate) struct Atimes {
    rule: AtimeRule,
    /// Of inodes that did not change since the last segment.
    waiting: BTreeMap<Ino, Atime>,
    waiting_max: usize,
    file: File,
}

impl Atimes {
    pub fn new(rule: AtimeRule, cache_bytes: usize) -> Atimes {
        Atimes {
            rule,
            waiting_max: (cache_bytes / CACHE_PER_TIME).clamp(WAITING_MIN, WAITING_MAX),
            ..Atimes::default()
        }
    }

    /// Which reads set times.
    pub fn rule(&self) -> AtimeRule {
        self.rule
    }

    pub fn set_rule(&mut self, rule: AtimeRule) {
        self.rule = rule;
    }

    /// What is known of the file.
    pub fn file(&self) -> File {
        self.file
    }

    pub fn set_file(&mut self, file: File) {
        self.file = file;
    }

    /// The time of an inode that waits.
    pub fn get(&self, ino: Ino) -> Option<Atime> {
        self.waiting.get(&ino).copied()
    }

    /// Lets the time of an inode wait; whether there is room for it.
    pub fn wait(&mut self, ino: Ino, time: Atime) -> bool {
        let room = self.waiting.len() < self.waiting_max || self.waiting.contains_key(&ino);
        if room {
            self.waiting.insert(ino, time);
        }
        room
    }

    /// Whether it is time to put some into the file.
    pub fn many_wait(&self) -> bool {
        self.waiting.len() > self.waiting_max / 2
    }

    /// Drops all that wait.
    pub fn forget_all(&mut self) {
        self.waiting.clear();
    }

    /// The inode took its time along, or is gone.
    pub fn forget(&mut self, ino: Ino) {
        self.waiting.remove(&ino);
    }

    /// The inode blocks from one on that have times waiting, in order.
    pub fn blocks(&self, from: InodeBlockNo) -> impl Iterator<Item = InodeBlockNo> {
        let mut at = from;
        std::iter::from_fn(move || {
            let (ino, _) = self.waiting.range(ino_at(at, 0)..).next()?;
            let block = block_of(*ino);
            at = InodeBlockNo(block.0 + 1);
            Some(block)
        })
    }

    /// Those of one inode block.
    pub fn of_block(&self, block: InodeBlockNo) -> Vec<(Ino, Atime)> {
        let of_block = ino_at(block, 0)..ino_at(InodeBlockNo(block.0 + 1), 0);
        let times = self.waiting.range(of_block);
        times.map(|(ino, time)| (*ino, *time)).collect()
    }

    /// What was found in the file, unless that is damaged: it is left alone from then on, and is nobody's error.
    pub fn unless_damaged<T>(&mut self, found: Result<T, Stop>) -> Result<Option<T>, Stop> {
        match found {
            Err(Stop::Failed(error)) => {
                if self.file != File::Unusable {
                    tracing::error!(%error, "the file of access times is damaged: none are kept before the next mount");
                }
                self.file = File::Unusable;
                Ok(None)
            }
            found => found.map(Some),
        }
    }
}
