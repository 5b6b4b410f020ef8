//! `rm -r`, with syncs in between.

use std::fs;
use std::path::Path;

use super::stage::Beat;
use crate::Error;

/// Removes a tree, each directory's entries in the order in which the file system tells them.
pub fn remove_tree(directory: &Path, beat: &mut Beat) -> Result<(), Error> {
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    for entry in entries.map_err(Error::at("listing", directory))? {
        let path = entry.path();
        let is_directory = entry
            .file_type()
            .map_err(Error::at("looking at", &path))?
            .is_dir();
        if is_directory {
            remove_tree(&path, beat)?;
        } else {
            fs::remove_file(&path).map_err(Error::at("removing", &path))?;
            beat.tick()?;
        }
    }
    fs::remove_dir(directory).map_err(Error::at("removing", directory))?;
    beat.tick()
}
