//! Running operations on names.

use loamfs_format::inode::mode;
use loamfs_fs::{NewInode, RenameFlags};

use super::expect::agree;
use super::{Runner, Step, is_no_space};
use crate::errno::{ENOENT, EOPNOTSUPP};
use crate::model::{Answer, Id, Model, New, Rename, WHITEOUT};
use crate::name::Name;
use crate::ops::{Op, symlink_target};
use crate::problem::{Problem, Verdict};
use crate::subject::Outcome;
use crate::tree::must;

/// What makes an object: the parts that all such operations have.
struct Making {
    dir: Id,
    name: Vec<u8>,
    id: Id,
    file_type: u32,
    target: Vec<u8>,
    new: New,
}

impl Making {
    fn of(op: &Op) -> Option<Self> {
        let new = |permissions, owner, rdev| New {
            permissions,
            uid: owner,
            gid: owner,
            rdev,
        };
        let (dir, name, id, file_type, len, new) = match *op {
            Op::Create {
                dir,
                name,
                id,
                permissions,
                owner,
            } => (dir, name, id, mode::REGULAR, 0, new(permissions, owner, 0)),
            Op::Mkdir {
                dir,
                name,
                id,
                permissions,
                owner,
            } => (
                dir,
                name,
                id,
                mode::DIRECTORY,
                0,
                new(permissions, owner, 0),
            ),
            Op::Mknod {
                dir,
                name,
                id,
                file_type,
                rdev,
            } => (dir, name, id, file_type, 0, new(0o600, 0, rdev)),
            Op::Symlink { dir, name, id, len } => {
                (dir, name, id, mode::SYMLINK, len, new(0o777, 0, 0))
            }
            _ => return None,
        };
        Some(Self {
            dir,
            name: name.bytes(),
            id,
            file_type,
            target: symlink_target(id, len),
            new,
        })
    }

    fn on_model(&self, model: &mut Model) -> Answer<()> {
        let (dir, name, id) = (self.dir, &self.name[..], self.id);
        match self.file_type {
            mode::REGULAR => model.create(dir, name, id, &self.new),
            mode::DIRECTORY => model.mkdir(dir, name, id, &self.new),
            mode::SYMLINK => model.symlink(dir, name, id, &self.target, &self.new),
            other => model.mknod(dir, name, id, other, &self.new),
        }
    }
}

/// What a new object is, as a volume is asked for it.
fn asked(new: &New) -> NewInode {
    NewInode {
        mode: new.permissions,
        umask: 0,
        uid: new.uid,
        gid: new.gid,
        rdev: new.rdev,
    }
}

/// Whether a subject has no such operation.
fn is_unsupported<T>(outcome: &Outcome<T>) -> bool {
    outcome
        .as_ref()
        .is_err_and(|failure| failure.errno == EOPNOTSUPP)
}

impl Runner<'_> {
    pub(super) fn make(&mut self, op: &Op) -> Verdict<Step> {
        let Some(making) = Making::of(op) else {
            return Ok(Step::Skipped);
        };
        let Some(dir) = self.ino(making.dir) else {
            return Ok(Step::Skipped);
        };
        // An id names one object for good.
        if self.known.ino(making.id).is_some() {
            return Ok(Step::Skipped);
        }
        let subject = self.subject()?;
        let (name, new) = (&making.name[..], &making.new);
        let new = asked(new);
        let outcome = match making.file_type {
            mode::REGULAR => subject.create(dir, name, &new),
            mode::DIRECTORY => subject.mkdir(dir, name, &new),
            mode::SYMLINK => subject.symlink(dir, name, &making.target, &new),
            other => subject.mknod(dir, name, other, &new),
        };
        if is_no_space(&outcome) {
            self.still_free(making.dir, name)?;
            return self.refused_for_space(true, &[making.dir]);
        }
        let answer = making.on_model(&mut self.model);
        if let Some((attr, ())) = agree(outcome, answer)? {
            self.known
                .bind(&self.model, making.id, attr.ino, attr.generation)?;
            self.expect_attr(making.id, &attr)?;
            self.check_object(making.dir)?;
        }
        Ok(Step::Done)
    }

    pub(super) fn make_unnamed(&mut self, op: &Op) -> Verdict<Step> {
        let Op::CreateUnnamed {
            dir,
            id,
            permissions,
        } = *op
        else {
            return Ok(Step::Skipped);
        };
        let Some(holder) = self.ino(dir).filter(|_| self.known.ino(id).is_none()) else {
            return Ok(Step::Skipped);
        };
        let new = New {
            permissions,
            ..WHITEOUT
        };
        let outcome = self.subject()?.create_unnamed(holder, &asked(&new));
        if is_unsupported(&outcome) {
            return Ok(Step::Skipped);
        }
        if is_no_space(&outcome) {
            return self.refused_for_space(true, &[dir]);
        }
        let answer = self.model.create_unnamed(dir, id, &new);
        if let Some((attr, ())) = agree(outcome, answer)? {
            self.known
                .bind(&self.model, id, attr.ino, attr.generation)?;
            self.expect_attr(id, &attr)?;
            self.check_object(dir)?;
        }
        Ok(Step::Done)
    }

    /// After a refusal for want of space, a name must lead where it led before.
    fn still_free(&self, dir: Id, name: &[u8]) -> Verdict {
        let Some(ino) = self.ino(dir) else {
            return Ok(());
        };
        let outcome = self.subject()?.lookup(ino, name);
        let expected = self.model.lookup(dir, name);
        let found = agree(outcome, expected).map_err(|problem| {
            Problem::new(
                "a refused operation left something behind",
                problem.to_string(),
            )
        })?;
        match found {
            Some((attr, id)) if self.ino(id) != Some(attr.ino) => Err(Problem::new(
                "a refused operation left something behind",
                format!("{:?} leads to {}", String::from_utf8_lossy(name), attr.ino),
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn link(&mut self, id: Id, dir: Id, name: Name) -> Verdict<Step> {
        let (Some(ino), Some(holder)) = (self.ino(id), self.ino(dir)) else {
            return Ok(Step::Skipped);
        };
        // Whether a file that lost its name may get one again is left open.
        let nameless = self.model.get(id).is_some_and(|object| object.nlink == 0);
        if nameless && !self.model.is_unnamed(id) {
            return Ok(Step::Skipped);
        }
        let outcome = self.subject()?.link(ino, holder, &name.bytes());
        if is_no_space(&outcome) {
            self.still_free(dir, &name.bytes())?;
            return self.refused_for_space(true, &[id, dir]);
        }
        let answer = self.model.link(id, dir, &name.bytes());
        if let Some((attr, ())) = agree(outcome, answer)? {
            self.expect_attr(id, &attr)?;
        }
        Ok(Step::Done)
    }

    pub(super) fn unlink(&mut self, dir: Id, name: Name) -> Verdict<Step> {
        let Some(holder) = self.ino(dir) else {
            return Ok(Step::Skipped);
        };
        let outcome = self.subject()?.unlink(holder, &name.bytes());
        if is_no_space(&outcome) {
            return self.refused_for_space(false, &[]);
        }
        let id = self.model.lookup(dir, &name.bytes());
        let answer = self.model.unlink(dir, &name.bytes());
        agree(outcome, answer)?;
        if let Ok(id) = id {
            self.check_object(id)?;
        }
        Ok(Step::Done)
    }

    pub(super) fn rmdir(&mut self, dir: Id, name: Name) -> Verdict<Step> {
        let Some(holder) = self.ino(dir) else {
            return Ok(Step::Skipped);
        };
        let outcome = self.subject()?.rmdir(holder, &name.bytes());
        if is_no_space(&outcome) {
            return self.refused_for_space(false, &[]);
        }
        let answer = self.model.rmdir(dir, &name.bytes());
        agree(outcome, answer)?;
        self.check_object(dir)?;
        Ok(Step::Done)
    }

    pub(super) fn rename(&mut self, op: &Op) -> Verdict<Step> {
        let Op::Rename {
            dir,
            name,
            new_dir,
            new_name,
            how,
        } = *op
        else {
            return Ok(Step::Skipped);
        };
        let (Some(from), Some(to)) = (self.ino(dir), self.ino(new_dir)) else {
            return Ok(Step::Skipped);
        };
        let flags = RenameFlags {
            no_replace: how == Rename::NoReplace,
            exchange: how == Rename::Exchange,
            whiteout: matches!(how, Rename::Whiteout(_)).then(|| asked(&WHITEOUT)),
        };
        if let Rename::Whiteout(id) = how
            && self.known.ino(id).is_some()
        {
            return Ok(Step::Skipped);
        }
        let (name, new_name) = (name.bytes(), new_name.bytes());
        let outcome = self.subject()?.rename(from, &name, to, &new_name, flags);
        if is_unsupported(&outcome) {
            return Ok(Step::Skipped);
        }
        if is_no_space(&outcome) {
            self.still_free(dir, &name)?;
            self.still_free(new_dir, &new_name)?;
            return self.refused_for_space(true, &[dir, new_dir]);
        }
        let moved = [
            self.model.lookup(dir, &name),
            self.model.lookup(new_dir, &new_name),
        ];
        let answer = self.model.rename(dir, &name, new_dir, &new_name, how);
        agree(outcome, answer)?;
        if let Rename::Whiteout(id) = how
            && self.model.get(id).is_some()
        {
            let left = must(self.subject()?.lookup(from, &name), || {
                "lookup of a whiteout".to_owned()
            })?;
            self.known
                .bind(&self.model, id, left.ino, left.generation)?;
            self.expect_attr(id, &left)?;
        }
        for id in moved.into_iter().flatten().chain([dir, new_dir]) {
            self.check_object(id)?;
        }
        Ok(Step::Done)
    }

    pub(super) fn lookup(&mut self, dir: Id, name: Name) -> Verdict<Step> {
        let Some(holder) = self.ino(dir) else {
            return Ok(Step::Skipped);
        };
        let outcome = self.subject()?.lookup(holder, &name.bytes());
        let answer = self.model.lookup(dir, &name.bytes());
        if let Some((attr, id)) = agree(outcome, answer)? {
            if self.ino(id) != Some(attr.ino) {
                return Err(Problem::new(
                    "a name leads to the wrong inode",
                    format!("{}, not {:?}", attr.ino, self.ino(id)),
                ));
            }
            self.expect_attr(id, &attr)?;
        }
        self.no_such_name(holder)
    }

    /// A name that nobody ever made is not there.
    fn no_such_name(&self, dir: loamfs_format::Ino) -> Verdict<Step> {
        let outcome = self.subject()?.lookup(dir, b"never made");
        agree(outcome, Err::<(), _>(ENOENT.into())).or_else(|problem| {
            match self.known.id(dir) {
                // Not a directory: another error is right.
                Some(id) if !self.model.get(id).is_some_and(|o| o.is_dir()) => Ok(None),
                _ => Err(problem),
            }
        })?;
        Ok(Step::Done)
    }
}
