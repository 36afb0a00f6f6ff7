//! How a command goes to the node: judged by its caller, held within memory, room and turns, proposed, and answered.
//!
//! Read next: `crate::context::reads`, for what only looks.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use hustings_api::EtcdError;
use hustings_kv::{Advance, COST_MAX, Command, KvError, Response};
use tokio::sync::SemaphorePermit;
use tonic::Status;

use super::{Context, error, off_the_loop};
use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::metrics::Metrics;
use crate::context::quota::Room;

/// Previous values of no more bytes than this are read beside other answers.
const FEW_BYTES: usize = 4 << 20;

/// Bytes that a proposal holds beside its payload.
const PROPOSAL_BYTES: usize = 512;

/// Greatest cost of a command that need not wait for its turn, in the store's visits: some 0.2 milliseconds.
const CHEAP_COST_MAX: u64 = 2_000;

impl<B: Backend> Context<B> {
    /// Proposes a command and waits for its result, within bounds.
    pub(crate) async fn propose(&self, caller: &Caller, command: Command) -> Result<Response, Status> {
        let payload = self.payload(caller, &command).await?;
        let _held = self.memory.hold(payload.len() + PROPOSAL_BYTES)?;
        let _turn = self.turn(&command).await?;
        drop(command);
        self.propose_payload(caller, payload).await
    }

    /// Proposes a command that makes the store grow: as [`Context::propose`], if the quota admits it.
    pub(crate) async fn propose_growth(&self, caller: &Caller, command: Command) -> Result<Response, Status> {
        let payload = self.payload(caller, &command).await?;
        let _held = self.memory.hold(payload.len() + PROPOSAL_BYTES)?;
        let room = self.room(payload.len()).await?;
        let _turn = self.turn(&command).await?;
        drop(command);
        let response = self.propose_payload(caller, payload).await?;
        room.fill();
        Ok(response)
    }

    /// Room in the store for a proposal. A refusal looks at the store first: space may have been freed since the last look.
    async fn room(&self, payload_bytes: usize) -> Result<Room<'_>, Status> {
        // At once: a fast client fills what is left of the log before the alarm is applied.
        if self.metrics.is_log_short() {
            return Err(EtcdError::NoSpace.into());
        }
        if let Ok(room) = self.quota.admit(payload_bytes) {
            return Ok(room);
        }
        let view = self.view_local().await?;
        self.quota.look(&view);
        self.quota.admit(payload_bytes)
    }

    /// A turn for a command that costs much when it is applied: this member has one such command under way at a time, so that
    /// no batch of entries holds the loop for long. A command that would be refused anyway is refused here, without an entry.
    async fn turn(&self, command: &Command) -> Result<Option<SemaphorePermit<'_>>, Status> {
        if !command.may_cost_much() {
            return Ok(None);
        }
        let view = self.view_local().await?;
        let is_cheap = match command.may_ask_disk() {
            false => view.cost(command, CHEAP_COST_MAX).is_ok(),
            true => {
                let command = command.clone();
                self.read_disk(move || view.cost(&command, CHEAP_COST_MAX).is_ok()).await?
            }
        };
        if is_cheap {
            return Ok(None);
        }
        // The semaphore is never closed.
        let turn = tokio::time::timeout(self.options.request_timeout(), self.costly.acquire()).await;
        let Ok(Ok(turn)) = turn else { return Err(EtcdError::TooManyRequests.into()) };
        let (view, command) = (self.view_local().await?, command.clone());
        let cost = off_the_loop(move || view.cost(&command, COST_MAX)).await?;
        cost.map_err(error::of_store)?;
        Ok(Some(turn))
    }

    /// The bytes of a command, with its caller, if both may go further.
    async fn payload(&self, caller: &Caller, command: &Command) -> Result<Bytes, Status> {
        if let Some(trail) = caller.trail() {
            trail.on_command(command);
        }
        self.judge(caller, command).await?;
        let payload = command.to_payload_by(caller.proof());
        if payload.len() > self.options.max_request_bytes {
            return Err(EtcdError::RequestTooLarge.into());
        }
        Ok(payload)
    }

    /// Refuses a command that its caller may not have applied, before it costs an entry. Where it is applied it is judged
    /// again, by the state of that moment.
    async fn judge(&self, caller: &Caller, command: &Command) -> Result<(), Status> {
        if !self.users_count() && caller.proof().is_none() {
            return Ok(());
        }
        if self.recent.decide(|users| users.surely_permits(caller.proof(), command).then_some(())).is_some() {
            return Ok(());
        }
        let view = self.view_local().await?;
        self.recent.see(&view);
        if view.judge(caller.proof(), command).is_ok() {
            return Ok(());
        }
        drop(view);
        // The local view may lag: ask the store itself.
        let judged = self.view().await?.permit_command(caller.proof(), command);
        judged.map_err(error::of_accounts)
    }

    async fn propose_payload(&self, caller: &Caller, payload: Bytes) -> Result<Response, Status> {
        // Dropped with the request when the client gives up.
        let pending = Pending::count(&self.metrics);
        let nobody_led = self.backend.status().leader.is_none();
        let outcome = self.within(self.backend.propose(payload)).await;
        drop(pending);
        if outcome.is_err() {
            self.metrics.proposals_failed.inc();
        }
        // As etcd says of a proposal that waited for a leader in vain; its code there is `Unknown`, which tells clients less.
        if nobody_led && outcome.as_ref().is_err_and(|status| EtcdError::of(status) == Some(EtcdError::Timeout)) {
            return Err(Status::deadline_exceeded("context deadline exceeded"));
        }
        let response = outcome?.response.map_err(|why| self.refused(why))?;
        note_revision(caller, response.revision());
        self.answered(response).await
    }

    /// Translates the store's refusal of a command; if it is for its caller, then users or roles have changed.
    fn refused(&self, why: KvError) -> Status {
        if matches!(why, KvError::Accounts(_)) {
            self.recent.expire();
        }
        error::of_store(why)
    }

    /// Carries out the reads of a transaction that applying it put off: here, where a client waits for them.
    async fn answered(&self, response: Response) -> Result<Response, Status> {
        if !response.is_deferred() {
            return Ok(response);
        }
        // The transaction is done: no error from here on may say that it is not.
        let (bytes, has_ranges) = (response.deferred_bytes(), response.has_deferred_ranges());
        let memory = self.memory.clone();
        let build = move || {
            // Previous values are held now; values that are read beside them were foreseen.
            let held = memory.hold(bytes)?;
            let answered = response.answered().map_err(error::of_store)?;
            Ok::<_, Status>((answered, held))
        };
        // A few values must not wait for those who list everything.
        let built = match bytes <= FEW_BYTES && !has_ranges {
            true => self.read_disk(build).await,
            false => self.build(build).await,
        };
        let built = built.and_then(|built| built).map_err(|_| Status::from(EtcdError::Timeout));
        built.map(|(answered, _held)| answered)
    }

    /// Lets work of the store that goes in steps go on by a step; one at a time, for steps cost much. Answers the revision.
    pub(crate) async fn push_on(&self) -> Result<i64, Status> {
        let _turn = self.costly.acquire().await.map_err(|_| Status::from(EtcdError::Stopped))?;
        match self.propose(&Caller::member(), Command::Advance(Advance {})).await? {
            Response::Advance { revision } => Ok(revision),
            _ => Err(error::mismatch()),
        }
    }

    /// Proposes as [`Context::propose`], without a bound in time: the caller bounds how many may wait.
    pub(crate) async fn propose_to_the_end(&self, caller: &Caller, command: Command) -> Result<Response, Status> {
        let payload = self.payload(caller, &command).await?;
        let _held = self.memory.hold(payload.len() + PROPOSAL_BYTES)?;
        self.propose_payload_to_the_end(caller, payload).await
    }

    /// Proposes as [`Context::propose_growth`], without a bound in time: the caller bounds how many may wait.
    pub(crate) async fn propose_growth_to_the_end(
        &self,
        caller: &Caller,
        command: Command,
    ) -> Result<Response, Status> {
        let payload = self.payload(caller, &command).await?;
        let _held = self.memory.hold(payload.len() + PROPOSAL_BYTES)?;
        let room = self.room(payload.len()).await?;
        let response = self.propose_payload_to_the_end(caller, payload).await?;
        room.fill();
        Ok(response)
    }

    async fn propose_payload_to_the_end(&self, caller: &Caller, payload: Bytes) -> Result<Response, Status> {
        let pending = Pending::count(&self.metrics);
        let outcome = self.backend.propose(payload).await;
        drop(pending);
        if outcome.is_err() {
            self.metrics.proposals_failed.inc();
        }
        let response = outcome.map_err(error::of_request)?.response.map_err(|why| self.refused(why))?;
        note_revision(caller, response.revision());
        self.answered(response).await
    }
}

fn note_revision(caller: &Caller, revision: i64) {
    if let Some(trail) = caller.trail() {
        trail.on_revision(revision);
    }
}

/// A proposal under way, counted for as long as it is.
struct Pending<'m>(&'m Metrics);

impl<'m> Pending<'m> {
    fn count(metrics: &'m Metrics) -> Pending<'m> {
        metrics.proposals_pending.fetch_add(1, Ordering::Relaxed);
        Pending(metrics)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.proposals_pending.fetch_sub(1, Ordering::Relaxed);
    }
}
