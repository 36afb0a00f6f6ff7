//! Views of the store, for callers who may have what they need: linearizable ones, and this member's own.

use hustings_api::EtcdError;
use hustings_kv::{Need, View};
use hustings_node::{Readable, RequestError};
use tonic::Status;

use super::{Context, error};
use crate::context::backend::Backend;
use crate::context::caller::Caller;

impl<B: Backend> Context<B> {
    /// Reads as [`Context::read`], but waits until there is a leader; an error means that it is refused, or that the node stops.
    pub(crate) async fn read_to_the_end(&self, caller: &Caller, need: Need<'_>) -> Result<View, Status> {
        loop {
            match self.backend.read().await {
                Ok(readable) => return self.permitted(caller, need, readable.view),
                Err(RequestError::Stopped) => return Err(EtcdError::Stopped.into()),
                Err(_) => tokio::time::sleep(self.options.timing.election_max).await,
            }
        }
    }

    /// A view for a linearizable read, if the caller may have what it needs.
    pub(crate) async fn read(&self, caller: &Caller, need: Need<'_>) -> Result<View, Status> {
        let view = self.view().await?;
        self.permitted(caller, need, view)
    }

    /// A view for a serializable read, if the caller may have what it needs.
    pub(crate) async fn read_local(&self, caller: &Caller, need: Need<'_>) -> Result<View, Status> {
        Ok(self.read_local_at(caller, need).await?.view)
    }

    /// Reads as [`Context::read_local`], and gives the place in the log, too.
    pub(crate) async fn read_local_at(&self, caller: &Caller, need: Need<'_>) -> Result<Readable<View>, Status> {
        let readable = self.within(self.backend.read_local()).await?;
        self.recent.see(&readable.view);
        if readable.view.permit(caller.proof(), need).is_err() {
            // The local view may lag: ask the store itself.
            self.read(caller, need).await?;
        }
        note(caller, need, readable.view.revision());
        Ok(readable)
    }

    fn permitted(&self, caller: &Caller, need: Need<'_>, view: View) -> Result<View, Status> {
        self.recent.see(&view);
        note(caller, need, view.revision());
        match view.permit(caller.proof(), need) {
            Ok(()) => Ok(view),
            Err(refusal) => Err(error::of_accounts(refusal)),
        }
    }

    pub(super) async fn view(&self) -> Result<View, Status> {
        Ok(self.within(self.backend.read()).await?.view)
    }

    pub(super) async fn view_local(&self) -> Result<View, Status> {
        Ok(self.within(self.backend.read_local()).await?.view)
    }
}

fn note(caller: &Caller, need: Need<'_>, revision: i64) {
    if let Some(trail) = caller.trail() {
        trail.on_need(need);
        trail.on_revision(revision);
    }
}
