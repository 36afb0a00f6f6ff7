//! The reports of all members, gathered by the one that is asked.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt, Full, Limited};
use hustings_api::dial::{authority_of, dial, first_error};
use hustings_core::{Member, NodeId};
use hustings_node::reach::Reach;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::http::request::{Builder, Parts};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tonic::Status;

use crate::context::Services;
use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::story::unix_millis;
use crate::http::dashboard::report;

/// Time that another member may take to report. The page is drawn without it then.
const PATIENCE: Duration = Duration::from_millis(900);

/// Limit of a report, in bytes.
const REPORT_BYTES_MAX: usize = 1 << 20;

/// The person that looks at the page.
#[derive(Clone)]
pub(super) struct Viewer {
    pub(super) caller: Caller,
    /// Authorization that proves its user to the other members.
    token: Option<HeaderValue>,
}

impl Viewer {
    pub(super) fn of(caller: Caller, head: &Parts) -> Viewer {
        Viewer { caller, token: head.headers.get(AUTHORIZATION).cloned() }
    }

    /// Whether what proved its user when it came proves nobody any more.
    pub(super) async fn has_ended<B: Backend>(&self, services: &Services<B>) -> bool {
        match self.token.as_ref().and_then(|token| token.to_str().ok()) {
            Some(token) => services.has_ended(token).await,
            None => false,
        }
    }
}

/// All members, each with its report or the reason why there is none.
///
/// # Errors
/// The caller may not know.
pub(super) async fn cluster<B: Backend>(services: &Services<B>, viewer: &Viewer) -> Result<Value, Status> {
    let own = report::of(services, &viewer.caller).await?;
    let status = services.node_status();
    let members = status.membership.everyone().map(async |id| {
        let member = status.membership.members.get(&id).cloned().unwrap_or_default();
        let reported = match member.is_witness {
            _ if id == status.me => Ok(own.clone()),
            // It knows no users, so it reports to nobody.
            true => Err(IS_WITNESS.to_owned()),
            false => ask(services, viewer, &member).await,
        };
        let (report, why) = match reported {
            Ok(report) => (Some(report), None),
            Err(why) => (None, Some(why)),
        };
        json!({
            "name": status.membership.name_of(id),
            "id": format!("{:x}", id.0),
            "votes": status.membership.is_voter(id),
            "is_witness": member.is_witness,
            "is_reached": is_reached(services, id),
            "client_urls": member.client_urls,
            "report": report,
            "why": why,
        })
    });
    let members = join_all(members).await;
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Cluster",
        "asked": status.membership.name_of(status.me),
        "cluster_id": status.cluster_id.to_string(),
        "now_unix_millis": unix_millis(SystemTime::now()),
        "can_break": services.options.workbench.is_some(),
        "summary": own["summary"],
        "is_quorum_there": is_quorum_there(services, status.me),
        "members": members,
    }))
}

/// Text in the place of a witness's report.
const IS_WITNESS: &str = "a witness votes and holds no data: it reports nothing but its status";

/// Whether this member and that one reach each other; `None` of itself, and while nobody counts.
fn is_reached<B: Backend>(services: &Services<B>, id: NodeId) -> Option<bool> {
    let counters = services.metrics.node.get().filter(|_| id != services.node_status().me)?;
    Some(matches!(counters.reach_of(id), (Reach::Reachable, _)))
}

/// Whether this member and each other one reach each other, in the order of the members.
pub(super) fn reached<B: Backend>(services: &Services<B>) -> Vec<Option<bool>> {
    services.node_status().membership.everyone().map(|id| is_reached(services, id)).collect()
}

/// Whether a majority can be reached from here; `None` while nobody counts.
fn is_quorum_there<B: Backend>(services: &Services<B>, me: NodeId) -> Option<bool> {
    let counters = services.metrics.node.get()?;
    Some(hustings_node::reach::Quorum::look(me, &services.node_status().membership, counters).is_there)
}

/// Asks another member for its report.
async fn ask<B: Backend>(services: &Services<B>, viewer: &Viewer, member: &Member) -> Result<Value, String> {
    let Some(url) = member.client_urls.first() else {
        return Err("it has not said yet where clients reach it".to_owned());
    };
    let request = hyper::Request::get("/v1/report");
    let report = send(services, viewer, url, request, Bytes::new(), PATIENCE).await?;
    match report["kind"] == "Report" {
        true => Ok(report),
        false => Err(format!("{url}: its answer is no report")),
    }
}

/// Asks another member for something in its viewer's name.
///
/// # Errors
/// Why there is no answer, with the URL that was asked.
pub(super) async fn send<B: Backend>(
    services: &Services<B>,
    viewer: &Viewer,
    url: &str,
    request: Builder,
    body: Bytes,
    patience: Duration,
) -> Result<Value, String> {
    let sent = tokio::time::timeout(patience, send_unbounded(services, viewer, url, request, body)).await;
    sent.unwrap_or_else(|_| Err(format!("{url} does not answer within {} ms", patience.as_millis())))
}

async fn send_unbounded<B: Backend>(
    services: &Services<B>,
    viewer: &Viewer,
    url: &str,
    request: Builder,
    body: Bytes,
) -> Result<Value, String> {
    let told = |why: &dyn std::fmt::Display| format!("{url}: {why}");
    let stream = dial(url, services.options.connector.as_ref()).await.map_err(|why| told(&why))?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|why| told(&why))?;
    // It ends with the sender.
    let connection = tokio::spawn(connection);
    let mut request = request.header(HOST, authority_of(url));
    // The certificate of its own connection proves nobody on this one.
    let given = match &viewer.token {
        Some(_) => None,
        None => services.token_for(&viewer.caller).await.map_err(|refusal| told(&refusal.message()))?,
    };
    let given = given.map(HeaderValue::try_from).transpose().map_err(|why| told(&why))?;
    if let Some(token) = viewer.token.as_ref().or(given.as_ref()) {
        request = request.header(AUTHORIZATION, token);
    }
    let request = request.body(Full::new(body)).map_err(|why| told(&why))?;
    let answer = match sender.send_request(request).await {
        Ok(answer) => answer,
        Err(error) => return Err(told(&first_error(error, connection).await)),
    };
    let status = answer.status();
    let body = Limited::new(answer.into_body(), REPORT_BYTES_MAX).collect().await.map_err(|why| told(&why))?.to_bytes();
    let said: Option<Value> = serde_json::from_slice(&body).ok();
    match said {
        Some(said) if status.is_success() => Ok(said),
        Some(error) if error["error"].is_string() => Err(told(&error["error"].as_str().unwrap_or_default())),
        _ if status.as_u16() == 404 => Err(told(&"it is of an older build, which does not know this call")),
        _ => Err(told(&format!("it answers {status}"))),
    }
}
