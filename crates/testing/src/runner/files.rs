//! Running operations on contents and attributes.

use loamfs_format::inode::Timestamp;
use loamfs_fs::{SetAttr, SetTime};

use super::expect::agree;
use super::{Runner, Step, is_no_space};
use crate::compare::compare_range;
use crate::content::fill;
use crate::model::Id;
use crate::ops::Op;
use crate::problem::{Problem, Verdict};

/// Bytes that a comparison after an operation reads at most.
const CHECKED_MAX: usize = 1 << 20;

impl Runner<'_> {
    pub(super) fn setattr(&mut self, op: &Op) -> Verdict<Step> {
        let mut set = SetAttr::default();
        let id = match *op {
            Op::Chmod { id, permissions } => {
                set.mode = Some(permissions);
                id
            }
            Op::Chown { id, uid, gid } => {
                (set.uid, set.gid) = (Some(uid), Some(gid));
                id
            }
            Op::SetMtime { id, seconds, nanos } => {
                set.mtime = Some(SetTime::At(Timestamp { seconds, nanos }));
                id
            }
            Op::Truncate { id, size } => {
                set.size = Some(size);
                id
            }
            _ => return Ok(Step::Skipped),
        };
        let Some(ino) = self.ino(id) else {
            return Ok(Step::Skipped);
        };
        let before = self.model.get(id).and_then(|object| object.size());
        let outcome = self.subject()?.setattr(ino, &set);
        if is_no_space(&outcome) {
            // Cutting a file to nothing, or at all, gives space back.
            let shrinks = set
                .size
                .is_some_and(|size| before.is_some_and(|b| size <= b));
            return self.refused_for_space(!shrinks, &[id]);
        }
        let answer = match *op {
            Op::Chmod { permissions, .. } => self.model.chmod(id, permissions),
            Op::Chown { uid, gid, .. } => self.model.chown(id, uid, gid),
            Op::SetMtime { seconds, nanos, .. } => {
                self.model.set_mtime(id, Timestamp { seconds, nanos })
            }
            Op::Truncate { size, .. } => self.model.truncate(id, size),
            _ => Ok(()),
        };
        if let Some((attr, ())) = agree(outcome, answer)? {
            self.expect_attr(id, &attr)?;
        }
        Ok(Step::Done)
    }

    pub(super) fn write(&mut self, id: Id, offset: u64, len: u32, seed: u64) -> Verdict<Step> {
        let Some(ino) = self.ino(id) else {
            return Ok(Step::Skipped);
        };
        let data = fill(seed, len as usize);
        let outcome = self.subject()?.write(ino, offset, &data);
        if is_no_space(&outcome) {
            let step = self.refused_for_space(true, &[id])?;
            self.check_around(id, offset, len.into())?;
            return Ok(step);
        }
        let written = *outcome.as_ref().unwrap_or(&data.len());
        if written > data.len() || written == 0 && !data.is_empty() {
            let detail = format!("{written} bytes of {len}");
            return Err(Problem::new("a write says nonsense", detail));
        }
        let answer = self.model.write(id, offset, &data[..written]);
        agree(outcome, answer)?;
        if written < data.len() {
            // Only space can end a write early.
            self.refused_for_space(true, &[])?;
        }
        self.check_around(id, offset, len.into())?;
        self.check_object(id)?;
        Ok(Step::Done)
    }

    /// Compares what a write touched, and the bytes beside it.
    pub(super) fn check_around(&self, id: Id, offset: u64, len: u64) -> Verdict {
        let content = self.model.get(id).and_then(|object| object.content());
        let (Some(content), Some(ino)) = (content, self.ino(id)) else {
            return Ok(());
        };
        let start = offset.saturating_sub(100);
        let len = usize::try_from(len).map_or(CHECKED_MAX, |len| len.min(CHECKED_MAX)) + 200;
        compare_range(self.subject()?, ino, content, start, len)
    }

    pub(super) fn read(&mut self, id: Id, offset: u64, len: u32) -> Verdict<Step> {
        let Some(ino) = self.ino(id) else {
            return Ok(Step::Skipped);
        };
        let outcome = self.subject()?.read(ino, offset, len as usize);
        let answer = self.model.read(id, offset, len as usize);
        agree(outcome, answer)?;
        match self.model.get(id).and_then(|object| object.content()) {
            Some(content) => {
                compare_range(self.subject()?, ino, content, offset, len as usize)?;
                Ok(Step::Done)
            }
            None => Ok(Step::Done),
        }
    }

    pub(super) fn open_file(&mut self, id: Id) -> Verdict<Step> {
        let Some(ino) = self.ino(id) else {
            return Ok(Step::Skipped);
        };
        let outcome = self.subject()?.open_file(ino);
        let answer = self.model.open(id);
        agree(outcome, answer)?;
        Ok(Step::Done)
    }

    pub(super) fn release(&mut self, id: Id) -> Verdict<Step> {
        let Some(ino) = self.ino(id) else {
            return Ok(Step::Skipped);
        };
        if !self.model.is_open(id) {
            return Ok(Step::Skipped);
        }
        let outcome = self.subject()?.release_file(ino);
        if is_no_space(&outcome) {
            return self.refused_for_space(false, &[]);
        }
        let answer = self.model.release(id);
        agree(outcome, answer)?;
        Ok(Step::Done)
    }
}
