//! The objects of a file system: what each is, and what the names in directories lead to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use loamfs_format::inode::mode;

use super::{Answer, Body, Id, NAME_MAX, New, Object, ROOT, Refusal};
use crate::errno::{EEXIST, ENAMETOOLONG, ENOENT, ENOTDIR, ESTALE};
use crate::subject::{PLACEMENT, TIER};

/// The set-group-id bit, which a directory hands down.
const SETGID: u32 = 0o2000;

/// Objects by their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects(pub(super) BTreeMap<Id, Arc<Object>>);

impl Objects {
    /// An object.
    pub fn get(&self, id: Id) -> Option<&Arc<Object>> {
        self.0.get(&id)
    }

    /// A path to the object for messages, or its id when it has none.
    pub fn path(&self, id: Id) -> String {
        if id == ROOT {
            return "/".to_owned();
        }
        let holder = self.0.iter().find_map(|(&dir, object)| {
            let mut entries = object.entries()?.iter();
            entries.find_map(|(name, &child)| (child == id).then_some((dir, name)))
        });
        match holder {
            None => format!("<object {id}>"),
            Some((dir, name)) => {
                let name = String::from_utf8_lossy(name);
                let parent = self.path(dir);
                format!("{}/{name}", parent.trim_end_matches('/'))
            }
        }
    }

    /// Files and directories that a name leads to, the root included.
    pub fn reachable(&self) -> BTreeSet<Id> {
        let mut found = BTreeSet::from([ROOT]);
        let mut next = vec![ROOT];
        while let Some(dir) = next.pop() {
            let entries = self.get(dir).and_then(|object| object.entries());
            for &child in entries.into_iter().flat_map(BTreeMap::values) {
                if found.insert(child) {
                    next.push(child);
                }
            }
        }
        found
    }

    pub(super) fn object(&self, id: Id) -> Answer<&Object> {
        let found = self.0.get(&id).map(Arc::as_ref);
        found.ok_or(Refusal {
            errno: ENOENT,
            also: &[ESTALE],
        })
    }

    pub(super) fn object_mut(&mut self, id: Id) -> Answer<&mut Object> {
        let found = self.0.get_mut(&id).map(Arc::make_mut);
        found.ok_or(Refusal {
            errno: ENOENT,
            also: &[ESTALE],
        })
    }

    /// The entries of a directory.
    pub(super) fn dir(&self, dir: Id) -> Answer<&BTreeMap<Vec<u8>, Id>> {
        Ok(self.object(dir)?.entries().ok_or(ENOTDIR)?)
    }

    pub(super) fn dir_mut(&mut self, dir: Id) -> Answer<&mut BTreeMap<Vec<u8>, Id>> {
        let object = self.object_mut(dir)?;
        object.mtime = None;
        match &mut object.body {
            Body::Dir { entries, .. } => Ok(entries),
            _ => Err(ENOTDIR.into()),
        }
    }

    /// What a name leads to.
    pub fn lookup(&self, dir: Id, name: &[u8]) -> Answer<Id> {
        let entries = self.dir(dir)?;
        check_name(name)?;
        Ok(*entries.get(name).ok_or(ENOENT)?)
    }

    /// Whether a new entry of this name may be made.
    pub(super) fn check_free(&self, dir: Id, name: &[u8]) -> Answer<()> {
        match self.lookup(dir, name) {
            Ok(_) => Err(EEXIST.into()),
            Err(refusal) if refusal.errno == ENOENT => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Whether `dir` is `ancestor` or lies below it.
    pub(super) fn is_within(&self, dir: Id, ancestor: Id) -> bool {
        let mut at = dir;
        loop {
            if at == ancestor {
                return true;
            }
            match self.get(at).map(|object| &object.body) {
                Some(Body::Dir { parent, .. }) if at != ROOT => at = *parent,
                _ => return false,
            }
        }
    }

    /// A new object as a directory makes it.
    pub(super) fn born(&self, dir: Id, new: &New, file_type: u32, body: Body) -> Answer<Object> {
        let holder = self.object(dir)?;
        let handed_down = holder.permissions & SETGID;
        let gid = if handed_down != 0 {
            holder.gid
        } else {
            new.gid
        };
        let is_dir = file_type == mode::DIRECTORY;
        let said = [PLACEMENT, TIER].into_iter().filter(|_| is_dir);
        let said = said.filter_map(|name| holder.xattrs.get_key_value(name));
        let said = said.map(|(name, word)| (name.clone(), Arc::clone(word)));
        Ok(Object {
            file_type,
            permissions: new.permissions | if is_dir { handed_down } else { 0 },
            uid: new.uid,
            gid,
            rdev: new.rdev,
            nlink: if is_dir { 2 } else { 1 },
            mtime: None,
            xattrs: said.collect(),
            body,
        })
    }
}

pub(super) fn check_name(name: &[u8]) -> Answer<()> {
    if name.len() > NAME_MAX {
        return Err(ENAMETOOLONG.into());
    }
    Ok(())
}
