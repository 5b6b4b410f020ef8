//! Which changes are durable before their callers hear of them. For FUSE the kernel leaves that to the server, but for
//! writes, which it follows up with an fsync.

use std::sync::atomic::{AtomicU8, Ordering};

use loamfs_fuse::MountFlags;

use super::options::Options;
use super::words::Words;

/// What a mount promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promise {
    /// What is synced.
    #[default]
    Synced,
    /// Changes of directories too (dirsync).
    Names,
    /// Every change (sync).
    Everything,
}

impl Promise {
    /// All of them, by the words of mount(8).
    pub const WORDS: Words<Self> = Words(&[
        ("async", Self::Synced),
        ("dirsync", Self::Names),
        ("sync", Self::Everything),
    ]);

    /// What options ask for.
    pub fn of(options: &Options) -> Self {
        let flags = options.kernel.flags;
        let has = |flag| flags.contains(flag);
        match (has(MountFlags::SYNCHRONOUS), has(MountFlags::DIRSYNC)) {
            (true, _) => Self::Everything,
            (false, true) => Self::Names,
            (false, false) => Self::Synced,
        }
    }
}

/// The promise of a mount, which a remount changes.
#[derive(Debug)]
pub struct Standing(AtomicU8);

impl Standing {
    /// A mount that promises this.
    pub fn new(promise: Promise) -> Self {
        Self(AtomicU8::new(promise as u8))
    }

    /// Promises something else from now on.
    pub fn set(&self, promise: Promise) {
        self.0.store(promise as u8, Ordering::SeqCst);
    }

    /// Whether this is promised, or more.
    pub fn covers(&self, promise: Promise) -> bool {
        self.0.load(Ordering::SeqCst) >= promise as u8
    }
}
