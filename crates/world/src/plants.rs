//! Defects of what stands around a protocol, for proofs that the judge convicts: names for [`Plants`].
//!
//! Nothing here can be switched on in a server: a node is built from other parts.

use crate::digested::StoreDefect;
use crate::machine::Plants;
use bytes::Bytes;
use hustings_core::laboratory::Defect;
use hustings_kv::queue;
use hustings_kv::{Request, Txn};

impl Plants {
    /// The names of all defects of hosts, disks, clients and state machines.
    pub const NAMES: [&'static str; 25] = [
        "answers-early",
        "forgets-vote",
        "forgets-promise",
        "lying-sync",
        "swallows-sync-errors",
        "drops-tail",
        "reuses-incarnation",
        "forgets-applied-requests",
        "drops-watch-event",
        "compacts-beyond",
        "adopts-without-trace",
        "counts-versions",
        "doubles-time",
        "writes-entries-again",
        "writes-promises-again",
        "writes-other-entries",
        "counts-unwritten",
        "loses-timers",
        "announces-old-term",
        "tells-old-status",
        "hides-ends",
        "forgets-timers",
        "writes-unfenced",
        "moody-apply",
        "stale-snapshots",
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
            "compacts-beyond" => Plants { compacts_beyond: true, ..none },
            "adopts-without-trace" => Plants { adopts_without_trace: true, ..none },
            "counts-versions" => Plants { counts_versions: true, ..none },
            "doubles-time" => Plants { doubles_time: true, ..none },
            "writes-entries-again" => Plants { writes_entries_again: true, ..none },
            "writes-promises-again" => Plants { writes_promises_again: true, ..none },
            "writes-other-entries" => Plants { writes_other_entries: true, ..none },
            "counts-unwritten" => Plants { counts_unwritten: true, ..none },
            "loses-timers" => Plants { loses_timers: true, ..none },
            "announces-old-term" => Plants { announces_old_term: true, ..none },
            "tells-old-status" => Plants { tells_old_status: true, ..none },
            "hides-ends" => Plants { hides_ends: true, ..none },
            "forgets-timers" => Plants { forgets_timers: true, ..none },
            "writes-unfenced" => Plants { writes_unfenced: true, ..none },
            "moody-apply" => Plants { store: Some(StoreDefect::MoodyApply), ..none },
            "stale-snapshots" => Plants { store: Some(StoreDefect::StaleSnapshots), ..none },
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
