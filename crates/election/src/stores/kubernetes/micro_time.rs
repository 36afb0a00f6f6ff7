//! Times as Kubernetes writes them: `2026-11-22T10:00:00.000000Z`. Written for others, never compared with a clock.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 24 * 3600;

/// The time of now by the wall clock, and later than `last` in any case.
pub(super) fn after(last: Option<&str>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_micros()).unwrap_or_default();
    let text = written(now);
    match last {
        // Of one form, so the order of texts is the order of times.
        Some(last) if last.len() == text.len() && *last >= *text => {
            // Behind the last moment of year 9999, which somebody else wrote, there is none of this form.
            let next = parsed(last).map(|last| written(last + 1)).filter(|next| next.len() == text.len());
            next.unwrap_or(text)
        }
        _ => text,
    }
}

/// Microseconds since 1970, as a date of the proleptic Gregorian calendar.
///
/// Source: Hinnant, "chrono-compatible low-level date algorithms".
fn written(micros: u64) -> String {
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let (days, second) = (seconds / DAY + 719_468, seconds % DAY);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// The other way round; `None` for what is no such time.
fn parsed(text: &str) -> Option<u64> {
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let is_date = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let (hour, minute, second, micros) = (part(11, 13)?, part(14, 16)?, part(17, 19)?, part(20, 26)?);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let seconds = days.checked_sub(719_468)? * DAY + hour * 3600 + minute * 60 + second;
    Some(seconds * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_kubernetes_reads_them() {
        assert_eq!(written(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(written(951_782_400_000_001), "2000-02-29T00:00:00.000001Z");
        assert_eq!(written(1_795_341_599_999_999), "2026-11-22T09:59:59.999999Z");
        for micros in (0..253_402_300_799_000_000).step_by(86_399_999_999_777) {
            assert_eq!(parsed(&written(micros)), Some(micros));
        }
    }

    #[test]
    fn a_time_is_always_later_than_the_last() {
        let last = "2999-12-31T23:59:59.999999Z";
        assert_eq!(after(Some(last)), "3000-01-01T00:00:00.000000Z");
        for garbage in ["", "yesterday", "9999-99-99T99:99:99.999999Z", "zzzz-12-31T23:59:59.999999Z"] {
            assert!(after(Some(garbage)).starts_with("20"), "{garbage}");
        }
        let end = "9999-12-31T23:59:59.999999Z";
        assert_eq!(after(Some(end)).len(), end.len(), "no year has five digits there");
    }
}
