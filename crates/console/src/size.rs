//! Sizes on the command line, such as `8G`, and sizes for people to read.

pub use loamfs_format::text::human;

/// Digits behind the point that a size may have.
const DIGITS_MAX: usize = 9;

/// Reads a size in bytes, with an optional unit K, M, G, T or P (powers of 1,024; `KiB` and so on
/// mean the same). `1.5G` is rounded down to whole bytes. `1GB` is refused: to some it is 10^9 bytes.
///
/// # Errors
///
/// A sentence that says what a size looks like.
pub fn parse(text: &str) -> Result<u64, String> {
    let bad =
        || format!("`{text}` is not a size; write a number with K, M, G or T, such as 8G or 1.5T");
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let digits = text.bytes().take_while(is_of_number).count();
    let (number, unit) = text.split_at(digits);
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > DIGITS_MAX {
        return Err(bad());
    }
    let too_large = || format!("`{text}` is larger than any size can be");
    let parts = 10_u64.pow(part.len() as u32);
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let part: u64 = part.parse().map_err(|_| bad())?;
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
    match letters.as_str() {
        "B" | "b" if shift > 0 => {
            let letter = unit.get(..1).unwrap_or_default().to_ascii_uppercase();
            return Err(format!(
                "`{text}` may mean powers of 1,000 or of 1,024; write {number}{letter} for those of 1,024"
            ));
        }
        rest if !(rest.is_empty() || shift > 0 && rest == "iB") => return Err(bad()),
        _ => {}
    }
    let part = u128::from(part) * (1 << shift) / u128::from(parts);
    let whole = u128::from(whole) * (1 << shift);
    u64::try_from(whole + part).map_err(|_| too_large())
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

/// A number and what is counted, in the right number: `1 read`, `2 reads`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    let what = if number == 1 { one } else { many };
    format!("{number} {what}")
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
        assert_eq!(parse("1.5G"), Ok(3 << 29));
        assert_eq!(parse("0.3K"), Ok(307), "rounded down");
        assert_eq!(parse("1.000000001T"), Ok((1 << 40) + 1099));
        assert_eq!(parse("18446744073709551615"), Ok(u64::MAX));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "G",
            "8X",
            "-1",
            "1.G",
            ".5G",
            "1.2.3G",
            "1.0123456789G",
            "1,5G",
            "8KB",
            "8kb",
            "BiB",
            "99999999999P",
            " 8G",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse_u32("4G").is_err());
        assert!(parse("1TB").unwrap_err().contains("write 1T "));
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!(count(1, "read", "reads"), "1 read");
        assert_eq!(count(0, "read", "reads"), "0 reads");
    }
}
