//! Beliefs that rivals may have had: [`judge`], over [`Tenure`]s and [`Write`]s.
//!
//! A rival believes that it holds a lock or leads from the answer that told it so, until it sends the request that gives it up
//! or its lease may have ended by its own clock, which counts from the moment when the last answered renewal was *sent*. A tenure
//! is confirmed when a write under its guard, "my key was created at this revision", was done.
//!
//! | property | seen in |
//! |---|---|
//! | one holder at a time | confirmed tenures do not overlap, in time |
//! | tokens never go backwards | the writes of holders, by revision: a resource behind the lock would see this |
//! | a token is one rival's | the tenures |
//! | who writes as a holder is the first in its queue | the keys of all candidates, by revision |
//! | no acknowledged write is lost, none is done twice, none that was refused, none comes from nowhere | the writes |
//!
//! [`crate::rivals`] convicts on the spot what needs no comparison: a lock that is gone, or a lease that is, before its time.

use crate::clients::Outcome;
use crate::verdict::Events;
use hustings_properties::Violation;
use std::collections::{BTreeMap, BTreeSet};

/// A queue of candidates, of which the first is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Queue {
    /// The lock: `Lock` and `Unlock`.
    Lock,
    /// The election: `Campaign`, `Proclaim` and `Resign`.
    Election,
}

impl Queue {
    /// Both queues, in the order of reports.
    pub const ALL: [Queue; 2] = [Queue::Lock, Queue::Election];

    /// Name of the lock or the election, as the servers know it.
    pub fn name(self) -> &'static str {
        match self {
            Queue::Lock => "rivals/lock",
            Queue::Election => "rivals/election",
        }
    }

    /// The prefix of its candidates' keys.
    pub fn prefix(self) -> String {
        format!("{}/", self.name())
    }

    /// The key that only its holder writes.
    pub fn guarded(self) -> &'static str {
        match self {
            Queue::Lock => "guarded/lock",
            Queue::Election => "guarded/election",
        }
    }
}

/// A time in which a rival believed that it was in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tenure {
    /// The lock or the election.
    pub queue: Queue,
    /// Number of the rival.
    pub rival: u64,
    /// Creation revision of its key.
    pub token: i64,
    /// Moment of the answer that told it so, in microseconds since the run began.
    pub began: u64,
    /// End of its belief, in microseconds since the run began.
    pub ended: u64,
}

/// A write under the guard of a tenure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// The lock or the election.
    pub queue: Queue,
    /// Number of the rival.
    pub rival: u64,
    /// Creation revision of its key.
    pub token: i64,
    /// Value that was to be written: no other write has it.
    pub value: u64,
    /// The end of the write.
    pub outcome: Outcome,
}

/// Judges what rivals believed and wrote by what a member tells of all revisions.
pub fn judge(tenures: &[Tenure], writes: &[Write], events: &Events) -> Vec<Violation> {
    let written: BTreeMap<u64, &Write> = writes.iter().map(|write| (write.value, write)).collect();
    let mut violations = by_revision(&written, events);
    violations.extend(acknowledged(writes, events));
    let done = writes.iter().filter(|write| matches!(write.outcome, Outcome::Done(_)));
    let confirmed: BTreeSet<(Queue, i64)> = done.map(|write| (write.queue, write.token)).collect();
    for queue in Queue::ALL {
        let of_it = tenures.iter().filter(|tenure| tenure.queue == queue);
        violations.extend(one_token_each(of_it.clone()));
        violations.extend(one_at_a_time(of_it.filter(|tenure| confirmed.contains(&(queue, tenure.token)))));
    }
    violations
}

/// No two beliefs at once, whoever has which token.
fn one_at_a_time<'a>(tenures: impl Iterator<Item = &'a Tenure>) -> Vec<Violation> {
    let mut tenures: Vec<&Tenure> = tenures.collect();
    tenures.sort_by_key(|tenure| tenure.began);
    let (mut violations, mut longest) = (Vec::new(), None::<&Tenure>);
    for tenure in tenures {
        if let Some(before) = longest.filter(|before| before.ended > tenure.began) {
            let together = before.ended.min(tenure.ended).saturating_sub(tenure.began);
            let what = format!("for {} ms at least, {before:?} and {tenure:?}", together / 1_000);
            violations.push(Violation::of("one holder at a time", what));
        }
        if longest.is_none_or(|before| before.ended < tenure.ended) {
            longest = Some(tenure);
        }
    }
    violations
}

fn one_token_each<'a>(tenures: impl Iterator<Item = &'a Tenure>) -> Vec<Violation> {
    let (mut violations, mut holders) = (Vec::new(), BTreeMap::new());
    for tenure in tenures {
        if let Some(other) = holders.insert(tenure.token, tenure) {
            violations.push(Violation::of("a token is one tenure's", format!("{other:?} and {tenure:?}")));
        }
    }
    violations
}

/// A write that was acknowledged stands at the revision that its writer was told.
fn acknowledged(writes: &[Write], events: &Events) -> Vec<Violation> {
    let mut violations = Vec::new();
    for write in writes {
        let Outcome::Done(revision) = write.outcome else { continue };
        let found = events.get(&revision);
        if !found.is_some_and(|(key, value)| key == write.queue.guarded() && *value == Some(write.value)) {
            let what = format!("{write:?} was acknowledged, and at its revision there is {found:?}");
            violations.push(Violation::of("no acknowledged change is lost", what));
        }
    }
    violations
}

/// Follows both queues and the writes of their holders through all revisions.
fn by_revision(written: &BTreeMap<u64, &Write>, events: &Events) -> Vec<Violation> {
    let (mut violations, mut seen) = (Vec::new(), BTreeSet::new());
    for queue in Queue::ALL {
        let prefix = queue.prefix();
        // The candidates' keys and their creation revisions, and the newest token that anybody wrote with.
        let (mut created, mut newest) = (BTreeMap::<&str, i64>::new(), 0);
        for (revision, (key, value)) in events {
            match value {
                Some(_) if key.starts_with(&prefix) => _ = created.entry(key.as_str()).or_insert(*revision),
                None if key.starts_with(&prefix) => _ = created.remove(key.as_str()),
                Some(value) if key == queue.guarded() => {
                    let Some(write) = written.get(value) else {
                        let what = format!("{value} under {key} at {revision}");
                        violations.push(Violation::of("nothing comes from nowhere", what));
                        continue;
                    };
                    if !seen.insert(value) {
                        let what = format!("{write:?} again at revision {revision}");
                        violations.push(Violation::of("nothing is done twice", what));
                    }
                    if write.outcome == Outcome::Refused {
                        let what = format!("{write:?} stands at revision {revision}");
                        violations.push(Violation::of("what was refused is not done", what));
                    }
                    if write.token < newest {
                        let what = format!("{write:?} at revision {revision}, behind one with token {newest}");
                        violations.push(Violation::of("tokens never go backwards", what));
                    }
                    newest = newest.max(write.token);
                    let first = created.values().min();
                    if first != Some(&write.token) {
                        let what = format!("{write:?} at revision {revision}, when the first had token {first:?}");
                        violations.push(Violation::of("a holder is the first in its queue", what));
                    }
                }
                _ => {}
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_properties::Value;

    const QUEUE: Queue = Queue::Lock;

    fn tenure(rival: u64, token: i64, began: u64, ended: u64) -> Tenure {
        Tenure { queue: QUEUE, rival, token, began, ended }
    }

    fn write(rival: u64, token: i64, value: u64, outcome: Outcome) -> Write {
        Write { queue: QUEUE, rival, token, value, outcome }
    }

    /// A history in which candidates' keys come (`Some(0)`) and go (`None`), and values are written behind the lock.
    fn events(told: &[(i64, &str, Value)]) -> Events {
        let full = |key: &str| match key {
            "" => QUEUE.guarded().to_owned(),
            lease => format!("{}{lease}", QUEUE.prefix()),
        };
        told.iter().map(|(revision, key, value)| (*revision, (full(key), *value))).collect()
    }

    fn convicted(tenures: &[Tenure], writes: &[Write], told: &[(i64, &str, Value)]) -> Vec<&'static str> {
        judge(tenures, writes, &events(told)).into_iter().map(|violation| violation.property).collect()
    }

    /// Goal: nobody innocent is convicted. Method: one rival after the other, the second waiting in the queue meanwhile, and
    /// a write whose end nobody knows.
    #[test]
    fn one_after_the_other_is_as_it_should_be() {
        let told = [(2, "a", Some(0)), (3, "b", Some(0)), (4, "", Some(1)), (5, "a", None), (6, "", Some(2))];
        let writes =
            [write(1, 2, 1, Outcome::Done(4)), write(1, 2, 9, Outcome::Unknown), write(2, 3, 2, Outcome::Done(6))];
        assert!(convicted(&[tenure(1, 2, 10, 50), tenure(2, 3, 50, 90)], &writes, &told).is_empty());
        let unknown = [write(1, 2, 1, Outcome::Unknown), write(2, 3, 2, Outcome::Unknown)];
        assert!(convicted(&[], &unknown, &told).is_empty(), "what is unknown may be there");
    }

    /// Goal: L1 is seen. Method: the first holder's key goes although it believes, and the second is let in.
    #[test]
    fn two_who_believe_at_once_are_seen_although_their_writes_keep_order() {
        let told = [(2, "a", Some(0)), (3, "b", Some(0)), (4, "", Some(1)), (5, "a", None), (6, "", Some(2))];
        let writes = [write(1, 2, 1, Outcome::Done(4)), write(2, 3, 2, Outcome::Done(6))];
        let tenures = [tenure(1, 2, 10, 50), tenure(2, 3, 40, 90)];
        assert_eq!(convicted(&tenures, &writes, &told), ["one holder at a time"]);
        assert!(convicted(&tenures, &writes[..1], &told[..4]).is_empty(), "nothing confirms the second");
        let inside = [tenure(1, 2, 10, 99), tenure(2, 3, 20, 30), tenure(3, 7, 40, 60)];
        let third = [writes[0], writes[1], write(3, 7, 3, Outcome::Done(9))];
        let told = [&told[..], &[(7, "c", Some(0)), (8, "b", None), (9, "", Some(3))]].concat();
        assert_eq!(convicted(&inside, &third, &told), ["one holder at a time"; 2], "the longest belief counts on");
    }

    #[test]
    fn a_write_behind_one_with_a_newer_token_is_seen() {
        let told = [(2, "a", Some(0)), (3, "b", Some(0)), (4, "", Some(2)), (5, "", Some(1))];
        let writes = [write(1, 2, 1, Outcome::Done(5)), write(2, 3, 2, Outcome::Done(4))];
        let both = ["a holder is the first in its queue", "tokens never go backwards"];
        assert_eq!(convicted(&[], &writes, &told), both);
    }

    #[test]
    fn a_token_that_two_tenures_have_is_seen() {
        let twice = [tenure(1, 2, 10, 20), tenure(2, 2, 30, 40)];
        assert_eq!(convicted(&twice, &[], &[]), ["a token is one tenure's"]);
        let of_another = Tenure { queue: Queue::Election, ..twice[1] };
        assert!(convicted(&[twice[0], of_another], &[], &[]).is_empty(), "each queue has its own");
    }

    #[test]
    fn what_holders_were_told_of_their_writes_is_compared_with_what_happened() {
        let told = [(2, "a", Some(0)), (3, "", Some(1))];
        assert_eq!(convicted(&[], &[write(1, 2, 1, Outcome::Refused)], &told), ["what was refused is not done"]);
        assert_eq!(convicted(&[], &[], &told), ["nothing comes from nowhere"]);
        let lost = [write(1, 2, 1, Outcome::Done(3)), write(1, 2, 5, Outcome::Done(4))];
        assert_eq!(convicted(&[], &lost, &told), ["no acknowledged change is lost"]);
        let twice = [&told[..], &[(4, "", Some(1))]].concat();
        assert_eq!(convicted(&[], &[write(1, 2, 1, Outcome::Done(3))], &twice), ["nothing is done twice"]);
    }
}
