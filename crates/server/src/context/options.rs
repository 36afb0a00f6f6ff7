//! The options of a server, set by its operator: [`ServerOptions`].

use std::path::PathBuf;
use std::time::Duration;

use hustings_core::Timing;
use hustings_tls::Connector;

use crate::context::jwt::Jwt;

/// Automatic compaction of the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compaction {
    /// Nothing is forgotten by itself.
    #[default]
    Never,
    /// Revisions that were superseded longer ago than this are forgotten.
    Periods(Duration),
    /// All revisions but this many of the latest ones.
    Revisions(i64),
}

/// The options of a server; the defaults are etcd's where etcd has them.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The member's name, announced to the others with [`ServerOptions::client_urls`]. Empty: nothing is announced.
    pub name: String,
    /// URLs at which clients reach this member.
    pub client_urls: Vec<String>,
    /// Whether members prove a secret to each other: the answer to an added member says that the new one needs it.
    pub has_cluster_secret: bool,
    /// The cluster's ranges; they bound how long a request may wait and how short a lease may be.
    pub timing: Timing,
    /// The largest request, in bytes as the log carries it.
    pub max_request_bytes: usize,
    /// Operations in one transaction.
    pub max_txn_ops: usize,
    /// Size of the store, in bytes, from which on puts are refused.
    pub quota_backend_bytes: u64,
    /// Bytes that all clients together may make this member hold, beside the store: bodies, proposals, answers, events.
    pub memory_limit_bytes: u64,
    /// Pause after which a watch that asked for it hears that nothing happened.
    pub progress_notify_interval: Duration,
    /// Requests and streams under way on one connection.
    pub streams_per_connection_max: u32,
    /// Connections open at a time; further ones wait in the listener's backlog.
    pub connections_max: usize,
    /// Time that a connection may take to say its first words, or an HTTP/1.1 request its headers.
    pub header_timeout: Duration,
    /// Time that a request's body may take to come, once its headers have.
    pub body_timeout: Duration,
    /// Time that a reader may take for the next part of a snapshot: few are sent at a time, and one that nobody reads keeps others waiting.
    pub part_timeout: Duration,
    /// Automatic compaction of the history.
    pub compaction: Compaction,
    /// Origins whose pages may call: `SCHEME://HOST[:PORT]` in lower case, or `*` for all. This server's own may always.
    pub origins: Vec<String>,
    /// Host names that HTTP requests may be addressed to; none, or `*`, for all.
    pub hosts: Vec<String>,
    /// Pause between two questions to an HTTP/2 client whether it is still there; zero means never.
    pub keep_alive_interval: Duration,
    /// Time that the client may take to answer that.
    pub keep_alive_timeout: Duration,
    /// Time for which a token counts once it is given out.
    pub auth_token_ttl: Duration,
    /// Keys with which tokens are made and checked instead of the key in the replicated state; `None` for the latter.
    pub jwt: Option<Jwt>,
    /// The cost of hashing a password, 4 to 31: each step doubles the time.
    pub bcrypt_cost: u32,
    /// Time that open requests may take to end once the server is told to stop.
    pub grace: Duration,
    /// Time from which on a request is told to the log as slow, one a second at most; zero: none is.
    pub slow_after: Duration,
    /// Whether a histogram of how long calls take is kept for each method: etcd's `--metrics extensive`.
    pub has_histograms_of_calls: bool,
    /// Directory of the member's data: the dashboard tells how much room is left there.
    pub data_dir: Option<PathBuf>,
    /// TLS for dialling the client ports of other members, for the dashboard; `None`: as the machine trusts.
    pub connector: Option<Connector>,
    /// A socket at which `hustings up` takes orders for its local cluster; the dashboard has buttons then.
    pub workbench: Option<PathBuf>,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            name: String::new(),
            client_urls: Vec::new(),
            timing: Timing::default(),
            max_request_bytes: 3 * 512 * 1024,
            max_txn_ops: 128,
            quota_backend_bytes: 2 << 30,
            memory_limit_bytes: 1 << 30,
            progress_notify_interval: Duration::from_secs(600),
            streams_per_connection_max: 2_048,
            connections_max: 10_000,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            part_timeout: Duration::from_secs(60),
            compaction: Compaction::Never,
            origins: Vec::new(),
            hosts: Vec::new(),
            has_cluster_secret: false,
            keep_alive_interval: Duration::from_secs(30),
            keep_alive_timeout: Duration::from_secs(20),
            auth_token_ttl: Duration::from_secs(300),
            jwt: None,
            bcrypt_cost: 10,
            grace: Duration::from_secs(2),
            slow_after: Duration::from_millis(300),
            has_histograms_of_calls: false,
            data_dir: None,
            connector: None,
            workbench: None,
        }
    }
}

impl ServerOptions {
    /// Time that a request may wait for its outcome: etcd's rule, five seconds for the disk and two elections.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(5) + 2 * self.timing.election_max
    }

    /// The shortest lifetime of a lease, seconds: one and a half elections, so that a failover ends no lease.
    pub fn lease_ttl_min(&self) -> i64 {
        let least = self.timing.election_max.saturating_mul(3) / 2;
        least.as_secs() as i64 + i64::from(least.subsec_nanos() > 0)
    }
}
