//! LFS, Fig. 3: files of 1 KB, then a tenth as many of 10 KB, are made, read and deleted, in one order.

use std::path::Path;

use super::stage::{End, Stage};
use crate::Error;
use crate::workload::Content;

/// `count` files of 1 KB, and a tenth of 10 KB.
pub fn run(stage: &mut Stage, count: u64) -> Result<(), Error> {
    for (count, bytes, label) in [(count, 1_024, "1k"), (count / 10, 10_240, "10k")] {
        let directory = Path::new(label);
        let path = |number: u64| directory.join(format!("file{number:06}"));
        stage.phase(&format!("create-{label}"), End::Remount, |files, beat| {
            files.make_directory(directory)?;
            let mut content = Content::new(bytes);
            for number in 0..count {
                files.create(&path(number), content.of(number, bytes))?;
                beat.tick()?;
            }
            Ok(())
        })?;
        stage.phase(&format!("read-{label}"), End::Remount, |files, beat| {
            for number in 0..count {
                files.read_whole(&path(number))?;
                beat.add(1);
            }
            Ok(())
        })?;
        stage.phase(&format!("delete-{label}"), End::Remount, |files, beat| {
            for number in 0..count {
                files.remove_file(&path(number))?;
                beat.tick()?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
