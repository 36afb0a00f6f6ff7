//! Unlocking a record for a process that is gone.

use super::http::{Consul, Failure, Place};
use super::record::Keys;
use super::seat::release;
use crate::stores::bequeathed::{Asking, PATIENCE};
use crate::stores::written::note_to_bytes;
use hustings_lease::Note;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
/// A will: the record, and the session that locks it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Will {
    pub(super) place: Place,
    pub(super) election: String,
    pub(super) session: String,
}

impl Will {
    /// Unlocks what the note's token names, and leaves the note. The session may hold other elections, and stays.
    ///
    /// Each agent is asked in turn, again and again, until one says how it is. A request that is done late, or twice, finds the record
    /// changed, and does nothing.
    pub(crate) async fn carry_out(&self, note: &Note) {
        let (consul, keys) = (Consul::new(&self.place), Keys::of(&self.election));
        let note_bytes = note_to_bytes(note);
        let mut asking = Asking::begin();
        while asking.goes_on().await {
            match timeout(PATIENCE, release(&consul, &keys, &self.session, note.token, &note_bytes)).await {
                Ok(Ok(()) | Err(Failure::Refused(_) | Failure::Untimely(_) | Failure::Denied(_))) => return,
                // An agent that does not answer, or has no leader, was moved on from.
                Ok(Err(Failure::Unreachable(_) | Failure::Unknown(_))) => {}
                Err(_) => consul.move_on(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Agent;
    use super::*;
    use crate::Election;
    use hustings_lease::Token;
    use std::time::Duration;

    /// Carries out a will of token 7 in session `s1`, for five seconds; whether it came to an end.
    async fn is_carried_out(hosts: &[&str]) -> bool {
        let election = Election::open(&format!("consul://{}/billing", hosts.join(","))).expect("the URL is right");
        let place = Place::of(election.store());
        let will = Will { place, election: "billing".to_owned(), session: "s1".to_owned() };
        let note = Note { token: Token::new(7), because: "it is gone".to_owned(), heir: None, has_stopped: true };
        timeout(Duration::from_secs(5), will.carry_out(&note)).await.is_ok()
    }

    fn releases_its_tenure(request: &str) -> bool {
        let words = ["PUT /v1/txn", "\"check-index\"", "\"Index\":7", "\"unlock\"", "\"Session\":\"s1\""];
        words.iter().all(|word| request.contains(word))
    }

    /// Goal: an agent that stands still keeps no will from the next one. Method: the first of two agents accepts, and is silent.
    #[tokio::test]
    async fn a_will_goes_on_past_a_silent_agent() {
        let (mut silent, mut well) = (Agent::answers(&[]), Agent::answers(&[("200 OK", "{\"Results\":[]}")]));
        assert!(is_carried_out(&[&silent.host, &well.host]).await, "the second agent was never heard");
        let (first, second) = (silent.asked_so_far(), well.asked_so_far());
        assert_eq!((first.len(), second.len()), (1, 1));
        assert!(first.iter().chain(&second).all(|request| releases_its_tenure(request)), "{second:?}");
    }

    /// Goal: a will outlasts the moments in which a cluster has no leader, or too much to do. Method: the only agent says so twice, and
    /// then does what it is asked.
    #[tokio::test]
    async fn a_will_is_asked_again_where_the_answer_is_for_now() {
        let mut agent = Agent::answers(&[
            ("500 Internal Server Error", "No cluster leader"),
            ("429 Too Many Requests", "rate limit reached"),
            ("200 OK", "{\"Results\":[]}"),
        ]);
        assert!(is_carried_out(&[&agent.host]).await, "it is asked without end");
        let asked = agent.asked_so_far();
        assert_eq!(asked.len(), 3, "{asked:?}");
        assert!(asked.iter().all(|request| releases_its_tenure(request)), "{asked:?}");
    }
}
