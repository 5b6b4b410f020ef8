//! Bytes as text, and how many they are.

use std::fmt::Write as _;

use unit_prefix::NumberPrefix;

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

/// A size for people, in powers of 1,024: `1.5 GiB`. The only place that writes one.
pub fn human(bytes: u64) -> String {
    match NumberPrefix::binary(bytes as f64) {
        NumberPrefix::Standalone(_) => format!("{bytes} B"),
        NumberPrefix::Prefixed(prefix, number) => format!("{number:.1} {prefix}B"),
    }
}

/// How far a size falls short of one that is needed, for people: both, and what is missing, since two sizes that differ
/// can read the same.
pub fn lacking(have: u64, need: u64) -> String {
    let missing = human(need.saturating_sub(have));
    format!(
        "{} of {} needed, {missing} too little",
        human(have),
        human(need)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_one_decimal() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1024), "1.0 KiB");
        assert_eq!(human(1536), "1.5 KiB");
        assert_eq!(human(320 << 20), "320.0 MiB");
        assert_eq!(human(8 << 30), "8.0 GiB");
        assert_eq!(human(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn sizes_that_read_the_same_are_told_apart() {
        assert_eq!(
            lacking((8 << 30) - 4096, 8 << 30),
            "8.0 GiB of 8.0 GiB needed, 4.0 KiB too little"
        );
    }

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
