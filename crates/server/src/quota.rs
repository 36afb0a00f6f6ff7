//! The quota of storage: when the store outgrows it, an alarm goes up and puts are refused until it is cleared.
//!
//! Source: etcd 3.5, `server/storage/quota.go`. The store's size is looked at at most ten times a second, and only after
//! something was applied; in between, what this member proposes is added to it. The alarm is a command: once it is applied,
//! every member refuses by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hustings_api::EtcdError;
use hustings_kv::{AlarmChange, AlarmKind, Command, Response, View};
use tokio::sync::Notify;
use tonic::Status;

use crate::backend::Backend;
use crate::context::Context;

/// The least time between two looks at the store's size.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What a put costs beside its bytes: about what the store charges.
const OVERHEAD_BYTES: u64 = 256;

/// How full the store is, as far as this member knows.
pub(crate) struct Quota {
    limit: u64,
    /// The size at the last look.
    size: AtomicU64,
    /// What was proposed since.
    growth: AtomicU64,
    /// Somebody was refused.
    refused: Notify,
}

impl Quota {
    pub(crate) fn new(limit: u64) -> Quota {
        Quota { limit, size: AtomicU64::new(0), growth: AtomicU64::new(0), refused: Notify::new() }
    }

    /// Takes note of a proposal that will grow the store; or refuses it.
    pub(crate) fn admit(&self, payload_bytes: usize) -> Result<(), Status> {
        let cost = payload_bytes as u64 + OVERHEAD_BYTES;
        let growth = self.growth.fetch_add(cost, Ordering::Relaxed) + cost;
        if self.size.load(Ordering::Relaxed).saturating_add(growth) <= self.limit {
            return Ok(());
        }
        self.growth.fetch_sub(cost, Ordering::Relaxed);
        self.refused.notify_one();
        Err(EtcdError::NoSpace.into())
    }

    fn look(&self, view: &View) {
        self.size.store(view.size_bytes(), Ordering::Relaxed);
        self.growth.store(0, Ordering::Relaxed);
    }

    /// The size at the last look, in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }
}

/// Watches over the quota until the node stops.
pub(crate) async fn keep<B: Backend>(context: Arc<Context<B>>) {
    let mut applied = context.backend.applied_changes();
    loop {
        let Ok(readable) = context.backend.read_local().await else { return };
        let view = readable.view;
        context.quota.look(&view);
        if view.size_bytes() > context.quota.limit {
            raise(&context, &view).await;
        }
        let mut was_refused = false;
        tokio::select! {
            changed = applied.changed() => if changed.is_err() { return },
            () = context.quota.refused.notified() => was_refused = true,
        }
        if was_refused {
            raise(&context, &view).await;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Raises the alarm in this member's name, if it is not up.
async fn raise<B: Backend>(context: &Context<B>, view: &View) {
    let is_up = |alarm: &hustings_kv::Alarm| alarm.member == context.member_id && alarm.kind == AlarmKind::NoSpace;
    if view.alarms().iter().any(is_up) {
        return;
    }
    let change = AlarmChange { raise: true, member: context.member_id, kind: AlarmKind::NoSpace as i32 };
    match context.propose(Command::Alarm(change)).await {
        Ok(Response::Alarm { .. }) => {
            let (size, limit) = (view.size_bytes(), context.quota.limit);
            tracing::warn!(size, limit, "alarm NOSPACE raised: compact, then disarm, or start with a larger quota");
        }
        // The next look tries again.
        Ok(_) | Err(_) => {}
    }
}
