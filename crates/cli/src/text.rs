//! Names and modes as text.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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

/// How wide text and help for people are at most: what most terminals show.
pub const COLUMNS_MAX: usize = 80;

/// A line, broken so that terminals show it whole. What is behind the break is set in by so many blanks; so is what the
/// line begins with, a label, which is never broken.
pub fn wrapped(line: &str, indent: usize) -> String {
    let (label, rest) = line.split_at_checked(indent).unwrap_or((line, ""));
    let mut text = label.to_owned();
    let mut column = label.chars().count();
    for (number, word) in rest.split(' ').enumerate() {
        let length = word.chars().count();
        if number > 0 && column + 1 + length > COLUMNS_MAX {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else if number > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text
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
    fn long_lines_are_broken_between_words() {
        assert_eq!(wrapped("label     short", 10), "label     short");
        let long = format!("label     {}", "word ".repeat(20));
        for line in wrapped(long.trim_end(), 10).lines() {
            assert!(
                line.len() <= COLUMNS_MAX && line[10..].starts_with("word"),
                "{line}"
            );
        }
        let path = "x".repeat(100);
        assert_eq!(wrapped(&format!("at {path}"), 3), format!("at {path}"));
    }

    #[test]
    fn letters_of_a_mode() {
        assert_eq!(mode_letters(0o040_755), "drwxr-xr-x");
        assert_eq!(mode_letters(0o104_711), "-rws--x--x");
        assert_eq!(mode_letters(0o041_776), "drwxrwxrwT");
    }
}
