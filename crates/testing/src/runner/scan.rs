//! Reading a directory while it changes: what stays is seen exactly once, what
//! comes and goes at most once.

use std::collections::BTreeMap;

use loamfs_format::Ino;
use loamfs_fs::NewInode;

use super::{Runner, Step, is_no_space};
use crate::model::Id;
use crate::name::Name;
use crate::problem::{Problem, Verdict};
use crate::subject::Subject;
use crate::tree::must;

/// Readdir calls after which a scan will not end.
const CALLS_MAX: usize = 1 << 18;

impl Runner<'_> {
    pub(super) fn scan(&mut self, dir: Id, chunk: u16, churn: u16, stem: u32) -> Verdict<Step> {
        let entries = self.model.get(dir).and_then(|object| object.entries());
        let (Some(entries), Some(holder)) = (entries, self.ino(dir)) else {
            return Ok(Step::Skipped);
        };
        let stays: Vec<Vec<u8>> = entries.keys().cloned().collect();
        let names = (0..u32::from(churn)).map(|i| Name::long(stem + i, 20 + (i % 100) as u16));
        let names: Vec<Vec<u8>> = names
            .map(Name::bytes)
            .filter(|name| !entries.contains_key(name))
            .collect();
        let result = scan_with(self.subject()?, holder, usize::from(chunk), &names);
        // Whatever the scan found, the directory is left as it was.
        for name in &names {
            match self.subject()?.unlink(holder, name) {
                Ok(()) => {}
                Err(failure) if failure.errno == crate::errno::ENOENT => {}
                Err(failure) => must(Err(failure), || "unlink after a scan".to_owned())?,
            }
        }
        let seen = result?;
        // The scan's own changes count as changes of the directory.
        self.model.forget_mtime(dir);
        for name in &stays {
            if !seen.contains_key(name) {
                let name = String::from_utf8_lossy(name);
                let detail = format!("{name} of {} names", stays.len());
                return Err(Problem::new("a scan missed an entry", detail));
            }
        }
        Ok(Step::Done)
    }
}

/// Reads the directory; half of `names` go meanwhile, the other half come.
fn scan_with(
    subject: &dyn Subject,
    dir: Ino,
    chunk: usize,
    names: &[Vec<u8>],
) -> Verdict<BTreeMap<Vec<u8>, Ino>> {
    let (going, mut coming) = names.split_at(names.len() / 2);
    let mut made = Vec::new();
    for name in going {
        if transient(subject, dir, name)? {
            made.push(name);
        }
    }
    let mut going = &made[..];
    let mut seen = BTreeMap::new();
    let mut position = 0;
    for _ in 0..CALLS_MAX {
        let piece = must(subject.readdir(dir, position, chunk), || {
            format!("readdir of {dir} at {position}")
        })?;
        let Some(last) = piece.last() else {
            return Ok(seen);
        };
        position = last.next;
        for entry in piece {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            if seen.insert(entry.name, entry.ino).is_some() {
                return Err(Problem::new("a scan gave an entry twice", name));
            }
        }
        if let Some((name, rest)) = going.split_first() {
            must(subject.unlink(dir, name), || "unlink in a scan".to_owned())?;
            going = rest;
        }
        if let Some((name, rest)) = coming.split_first() {
            transient(subject, dir, name)?;
            coming = rest;
        }
    }
    Err(Problem::new("a scan does not end", format!("of {dir}")))
}

/// Makes a file; whether there was space for it.
fn transient(subject: &dyn Subject, dir: Ino, name: &[u8]) -> Verdict<bool> {
    let new = NewInode::of_mode(0o600);
    let outcome = subject.create(dir, name, &new);
    if is_no_space(&outcome) {
        return Ok(false);
    }
    must(outcome, || "create in a scan".to_owned())?;
    Ok(true)
}
