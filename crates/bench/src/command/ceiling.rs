//! `loamfs bench ceiling`.

use std::path::PathBuf;

use clap::Args;

use super::{need_root, print};
use crate::Error;
use crate::ceiling::serve;

/// Mount the ceiling server, which keeps all in memory, and serve it until it is unmounted (root).
#[derive(Debug, Args)]
pub struct CeilingArgs {
    /// Mount as LoamFS is mounted on this block device, which is neither read nor written.
    #[arg(long, value_name = "DEVICE")]
    device: Option<PathBuf>,
    /// Mount options as for LoamFS: `noacl`, `noxattr` and `transport` count, others are passed over.
    #[arg(short, long, default_value = "")]
    options: String,
    /// Where to mount it.
    mountpoint: PathBuf,
}

impl CeilingArgs {
    /// Serves.
    pub fn run(self) -> Result<(), Error> {
        need_root()?;
        let words = format!("ceiling is mounted on {}\n", self.mountpoint.display());
        // If nobody listens, nothing is lost.
        let ready = move || drop(print(&words));
        serve(
            &self.mountpoint,
            self.device.as_deref(),
            &self.options,
            ready,
        )
    }
}
