//! Automatic compaction: removes old revisions by age or by number, without a request.
//!
//! Source: etcd 3.5, `server/etcdserver/api/v3compactor`: with mode `periodic` the revision is noted ten times per retention,
//! or per hour where that is less; nothing is compacted before a whole retention has passed, then once per retention or hour,
//! up to what was noted a retention and one note ago; a failed compaction is tried again at the next note. With mode `revision`
//! all but the given number of revisions are compacted every five minutes.
//!
//! Only the leader proposes; every member notes, so that a new leader goes on where the old one stopped. Two that both
//! believe they lead do no harm: what is compacted twice is compacted once.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hustings_api::EtcdError;
use hustings_kv::{Command, Compact, Need};
use tokio::time::Instant;

use crate::context::Context;
use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::options::Compaction;

/// Compactions are at most this far apart.
const HOUR: Duration = Duration::from_secs(3_600);

/// Revisions that are noted per period.
const NOTES: u32 = 10;

/// Pause between two looks at the number of revisions.
const REVISIONS_EVERY: Duration = Duration::from_secs(300);

/// The store that is compacted.
trait Subject {
    /// The store's latest revision; `None` if it does not answer.
    fn revision(&self) -> impl Future<Output = Option<i64>> + Send;
    /// Whether this member is the one to compact.
    fn leads(&self) -> bool;
    /// Compacts up to a revision; whether everything below it is forgotten now.
    fn compact(&self, revision: i64) -> impl Future<Output = bool> + Send;
}

/// Compacts for as long as the server runs.
pub(crate) async fn keep<B: Backend>(context: Arc<Context<B>>) {
    run(context.options.compaction, &*context).await;
}

async fn run(compaction: Compaction, subject: &impl Subject) {
    match compaction {
        Compaction::Never => {}
        Compaction::Periods(retention) => by_time(retention, subject).await,
        Compaction::Revisions(kept) => by_revisions(kept, subject).await,
    }
}

async fn by_time(retention: Duration, subject: &impl Subject) {
    let period = retention.min(HOUR);
    let pause = period / NOTES;
    let kept = usize::try_from(retention.as_nanos() / pause.as_nanos().max(1)).unwrap_or(usize::MAX).saturating_add(1);
    let (mut notes, mut compacted) = (VecDeque::new(), 0);
    let mut due = Instant::now() + retention;
    loop {
        // A member that is told no revision now notes the last one it knew: later than it was, so less is forgotten.
        if let Some(revision) = subject.revision().await.or(notes.back().copied()) {
            notes.push_back(revision);
        }
        while notes.len() > kept {
            notes.pop_front();
        }
        tokio::time::sleep(pause).await;
        let Some(oldest) = notes.front().copied().filter(|oldest| *oldest > compacted) else { continue };
        if !subject.leads() || Instant::now() < due {
            continue;
        }
        if subject.compact(oldest).await {
            compacted = oldest;
            due = Instant::now() + period;
        }
    }
}

async fn by_revisions(kept: i64, subject: &impl Subject) {
    let mut compacted = 0;
    loop {
        tokio::time::sleep(REVISIONS_EVERY).await;
        if !subject.leads() {
            continue;
        }
        let Some(revision) = subject.revision().await.map(|revision| revision - kept) else { continue };
        if revision > compacted && subject.compact(revision).await {
            compacted = revision;
        }
    }
}

impl<B: Backend> Subject for Context<B> {
    async fn revision(&self) -> Option<i64> {
        Some(self.read_local(&Caller::member(), Need::Nothing).await.ok()?.revision())
    }

    fn leads(&self) -> bool {
        Context::<B>::is_leader(&self.node_status())
    }

    async fn compact(&self, revision: i64) -> bool {
        match self.propose(&Caller::member(), Command::Compact(Compact { revision })).await {
            Ok(_) => {
                tracing::info!(revision, "compacted, because --auto-compaction-retention asks for it");
                true
            }
            Err(status) if status.message() == EtcdError::Compacted.message() => true,
            Err(status) => {
                tracing::warn!(revision, "could not compact, trying again: {}", status.message());
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A store that grows by one revision a second and remembers when it was compacted to what.
    struct Growing {
        begun: Instant,
        leads: AtomicBool,
        fails: AtomicBool,
        compactions: Mutex<Vec<(u64, i64)>>,
    }

    impl Growing {
        fn seconds(&self) -> u64 {
            self.begun.elapsed().as_secs()
        }
    }

    impl Subject for Growing {
        async fn revision(&self) -> Option<i64> {
            Some(1 + self.seconds() as i64)
        }

        fn leads(&self) -> bool {
            self.leads.load(Ordering::Relaxed)
        }

        async fn compact(&self, revision: i64) -> bool {
            self.compactions.lock().unwrap().push((self.seconds(), revision));
            !self.fails.load(Ordering::Relaxed)
        }
    }

    /// The compactions within `length`, as pairs of the time in seconds and the revision.
    async fn compactions(
        compaction: Compaction,
        length: Duration,
        meanwhile: impl AsyncFnOnce(&Growing),
    ) -> Vec<(u64, i64)> {
        let growing =
            Growing { begun: Instant::now(), leads: true.into(), fails: false.into(), compactions: Mutex::default() };
        tokio::select! {
            () = run(compaction, &growing) => {}
            () = async { tokio::join!(tokio::time::sleep(length), meanwhile(&growing)); } => {}
        }
        growing.compactions.into_inner().unwrap()
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn half_an_hour_is_kept_and_compacted_every_half_hour() {
        let found = compactions(Compaction::Periods(30 * MINUTE), 95 * MINUTE, async |_| {}).await;
        assert_eq!(
            found,
            [(1_800, 1), (3_600, 1_621), (5_400, 3_421)],
            "what is compacted is a retention and a tenth old"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_day_is_kept_and_compacted_every_hour() {
        let found = compactions(Compaction::Periods(24 * HOUR), 27 * HOUR - MINUTE, async |_| {}).await;
        assert_eq!(found, [(86_400, 1), (90_000, 3_241), (93_600, 6_841)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_is_tried_again_after_a_tenth() {
        let found = compactions(Compaction::Periods(10 * MINUTE), 13 * MINUTE, async |growing| {
            growing.fails.store(true, Ordering::Relaxed);
            tokio::time::sleep(11 * MINUTE + MINUTE / 2).await;
            growing.fails.store(false, Ordering::Relaxed);
        })
        .await;
        assert_eq!(found, [(600, 1), (660, 1), (720, 61)]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_lead_notes_and_compacts_nothing_until_it_leads() {
        let found = compactions(Compaction::Periods(10 * MINUTE), 17 * MINUTE, async |growing| {
            growing.leads.store(false, Ordering::Relaxed);
            tokio::time::sleep(15 * MINUTE + MINUTE / 2).await;
            growing.leads.store(true, Ordering::Relaxed);
        })
        .await;
        assert_eq!(found, [(960, 301)], "the first of the notes of the last eleven minutes");
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_revisions_are_kept() {
        let found = compactions(Compaction::Revisions(500), 16 * MINUTE, async |_| {}).await;
        assert_eq!(found, [(600, 101), (900, 401)], "every five minutes, once there are more");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_compacted_unless_asked() {
        assert_eq!(compactions(Compaction::Never, 100 * HOUR, async |_| {}).await, []);
    }
}
