//! Defects that can be planted, one at a time: [`Defect`]. For proofs that the judge convicts.
//!
//! Each is a mistake that a published system made or that somebody could make. Only the laboratory plants them:
//! [`plant`] is the one way, and nothing but tests calls it.

use crate::candidate::Settings;
use crate::schedule::Schedule;
use crate::store_model::StoreModel;

/// A defect that can be planted in candidates or their store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Defect {
    /// Validity counts from when the answer came, not from when the request left (client-go).
    CountsFromTheAnswer,
    /// A renewal that is answered after the end makes the leader believe again.
    Revives,
    /// Validity is the whole time to live: clocks are taken to run at one rate.
    IgnoresTheRateError,
    /// The record is released when stopping begins, not when it is done (client-go's `ReleaseOnCancel`).
    ReleasesEarly,
    /// Hearing that the election is vacant is taken for having won it.
    BelievesTheEvent,
    /// An unknown outcome is taken for a refusal: asks again without a look.
    UnknownIsRefused,
    /// The store's number begins again when its record is deleted (Consul's `LockIndex`).
    CounterRestarts,
    /// The host's clock stands still while its machine is suspended (`CLOCK_MONOTONIC`).
    MonotonicClock,
    /// A conflict is answered by swapping on the newer version at once.
    OverwritesOnConflict,
    /// An unhealthy leader goes on leading.
    RenewsUnhealthy,
    /// A new leader acts before it has raised the gate.
    DoesNotRaise,
    /// Others wait for the heir, however long it has been dead.
    WaitsForADeadHeir,
    /// A candidate that gives back what it never led with says, as a leader that has stopped, that nobody believes any more.
    ClearsWithoutHavingLed,
    /// A leader's release clears candidates that enter later, and not only the one directly behind it.
    ClearsForEver,
}

impl Defect {
    /// All defects that can be planted.
    pub const ALL: [Defect; 14] = [
        Defect::CountsFromTheAnswer,
        Defect::Revives,
        Defect::IgnoresTheRateError,
        Defect::ReleasesEarly,
        Defect::BelievesTheEvent,
        Defect::UnknownIsRefused,
        Defect::CounterRestarts,
        Defect::MonotonicClock,
        Defect::OverwritesOnConflict,
        Defect::RenewsUnhealthy,
        Defect::DoesNotRaise,
        Defect::WaitsForADeadHeir,
        Defect::ClearsWithoutHavingLed,
        Defect::ClearsForEver,
    ];

    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Defect::CountsFromTheAnswer => "counts-from-the-answer",
            Defect::Revives => "revives",
            Defect::IgnoresTheRateError => "ignores-the-rate-error",
            Defect::ReleasesEarly => "releases-early",
            Defect::BelievesTheEvent => "believes-the-event",
            Defect::UnknownIsRefused => "unknown-is-refused",
            Defect::CounterRestarts => "counter-restarts",
            Defect::MonotonicClock => "monotonic-clock",
            Defect::OverwritesOnConflict => "overwrites-on-conflict",
            Defect::RenewsUnhealthy => "renews-unhealthy",
            Defect::DoesNotRaise => "does-not-raise",
            Defect::WaitsForADeadHeir => "waits-for-a-dead-heir",
            Defect::ClearsWithoutHavingLed => "clears-without-having-led",
            Defect::ClearsForEver => "clears-for-ever",
        }
    }
}

/// The same settings with a defect in them.
pub fn plant(settings: Settings, defect: Defect) -> Settings {
    Settings { planted: Some(defect), ..settings }
}

/// A schedule for these settings, with the part of their defect that is a host's.
pub fn schedule(settings: &Settings) -> Schedule {
    let mut schedule = Schedule::new(&settings.timing);
    if let Some(defect) = settings.planted {
        schedule.plant(defect, &settings.timing);
    }
    schedule
}

/// The same store with a defect in it, if it is one of stores.
pub fn plant_store(store: &mut StoreModel, defect: Defect) {
    match defect {
        Defect::CounterRestarts => store.restart_counter(),
        Defect::ClearsForEver => store.clear_for_ever(),
        _ => {}
    }
}
