//! Moments as the agents write them, told apart from the product's own reading of them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    i64::try_from(since.as_millis()).expect("a clock before the year 292,000,000")
}

/// `2026-11-15T08:00:00.000Z`.
pub fn iso(ms: i64) -> String {
    let (days, of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// The day, counted from 1970-01-01, as a date of the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// How long ago the file was last touched.
pub fn age(path: &std::path::Path) -> Duration {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path).expect("a file");
    let touched = meta.ctime() * 1000 + meta.ctime_nsec() / 1_000_000;
    Duration::from_millis(u64::try_from(now() - touched).unwrap_or(0))
}

#[test]
fn moments_are_written_as_the_agents_do() {
    assert_eq!(iso(0), "1970-01-01T00:00:00.000Z");
    assert_eq!(iso(1_794_728_164_588), "2026-11-15T07:36:04.588Z");
    assert_eq!(iso(4_102_444_800_000), "2100-01-01T00:00:00.000Z");
}
