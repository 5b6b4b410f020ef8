//! Running operations on ranges of files.

use super::expect::agree;
use super::{Runner, Step, is_no_space};
use crate::errno::ENXIO;
use crate::model::Id;
use crate::ops::Op;
use crate::problem::{Problem, Verdict};

/// Pieces of data and holes that one search goes through.
const PIECES_MAX: usize = 200;

/// Operations on ranges of files.
pub(super) struct Ranges<'r, 'a>(pub(super) &'r mut Runner<'a>);

impl Ranges<'_, '_> {
    pub(super) fn run(&mut self, op: &Op) -> Verdict<Step> {
        match *op {
            Op::Punch { id, offset, len } => self.punch(id, offset, len),
            Op::Allocate {
                id,
                offset,
                len,
                grow,
            } => self.fill(id, offset, len, (grow, false)),
            Op::Zero {
                id,
                offset,
                len,
                grow,
            } => self.fill(id, offset, len, (grow, true)),
            Op::Copy {
                from,
                offset,
                to,
                to_offset,
                len,
            } => self.copy((from, offset), (to, to_offset), len),
            Op::Seek { id, offset } => self.seek(id, offset),
            _ => Ok(Step::Skipped),
        }
    }

    fn punch(&mut self, id: Id, offset: u64, len: u64) -> Verdict<Step> {
        let Some(ino) = self.0.ino(id) else {
            return Ok(Step::Skipped);
        };
        let outcome = self.0.subject()?.punch(ino, offset, len);
        if is_no_space(&outcome) {
            self.0.check_around(id, offset, len)?;
            return self.0.refused_for_space(true, &[id]);
        }
        let answer = self.0.model.punch(id, offset, len);
        agree(outcome, answer)?;
        self.0.check_around(id, offset, len)?;
        self.0.check_object(id)?;
        Ok(Step::Done)
    }

    /// Allocates, or makes zeros.
    fn fill(&mut self, id: Id, offset: u64, len: u64, (grow, zero): (bool, bool)) -> Verdict<Step> {
        let Some(ino) = self.0.ino(id) else {
            return Ok(Step::Skipped);
        };
        let outcome = if zero {
            self.0.subject()?.zero(ino, offset, len, grow)
        } else {
            self.0.subject()?.allocate(ino, offset, len, grow)
        };
        if is_no_space(&outcome) {
            if zero {
                // How far it came is left open, but for what stands beside the range.
                self.adopt_range(id, offset, len)?;
            }
            // Holes may have got space in part.
            self.0.model.forget_mtime(id);
            self.0.check_around(id, offset, len)?;
            return self.0.refused_for_space(true, &[id]);
        }
        let answer = if zero {
            self.0.model.zero(id, offset, len, grow)
        } else {
            self.0.model.allocate(id, offset, len, grow)
        };
        agree(outcome, answer)?;
        self.0.check_around(id, offset, len)?;
        self.0.check_object(id)?;
        Ok(Step::Done)
    }

    /// Takes over what a range has become: every byte is what it was, or zero.
    fn adopt_range(&mut self, id: Id, offset: u64, len: u64) -> Verdict {
        let size = self.0.model.get(id).and_then(|object| object.size());
        let (Some(size), Some(ino)) = (size, self.0.ino(id)) else {
            return Ok(());
        };
        let len = len.min(size.saturating_sub(offset));
        let outcome = self.0.subject()?.read(ino, offset, len as usize);
        let expected = self.0.model.read(id, offset, len as usize);
        let Some((found, expected)) = agree(outcome, expected)? else {
            return Ok(());
        };
        let fits = |(found, expected): (&u8, &u8)| found == expected || *found == 0;
        if found.len() != expected.len() || !found.iter().zip(&expected).all(fits) {
            let detail = format!("{offset} and {len} bytes");
            return Err(Problem::new("a range that was not zeroed changed", detail));
        }
        self.0.model.forget_mtime(id);
        let answer = self.0.model.write(id, offset, &found);
        agree(Ok(()), answer).map(drop)
    }

    fn copy(&mut self, from: (Id, u64), to: (Id, u64), len: u64) -> Verdict<Step> {
        let (Some(source), Some(target)) = (self.0.ino(from.0), self.0.ino(to.0)) else {
            return Ok(Step::Skipped);
        };
        let outcome = self
            .0
            .subject()?
            .copy_range((source, from.1), (target, to.1), len);
        if is_no_space(&outcome) {
            self.0.check_around(to.0, to.1, len)?;
            return self.0.refused_for_space(true, &[to.0]);
        }
        let size = self.0.model.get(from.0).and_then(|object| object.size());
        let all = len.min(size.unwrap_or(0).saturating_sub(from.1));
        let copied = *outcome.as_ref().unwrap_or(&len);
        // Only space can end a copy early.
        let early = outcome.is_ok() && copied < all;
        let answer = self
            .0
            .model
            .copy(from, to, if early { copied } else { len });
        if let Some((copied, expected)) = agree(outcome, answer)?
            && copied != expected
        {
            let detail = format!("{copied} bytes, not {expected}");
            return Err(Problem::new("a copy says nonsense", detail));
        }
        if early {
            self.0.refused_for_space(true, &[])?;
        }
        self.0.check_around(to.0, to.1, len)?;
        self.0.check_object(to.0)?;
        Ok(Step::Done)
    }

    /// Goes through a file by its data and holes: what is no data must be zeros.
    fn seek(&mut self, id: Id, offset: u64) -> Verdict<Step> {
        let content = self.0.model.get(id).and_then(|object| object.content());
        let (Some(content), Some(ino)) = (content, self.0.ino(id)) else {
            return Ok(Step::Skipped);
        };
        let wrong = |what: &str| Err(Problem::new("a search says nonsense", what.to_owned()));
        let size = content.size();
        let mut at = offset;
        for _ in 0..PIECES_MAX {
            let found = self.0.subject()?.seek_data(ino, at);
            let data = match &found {
                Ok(data) if *data >= at && *data < size => *data,
                Err(failure) if failure.errno == ENXIO => size,
                _ => return wrong(&format!("data from {at} on, of {size}: {found:?}")),
            };
            if !content.is_zero(at, data) {
                return wrong(&format!("no data from {at} to {data}"));
            }
            if data >= size {
                break;
            }
            let found = self.0.subject()?.seek_hole(ino, data);
            at = match found {
                Ok(hole) if hole > data && hole <= size => hole,
                _ => return wrong(&format!("a hole from {data} on, of {size}: {found:?}")),
            };
        }
        Ok(Step::Done)
    }
}
