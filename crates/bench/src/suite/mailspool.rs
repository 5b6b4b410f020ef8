//! A mail server's spool: every message is safe before it is acknowledged. A delivery writes a file into a mailbox's
//! `tmp`, syncs it, moves it to `new` and syncs that directory; a third of the time somebody then fetches the oldest
//! message and deletes it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::files::Files;
use super::random::{below, generator};
use super::stage::{End, Stage};
use crate::Error;
use crate::workload::Content;

const MAILBOXES: u64 = 50;
/// Least and most bytes of a message.
const BYTES: (u64, u64) = (1 << 10, 16 << 10);

/// `deliveries` deliveries.
pub fn run(stage: &mut Stage, deliveries: u64, seed: u64) -> Result<(), Error> {
    let mut random = generator(seed, "mailspool");
    let mailbox = |number: u64| PathBuf::from(format!("box{number:02}"));
    stage.phase("setup-mailboxes", End::Remount, |files, _| {
        for number in 0..MAILBOXES {
            for part in ["tmp", "new"] {
                files.make_directories(&mailbox(number).join(part))?;
            }
        }
        Ok(())
    })?;
    stage.phase("deliver", End::Remount, |files, beat| {
        let mut content = Content::new(BYTES.1 as usize);
        let mut waiting: VecDeque<PathBuf> = VecDeque::new();
        for number in 0..deliveries {
            let size = BYTES.0 + below(&mut random, BYTES.1 - BYTES.0);
            let mailbox = mailbox(below(&mut random, MAILBOXES));
            let message = content.of(number, size as usize);
            waiting.push_back(deliver(files, &mailbox, number, message)?);
            // Every sync here is the workload's own.
            beat.add(1);
            if below(&mut random, 3) == 0
                && let Some(path) = waiting.pop_front()
            {
                files.read_whole(&path)?;
                files.remove_file(&path)?;
            }
        }
        Ok(())
    })
}

fn deliver(
    files: &dyn Files,
    mailbox: &Path,
    number: u64,
    message: &[u8],
) -> Result<PathBuf, Error> {
    let (written, kept) = (
        mailbox.join(format!("tmp/{number}")),
        mailbox.join(format!("new/{number}")),
    );
    let file = files.create(&written, message)?;
    file.sync()?;
    files.rename(&written, &kept)?;
    files.sync_directory(&mailbox.join("new"))?;
    Ok(kept)
}
