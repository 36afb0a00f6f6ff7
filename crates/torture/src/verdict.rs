//! The properties that must hold when everything is whole again.
//!
//! | property | seen in |
//! |---|---|
//! | linearizable | the clients' history, by the same judge as in the world |
//! | no acknowledged change lost, no revision given twice | every change of every revision, read through a watch from revision 1 |
//! | nothing done twice, nothing done that was refused, nothing from nowhere | the same: values are unique |
//! | watchers see every revision once; leases live as long as promised, and end | [`crate::onlookers`], while all this goes on |
//! | one holder at a time, tokens never go backwards, what is given stands, and is had again | [`crate::rivals`] and [`crate::tenures`] |
//! | members equal | the watches of all members, and their `HashKV` |
//! | one leader per term | the members' own logs |
//! | nobody ended by itself | the processes |

use crate::clients::{Change, History, Outcome, key_name};
use crate::onlookers::Watched;
use crate::rivals::Rivalry;
use anyhow::{Context, Result};
use hustings_api::Client;
use hustings_api::etcdserverpb::watch_request::RequestUnion;
use hustings_api::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use hustings_api::mvccpb::Event;
use hustings_properties::{Value, Violation};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::Streaming;

/// Time that a member may be silent while it tells its history.
const WATCH_TIMEOUT: Duration = Duration::from_secs(20);
/// A gap between two answers, of all clients, counts as time without service from here on.
const GAP: Duration = Duration::from_millis(100);

/// Violations of one property that are printed.
const SHOWN_MAX: usize = 3;

/// A change as a member tells it: key and what it holds since; by revision.
pub type Events = BTreeMap<i64, (String, Value)>;

/// A member that became leader of a term.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Reign {
    /// Number of the term.
    pub term: u64,
    /// Name of the leader.
    pub node: String,
}

/// The result of a run.
#[derive(Default, Debug)]
pub struct Report {
    /// Number of acts of each kind that were performed, by their first word.
    pub injected: BTreeMap<String, u64>,
    /// Operations that ended well, definite refusals, and those whose end nobody knows.
    pub operations: (u64, u64, u64),
    /// Terms that had a leader, after the first.
    pub leader_changes: usize,
    /// Revisions that were read back from every member.
    pub revisions: usize,
    /// Time in gaps of more than 100 ms without any answer, the longest one, and when it ended.
    pub unavailable: (Duration, Duration, Duration),
    /// Results of the watchers and holders of leases.
    pub watched: Watched,
    /// Results of the rivals for a lock and an election.
    pub rivalry: Rivalry,
    /// Time from the moment when everything was whole until every member served.
    pub recovered_in: Duration,
    /// Processes that ended because their disks failed them.
    pub expected_ends: usize,
    /// Connections through the proxies, bytes, chunks that were hindered, connections reset.
    pub passed: (u64, u64, u64, u64),
    /// Lives of members that a recording told whole, and that were played again to the same answers; and those that were not whole.
    pub replayed: (usize, usize),
    /// Duration of the run, and that of the judging.
    pub took: (Duration, Duration),
    /// Properties that do not hold.
    pub violations: Vec<Violation>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let injected: Vec<String> = self.injected.iter().map(|(word, count)| format!("{count} {word}")).collect();
        let (done, refused, unknown) = self.operations;
        let (connections, bytes, hindered, resets) = self.passed;
        writeln!(f, "injected      {}", injected.join(", "))?;
        writeln!(
            f,
            "operations    {done} done, {refused} refused, {unknown} perhaps done; {} revisions read back from every member",
            self.revisions
        )?;
        let Watched { streams, renewals, leases, compactions } = self.watched;
        writeln!(
            f,
            "onlookers     {streams} streams of changes ({compactions} compacted before), {renewals} renewals of {leases} leases"
        )?;
        let Rivalry { calls, repeated, tenures: (locks, elections), writes, had_again_in } = self.rivalry;
        writeln!(
            f,
            "rivals        {calls} calls, {repeated} given up and repeated elsewhere; {locks} locks and {elections} elections \
             held, {writes} writes under them; both had again after {had_again_in:.2?}"
        )?;
        writeln!(f, "leaders       {} changes", self.leader_changes)?;
        writeln!(
            f,
            "unavailable   {:.2?} in gaps above {GAP:?}, the longest {:.2?} until {:.2?}; whole again after {:.2?}",
            self.unavailable.0, self.unavailable.1, self.unavailable.2, self.recovered_in
        )?;
        writeln!(
            f,
            "peer links    {connections} connections, {} KiB, {hindered} chunks hindered, {resets} connections reset",
            bytes >> 10
        )?;
        writeln!(
            f,
            "processes     {} ended because their disks failed them, or they were removed",
            self.expected_ends
        )?;
        let (same, others) = self.replayed;
        writeln!(f, "recordings    {same} lives played again and answered the same, {others} not whole")?;
        writeln!(f, "took          {:.1?}, the judge {:.2?} of it", self.took.0, self.took.1)?;
        match self.violations.is_empty() {
            true => write!(f, "verdict       everything held"),
            false => {
                write!(f, "verdict       {} violations", self.violations.len())?;
                let properties: BTreeSet<&str> = self.violations.iter().map(|violation| violation.property).collect();
                for property in properties {
                    let of_it = self.violations.iter().filter(|violation| violation.property == property);
                    write!(f, "\n  {property}, {} times", of_it.clone().count())?;
                    of_it.take(SHOWN_MAX).try_for_each(|violation| write!(f, "\n    {}", violation.what))?;
                }
                Ok(())
            }
        }
    }
}

/// A stream of all changes from this revision on, and the line that must be held for as long as it is wanted.
pub(crate) async fn watch_from(
    client: &Client,
    start_revision: i64,
) -> Result<(mpsc::Sender<WatchRequest>, Streaming<WatchResponse>)> {
    let (requests, queue) = mpsc::channel(1);
    let create = WatchCreateRequest {
        key: "\0".into(),
        range_end: "\0".into(),
        start_revision,
        ..WatchCreateRequest::default()
    };
    requests.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await?;
    let answers = client.watch().watch(tokio_stream::wrappers::ReceiverStream::new(queue)).await?.into_inner();
    Ok((requests, answers))
}

/// A change as it is told: its revision, the key, and what that holds since.
pub(crate) fn read(event: Event) -> (i64, (String, Value)) {
    let kv = event.kv.unwrap_or_default();
    let text = String::from_utf8_lossy(&kv.value);
    let value = (event.r#type == 0).then(|| text.parse().unwrap_or(u64::MAX));
    (kv.mod_revision, (String::from_utf8_lossy(&kv.key).into_owned(), value))
}

/// Reads all changes from a member that came after the revision `after`, to `last`.
pub async fn events_of(endpoint: &str, after: i64, last: i64) -> Result<(Events, Vec<Violation>)> {
    let client = Client::connect(&[endpoint]).await?;
    let (_requests, mut answers) = watch_from(&client, after + 1).await?;
    let (mut events, mut violations, mut seen) = (Events::new(), Vec::new(), after);
    while seen < last {
        let answer = tokio::time::timeout(WATCH_TIMEOUT, answers.message()).await;
        let answer =
            answer.with_context(|| format!("{endpoint} told its history up to {seen} of {last} and fell silent"))?;
        let answer = answer?.context("the watch ended")?;
        if answer.canceled {
            violations.push(Violation::of("watch", format!("{endpoint} cancelled it: {}", answer.cancel_reason)));
            break;
        }
        for event in answer.events {
            let (revision, told) = read(event);
            if revision != seen + 1 && !(seen == 0 && revision <= 2) {
                let what = format!("{endpoint}: revision {revision} came after {seen}");
                violations.push(Violation::of("watch without a gap or a repetition", what));
            }
            seen = revision;
            events.insert(seen, told);
        }
    }
    Ok((events, violations))
}

/// Compares what clients were told with what happened.
pub fn compare(changes: &[Change], events: &Events) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut fates: BTreeMap<u64, Outcome> = BTreeMap::new();
    let mut given: BTreeMap<i64, &Change> = BTreeMap::new();
    for change in changes {
        if let Some(value) = change.value {
            fates.insert(value, change.fate);
        }
        let Outcome::Done(revision) = change.fate else { continue };
        if let Some(other) = given.insert(revision, change) {
            violations.push(Violation::of("revisions are unique", format!("{revision}: {other:?} and {change:?}")));
        }
        match events.get(&revision) {
            Some((key, value)) if *key == key_name(change.key) && *value == change.value => {}
            found => violations.push(Violation::of(
                "no acknowledged change is lost",
                format!("{change:?} was acknowledged, and at its revision there is {found:?}"),
            )),
        }
    }
    let mut seen: BTreeSet<u64> = BTreeSet::new();
    for (revision, (key, value)) in events {
        let Some(value) = value.filter(|_| key.starts_with("torture/")) else { continue };
        if !seen.insert(value) {
            violations.push(Violation::of("nothing is done twice", format!("{value} again at revision {revision}")));
        }
        match fates.get(&value) {
            Some(Outcome::Refused) => violations.push(Violation::of(
                "what was refused is not done",
                format!("{value} was definitely refused and stands at revision {revision}"),
            )),
            None => violations.push(Violation::of("nothing comes from nowhere", format!("{value} at {revision}"))),
            Some(Outcome::Done(_) | Outcome::Unknown) => {}
        }
    }
    violations
}

/// The reigns in a node's log; and whether anything in it panicked.
pub fn reigns_in(log: &Path) -> Result<(BTreeSet<Reign>, Vec<Violation>)> {
    let text = std::fs::read(log)?;
    let text = String::from_utf8_lossy(&text);
    let (mut reigns, mut violations) = (BTreeSet::new(), Vec::new());
    for line in text.lines() {
        if line.contains("panicked at") {
            violations.push(Violation::of("nothing panics", format!("{}: {line}", log.display())));
        }
        // A process that is killed may leave half a line.
        let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let is_accession = line["message"].as_str().is_some_and(|message| message.contains("→ Leader "));
        if let (true, Some(node), Some(term)) = (is_accession, line["node"].as_str(), line["term"].as_u64()) {
            reigns.insert(Reign { term, node: node.to_string() });
        }
    }
    Ok((reigns, violations))
}

/// One leader per term.
pub fn one_leader_per_term(reigns: &BTreeSet<Reign>) -> Vec<Violation> {
    let mut leaders: BTreeMap<u64, &str> = BTreeMap::new();
    let mut violations = Vec::new();
    for reign in reigns {
        if let Some(other) = leaders.insert(reign.term, &reign.node) {
            let what = format!("term {}: {other} and {}", reign.term, reign.node);
            violations.push(Violation::of("one leader per term", what));
        }
    }
    violations
}

/// The time in gaps between answers, the longest gap, and when that ended; `end` closes the last one.
pub fn gaps(history: &History, end: u64) -> (Duration, Duration, Duration) {
    let mut answers: Vec<u64> = history.operations.iter().filter_map(|operation| operation.returned).collect();
    answers.sort_unstable();
    answers.push(end);
    let (mut total, mut longest, mut until, mut last) = (Duration::ZERO, Duration::ZERO, Duration::ZERO, 0);
    for answer in answers {
        let gap = Duration::from_micros(answer.saturating_sub(last));
        if gap > longest {
            (longest, until) = (gap, Duration::from_micros(answer));
        }
        if gap > GAP {
            total += gap;
        }
        last = answer;
    }
    (total, longest, until)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(value: u64, fate: Outcome) -> Change {
        Change { key: 1, value: Some(value), fate }
    }

    fn convicted(changes: &[Change], events: &[(i64, u64)]) -> Vec<&'static str> {
        let events = events.iter().map(|(revision, value)| (*revision, (key_name(1), Some(*value)))).collect();
        compare(changes, &events).into_iter().map(|violation| violation.property).collect()
    }

    #[test]
    fn what_clients_were_told_is_compared_with_what_happened() {
        let told = [change(5, Outcome::Done(2)), change(6, Outcome::Unknown), change(7, Outcome::Refused)];
        assert!(convicted(&told, &[(2, 5)]).is_empty(), "what is unknown may be missing");
        assert!(convicted(&told, &[(2, 5), (3, 6)]).is_empty(), "and may be there");
        assert_eq!(convicted(&told, &[(3, 6)]), ["no acknowledged change is lost"]);
        assert_eq!(convicted(&told, &[(2, 5), (3, 6), (4, 6)]), ["nothing is done twice"]);
        assert_eq!(convicted(&told, &[(2, 5), (3, 7)]), ["what was refused is not done"]);
        assert_eq!(convicted(&told, &[(2, 5), (3, 8)]), ["nothing comes from nowhere"]);
        let twice = [change(5, Outcome::Done(2)), change(6, Outcome::Done(2))];
        assert_eq!(convicted(&twice, &[(2, 5)]), ["revisions are unique", "no acknowledged change is lost"]);
    }

    #[test]
    fn two_leaders_of_one_term_are_seen() {
        let reign = |term, node: &str| Reign { term, node: node.into() };
        assert!(one_leader_per_term(&[reign(1, "n1"), reign(2, "n1")].into()).is_empty());
        assert_eq!(one_leader_per_term(&[reign(1, "n1"), reign(1, "n2")].into()).len(), 1);
    }
}
