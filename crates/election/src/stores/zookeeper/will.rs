//! Releasing an entry of a queue for a process that is gone.

use super::connection::{Connection, Dial};
use super::nodes::Nodes;
use super::seat::release;
use super::wire::{ANY, Ask};
use crate::address::Security;
use crate::stores::bequeathed::{Asking, PATIENCE};
use crate::stores::written::note_to_bytes;
use crate::wire::Wire;
use hustings_lease::Note;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use tokio::time::timeout;

/// A will: the entry, and the ensemble that holds it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Will {
    pub(super) endpoints: Vec<String>,
    pub(super) security: Security,
    /// Name and password, as `USER:PASSWORD`.
    pub(super) user: Option<String>,
    pub(super) ttl_ms: u64,
    pub(super) election: String,
    pub(super) entry: String,
}

impl fmt::Debug for Will {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the password.
        write!(f, "Will({} at {:?})", self.entry, self.endpoints)
    }
}

impl Will {
    /// Takes the entry away that the note's token names, and leaves the note. Each server is asked in turn, again and again.
    ///
    /// The entry's name is its own for ever, and the transaction that created it is compared: nothing else is touched.
    pub(crate) async fn carry_out(&self, note: &Note) {
        let wire = super::wire_of(&self.security);
        let (mut asking, mut endpoints) = (Asking::begin(), self.endpoints.iter().cycle());
        while asking.goes_on().await {
            let Some(endpoint) = endpoints.next() else { return };
            if let Ok(true) = timeout(PATIENCE, self.carry_out_at(endpoint, &wire, note)).await {
                return;
            }
        }
    }

    /// Whether there is nothing more to do.
    async fn carry_out_at(&self, endpoint: &str, wire: &Wire, note: &Note) -> bool {
        let (nodes, ttl) = (Nodes::of(&self.election), Duration::from_millis(self.ttl_ms));
        let patience = (ttl / 8).min(Duration::from_secs(1));
        let dial = Dial { wire, endpoint, user: self.user.as_deref(), session: None, last_zxid: 0, ttl, patience };
        let Ok(connection) = Connection::open(dial).await else { return false };
        let is_it = |created: i64| created.unsigned_abs() == note.token.number;
        // A write, be it refused, is committed by a quorum: this server may lag behind the one where the entry was made.
        if connection.multi(vec![Ask::Check { path: &nodes.directory, version: ANY }]).await.is_err() {
            return false;
        }
        let is_done = match connection.stat(&nodes.entry(&self.entry)).await {
            Ok(Some(stat)) if is_it(stat.created) => {
                release(&connection, &nodes, &self.entry, Some(&note_to_bytes(note))).await.is_ok()
            }
            Ok(_) => true,
            Err(_) => false,
        };
        connection.close().await;
        is_done
    }
}
