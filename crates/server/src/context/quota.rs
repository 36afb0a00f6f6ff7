//! The quota of storage: when the store outgrows it, an alarm goes up and puts are refused until it is cleared.
//!
//! Source: etcd 3.5, `server/storage/quota.go`. The store's size is looked at at most ten times a second, and only after
//! something was applied or refused; in between, what this member proposes is added to it, and taken away again when it comes
//! to nothing. A refusal alone raises no alarm: the store is looked at first, for space may have been freed. The alarm is a
//! command: once it is applied, every member refuses by itself. It goes up as well while a member's disk has no room for the next
//! segment of its log: then as much as a segment holds is left to write in, and that member's own clients are refused before the
//! alarm is applied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hustings_api::EtcdError;
use hustings_kv::{AlarmChange, AlarmKind, Command, Need, Response, View};
use hustings_node::remedies::NO_SPACE;
use tokio::sync::Notify;
use tonic::Status;

use crate::context::Context;
use crate::context::backend::Backend;
use crate::context::caller::Caller;

/// The least time between two looks at the store's size.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Longest time from the moment at which the log has no room to grow until the alarm is on its way.
const GLANCE_INTERVAL: Duration = Duration::from_millis(50);

/// Pause between two looks at the disk when nothing is applied.
const DISK_INTERVAL: Duration = Duration::from_secs(2);

/// Bytes that a put costs beside its own: about what the store charges.
const OVERHEAD_BYTES: u64 = 256;

/// The fill of the store, as far as this member knows, and its limit, in bytes.
pub(crate) struct Quota {
    limit: u64,
    /// The size at the last look.
    size: AtomicU64,
    /// Growth since the last look.
    growth: AtomicU64,
    /// Cost of the proposals on their way.
    under_way: AtomicU64,
    /// The most that a proposal wanted that was refused since the last look.
    wanted: AtomicU64,
    /// Wakes the task that looks, once a proposal was refused.
    refused: Notify,
}

/// Room in the store for a proposal on its way, given back when it comes to nothing.
pub(crate) struct Room<'q> {
    quota: &'q Quota,
    cost: u64,
}

impl Room<'_> {
    /// The proposal is done: it counts until the next look at the store finds it there.
    pub(crate) fn fill(self) {
        self.quota.growth.fetch_add(self.cost, Ordering::Relaxed);
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.quota.under_way.fetch_sub(self.cost, Ordering::Relaxed);
    }
}

impl Quota {
    pub(crate) fn new(limit: u64) -> Quota {
        let (size, growth, under_way, wanted) = <(AtomicU64, AtomicU64, AtomicU64, AtomicU64)>::default();
        Quota { limit, size, growth, under_way, wanted, refused: Notify::new() }
    }

    /// Makes room for a proposal that will grow the store.
    ///
    /// # Errors
    /// [`EtcdError::NoSpace`] when the store is too full for it, as far as is known; [`EtcdError::TooManyRequests`] when it
    /// is too full only if all that is on its way succeeds.
    pub(crate) fn admit(&self, payload_bytes: usize) -> Result<Room<'_>, Status> {
        let cost = payload_bytes as u64 + OVERHEAD_BYTES;
        let under_way = self.under_way.fetch_add(cost, Ordering::Relaxed).saturating_add(cost);
        let room = Room { quota: self, cost };
        let stored = self.size.load(Ordering::Relaxed).saturating_add(self.growth.load(Ordering::Relaxed));
        if stored.saturating_add(under_way) <= self.limit {
            return Ok(room);
        }
        if stored.saturating_add(cost) <= self.limit {
            return Err(EtcdError::TooManyRequests.into());
        }
        self.wanted.fetch_max(cost, Ordering::Relaxed);
        self.refused.notify_one();
        Err(EtcdError::NoSpace.into())
    }

    /// Looks at the store itself. Says whether it is full: above the limit, or too full for what was refused.
    pub(crate) fn look(&self, view: &View) -> bool {
        self.size.store(view.size_bytes(), Ordering::Relaxed);
        self.growth.store(0, Ordering::Relaxed);
        view.size_bytes().saturating_add(self.wanted.swap(0, Ordering::Relaxed)) > self.limit
    }

    /// The size at the last look, in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }
}

/// Watches over the quota until the node stops.
pub(crate) async fn keep<B: Backend>(context: Arc<Context<B>>) {
    let mut applied = context.applied_changes();
    loop {
        let is_short = context.metrics.is_log_short();
        {
            // Dropped before waiting: while a view lives, every change of the store copies what it shares with it.
            let view = match context.read_local(&Caller::member(), Need::Nothing).await {
                Ok(view) => view,
                Err(status) if EtcdError::of(&status) == Some(EtcdError::Stopped) || context.is_witness() => return,
                // The loop does not answer now.
                Err(_) => {
                    tokio::time::sleep(LOOK_INTERVAL).await;
                    continue;
                }
            };
            context.metrics.see_alarms(&view.alarms());
            // Both: a look forgets what was refused before it.
            let is_full = context.quota.look(&view);
            if is_full || is_short {
                raise(&context, &view, is_short).await;
            }
        }
        let was_refused = tokio::select! {
            changed = applied.changed() => match changed {
                Ok(()) => false,
                Err(_) => return,
            },
            () = context.quota.refused.notified() => true,
            () = shortage(&context) => true,
        };
        if !was_refused {
            rest(&context, is_short).await;
        }
    }
}

/// Waits until the next look: not as long when the disk has no room since the last one, for the other members do not know it yet.
async fn rest<B: Backend>(context: &Context<B>, was_short: bool) {
    for _ in 0..(LOOK_INTERVAL.as_millis() / GLANCE_INTERVAL.as_millis()) {
        tokio::time::sleep(GLANCE_INTERVAL).await;
        if !was_short && context.metrics.is_log_short() {
            return;
        }
    }
}

/// Returns when the disk has no room, after a while: nothing need be applied for that to happen.
async fn shortage<B: Backend>(context: &Context<B>) {
    loop {
        tokio::time::sleep(DISK_INTERVAL).await;
        if context.metrics.is_log_short() {
            return;
        }
    }
}

/// Raises the alarm in this member's name, if it is not up.
async fn raise<B: Backend>(context: &Context<B>, view: &View, is_disk_full: bool) {
    let is_up = |alarm: &hustings_kv::Alarm| alarm.member == context.member_id && alarm.kind == AlarmKind::NoSpace;
    if view.alarms().iter().any(is_up) {
        return;
    }
    let change = AlarmChange { raise: true, member: context.member_id, kind: AlarmKind::NoSpace as i32 };
    // A failure now is tried again at the next look.
    if let Ok(Response::Alarm { .. }) = context.propose(&Caller::member(), Command::Alarm(change)).await {
        let (size, limit) = (view.size_bytes(), context.quota.limit);
        match is_disk_full {
            true => {
                tracing::warn!("alarm NOSPACE raised, writes are refused: the disk has no room for the log; {NO_SPACE}")
            }
            false => {
                tracing::warn!(size, limit, "alarm NOSPACE raised, writes are refused: the store is full; {NO_SPACE}")
            }
        }
    }
}
