//! Bytes as text.

use std::fmt::Write as _;

/// Bytes that can be shown, such as a name: text as it is, but a backslash as `\\`, and bytes that would disturb a
/// terminal or a line, or are no UTF-8, as `\x1b`. Different bytes are shown differently.
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                letter if letter.is_control() => {
                    escape(&mut text, letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
                letter => text.push(letter),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
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
    fn a_control_letter_is_not_taken_for_a_byte_that_is_no_text() {
        assert_eq!(shown("\u{85}".as_bytes()), "\\xc2\\x85");
        assert_eq!(shown(b"\x85"), "\\x85");
    }
}
