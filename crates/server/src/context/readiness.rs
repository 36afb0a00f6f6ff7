//! Whether this member can do what is asked: a learner and a witness refuse most things, and new things wait for old members.

use hustings_api::EtcdError;
use hustings_core::ApplyVersion;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::context::backend::Backend;
use crate::context::{Context, error};

/// Whether a method is served by a member that only learns, or only votes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Learner {
    /// A learner tells this of itself, and so does a witness, which knows no users: to everybody.
    Tells,
    /// A learner serves this, too.
    Serves,
    /// A learner refuses this.
    Refuses,
}

impl<B: Backend> Context<B> {
    /// Whether this member is a witness: it has no store to look at.
    pub(crate) fn is_witness(&self) -> bool {
        let status = self.backend.status();
        status.membership.is_witness(status.me)
    }

    /// Refuses what this member cannot do now: a learner most things, a witness all but a few, any member without a leader what insists
    /// on one.
    pub(crate) fn check(&self, metadata: &MetadataMap, learner: Learner) -> Result<(), Status> {
        let status = self.backend.status();
        if learner != Learner::Tells && status.membership.is_witness(status.me) {
            return Err(error::is_witness());
        }
        if learner == Learner::Refuses && status.membership.is_learner(status.me) {
            return Err(EtcdError::NotSupportedForLearner.into());
        }
        if status.leader.is_none() && insists_on_leader(metadata) {
            return Err(EtcdError::NoLeader.into());
        }
        Ok(())
    }

    /// Waits until entries are applied by this version: a new cluster rises to it by itself, within moments of its first leader.
    pub(crate) async fn await_version(&self, version: ApplyVersion) -> Result<(), Status> {
        let mut status = self.status_changes();
        let has_risen = status.wait_for(|status| status.version >= version);
        let Ok(risen) = tokio::time::timeout(self.options.request_timeout(), has_risen).await else {
            let text = "etcdserver: not capable: some member is of an older build, update it first";
            return Err(Status::unavailable(text));
        };
        risen.map(drop).map_err(|_| Status::from(EtcdError::Stopped))
    }
}

/// Whether a client asked to be told at once when there is no leader.
pub(crate) fn insists_on_leader(metadata: &MetadataMap) -> bool {
    metadata.get("hasleader").is_some_and(|value| value == "true")
}
