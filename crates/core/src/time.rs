//! Moments, as milliseconds since 1970, read from and written as RFC 3339.
//!
//! Agents write ISO strings, epoch seconds and epoch milliseconds; inside
//! lariat there is one type. It never asks a clock.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Time(pub i64);

const DAY: i64 = 86_400_000;
/// No time that people write is longer: an end that lies as far ahead can still be written and added to.
const LONGEST: Duration = Duration::from_secs(365_000 * 86_400);

impl Time {
    /// Reads `2026-11-15T07:33:12.654Z`, with any number of fraction digits
    /// and `Z` or a numeric offset. Anything else is `None`.
    pub fn parse<T: AsRef<[u8]> + ?Sized>(text: &T) -> Option<Time> {
        let b = text.as_ref();
        let number = |from: usize, len: usize| -> Option<i64> {
            let digits = b.get(from..from + len)?;
            digits.iter().try_fold(0i64, |n, d| d.is_ascii_digit().then(|| n * 10 + i64::from(d - b'0')))
        };
        let is = |at: usize, any: &[u8]| b.get(at).is_some_and(|c| any.contains(c));
        if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
            return None;
        }
        let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
        let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 24 || minute > 59 || second > 60 {
            return None;
        }
        let mut at = 19;
        let mut millis = 0;
        if is(at, b".") {
            at += 1;
            let mut scale = 100;
            while let Some(d) = b.get(at).filter(|d| d.is_ascii_digit()) {
                millis += i64::from(d - b'0') * scale;
                scale /= 10;
                at += 1;
            }
        }
        let offset = match b.get(at)? {
            b'Z' | b'z' if at + 1 == b.len() => 0,
            sign @ (b'+' | b'-') if at + 6 == b.len() && is(at + 3, b":") => {
                let minutes = number(at + 1, 2)? * 60 + number(at + 4, 2)?;
                if *sign == b'+' { minutes } else { -minutes }
            }
            _ => return None,
        };
        let seconds = (hour * 60 + minute - offset) * 60 + second;
        Some(Time(days_from_civil(year, month, day) * DAY + seconds * 1000 + millis))
    }

    /// Whether this is less than so many milliseconds away from `now`, which is the moment of a question: what happens
    /// while that is being answered lies behind it.
    pub fn is_near(self, now: Time, milliseconds: u64) -> bool {
        now.0.abs_diff(self.0) < milliseconds
    }

    /// How long before `now` this was, in one short word: `12s`, `5m`, `3h`, `9d`.
    pub fn age(self, now: Time) -> String {
        let seconds = (now.0.saturating_sub(self.0)).max(0) / 1000;
        match seconds {
            0..60 => format!("{seconds}s"),
            60..3600 => format!("{}m", seconds / 60),
            3600..172_800 => format!("{}h", seconds / 3600),
            _ => format!("{}d", seconds / 86_400),
        }
    }
}

// Howard Hinnant's civil calendar arithmetic, years counted from March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

/// A moment as text, without an allocation: there are many in a listing.
struct Text {
    bytes: [u8; 24],
    len: usize,
}

impl Text {
    fn of(time: Time) -> Option<Text> {
        let (year, month, day) = civil_from_days(time.0.div_euclid(DAY));
        (0..=9999).contains(&year).then_some(())?;
        let of_day = time.0.rem_euclid(DAY);
        let mut text = Text { bytes: *b"0000-00-00T00:00:00.000Z", len: 24 };
        let mut put = |at: usize, digits: usize, mut n: i64| {
            for place in text.bytes[at..at + digits].iter_mut().rev() {
                *place = b'0' + (n % 10) as u8;
                n /= 10;
            }
        };
        put(0, 4, year);
        put(5, 2, month);
        put(8, 2, day);
        put(11, 2, of_day / 3_600_000);
        put(14, 2, of_day / 60_000 % 60);
        put(17, 2, of_day / 1000 % 60);
        put(20, 3, of_day % 1000);
        if of_day % 1000 == 0 {
            text.bytes[19] = b'Z';
            text.len = 20;
        }
        Some(text)
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Text::of(*self) {
            Some(text) => f.write_str(text.as_str()),
            None => write!(f, "{} ms since 1970", self.0), // a year that RFC 3339 cannot write
        }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match Text::of(*self) {
            Some(text) => s.serialize_str(text.as_str()),
            None => s.serialize_none(),
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Time::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("not a time: {text}")))
    }
}

/// A time as people read it.
pub fn lasting(time: Duration) -> String {
    if time.is_zero() { "0s".into() } else { format!("{time:?}") }
}

/// A time as people write it: `500ms`, `3s`, `2m`, `1h`, `7d`, or seconds without a unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err("a time like 500ms, 3s, 2m, 1h or 7d".into()),
    };
    let number: f64 = number.parse().map_err(|_| "a time like 500ms, 3s, 2m, 1h or 7d".to_owned())?;
    let asked = Duration::try_from_secs_f64(number * seconds).ok().filter(|asked| *asked <= LONGEST);
    asked.ok_or_else(|| "no more than 365000d".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_the_agents_write() {
        assert_eq!(Time::parse("2026-11-15T07:33:12.654Z"), Some(Time(1_794_727_992_654)));
        assert_eq!(Time::parse("2026-11-15T07:48:44.115374482Z"), Some(Time(1_794_728_924_115)));
        assert_eq!(Time::parse("2026-11-15T09:33:12+02:00"), Some(Time(1_794_727_992_000)));
        for bad in ["", "yesterday", "2026-13-01T00:00:00Z", "2026-11-15T07:33:12", "2026-11-15T07:33:12.1"] {
            assert_eq!(Time::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn ages_read_short() {
        let now = Time(10_000_000_000);
        let ages = [0, 59_000, 60_000, 7_200_000, 172_800_000].map(|ago| Time(now.0 - ago).age(now));
        assert_eq!(ages, ["0s", "59s", "1m", "2h", "2d"]);
        assert_eq!(Time(now.0 + 5000).age(now), "0s", "a clock that ran backwards gives no negative age");
    }

    #[test]
    fn what_happens_while_a_question_is_answered_is_near_it() {
        let near = |at: i64| Time(at).is_near(Time(1000), 10);
        assert_eq!(
            [990, 991, 1000, 1009, 1010, i64::MIN, i64::MAX].map(near),
            [false, true, true, true, false, false, false]
        );
    }

    #[test]
    fn an_end_that_is_asked_for_can_be_written() {
        let longest = duration("365000d").unwrap();
        let end = Time(1_794_727_992_654 + i64::try_from(longest.as_millis()).unwrap());
        assert_eq!(Time::parse(&end.to_string()), Some(end));
        for bad in ["365001d", "99999999999999d", "1000000000000000000000000000000s", "", ".", "1e5s", "-1s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(ms in -62_135_596_800_000i64..253_402_300_799_999) {
            prop_assert_eq!(Time::parse(&Time(ms).to_string()), Some(Time(ms)));
        }
    }
}
