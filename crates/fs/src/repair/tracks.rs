//! Tracks of which something is wrong. The directory and the inodes have all that they say (rule 14), so they go.

use super::Done;
use crate::blocks::Stop;
use crate::core::Core;
use crate::operations::{Broken, Change, Claim, Operation, Plan};
use loamfs_format::Ino;
use loamfs_format::ifile::block_of;
use loamfs_format::inode::{Body, Table};

/// Gives a settled file an ordinary body, which points to the same data; whatever a table says of it.
#[derive(Clone, Copy)]
pub(super) struct Unsettle {
    pub ino: Ino,
}

/// Takes a directory's table away. Its nodes and the heads of its tracks are nobody's then.
#[derive(Clone, Copy)]
pub(super) struct DropTable {
    pub dir: Ino,
}

/// Brings what changing an inode takes into memory, without asking tables that may lie.
fn prepare(core: &mut Core, ino: Ino) -> Result<(), Stop> {
    core.node(ino)?;
    core.loader().load_block(block_of(ino))
}

impl Operation for Unsettle {
    type Change = Unsettle;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Unsettle>, Stop> {
        prepare(core, self.ino)?;
        match core.node(self.ino)?.inode().body {
            Body::Settled(_) => Ok(Plan::Change(*self)),
            _ => Ok(Plan::Done(Done::No("the file is in no track"))),
        }
    }
}

impl Change for Unsettle {
    type Done = Done;

    fn claim(&self) -> Claim {
        Claim::Removal
    }

    fn apply(self, core: &mut Core) -> Result<Done, Broken> {
        let inode = core.inodes.prepared(self.ino)?.inode_mut();
        inode.body = match inode.body.small() {
            Some(pointer) => Body::Small(pointer),
            None => Body::Empty,
        };
        core.touch(self.ino)?;
        Ok(Done::Yes)
    }
}

impl Operation for DropTable {
    type Change = DropTable;

    fn prepare(&self, core: &mut Core) -> Result<Plan<DropTable>, Stop> {
        prepare(core, self.dir)?;
        core.directory(self.dir)?;
        Ok(Plan::Change(*self))
    }
}

impl Change for DropTable {
    type Done = Done;

    fn claim(&self) -> Claim {
        Claim::Removal
    }

    fn apply(self, core: &mut Core) -> Result<Done, Broken> {
        core.inodes.prepared(self.dir)?.inode_mut().table = Table::None;
        core.touch(self.dir)?;
        Ok(Done::Yes)
    }
}
