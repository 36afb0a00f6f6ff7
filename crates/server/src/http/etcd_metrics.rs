//! Metrics under etcd's names, in its form, rules broken where it breaks them.
//!
//! Source: the metrics that etcd 3.5.1 was seen to export; the ones that its Grafana dashboard and its mixin's alerts use.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use hustings_node::counters::ROUND_TRIP_BUCKETS_MICROS;
use hustings_node::{NodeStatus, PeerCounters};

use crate::context::metrics::{Durations, METHODS, Metrics};
use crate::context::version::{CLUSTER_VERSION, VERSION};
use crate::http::process::Process;

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
pub(crate) fn encode(out: &mut String, metrics: &Metrics, status: &NodeStatus, db_bytes: u64, quota_bytes: u64) {
    let is_leader = status.leader == Some(status.me);
    let pending = metrics.proposals_pending.load(Ordering::Relaxed).max(0) as u64;
    let slow = metrics.of_node(|node| &node.turns_long);
    let heartbeats = metrics.of_node(|node| &node.heartbeats_late);
    number(out, "etcd_server_has_leader", "gauge", u64::from(status.leader.is_some()));
    number(out, "etcd_server_is_leader", "gauge", u64::from(is_leader));
    number(out, "etcd_server_is_learner", "gauge", u64::from(status.membership.is_learner(status.me)));
    number(out, "etcd_server_leader_changes_seen_total", "counter", metrics.leader_changes.get());
    number(out, "etcd_server_heartbeat_send_failures_total", "counter", heartbeats);
    number(out, "etcd_server_slow_apply_total", "counter", slow);
    // Gauges at etcd, against the rule that a name in `_total` is a counter's: they only grow, and `promtool` has its way.
    number(out, "etcd_server_proposals_committed_total", "counter", status.commit);
    number(out, "etcd_server_proposals_applied_total", "counter", status.applied.index);
    number(out, "etcd_server_proposals_pending", "gauge", pending);
    number(out, "etcd_server_proposals_failed_total", "counter", metrics.proposals_failed.get());
    number(out, "etcd_server_quota_backend_bytes", "gauge", quota_bytes);
    number(out, "etcd_mvcc_db_total_size_in_bytes", "gauge", db_bytes);
    number(out, "etcd_mvcc_db_total_size_in_use_in_bytes", "gauge", db_bytes);
    durations(out, "etcd_disk_wal_fsync_duration_seconds", &metrics.fsyncs);
    // There is no backend beside the log: what is synced there is committed.
    durations(out, "etcd_disk_backend_commit_duration_seconds", &metrics.fsyncs);
    peers(out, metrics);
    let bytes = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
    number(out, "etcd_network_client_grpc_received_bytes_total", "counter", bytes(&metrics.received_bytes));
    number(out, "etcd_network_client_grpc_sent_bytes_total", "counter", bytes(&metrics.sent_bytes));
    process(out, &Process::now());
    let about = [
        ("etcd_server_version", "server_version", VERSION.to_owned()),
        ("etcd_cluster_version", "cluster_version", CLUSTER_VERSION.trim_end_matches(".0").to_owned()),
        ("etcd_server_id", "server_id", format!("{:x}", status.me.0)),
    ];
    for (name, label, value) in about {
        let _ = writeln!(out, "# HELP {name} As in etcd.\n# TYPE {name} gauge\n{name}{{{label}=\"{value}\"}} 1");
    }
    calls(out, metrics);
}

fn number(out: &mut String, name: &str, kind: &str, value: u64) {
    super::number(out, name, kind, "As in etcd.", value);
}

fn durations(out: &mut String, name: &str, durations: &Durations) {
    // Writing into a string does not fail; so everywhere here.
    let _ = writeln!(out, "# HELP {name} As in etcd.\n# TYPE {name} histogram");
    series(out, name, "", durations);
}

/// Writes one series of a histogram; its labels end with a comma, if it has any.
fn series(out: &mut String, name: &str, labels: &str, durations: &Durations) {
    let sum = durations.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9;
    buckets(out, name, labels, durations.bounds.iter().copied(), &durations.counts, sum);
}

/// Writes one series of a histogram of microseconds, which a node counts.
pub(crate) fn micros(
    out: &mut String,
    name: &str,
    labels: &str,
    bounds: &[u64],
    counts: &[AtomicU64],
    sum: &AtomicU64,
) {
    let bounds = bounds.iter().map(|micros| *micros as f64 / 1e6);
    buckets(out, name, labels, bounds, counts, sum.load(Ordering::Relaxed) as f64 / 1e6);
}

/// Writes the buckets of a series with their bounds in seconds, the last of which has none, then its sum and count.
fn buckets(
    out: &mut String,
    name: &str,
    labels: &str,
    mut bounds: impl Iterator<Item = f64>,
    counts: &[AtomicU64],
    sum: f64,
) {
    let mut count = 0;
    for counted in counts {
        count += counted.load(Ordering::Relaxed);
        let bound = bounds.next().map_or("+Inf".to_owned(), |bound| bound.to_string());
        let _ = writeln!(out, "{name}_bucket{{{labels}le=\"{bound}\"}} {count}");
    }
    let of = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.trim_end_matches(',')) };
    let _ = writeln!(out, "{name}_sum{of} {sum}\n{name}_count{of} {count}");
}

/// One of the counters of a peer.
type OfPeer = fn(&PeerCounters) -> &AtomicU64;

/// Writes the counters of each peer, under its id in hex.
fn peers(out: &mut String, metrics: &Metrics) {
    let peers = metrics.node.get().map(|node| node.peers()).unwrap_or_default();
    let counters: [(&str, &str, OfPeer); 3] = [
        ("etcd_network_peer_sent_bytes_total", "To", |peer| &peer.bytes_sent),
        ("etcd_network_peer_received_bytes_total", "From", |peer| &peer.bytes_received),
        ("etcd_network_peer_sent_failures_total", "To", |peer| &peer.send_failures),
    ];
    for (name, label, of_peer) in counters {
        let _ = writeln!(out, "# HELP {name} As in etcd.\n# TYPE {name} counter");
        for (id, peer) in &peers {
            let _ = writeln!(out, "{name}{{{label}=\"{:x}\"}} {}", id.0, of_peer(peer).load(Ordering::Relaxed));
        }
    }
    let name = "etcd_network_peer_round_trip_time_seconds";
    let _ = writeln!(out, "# HELP {name} As in etcd.\n# TYPE {name} histogram");
    for (id, peer) in &peers {
        let to = format!("To=\"{:x}\",", id.0);
        micros(out, name, &to, &ROUND_TRIP_BUCKETS_MICROS, &peer.round_trips, &peer.round_trip_micros);
    }
}

/// Writes the metrics that every program with a client of Prometheus has of its process.
fn process(out: &mut String, process: &Process) {
    number(out, "process_resident_memory_bytes", "gauge", process.resident_bytes);
    number(out, "process_virtual_memory_bytes", "gauge", process.virtual_bytes);
    number(out, "process_open_fds", "gauge", process.descriptors);
    number(out, "process_max_fds", "gauge", process.descriptors_max);
    number(out, "os_fd_used", "gauge", process.descriptors);
    number(out, "os_fd_limit", "gauge", process.descriptors_max);
    for (name, kind, seconds) in [
        ("process_cpu_seconds_total", "counter", process.cpu_seconds),
        ("process_start_time_seconds", "gauge", process.started_seconds),
    ] {
        let _ = writeln!(out, "# HELP {name} As in etcd.\n# TYPE {name} {kind}\n{name} {seconds}");
    }
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
    if metrics.handling.is_empty() {
        return;
    }
    let name = "grpc_server_handling_seconds";
    let _ = writeln!(out, "# HELP {name} As in etcd with --metrics extensive.\n# TYPE {name} histogram");
    for (place, handling) in metrics.handling.iter().enumerate() {
        series(out, name, &format!("{},", labels(place)), handling);
    }
}
