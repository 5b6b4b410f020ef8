//! Comparing answers.

use loamfs_fs::Attr;

use super::Runner;
use crate::errno;
use crate::model::{Answer, Id};
use crate::problem::{Problem, Verdict};
use crate::subject::Outcome;

/// Whether both sides answered the same; what they said when both went well.
pub(super) fn agree<T, M>(outcome: Outcome<T>, answer: Answer<M>) -> Verdict<Option<(T, M)>> {
    match (outcome, answer) {
        (Ok(outcome), Ok(answer)) => Ok(Some((outcome, answer))),
        (Err(failure), Err(refusal)) if refusal.allows(failure.errno) => Ok(None),
        (Err(failure), Err(refusal)) => Err(Problem::new(
            "another error",
            format!("{failure}, not {}", errno::name(refusal.errno)),
        )),
        (Err(failure), Ok(_)) => Err(Problem::new(
            "an operation failed that cannot",
            failure.to_string(),
        )),
        (Ok(_), Err(refusal)) => Err(Problem::new(
            "an operation went through that cannot",
            format!("it is {}", errno::name(refusal.errno)),
        )),
    }
}

impl Runner<'_> {
    /// Compares attributes that an operation gave with the model's.
    pub(super) fn expect_attr(&self, id: Id, attr: &Attr) -> Verdict {
        let Some(object) = self.model.get(id) else {
            return Err(Problem::new("harness", format!("no object {id}")));
        };
        let found = (attr.mode, attr.nlink, attr.uid, attr.gid, attr.rdev);
        let expected = (
            object.mode(),
            object.nlink,
            object.uid,
            object.gid,
            object.rdev,
        );
        let size = object.size();
        let time = object.mtime;
        if found == expected
            && size.is_none_or(|size| size == attr.size)
            && time.is_none_or(|time| time == attr.mtime)
        {
            return Ok(());
        }
        Err(Problem::new(
            "wrong attributes",
            format!(
                "{}: (mode, nlink, uid, gid, rdev) {found:?} size {} mtime {:?}, \
                 not {expected:?} {size:?} {time:?}",
                self.model.path(id),
                attr.size,
                attr.mtime
            ),
        ))
    }
}
