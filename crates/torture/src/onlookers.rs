//! Observers that depend on time and order while members break: [`Onlookers`], watchers and holders of leases.
//!
//! A watcher follows all changes from the first revision on, at one member after the other, and must see every revision once
//! and in order. A holder renews its lease; a holder that was told that it lives for so long must find it alive for so long,
//! counted from the moment when the renewal was *sent*. When all is whole again the holders go, and their leases must end.

use crate::verdict::{self, Events};
use anyhow::{Context, Result};
use hustings_api::Client;
use hustings_api::etcdserverpb::{LeaseGrantRequest, LeaseKeepAliveRequest, LeaseTimeToLiveRequest};
use hustings_properties::Violation;
use hustings_testbed::wait_for;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Holders of leases, and how long their leases live.
const HOLDERS: usize = 4;
pub(crate) const TTL: Duration = Duration::from_secs(3);
/// A holder renews so often.
pub(crate) const RENEW_EVERY: Duration = Duration::from_millis(500);
/// Time that an onlooker waits for an answer or a connection before it goes to the next member.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Time that watchers may take to see the last revision, once everything is whole.
const CATCH_UP: Duration = Duration::from_secs(20);

/// The events that a watcher saw, and what was wrong in them.
#[derive(Default)]
struct Seen {
    events: Events,
    violations: Vec<Violation>,
    /// Members that it watched, one after the other.
    streams: u64,
    /// Revisions between the two that it missed, since they were compacted when it came.
    missed: Vec<(i64, i64)>,
}

impl Seen {
    /// What is wrong with it up to the last revision, beside what a member tells: it may have missed what was compacted, and nothing else.
    fn differences(&self, last: i64, compacted: i64, events: &Events) -> Vec<String> {
        let mut wrong = Vec::new();
        if let Some((from, to)) = self.missed.iter().find(|(_, to)| *to > compacted) {
            wrong.push(format!("was told that {from} to {to} are compacted, and only {compacted} are"));
        }
        let is_missed = |revision: i64| self.missed.iter().any(|(from, to)| (*from..=*to).contains(&revision));
        let mut differences = events.iter().filter(|(revision, event)| self.events.get(revision) != Some(event));
        if let Some(difference) = differences.find(|(revision, _)| !is_missed(**revision)) {
            wrong.push(format!("saw another history, or less of it, from {difference:?} on"));
        }
        let mut more = self.events.range(..=last).filter(|(revision, _)| !events.contains_key(revision));
        if let Some(more) = more.next() {
            wrong.push(format!("saw {more:?}, which the members do not tell"));
        }
        wrong
    }
}

/// The facts that a holder knows of its leases.
#[derive(Default)]
struct Held {
    violations: Vec<Violation>,
    renewals: u64,
    /// Leases that it had, the last one included.
    leases: Vec<i64>,
}

/// The results of the onlookers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Watched {
    /// Streams that watchers opened.
    pub streams: u64,
    /// Renewals of leases that were acknowledged.
    pub renewals: u64,
    /// Leases that were granted.
    pub leases: u64,
    /// Times that a watcher came too late for what was compacted.
    pub compactions: u64,
}

/// Watchers, one per member, and holders of leases.
pub struct Onlookers {
    /// Watchers go on until they have seen this revision.
    through: Arc<AtomicI64>,
    has_stopped: Arc<AtomicBool>,
    watchers: Vec<JoinHandle<Seen>>,
    holders: Vec<JoinHandle<Held>>,
}

impl Onlookers {
    /// They begin, each at a member of its own, with the first change after a revision.
    pub fn start(endpoints: &[String], after: i64) -> Onlookers {
        let (through, has_stopped) = (Arc::new(AtomicI64::new(i64::MAX)), Arc::new(AtomicBool::new(false)));
        let from = |first: usize| Endpoints::at(endpoints, first);
        let watchers = (0..endpoints.len()).map(|at| tokio::spawn(watch(from(at), after, through.clone()))).collect();
        let holders = (0..HOLDERS).map(|at| tokio::spawn(hold(from(at), has_stopped.clone()))).collect();
        Onlookers { through, has_stopped, watchers, holders }
    }

    /// The holders renew no more; watchers go on.
    pub fn let_leases_end(&self) {
        self.has_stopped.store(true, Ordering::Relaxed);
    }

    /// Everything is whole and `last` is the last revision: what they saw is compared with `events`, what a member tells. Nobody
    /// may have missed more than what was `compacted`.
    ///
    /// # Errors
    /// When the run could not be judged; what did not hold is in the violations.
    pub async fn end(
        self,
        client: &Client,
        last: i64,
        compacted: i64,
        events: &Events,
    ) -> Result<(Watched, Vec<Violation>)> {
        self.let_leases_end();
        self.through.store(last, Ordering::Relaxed);
        let (mut watched, mut violations) = (Watched::default(), Vec::new());
        for (number, watcher) in (1..).zip(self.watchers) {
            let Ok(seen) = tokio::time::timeout(CATCH_UP, watcher).await else {
                let what = format!("watcher {number} did not see revision {last} within {CATCH_UP:?}");
                violations.push(Violation::of("watchers catch up", what));
                continue;
            };
            let seen = seen?;
            watched.streams += seen.streams;
            watched.compactions += seen.missed.len() as u64;
            let what = seen.differences(last, compacted, events).into_iter();
            let of = |what| Violation::of("watch without a gap or a repetition", format!("watcher {number} {what}"));
            violations.extend(what.map(of));
            violations.extend(seen.violations);
        }
        let mut leases = Vec::new();
        for holder in self.holders {
            let held = holder.await?;
            watched.renewals += held.renewals;
            violations.extend(held.violations);
            leases.extend(held.leases);
        }
        watched.leases = leases.len() as u64;
        for id in leases {
            let ended = wait_for("a lease that nobody renews to end", async || {
                let question = LeaseTimeToLiveRequest { id, keys: false };
                let answer = client.lease().lease_time_to_live(question).await.ok()?.into_inner();
                (answer.ttl <= 0).then_some(())
            });
            if let Err(error) = ended.await {
                violations.push(Violation::of("leases end", format!("lease {id}: {error:#}")));
            }
        }
        Ok((watched, violations))
    }
}

/// The members, and whose turn it is.
#[derive(Clone)]
pub(crate) struct Endpoints {
    endpoints: Vec<String>,
    position: usize,
}

impl Endpoints {
    /// All members, the one behind this position first.
    pub(crate) fn at(endpoints: &[String], position: usize) -> Endpoints {
        Endpoints { endpoints: endpoints.to_vec(), position: position % endpoints.len() }
    }

    /// Connects to the next one; `None` when it does not answer in time.
    pub(crate) async fn next(&mut self) -> Option<Client> {
        self.position = (self.position + 1) % self.endpoints.len();
        let endpoint = self.endpoints[self.position].clone();
        tokio::time::timeout(ANSWER_TIMEOUT, Client::connect(&[endpoint])).await.ok()?.ok()
    }
}

async fn watch(mut endpoints: Endpoints, after: i64, through: Arc<AtomicI64>) -> Seen {
    let (mut seen, mut last) = (Seen::default(), after.max(1));
    while last < through.load(Ordering::Relaxed) {
        let Some(client) = endpoints.next().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        // Nobody asks why a stream ended: the next one goes on where this one stood.
        let _ = follow(&client, &mut seen, &mut last, &through).await;
    }
    seen
}

/// One stream, until it ends or says nothing for a while.
async fn follow(client: &Client, seen: &mut Seen, last: &mut i64, through: &AtomicI64) -> Result<()> {
    let (_requests, mut answers) =
        tokio::time::timeout(ANSWER_TIMEOUT, verdict::watch_from(client, *last + 1)).await??;
    seen.streams += 1;
    while *last < through.load(Ordering::Relaxed) {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, answers.message()).await??.context("the stream ended")?;
        if answer.compact_revision > *last {
            // Everything below it is gone; the next stream goes on with it.
            seen.missed.push((*last + 1, answer.compact_revision - 1));
            *last = answer.compact_revision - 1;
            return Ok(());
        }
        for event in answer.events {
            let (revision, told) = verdict::read(event);
            if revision != *last + 1 {
                let what = format!("revision {revision} came after {last}");
                seen.violations.push(Violation::of("watch without a gap or a repetition", what));
            }
            *last = revision;
            seen.events.insert(revision, told);
        }
    }
    Ok(())
}

async fn hold(mut endpoints: Endpoints, has_stopped: Arc<AtomicBool>) -> Held {
    let mut held = Held::default();
    // The lease, and until when it was promised to live.
    let mut lease: Option<(i64, Instant)> = None;
    let mut client = None;
    while !has_stopped.load(Ordering::Relaxed) {
        tokio::time::sleep(RENEW_EVERY).await;
        if client.is_none() {
            client = endpoints.next().await;
        }
        let Some(connected) = &client else { continue };
        let sent = Instant::now();
        match lease {
            None => match tokio::time::timeout(ANSWER_TIMEOUT, grant(connected)).await {
                Ok(Ok(id)) => {
                    held.leases.push(id);
                    lease = Some((id, sent + TTL));
                }
                _ => client = None,
            },
            Some((id, promised)) => match tokio::time::timeout(ANSWER_TIMEOUT, renew(connected, id)).await {
                Ok(Ok(true)) => {
                    held.renewals += 1;
                    lease = Some((id, promised.max(sent + TTL)));
                }
                Ok(Ok(false)) => {
                    if let Some(early) = promised.checked_duration_since(Instant::now()) {
                        let what = format!("lease {id} was gone {early:?} before the time that its holder was told");
                        held.violations.push(Violation::of("leases live", what));
                    }
                    lease = None;
                }
                _ => client = None,
            },
        }
    }
    held
}

pub(crate) async fn grant(client: &Client) -> Result<i64> {
    let request = LeaseGrantRequest { ttl: i64::try_from(TTL.as_secs())?, id: 0 };
    Ok(client.lease().lease_grant(request).await?.into_inner().id)
}

/// Whether the lease lives.
pub(crate) async fn renew(client: &Client, id: i64) -> Result<bool> {
    let request = tokio_stream::once(LeaseKeepAliveRequest { id });
    let mut answers = client.lease().lease_keep_alive(request).await?.into_inner();
    let answer = answers.message().await?.context("no answer")?;
    Ok(answer.ttl > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(revisions: &[i64]) -> Events {
        revisions.iter().map(|revision| (*revision, ("x".to_owned(), Some(0)))).collect()
    }

    /// Goal: a change that a watcher saw and that members do not tell is told, as is the opposite. Method: histories of three revisions, of
    /// which one or the other lacks the second; what comes after the last write is nobody's business.
    #[test]
    fn what_watchers_saw_is_compared_in_both_directions() {
        let of_watcher = |revisions: &[i64], missed: &[(i64, i64)]| Seen {
            events: of(revisions),
            missed: missed.to_vec(),
            ..Seen::default()
        };
        assert_eq!(of_watcher(&[1, 2, 3, 4], &[]).differences(3, 0, &of(&[1, 2, 3])), [""; 0]);
        assert_eq!(of_watcher(&[3], &[(1, 2)]).differences(3, 2, &of(&[1, 2, 3])), [""; 0]);
        for (watcher, members, told) in [
            (of_watcher(&[1, 2, 3], &[]), of(&[1, 3]), "saw (2, "),
            (of_watcher(&[1, 3], &[]), of(&[1, 2, 3]), "or less of it, from (2, "),
            (of_watcher(&[3], &[(1, 2)]), of(&[1, 3]), "was told that 1 to 2 are compacted, and only 1 are"),
        ] {
            let wrong = watcher.differences(3, 1, &members);
            assert!(wrong.len() == 1 && wrong[0].contains(told), "{wrong:?}");
        }
    }
}
