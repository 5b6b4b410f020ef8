//! `loamfs bench requests`.

use std::path::PathBuf;

use clap::Args;

use super::{loamfs, need_root, print};
use crate::lab::Tools;
use crate::{Error, cleanup, requests, table};

/// Count what the kernel asks a mount for each operation on a small file, by kind, for root, for the owner of the directory,
/// and for a guest in a directory of somebody else's (root).
#[derive(Debug, Args)]
pub struct RequestsArgs {
    /// Files of each kind of work.
    #[arg(long, default_value_t = 100)]
    files: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Directory for the image and the mount point, which others can enter.
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// The loamfs program. Default: that of this program's version.
    #[arg(long, value_name = "FILE")]
    loamfs: Option<PathBuf>,
    /// Mount options.
    #[arg(short, long)]
    options: Option<String>,
}

impl RequestsArgs {
    /// Counts, and tells.
    pub fn run(self) -> Result<(), Error> {
        need_root()?;
        cleanup::on_signals()?;
        let tools = Tools {
            work: std::path::absolute(&self.work).map_err(Error::at("finding", &self.work))?,
            loamfs: self.loamfs.map_or_else(loamfs, Ok)?,
            options: self.options,
            traces: None,
            device: None,
        };
        let rows = requests::measure(&tools, self.files)?;
        if self.json {
            return print(&(serde_json::to_string_pretty(&rows).unwrap_or_default() + "\n"));
        }
        let head = ["operation", "who", "a file", "of them"].map(str::to_owned);
        let cells = rows.iter().map(requests::Row::cells);
        let cells: Vec<_> = std::iter::once(head.to_vec()).chain(cells).collect();
        print(&table::columns(&cells, 4))
    }
}
