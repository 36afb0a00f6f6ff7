//! Releasing an entry of a queue for a process that is gone.

use super::keys::Names;
use super::reach::Reach;
use super::seat::release_of;
use crate::stores::written::note_to_bytes;
use hustings_lease::Note;
use serde::{Deserialize, Serialize};

/// A will: the entry, and the cluster that holds it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Will {
    #[serde(flatten)]
    pub(super) reach: Reach,
    pub(super) election: String,
    pub(super) lease: i64,
}

impl Will {
    /// Takes the entry away that the note's token names, and leaves the note.
    pub(crate) async fn carry_out(&self, note: &Note) {
        let names = Names::of(&self.election);
        let txn = release_of(&names, self.lease, note.token, Some(note_to_bytes(note).into()));
        let mut reach = self.reach.clone();
        for _ in 0..self.reach.endpoints.len() {
            let connected = reach.connect().await;
            reach.endpoints.rotate_left(1);
            if let Ok(client) = connected
                && client.kv().txn(txn.clone()).await.is_ok()
            {
                return;
            }
        }
    }
}
