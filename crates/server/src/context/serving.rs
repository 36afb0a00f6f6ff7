//! Ends of streams from outside: the server stops, or there has been no leader for too long.
//!
//! Source: etcd 3.5, `server/etcdserver/api/v3rpc/interceptor.go`: a stream whose client asked for a leader is cancelled
//! after three election timeouts without one. One task watches for all; while there is a leader it sleeps without a timer.

use std::future::Future;
use std::sync::Arc;

use hustings_api::EtcdError;
use hustings_core::{NodeId, Term};
use hustings_node::NodeStatus;
use tokio::sync::watch;
use tonic::Status;

use crate::context::Context;
use crate::context::backend::Backend;

/// The state of the server that ends streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Serving {
    /// There has been no leader for three election timeouts.
    pub(crate) is_leaderless: bool,
    /// The server was told to stop.
    pub(crate) is_stopping: bool,
}

/// A stream's watch on the [`Serving`] that all streams share.
pub(crate) struct StreamEnd {
    serving: watch::Receiver<Serving>,
    insists_on_leader: bool,
}

impl StreamEnd {
    pub(crate) fn new(serving: watch::Receiver<Serving>, insists_on_leader: bool) -> StreamEnd {
        StreamEnd { serving, insists_on_leader }
    }

    /// Completes with the reason when the stream must end. May be dropped and called again.
    pub(crate) async fn end(&mut self) -> Status {
        let insists = self.insists_on_leader;
        let ends = |serving: &Serving| serving.is_stopping || (insists && serving.is_leaderless);
        match self.serving.wait_for(ends).await {
            Ok(serving) if !serving.is_stopping => EtcdError::NoLeader.into(),
            _ => EtcdError::Stopped.into(),
        }
    }

    /// Runs something unless the stream must end first.
    pub(crate) async fn or<T>(&mut self, work: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        tokio::select! {
            outcome = work => outcome,
            status = self.end() => Err(status),
        }
    }
}

/// Keeps `is_leaderless`, and counts changes of the leader, until the node stops.
///
/// One that leads in another term has been elected anew, also where the time between had no leader for too short to be seen.
pub(crate) async fn keep<B: Backend>(context: Arc<Context<B>>) {
    let patience = 3 * context.options.timing.election_max;
    let mut status = context.status_changes();
    let (mut now, mut last) = (None, None);
    loop {
        match status.wait_for(|status| led_by(status) != now).await {
            Ok(status) => now = led_by(&status),
            Err(_) => return,
        }
        if now.is_some() {
            if now != last {
                context.metrics.on_leader_change();
            }
            last = now;
            continue;
        }
        let elected = async { status.wait_for(|status| status.leader.is_some()).await.is_ok() };
        match tokio::time::timeout(patience, elected).await {
            Ok(true) => continue,
            Ok(false) => return,
            Err(_) => {}
        }
        context.serving.send_modify(|serving| serving.is_leaderless = true);
        let has_ended = status.wait_for(|status| status.leader.is_some()).await.is_err();
        context.serving.send_modify(|serving| serving.is_leaderless = false);
        if has_ended {
            return;
        }
    }
}

/// The leader and the term in which it leads.
fn led_by(status: &NodeStatus) -> Option<(NodeId, Term)> {
    status.leader.map(|leader| (leader, status.term))
}
