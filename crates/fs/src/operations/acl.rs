//! Setting access lists.

use super::{Broken, Change, Claim, Operation, Plan};
use crate::blocks::Stop;
use crate::core::Core;
use crate::permission::{self, Acl, AclKind};
use crate::types::XattrMode;
use crate::xattrs::{self, Put, Take};
use loamfs_format::Ino;

/// Sets an access list; an empty one takes it away. The mode follows, and keeps what it can say by itself.
pub(crate) struct SetAcl {
    pub ino: Ino,
    pub kind: AclKind,
    pub value: Vec<u8>,
    /// Takes set-group-id away along with it.
    pub clear_sgid: bool,
}

/// What becomes of the attribute.
enum List {
    Put(Put),
    /// It goes, if there is one.
    Take(Option<Take>),
}

/// [`SetAcl`], prepared.
pub(crate) struct SettingAcl {
    ino: Ino,
    /// What the inode's mode is then.
    mode: u32,
    list: List,
}

impl Operation for SetAcl {
    type Change = SettingAcl;

    fn prepare(&self, core: &mut Core) -> Result<Plan<SettingAcl>, Stop> {
        let (ino, kind) = (self.ino, self.kind);
        permission::may_change(core.flags(ino)?)?;
        let mode = core.node(ino)?.inode().mode;
        let acl = Acl::decode(&self.value)?;
        if acl.is_some() {
            permission::may_have(kind, mode)?;
        }
        let (mode, acl) = match (kind, acl) {
            (AclKind::Access, Some(acl)) => permission::set_access(mode, acl, self.clear_sgid),
            (_, acl) => (mode, acl),
        };
        let list = match acl {
            Some(acl) => List::Put(core.attributes().prepare_put(
                ino,
                kind.name(),
                acl.encode(),
                XattrMode::Any,
            )?),
            None => List::Take(core.attributes().prepare_take(ino, kind.name())?),
        };
        core.prepare_dirty(ino)?;
        Ok(Plan::Change(SettingAcl { ino, mode, list }))
    }
}

impl Change for SettingAcl {
    type Done = ();

    fn claim(&self) -> Claim {
        match &self.list {
            List::Put(put) => Claim::Growth {
                log: put.cost(),
                data: 0,
            },
            List::Take(_) => Claim::Removal,
        }
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        let ino = self.ino;
        match self.list {
            List::Put(put) => put.apply(core, ino)?,
            List::Take(Some(take)) => take.apply(core, ino)?,
            List::Take(None) => {}
        }
        core.inodes.prepared(ino)?.inode_mut().mode = self.mode;
        Ok(xattrs::changed(core, ino)?)
    }
}
