//! Where a file system of the kernel has its journal.

use std::ops::Range;
use std::path::Path;
use std::process::Command;

use super::{Kind, run};
use crate::Error;
use crate::trace::SECTOR;

/// The sectors of the journal; none where there is no place for one.
pub fn sectors(kind: Kind, device: &Path) -> Result<Vec<Range<u64>>, Error> {
    match kind {
        Kind::Ext4 | Kind::Ext4Journal | Kind::Ext4Emulated => {
            let ask = |request| run(Command::new("debugfs").args(["-R", request]).arg(device));
            Ok(ext4(
                &ask("show_super_stats -h")?,
                &ask("dump_extents -l <8>")?,
            ))
        }
        Kind::Xfs => {
            let mut command = Command::new("xfs_db");
            command.args([
                "-r",
                "-c",
                "sb 0",
                "-c",
                "print logstart logblocks blocksize",
            ]);
            command
                .args(["-c", "addr logstart", "-c", "daddr"])
                .arg(device);
            Ok(xfs(&run(&mut command)?).into_iter().collect())
        }
        Kind::Loam
        | Kind::Ext2
        | Kind::Btrfs
        | Kind::F2fs
        | Kind::F2fsLarge
        | Kind::Nilfs2
        | Kind::Library
        | Kind::Directory => Ok(Vec::new()),
    }
}

/// From lines such as `Block size:  4096`, and ` 0/ 0   1/  1     0 - 16383  32768 - 49151  16384`.
fn ext4(superblock: &str, extents: &str) -> Vec<Range<u64>> {
    let block = number_after(superblock, "Block size:").unwrap_or(0) / SECTOR;
    let extent = |line: &str| {
        let mut words = line.split_whitespace().rev();
        let length: u64 = words.next()?.parse().ok()?;
        let last: u64 = words.next()?.parse().ok()?;
        let end = last.checked_add(1)?;
        let start = end.checked_sub(length)?;
        Some(start.checked_mul(block)?..end.checked_mul(block)?)
    };
    extents.lines().filter_map(extent).collect()
}

/// From lines such as `logblocks = 16384`, and `current daddr is 2097200`, the log's first sector.
fn xfs(said: &str) -> Option<Range<u64>> {
    let blocks = number_after(said, "logblocks =")?;
    let sectors = blocks.checked_mul(number_after(said, "blocksize =")? / SECTOR)?;
    let start = number_after(said, "current daddr is")?;
    Some(start..start.checked_add(sectors)?)
}

/// The number behind the label that a line begins with.
fn number_after(said: &str, label: &str) -> Option<u64> {
    let mut lines = said.lines();
    let rest = lines.find_map(|line| line.strip_prefix(label))?;
    rest.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_say_where_journals_are() {
        let extents = "Level Entries         Logical        Physical Length Flags\n \
                       1/ 1   1/  2      0 -  32767 262144 - 294911  32768 \n \
                       1/ 1   2/  2  32768 -  65535 295169 - 327936  32768 \n";
        let superblock = "Filesystem UUID:  7\nBlock size:               1024\n";
        assert_eq!(
            ext4(superblock, extents),
            [524_288..589_824, 590_338..655_874]
        );
        let said = "logstart = 262150\nlogblocks = 16384\nblocksize = 4096\n\
                    current daddr is 2097200\n";
        assert_eq!(xfs(said), Some(2_097_200..2_228_272));
        assert_eq!(xfs("nothing"), None);
    }
}
