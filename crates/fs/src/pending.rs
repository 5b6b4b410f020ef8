//! What waits for the next segment besides blocks and inodes (L7, H11).

use loamfs_format::Ssn;
use loamfs_format::summary::Record;
use std::collections::VecDeque;
use std::time::Duration;

/// What the next segment says besides its blocks, and since when it is due.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    records: Vec<Record>,
    /// Bytes of small files' data and large attributes that it carries.
    small_bytes: u64,
    /// When the oldest change that is not sealed was made.
    since: Option<Duration>,
    /// Segments with changes that are not known durable, and when the oldest of these was made.
    sealed: VecDeque<(Ssn, Duration)>,
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

    /// When the oldest change was made that is not known durable: it waits for a segment, or for the flush behind one.
    pub fn undurable_since(&self) -> Option<Duration> {
        self.sealed.front().map(|(_, since)| *since).or(self.since)
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
    pub fn sealed(&mut self, ssn: Ssn) {
        self.small_bytes = 0;
        let since = self.since.take();
        self.sealed.extend(since.map(|since| (ssn, since)));
    }

    /// Segments are durable up to this one.
    pub fn flushed(&mut self, durable: Ssn) {
        while let Some((ssn, _)) = self.sealed.front()
            && *ssn <= durable
        {
            self.sealed.pop_front();
        }
    }
}
