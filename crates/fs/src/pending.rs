//! What waits for the next segment besides blocks and inodes (L7, H11).

use loamfs_format::summary::Record;
use std::time::Duration;

/// What the next segment says besides its blocks, and since when it is due.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    records: Vec<Record>,
    /// Bytes of small files' data and large attributes that it carries.
    small_bytes: u64,
    /// When the oldest change that is not sealed was made.
    since: Option<Duration>,
    /// Whether much of what may wait does: time for a commit, before an operation has to wait.
    pressed: bool,
}

impl Pending {
    /// The next segment says this too.
    pub fn say(&mut self, record: Record) {
        self.records.push(record);
    }

    /// What it says.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The same; it is being sealed.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// It carries so many bytes of content more.
    pub fn add_content(&mut self, bytes: usize) {
        self.small_bytes += bytes as u64;
    }

    /// Content that it was to carry is gone, if there was any.
    pub fn drop_content(&mut self, content: Option<&[u8]>) {
        self.small_bytes -= content.map_or(0, |old| old.len() as u64);
    }

    /// Bytes of small files' data and large attributes that it carries.
    pub fn content_bytes(&self) -> u64 {
        self.small_bytes
    }

    /// Something waits for it since `now`, if nothing did before.
    pub fn note(&mut self, now: impl FnOnce() -> Duration) {
        self.since.get_or_insert_with(now);
    }

    /// Since when something waits for it.
    pub fn since(&self) -> Option<Duration> {
        self.since
    }

    /// Notes whether much of what may wait does wait.
    pub fn press(&mut self, pressed: bool) {
        self.pressed |= pressed;
    }

    /// Whether much waited at some time since the last question.
    pub fn take_pressed(&mut self) -> bool {
        std::mem::take(&mut self.pressed)
    }

    /// Nothing waits any more.
    pub fn forget_age(&mut self) {
        self.since = None;
    }

    /// The segment was sealed.
    pub fn sealed(&mut self) {
        self.small_bytes = 0;
        self.since = None;
    }
}
