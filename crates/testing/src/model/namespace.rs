//! Names: making, linking and removing what they lead to.

use std::collections::BTreeMap;
use std::sync::Arc;

use loamfs_format::inode::mode;

use super::{Answer, Body, Id, Model, New, Refusal};
use crate::content::Content;
use crate::errno::{EEXIST, EISDIR, ENAMETOOLONG, ENOTEMPTY, EPERM};

/// Longest target of a symbolic link.
const TARGET_MAX: usize = 4095;

impl Model {
    fn make(
        &mut self,
        dir: Id,
        name: &[u8],
        id: Id,
        new: &New,
        file_type: u32,
        body: Body,
    ) -> Answer<()> {
        self.check_free(dir, name)?;
        let object = self.born(dir, new, file_type, body)?;
        if object.is_dir() {
            self.object_mut(dir)?.nlink += 1;
        }
        self.dir_mut(dir)?.insert(name.to_vec(), id);
        self.objects.0.insert(id, Arc::new(object));
        Ok(())
    }

    /// Makes an empty file without a name, held open once.
    pub fn create_unnamed(&mut self, dir: Id, id: Id, new: &New) -> Answer<()> {
        self.dir(dir)?;
        let body = Body::File(Content::default());
        let mut object = self.born(dir, new, mode::REGULAR, body)?;
        object.nlink = 0;
        self.objects.0.insert(id, Arc::new(object));
        self.unnamed.insert(id);
        self.open(id)
    }

    /// Makes an empty file.
    pub fn create(&mut self, dir: Id, name: &[u8], id: Id, new: &New) -> Answer<()> {
        let new = New { rdev: 0, ..*new };
        let body = Body::File(Content::default());
        self.make(dir, name, id, &new, mode::REGULAR, body)
    }

    /// Makes an empty directory.
    pub fn mkdir(&mut self, dir: Id, name: &[u8], id: Id, new: &New) -> Answer<()> {
        let new = New { rdev: 0, ..*new };
        let body = Body::Dir {
            parent: dir,
            entries: BTreeMap::new(),
        };
        self.make(dir, name, id, &new, mode::DIRECTORY, body)
    }

    /// Makes a special file.
    pub fn mknod(&mut self, dir: Id, name: &[u8], id: Id, file_type: u32, new: &New) -> Answer<()> {
        self.make(dir, name, id, new, file_type, Body::Special)
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &mut self,
        dir: Id,
        name: &[u8],
        id: Id,
        target: &[u8],
        new: &New,
    ) -> Answer<()> {
        if target.len() > TARGET_MAX {
            return Err(ENAMETOOLONG.into());
        }
        let new = New { rdev: 0, ..*new };
        let body = Body::Symlink(target.to_vec());
        self.make(dir, name, id, &new, mode::SYMLINK, body)
    }

    /// Gives an object one more name.
    pub fn link(&mut self, id: Id, dir: Id, name: &[u8]) -> Answer<()> {
        if self.object(id)?.is_dir() {
            return Err(Refusal {
                errno: EPERM,
                also: &[EEXIST, ENAMETOOLONG],
            });
        }
        self.check_free(dir, name)?;
        self.dir_mut(dir)?.insert(name.to_vec(), id);
        self.object_mut(id)?.nlink += 1;
        self.unnamed.remove(&id);
        Ok(())
    }

    /// Takes a name of anything but a directory away.
    pub fn unlink(&mut self, dir: Id, name: &[u8]) -> Answer<()> {
        let id = self.lookup(dir, name)?;
        if self.object(id)?.is_dir() {
            return Err(EISDIR.into());
        }
        self.dir_mut(dir)?.remove(name);
        self.drop_name(id)
    }

    /// Takes an empty directory away.
    pub fn rmdir(&mut self, dir: Id, name: &[u8]) -> Answer<()> {
        let id = self.lookup(dir, name)?;
        if !self.dir(id)?.is_empty() {
            return Err(ENOTEMPTY.into());
        }
        self.dir_mut(dir)?.remove(name);
        self.drop_empty_dir(dir, id)
    }

    pub(super) fn drop_name(&mut self, id: Id) -> Answer<()> {
        self.object_mut(id)?.nlink -= 1;
        self.reap(id);
        Ok(())
    }

    pub(super) fn drop_empty_dir(&mut self, holder: Id, id: Id) -> Answer<()> {
        self.object_mut(holder)?.nlink -= 1;
        self.object_mut(id)?.nlink = 0;
        self.reap(id);
        Ok(())
    }
}
