//! The page's actions: let another member lead, and, where `hustings up` runs the cluster, break things.
//!
//! ```text
//!   POST /v1/transfer   {"member": "n2"}                     n2 leads; any member takes the order to the leader
//!   POST /v1/workbench  {"verb": "kill", "member": "n2"}     kill, pause, resume, cut, heal: `up` does it
//! ```
//!
//! Both are for root, once there are users.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hustings_api::EtcdError;
use hustings_core::{Admin, Membership, NodeId};
use hustings_kv::Need;
use hyper::body::Body as HttpBody;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tonic::Status;

use crate::context::backend::Backend;
use crate::context::{Context, Learner, Services};
use crate::http::body::Body;
use crate::http::dashboard::gather::{Viewer, send};
use crate::http::own::{Posted, answer_post, read};

/// An order is a line.
const BODY_BYTES_MAX: usize = 4_096;

/// Time that `up` may take to obey.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transfer {
    member: String,
}

/// An order to `up`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    verb: String,
    member: String,
    /// Whether `up` answers before it obeys.
    #[serde(skip_deserializing)]
    is_own: bool,
}

/// Whether this is a call that changes something.
pub(crate) fn is_order(path: &str) -> bool {
    matches!(path, "/v1/transfer" | "/v1/workbench")
}

/// Answers an order of the page.
pub(crate) async fn answer<B: Backend, T>(services: &Services<B>, request: Request<T>) -> Response<Body>
where
    T: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    T::Error: std::error::Error + Send + Sync + 'static,
{
    let answered = move |Posted { caller, head, body }: Posted| async move {
        services.require(&caller, Need::Root).await?;
        match head.uri.path() {
            "/v1/transfer" => transfer(services, &Viewer::of(caller, &head), read(&body)?).await,
            _ => obey(services, read(&body)?).await,
        }
    };
    answer_post(services, request, Learner::Serves, BODY_BYTES_MAX, answered).await
}

/// The member of this name.
fn member_of(membership: &Membership, name: &str) -> Result<NodeId, Status> {
    let found = membership.everyone().find(|id| membership.name_of(*id) == name);
    found.ok_or_else(|| Status::not_found(format!("there is no member {name:?}")))
}

async fn transfer<B: Backend>(
    services: &Services<B>,
    viewer: &Viewer,
    Transfer { member }: Transfer,
) -> Result<Value, Status> {
    let status = services.node_status();
    let target = member_of(&status.membership, &member)?;
    if !status.membership.is_voter(target) {
        return Err(EtcdError::BadLeaderTransferee.into());
    }
    if Context::<B>::is_leader(&status) {
        if target != status.me {
            services.admin(&viewer.caller, Admin::Transfer(target)).await?;
        }
        return Ok(json!({ "apiVersion": "v1", "kind": "Transfer", "to": member }));
    }
    let leader = status.leader.ok_or_else(|| Status::from(EtcdError::NoLeader))?;
    let url = status.membership.members.get(&leader).and_then(|leader| leader.client_urls.first());
    let url = url.ok_or_else(|| Status::unavailable("the leader has not said yet where clients reach it"))?;
    // Not from there to a third: a leader that is none any more says so.
    let request = Request::post("/v1/transfer").header(CONTENT_TYPE, "application/json");
    let body = Bytes::from(json!({ "member": member }).to_string());
    let patience = services.options.request_timeout();
    send(services, viewer, url, request, body, patience).await.map_err(Status::unavailable)
}

async fn obey<B: Backend>(services: &Services<B>, order: Order) -> Result<Value, Status> {
    let Some(socket) = &services.options.workbench else {
        let why = "only a cluster that `hustings up` runs can be broken from here";
        return Err(Status::failed_precondition(why));
    };
    let status = services.node_status();
    let who = member_of(&status.membership, &order.member)?;
    // Once it is done this member says nothing more: `up` answers first.
    let is_own = who == status.me && matches!(order.verb.as_str(), "kill" | "pause");
    let order = Order { is_own, ..order };
    let told = tokio::time::timeout(PATIENCE, tell(socket, &order)).await;
    let told = told.map_err(|_| Status::unavailable("`hustings up` does not answer"))?;
    let said = told.map_err(|why| Status::unavailable(format!("`hustings up` at {}: {why}", socket.display())))?;
    match said["error"].as_str() {
        None => Ok(said),
        Some(why) => Err(Status::failed_precondition(why.to_owned())),
    }
}

async fn tell(socket: &Path, order: &Order) -> std::io::Result<Value> {
    let mut stream = UnixStream::connect(socket).await?;
    let line = format!("{}\n", serde_json::to_string(order)?);
    stream.write_all(line.as_bytes()).await?;
    let mut said = String::new();
    BufReader::new(stream).read_line(&mut said).await?;
    Ok(serde_json::from_str(&said)?)
}
