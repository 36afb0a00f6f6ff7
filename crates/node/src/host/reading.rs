//! Reads of this member's own clients, and their refusal at a witness.

use super::Host;
use crate::handle::{IS_WITNESS, Readable, RequestError};
use hustings_core::replica::RequestId;
use hustings_core::{Protocol, StateMachine};

impl<P: Protocol, S: StateMachine> Host<P, S> {
    /// The state as it has been applied so far.
    pub(super) fn readable_now(&self) -> Result<Readable<S::View>, RequestError> {
        match self.replica.is_witness() {
            true => Err(IS_WITNESS),
            false => Ok(Readable { applied: self.replica.applied(), view: self.replica.machine().freeze() }),
        }
    }

    /// These reads have nothing to read here.
    pub(super) fn refuse_reads(&mut self, requests: &[RequestId]) {
        for answer in requests.iter().filter_map(|request| self.readers.remove(request)) {
            let _ = answer.send(Err(IS_WITNESS));
        }
    }
}
