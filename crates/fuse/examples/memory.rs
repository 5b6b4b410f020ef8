//! Mounts a file system in memory on a directory, and serves it until it is
//! unmounted: for trying the layer by hand, as root or not.
//!
//! ```text
//! cargo run --example memory -- DIRECTORY [workers] [rings] &
//! umount DIRECTORY        (or fusermount3 -u DIRECTORY)
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::PathBuf;
use std::sync::Arc;

use loamfs_fuse::{Config, MountOptions, Session, uring};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory: PathBuf = arguments.next().ok_or("which directory?")?.into();
    let mut session = Session::new(Config {
        zero_message_open: true,
        ..Config::default()
    });
    if let Some(workers) = arguments.next() {
        session = session.workers(workers.parse()?);
    }
    if arguments.next().as_deref() == Some("rings") {
        uring::enable()?;
        session = session.rings(uring::Rings::set_up(usize::MAX)?);
    }
    let options = MountOptions {
        fsname: "memory".into(),
        subtype: "loamtest".into(),
        default_permissions: true,
        ..MountOptions::default()
    };
    let mounted = loamfs_fuse::mount(&directory, &options)?;
    session.run(Arc::new(common::MemFs::default()), mounted)?;
    Ok(())
}
