//! What can stand for a volume in a line that a shell completes.

use std::ffi::OsStr;

use loamfs_console::complete::{CompletionCandidate, PathCompleter, ValueCompleter};

use crate::mounts;

/// Where volumes are mounted, and whatever else there is.
pub fn mounted(current: &OsStr) -> Vec<CompletionCandidate> {
    let begun = current.to_string_lossy();
    let mounts = mounts::ours().into_iter().map(|entry| entry.path);
    let mut found: Vec<_> = mounts
        .filter(|path| path.to_string_lossy().starts_with(&*begun))
        .map(CompletionCandidate::new)
        .collect();
    found.extend(PathCompleter::any().complete(current));
    found
}
