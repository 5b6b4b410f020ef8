//! Names and modes as text.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use loamfs_console::lines::{COLUMNS_MAX, wrapped};
use loamfs_format::inode::mode;
pub use loamfs_format::text::shown;
use loamfs_fs::types::Timestamp;

/// The bytes of an argument.
pub fn bytes(argument: &OsStr) -> &[u8] {
    argument.as_bytes()
}

/// A path that can be shown, whoever chose its names.
pub fn shown_path(path: &Path) -> String {
    shown(path.as_os_str().as_bytes())
}

/// A point in time, as `stat` shows it.
pub fn moment(time: Timestamp) -> String {
    loamfs_console::time::long(time.seconds, time.nanos)
}

/// `drwxr-xr-x`.
pub fn mode_letters(mode: u32) -> String {
    let mut text = String::with_capacity(10);
    text.push(type_letter(mode));
    for (shift, special, lower, upper) in [
        (6, 0o4000, 's', 'S'),
        (3, 0o2000, 's', 'S'),
        (0, 0o1000, 't', 'T'),
    ] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => lower,
            (false, true) => upper,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

fn type_letter(bits: u32) -> char {
    match bits & mode::TYPE {
        mode::DIRECTORY => 'd',
        mode::REGULAR => '-',
        mode::SYMLINK => 'l',
        mode::CHARACTER => 'c',
        mode::BLOCK => 'b',
        mode::FIFO => 'p',
        mode::SOCKET => 's',
        _ => '?',
    }
}

/// The type in words.
pub fn type_name(bits: u32) -> &'static str {
    match bits & mode::TYPE {
        mode::DIRECTORY => "directory",
        mode::REGULAR => "file",
        mode::SYMLINK => "symlink",
        mode::CHARACTER => "character device",
        mode::BLOCK => "block device",
        mode::FIFO => "fifo",
        mode::SOCKET => "socket",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_a_mode() {
        assert_eq!(mode_letters(0o040_755), "drwxr-xr-x");
        assert_eq!(mode_letters(0o104_711), "-rws--x--x");
        assert_eq!(mode_letters(0o041_776), "drwxrwxrwT");
    }
}
