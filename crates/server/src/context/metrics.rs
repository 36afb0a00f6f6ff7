//! Counters and histograms, and how Prometheus reads them.
//!
//! Ours are named `hustings_...` and written by prometheus-client. Beside them stand etcd's names, so that its dashboards
//! and alerts work unchanged; etcd breaks the rules that prometheus-client enforces (a gauge named `_total`), so those are
//! written by hand in `http/etcd_metrics.rs`.
//!
//! Everything is an atomic; nothing is allocated or locked per request. Figures that only the node knows are fed by
//! its host: [`Metrics::on_fsync`], [`Metrics::on_election`] and the like.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, UNIX_EPOCH};

use hustings_kv::{Alarm, AlarmKind};
use hustings_node::Counters;
use hustings_tls::Expiry;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

/// Bounds of durations, seconds: etcd's for its disk, which also fit elections.
pub(crate) const SECONDS: [f64; 14] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192];

/// Bounds of how long calls of gRPC take, seconds: those of etcd's with `--metrics extensive`.
const HANDLING_SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Bounds of how long requests take, microseconds.
pub(crate) const REQUEST_BUCKETS_MICROS: [u64; 20] = [
    100, 200, 400, 600, 800, 1_000, 1_500, 2_000, 3_000, 4_000, 6_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000,
    512_000, 1_024_000, 4_096_000,
];

/// The alarms that a cluster can have, as etcdctl calls them.
const ALARMS: [(&str, AlarmKind); 2] = [("NOSPACE", AlarmKind::NoSpace), ("CORRUPT", AlarmKind::Corrupt)];

/// Tells when the certificates of this member expire.
pub type Expiries = Box<dyn Fn() -> Vec<Expiry> + Send + Sync>;

/// The number of gRPC codes.
const CODES: usize = 17;

/// All methods of the API, sorted, and whether they stream.
pub(crate) const METHODS: [(&str, &str); 50] = [
    ("/etcdserverpb.Auth/AuthDisable", "unary"),
    ("/etcdserverpb.Auth/AuthEnable", "unary"),
    ("/etcdserverpb.Auth/AuthStatus", "unary"),
    ("/etcdserverpb.Auth/Authenticate", "unary"),
    ("/etcdserverpb.Auth/RoleAdd", "unary"),
    ("/etcdserverpb.Auth/RoleDelete", "unary"),
    ("/etcdserverpb.Auth/RoleGet", "unary"),
    ("/etcdserverpb.Auth/RoleGrantPermission", "unary"),
    ("/etcdserverpb.Auth/RoleList", "unary"),
    ("/etcdserverpb.Auth/RoleRevokePermission", "unary"),
    ("/etcdserverpb.Auth/UserAdd", "unary"),
    ("/etcdserverpb.Auth/UserChangePassword", "unary"),
    ("/etcdserverpb.Auth/UserDelete", "unary"),
    ("/etcdserverpb.Auth/UserGet", "unary"),
    ("/etcdserverpb.Auth/UserGrantRole", "unary"),
    ("/etcdserverpb.Auth/UserList", "unary"),
    ("/etcdserverpb.Auth/UserRevokeRole", "unary"),
    ("/etcdserverpb.Cluster/MemberAdd", "unary"),
    ("/etcdserverpb.Cluster/MemberList", "unary"),
    ("/etcdserverpb.Cluster/MemberPromote", "unary"),
    ("/etcdserverpb.Cluster/MemberRemove", "unary"),
    ("/etcdserverpb.Cluster/MemberUpdate", "unary"),
    ("/etcdserverpb.KV/Compact", "unary"),
    ("/etcdserverpb.KV/DeleteRange", "unary"),
    ("/etcdserverpb.KV/Put", "unary"),
    ("/etcdserverpb.KV/Range", "unary"),
    ("/etcdserverpb.KV/Txn", "unary"),
    ("/etcdserverpb.Lease/LeaseGrant", "unary"),
    ("/etcdserverpb.Lease/LeaseKeepAlive", "bidi_stream"),
    ("/etcdserverpb.Lease/LeaseLeases", "unary"),
    ("/etcdserverpb.Lease/LeaseRevoke", "unary"),
    ("/etcdserverpb.Lease/LeaseTimeToLive", "unary"),
    ("/etcdserverpb.Maintenance/Alarm", "unary"),
    ("/etcdserverpb.Maintenance/Defragment", "unary"),
    ("/etcdserverpb.Maintenance/Downgrade", "unary"),
    ("/etcdserverpb.Maintenance/Hash", "unary"),
    ("/etcdserverpb.Maintenance/HashKV", "unary"),
    ("/etcdserverpb.Maintenance/MoveLeader", "unary"),
    ("/etcdserverpb.Maintenance/Snapshot", "server_stream"),
    ("/etcdserverpb.Maintenance/Status", "unary"),
    ("/etcdserverpb.Watch/Watch", "bidi_stream"),
    ("/grpc.health.v1.Health/Check", "unary"),
    ("/grpc.health.v1.Health/Watch", "server_stream"),
    ("/v3electionpb.Election/Campaign", "unary"),
    ("/v3electionpb.Election/Leader", "unary"),
    ("/v3electionpb.Election/Observe", "server_stream"),
    ("/v3electionpb.Election/Proclaim", "unary"),
    ("/v3electionpb.Election/Resign", "unary"),
    ("/v3lockpb.Lock/Lock", "unary"),
    ("/v3lockpb.Lock/Unlock", "unary"),
];

/// Counts of a method's calls: begun, and ended by code.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) started: AtomicU64,
    pub(crate) handled: [AtomicU64; CODES],
}

/// A call under way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// Its place in [`METHODS`].
    method: usize,
    begun: Instant,
}

impl Call {
    /// Whether it has one request and one answer, or which of them is a stream, in gRPC's words.
    pub(crate) fn kind(self) -> &'static str {
        METHODS[self.method].1
    }

    /// The path of its method.
    pub(crate) fn method(self) -> &'static str {
        METHODS[self.method].0
    }

    /// The moment at which its time begins.
    pub(crate) fn begun(self) -> Instant {
        self.begun
    }

    /// The same call, whose time begins so many nanoseconds later.
    pub(crate) fn later_by(self, nanoseconds: u64) -> Call {
        Call { begun: self.begun + Duration::from_nanos(nanoseconds), ..self }
    }
}

/// A histogram of durations in etcd's form.
pub(crate) struct Durations {
    /// Upper bounds of all places but the last, seconds.
    pub(crate) bounds: &'static [f64],
    /// Number of durations in each place.
    pub(crate) counts: Vec<AtomicU64>,
    pub(crate) nanoseconds: AtomicU64,
}

impl Durations {
    fn new(bounds: &'static [f64]) -> Durations {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Durations { bounds, counts, nanoseconds: AtomicU64::new(0) }
    }

    fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let place = self.bounds.iter().position(|bound| seconds <= *bound).unwrap_or(self.bounds.len());
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// The server's counters. Share them with the program that hosts the node.
pub struct Metrics {
    registry: Registry,
    pub(crate) calls: [Calls; METHODS.len()],
    /// How long the calls of each method took; empty unless [`Metrics::with_histograms_of_calls`].
    pub(crate) handling: Vec<Durations>,
    /// Requests with one answer that succeeded, by how long they took.
    pub(crate) request_micros: [AtomicU64; REQUEST_BUCKETS_MICROS.len() + 1],
    pub(crate) proposals_pending: AtomicI64,
    pub(crate) proposals_failed: Counter,
    pub(crate) leader_changes: Counter,
    pub(crate) fsyncs: Durations,
    /// Bytes of gRPC that clients sent, heads of messages included.
    pub(crate) received_bytes: AtomicU64,
    /// Bytes of gRPC that clients were sent.
    pub(crate) sent_bytes: AtomicU64,
    /// The node's counters, once it runs.
    pub(crate) node: OnceLock<Arc<Counters>>,
    expiries: OnceLock<Expiries>,
    /// Whether an alarm of each kind is up, in the order of [`ALARMS`].
    alarms: [AtomicBool; ALARMS.len()],
    fsync_seconds: Histogram,
    election_seconds: Histogram,
    implicit_leases: Counter,
    term: Gauge,
    connections: Gauge,
    tethers: Gauge,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut registry = Registry::with_prefix("hustings");
        let (proposals_failed, leader_changes, implicit_leases) = <(Counter, Counter, Counter)>::default();
        let (term, connections, tethers) = <(Gauge, Gauge, Gauge)>::default();
        let fsync_seconds = Histogram::new(SECONDS);
        let election_seconds = Histogram::new(SECONDS);
        registry.register("build", "Which program this is", Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]));
        registry.register(
            "proposals_failed",
            "Proposals that found no leader, were not taken, or whose outcome is unknown",
            proposals_failed.clone(),
        );
        registry.register("leader_changes", "Changes of the leader that this member saw", leader_changes.clone());
        let help = "Campaigns and locks that brought no lease, so that nobody renews the one they got";
        registry.register("unrenewed_implicit_leases", help, implicit_leases.clone());
        registry.register("term", "The term of this member", term.clone());
        registry.register("client_connections", "Open connections of clients", connections.clone());
        registry.register("tethers", "Connections whose end is the end of a lease", tethers.clone());
        let seconds = || Unit::Seconds;
        registry.register_with_unit(
            "wal_fsync_duration",
            "How long the disk took to sync",
            seconds(),
            fsync_seconds.clone(),
        );
        let help = "From the first question of an election that this member won until it led";
        registry.register_with_unit("election_duration", help, seconds(), election_seconds.clone());
        Metrics {
            registry,
            calls: std::array::from_fn(|_| Calls::default()),
            handling: Vec::new(),
            request_micros: std::array::from_fn(|_| AtomicU64::new(0)),
            proposals_pending: AtomicI64::new(0),
            proposals_failed,
            leader_changes,
            fsyncs: Durations::new(&SECONDS),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            node: OnceLock::new(),
            expiries: OnceLock::new(),
            alarms: Default::default(),
            fsync_seconds,
            election_seconds,
            implicit_leases,
            term,
            connections,
            tethers,
        }
    }
}

impl Metrics {
    /// Keeps a histogram of how long the calls of each method take, too: some 5 KiB, and one look at the clock a call.
    #[must_use]
    pub(crate) fn with_histograms_of_calls(self) -> Metrics {
        Metrics { handling: METHODS.iter().map(|_| Durations::new(&HANDLING_SECONDS)).collect(), ..self }
    }

    /// Counts a sync of the disk, and how long it took.
    pub fn on_fsync(&self, took: Duration) {
        self.fsyncs.observe(took);
        self.fsync_seconds.observe(took.as_secs_f64());
    }

    /// Counts an election that this member won, and how long it took.
    pub fn on_election(&self, took: Duration) {
        self.election_seconds.observe(took.as_secs_f64());
    }

    /// Tells what is counted of peers, too.
    pub fn tell_of_peers(&self, node: Arc<Counters>) {
        // The host of the node says so once.
        let _ = self.node.set(node);
    }

    /// Tells when this member's certificates expire, too.
    pub fn tell_of_expiries(&self, expiries: Expiries) {
        // The reader of the certificates says so once.
        let _ = self.expiries.set(expiries);
    }

    /// The expiry of each certificate of this member; empty where there is none.
    pub(crate) fn expiries(&self) -> Vec<Expiry> {
        self.expiries.get().map(|expiries| expiries()).unwrap_or_default()
    }

    /// Writes the expiries in Prometheus' words; nothing where there is none.
    pub(crate) fn encode_expiries(&self, out: &mut String) {
        let expiries = self.expiries();
        if expiries.is_empty() {
            return;
        }
        let name = "hustings_certificate_not_after_seconds";
        let _ = writeln!(
            out,
            "# HELP {name} When a certificate that this member shows or trusts expires, since 1970.\n# TYPE {name} gauge"
        );
        for Expiry { of, not_after } in expiries {
            let seconds = not_after.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            let _ = writeln!(out, "{name}{{of=\"{of}\"}} {seconds}");
        }
    }

    /// Takes over which alarms are up.
    pub(crate) fn see_alarms(&self, up: &[Alarm]) {
        for ((_, kind), told) in ALARMS.iter().zip(&self.alarms) {
            told.store(up.iter().any(|alarm| alarm.kind == *kind), Ordering::Relaxed);
        }
    }

    /// Writes in Prometheus' words which alarms are up, each of which has writes refused.
    pub(crate) fn encode_alarms(&self, out: &mut String) {
        let help =
            "Whether an alarm of this kind is up at any member, as far as this one has heard: writes are refused then.";
        let _ = writeln!(out, "# HELP hustings_alarm {help}\n# TYPE hustings_alarm gauge");
        for ((name, _), is_up) in ALARMS.iter().zip(&self.alarms) {
            let _ = writeln!(out, "hustings_alarm{{kind=\"{name}\"}} {}", u8::from(is_up.load(Ordering::Relaxed)));
        }
    }

    /// Whether this member's disk has no room for its log to grow, as far as the node has said.
    pub(crate) fn is_log_short(&self) -> bool {
        self.node.get().is_some_and(|node| node.is_log_short.load(Ordering::Relaxed))
    }

    /// One of the node's counters; 0 while there is no node.
    pub(crate) fn of_node(&self, counter: impl FnOnce(&Counters) -> &AtomicU64) -> u64 {
        self.node.get().map_or(0, |node| counter(node).load(Ordering::Relaxed))
    }

    pub(crate) fn on_leader_change(&self) {
        self.leader_changes.inc();
    }

    pub(crate) fn on_implicit_lease(&self) {
        self.implicit_leases.inc();
    }

    pub(crate) fn on_tether(&self, by: i64) {
        self.tethers.inc_by(by);
    }

    pub(crate) fn on_connection(&self, by: i64) {
        self.connections.inc_by(by);
    }

    /// A call begins; `None` for a method that does not exist.
    pub(crate) fn on_call(&self, path: &str) -> Option<Call> {
        let method = METHODS.binary_search_by(|(method, _)| (*method).cmp(path)).ok()?;
        self.calls[method].started.fetch_add(1, Ordering::Relaxed);
        Some(Call { method, begun: Instant::now() })
    }

    /// Counts a call's end with this code.
    pub(crate) fn on_answer(&self, call: Call, code: usize) {
        if let Some(handled) = self.calls[call.method].handled.get(code) {
            handled.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(handling) = self.handling.get(call.method) {
            handling.observe(call.begun.elapsed());
        }
    }

    /// Counts a request with one answer that succeeded, and how long it took.
    pub(crate) fn on_request(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let place = REQUEST_BUCKETS_MICROS.partition_point(|bound| *bound < micros);
        self.request_micros[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Number of calls that were answered, well or not.
    pub(crate) fn answered(&self) -> u64 {
        let handled = self.calls.iter().flat_map(|calls| &calls.handled);
        handled.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Open connections of clients.
    pub(crate) fn connections(&self) -> i64 {
        self.connections.get()
    }

    /// Our own metrics in the text format.
    pub(crate) fn encode(&self, term: u64) -> String {
        self.term.set(i64::try_from(term).unwrap_or(i64::MAX));
        let mut openly = String::new();
        // Writing into a string does not fail.
        let _ = text::encode(&mut openly, &self.registry);
        as_prometheus_text(&openly)
    }
}

/// OpenMetrics names a family of counters without `_total` and ends with a mark; the older text format, which everyone
/// reads, does neither.
fn as_prometheus_text(openly: &str) -> String {
    let counters: Vec<&str> =
        openly.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let facts: Vec<&str> =
        openly.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" info")).collect();
    let mut out = String::with_capacity(openly.len() + 16 * counters.len());
    for line in openly.lines().filter(|line| *line != "# EOF") {
        let comment = line.strip_prefix("# TYPE ").or_else(|| line.strip_prefix("# HELP "));
        match comment.and_then(|rest| rest.split_once(' ')) {
            Some((name, rest)) if counters.contains(&name) => {
                let keyword = &line[..7];
                out.push_str(&format!("{keyword}{name}_total {rest}\n"));
            }
            // A fact is a gauge there, and its family ends in `_info`, too.
            Some((name, rest)) if facts.contains(&name) => {
                let (keyword, rest) = (&line[..7], if rest == "info" { "gauge" } else { rest });
                out.push_str(&format!("{keyword}{name}_info {rest}\n"));
            }
            // Units are not known there.
            _ if line.starts_with("# UNIT ") => {}
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_methods_is_sorted() {
        assert!(METHODS.is_sorted(), "methods are found by bisection");
    }

    #[test]
    fn our_metrics_are_prometheus_text() {
        let metrics = Metrics::default();
        metrics.on_fsync(Duration::from_millis(3));
        metrics.on_leader_change();
        let text = metrics.encode(9);
        assert!(text.contains("# TYPE hustings_leader_changes_total counter\n"), "{text}");
        assert!(text.contains("\nhustings_leader_changes_total 1\n"), "{text}");
        assert!(text.starts_with("# HELP hustings_build_info ") && text.contains("# TYPE hustings_build_info gauge\n"));
        assert!(text.contains("hustings_wal_fsync_duration_seconds_bucket{le=\"0.004\"} 1\n"), "{text}");
        assert!(text.contains("\nhustings_term 9\n") && !text.contains("EOF"), "{text}");
    }
}
