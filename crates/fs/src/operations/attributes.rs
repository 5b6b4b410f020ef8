//! Changing what stat shows: modes, owners, times and sizes.

use super::resize::Resizing;
use super::{Broken, Change, Claim, NAMES_COST, Operation, Plan};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::permission;
use crate::stat;
use crate::types::{Attr, SetAttr, SetTime};
use crate::xattrs::Put;
use loamfs_format::Ino;
use loamfs_format::inode::mode;

/// Changes attributes.
#[derive(Clone, Copy)]
pub(crate) struct SetAttributes {
    pub ino: Ino,
    pub set: SetAttr,
}

/// [`SetAttributes`], prepared.
pub(crate) struct SettingAttributes {
    ino: Ino,
    set: SetAttr,
    /// The access list that follows the mode.
    list: Option<Put>,
    resizing: Option<Resizing>,
}

impl Operation for SetAttributes {
    type Change = SettingAttributes;

    fn prepare(&self, core: &mut Core) -> Result<Plan<SettingAttributes>, Stop> {
        let (ino, set) = (self.ino, self.set);
        core.visible(ino)?;
        permission::may_set(core.flags(ino)?, &set)?;
        core.prepare_dirty(ino)?;
        let list = match set.mode {
            Some(bits) => core.attributes().prepare_chmod(ino, bits)?,
            None => None,
        };
        let node = core.node(ino)?;
        let (size, is_dir) = (node.inode().size, node.inode().is_dir());
        // A large file may have space behind its end, which goes.
        let large = node.is_large();
        let resizing = match set.size {
            Some(_) if is_dir => return Err(Error::IsDirectory.into()),
            Some(wanted) if wanted != size || wanted == 0 || large => {
                Some(Resizing::prepare(core, ino, wanted)?)
            }
            _ => None,
        };
        Ok(Plan::Change(SettingAttributes {
            ino,
            set,
            list,
            resizing,
        }))
    }
}

impl Change for SettingAttributes {
    type Done = Attr;

    fn claim(&self) -> Claim {
        let cost = NAMES_COST + self.list.as_ref().map_or(0, Put::cost);
        match self.resizing.as_ref().map(Resizing::claim) {
            Some(Claim::Growth { log, data }) => Claim::Growth {
                log: cost + log,
                data,
            },
            // Shrinking gives space back, so it works on a full volume; and so does what comes before a write that has a place.
            _ if self.set.size.is_some() || comes_before_write(&self.set) => {
                Claim::Either { log: cost }
            }
            _ => Claim::Growth { log: cost, data: 0 },
        }
    }

    fn apply(self, core: &mut Core) -> Result<Attr, Broken> {
        let (ino, set) = (self.ino, self.set);
        if let Some(resizing) = self.resizing {
            resizing.apply(core)?;
        }
        let now = core.env.now();
        let time = |t: SetTime| match t {
            SetTime::Now => now,
            SetTime::At(t) => t,
        };
        if let Some(list) = self.list {
            list.apply(core, ino)?;
        }
        let i = core.inodes.prepared(ino)?.inode_mut();
        if let Some(bits) = set.mode {
            i.mode = i.mode & mode::TYPE | bits & permission::BITS;
        }
        if set.drop_privileges && i.file_type() != mode::DIRECTORY {
            i.mode = permission::without_privileges(i.mode);
        }
        i.uid = set.uid.unwrap_or(i.uid);
        i.gid = set.gid.unwrap_or(i.gid);
        i.atime = set.atime.map_or(i.atime, time);
        // A size that is set is a change of the content, even to what it was.
        let changed = set.size.map_or(i.mtime, |_| now);
        i.mtime = set.mtime.map_or(changed, time);
        i.ctime = set.ctime.unwrap_or(now);
        core.touch(ino)?;
        Ok(stat::attr(core, ino)?)
    }
}

/// Whether nothing is set, but that privileges may go: so a write is announced.
fn comes_before_write(set: &SetAttr) -> bool {
    let nothing = SetAttr {
        drop_privileges: set.drop_privileges,
        ..SetAttr::default()
    };
    *set == nothing
}

/// Takes set-user-id and the like away where they are set, and says whether they were.
pub(crate) struct DropPrivileges {
    pub ino: Ino,
}

/// [`DropPrivileges`], prepared.
pub(crate) struct DroppingPrivileges(SettingAttributes);

impl Operation for DropPrivileges {
    type Change = DroppingPrivileges;

    fn prepare(&self, core: &mut Core) -> Result<Plan<DroppingPrivileges>, Stop> {
        let inode = core.node(self.ino)?.inode();
        if inode.is_dir() || permission::without_privileges(inode.mode) == inode.mode {
            return Ok(Plan::Done(false));
        }
        let set = SetAttr {
            drop_privileges: true,
            ..SetAttr::default()
        };
        let setting = SetAttributes { ino: self.ino, set };
        Ok(match setting.prepare(core)? {
            Plan::Change(change) => Plan::Change(DroppingPrivileges(change)),
            Plan::Done(_) => Plan::Done(false),
        })
    }
}

impl Change for DroppingPrivileges {
    type Done = bool;

    fn claim(&self) -> Claim {
        self.0.claim()
    }

    fn apply(self, core: &mut Core) -> Result<bool, Broken> {
        self.0.apply(core).map(|_| true)
    }
}
