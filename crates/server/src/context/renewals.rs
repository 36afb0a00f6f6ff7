//! Keep-alives of all streams, as few commands.
//!
//! While one command is on its way, what comes in waits and goes into the next: a thousand clients that renew at once cost
//! one log entry, one client alone waits for nothing. Answers come after commit, so a renewed lease is renewed everywhere.

use std::collections::HashMap;
use std::sync::Arc;

use hustings_api::EtcdError;
use hustings_kv as kv;
use hustings_kv::{Command, LeaseKeepAlive, Response};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use crate::context::Context;
use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::error;

/// Keep-alives that may wait; further ones are refused.
const WAITING_MAX: usize = 65_536;

/// Leases in one command: some 100 KiB.
const LEASES_PER_COMMAND: usize = 8_192;

/// The answer to a renewal of a lease.
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

/// The sending end of keep-alives.
pub(crate) struct Renewals(mpsc::Sender<Renewal>);

/// The receiving end of keep-alives.
pub(crate) struct Waiting(mpsc::Receiver<Renewal>);

impl Renewals {
    pub(crate) fn new() -> (Renewals, Waiting) {
        let (renewals, waiting) = mpsc::channel(WAITING_MAX);
        (Renewals(renewals), Waiting(waiting))
    }

    /// Renews a lease together with others that wait.
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
        // A caller that has given up meanwhile must not have its lease renewed.
        renewals.retain(|renewal| !renewal.reply.is_closed());
        // No caller renews with the right of another: one command for each, and none waits for those of others.
        let mut callers: HashMap<Option<kv::Caller>, Vec<Renewal>> = HashMap::new();
        for renewal in renewals.drain(..) {
            callers.entry(renewal.caller.proof().cloned()).or_default().push(renewal);
        }
        futures::future::join_all(callers.into_values().map(|those| renew(&context, those))).await;
    }
}

/// Renews leases of one caller.
async fn renew<B: Backend>(context: &Context<B>, renewals: Vec<Renewal>) {
    let Some(caller) = renewals.first().map(|first| first.caller.clone()) else { return };
    let outcome = renewed_together(context, &caller, renewals.iter().map(|renewal| renewal.id).collect()).await;
    // One lease on which somebody else's key hangs meanwhile does not end the others.
    let is_denied = outcome.as_ref().err().and_then(EtcdError::of) == Some(EtcdError::PermissionDenied);
    if is_denied && renewals.len() > 1 {
        let each = renewals.into_iter().map(|renewal| async {
            let outcome = renewed_together(context, &caller, vec![renewal.id]).await;
            answer(outcome, vec![renewal]);
        });
        futures::future::join_all(each).await;
        return;
    }
    answer(outcome, renewals);
}

/// Revision, and of each lease how long it lives from now on.
type Together = Result<(i64, Vec<(i64, Option<i64>)>), Status>;

async fn renewed_together<B: Backend>(context: &Context<B>, caller: &Caller, ids: Vec<i64>) -> Together {
    match context.propose(caller, Command::LeaseKeepAlive(LeaseKeepAlive { ids })).await? {
        Response::LeaseKeepAlive { revision, renewed } => Ok((revision, renewed)),
        _ => Err(error::mismatch()),
    }
}

fn answer(outcome: Together, renewals: Vec<Renewal>) {
    for (place, renewal) in renewals.into_iter().enumerate() {
        let renewed = outcome.as_ref().map_err(Status::clone).map(|(revision, renewed)| Renewed {
            revision: *revision,
            ttl: renewed.get(place).and_then(|(_, ttl)| *ttl),
        });
        // An error means that the client has given up.
        let _ = renewal.reply.send(renewed);
    }
}
