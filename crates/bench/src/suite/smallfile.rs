//! LFS, Fig. 3: files of 1 KB, then a tenth as many of 10 KB, are made, read and deleted, in one order.

use std::fs;

use super::stage::{End, Stage};
use crate::Error;
use crate::workload::{Content, read_whole, write_new};

/// `count` files of 1 KB, and a tenth of 10 KB.
pub fn run(stage: &mut Stage<'_>, count: u64) -> Result<(), Error> {
    for (count, bytes, label) in [(count, 1_024, "1k"), (count / 10, 10_240, "10k")] {
        let directory = stage.root().join(label);
        let path = |number: u64| directory.join(format!("file{number:06}"));
        stage.phase(&format!("create-{label}"), End::Remount, |_, beat| {
            fs::create_dir(&directory).map_err(Error::at("making", &directory))?;
            let mut content = Content::new(bytes);
            for number in 0..count {
                write_new(&path(number), content.of(number, bytes))?;
                beat.tick()?;
            }
            Ok(())
        })?;
        stage.phase(&format!("read-{label}"), End::Remount, |_, beat| {
            for number in 0..count {
                read_whole(&path(number))?;
                beat.add(1);
            }
            Ok(())
        })?;
        stage.phase(&format!("delete-{label}"), End::Remount, |_, beat| {
            for number in 0..count {
                let path = path(number);
                fs::remove_file(&path).map_err(Error::at("removing", &path))?;
                beat.tick()?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
