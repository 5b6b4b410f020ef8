//! Taking a track apart: its files stay where they are, as small files.

use crate::blocks::{Missed, Stop};
use crate::core::Core;
use crate::operations::{Broken, Change, Claim, NAMES_COST, Operation, Plan};
use loamfs_format::ifile::INODE_BLOCK_MAX;
use loamfs_format::inode::Body;
use loamfs_format::{FragAddr, Ino};

/// Files that are taken out of a track together: an inode block of each changes.
const DISSOLVED_AT_ONCE: usize = 4;

/// What a step makes at most, in bytes of the log. Nobody else admits it but the mover, which does for all that it moves.
pub(crate) const DISSOLVE_COST: u64 = NAMES_COST + DISSOLVED_AT_ONCE as u64 * INODE_BLOCK_MAX;

/// Takes a few files out of a track that is there; they stay where they are, as small files. Answers whether there are more.
pub(crate) struct Dissolve {
    pub dir: Ino,
    pub low: u64,
    pub at: FragAddr,
}

/// [`Dissolve`], prepared; whether files are left. What it changes is done with before.
pub(crate) struct Dissolving(bool);

impl Operation for Dissolve {
    type Change = Dissolving;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Dissolving>, Stop> {
        let mut tracks = core.tracks_of(self.dir);
        let Some(range) = tracks.track_at(self.low, self.at)? else {
            return Ok(Plan::Done(false));
        };
        let mut files = tracks.files_in(&range)?.into_iter();
        let (mut missed, mut taken) = (Missed::default(), 0);
        while taken < DISSOLVED_AT_ONCE
            && let Some(ino) = files.next()
        {
            let node = missed.note(core.node(ino))?;
            // Others that the table says to be there never leave, which is damage.
            if node.is_none_or(|node| matches!(node.inode().body, Body::Settled(_))) {
                missed.note(core.prepare_dirty(ino))?;
                taken += 1;
            }
        }
        missed.nothing()?;
        let more = files.len() > 0;
        Ok(Plan::Change(Dissolving(more)))
    }
}

impl Change for Dissolving {
    type Done = bool;

    fn claim(&self) -> Claim {
        Claim::Nothing
    }

    fn apply(self, _: &mut Core) -> Result<bool, Broken> {
        Ok(self.0)
    }
}
