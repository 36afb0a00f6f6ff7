//! Leases of the source, granted at the destination under the same ids and kept alive there for as long as they live at the
//! source: [`Leases`].

use super::side::{Refused, Side};
use anyhow::Result;
use futures::StreamExt;
use hustings_api::EtcdError;
use hustings_api::etcdserverpb as pb;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The longest pause between two renewals: also how late a lease that ended at the source ends at the destination, where it has no
/// keys that would go with it.
const RENEW_EVERY_MAX: Duration = Duration::from_secs(20);
const RENEW_EVERY_MIN: Duration = Duration::from_millis(300);

/// Ids and granted seconds of the leases that were copied.
#[derive(Clone, Default)]
pub(super) struct Leases(Arc<Mutex<BTreeMap<i64, i64>>>);

impl Leases {
    fn known(&self) -> BTreeMap<i64, i64> {
        self.0.lock().expect("nobody panics while holding it").clone()
    }

    pub(super) fn len(&self) -> usize {
        self.known().len()
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
        if self.known().contains_key(&id) {
            return Ok(true);
        }
        let asked = pb::LeaseTimeToLiveRequest { id, keys: false };
        let lives = source.ask(async |side| side.client.lease().lease_time_to_live(side.asked(asked)).await).await;
        let ttl = match lives {
            Ok(lives) if lives.ttl > 0 => lives.granted_ttl.max(1),
            // It has ended since: its keys are about to be deleted.
            Ok(_) => return Ok(false),
            Err(error) if Refused::is(&error, EtcdError::LeaseNotFound) => return Ok(false),
            Err(error) => return Err(error),
        };
        self.grant(id, ttl, destination).await?;
        Ok(true)
    }

    async fn grant(&self, id: i64, ttl: i64, destination: &mut Side) -> Result<()> {
        let asked = pb::LeaseGrantRequest { id, ttl };
        match destination.ask(async |side| side.client.lease().lease_grant(side.asked(asked)).await).await {
            Ok(_) => {}
            // An import that goes on.
            Err(error) if Refused::is(&error, EtcdError::LeaseExists) => {}
            Err(error) => return Err(error),
        }
        self.0.lock().expect("nobody panics while holding it").insert(id, ttl);
        Ok(())
    }

    /// Grants again what ended at the destination though the source has it: this process was held up for too long.
    pub(super) async fn restore(&self, source: &mut Side, destination: &mut Side) -> Result<()> {
        let there: BTreeSet<i64> = list(destination).await?.into_iter().collect();
        let lost: Vec<i64> = self.known().into_keys().filter(|id| !there.contains(id)).collect();
        for id in lost {
            self.0.lock().expect("nobody panics while holding it").remove(&id);
            self.ensure(id, source, destination).await?;
        }
        Ok(())
    }

    /// Renews them all and ends those that ended at the source, for ever.
    pub(super) async fn keep(self, mut source: Side, mut destination: Side) -> Result<()> {
        loop {
            let known = self.known();
            let shortest = known.values().min().copied().unwrap_or(60);
            let pause = Duration::from_secs(u64::try_from(shortest).unwrap_or(60)) / 3;
            tokio::time::sleep(pause.clamp(RENEW_EVERY_MIN, RENEW_EVERY_MAX)).await;
            let alive = self.end_what_ended(&mut source, &mut destination).await?;
            if !alive.is_empty() {
                renew(&mut destination, alive).await?;
            }
        }
    }

    /// Ends at the destination what has ended at the source; gives those that live.
    pub(super) async fn end_what_ended(&self, source: &mut Side, destination: &mut Side) -> Result<Vec<i64>> {
        let known: Vec<i64> = self.known().into_keys().collect();
        if known.is_empty() {
            return Ok(known);
        }
        let there: BTreeSet<i64> = list(source).await?.into_iter().collect();
        let (alive, ended): (Vec<i64>, Vec<i64>) = known.into_iter().partition(|id| there.contains(id));
        for id in ended {
            self.0.lock().expect("nobody panics while holding it").remove(&id);
            let asked = pb::LeaseRevokeRequest { id };
            match destination.ask(async |side| side.client.lease().lease_revoke(side.asked(asked)).await).await {
                Ok(_) => {}
                Err(error) if Refused::is(&error, EtcdError::LeaseNotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(alive)
    }
}

async fn list(side: &mut Side) -> Result<Vec<i64>> {
    let answer =
        side.ask(async |side| side.client.lease().lease_leases(side.asked(pb::LeaseLeasesRequest {})).await).await?;
    Ok(answer.leases.into_iter().map(|lease| lease.id).collect())
}

/// One question for each, on one stream.
async fn renew(side: &mut Side, ids: Vec<i64>) -> Result<()> {
    let count = ids.len();
    let answers = side.ask(async |side| {
        let questions = futures::stream::iter(ids.clone().into_iter().map(|id| pb::LeaseKeepAliveRequest { id }));
        // Closed only when this future ends: a stream whose asking side is closed may end before its answers.
        side.client.lease().lease_keep_alive(side.asked(questions.chain(futures::stream::pending()))).await
    });
    let answers = answers.await?;
    // A lease that ended meanwhile is found by the next write with it.
    let _ = tokio::time::timeout(Duration::from_secs(10), answers.take(count).collect::<Vec<_>>()).await;
    Ok(())
}
