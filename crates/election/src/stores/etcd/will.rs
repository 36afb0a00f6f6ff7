//! How another process releases an election for one that is gone: [`Will`].

use super::keys::{Names, note_to_bytes};
use super::seat::release_of;
use hustings_api::Client;
use hustings_lease::{Note, Token};
use serde::{Deserialize, Serialize};

/// What it takes to release one tenure, and nothing else.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Will {
    pub(super) endpoints: Vec<String>,
    pub(super) election: String,
    pub(super) lease: i64,
    pub(super) token: String,
}

impl Will {
    /// Releases the election, once nothing of the tenure acts any more. Whether it worked is not told: the lease ends, too.
    pub async fn carry_out(&self, because: &str) {
        let Ok(token) = self.token.parse::<Token>() else { return };
        let names = Names::of(&self.election);
        let note = Note { token, because: because.to_owned(), heir: None };
        let txn = release_of(&names, self.lease, token, Some(note_to_bytes(&note)));
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
