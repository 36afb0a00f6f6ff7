//! Follows the changes at the source after the copy and writes them to the destination in the same order: [`Follower`].
//!
//! Changes of several revisions are written as one, as long as no key is among them twice and none of them stands for a lock or an
//! election: of those the revision says whose turn it is, so each gets one of its own.

use super::leases::Leases;
use super::side::{Keys, Refused, Side};
use anyhow::{Result, bail};
use bytes::Bytes;
use futures::StreamExt;
use hustings_api::EtcdError;
use hustings_api::etcdserverpb::{self as pb, watch_request::RequestUnion};
use hustings_api::mvccpb::{Event, KeyValue, event::EventType};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

/// Operations and bytes of one transaction: below what a server takes by default.
const OPERATIONS_MAX: usize = 100;
const BYTES_MAX: usize = 1 << 20;
/// The pause between two questions how far the source has come, once the end is known.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Once the end is known: the time after which a watch that comes no closer to it counts as lost.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// Watches that may be refused one after the other: the first one perhaps because a token has ended.
const REFUSALS_MAX: u32 = 5;

/// Most characters of a key that are told.
const KEY_TOLD_MAX: usize = 60;

/// Operations that will be one transaction.
#[derive(Default)]
pub(super) struct Batch {
    operations: Vec<pb::RequestOp>,
    keys: BTreeSet<Bytes>,
    bytes: usize,
}

impl Batch {
    fn has_room_for(&self, others: &Batch) -> bool {
        self.operations.len() + others.operations.len() <= OPERATIONS_MAX
            && self.bytes + others.bytes <= BYTES_MAX
            && self.keys.is_disjoint(&others.keys)
    }

    pub(super) fn has_room(&self, kv: &KeyValue) -> bool {
        self.operations.is_empty()
            || self.operations.len() < OPERATIONS_MAX && self.bytes + kv.key.len() + kv.value.len() <= BYTES_MAX
    }

    pub(super) fn put(&mut self, kv: &KeyValue, lease: i64) {
        let (key, value) = (kv.key.clone(), kv.value.clone());
        self.bytes += key.len() + value.len();
        self.keys.insert(key.clone());
        let put = pb::PutRequest { key, value, lease, ..Default::default() };
        self.operations.push(pb::RequestOp { request: Some(pb::request_op::Request::RequestPut(put)) });
    }

    pub(super) fn delete(&mut self, key: &Bytes) {
        self.bytes += key.len();
        self.keys.insert(key.clone());
        let delete = pb::DeleteRangeRequest { key: key.clone(), ..Default::default() };
        self.operations.push(pb::RequestOp { request: Some(pb::request_op::Request::RequestDeleteRange(delete)) });
    }

    fn join(&mut self, others: Batch) {
        self.operations.extend(others.operations);
        self.keys.extend(others.keys);
        self.bytes += others.bytes;
    }

    pub(super) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Writes it, if there is anything in it, and begins anew.
    pub(super) async fn write(&mut self, source: &mut Side, destination: &mut Side, leases: &Leases) -> Result<()> {
        let operations = std::mem::take(self).operations;
        for portion in operations.chunks(OPERATIONS_MAX) {
            let Err(error) = destination.write(portion.to_vec()).await else { continue };
            if !Refused::is(&error, EtcdError::LeaseNotFound) {
                return Err(error.context(largest_of(portion)));
            }
            leases.restore(source, destination).await?;
            let mut portion = portion.to_vec();
            without_ended_leases(&mut portion, source, destination, leases).await?;
            destination.write(portion).await?;
        }
        Ok(())
    }
}

/// Names what a destination most likely stumbles over.
fn largest_of(operations: &[pb::RequestOp]) -> String {
    let puts = operations.iter().filter_map(|operation| match &operation.request {
        Some(pb::request_op::Request::RequestPut(put)) => Some(put),
        _ => None,
    });
    let largest = puts.max_by_key(|put| put.key.len() + put.value.len());
    largest.map_or_else(
        || "keys cannot be deleted".to_owned(),
        |put| {
            let key: String = String::from_utf8_lossy(&put.key).chars().take(KEY_TOLD_MAX).collect();
            let bytes = put.key.len() + put.value.len();
            format!(
                "keys cannot be written, the largest of which is {key:?} with {bytes} bytes; where that is too long, start the \
                 destination with a larger --max-request-bytes, and go on with --resume"
            )
        },
    )
}

/// Keys whose lease has ended at the source are about to be deleted there: until then they stand without one.
async fn without_ended_leases(
    operations: &mut [pb::RequestOp],
    source: &mut Side,
    destination: &mut Side,
    leases: &Leases,
) -> Result<()> {
    for operation in operations {
        if let Some(pb::request_op::Request::RequestPut(put)) = &mut operation.request
            && put.lease != 0
            && !leases.ensure(put.lease, source, destination).await?
        {
            put.lease = 0;
        }
    }
    Ok(())
}

/// Whether a key stands for a lock or an election by etcd's recipe: its last part is its own lease.
pub(super) fn is_candidate(kv: &KeyValue) -> bool {
    let entry = std::str::from_utf8(&kv.key).ok().and_then(|key| key.rsplit_once('/'));
    kv.lease != 0 && entry.is_some_and(|(_, entry)| i64::from_str_radix(entry, 16) == Ok(kv.lease))
}

/// Of each queue all candidates from the first on whose lease was lost, in the order of their turns.
fn from_the_first_lost_on(mut candidates: Vec<KeyValue>, lost: &BTreeSet<i64>) -> Vec<KeyValue> {
    let queue_of = |kv: &KeyValue| kv.key.slice(..kv.key.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
    candidates.sort_by_key(|kv| kv.create_revision);
    let mut firsts: BTreeMap<Bytes, i64> = BTreeMap::new();
    for kv in candidates.iter().filter(|kv| lost.contains(&kv.lease)) {
        firsts.entry(queue_of(kv)).or_insert(kv.create_revision);
    }
    candidates.retain(|kv| firsts.get(&queue_of(kv)).is_some_and(|first| kv.create_revision >= *first));
    candidates
}

/// The end of a watch.
enum Followed {
    /// All that was asked for is there.
    Reached,
    /// The member that was asked is gone.
    Lost,
    /// It was cancelled, or not let through at all, with this reason.
    Refused(String),
}

impl Followed {
    /// The end of a watch that this error is. What stands before the source, or who asks, may let no watch through; then another member
    /// does not help.
    fn without(status: &tonic::Status) -> Followed {
        match status.code() {
            tonic::Code::Unimplemented | tonic::Code::PermissionDenied => {
                Followed::Refused(status.message().to_owned())
            }
            _ => Followed::Lost,
        }
    }
}

/// Follows the source from a revision on.
pub(super) struct Follower {
    source: Side,
    destination: Side,
    leases: Leases,
    keys: Keys,
    /// Everything up to this revision of the source is at the destination, as the source says.
    done: i64,
    /// The revision of the last change that was written.
    written: i64,
    /// Changes that were written.
    pub(super) changes: u64,
}

impl Follower {
    /// Follows from `source` to `destination`, where all that is there at this revision is copied already.
    pub(super) fn new((source, destination): (Side, Side), leases: Leases, keys: Keys, revision: i64) -> Follower {
        Follower { source, destination, leases, keys, done: revision, written: revision, changes: 0 }
    }

    /// Follows once more from the last change that was seen on, to this revision.
    pub(super) async fn run_again(&mut self, revision: i64, told: &impl Fn(i64, u64)) -> Result<()> {
        self.done = self.written;
        let (_aim, mut target) = watch::channel(Some(revision));
        self.run(&mut target, told).await
    }

    /// Follows until the revision that `target` says, once it says one, is done; tells how far it is through `told`.
    pub(super) async fn run(
        &mut self,
        target: &mut watch::Receiver<Option<i64>>,
        told: &impl Fn(i64, u64),
    ) -> Result<()> {
        let mut ended_at_once = 0;
        loop {
            if target.borrow().is_some_and(|target| self.done >= target) {
                return Ok(());
            }
            self.repair().await?;
            let before = self.done;
            let why = match self.follow_once(target, told).await? {
                Followed::Reached => return Ok(()),
                Followed::Lost => None,
                Followed::Refused(why) => Some(why),
            };
            ended_at_once = if self.done > before || why.is_none() { 0 } else { ended_at_once + 1 };
            if let Some(why) = why.filter(|_| ended_at_once >= REFUSALS_MAX) {
                bail!(
                    "the source does not let its changes be followed: {why}; may this user read all keys that are copied?"
                );
            }
            self.source.move_on().await;
            // A stream is asked without looking at who asks: a token that has ended is replaced by asking something else.
            self.source.revision(&self.keys).await?;
        }
    }

    /// Writes once more the keys of leases that ended at the destination though the source has them: they went with their leases. Of a
    /// queue all that stood behind them is written as well, so that the order of turns is the source's.
    ///
    /// Keys are read as they are now, which may be later than what is done: the changes between are written again in their turn.
    pub(super) async fn repair(&mut self) -> Result<()> {
        let mut lost = BTreeSet::new();
        for id in self.leases.take_lost() {
            if self.leases.ensure(id, &mut self.source, &mut self.destination).await? {
                lost.insert(id);
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        let (mut batch, mut candidates) = (Batch::default(), Vec::new());
        let mut next = Some(self.keys.from.clone());
        while let Some(from) = next {
            let (page, after) = self.source.page(&Keys { from, end: self.keys.end.clone() }, 0).await?;
            // A key that came since is written in its turn.
            for kv in page.into_iter().filter(|kv| kv.create_revision <= self.done) {
                if is_candidate(&kv) {
                    candidates.push(kv);
                } else if lost.contains(&kv.lease) {
                    if !batch.has_room(&kv) {
                        batch.write(&mut self.source, &mut self.destination, &self.leases).await?;
                    }
                    batch.put(&kv, kv.lease);
                }
            }
            next = after;
        }
        let behind = from_the_first_lost_on(candidates, &lost);
        for kv in &behind {
            if !batch.has_room(kv) {
                batch.write(&mut self.source, &mut self.destination, &self.leases).await?;
            }
            batch.delete(&kv.key);
        }
        batch.write(&mut self.source, &mut self.destination, &self.leases).await?;
        for kv in behind {
            let has_lease = self.leases.ensure(kv.lease, &mut self.source, &mut self.destination).await?;
            batch.put(&kv, if has_lease { kv.lease } else { 0 });
            batch.write(&mut self.source, &mut self.destination, &self.leases).await?;
        }
        Ok(())
    }

    /// One watch, until its end.
    async fn follow_once(
        &mut self,
        target: &mut watch::Receiver<Option<i64>>,
        told: &impl Fn(i64, u64),
    ) -> Result<Followed> {
        let create = pb::WatchCreateRequest {
            key: self.keys.from.clone(),
            range_end: self.keys.end.clone(),
            start_revision: self.done.saturating_add(1),
            progress_notify: true,
            ..Default::default()
        };
        let (ask, questions) = mpsc::channel(4);
        let say = |union| pb::WatchRequest { request_union: Some(union) };
        // The channel has room: it is new.
        let _ = ask.send(say(RequestUnion::CreateRequest(create))).await;
        let request = self.source.insisting(ReceiverStream::new(questions));
        let mut answers = match self.source.client.watch().watch(request).await {
            Ok(answers) => answers.into_inner(),
            Err(status) => return Ok(Followed::without(&status)),
        };
        let mut asking = tokio::time::interval(ASK_EVERY);
        // Time since which the end is known and nothing more was done.
        let mut waiting_since: Option<(i64, Instant)> = None;
        loop {
            tokio::select! {
                answer = answers.next() => {
                    let answer = match answer {
                        Some(Ok(answer)) => answer,
                        Some(Err(status)) => return Ok(Followed::without(&status)),
                        None => return Ok(Followed::Lost),
                    };
                    if answer.canceled && answer.compact_revision > 0 {
                        bail!(
                            "the source has compacted its history up to {} before revision {} was copied: begin again with --resume",
                            answer.compact_revision, self.done + 1
                        );
                    }
                    if answer.canceled {
                        return Ok(Followed::Refused(answer.cancel_reason));
                    }
                    self.apply(&answer.events).await?;
                    if answer.events.is_empty() && !answer.created {
                        // Progress: there is nothing up to here that was not sent.
                        self.done = self.done.max(answer.header.unwrap_or_default().revision);
                    }
                    told(self.done, self.changes);
                    if target.borrow().is_some_and(|target| self.done >= target) {
                        return Ok(Followed::Reached);
                    }
                }
                _ = asking.tick() => {
                    if self.leases.has_lost() {
                        self.repair().await?;
                    }
                    let is_wanted = target.borrow().is_some();
                    if is_wanted {
                        let now = Instant::now();
                        let (done, since) = *waiting_since.get_or_insert((self.done, now));
                        if done != self.done {
                            waiting_since = Some((self.done, now));
                        } else if now - since > STALLED_AFTER {
                            return Ok(Followed::Lost);
                        }
                        // A full channel has such a question in it already.
                        let _ = ask.try_send(say(RequestUnion::ProgressRequest(pb::WatchProgressRequest {})));
                    }
                }
            }
        }
    }

    async fn apply(&mut self, events: &[Event]) -> Result<()> {
        let mut batch = Batch::default();
        let revision_of = |event: &Event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
        for revision in events.chunk_by(|one, other| revision_of(one) == revision_of(other)) {
            let (mut group, mut is_a_turn) = (Batch::default(), false);
            for event in revision {
                let Some(kv) = &event.kv else { continue };
                if event.r#type == EventType::Delete as i32 {
                    group.delete(&kv.key);
                    continue;
                }
                is_a_turn |= is_candidate(kv);
                let has_lease =
                    kv.lease != 0 && self.leases.ensure(kv.lease, &mut self.source, &mut self.destination).await?;
                group.put(kv, if has_lease { kv.lease } else { 0 });
            }
            self.changes += group.len() as u64;
            if is_a_turn || !batch.has_room_for(&group) {
                batch.write(&mut self.source, &mut self.destination, &self.leases).await?;
            }
            batch.join(group);
            if is_a_turn {
                batch.write(&mut self.source, &mut self.destination, &self.leases).await?;
            }
        }
        batch.write(&mut self.source, &mut self.destination, &self.leases).await?;
        if let Some(last) = events.last() {
            self.written = revision_of(last);
            self.done = self.done.max(self.written);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::fake::Fake;

    #[test]
    fn who_waits_for_a_lock_is_known_by_its_key() {
        let kv = |key: &'static str, lease| KeyValue { key: key.into(), lease, ..KeyValue::default() };
        assert!(is_candidate(&kv("locks/billing/7f", 0x7f)));
        assert!(!is_candidate(&kv("locks/billing/7f", 0x80)) && !is_candidate(&kv("services/a/0", 0)));
    }

    #[test]
    fn a_candidate_whose_lease_was_lost_and_all_behind_it_are_written_again_in_their_order() {
        let kv = |key: &'static str, create_revision| {
            let lease = i64::from_str_radix(key.rsplit('/').next().expect("a last part"), 16).expect("hex");
            KeyValue { key: key.into(), lease, create_revision, ..KeyValue::default() }
        };
        let all =
            vec![kv("locks/a/7", 4), kv("locks/a/8", 3), kv("locks/a/9", 2), kv("locks/b/a", 1), kv("locks/b/b", 5)];
        let behind = from_the_first_lost_on(all, &BTreeSet::from([0x8, 0xb]));
        let keys: Vec<&[u8]> = behind.iter().map(|kv| &kv.key[..]).collect();
        assert_eq!(keys, [&b"locks/a/8"[..], b"locks/a/7", b"locks/b/b"], "whoever stood before stands there still");
    }

    /// Goal: a source that falls silent is told apart from one that has nothing to say, once the end is known. Method: a member that hears
    /// its watches and says nothing; each is to insist on a leader, and none is waited for.
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_comes_no_closer_to_the_end_is_lost() {
        let fake = Fake::default();
        let (source, destination) = (fake.side("source").await, fake.side("destination").await);
        let keys = Keys { from: Bytes::from_static(b"0"), end: Bytes::from_static(b"\0") };
        let mut follower = Follower::new((source, destination), Leases::default(), keys, 1);
        let (aim, mut target) = watch::channel(None);
        let patience = tokio::time::timeout(30 * STALLED_AFTER, follower.follow_once(&mut target, &|_, _| {})).await;
        assert!(patience.is_err(), "nothing need come before the end is known");
        aim.send_replace(Some(2));
        let followed = tokio::time::timeout(2 * STALLED_AFTER, follower.follow_once(&mut target, &|_, _| {})).await;
        assert!(matches!(followed, Ok(Ok(Followed::Lost))), "it is waited for");
        assert_eq!(fake.watches(), (2, 2), "they insist on a leader");
    }

    /// Goal: a source of which no watch can be had is told so, and not asked for ever. Method: a member behind a proxy without streams.
    #[tokio::test(start_paused = true)]
    async fn a_source_without_watches_ends_the_copy() {
        let fake = Fake::default();
        fake.refuse_watches();
        let (source, destination) = (fake.side("source").await, fake.side("destination").await);
        let keys = Keys { from: Bytes::from_static(b"0"), end: Bytes::from_static(b"\0") };
        let mut follower = Follower::new((source, destination), Leases::default(), keys, 1);
        let (_aim, mut target) = watch::channel(None);
        let following = follower.run(&mut target, &|_, _| {});
        let ended = tokio::time::timeout(Duration::from_secs(600), following).await.expect("it is not asked for ever");
        assert!(format!("{:#}", ended.expect_err("nothing can be followed")).contains("no streams here"));
    }

    #[test]
    fn a_key_is_not_written_twice_in_one_transaction() {
        let kv = |key: &'static str| KeyValue { key: key.into(), ..KeyValue::default() };
        let (mut first, mut second, mut third) = (Batch::default(), Batch::default(), Batch::default());
        first.put(&kv("a"), 0);
        second.delete(&Bytes::from_static(b"b"));
        third.delete(&Bytes::from_static(b"a"));
        assert!(first.has_room_for(&second) && !first.has_room_for(&third));
        first.join(second);
        assert_eq!(first.len(), 2);
    }
}
