//! `loamfs bench requests`.

use std::path::PathBuf;

use clap::Args;

use super::need_root;
use super::volume::VolumeArgs;
use crate::{Error, cleanup, requests, table};

/// Count what the kernel asks a mount for each operation on a small file, by kind, for root, for the owner of the directory,
/// and for a guest in a directory of somebody else's; and what programs that only look ask for when they run for the third
/// time (root).
#[derive(Debug, Args)]
pub struct RequestsArgs {
    /// Files of each kind of work.
    #[arg(long, default_value_t = 100)]
    files: u64,
    /// Directory for the image and the mount point, which others can enter.
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    #[command(flatten)]
    volume: VolumeArgs,
}

impl RequestsArgs {
    /// Counts, and tells.
    pub fn run(self) -> Result<(), Error> {
        need_root()?;
        cleanup::on_signals()?;
        let tools = self.volume.tools(&self.work)?;
        let rows = requests::measure(&tools, self.files)?;
        self.volume.print(&rows, || {
            let head = ["operation", "who", "a file", "of them"].map(str::to_owned);
            let cells = rows.iter().map(requests::Row::cells);
            let cells: Vec<_> = std::iter::once(head.to_vec()).chain(cells).collect();
            table::columns(&cells, 4)
        })
    }
}
