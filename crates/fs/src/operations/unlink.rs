//! Taking names away.

use super::{Broken, Change, Claim, Operation, Plan};
use crate::blocks::Stop;
use crate::core::Core;
use crate::dir::Found;
use crate::error::Error;
use crate::namespace::valid_name;
use loamfs_format::Ino;

/// Takes a name away from something that is no directory.
pub(crate) struct Unlink {
    pub dir: Ino,
    pub name: Vec<u8>,
}

/// Removes an empty directory.
pub(crate) struct Rmdir {
    pub dir: Ino,
    pub name: Vec<u8>,
}

/// [`Unlink`] or [`Rmdir`], prepared.
pub(crate) struct Unlinking {
    dir: Ino,
    found: Found,
    is_dir: bool,
}

impl Unlinking {
    /// Looks a name up that may be taken away.
    fn find(core: &mut Core, dir: Ino, name: &[u8]) -> Result<Found, Stop> {
        valid_name(name)?;
        let found = core.find_existing(dir, name)?;
        core.refuse_removal(dir, found.ino)?;
        Ok(found)
    }

    fn prepare(core: &mut Core, dir: Ino, found: Found, is_dir: bool) -> Result<Plan<Self>, Stop> {
        core.prepare_dirty(dir)?;
        core.prepare_dirty(found.ino)?;
        core.prepare_remove_entry(dir, found.key)?;
        Ok(Plan::Change(Unlinking { dir, found, is_dir }))
    }
}

impl Operation for Unlink {
    type Change = Unlinking;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Unlinking>, Stop> {
        let found = Unlinking::find(core, self.dir, &self.name)?;
        if core.node(found.ino)?.inode.is_dir() {
            return Err(Error::IsDirectory.into());
        }
        Unlinking::prepare(core, self.dir, found, false)
    }
}

impl Operation for Rmdir {
    type Change = Unlinking;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Unlinking>, Stop> {
        if self.name == b".." {
            return Err(Error::NotEmpty.into());
        }
        let found = Unlinking::find(core, self.dir, &self.name)?;
        core.prepare_empty(found.ino)?;
        Unlinking::prepare(core, self.dir, found, true)
    }
}

impl Change for Unlinking {
    type Done = ();

    fn claim(&self) -> Claim {
        Claim::Removal
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        let (dir, ino) = (self.dir, self.found.ino);
        let now = core.env.now();
        core.remove_entry(dir, &self.found)?;
        if self.is_dir {
            core.inodes.add_links(dir, -1)?;
        }
        core.changed_names(dir, now)?;
        if self.is_dir {
            core.drop_directory(ino, now)?;
        } else {
            core.drop_link(ino, now)?;
        }
        Ok(())
    }
}
