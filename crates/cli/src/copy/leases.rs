//! Leases of the source, granted at the destination under the same ids and kept alive there for as long as they live at the
//! source: [`Leases`].
//!
//! ```text
//!   renewing   destination: each lease after a third of its time          never waits for the source
//!   looking    source: which have come, which have ended                  every LOOK_EVERY, and when one was lost
//! ```
//!
//! A lease that ended at the destination though the source has it is *lost*: it is granted again, and the follower writes its keys again,
//! in their turn among all that it writes.

use super::side::{Refused, Side};
use anyhow::Result;
use futures::StreamExt;
use hustings_api::EtcdError;
use hustings_api::etcdserverpb as pb;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::{Response, Status};

/// The bounds of the pause between two renewals of a lease.
const RENEW_EVERY_MIN: Duration = Duration::from_millis(300);
const RENEW_EVERY_MAX: Duration = Duration::from_secs(20);
/// The bounds of the time that renewals on one stream may take before the next member is asked.
const RENEW_WITHIN_MIN: Duration = Duration::from_secs(2);
const RENEW_WITHIN_MAX: Duration = Duration::from_secs(10);
/// Leases that are renewed on one stream.
const PORTION: usize = 500;
/// The pause between two looks at the leases of the source: how late one that has no keys comes to the destination, and ends there.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The leases that were copied.
#[derive(Clone, Default)]
pub(super) struct Leases(Arc<Shared>);

#[derive(Default)]
struct Shared {
    held: Mutex<Held>,
    has_come: Notify,
    has_lost: Notify,
}

#[derive(Default)]
struct Held {
    /// Leases that are at the destination, by their ids.
    known: BTreeMap<i64, Lease>,
    /// Leases that ended there: their keys went with them.
    lost: BTreeSet<i64>,
}

#[derive(Clone, Copy)]
struct Lease {
    granted_seconds: i64,
    /// Time of the next renewal.
    due: Instant,
}

/// The pause between two renewals of a lease of so many seconds.
fn pause_of(granted_seconds: i64) -> Duration {
    let granted = Duration::from_secs(u64::try_from(granted_seconds).unwrap_or(0));
    (granted / 3).clamp(RENEW_EVERY_MIN, RENEW_EVERY_MAX)
}

impl Leases {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().expect("nobody panics while holding it")
    }

    pub(super) fn len(&self) -> usize {
        self.held().known.len()
    }

    /// All leases of the source.
    pub(super) async fn copy_all(&self, source: &mut Side, destination: &mut Side) -> Result<()> {
        for id in list(source).await? {
            self.ensure(id, source, destination).await?;
        }
        Ok(())
    }

    /// Grants a lease at the destination if the source has it; says whether it is there.
    pub(super) async fn ensure(&self, id: i64, source: &mut Side, destination: &mut Side) -> Result<bool> {
        if self.held().known.contains_key(&id) {
            return Ok(true);
        }
        // One that has ended since: its keys are about to be deleted.
        let Some(granted_seconds) = granted_seconds(id, source).await? else { return Ok(false) };
        self.grant(id, granted_seconds, destination).await?;
        Ok(true)
    }

    async fn grant(&self, id: i64, granted_seconds: i64, destination: &mut Side) -> Result<()> {
        let asked = pb::LeaseGrantRequest { id, ttl: granted_seconds };
        let began = Instant::now();
        let due = match destination.ask(async |side| side.client.lease().lease_grant(side.asked(asked)).await).await {
            Ok(_) => began + pause_of(granted_seconds),
            // An import that goes on: nobody knows how much of its time is left.
            Err(error) if Refused::is(&error, EtcdError::LeaseExists) => began,
            Err(error) => return Err(error),
        };
        self.held().known.insert(id, Lease { granted_seconds, due });
        self.0.has_come.notify_one();
        Ok(())
    }

    /// Grants again what ended at the destination though the source has it: this process was held up for too long.
    pub(super) async fn restore(&self, source: &mut Side, destination: &mut Side) -> Result<()> {
        self.renew(None, destination).await?;
        let lost: Vec<i64> = self.held().lost.iter().copied().collect();
        for id in lost {
            self.ensure(id, source, destination).await?;
        }
        Ok(())
    }

    /// Whether some lease was lost, whose keys nobody has written again.
    pub(super) fn has_lost(&self) -> bool {
        !self.held().lost.is_empty()
    }

    /// The leases that were lost since the last call: whoever takes them writes their keys again.
    pub(super) fn take_lost(&self) -> BTreeSet<i64> {
        std::mem::take(&mut self.held().lost)
    }

    /// Keeps them at the destination as they are at the source, for ever.
    pub(super) async fn keep(self, source: Side, destination: Side) -> Result<()> {
        tokio::select! {
            failed = self.renew_for_ever(destination.clone()) => failed,
            failed = self.look_for_ever(source, destination) => failed,
        }
    }

    async fn renew_for_ever(&self, mut destination: Side) -> Result<()> {
        loop {
            let due = self.held().known.values().map(|lease| lease.due).min();
            match due {
                None => self.0.has_come.notified().await,
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => self.renew(Some(Instant::now()), &mut destination).await?,
                    () = self.0.has_come.notified() => {}
                },
            }
        }
    }

    async fn look_for_ever(&self, mut source: Side, mut destination: Side) -> Result<()> {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.0.has_lost.notified() => {}
            }
            self.look(&mut source, &mut destination).await?;
        }
    }

    /// Renews all of them; says whether all of them were still there.
    pub(super) async fn renew_all(&self, destination: &mut Side) -> Result<bool> {
        self.renew(None, destination).await?;
        Ok(!self.has_lost())
    }

    /// Renews what is due at this time, or all; whatever had ended is lost.
    async fn renew(&self, until: Option<Instant>, destination: &mut Side) -> Result<()> {
        let is_due = |lease: &Lease| until.is_none_or(|until| lease.due <= until);
        let mut leases: Vec<(i64, i64)> = {
            let held = self.held();
            let due = held.known.iter().filter(|(_, lease)| is_due(lease));
            due.map(|(id, lease)| (lease.granted_seconds, *id)).collect()
        };
        // The shortest cannot wait for the others.
        leases.sort_unstable();
        for portion in leases.chunks(PORTION) {
            let limit = pause_of(portion[0].0).clamp(RENEW_WITHIN_MIN, RENEW_WITHIN_MAX);
            let ids: Vec<i64> = portion.iter().map(|(_, id)| *id).collect();
            let began = Instant::now();
            let ended = destination.ask_within(limit, async |side| renew_portion(side, &ids).await).await?;
            let mut held = self.held();
            for (granted_seconds, id) in portion {
                if ended.contains(id) {
                    // One that this process has ended itself is not lost.
                    if held.known.remove(id).is_some() {
                        held.lost.insert(*id);
                    }
                } else if let Some(lease) = held.known.get_mut(id) {
                    lease.due = began + pause_of(*granted_seconds);
                }
            }
        }
        if self.has_lost() {
            self.0.has_lost.notify_one();
        }
        Ok(())
    }

    /// Grants what has come at the source, and ends at the destination what has ended there.
    pub(super) async fn look(&self, source: &mut Side, destination: &mut Side) -> Result<()> {
        let known: Vec<i64> = self.held().known.keys().copied().collect();
        let there: BTreeSet<i64> = list(source).await?.into_iter().collect();
        for id in &there {
            self.ensure(*id, source, destination).await?;
        }
        for id in known.into_iter().filter(|id| !there.contains(id)) {
            // An etcd's member lists what it has itself: one that lags behind misses leases that live.
            if granted_seconds(id, source).await?.is_some() {
                continue;
            }
            self.held().known.remove(&id);
            let asked = pb::LeaseRevokeRequest { id };
            match destination.ask(async |side| side.client.lease().lease_revoke(side.asked(asked)).await).await {
                Ok(_) => {}
                Err(error) if Refused::is(&error, EtcdError::LeaseNotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

async fn list(side: &mut Side) -> Result<Vec<i64>> {
    let answer =
        side.ask(async |side| side.client.lease().lease_leases(side.asked(pb::LeaseLeasesRequest {})).await).await?;
    Ok(answer.leases.into_iter().map(|lease| lease.id).collect())
}

/// The seconds that a lease was granted for; `None` if it does not live.
async fn granted_seconds(id: i64, side: &mut Side) -> Result<Option<i64>> {
    let asked = pb::LeaseTimeToLiveRequest { id, keys: false };
    match side.ask(async |side| side.client.lease().lease_time_to_live(side.asked(asked)).await).await {
        Ok(lives) => Ok((lives.ttl > 0).then_some(lives.granted_ttl.max(1))),
        Err(error) if Refused::is(&error, EtcdError::LeaseNotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Asks for the renewal of each on one stream; gives those that have ended.
async fn renew_portion(side: &Side, ids: &[i64]) -> Result<Response<BTreeSet<i64>>, Status> {
    let questions: Vec<_> = ids.iter().map(|id| pb::LeaseKeepAliveRequest { id: *id }).collect();
    // Closed only when this future ends: a stream whose asking side is closed may end before its answers.
    let questions = side.asked(futures::stream::iter(questions).chain(futures::stream::pending()));
    let mut answers = side.client.lease().lease_keep_alive(questions).await?.into_inner();
    let mut ended = BTreeSet::new();
    for _ in ids {
        match answers.message().await? {
            Some(answer) if answer.ttl <= 0 => ended.extend([answer.id]),
            Some(_) => {}
            None => return Err(Status::unavailable("the stream of renewals has ended")),
        }
    }
    Ok(Response::new(ended))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::fake::Fake;

    const ID: i64 = 7;

    /// Goal: a lease that lives at the source lives at the destination, whatever a member that lags behind says of it. Method: a source
    /// whose member lists no lease, and whose cluster says how long one lives; then it has ended there as well.
    #[tokio::test]
    async fn a_lease_that_a_lagging_member_does_not_list_is_not_ended() {
        let (there, here) = (Fake::default(), Fake::default());
        let (mut source, mut destination) = (there.side("source").await, here.side("destination").await);
        there.leases(|leases| leases.insert(ID, 60));
        let leases = Leases::default();
        leases.copy_all(&mut source, &mut destination).await.expect("it is copied");
        there.lag();
        leases.look(&mut source, &mut destination).await.expect("it answers");
        assert!(here.leases(|leases| leases.contains_key(&ID)), "it was ended");
        there.leases(|leases| leases.remove(&ID));
        leases.look(&mut source, &mut destination).await.expect("it answers");
        assert!(!here.leases(|leases| leases.contains_key(&ID)), "it lives on");
    }

    /// Goal: what ends at the destination alone is granted again, and told to whoever writes its keys. Method: a lease that is gone there
    /// when it is renewed.
    #[tokio::test]
    async fn a_lease_that_the_destination_alone_has_lost_is_granted_again() {
        let (there, here) = (Fake::default(), Fake::default());
        let (mut source, mut destination) = (there.side("source").await, here.side("destination").await);
        there.leases(|leases| leases.insert(ID, 60));
        let leases = Leases::default();
        leases.copy_all(&mut source, &mut destination).await.expect("it is copied");
        assert!(leases.renew_all(&mut destination).await.expect("it answers"));
        here.leases(BTreeMap::clear);
        assert!(!leases.renew_all(&mut destination).await.expect("it answers"), "it is missed");
        leases.look(&mut source, &mut destination).await.expect("it answers");
        assert_eq!(here.leases(|leases| leases.get(&ID).copied()), Some(60));
        assert_eq!((leases.take_lost(), leases.take_lost()), (BTreeSet::from([ID]), BTreeSet::new()));
    }
}
