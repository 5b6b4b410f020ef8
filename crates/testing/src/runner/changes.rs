//! Changes of the devices: nothing that is on the volume changes.

use super::{Runner, Step};
use crate::errno::EINVAL;
use crate::ops::Change;
use crate::problem::{Problem, Verdict};
use crate::subject::Outcome;
use crate::tree::must;

impl Runner<'_> {
    /// Changes the devices. What may be refused, and changes nothing then, is that devices leave which are not empty yet, or for
    /// whose contents there is no room.
    pub(super) fn change(&mut self, change: Change) -> Verdict<Step> {
        let before = self.system.table(&self.device)?;
        let changed = match change {
            Change::Add(_) | Change::Remove | Change::Grow | Change::Shrink => {
                self.change_unmounted(change)?
            }
            Change::Leave(part) => self.mark(part, true)?,
            Change::Stay(part) => self.mark(part, false)?,
            Change::Empty(steps) => self.subject()?.empty(steps),
        };
        let refused = matches!(change, Change::Remove | Change::Leave(_))
            && changed
                .as_ref()
                .is_err_and(|failure| failure.errno == EINVAL);
        if !refused {
            must(changed, || "a change of the devices".to_owned())?;
        } else if self.system.table(&self.device)? != before {
            let detail = format!("{before:?} became another");
            return Err(Problem::new(
                "a change that was refused changed the table",
                detail,
            ));
        }
        Ok(Step::Done)
    }

    /// Between two openings. The one before ends as an unmounted volume does, or as a daemon that makes way for another.
    fn change_unmounted(&mut self, change: Change) -> Verdict<Outcome<()>> {
        if self.opening.seed.is_multiple_of(2) {
            must(self.subject()?.sync(), || "sync".to_owned())?;
            self.abandon();
        }
        self.close()?;
        self.opening = self.opening.reseeded(2);
        let changed = self.system.change(&self.device, change, &self.opening);
        self.open()?;
        Ok(changed)
    }

    /// One that has left, or is no part of the volume, stays so.
    fn mark(&mut self, part: u8, leaves: bool) -> Verdict<Outcome<()>> {
        match self.system.number(&self.device, part) {
            Some(number) => Ok(self.subject()?.mark(number, leaves)),
            None => Ok(Ok(())),
        }
    }
}
