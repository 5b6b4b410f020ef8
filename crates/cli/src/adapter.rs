//! The bridge from the kernel's requests to a volume.
//!
//! A node id is the inode's number in its low 40 bits with the low 24 bits of its generation
//! above. So a file handle that outlives the daemon never means another file. The root is 1,
//! as the protocol wants it.
//!
//! Nobody else changes a mounted volume. So the kernel may trust names and attributes for an hour:
//! it learns of its own changes by itself. Files are opened and closed without a message. What is
//! open is therefore known by the kernel's lookup counts: see [`lookups`].

mod answers;
mod attributes;
mod convert;
mod doubt;
mod flags;
mod lookups;
mod losses;
mod reads;
mod requests;
mod resent;
mod succession;
mod trim;
mod trusted;
mod witness;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loamfs_format::Ino;
use loamfs_fs::{Error, Volume};
use loamfs_fuse as fuse;
use loamfs_fuse::{Errno, Negotiated, NodeId, Notifier};

pub use attributes::Attributes;
use convert::ino_of;
use doubt::Doubt;
use lookups::Lookups;
use losses::Losses;
pub use reads::Reads;

use crate::errors::Errors;
use crate::mount::handover::{Handover, Shard};
use crate::mount::promise::Standing;
use crate::mount::transport::Transport;
use crate::mount::unmounter::Unmounter;

/// How long the kernel may trust what it was told.
const TTL: Duration = Duration::from_secs(3_600);

/// What a mount asks the kernel for.
pub fn config(reads: Reads, attributes: Attributes) -> fuse::Config {
    let cached = reads == Reads::Uncached;
    fuse::Config {
        zero_message_open: cached,
        zero_message_opendir: cached,
        cache_symlinks: cached,
        atomic_truncate: false,
        direct_io_allow_mmap: !cached,
        posix_acl: attributes == Attributes::All,
        dont_mask: true,
        handle_killpriv: true,
        ..fuse::Config::default()
    }
}

/// What the adapter tells the daemon.
pub trait Events: Send + Sync {
    /// The kernel and the adapter have agreed on this: the mount can be used.
    ///
    /// # Errors
    ///
    /// Why it is not to be served.
    fn ready(&self, agreed: &Negotiated) -> Result<(), Errno>;
    /// No request comes any more, and the volume is about to be closed.
    fn closing(&self);
    /// The volume was closed, with this result.
    fn closed(&self, result: Result<(), Error>);
}

/// What the daemon around an adapter has.
pub struct Daemon {
    /// Is told what happens.
    pub events: Arc<dyn Events>,
    /// What is promised.
    pub promise: Arc<Standing>,
    /// How requests travel.
    pub transport: Arc<Transport>,
    /// What a successor must know.
    pub handover: Arc<Handover>,
    /// What is counted of errors.
    pub errors: Arc<Errors>,
    /// Who lets another daemon follow, if one does.
    pub supervisor: Option<Arc<Unmounter>>,
}

/// Which changes may not be durable.
#[derive(Clone)]
pub struct Changes(Arc<Lookups>);

impl Changes {
    /// Takes note of what is durable by now.
    pub fn look_after(&self, volume: &Volume) {
        let is_durable = |node| volume.is_durable(ino_of(node));
        self.0.look_after_changes(is_durable);
    }

    /// Whether all are durable.
    pub fn are_durable(&self) -> bool {
        self.0.are_durable()
    }

    /// Files and directories of which changes may not be durable.
    pub fn undurable(&self) -> u64 {
        self.0.undurable()
    }
}

/// A volume as the kernel sees it.
pub struct Adapter {
    volume: Arc<Volume>,
    lookups: Arc<Lookups>,
    /// What the kernel has from an earlier daemon, and was lost with it.
    gone: HashSet<NodeId>,
    doubt: Doubt,
    /// Who knows what was lost.
    losses: Losses,
    handover: Arc<Handover>,
    errors: Arc<Errors>,
    events: Arc<dyn Events>,
    notifier: Notifier,
    supervisor: Option<Arc<Unmounter>>,
    promise: Arc<Standing>,
    transport: Arc<Transport>,
    reads: Reads,
    attributes: Attributes,
    /// Preferred size of an I/O, in bytes.
    block_size: u32,
    /// Directory whose gaps were already logged, so that a damaged one does not flood the log.
    logged: Mutex<Option<Ino>>,
}

impl Adapter {
    /// An adapter for an open volume.
    pub fn new(
        volume: Arc<Volume>,
        notifier: Notifier,
        daemon: Daemon,
        (reads, attributes): (Reads, Attributes),
        shards: Vec<Shard>,
    ) -> Self {
        Self {
            handover: daemon.handover,
            errors: daemon.errors,
            supervisor: daemon.supervisor,
            gone: HashSet::new(),
            doubt: Doubt::default(),
            losses: Losses::default(),
            promise: daemon.promise,
            transport: daemon.transport,
            reads,
            attributes,
            block_size: volume.statfs().block_size,
            volume,
            lookups: Arc::new(Lookups::new(shards)),
            events: daemon.events,
            notifier,
            logged: Mutex::new(None),
        }
    }

    /// The table of what was changed, for whoever looks after it beside the adapter.
    pub fn changes(&self) -> Changes {
        Changes(Arc::clone(&self.lookups))
    }
}
