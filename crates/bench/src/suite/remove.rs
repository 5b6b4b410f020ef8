//! `rm -r`, with syncs in between.

use std::path::Path;

use super::files::Files;
use super::stage::Beat;
use crate::Error;

/// Removes a tree, each directory's entries in the order in which the file system tells them.
pub fn remove_tree(files: &dyn Files, directory: &Path, beat: &mut Beat<'_>) -> Result<(), Error> {
    for entry in files.list(directory)? {
        let path = directory.join(&entry.name);
        if entry.is_directory {
            remove_tree(files, &path, beat)?;
        } else {
            files.remove_file(&path)?;
            beat.tick()?;
        }
    }
    files.remove_directory(directory)?;
    beat.tick()
}
