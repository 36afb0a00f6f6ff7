//! Remedies of the states in which a cluster serves less than it should.
//!
//! The log, `hustings status` and the error of a refused request all say these words, so that an operator who meets the state first is told
//! the same thing.

/// The remedy while no majority of the voters can be reached.
pub const NO_QUORUM: &str = "start members until most are back; if they are gone for good, `hustings recover`";

/// Advice while a majority can be reached and nobody leads.
pub const NO_LEADER_YET: &str =
    "most voters can be reached, so one is about to be elected; look again, and at their logs";

/// The remedy while the alarm NOSPACE stands.
pub const NO_SPACE: &str = "make room (`hustings compact`, a larger disk or quota), then `hustings alarm disarm`";

/// The remedy while the alarm CORRUPT stands. `alarm list` names the member that differs.
pub const CORRUPT: &str = "remove the member that differs (`hustings alarm list`), add it again with an empty directory, then \
                           `hustings alarm disarm`";
