//! Checkpoints (L8; rules 5 and 9): the last one, those that superblocks name, and what was sealed since.

use loamfs_format::summary::Header;
use loamfs_format::superblock::{CheckpointRef, Features};
use loamfs_format::{Extent, Geometry, Ssn};
use std::time::Duration;

/// What is known of checkpoints.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    last: CheckpointRef,
    /// The checkpoint that each superblock copy names for good.
    named: [Option<Ssn>; 2],
    /// The one that a copy of the log names for good which is behind, or a later one; `None` without such a copy.
    copied: Option<Ssn>,
    /// When it was told so.
    copied_since: Duration,
    /// A superblock copy must be written before anything else: the copies tell of different sizes, labels or features,
    /// since a crash met one that changed them, or of a volume that nobody has open.
    copies_differ: bool,
    /// Features that both copies announce.
    announced: Features,
    /// What summaries since the last checkpoint take, its own included.
    summaries: Vec<Extent>,
    /// Segments since then, and the bytes of their summaries.
    segments: u32,
    summary_bytes: u64,
}

impl Checkpoints {
    /// A volume whose last checkpoint is `last`, and whose superblock copies name those of `named`.
    pub fn new(last: CheckpointRef, named: [Option<Ssn>; 2]) -> Checkpoints {
        Checkpoints {
            last,
            named,
            copied: None,
            copied_since: Duration::ZERO,
            copies_differ: false,
            announced: Features::default(),
            summaries: Vec::new(),
            segments: 0,
            summary_bytes: 0,
        }
    }

    /// The last one.
    pub fn last(&self) -> CheckpointRef {
        self.last
    }

    /// The one that each superblock copy names for good.
    pub fn named(&self) -> [Option<Ssn>; 2] {
        self.named
    }

    /// The newest that a copy names.
    pub fn newest_named(&self) -> Ssn {
        self.named[0].max(self.named[1]).unwrap_or(Ssn(0))
    }

    /// The one that a copy of the log names for good which is behind, or a later one; `None` without such a copy.
    pub fn copied(&self) -> Option<Ssn> {
        self.copied
    }

    /// There is such a copy, and it names this one for good; or there is none.
    pub fn set_copied(&mut self, copied: Option<Ssn>, now: Duration) {
        (self.copied, self.copied_since) = (copied, now);
    }

    /// When it last came to name another one, or the volume was opened.
    pub fn copied_since(&self) -> Duration {
        self.copied_since
    }

    /// The copies contradict each other.
    pub fn note_copies_differ(&mut self) {
        self.copies_differ = true;
    }

    /// Whether they do.
    pub fn copies_differ(&self) -> bool {
        self.copies_differ
    }

    /// Both copies announce these features.
    pub fn note_announced(&mut self, features: Features) {
        self.announced = self.announced.and(features);
    }

    /// Whether they announce this one.
    pub fn is_announced(&self, feature: Features) -> bool {
        self.announced.have(feature)
    }

    /// A superblock copy names a checkpoint for good.
    pub fn name(&mut self, copy: usize, checkpoint: Ssn) {
        self.named[copy] = Some(checkpoint);
    }

    /// A segment was sealed whose summary takes `summary`.
    pub fn note_segment(&mut self, header: &Header, summary: impl IntoIterator<Item = Extent>) {
        self.summaries.extend(summary);
        self.segments += 1;
        self.summary_bytes += header.summary_len();
    }

    /// The segment that was sealed last is a checkpoint.
    pub fn note_checkpoint(&mut self, checkpoint: CheckpointRef) {
        self.last = checkpoint;
        self.segments = 0;
        self.summary_bytes = 0;
    }

    /// Replay starts with the last checkpoint, whose summary begins with `first`.
    pub fn replay_checkpoint(&mut self, first: Extent) {
        self.summaries = vec![first];
    }

    /// More of the summary that was noted last.
    pub fn note_summary(&mut self, extent: Extent) {
        self.summaries.push(extent);
    }

    /// What summaries since the last checkpoint take, its own included.
    pub fn summaries(&self) -> &[Extent] {
        &self.summaries
    }

    /// The same; a checkpoint retires them.
    pub fn take_summaries(&mut self) -> Vec<Extent> {
        std::mem::take(&mut self.summaries)
    }

    /// Whether so much was sealed since the last one that a mount would take long (rule 9).
    pub fn is_chain_long(&self, g: &Geometry) -> bool {
        self.segments >= g.checkpoint_segments_max
            || self.summary_bytes >= g.checkpoint_summary_max.into()
    }
}
