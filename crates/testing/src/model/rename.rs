//! Renaming: the operation with the most rules.

use loamfs_format::inode::mode;

use super::objects::check_name;
use super::{Answer, Body, Id, Model, New, Objects, Refusal};
use crate::errno::{EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY};

/// What a whiteout is beside a character device.
pub const WHITEOUT: New = New {
    permissions: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
};

/// How to rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rename {
    /// Replace what has the new name.
    #[default]
    Replace,
    /// Fail when something has the new name.
    NoReplace,
    /// Swap the two names.
    Exchange,
    /// Replace, and leave a whiteout where the old name was, which is this object.
    Whiteout(Id),
}

impl Objects {
    /// The refusal of NOREPLACE, beside which a directory may also be moving into itself.
    fn taken(&self, source: Id, new_dir: Id) -> Refusal {
        let both = self.is_within(new_dir, source);
        Refusal {
            errno: EEXIST,
            also: if both { &[EINVAL] } else { &[] },
        }
    }

    /// The refusal of EXCHANGE with a name that leads nowhere.
    fn missing(&self, source: Id, new_dir: Id) -> Refusal {
        let both = self.is_within(new_dir, source);
        Refusal {
            errno: ENOENT,
            also: if both { &[EINVAL] } else { &[] },
        }
    }

    fn check_replace(&self, dir: Id, source: Id, target: Id) -> Answer<()> {
        let from_dir = self.object(source)?.is_dir();
        let Some(entries) = self.object(target)?.entries() else {
            return if from_dir {
                Err(ENOTDIR.into())
            } else {
                Ok(())
            };
        };
        // A directory above its source is never empty, whatever moves there; the
        // kernel says so first.
        if !from_dir {
            let above = self.is_within(dir, target);
            return Err(Refusal {
                errno: if above { ENOTEMPTY } else { EISDIR },
                also: if above { &[EISDIR, EINVAL] } else { &[] },
            });
        }
        if !entries.is_empty() {
            return Err(ENOTEMPTY.into());
        }
        Ok(())
    }
}

impl Model {
    /// Moves a name.
    pub fn rename(
        &mut self,
        dir: Id,
        name: &[u8],
        new_dir: Id,
        new_name: &[u8],
        how: Rename,
    ) -> Answer<()> {
        let source = self.lookup(dir, name)?;
        self.dir(new_dir)?;
        check_name(new_name)?;
        let target = self.lookup(new_dir, new_name).ok();
        match (how, target) {
            (Rename::NoReplace, Some(_)) => return Err(self.taken(source, new_dir)),
            (Rename::Exchange, None) => return Err(self.missing(source, new_dir)),
            _ => {}
        }
        if target == Some(source) {
            // Two names of one object: both stay.
            return Ok(());
        }
        if self.is_within(new_dir, source) {
            return Err(Refusal {
                errno: EINVAL,
                also: &[ENOTEMPTY],
            });
        }
        match target {
            Some(target) if how == Rename::Exchange => {
                return self.exchange((dir, name, source), (new_dir, new_name, target));
            }
            Some(target) => {
                self.check_replace(dir, source, target)?;
                self.dir_mut(new_dir)?.remove(new_name);
                if self.object(target)?.is_dir() {
                    self.drop_empty_dir(new_dir, target)?;
                } else {
                    self.drop_name(target)?;
                }
            }
            None => {}
        }
        self.move_name(dir, name, new_dir, new_name, source)?;
        match how {
            Rename::Whiteout(id) => self.mknod(dir, name, id, mode::CHARACTER, &WHITEOUT),
            _ => Ok(()),
        }
    }

    fn move_name(
        &mut self,
        dir: Id,
        name: &[u8],
        new_dir: Id,
        new_name: &[u8],
        id: Id,
    ) -> Answer<()> {
        self.dir_mut(dir)?.remove(name);
        self.dir_mut(new_dir)?.insert(new_name.to_vec(), id);
        self.moved(id, dir, new_dir)
    }

    fn exchange(&mut self, one: (Id, &[u8], Id), two: (Id, &[u8], Id)) -> Answer<()> {
        if self.is_within(one.0, two.2) {
            return Err(Refusal {
                errno: EINVAL,
                also: &[ENOTEMPTY],
            });
        }
        self.dir_mut(one.0)?.insert(one.1.to_vec(), two.2);
        self.dir_mut(two.0)?.insert(two.1.to_vec(), one.2);
        self.moved(one.2, one.0, two.0)?;
        self.moved(two.2, two.0, one.0)
    }

    /// A directory takes its `..` along.
    fn moved(&mut self, id: Id, from: Id, to: Id) -> Answer<()> {
        if let Body::Dir { parent, .. } = &mut self.object_mut(id)?.body {
            *parent = to;
            self.object_mut(from)?.nlink -= 1;
            self.object_mut(to)?.nlink += 1;
        }
        Ok(())
    }
}
