//! Keep-alives of all streams, as few commands.
//!
//! While one command is on its way, what comes in waits and goes into the next: a thousand clients that renew at once cost
//! one log entry, one client alone waits for nothing. Answers come after commit, so a renewed lease is renewed everywhere.

use std::sync::Arc;

use hustings_api::EtcdError;
use hustings_kv::{Command, LeaseKeepAlive, Response};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use crate::backend::Backend;
use crate::caller::Caller;
use crate::context::Context;
use crate::error;

/// Keep-alives that may wait; further ones are refused.
const WAITING_MAX: usize = 65_536;

/// Leases in one command: some 100 KiB.
const LEASES_PER_COMMAND: usize = 8_192;

/// A renewed lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewed {
    pub(crate) revision: i64,
    /// Seconds that it lives from now; `None` when there is no such lease.
    pub(crate) ttl: Option<i64>,
}

struct Renewal {
    caller: Caller,
    id: i64,
    reply: oneshot::Sender<Result<Renewed, Status>>,
}

/// Where keep-alives go.
pub(crate) struct Renewals(mpsc::Sender<Renewal>);

/// Where they come out.
pub(crate) struct Waiting(mpsc::Receiver<Renewal>);

impl Renewals {
    pub(crate) fn new() -> (Renewals, Waiting) {
        let (renewals, waiting) = mpsc::channel(WAITING_MAX);
        (Renewals(renewals), Waiting(waiting))
    }

    /// Renews a lease.
    pub(crate) async fn renew(&self, caller: &Caller, id: i64) -> Result<Renewed, Status> {
        let (reply, answer) = oneshot::channel();
        let caller = caller.clone();
        self.0.try_send(Renewal { caller, id, reply }).map_err(|_| Status::from(EtcdError::TooManyRequests))?;
        answer.await.unwrap_or_else(|_| Err(EtcdError::Stopped.into()))
    }
}

/// Turns keep-alives into commands until the server stops.
pub(crate) async fn run<B: Backend>(context: Arc<Context<B>>, waiting: Waiting) {
    let Waiting(mut waiting) = waiting;
    let mut renewals = Vec::new();
    while waiting.recv_many(&mut renewals, LEASES_PER_COMMAND).await > 0 {
        // Who has given up meanwhile must not have its lease renewed.
        renewals.retain(|renewal| !renewal.reply.is_closed());
        // No caller renews with the right of another: one command for each.
        let mut rest = std::mem::take(&mut renewals);
        while let Some(first) = rest.first() {
            let caller = first.caller.clone();
            let (those, others) = rest.into_iter().partition(|renewal| renewal.caller.proof() == caller.proof());
            rest = others;
            renew(&context, &caller, those).await;
        }
    }
}

async fn renew<B: Backend>(context: &Context<B>, caller: &Caller, renewals: Vec<Renewal>) {
    let ids = renewals.iter().map(|renewal| renewal.id).collect();
    let outcome = context.propose(caller, Command::LeaseKeepAlive(LeaseKeepAlive { ids })).await;
    let outcome = outcome.and_then(|response| match response {
        Response::LeaseKeepAlive { revision, renewed } => Ok((revision, renewed)),
        _ => Err(error::mismatch()),
    });
    for (place, renewal) in renewals.into_iter().enumerate() {
        let renewed = outcome.as_ref().map_err(Status::clone).map(|(revision, renewed)| Renewed {
            revision: *revision,
            ttl: renewed.get(place).and_then(|(_, ttl)| *ttl),
        });
        // An error means that the client has given up.
        let _ = renewal.reply.send(renewed);
    }
}
