//! Past tenures and how each ended: [`History`], bounded, as text that any store can hold.
//!
//! A winner writes its own name and token, and the end of its predecessor: the note that it left, or the time since
//! anybody heard of it. So "why did the leader change last night" has an answer after the leader is gone. The note of the last
//! leader says how its own tenure ended before anybody has won since.

use crate::store::{CandidateId, Note};
use crate::token::Token;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Number of tenures that are kept.
pub const KEPT: usize = 32;
/// The end of the year 9999, seconds since 1970: what comes later is no time that anybody can show.
const LATEST: u64 = 253_402_300_799;
/// A silence below this is none: its winner came when the tenure before was over, and has not waited for it.
const SHORTEST: Duration = Duration::from_millis(50);
/// Seconds by which the clocks of two winners may differ: one that won sooner than so before another is not taken for a later one.
const CLOCKS_DIFFER: u64 = 60;
/// The longest name or reason that is kept, in characters.
const LONGEST: usize = 200;

/// The end of the tenure before.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// There was none that is known.
    First,
    /// It left a note, which says this.
    Noted(String),
    /// It left no note; nobody had heard of it for this long.
    Silent(Duration),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::First => write!(f, "first known"),
            End::Noted(because) => because.fmt(f),
            End::Silent(time) if *time < SHORTEST => write!(f, "left no note"),
            End::Silent(time) => write!(f, "silent for {:.1} s", time.as_secs_f64()),
        }
    }
}

/// A tenure, with the end of the one before it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Tenure {
    /// Fencing token of the tenure; higher than that of every tenure before.
    pub token: Token,
    /// The candidate that led.
    pub who: CandidateId,
    /// The end of the tenure before it.
    pub before: End,
    /// Time at which it was won, by its winner's own clock, in seconds since 1970. For people: nothing is decided by it.
    pub since_unix_seconds: Option<u64>,
}

/// The last tenures of an election, oldest first.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct History {
    tenures: VecDeque<Tenure>,
    /// The note of the last tenure, where it has left one: it is not written here, but beside.
    last_note: Option<String>,
    /// Number of lines in its place that are none of a history.
    strange_lines: usize,
}

impl History {
    /// A winner writes itself down, with the moment at which it won, in seconds since 1970. A token that is there already changes nothing,
    /// so a repeated write is harmless; nor does one that is lower than the last: a later winner has said how the tenure before its own
    /// ended, and would be taken for the earlier one. Unless that one had won a minute before or earlier, as far as the winners' clocks say:
    /// then tokens fell, as those of a store do into which another one was copied, and what follows is a history of its own.
    /// A note of an earlier tenure than the last one says nothing: it stays in its place when nobody leaves another.
    pub fn on_won(&mut self, token: Token, who: CandidateId, note: Option<&Note>, silence: Duration, at: u64) {
        let at = at.min(LATEST);
        if self.tenures.iter().any(|tenure| tenure.token == token && tenure.since_unix_seconds == Some(at)) {
            return;
        }
        let last = self.tenures.back();
        let is_of_before = |last: &&Tenure| last.since_unix_seconds.is_none_or(|since| since + CLOCKS_DIFFER < at);
        let first_before = match last {
            None => Some(Token::default()),
            Some(last) if token > last.token => Some(last.token),
            Some(last) if token < last.token && is_of_before(&last) => None,
            Some(_) => return,
        };
        let is_before = |note: &&Note| first_before.is_some_and(|first| (first..token).contains(&note.token));
        let before = match note.filter(is_before) {
            Some(note) => End::Noted(note.because.clone()),
            None if self.tenures.is_empty() || first_before.is_none() => End::First,
            None => End::Silent(silence),
        };
        self.tenures.push_back(Tenure { token, who, before, since_unix_seconds: Some(at) });
        while self.tenures.len() > KEPT {
            self.tenures.pop_front();
        }
    }

    /// Takes in the note that stands beside the history: it counts if it is that of the last tenure.
    #[must_use]
    pub fn with_note(mut self, note: Option<&Note>) -> History {
        let last = self.tenures.back().map(|last| last.token);
        self.last_note = note.filter(|note| last == Some(note.token)).map(|note| note.because.clone());
        self
    }

    /// The end of the last tenure, as it has noted it itself; `None` while it lasts, and where it left no note.
    pub fn last_note(&self) -> Option<&str> {
        self.last_note.as_deref()
    }

    /// The tenures, oldest first.
    pub fn tenures(&self) -> impl DoubleEndedIterator<Item = &Tenure> {
        self.tenures.iter()
    }

    /// Number of lines that stood in the history's place and were written by something else.
    pub fn strange_lines(&self) -> usize {
        self.strange_lines
    }

    /// Reads what `Display` writes. Lines that somebody else wrote, and cannot be read, are left out and counted.
    pub fn parse(text: &str) -> History {
        let mut tenures: VecDeque<Tenure> = text.lines().filter_map(parse_line).collect();
        let strange_lines = text.lines().filter(|line| !line.is_empty()).count() - tenures.len();
        while tenures.len() > KEPT {
            tenures.pop_front();
        }
        History { tenures, last_note: None, strange_lines }
    }
}

/// One line per tenure: token, who, how the one before ended, since when; separated by tabs.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Tenure { token, who, before, since_unix_seconds } in &self.tenures {
            let (kind, words) = match before {
                End::First => ("first", String::new()),
                End::Noted(because) => ("noted", one_field(because)),
                End::Silent(time) => ("silent", time.as_millis().to_string()),
            };
            write!(f, "{token}\t{}\t{kind}\t{words}", one_field(&who.0))?;
            since_unix_seconds.map_or(Ok(()), |seconds| write!(f, "\t{seconds}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

/// A text without tabs and line ends, cut to what is kept.
fn one_field(text: &str) -> String {
    text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn parse_line(line: &str) -> Option<Tenure> {
    let mut fields = line.split('\t');
    let (token, who) = (fields.next()?.parse().ok()?, CandidateId::named(fields.next()?));
    let before = match (fields.next()?, fields.next()?) {
        ("first", _) => End::First,
        ("noted", because) => End::Noted(because.to_owned()),
        ("silent", millis) => End::Silent(Duration::from_millis(millis.parse().ok()?)),
        _ => return None,
    };
    let since_unix_seconds = fields.next().and_then(|seconds| seconds.parse().ok()).filter(|at| *at <= LATEST);
    Some(Tenure { token, who, before, since_unix_seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn won(history: &mut History, number: u64, note: Option<&str>) {
        let note = note.map(|because| Note {
            token: Token::new(number - 1),
            because: because.into(),
            heir: None,
            has_stopped: true,
        });
        history.on_won(
            Token::new(number),
            CandidateId::named(format!("c{number}")),
            note.as_ref(),
            Duration::from_millis(9_800),
            1_700_000_000 + number,
        );
    }

    #[test]
    fn a_history_says_why_the_leader_changed() {
        let mut history = History::default();
        won(&mut history, 1, None);
        won(&mut history, 2, Some("leaving: deploy"));
        won(&mut history, 3, None);
        let ends: Vec<String> = history.tenures().map(|tenure| tenure.before.to_string()).collect();
        assert_eq!(ends, ["first known", "leaving: deploy", "silent for 9.8 s"]);
        assert_eq!(History::parse(&history.to_string()), history);
        let strange = History::parse(&format!("something else\n\n{history}"));
        assert!(strange.strange_lines() == 1 && strange.tenures().eq(history.tenures()), "{strange:?}");
    }

    /// Goal: a reason is told of the tenure that it is about, and of no later one. Method: the note of the first stays where it is
    /// while the second and the third end without one; a winner that has not waited says nothing of a silence.
    #[test]
    fn a_note_counts_only_for_its_own_tenure() {
        let mut history = History::default();
        let asked = Note { token: Token::new(1), because: "asked".into(), heir: None, has_stopped: true };
        for (number, silent_millis) in [(1, 0), (2, 0), (3, 9_800), (4, 0)] {
            let (token, who) = (Token::new(number), CandidateId::named("a"));
            history.on_won(token, who, Some(&asked), Duration::from_millis(silent_millis), 1_700_000_000);
        }
        let ends: Vec<String> = history.tenures().skip(1).map(|tenure| tenure.before.to_string()).collect();
        assert_eq!(ends, ["asked", "silent for 9.8 s", "left no note"]);
        assert_eq!(history.clone().with_note(Some(&asked)).last_note(), None, "it is not the last one's");
        let left = Note { token: Token::new(4), because: "leaving: told to stop".into(), ..asked };
        assert_eq!(history.with_note(Some(&left)).last_note(), Some("leaving: told to stop"));
    }

    #[test]
    fn a_history_is_bounded_and_a_repeated_write_changes_nothing() {
        let mut history = History::default();
        for number in 1..=100 {
            won(&mut history, number, None);
            won(&mut history, number, Some("again"));
        }
        assert_eq!(history.tenures().count(), KEPT);
        assert_eq!(history.tenures().last().map(|tenure| tenure.token), Some(Token::new(100)));
    }

    /// Goal: a winner that comes to write when a later one has written is not taken for the later one. Method: the second of three is late.
    #[test]
    fn a_winner_that_is_too_late_writes_nothing() {
        let mut history = History::default();
        won(&mut history, 1, None);
        won(&mut history, 3, Some("leaving: deploy"));
        won(&mut history, 2, None);
        let tokens: Vec<u64> = history.tenures().map(|tenure| tenure.token.number).collect();
        assert_eq!(tokens, [1, 3]);
    }

    /// Goal: tokens that fall end no history: those of a store into which another one was copied begin low again, and a line of somebody
    /// else may have any. Method: an hour after a million tenures the store gives out its third token, and its fourth.
    #[test]
    fn a_history_goes_on_where_tokens_fell() {
        for strange in ["1000000\tc1\tnoted\tleaving\t1700000000\n", "18446744073709551615\tx\tsilent\t0\n"] {
            let mut history = History::parse(strange);
            for number in [3, 4] {
                let who = CandidateId::named(format!("c{number}"));
                history.on_won(Token::new(number), who, None, Duration::from_secs(7), 1_700_003_600);
            }
            let told: Vec<_> = history.tenures().skip(1).map(|it| (it.token.number, it.before.to_string())).collect();
            assert_eq!(told, [(3, "first known".to_owned()), (4, "silent for 7.0 s".to_owned())]);
        }
    }

    /// Goal: a repeated write is harmless, whatever the winners' clocks say. Method: the first of two winners has a clock that is ahead, and
    /// writes again behind the second.
    #[test]
    fn a_repeated_write_behind_a_later_winner_changes_nothing() {
        let mut history = History::default();
        for (number, at) in [(5, 2_090), (6, 2_010), (5, 2_090)] {
            history.on_won(Token::new(number), CandidateId::named("a"), None, Duration::ZERO, at);
        }
        let tokens: Vec<u64> = history.tenures().map(|tenure| tenure.token.number).collect();
        assert_eq!(tokens, [5, 6]);
    }

    #[test]
    fn text_of_somebody_else_is_left_out_and_reasons_stay_on_their_line() {
        let strange = History::parse("{\"json\": true}\n7\n\n8\tb\tsilent\tx\n");
        assert!(strange.tenures().next().is_none() && strange.strange_lines() == 3, "{strange:?}");
        let mut history = History::default();
        won(&mut history, 2, Some("two\nlines\tand a tab"));
        assert_eq!(history.to_string(), "2\tc2\tnoted\ttwo lines and a tab\t1700000002\n");
    }
}
