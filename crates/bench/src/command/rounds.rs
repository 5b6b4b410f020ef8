//! How commands are told which file systems run in turn.

use std::path::Path;

use super::volume::VolumeArgs;
use crate::Error;
use crate::lab::this_program;
use crate::rounds::Rounds;
use crate::stand::Subject;

/// `count` rounds of the named file systems, or of all, with mount points in `work`.
pub(super) fn rounds(
    volume: &VolumeArgs,
    work: &Path,
    count: u32,
    named: &[Subject],
) -> Result<Rounds, Error> {
    let (subjects, left_out) = chosen(named)?;
    Ok(Rounds {
        count: count as usize,
        subjects,
        left_out,
        tools: volume.tools(work)?,
        bench: this_program()?,
    })
}

/// What is measured, and what is left out as it is not installed. What was asked for by name is not left out.
fn chosen(named: &[Subject]) -> Result<(Vec<Subject>, Vec<Subject>), Error> {
    let all = match named {
        [] => &Subject::ALL[..],
        named => named,
    };
    let (subjects, left_out) = once(all.iter().copied())
        .into_iter()
        .partition::<Vec<_>, _>(|subject| subject.is_installed());
    match left_out.first().filter(|_| !named.is_empty()) {
        Some(subject) => Err(Error::Lacking(format!(
            "{} is not installed",
            subject.name()
        ))),
        None => Ok((subjects, left_out)),
    }
}

/// Each value where it stands first.
pub(super) fn once<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}
