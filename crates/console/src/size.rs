//! Sizes on the command line, such as `8G`, and sizes for people to read.

use unit_prefix::NumberPrefix;

/// Reads a size in bytes, with an optional unit K, M, G, T or P (powers of 1,024; `KiB` and so on
/// mean the same).
///
/// # Errors
///
/// A sentence that says what a size looks like.
pub fn parse(text: &str) -> Result<u64, String> {
    let bad =
        || format!("`{text}` is not a size; write a whole number with K, M, G or T, such as 8G");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let mut letters = unit.chars();
    let shift = match letters.next().map(|letter| letter.to_ascii_uppercase()) {
        None | Some('B') => 0,
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        Some('P') => 50,
        Some(_) => return Err(bad()),
    };
    let rest = letters.as_str();
    if !(rest.is_empty() || shift > 0 && rest == "iB") {
        return Err(bad());
    }
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("`{text}` is larger than any size can be"))
}

/// As [`parse`], for sizes that have to fit in 32 bits.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_u32(text: &str) -> Result<u32, String> {
    u32::try_from(parse(text)?)
        .map_err(|_| format!("`{text}` is too large here; give less than 4G"))
}

/// As [`parse`], in whole units of so many bytes: rounded down.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_units(text: &str, unit: u32) -> Result<u64, String> {
    let unit = u64::from(unit.max(1));
    parse(text).map(|bytes| bytes / unit * unit)
}

/// A size for people: `1.5 GiB`.
pub fn human(bytes: u64) -> String {
    match NumberPrefix::binary(bytes as f64) {
        NumberPrefix::Standalone(_) => format!("{bytes} B"),
        NumberPrefix::Prefixed(prefix, number) => format!("{number:.1} {prefix}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        assert_eq!(parse("512"), Ok(512));
        assert_eq!(parse("16K"), Ok(16 << 10));
        assert_eq!(parse("8g"), Ok(8 << 30));
        assert_eq!(parse("1MiB"), Ok(1 << 20));
        assert_eq!(parse("7B"), Ok(7));
        assert_eq!(parse_units("8195", 4096), Ok(8192));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "G",
            "8X",
            "-1",
            "1.5G",
            "8KB",
            "BiB",
            "99999999999P",
            " 8G",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse_u32("4G").is_err());
    }

    #[test]
    fn people_see_one_decimal() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1536), "1.5 KiB");
        assert_eq!(human(320 << 20), "320.0 MiB");
        assert_eq!(human(8 << 30), "8.0 GiB");
        assert_eq!(human(u64::MAX), "16.0 EiB");
    }
}
