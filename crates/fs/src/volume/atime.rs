//! When inodes were read.

use super::{Durability, Sealer, Volume};
use loamfs_format::{Ino, InodeBlockNo};

impl Volume {
    /// Notes that somebody read an inode just now: a file's content, a directory's entries, a link's target. It costs
    /// the device nothing and cannot fail: a time that finds no room in memory, or later on the volume, is dropped. Returns
    /// whether the inode's access time is another now.
    pub fn accessed(&self, ino: Ino) -> bool {
        self.core().atime_file().accessed(ino)
    }
}

impl Sealer<'_> {
    /// Has the next segments take along the access times that wait. Nobody waits for them, so that
    /// what fails here is whoever commits next to find.
    pub(super) fn keep_atimes(&self) {
        let mut from = Some(InodeBlockNo(0));
        while let Some(at) = from {
            let kept = self
                .step(|core| core.atime_file().keep(at))
                .and_then(|next| {
                    if next.is_some() {
                        self.commit_shown(false, Durability::Written)?;
                    }
                    Ok(next)
                });
            from = kept.unwrap_or_else(|error| {
                tracing::warn!(%error, "access times are not kept");
                None
            });
        }
    }
}
