//! Metrics under etcd's names, in its form, rules broken where it breaks them.
//!
//! Source: the metrics that etcd 3.5.1 was seen to export; the ones that its Grafana dashboard and its mixin's alerts use.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use hustings_node::NodeStatus;

use crate::metrics::{Durations, METHODS, Metrics, SECONDS};

/// The names of gRPC's codes, by number.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// Appends all of them.
pub(crate) fn encode(out: &mut String, metrics: &Metrics, status: &NodeStatus, db_bytes: u64) {
    let is_leader = status.leader == Some(status.me);
    let pending = metrics.proposals_pending.load(Ordering::Relaxed).max(0) as u64;
    let slow = metrics.slow_applies.load(Ordering::Relaxed);
    let heartbeats = metrics.heartbeat_failures.load(Ordering::Relaxed);
    number(out, "etcd_server_has_leader", "gauge", u64::from(status.leader.is_some()));
    number(out, "etcd_server_is_leader", "gauge", u64::from(is_leader));
    number(out, "etcd_server_is_learner", "gauge", u64::from(status.membership.is_learner(status.me)));
    number(out, "etcd_server_leader_changes_seen_total", "counter", metrics.leader_changes.get());
    number(out, "etcd_server_heartbeat_send_failures_total", "counter", heartbeats);
    number(out, "etcd_server_slow_apply_total", "counter", slow);
    number(out, "etcd_server_proposals_committed_total", "gauge", status.commit);
    number(out, "etcd_server_proposals_applied_total", "gauge", status.applied.index);
    number(out, "etcd_server_proposals_pending", "gauge", pending);
    number(out, "etcd_server_proposals_failed_total", "counter", metrics.proposals_failed.get());
    number(out, "etcd_mvcc_db_total_size_in_bytes", "gauge", db_bytes);
    number(out, "etcd_mvcc_db_total_size_in_use_in_bytes", "gauge", db_bytes);
    durations(out, "etcd_disk_wal_fsync_duration_seconds", &metrics.fsyncs);
    // There is no backend beside the log: what is synced there is committed.
    durations(out, "etcd_disk_backend_commit_duration_seconds", &metrics.fsyncs);
    durations(out, "etcd_network_peer_round_trip_time_seconds", &metrics.round_trips);
    calls(out, metrics);
}

fn number(out: &mut String, name: &str, kind: &str, value: u64) {
    // Writing into a string does not fail; so everywhere here.
    let _ = writeln!(out, "# HELP {name} As in etcd.\n# TYPE {name} {kind}\n{name} {value}");
}

fn durations(out: &mut String, name: &str, durations: &Durations) {
    let _ = writeln!(out, "# HELP {name} As in etcd.\n# TYPE {name} histogram");
    let mut count = 0;
    for (place, bound) in SECONDS.iter().enumerate() {
        count += durations.counts[place].load(Ordering::Relaxed);
        let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {count}");
    }
    count += durations.counts[SECONDS.len()].load(Ordering::Relaxed);
    let sum = durations.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9;
    let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
}

fn calls(out: &mut String, metrics: &Metrics) {
    let labels = |place: usize| {
        let (path, kind) = METHODS[place];
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
        format!("grpc_method=\"{method}\",grpc_service=\"{service}\",grpc_type=\"{kind}\"")
    };
    out.push_str("# HELP grpc_server_started_total As in etcd.\n# TYPE grpc_server_started_total counter\n");
    for (place, calls) in metrics.calls.iter().enumerate() {
        let started = calls.started.load(Ordering::Relaxed);
        let _ = writeln!(out, "grpc_server_started_total{{{}}} {started}", labels(place));
    }
    out.push_str("# HELP grpc_server_handled_total As in etcd.\n# TYPE grpc_server_handled_total counter\n");
    for (place, calls) in metrics.calls.iter().enumerate() {
        for (code, handled) in calls.handled.iter().enumerate() {
            let handled = handled.load(Ordering::Relaxed);
            if handled > 0 || code == 0 {
                let name = CODES[code];
                let _ = writeln!(out, "grpc_server_handled_total{{grpc_code=\"{name}\",{}}} {handled}", labels(place));
            }
        }
    }
}
