//! Points in time as text, in UTC.

use loamfs_fs::types::Timestamp;

/// `2026-11-21 11:55:01`, as `ls -l` wants it.
pub fn short(time: Timestamp) -> String {
    let days = time.seconds.div_euclid(86_400);
    let second = time.seconds.rem_euclid(86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

/// With the fraction and the zone, as `stat` wants it.
pub fn long(time: Timestamp) -> String {
    format!("{}.{:09} UTC", short(time), time.nanos)
}

/// Year, month and day of a day counted from 1970-01-01, by the proleptic Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Years are counted from March on, so that the leap day is a year's last.
    const DAYS_400_YEARS: i64 = 146_097;
    const DAYS_TO_1970: i64 = 719_468;
    let shifted = days.saturating_add(DAYS_TO_1970);
    let era = shifted.div_euclid(DAYS_400_YEARS);
    let of_era = shifted.rem_euclid(DAYS_400_YEARS);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> String {
        short(Timestamp { seconds, nanos: 0 })
    }

    #[test]
    fn known_days() {
        assert_eq!(at(0), "1970-01-01 00:00:00");
        assert_eq!(at(-1), "1969-12-31 23:59:59");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(at(1_000_000_000), "2001-09-09 01:46:40");
    }

    #[test]
    fn absurd_times_do_not_overflow() {
        at(i64::MAX);
        at(i64::MIN);
    }
}
