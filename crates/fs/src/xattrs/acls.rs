//! Access lists as attributes of inodes, and the mode that goes with them.

use super::{Attributes, Put};
use crate::blocks::Stop;
use crate::error::{Corrupt, Error};
use crate::flags::flags_of;
use crate::permission::{self, Acl, AclKind, Born, Parent};
use crate::types::{NewInode, XattrMode};
use loamfs_format::Ino;

impl Attributes<'_> {
    /// An inode's access list of a kind, if it has one.
    pub fn acl(&mut self, ino: Ino, kind: AclKind) -> Result<Option<Acl>, Stop> {
        let value = match self.get(ino, kind.name()) {
            Err(Stop::Failed(Error::NoAttribute)) => return Ok(None),
            value => value?,
        };
        Ok(Acl::decode(&value).map_err(|_| Corrupt::Xattr { ino })?)
    }

    /// The access list as it is after a chmod to these bits, ready to be set; none if there is none.
    pub fn prepare_chmod(&mut self, ino: Ino, bits: u32) -> Result<Option<Put>, Stop> {
        let Some(acl) = self.acl(ino, AclKind::Access)? else {
            return Ok(None);
        };
        let (name, acl) = (AclKind::Access.name(), acl.with_mode(bits));
        let put = self.prepare_put(ino, name, acl.encode(), XattrMode::Any)?;
        Ok(Some(put))
    }

    /// What an inode starts with that is made in a directory, and its access lists, ready to be set.
    pub fn prepare_birth(
        &mut self,
        dir: Ino,
        file_type: u32,
        new: &NewInode,
    ) -> Result<(Born, Vec<Put>), Stop> {
        let default = self.acl(dir, AclKind::Default)?;
        let inode = self.loader.again().directory(dir)?.0.inode();
        let parent = Parent {
            mode: inode.mode,
            gid: inode.gid,
            flags: flags_of(inode),
            default,
        };
        let asked = file_type | new.mode & permission::BITS;
        let born = permission::born(parent, asked, new.umask, new.gid);
        let lists = [
            (AclKind::Access, &born.access),
            (AclKind::Default, &born.default),
        ];
        let (mut keys, mut puts) = (Vec::new(), Vec::new());
        for (kind, acl) in lists {
            if let Some(acl) = acl {
                let (key, put) = self.prepare_new(kind.name(), acl.encode(), &keys)?;
                keys.push(key);
                puts.push(put);
            }
        }
        Ok((born, puts))
    }
}
