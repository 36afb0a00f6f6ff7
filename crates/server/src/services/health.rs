//! The health protocol of gRPC: whether to send requests here.
//!
//! Source: grpc/doc/health-checking.md. A member serves while it knows a leader, and a witness never; liveness is another question, which
//! `/livez` answers.

use futures::stream;
use hustings_api::health as hp;
use hustings_api::health::health_check_response::ServingStatus;
use hustings_api::health::health_server::Health;
use tonic::{Request, Response, Status};

use crate::context::Services;
use crate::context::backend::Backend;
use crate::watch::Answers;

/// The services that are asked for by name; empty means all of them.
const SERVICES: [&str; 9] = [
    "",
    "etcdserverpb.KV",
    "etcdserverpb.Auth",
    "etcdserverpb.Watch",
    "etcdserverpb.Lease",
    "etcdserverpb.Cluster",
    "etcdserverpb.Maintenance",
    "v3electionpb.Election",
    "v3lockpb.Lock",
];

fn serving(status: &hustings_node::NodeStatus) -> ServingStatus {
    if status.leader.is_some() && !status.membership.is_witness(status.me) {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    }
}

#[tonic::async_trait]
impl<B: Backend> Health for Services<B> {
    async fn check(
        &self,
        request: Request<hp::HealthCheckRequest>,
    ) -> Result<Response<hp::HealthCheckResponse>, Status> {
        if !SERVICES.contains(&request.get_ref().service.as_str()) {
            return Err(Status::not_found("unknown service"));
        }
        let status = serving(&self.node_status()) as i32;
        Ok(Response::new(hp::HealthCheckResponse { status }))
    }

    type WatchStream = Answers<hp::HealthCheckResponse>;

    async fn watch(&self, request: Request<hp::HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let is_known = SERVICES.contains(&request.get_ref().service.as_str());
        let state = (self.status_changes(), self.stream_end(false), None, is_known);
        let answers = stream::unfold(Some(state), |state| async move {
            let (mut changes, mut stream_end, told, is_known) = state?;
            if !is_known {
                let unknown = ServingStatus::ServiceUnknown;
                if told.is_none() {
                    let answer = hp::HealthCheckResponse { status: unknown as i32 };
                    return Some((Ok(answer), Some((changes, stream_end, Some(unknown), is_known))));
                }
                return Some((Err(stream_end.end().await), None));
            }
            let is_news = |status: &hustings_node::NodeStatus| Some(serving(status)) != told;
            let now = tokio::select! {
                now = async { changes.wait_for(is_news).await.map(|status| serving(&status)) } => now.ok()?,
                status = stream_end.end() => return Some((Err(status), None)),
            };
            let answer = hp::HealthCheckResponse { status: now as i32 };
            Some((Ok(answer), Some((changes, stream_end, Some(now), is_known))))
        });
        Ok(Response::new(Box::pin(answers)))
    }
}
