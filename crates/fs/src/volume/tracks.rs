//! Settling a directory's small files into tracks.

use super::Durability;
use super::commit::all_written;
use super::upkeep::Upkeep;
use crate::error::Error;
use crate::tracks::form::{FormTrack, Loose};
use loamfs_format::Ino;
use loamfs_format::superblock::INCOMPATIBLE_TRACKS;

impl Upkeep<'_> {
    /// Settles the small files of a directory into tracks, as far as there is room for it, and makes that durable. Whoever
    /// reads such a file then needs one request for its attributes and its data.
    ///
    /// # Errors
    /// [`Error`]; tracks that were written before count.
    pub fn settle_directory(&self, dir: Ino) -> Result<(), Error> {
        self.engine().announce(INCOMPATIBLE_TRACKS)?;
        let settled = self.loosen(dir).and_then(|()| self.form(dir));
        match settled {
            // What is left stays where it is.
            Ok(()) | Err(Error::NoSpace) => {}
            Err(error) => return Err(error),
        }
        all_written(self.engine().write_out(Durability::Durable)?)
    }

    /// Takes tracks apart that lack files of theirs.
    fn loosen(&self, dir: Ino) -> Result<(), Error> {
        let mut from = Some(0);
        while let Some(key) = from {
            let Loose { track, next } = self.engine().run(|core| core.track_to_loosen(dir, key))?;
            if let Some(track) = track {
                while self.engine().run(|core| core.perform(&track))? {}
            }
            from = next;
        }
        Ok(())
    }

    /// Forms tracks where there are none. What was just written is cold once it is in the log.
    fn form(&self, dir: Ino) -> Result<(), Error> {
        all_written(self.engine().write_out(Durability::Written)?)?;
        let mut from = Some(0);
        while let Some(key) = from {
            let step = FormTrack { dir, from: key };
            from = self.engine().run(|core| core.perform(&step))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
