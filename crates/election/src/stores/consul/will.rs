//! Unlocking a record for a process that is gone.

use super::http::{Consul, Failure, Place};
use super::record::Keys;
use super::seat::release;
use crate::stores::written::note_to_bytes;
use hustings_lease::Note;
use serde::{Deserialize, Serialize};

/// A will: the record, and the session that locks it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Will {
    pub(super) place: Place,
    pub(super) election: String,
    pub(super) session: String,
}

impl Will {
    /// Unlocks what the note's token names, and leaves the note. The session may hold other elections, and stays.
    pub(crate) async fn carry_out(&self, note: &Note) {
        let (consul, keys) = (Consul::new(&self.place), Keys::of(&self.election));
        let note_bytes = note_to_bytes(note);
        for _ in consul.endpoints() {
            // An agent that does not answer was moved on from.
            let released = release(&consul, &keys, &self.session, note.token, &note_bytes).await;
            if matches!(released, Ok(()) | Err(Failure::Refused(_) | Failure::Denied(_))) {
                return;
            }
        }
    }
}
