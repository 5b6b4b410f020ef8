//! Operations on extended attributes.

use super::Volume;
use crate::error::Error;
use crate::operations::acl::SetAcl;
use crate::operations::xattr::{RemoveXattr, SetXattr};
use crate::permission::AclKind;
use crate::types::XattrMode;
use loamfs_format::Ino;

/// The extended attributes of an inode.
#[derive(Debug, Clone, Copy)]
pub struct Xattrs<'v> {
    volume: &'v Volume,
    ino: Ino,
}

impl Volume {
    /// Extended attributes of an inode.
    pub fn xattrs(&self, ino: Ino) -> Xattrs<'_> {
        Xattrs { volume: self, ino }
    }
}

impl Xattrs<'_> {
    /// The value of one.
    ///
    /// # Errors
    /// [`Error`].
    pub fn get(&self, name: &[u8]) -> Result<Vec<u8>, Error> {
        self.volume
            .run(|core| core.attributes().get(self.ino, name))
    }

    /// Sets one. The two POSIX access lists are checked, and the mode follows the one of them that says who may
    /// do what; a list that the mode says all of is not kept, and an empty one is removed, whatever `how` says.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Invalid`] for what is no list, [`Error::Denied`] for a default list of what is no directory.
    pub fn set(&self, name: &[u8], value: &[u8], how: XattrMode) -> Result<(), Error> {
        self.set_by(name, value, how, false)
    }

    /// [`Xattrs::set`] by somebody who is not in the inode's group: a list that says who may do what takes
    /// set-group-id away.
    ///
    /// # Errors
    /// Those of [`Xattrs::set`].
    pub fn set_by_stranger(&self, name: &[u8], value: &[u8], how: XattrMode) -> Result<(), Error> {
        self.set_by(name, value, how, true)
    }

    fn set_by(
        &self,
        name: &[u8],
        value: &[u8],
        how: XattrMode,
        is_stranger: bool,
    ) -> Result<(), Error> {
        let ino = self.ino;
        match AclKind::of(name) {
            Some(kind) => self.set_acl(kind, value, is_stranger),
            None => self.volume.perform(&SetXattr {
                ino,
                name: name.to_vec(),
                value: value.to_vec(),
                how,
            }),
        }
    }

    fn set_acl(&self, kind: AclKind, value: &[u8], clear_sgid: bool) -> Result<(), Error> {
        self.volume.perform(&SetAcl {
            ino: self.ino,
            kind,
            value: value.to_vec(),
            clear_sgid,
        })
    }

    /// The names of all of them.
    ///
    /// # Errors
    /// [`Error`].
    pub fn list(&self) -> Result<Vec<Vec<u8>>, Error> {
        self.volume.run(|core| core.attributes().list(self.ino))
    }

    /// Removes one. An access list may be missing.
    ///
    /// # Errors
    /// [`Error`].
    pub fn remove(&self, name: &[u8]) -> Result<(), Error> {
        let ino = self.ino;
        match AclKind::of(name) {
            Some(kind) => self.set_acl(kind, b"", false),
            None => self.volume.perform(&RemoveXattr {
                ino,
                name: name.to_vec(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::fixture::{file, volume};
    use crate::{OpenOptions, XattrMode};

    /// Each leaf that was missing was a scan of all before it, while nobody else had the volume.
    #[test]
    fn leaves_of_attributes_are_asked_for_together() {
        let volume = volume(64 << 20, &OpenOptions::default());
        let ino = file(&volume, b"file");
        for number in 0..2000 {
            let name = format!("user.attribute-{number}");
            let set = volume.xattrs(ino);
            set.set(name.as_bytes(), &[7; 1000], XattrMode::Any)
                .unwrap();
        }
        volume.sync().unwrap();
        volume.upkeep().drop_caches().unwrap();
        let mut scans = 0;
        let list = |core: &mut crate::core::Core| {
            scans += 1;
            core.attributes().list(ino)
        };
        assert_eq!(volume.run(list).unwrap().len(), 2000);
        assert!(scans < 20, "{scans}");
    }
}
