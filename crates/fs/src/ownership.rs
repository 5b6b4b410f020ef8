//! A volume on which everything belongs to one user or group, whatever is stored.

use crate::error::Error;
use crate::types::{Attr, SetAttr};
use loamfs_format::inode::Inode;

/// The only user and group that a volume knows, where it is opened so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// The user; without one, users are as stored.
    pub uid: Option<u32>,
    /// The group; without one, groups are as stored.
    pub gid: Option<u32>,
}

impl Ownership {
    /// Attributes as they are shown.
    pub(crate) fn shown(self, attr: Attr) -> Attr {
        Attr {
            uid: self.uid.unwrap_or(attr.uid),
            gid: self.gid.unwrap_or(attr.gid),
            ..attr
        }
    }

    /// A new inode as it is stored.
    pub(crate) fn stored(self, inode: Inode) -> Inode {
        Inode {
            uid: self.uid.unwrap_or(inode.uid),
            gid: self.gid.unwrap_or(inode.gid),
            ..inode
        }
    }

    /// What is left to change of an inode's attributes.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] when it is to be given away.
    pub(crate) fn kept(self, set: &SetAttr) -> Result<SetAttr, Error> {
        let part = |own: Option<u32>, wanted: Option<u32>| match (own, wanted) {
            (Some(own), Some(wanted)) if own != wanted => Err(Error::NotPermitted),
            (Some(_), _) => Ok(None),
            (None, wanted) => Ok(wanted),
        };
        Ok(SetAttr {
            uid: part(self.uid, set.uid)?,
            gid: part(self.gid, set.gid)?,
            ..*set
        })
    }
}
