//! Reads values: switches, numbers, lengths of time, as Go writes them and as people do.

use super::table::Kind;
use std::time::Duration;

/// Units of Go's durations, in nanoseconds; the longer name first where one begins another.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60.0 * 1e9),
    ("h", 3_600.0 * 1e9),
];

/// The longest time that is taken, seconds: some thirty years, so that no sum of two overflows anything.
const SECONDS_MAX: f64 = 1e9;

/// Checks a value of this kind; the error is the remedy.
pub(super) fn check(kind: Kind, text: &str) -> Result<(), &'static str> {
    match kind {
        Kind::Switch => switch(text).map(drop),
        Kind::Number => number(text).map(drop),
        Kind::Duration => duration(text).map(drop),
        Kind::Text => Ok(()),
    }
}

/// True or false, in Go's spellings.
pub(super) fn switch(text: &str) -> Result<bool, &'static str> {
    match text.trim() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("give true or false"),
    }
}

/// Reads a whole number that is not negative, with underscores and as hex where Go's flags take it so.
pub(super) fn number(text: &str) -> Result<u64, &'static str> {
    let digits = text.trim().replace('_', "");
    let read = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    read.map_err(|_| "give a whole number that is not negative, with neither exponent nor unit")
}

/// A length of time: `1h30m`, `1.5h`, `300ms`, `0`; also `5min` or `2 days`.
pub(crate) fn duration(text: &str) -> Result<Duration, &'static str> {
    let text = text.trim();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let parsed = of_go(text).or_else(|| humantime::parse_duration(text).ok());
    let parsed = parsed.filter(|parsed| parsed.as_secs_f64() <= SECONDS_MAX);
    parsed.ok_or("give a length of time like 300ms, 5m or 1h30m, at most thirty years")
}

fn of_go(text: &str) -> Option<Duration> {
    let (mut rest, mut nanoseconds) = (text, 0.0);
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let count: f64 = rest[..end].parse().ok()?;
        let (unit, worth) = UNITS.iter().find(|(unit, _)| {
            let after = rest[end..].strip_prefix(unit);
            after.is_some_and(|after| after.is_empty() || after.starts_with(|letter: char| letter.is_ascii_digit()))
        })?;
        nanoseconds += count * worth;
        rest = &rest[end + unit.len()..];
    }
    let seconds = nanoseconds / 1e9;
    (!text.is_empty() && seconds <= SECONDS_MAX).then(|| Duration::from_nanos(nanoseconds.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_go_reads_them() {
        for (text, millis) in
            [("1h30m", 5_400_000), ("1.5h", 5_400_000), ("300ms", 300), ("0", 0), ("0s", 0), ("5min", 300_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(duration("60000000000ns"), Ok(Duration::from_secs(60)));
        for text in ["", "5", "-5m", "5x", "m5", "1e9h", "9999999999h", "1..5s", "5 m x"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
