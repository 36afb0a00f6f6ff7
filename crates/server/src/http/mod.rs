//! Plain HTTP: version, health, metrics, who leads.
//!
//! Source: etcd 3.5, `server/etcdserver/api/etcdhttp`. `/livez` asks whether the process answers, and never depends on a
//! quorum: a probe that kills members for want of a leader kills clusters. `/readyz` and `/health` do depend on it.
//!
//! `GET /v1/leader` is ours. Its `fencing_token` is the leader's term: a term names one leader and only grows, so a resource
//! that remembers the highest token it has seen can refuse every older leader. `lsn` beside it is the answering member's last
//! applied entry, "term:index". A member says `is_self`, and `is_confirmed`, only after a quorum has confirmed it; a follower
//! tells what it last heard. `GET /v1/status` is ours too: one member's own view, for `hustings status`. The page at `/` and what it
//! lives on are in [`crate::http::dashboard`].
//!
//! Read next: [`crate::http::gateway`], the services over HTTP.

use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hustings_api::EtcdError;
use hustings_core::Role;
use hustings_kv::{AlarmKind, Need};
use hustings_node::counters::TURN_BUCKETS_MICROS;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use tonic::Status;

use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::version::{CLUSTER_VERSION, VERSION};
use crate::context::{Learner, Services};
use crate::http::body::Body;
use crate::http::gateway::refuse;
use crate::http::process::Process;
use crate::services::maintenance::alarm_type;

pub(crate) mod access;

pub(crate) mod hosts;

pub(crate) mod body;

pub(crate) mod gateway;

pub(crate) mod own;

pub(crate) mod elections;

pub(crate) mod tether;

pub(crate) mod dashboard;

mod status;

mod etcd_metrics;

mod process;

/// Time that a health check may wait for the quorum.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers what is not gRPC and not the gateway's.
pub(crate) async fn answer<B: Backend, T>(services: &Services<B>, request: Request<T>) -> Response<Body> {
    let (head, _) = request.into_parts();
    let query = head.uri.query().unwrap_or("");
    let path = head.uri.path();
    let is_known = matches!(
        path,
        "/version"
            | "/health"
            | "/livez"
            | "/readyz"
            | "/metrics"
            | "/v1/leader"
            | "/v1/status"
            | "/v1/elections"
            | "/v1/recording"
            | "/debug/vars"
    ) || dashboard::is_page(path)
        || dashboard::is_call(path);
    if !is_known && !path.starts_with("/livez/") && !path.starts_with("/readyz/") {
        return text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
    }
    if head.method != Method::GET && head.method != Method::HEAD {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n".to_owned());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return refused;
    }
    if let Some(refusal) = hosts::refusal(&head, &services.options) {
        return refusal;
    }
    if dashboard::is_page(path) {
        return dashboard::page(path);
    }
    // Facts about the cluster are for its users; whether this member is well, for everybody, as in etcd.
    let (mut caller, mut alarms) = (Caller::anybody(), Vec::new());
    let tells = matches!(path, "/v1/leader" | "/v1/status") && services.is_witness();
    if path == "/v1/recording" && services.is_witness() {
        return refuse(&Status::unavailable(
            "this member is a witness and does not know who may read its recording: read it on its machine, with `hustings why --ring` and its data directory",
        ));
    }
    if (path.starts_with("/v1/") || path.starts_with("/debug/")) && !tells {
        let admitted = async {
            let caller = own::admit(services, &head, Learner::Serves).await?;
            // The store itself is asked: this member may not have looked since users count.
            let view = services.read_local(&caller, Need::User).await?;
            Ok((caller, view.alarms()))
        };
        match admitted.await {
            Ok(admitted) => (caller, alarms) = admitted,
            Err(status) => return refuse(&status),
        }
    }
    match path {
        "/version" => json(StatusCode::OK, &json!({ "etcdserver": VERSION, "etcdcluster": CLUSTER_VERSION })),
        "/health" => services.health(query).await,
        "/metrics" => services.metrics_text(),
        "/debug/vars" => json(StatusCode::OK, &services.variables()),
        "/v1/leader" => services.leader_json().await,
        "/v1/status" => json(StatusCode::OK, &services.status_value(&alarms)),
        "/v1/elections" => elections::answer(services, &caller, query).await,
        "/v1/recording" => own::answer_recording(services, &caller).await,
        path if dashboard::is_call(path) => dashboard::answer(services, caller, &head).await,
        _ => services.probe(path.trim_start_matches('/'), query).await,
    }
}

/// An answer in plain text.
pub(crate) fn text(status: StatusCode, body: String) -> Response<Body> {
    respond(status, "text/plain; charset=utf-8", body.into())
}

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, value: &serde_json::Value) -> Response<Body> {
    respond(status, "application/json", value.to_string().into())
}

/// Makes an answer with this body.
pub(crate) fn respond(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn has(query: &str, wanted: &str) -> bool {
    query.split('&').any(|pair| pair == wanted)
}

impl<B: Backend> Services<B> {
    /// Alarms, the leader, and a read.
    async fn health(&self, query: &str) -> Response<Body> {
        let is_serializable = has(query, "serializable=true");
        let (status, reason) = match self.ailment(query, is_serializable).await {
            None => (StatusCode::OK, String::new()),
            Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
        };
        let health = if status == StatusCode::OK { "true" } else { "false" };
        json(status, &json!({ "health": health, "reason": reason }))
    }

    async fn ailment(&self, query: &str, is_serializable: bool) -> Option<String> {
        if self.is_witness() {
            // It has no store to read; it votes where it knows a leader.
            return (!is_serializable).then(|| self.voting_ailment()).flatten();
        }
        let local = match self.read_local(&Caller::anybody(), Need::Nothing).await {
            Ok(view) => view,
            Err(status) => return Some(format!("RANGE ERROR:{}", status.message())),
        };
        for alarm in local.alarms() {
            let name = alarm_type(alarm.kind).as_str_name();
            if !has(query, &format!("exclude={name}")) {
                return Some(format!("ALARM {name}"));
            }
        }
        if is_serializable {
            return None;
        }
        if self.node_status().leader.is_none() {
            return Some("RAFT NO LEADER".to_owned());
        }
        self.quorum_ailment().await.map(|reason| format!("QGET ERROR:{reason}"))
    }

    fn voting_ailment(&self) -> Option<String> {
        let status = self.node_status();
        match status.leader {
            None => Some("RAFT NO LEADER".to_owned()),
            Some(leader) if status.membership.is_witness(leader) => {
                Some("a witness leads as a caretaker: no member that holds all data can be reached".to_owned())
            }
            Some(_) => None,
        }
    }

    async fn quorum_ailment(&self) -> Option<String> {
        match tokio::time::timeout(HEALTH_TIMEOUT, self.read(&Caller::anybody(), Need::Nothing)).await {
            Ok(Ok(_)) => None,
            Ok(Err(status)) => Some(status.message().to_owned()),
            Err(_) => Some(EtcdError::Timeout.message().to_owned()),
        }
    }

    /// `/livez` and `/readyz`, or one check of theirs.
    async fn probe(&self, path: &str, query: &str) -> Response<Body> {
        let (probe, only) = path.split_once('/').map_or((path, None), |(probe, check)| (probe, Some(check)));
        let checks: &[&str] = match probe {
            "livez" => &["serializable_read"],
            _ => &["data_corruption", "serializable_read", "linearizable_read"],
        };
        if only.is_some_and(|only| !checks.contains(&only)) {
            return text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
        }
        let mut lines = String::new();
        let mut is_well = true;
        for check in checks.iter().filter(|check| only.is_none_or(|only| only == **check)) {
            if has(query, &format!("exclude={check}")) {
                lines.push_str(&format!("[+]{check} excluded: ok\n"));
                continue;
            }
            match self.check_failure(check).await {
                None => lines.push_str(&format!("[+]{check} ok\n")),
                Some(reason) => {
                    is_well = false;
                    lines.push_str(&format!("[-]{check} failed: {reason}\n"));
                }
            }
        }
        match is_well {
            true if has(query, "verbose") || has(query, "verbose=true") => text(StatusCode::OK, format!("{lines}ok\n")),
            true => text(StatusCode::OK, "ok\n".to_owned()),
            false => text(StatusCode::SERVICE_UNAVAILABLE, lines),
        }
    }

    async fn check_failure(&self, check: &str) -> Option<String> {
        match check {
            "linearizable_read" if self.is_witness() => self.voting_ailment(),
            _ if self.is_witness() => None,
            "linearizable_read" => self.quorum_ailment().await,
            "data_corruption" => {
                let view = self.read_local(&Caller::anybody(), Need::Nothing).await.ok()?;
                let is_corrupt = view.alarms().iter().any(|alarm| alarm.kind == AlarmKind::Corrupt);
                is_corrupt.then(|| "the alarm CORRUPT stands".to_owned())
            }
            _ => {
                self.read_local(&Caller::anybody(), Need::Nothing).await.err().map(|status| status.message().to_owned())
            }
        }
    }

    fn metrics_text(&self) -> Response<Body> {
        let status = self.node_status();
        let mut out = self.metrics.encode(status.term.0);
        let quota_bytes = self.options.quota_backend_bytes;
        etcd_metrics::encode(&mut out, &self.metrics, &status, self.quota.size(), quota_bytes);
        self.metrics.encode_expiries(&mut out);
        self.metrics.encode_alarms(&mut out);
        let help = "Whether the disk of this member has not ended what it was asked for.";
        number(&mut out, "hustings_disk_stalled", "gauge", help, u8::from(!status.is_disk_healthy));
        let help = "Whether the disk of this member has no room for the log to grow.";
        number(&mut out, "hustings_log_short", "gauge", help, u8::from(self.metrics.is_log_short()));
        let help = "Bytes held for clients, of --memory-limit.";
        number(&mut out, "hustings_memory_held_bytes", "gauge", help, self.memory.used());
        number(&mut out, "hustings_apply_version", "gauge", "By which rules entries are applied.", status.version.0);
        let help = "Members whose state differed when this leader last compared.";
        number(&mut out, "hustings_members_differing", "gauge", help, status.differing.len());
        if let Some(node) = self.metrics.node.get() {
            let name = "hustings_loop_turn_seconds";
            out.push_str(&format!(
                "# HELP {name} Turns of the thread that sends heartbeats and votes, and applies.\n# TYPE {name} histogram\n"
            ));
            etcd_metrics::micros(&mut out, name, "", &TURN_BUCKETS_MICROS, &node.turns, &node.turn_micros);
            let mut seconds = |name: &str, help: &str, micros: &AtomicU64| {
                let value = Duration::from_micros(micros.load(Ordering::Relaxed)).as_secs_f64();
                number(&mut out, name, "counter", help, value);
            };
            let help =
                "Time in which the thread that sends heartbeats and votes was ready to run and got no processor.";
            seconds("hustings_loop_waited_seconds_total", help, &node.loop_waited_micros);
            let help = "Turns of 50 ms or more of the thread that sends heartbeats and votes.";
            seconds("hustings_loop_long_turns_seconds_total", help, &node.turns_long_micros);
            let help = "How long that thread was on a processor in its turns of 50 ms or more.";
            seconds("hustings_loop_long_turns_ran_seconds_total", help, &node.turns_long_ran_micros);
        }
        respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", out.into())
    }

    /// The variables that etcd exports as Go's `expvar`, as far as there is such a thing here.
    fn variables(&self) -> serde_json::Value {
        let status = self.node_status();
        let process = Process::now();
        let line: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let hex = |id: u64| format!("{id:x}");
        json!({
            "cmdline": line,
            "file_descriptor_limit": process.descriptors_max,
            "memstats": { "Sys": process.virtual_bytes, "Alloc": process.resident_bytes },
            "raft.status": {
                "id": hex(status.me.0),
                "term": status.term.0,
                "commit": status.commit,
                "applied": status.applied.index,
                "lead": hex(status.leader.map_or(0, |leader| leader.0)),
                "raftState": match status.role {
                    Role::Leader | Role::Synchronizing => "StateLeader",
                    Role::Candidate => "StateCandidate",
                    Role::PreCandidate => "StatePreCandidate",
                    Role::Follower => "StateFollower",
                },
            },
        })
    }

    async fn leader_json(&self) -> Response<Body> {
        match self.leader_value().await {
            Ok(leader) => json(StatusCode::OK, &leader),
            Err(status) => json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": status.message() })),
        }
    }

    async fn leader_value(&self) -> Result<serde_json::Value, Status> {
        let before = self.node_status();
        let leader = before.leader.ok_or_else(|| Status::from(EtcdError::NoLeader))?;
        if leader == before.me {
            // A leader that was deposed without knowing it finds no quorum here.
            self.read(&Caller::anybody(), Need::Nothing).await?;
            let after = self.node_status();
            if (after.leader, after.term) != (before.leader, before.term) {
                return Err(EtcdError::LeaderChanged.into());
            }
        }
        Ok(json!({
            "term": before.term.0,
            "leader": before.membership.name_of(leader),
            "leader_id": leader.0,
            "fencing_token": before.term.0,
            "lsn": before.applied.to_string(),
            "is_self": leader == before.me,
            // Only the leader asks a quorum: what a follower says it heard, perhaps a while ago.
            "is_confirmed": leader == before.me,
        }))
    }
}

/// Appends a metric of one number, with what it is.
fn number(out: &mut String, name: &str, kind: &str, help: &str, value: impl Display) {
    // Writing into a string does not fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
}
