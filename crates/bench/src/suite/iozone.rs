//! IOzone's write, rewrite and read of a file, by its size (hybridFS, Figs 4 to 6).

use std::path::{Path, PathBuf};

use super::files::{Access, Files, OpenFile};
use super::stage::{End, Stage};
use crate::Error;
use crate::workload::Content;

/// Bytes of the smallest file, and of what is read and written at once.
const RECORD: usize = 64 << 10;

/// The sizes of files up to so many MiB: the smallest, and each twice the one before.
pub(crate) fn sizes(megabytes: u64) -> impl Iterator<Item = u64> {
    let sizes = std::iter::successors(Some(RECORD as u64), |bytes| bytes.checked_mul(2));
    sizes.take_while(move |bytes| *bytes <= megabytes << 20)
}

/// The name of a size.
fn named(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{}K", bytes >> 10),
        megabytes => format!("{megabytes}M"),
    }
}

/// The bytes of the files of a phase.
pub(crate) fn bytes_of(phase: &str) -> Option<u64> {
    let (_, size) = phase.rsplit_once('-')?;
    let (number, unit) = size.split_at_checked(size.len().checked_sub(1)?)?;
    let shift = match unit {
        "K" => 10,
        "M" => 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_shl(shift)
}

/// A file of each size is written, written over and read, each synced; what is read was dropped from all caches before. At last what
/// is owed to slower devices goes there.
pub(super) fn run(stage: &mut Stage, megabytes: u64) -> Result<(), Error> {
    let mut content = Content::new(RECORD);
    for bytes in sizes(megabytes) {
        let name = named(bytes);
        let path = PathBuf::from(format!("iozone-{name}"));
        stage.phase(&format!("write-{name}"), End::Sync, |files, _| {
            let file = files.create(&path, &[])?;
            write(&*file, &mut content, 0, bytes)
        })?;
        stage.phase(&format!("rewrite-{name}"), End::Sync, |files, _| {
            let file = files.open(&path, Access::Write)?;
            write(&*file, &mut content, 1, bytes)
        })?;
        stage.parted_phase(&format!("read-{name}"), [()], |(), files, _| {
            read(files, &path, bytes)
        })?;
    }
    stage.settle_phase()
}

fn write(file: &dyn OpenFile, content: &mut Content, salt: u64, bytes: u64) -> Result<(), Error> {
    for number in 0..bytes / RECORD as u64 {
        let record = content.of(number ^ salt << 40, RECORD);
        file.write_at(record, number * RECORD as u64)?;
    }
    Ok(())
}

fn read(files: &dyn Files, path: &Path, bytes: u64) -> Result<(), Error> {
    let file = files.open(path, Access::InOrder)?;
    let mut buffer = vec![0; RECORD];
    for number in 0..bytes / RECORD as u64 {
        file.read_at(&mut buffer, number * RECORD as u64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_tell_the_bytes_of_their_files() {
        let all: Vec<u64> = sizes(4).collect();
        assert_eq!(all, [6, 7, 8, 9, 10, 11, 12].map(|shift| 1024 << shift));
        for bytes in all {
            assert_eq!(bytes_of(&format!("rewrite-{}", named(bytes))), Some(bytes));
        }
        assert_eq!(bytes_of("settle"), None);
        assert_eq!(bytes_of("write-x"), None);
    }
}
