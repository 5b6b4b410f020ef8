//! Extended attributes between the system and a volume: what `cp -a` takes along.

use loamfs_console::size::human;
use std::ffi::CString;
use std::fmt;

use loamfs_format::Ino;
use loamfs_fs::{Error, Volume, XattrMode};
use rustix::process::geteuid;

use crate::node::Node;
use crate::text::shown;
use crate::trouble::Trouble;

/// Whether an attribute is taken along: `user.` by everybody, the rest by root.
pub fn travels(name: &[u8]) -> bool {
    !name.is_empty() && (name.starts_with(b"user.") || geteuid().is_root())
}

/// Gives an inode the attributes of a file, and says which of them the volume does not take.
///
/// # Errors
///
/// If they cannot be read.
pub fn put(
    volume: &Volume,
    node: &Node,
    ino: Ino,
    troubles: &mut Vec<Trouble>,
) -> Result<(), Trouble> {
    for name in node.attributes()?.iter().filter(|name| travels(name)) {
        let Some(value) = node.attribute(name)? else {
            continue;
        };
        match volume.xattrs(ino).set(name, &value, XattrMode::Any) {
            // What only the file system that it comes from has.
            Ok(()) | Err(Error::Unsupported) => {}
            Err(error) => troubles.push(does_not_fit(name, &value, &error)),
        }
    }
    Ok(())
}

/// Gives a file an attribute, unless there is a reason not to.
///
/// # Errors
///
/// If it is left out.
pub fn set(
    node: &Node,
    name: &[u8],
    value: &[u8],
    reason: Option<&'static str>,
) -> Result<(), Trouble> {
    if let Some(reason) = reason {
        return Err(does_not_fit(name, value, &reason));
    }
    // A damaged volume may hold any name.
    let Ok(text) = CString::new(name) else {
        return Err(does_not_fit(name, value, &"it has a zero in its name"));
    };
    let set = node.set_attribute(&text, value);
    set.map_err(|error| does_not_fit(name, value, &error))
}

fn does_not_fit(name: &[u8], value: &[u8], reason: &dyn fmt::Display) -> Trouble {
    let what = format!(
        "its attribute {} of {}",
        shown(name),
        human(value.len() as u64)
    );
    Trouble::left_out(what, reason)
}
