//! Why quorum reads, wall clocks and stopping in time are not enough: eight stories, each told twice, broken and repaired.
//!
//! Every line is what a subject did or answered when it was played: the broken forms of [`crate::published`], and their
//! replacements in this crate. The verdict is computed from what happened; nothing here knows how a story ends.
//!
//! `hustings play vanishing-value` shows one, `docs/why-quorum-reads-are-not-enough.md` tells them all.
//!
//! Source: "Leader and Followers", "Why quorum reads and writes are not enough".

mod clocks;
mod effects;
mod registers;

use crate::store::{Answer, CandidateId, Profile, Request};
use crate::store_model::{Desk, StoreModel};
use std::fmt;
use std::time::Duration;

/// Microseconds in a second.
const SECOND: u64 = 1_000_000;
/// The time to live of all leases here.
const TTL: Duration = Duration::from_secs(10);

/// The result of a telling.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// The property of the story held, for this reason.
    Holds(String),
    /// The property of the story was broken, in this way.
    Broken(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Holds(what) => write!(f, "HOLDS   {what}"),
            Verdict::Broken(what) => write!(f, "BROKEN  {what}"),
        }
    }
}

/// One telling of a story.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    /// The form that was played.
    pub subject: &'static str,
    /// The events, in order.
    pub lines: Vec<String>,
    /// Whether the property held, and why.
    pub verdict: Verdict,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.subject)?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        writeln!(f, "{}", self.verdict)
    }
}

/// A story with its two tellings.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Story {
    /// As `hustings play` knows it.
    pub name: &'static str,
    /// The property that must hold.
    pub must_hold: &'static str,
    /// The form that is usually built.
    pub broken: Run,
    /// The replacement in this crate.
    pub repaired: Run,
}

/// All stories, in the order in which they are best read.
pub fn all() -> Vec<Story> {
    vec![
        registers::vanishing_value(),
        registers::two_winners(),
        registers::early_master(),
        clocks::sleeping_holder(),
        clocks::stepped_clock(),
        clocks::suspended_host(),
        effects::late_kill(),
        effects::first_write(),
    ]
}

/// A telling in the making.
struct Teller {
    subject: &'static str,
    lines: Vec<String>,
}

impl Teller {
    fn of(subject: &'static str) -> Teller {
        Teller { subject, lines: Vec::new() }
    }

    /// At true time `micros`, this happened.
    fn at(&mut self, micros: u64, what: impl fmt::Display) {
        self.lines.push(format!("{:>6.1} s  {what}", micros as f64 / SECOND as f64));
    }

    /// Notes an event whose time does not matter.
    fn says(&mut self, what: impl fmt::Display) {
        self.lines.push(format!("  {what}"));
    }

    fn end(self, holds: bool, held: impl fmt::Display, broke: impl fmt::Display) -> Run {
        let verdict = match holds {
            true => Verdict::Holds(held.to_string()),
            false => Verdict::Broken(broke.to_string()),
        };
        Run { subject: self.subject, lines: self.lines, verdict }
    }
}

fn a() -> CandidateId {
    CandidateId::named("a")
}

fn b() -> CandidateId {
    CandidateId::named("b")
}

/// Asks the store on a candidate's behalf, at true time `now`.
fn ask(store: &mut StoreModel, desk: &mut Desk, request: Request, now: u64) -> Answer {
    let command = desk.command(request);
    // Only a broken connection has no reply, and none is broken here.
    store.execute(&command, now).map_or(Answer::Unknown, |reply| desk.on_reply(&command, reply).1)
}

fn desk(who: CandidateId, profile: Profile) -> Desk {
    Desk::new(who, profile, 0)
}

/// Describes an answer in words.
fn heard(answer: &Answer) -> String {
    match answer {
        Answer::Won(token) => format!("you lead, token {token}"),
        Answer::Waiting(_) => "somebody else leads: you wait".to_owned(),
        Answer::Renewed => "renewed".to_owned(),
        Answer::Gone => "you hold nothing".to_owned(),
        Answer::Refused(why) => format!("refused: {why}"),
        Answer::Unknown => "no answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Goal: the broken form of each story breaks, and its replacement here holds.
    #[test]
    fn each_story_is_broken_and_repaired() {
        let stories = all();
        let names: BTreeSet<&str> = stories.iter().map(|story| story.name).collect();
        assert_eq!((stories.len(), names.len()), (8, 8));
        for Story { name, broken, repaired, .. } in &stories {
            assert!(matches!(broken.verdict, Verdict::Broken(_)), "{name}:\n{broken}");
            assert!(matches!(repaired.verdict, Verdict::Holds(_)), "{name}:\n{repaired}");
            assert!(broken.lines.len() > 1 && repaired.lines.len() > 1, "{name} tells nothing");
        }
    }
}
