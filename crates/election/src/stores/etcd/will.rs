//! Releasing an entry of a queue for a process that is gone.

use super::keys::Names;
use super::seat::release_of;
use crate::stores::written::note_to_bytes;
use hustings_api::Client;
use hustings_lease::Note;
use serde::{Deserialize, Serialize};

/// Which entry, and where.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Will {
    pub(super) endpoints: Vec<String>,
    pub(super) election: String,
    pub(super) lease: i64,
}

impl Will {
    /// Takes the entry away that the note's token names, and leaves the note.
    pub(crate) async fn carry_out(&self, note: &Note) {
        let names = Names::of(&self.election);
        let txn = release_of(&names, self.lease, note.token, Some(note_to_bytes(note).into()));
        for first in 0..self.endpoints.len() {
            let mut endpoints = self.endpoints.clone();
            endpoints.rotate_left(first);
            if let Ok(client) = Client::connect(&endpoints).await
                && client.kv().txn(txn.clone()).await.is_ok()
            {
                return;
            }
        }
    }
}
