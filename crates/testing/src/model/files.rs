//! Content and attributes of what exists.

use loamfs_format::inode::Timestamp;

use super::{Answer, Body, Id, Model, Objects};
use crate::content::Content;
use crate::errno::{EFBIG, EINVAL, EISDIR};

/// No file reaches further.
const SIZE_MAX: u64 = i64::MAX as u64;

impl Objects {
    fn content(&self, id: Id) -> Answer<&Content> {
        match &self.object(id)?.body {
            Body::File(content) => Ok(content),
            Body::Dir { .. } => Err(EISDIR.into()),
            _ => Err(EINVAL.into()),
        }
    }

    fn content_mut(&mut self, id: Id) -> Answer<&mut Content> {
        self.content(id)?;
        let object = self.object_mut(id)?;
        object.mtime = None;
        match &mut object.body {
            Body::File(content) => Ok(content),
            _ => Err(EINVAL.into()),
        }
    }

    /// Reads a range of a file.
    pub fn read(&self, id: Id, offset: u64, len: usize) -> Answer<Vec<u8>> {
        Ok(self.content(id)?.read(offset, len))
    }

    /// Writes to a file.
    pub fn write(&mut self, id: Id, offset: u64, data: &[u8]) -> Answer<()> {
        self.content(id)?;
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > SIZE_MAX) {
            return Err(EFBIG.into());
        }
        if !data.is_empty() {
            self.content_mut(id)?.write(offset, data);
        }
        Ok(())
    }

    /// Cuts or extends a file.
    pub fn truncate(&mut self, id: Id, size: u64) -> Answer<()> {
        self.content_mut(id)?.truncate(size);
        Ok(())
    }

    /// Frees a range.
    pub fn punch(&mut self, id: Id, offset: u64, len: u64) -> Answer<()> {
        self.range_end(id, offset, len)?;
        self.content_mut(id)?.clear(offset, len);
        Ok(())
    }

    /// Fills the holes of a range, which shows in the size alone.
    pub fn allocate(&mut self, id: Id, offset: u64, len: u64, grow: bool) -> Answer<()> {
        let end = self.range_end(id, offset, len)?;
        let content = self.content_mut(id)?;
        if grow && end > content.size() {
            content.truncate(end);
        }
        Ok(())
    }

    /// Makes a range zeros that have space.
    pub fn zero(&mut self, id: Id, offset: u64, len: u64, grow: bool) -> Answer<()> {
        self.punch(id, offset, len)?;
        self.allocate(id, offset, len, grow)
    }

    fn range_end(&self, id: Id, offset: u64, len: u64) -> Answer<u64> {
        self.content(id)?;
        if len == 0 {
            return Err(EINVAL.into());
        }
        let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX);
        Ok(end.ok_or(EFBIG)?)
    }

    /// Copies a range, as far as the source goes.
    pub fn copy(&mut self, from: (Id, u64), to: (Id, u64), len: u64) -> Answer<u64> {
        self.content(to.0)?;
        let data = self.content(from.0)?.read(from.1, len as usize);
        if from.0 == to.0 && from.1.abs_diff(to.1) < len {
            return Err(EINVAL.into());
        }
        self.write(to.0, to.1, &data)?;
        Ok(data.len() as u64)
    }

    /// Changes permissions.
    pub fn chmod(&mut self, id: Id, permissions: u32) -> Answer<()> {
        self.object_mut(id)?.permissions = permissions;
        Ok(())
    }

    /// Changes the owner and the group.
    pub fn chown(&mut self, id: Id, uid: u32, gid: u32) -> Answer<()> {
        let object = self.object_mut(id)?;
        (object.uid, object.gid) = (uid, gid);
        Ok(())
    }

    /// Sets the time of the last change.
    pub fn set_mtime(&mut self, id: Id, mtime: Timestamp) -> Answer<()> {
        self.object_mut(id)?.mtime = Some(mtime);
        Ok(())
    }

    /// Forgets the time of the last change, after a change behind the model's back.
    pub fn forget_mtime(&mut self, id: Id) {
        if let Ok(object) = self.object_mut(id) {
            object.mtime = None;
        }
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, id: Id) -> Answer<Vec<u8>> {
        match &self.object(id)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(EINVAL.into()),
        }
    }
}

impl Model {
    /// Holds a file, so that it outlives its names.
    pub fn open(&mut self, id: Id) -> Answer<()> {
        self.object(id)?;
        *self.opens.entry(id).or_default() += 1;
        Ok(())
    }

    /// Lets go of a file.
    pub fn release(&mut self, id: Id) -> Answer<()> {
        let left = self.opens.get_mut(&id).ok_or(EINVAL)?;
        *left -= 1;
        if *left == 0 {
            self.opens.remove(&id);
            self.reap(id);
        }
        Ok(())
    }
}
