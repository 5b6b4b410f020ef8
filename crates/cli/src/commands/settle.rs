//! `loamfs settle`.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::mount::control::{self, Request};
use crate::mounts;

/// Bring overwritten parts of large files from the log to their places now, instead of when there are many.
#[derive(Debug, Args)]
pub struct SettleArgs {
    /// Where the volume is mounted.
    mountpoint: PathBuf,
}

impl SettleArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If no LoamFS is mounted there, or its daemon could not do it.
    pub fn run(self) -> Result<u8, Failure> {
        control::ask(&mounts::mounted(&self.mountpoint)?, &Request::Settle)?;
        Ok(0)
    }
}
