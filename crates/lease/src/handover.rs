//! The others that stand for election, and to which of them a holder hands over.

use crate::store::{CandidateId, Standing};
use std::time::Duration;

/// Time for which a holder sees a preferred candidate healthy before it hands over.
pub const PREFERRED_FOR: Duration = Duration::from_secs(10);

/// The others that stand for election, as far as this candidate has seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Roster {
    standings: Vec<Standing>,
    /// The preferred candidate for which the timer is set.
    pub(crate) awaited: Option<CandidateId>,
}

impl Roster {
    pub(crate) fn learn(&mut self, standings: Vec<Standing>) {
        self.standings = standings;
    }

    /// Whether nobody else stands for election.
    pub(crate) fn is_alone(&self, id: &CandidateId) -> bool {
        self.standings.iter().all(|other| other.id == *id)
    }

    /// The healthy candidate of the highest priority above `priority` that a hand-over would reach; the first of equals.
    ///
    /// In a queue nobody passes a stranger, which does not know that it should let the heir go first.
    pub(crate) fn preferred(&self, id: &CandidateId, priority: u32, is_queue: bool) -> Option<&CandidateId> {
        let reachable =
            self.standings.iter().filter(|other| other.id != *id).take_while(|other| !is_queue || other.is_ours);
        let mut best: Option<&Standing> = None;
        for other in reachable.filter(|other| other.is_ours && other.is_healthy && other.priority > priority) {
            if best.is_none_or(|best| other.priority > best.priority) {
                best = Some(other);
            }
        }
        best.map(|other| &other.id)
    }
}
