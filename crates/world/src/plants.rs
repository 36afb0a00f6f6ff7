//! Defects of what stands around a protocol, for proofs that the judge convicts: names for [`Plants`], and stores with defects
//! of their own, [`Moody`] and [`Forgetful`].
//!
//! Nothing here can be switched on in a server: a node is built from other parts.

use crate::digested::Service;
use crate::machine::Plants;
use bytes::{Buf, Bytes};
use hustings_core::laboratory::Defect;
use hustings_core::{Lsn, SnapshotError, StateMachine};
use hustings_kv::queue;
use hustings_kv::{KvStore, Outcome, Request, Txn, View};
use std::time::Duration;

impl Plants {
    /// The names of all defects of hosts and disks.
    pub const NAMES: [&'static str; 17] = [
        "answers-early",
        "forgets-vote",
        "forgets-promise",
        "lying-sync",
        "swallows-sync-errors",
        "drops-tail",
        "reuses-incarnation",
        "forgets-applied-requests",
        "drops-watch-event",
        "adopts-without-trace",
        "counts-versions",
        "doubles-time",
        "writes-entries-again",
        "writes-promises-again",
        "tells-old-status",
        "hides-ends",
        "forgets-timers",
    ];

    /// The defect with this name.
    pub fn named(name: &str) -> Option<Plants> {
        let none = Plants::default();
        Some(match name {
            "answers-early" => Plants { answers_early: true, ..none },
            "forgets-vote" => Plants { forgets_vote: true, ..none },
            "forgets-promise" => Plants { forgets_promise: true, ..none },
            "lying-sync" => Plants { lying_sync: true, ..none },
            "swallows-sync-errors" => Plants { swallows_sync_errors: true, ..none },
            "drops-tail" => Plants { drops_tail: true, ..none },
            "reuses-incarnation" => Plants { reuses_incarnation: true, ..none },
            "forgets-applied-requests" => Plants { forgets_applied_requests: true, ..none },
            "drops-watch-event" => Plants { drops_watch_event: true, ..none },
            "adopts-without-trace" => Plants { adopts_without_trace: true, ..none },
            "counts-versions" => Plants { counts_versions: true, ..none },
            "doubles-time" => Plants { doubles_time: true, ..none },
            "writes-entries-again" => Plants { writes_entries_again: true, ..none },
            "writes-promises-again" => Plants { writes_promises_again: true, ..none },
            "tells-old-status" => Plants { tells_old_status: true, ..none },
            "hides-ends" => Plants { hides_ends: true, ..none },
            "forgets-timers" => Plants { forgets_timers: true, ..none },
            _ if let Some(defect) = name.strip_prefix("candidate-") => {
                let known = hustings_lease::Defect::ALL.into_iter().find(|known| known.name() == defect);
                Plants { candidate: Some(known?), ..none }
            }
            // These are defects of what all protocols share.
            _ => Plants { defect: Some(Defect::named(name)?), ..none },
        })
    }
}

/// Standing in a queue as it once was: a client that finds its key there only looks at it.
pub(crate) fn without_trace(mut stand: Txn) -> Txn {
    stand.failure.retain(|operation| matches!(operation.request, Some(Request::Range(_))));
    stand
}

/// Giving a place up as it once was: the key goes if it is the one that the call had, no matter who wrote it last.
pub(crate) fn leave_as_created(key: &Bytes, revision: i64) -> Txn {
    Txn { compare: vec![queue::created_at(key, revision)], ..queue::leave(key, 0) }
}

/// A store that ignores every 40th command of a life: members that were started at different times differ (RP-10).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Moody {
    store: KvStore,
    commands: u64,
}

impl Moody {
    /// Name under which the defect is planted.
    pub const NAME: &'static str = "moody-apply";
}

impl StateMachine for Moody {
    type Response = Outcome;
    type View = View;

    fn advance(&mut self, elapsed: Duration) {
        self.store.advance(elapsed);
    }

    fn apply(&mut self, lsn: Lsn, payload: &Bytes) -> Outcome {
        self.commands += 1;
        // Its answer is what it should have done.
        match self.commands % 40 {
            0 => self.store.clone().apply(lsn, payload),
            _ => self.store.apply(lsn, payload),
        }
    }

    fn freeze(&self) -> View {
        self.store.freeze()
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.store.next_deadline()
    }

    fn encode(view: &View, sink: &mut dyn FnMut(Bytes)) {
        KvStore::encode(view, sink);
    }

    fn decode(snapshot: &mut dyn Buf) -> Result<Moody, SnapshotError> {
        Ok(Moody { store: KvStore::decode(snapshot)?, commands: 0 })
    }
}

impl Service for Moody {
    fn look(view: &View) -> &View {
        view
    }
}

/// A store whose snapshots are one command older than they say: after a restart from one a revision is given out twice.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Forgetful {
    store: KvStore,
    before: KvStore,
}

/// A view, and the one before it.
#[derive(Clone)]
pub struct ForgetfulView {
    now: View,
    before: View,
}

impl Forgetful {
    /// Name under which the defect is planted.
    pub const NAME: &'static str = "stale-snapshots";
}

impl StateMachine for Forgetful {
    type Response = Outcome;
    type View = ForgetfulView;

    fn advance(&mut self, elapsed: Duration) {
        self.before.advance(elapsed);
        self.store.advance(elapsed);
    }

    fn apply(&mut self, lsn: Lsn, payload: &Bytes) -> Outcome {
        self.before = self.store.clone();
        self.store.apply(lsn, payload)
    }

    fn freeze(&self) -> ForgetfulView {
        ForgetfulView { now: self.store.freeze(), before: self.before.freeze() }
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.store.next_deadline()
    }

    fn encode(view: &ForgetfulView, sink: &mut dyn FnMut(Bytes)) {
        KvStore::encode(&view.before, sink);
    }

    fn decode(snapshot: &mut dyn Buf) -> Result<Forgetful, SnapshotError> {
        let store = KvStore::decode(snapshot)?;
        Ok(Forgetful { before: store.clone(), store })
    }
}

impl Service for Forgetful {
    fn look(view: &ForgetfulView) -> &View {
        &view.now
    }
}
