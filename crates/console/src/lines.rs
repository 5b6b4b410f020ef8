//! Lines for people, no wider than terminals show.

use std::io::{self, IsTerminal as _, Write as _};

/// How wide text and help for people are at most: what most terminals show.
pub const COLUMNS_MAX: usize = 80;

/// A line, broken so that terminals show it whole. What is behind the break is set in by so many blanks; so is what the
/// line begins with, a label, which is never broken.
pub fn wrapped(line: &str, indent: usize) -> String {
    let (label, rest) = line.split_at_checked(indent).unwrap_or((line, ""));
    let mut text = label.to_owned();
    let mut column = label.chars().count();
    for (number, word) in words(rest).enumerate() {
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

/// The words of a line: a size is one, with its unit.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let mut end = line.find(' ').unwrap_or(line.len());
        let is_number = line.as_bytes().first().is_some_and(u8::is_ascii_digit);
        if let Some(behind) = line.get(end + 1..).filter(|_| is_number) {
            let unit = behind.find(|letter: char| !letter.is_ascii_alphabetic());
            let unit = &behind[..unit.unwrap_or(behind.len())];
            if unit == "B" || unit.len() == 3 && unit.ends_with("iB") {
                end += 1 + unit.len();
                // What stands right behind the unit belongs to it.
                end += line[end..].find(' ').unwrap_or(line.len() - end);
            }
        }
        rest = line.get(end + 1..);
        Some(&line[..end])
    })
}

/// Says something on standard error: in one line, as programs search it, but at a terminal broken so that it can be read.
/// Nobody may be looking.
pub fn tell(text: &str) {
    let mut out = io::stderr().lock();
    let _ = match out.is_terminal() {
        true => text
            .lines()
            .try_for_each(|line| writeln!(out, "{}", wrapped(line, SET_IN))),
        false => writeln!(out, "{text}"),
    };
}

/// How far the rest of a message is set in.
const SET_IN: usize = 2;

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
        let sizes = wrapped(&format!("{} 16.0 MiB, and", "x".repeat(74)), 0);
        assert!(sizes.ends_with("\n16.0 MiB, and"), "{sizes}");
        let path = "x".repeat(100);
        assert_eq!(wrapped(&format!("at {path}"), 3), format!("at {path}"));
    }
}
