//! Extended attributes.

use std::sync::Arc;

use loamfs_fs::{Placement, Tiering, XattrMode};

use super::{Answer, Id, Objects};
use crate::errno::{EEXIST, ENODATA};
use crate::subject::{PLACEMENT, TIER};

impl Objects {
    /// The value of an attribute.
    pub fn getxattr(&self, id: Id, name: &[u8]) -> Answer<Arc<[u8]>> {
        let found = self.object(id)?.xattrs.get(name);
        Ok(found.ok_or(ENODATA)?.clone())
    }

    /// Sets an attribute.
    pub fn setxattr(&mut self, id: Id, name: &[u8], value: &[u8], how: XattrMode) -> Answer<()> {
        let exists = self.object(id)?.xattrs.contains_key(name);
        match how {
            XattrMode::Create if exists => return Err(EEXIST.into()),
            XattrMode::Replace if !exists => return Err(ENODATA.into()),
            _ => {}
        }
        let xattrs = &mut self.object_mut(id)?.xattrs;
        xattrs.insert(name.to_vec(), value.into());
        Ok(())
    }

    /// Says where small files of a directory go.
    pub fn place(&mut self, dir: Id, placement: Placement) {
        self.say(dir, PLACEMENT, placement.word());
    }

    /// Says on which devices large files of a directory go.
    pub fn carry(&mut self, dir: Id, on: Tiering) {
        self.say(dir, TIER, on.word());
    }

    /// A word that a directory says, unless it is what all say that were not asked.
    fn say(&mut self, dir: Id, name: &[u8], word: &str) {
        if let Ok(object) = self.object_mut(dir) {
            object.xattrs.remove(name);
            if word != "auto" {
                object.xattrs.insert(name.to_vec(), word.as_bytes().into());
            }
        }
    }

    /// Removes an attribute.
    pub fn removexattr(&mut self, id: Id, name: &[u8]) -> Answer<()> {
        self.getxattr(id, name)?;
        self.object_mut(id)?.xattrs.remove(name);
        Ok(())
    }

    /// The names of all attributes.
    pub fn listxattr(&self, id: Id) -> Answer<Vec<Vec<u8>>> {
        Ok(self.object(id)?.xattrs.keys().cloned().collect())
    }
}
