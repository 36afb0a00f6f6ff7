//! Releasing a Lease for a process that is gone.

use super::{Kubernetes, Place};
use crate::stores::record::carry_out_will;
use hustings_lease::Note;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Which Lease, and whose.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Will {
    pub(super) place: Place,
    pub(super) election: String,
    pub(super) life: String,
}

impl Will {
    /// Clears the Lease if this life holds it with the note's token, and leaves the note.
    pub(crate) async fn carry_out(&self, note: &Note) {
        let kubernetes = Kubernetes::at(self.place.clone(), Duration::from_secs(10));
        carry_out_will(&kubernetes, &self.election, &self.life, note).await;
    }
}
