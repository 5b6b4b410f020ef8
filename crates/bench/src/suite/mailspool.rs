//! A mail server's spool: every message is safe before it is acknowledged. A delivery writes a file into a mailbox's
//! `tmp`, syncs it, moves it to `new` and syncs that directory; a third of the time somebody then fetches the oldest
//! message and deletes it.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::random::{below, generator};
use super::stage::{End, Stage};
use crate::Error;
use crate::workload::{Content, read_whole, write_new};

const MAILBOXES: u64 = 50;
/// Least and most bytes of a message.
const BYTES: (u64, u64) = (1 << 10, 16 << 10);

/// `deliveries` deliveries.
pub fn run(stage: &mut Stage<'_>, deliveries: u64, seed: u64) -> Result<(), Error> {
    let mut random = generator(seed, "mailspool");
    let mailbox = |root: &Path, number: u64| root.join(format!("box{number:02}"));
    stage.phase("setup-mailboxes", End::Remount, |root, _| {
        for number in 0..MAILBOXES {
            for part in ["tmp", "new"] {
                let path = mailbox(root, number).join(part);
                fs::create_dir_all(&path).map_err(Error::at("making", &path))?;
            }
        }
        Ok(())
    })?;
    stage.phase("deliver", End::Remount, |root, beat| {
        let mut content = Content::new(BYTES.1 as usize);
        let mut waiting: VecDeque<PathBuf> = VecDeque::new();
        for number in 0..deliveries {
            let size = BYTES.0 + below(&mut random, BYTES.1 - BYTES.0);
            let mailbox = mailbox(root, below(&mut random, MAILBOXES));
            let message = content.of(number, size as usize);
            waiting.push_back(deliver(&mailbox, number, message)?);
            // Every sync here is the workload's own.
            beat.add(1);
            if below(&mut random, 3) == 0
                && let Some(path) = waiting.pop_front()
            {
                read_whole(&path)?;
                fs::remove_file(&path).map_err(Error::at("removing", &path))?;
            }
        }
        Ok(())
    })
}

fn deliver(mailbox: &Path, number: u64, message: &[u8]) -> Result<PathBuf, Error> {
    let (written, kept) = (
        mailbox.join(format!("tmp/{number}")),
        mailbox.join(format!("new/{number}")),
    );
    let file = write_new(&written, message)?;
    file.sync_all().map_err(Error::at("fsync of", &written))?;
    fs::rename(&written, &kept).map_err(Error::at("moving", &written))?;
    let directory = mailbox.join("new");
    let synced = File::open(&directory).and_then(|directory| directory.sync_all());
    synced.map_err(Error::at("fsync of", &directory))?;
    Ok(kept)
}
