//! Running operations on extended attributes, and on what directories say that is shown as one.

use loamfs_fs::{Placement, Tiering};

use super::expect::agree;
use super::{Runner, Step, is_no_space};
use crate::content::fill;
use crate::errno::EOPNOTSUPP;
use crate::model::Id;
use crate::name::Name;
use crate::ops::{Op, xattr_name};
use crate::problem::{Problem, Verdict};
use crate::subject::{PLACEMENT, TIER};
use crate::tree::must;

/// Operations on extended attributes.
pub(super) struct Xattrs<'r, 'a>(pub(super) &'r mut Runner<'a>);

impl Xattrs<'_, '_> {
    pub(super) fn set(&mut self, op: &Op) -> Verdict<Step> {
        let Op::SetXattr {
            id,
            name,
            len,
            seed,
            how,
        } = *op
        else {
            return Ok(Step::Skipped);
        };
        let Some(ino) = self.0.ino(id) else {
            return Ok(Step::Skipped);
        };
        let (name, value) = (xattr_name(name), fill(seed, len as usize));
        let outcome = self.0.subject()?.setxattr(ino, &name, &value, how);
        if is_no_space(&outcome) {
            let found = self.0.subject()?.getxattr(ino, &name);
            let answer = self.0.model.getxattr(id, &name);
            same_value(found, answer)?;
            return self.0.refused_for_space(true, &[id]);
        }
        let answer = self.0.model.setxattr(id, &name, &value, how);
        agree(outcome, answer)?;
        Ok(Step::Done)
    }

    /// Says where small files of a directory go. Without room for that, and for what is to be moved, all stays as it was.
    pub(super) fn say(&mut self, dir: Id, placement: Placement) -> Verdict<Step> {
        let Some(ino) = self.0.ino(dir) else {
            return Ok(Step::Skipped);
        };
        let outcome = self.0.subject()?.place(ino, placement);
        match &outcome {
            Err(failure) if failure.errno == EOPNOTSUPP => return Ok(Step::Skipped),
            _ => {}
        }
        must(outcome, || format!("placing {placement:?}"))?;
        let said = self.0.subject()?.getxattr(ino, PLACEMENT);
        let said = must(said, || "asking for a place".to_owned())?;
        if said != placement.word().as_bytes() {
            return self.0.refused_for_space(true, &[dir]);
        }
        self.0.model.place(dir, placement);
        Ok(Step::Done)
    }

    /// Says on which devices large files of a directory go, likewise.
    pub(super) fn carry(&mut self, dir: Id, on: Tiering) -> Verdict<Step> {
        let Some(ino) = self.0.ino(dir) else {
            return Ok(Step::Skipped);
        };
        let outcome = self.0.subject()?.carry(ino, on);
        match &outcome {
            Err(failure) if failure.errno == EOPNOTSUPP => return Ok(Step::Skipped),
            _ => {}
        }
        must(outcome, || format!("carrying to {on:?}"))?;
        let said = self.0.subject()?.getxattr(ino, TIER);
        let said = must(said, || "asking for a tier".to_owned())?;
        if said != on.word().as_bytes() {
            return self.0.refused_for_space(true, &[dir]);
        }
        self.0.model.carry(dir, on);
        Ok(Step::Done)
    }

    pub(super) fn get(&mut self, id: Id, name: Name) -> Verdict<Step> {
        let Some(ino) = self.0.ino(id) else {
            return Ok(Step::Skipped);
        };
        let name = xattr_name(name);
        let outcome = self.0.subject()?.getxattr(ino, &name);
        let answer = self.0.model.getxattr(id, &name);
        same_value(outcome, answer)
    }

    pub(super) fn remove(&mut self, id: Id, name: Name) -> Verdict<Step> {
        let Some(ino) = self.0.ino(id) else {
            return Ok(Step::Skipped);
        };
        let name = xattr_name(name);
        let outcome = self.0.subject()?.removexattr(ino, &name);
        if is_no_space(&outcome) {
            return self.0.refused_for_space(false, &[]);
        }
        let answer = self.0.model.removexattr(id, &name);
        agree(outcome, answer)?;
        Ok(Step::Done)
    }
}

/// Whether both sides gave the same value of an attribute.
fn same_value(
    outcome: crate::subject::Outcome<Vec<u8>>,
    answer: crate::model::Answer<std::sync::Arc<[u8]>>,
) -> Verdict<Step> {
    match agree(outcome, answer)? {
        Some((found, expected)) if found[..] != expected[..] => {
            let detail = format!("{} bytes, not {}", found.len(), expected.len());
            Err(Problem::new("an attribute has the wrong value", detail))
        }
        _ => Ok(Step::Done),
    }
}
