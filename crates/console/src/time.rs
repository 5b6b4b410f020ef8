//! Points in time as text, in UTC.

use jiff::Timestamp;

/// `2026-11-21 11:55:01`, as `ls -l` wants it, of seconds since 1970. Times beyond the years that a calendar counts are
/// shown as these seconds: `@9223372036854775807`.
pub fn short(seconds: i64) -> String {
    match Timestamp::from_second(seconds) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => format!("@{seconds}"),
    }
}

/// With the fraction and the zone, as `stat` wants it.
pub fn long(seconds: i64, nanos: u32) -> String {
    format!("{}.{nanos:09} UTC", short(seconds))
}

/// How long something took, of nanoseconds: `12.3 us`.
pub fn took(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ => format!("{:.1} s", nanos as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        assert_eq!(short(0), "1970-01-01 00:00:00");
        assert_eq!(short(-1), "1969-12-31 23:59:59");
        assert_eq!(short(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(short(1_735_689_599), "2024-12-31 23:59:59");
        assert_eq!(long(1_000_000_000, 7), "2001-09-09 01:46:40.000000007 UTC");
    }

    #[test]
    fn times_have_their_unit() {
        assert_eq!(
            [took(1_500), took(2_000_000), took(3_000_000_000)],
            ["1.5 us", "2.0 ms", "3.0 s"]
        );
    }

    #[test]
    fn absurd_times_are_told_as_seconds() {
        assert_eq!(short(i64::MAX), "@9223372036854775807");
        assert_eq!(short(i64::MIN), "@-9223372036854775808");
    }
}
