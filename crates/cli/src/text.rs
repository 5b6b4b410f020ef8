//! Names and modes as text.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use loamfs_format::inode::mode;

/// A name that can be shown: bytes that would disturb a terminal or a line are written as `\x1b`.
pub fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                letter if letter.is_control() => {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "\\x{:02x}", u32::from(letter));
                }
                letter => text.push(letter),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// The bytes of an argument.
pub fn bytes(argument: &OsStr) -> &[u8] {
    argument.as_bytes()
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
    fn hostile_names_cannot_move_the_cursor() {
        assert_eq!(shown(b"plain \xc3\xa9"), "plain é");
        assert_eq!(shown(b"\x1b[2J\n\xff\\"), "\\x1b[2J\\x0a\\xff\\\\");
    }

    #[test]
    fn letters_of_a_mode() {
        assert_eq!(mode_letters(0o040_755), "drwxr-xr-x");
        assert_eq!(mode_letters(0o104_711), "-rws--x--x");
        assert_eq!(mode_letters(0o041_776), "drwxrwxrwT");
    }
}
