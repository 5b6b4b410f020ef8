//! What the project promises of LoamFS, each with its measurement: requests as the kernel counts them on a loop
//! device, memory as the kernel counts it for the daemon.

mod create;
mod delete;
mod directory;
mod fsync;
mod full;
mod library;
mod million;
mod scan;
mod settle;

use clap::ValueEnum;

pub use full::fill;

use crate::Error;
use crate::lab::Tools;
use crate::table::Row;

/// A group of claims that share a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Claim {
    /// Bytes and sizes of requests when 10,000 small files are made.
    Create,
    /// Requests and flushes of an fsync.
    Fsync,
    /// Memory with 1,000,000 files touched; requests of a mount, clean and after a kill.
    Million,
    /// `rm -rf` of small files reads no data.
    Delete,
    /// `tar` and `grep -r` of small files read in large requests.
    Scan,
    /// A large file overwritten at random, then settled, is read like a fresh one.
    Settle,
    /// A full volume: deletes work, space returns.
    Full,
    /// What writing to a volume that is 90 % full costs.
    Rate,
    /// The library without a mount, beside ext4 through system calls.
    Library,
    /// Told only: many small files in one directory, beside ext4.
    Directory,
}

/// How much of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scale {
    /// Files instead of each claim's own number; the bounds stay.
    pub files: Option<u64>,
}

impl Scale {
    /// The number of files of a claim that names `own`.
    fn files(self, own: u64) -> u64 {
        self.files.unwrap_or(own)
    }
}

impl Claim {
    /// Measures.
    ///
    /// # Errors
    /// If that was not possible, which says nothing about the claim.
    pub fn run(self, tools: &Tools, scale: Scale) -> Result<Vec<Row>, Error> {
        match self {
            Claim::Create => create::run(tools, scale),
            Claim::Fsync => fsync::run(tools),
            Claim::Million => million::run(tools, scale),
            Claim::Delete => delete::run(tools, scale),
            Claim::Scan => scan::run(tools, scale),
            Claim::Settle => settle::run(tools),
            Claim::Full => full::usable(tools),
            Claim::Rate => full::rate(tools),
            Claim::Library => library::run(tools, scale),
            Claim::Directory => directory::run(tools, scale),
        }
    }

    /// Whether it runs when nothing is named: what only tells is asked for by name.
    pub const fn is_promise(self) -> bool {
        !matches!(self, Claim::Directory)
    }
}

/// Bytes of an image for `files` small files and what is made of them besides.
fn image_bytes(files: u64) -> u64 {
    (files * 6 * 1024 + (1 << 30)).next_multiple_of(1 << 20)
}

/// Bytes that files of `payload` bytes cannot do without: an inode of 512 bytes each, and a directory entry of slot
/// (12), inode number (8), type (1) and name.
const fn least_bytes(files: u64, payload: u64, name: u64) -> u64 {
    payload + files * (512 + 12 + 8 + 1 + name)
}
