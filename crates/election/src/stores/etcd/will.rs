//! Releasing an entry of a queue for a process that is gone.

use super::keys::Names;
use super::reach::{Reach, is_denial};
use super::seat::release_of;
use crate::stores::bequeathed::{Asking, PATIENCE};
use crate::stores::written::note_to_bytes;
use bytes::Bytes;
use hustings_lease::Note;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
/// A will: the entry, and the cluster that holds it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Will {
    #[serde(flatten)]
    pub(super) reach: Reach,
    pub(super) election: String,
    pub(super) lease: i64,
}

impl Will {
    /// Takes the entry away that the note's token names, and leaves the note, where there is room for it.
    ///
    /// Each member is asked in turn, again and again, until one has done it or refuses the user. A request that comes twice finds nothing
    /// to take away.
    pub(crate) async fn carry_out(&self, note: &Note) {
        let names = Names::of(&self.election);
        let mut reach = self.reach.clone();
        let mut left: Option<Bytes> = Some(note_to_bytes(note).into());
        let mut asking = Asking::begin();
        while asking.goes_on().await {
            let txn = release_of(&names, self.lease, note.token, left.clone());
            let told = timeout(PATIENCE, async { Some(reach.connect().await.ok()?.kv().txn(txn).await) });
            match told.await {
                Ok(Some(Ok(_))) => return,
                Ok(Some(Err(status))) if is_denial(&status) => return,
                Ok(Some(Err(status))) if status.code() == tonic::Code::ResourceExhausted => left = None,
                Ok(_) | Err(_) => {}
            }
            reach.endpoints.rotate_left(1);
        }
    }
}
