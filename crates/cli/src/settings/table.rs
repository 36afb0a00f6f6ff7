//! The settings of `serve`, one row each, as flags of the command line.
//!
//! Read next: [`super::resolve`].

use super::etcd;
use clap::{Arg, Command};

/// The form of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// True or false; as a flag without a value, true.
    Switch,
    /// A whole number that is not negative.
    Number,
    /// A length of time, like 300ms or 1h30m.
    Duration,
    /// Any text; its reader checks it.
    Text,
}

/// One setting: its name, kind, default and help.
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) default: &'static str,
    pub(super) help: &'static str,
}

const fn setting(name: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { name, kind: Kind::Text, default, help }
}

const fn of_kind(kind: Kind, name: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { name, kind, default, help }
}

/// All settings of `serve`. An empty default means "derived from the others".
pub(super) const SETTINGS: &[Setting] = &[
    setting("name", "default", "Name of this member"),
    setting("data-dir", "", "Directory of log and snapshots [default: NAME.hustings]"),
    setting("listen-client-urls", "http://127.0.0.1:2379", "URLs to serve clients on, comma-separated"),
    setting(
        "advertise-client-urls",
        "",
        "URLs that clients reach this member by [default: where it listens, by the host that peers know]",
    ),
    setting("listen-peer-urls", "http://127.0.0.1:2380", "URLs to hear peers on, comma-separated"),
    setting(
        "initial-advertise-peer-urls",
        "",
        "URLs that peers reach this member by [default: as --initial-cluster has it, or where it listens]",
    ),
    setting(
        "initial-cluster",
        "",
        "Founding members, name=url,..., this one among them; who they are is read at the first start only [default: this member alone]",
    ),
    setting("initial-cluster-state", "new", "new: found a cluster; existing: join one that has added this member"),
    setting("join-token", "", "What `member add` printed for this member: it counts once"),
    setting(
        "cluster-secret-file",
        "",
        "File with what all members know and strangers do not; without it any process that reaches the peer port may pretend to be a member",
    ),
    setting(
        "initial-cluster-token",
        "hustings-cluster",
        "Tells clusters with equal names and peer URLs of members apart",
    ),
    of_kind(
        Kind::Switch,
        "force-new-cluster",
        "false",
        "Quorum lost for good: make the data directory that of a new cluster of this member alone, once; the old one is kept beside it",
    ),
    of_kind(
        Kind::Number,
        "heartbeat-interval",
        "",
        "Milliseconds between a leader's heartbeats [default: 50, or a fifth of --election-timeout where that is less]",
    ),
    of_kind(
        Kind::Number,
        "election-timeout",
        "",
        "Milliseconds of silence before an election; drawn from this to twice this [default: 250, or ten times --heartbeat-interval where that is more]",
    ),
    setting(
        "timing",
        "fixed",
        "fixed: as given; auto: follows round trips and flushes as measured, within --timing-bounds",
    ),
    setting(
        "timing-bounds",
        "100,5000",
        "With --timing auto, milliseconds between which the election timeout may move; equal on all members",
    ),
    of_kind(
        Kind::Duration,
        "experimental-corrupt-check-time",
        "5m",
        "How often members compare digests of what they hold; one that differs raises the alarm CORRUPT; 0s means never",
    ),
    setting(
        "apply-version-max",
        "",
        "Hold an upgrade back: the highest apply version this member says it can; empty means all that this build can",
    ),
    of_kind(Kind::Number, "snapshot-count", "100000", "Applied entries between snapshots"),
    setting(
        "quota-backend-bytes",
        "2147483648",
        "Bytes of keys and values before the NOSPACE alarm; 0 means the default, below 0 no quota",
    ),
    setting(
        "memory-limit",
        "",
        "Bytes that all clients together may make this member hold beside the store: bodies, proposals, answers, events [default: a quarter of the memory]",
    ),
    of_kind(Kind::Number, "max-request-bytes", "1572864", "Bytes of the largest client request"),
    setting(
        "ring",
        "16777216",
        "Bytes of the recording in the data directory, for `hustings why` and `hustings replay`; off for none",
    ),
    setting("protocol", "raft", "Election and replication protocol; the same on all members"),
    setting("protocol-options", "", "Options of the protocol alone, as name=value,name=value; the same on all members"),
    setting("priority", "normal", "How much this member should lead: normal, preferred or never"),
    of_kind(Kind::Duration, "shutdown-grace", "10s", "Time to hand leadership over and drain after SIGTERM"),
    setting("log-level", "info", "error, warn, info, debug or trace (panic and fatal are error), or a tracing filter"),
    setting(
        "log-format",
        "auto",
        "human, json, zap: JSON with etcd's field names, or auto: human on a terminal; console is human",
    ),
    setting("logger", "", "zap: the same as --log-format zap, unless that is given"),
    setting(
        "log-outputs",
        "default",
        "Where lines go, comma-separated: stderr, stdout, paths of files to append to; default is stderr",
    ),
    setting("listen-metrics-urls", "", "Further URLs, for /metrics, /health, /livez and /readyz alone"),
    of_kind(
        Kind::Duration,
        "experimental-warning-unary-request-duration",
        "300ms",
        "Time from which on a request is told to the log as slow, one a second at most; 0s means never",
    ),
    setting(
        "metrics",
        "basic",
        "extensive: a histogram of how long calls take, for each method, beside the rest; or basic",
    ),
    of_kind(Kind::Number, "max-txn-ops", "128", "Operations in one transaction"),
    of_kind(Kind::Number, "max-concurrent-streams", "2048", "Requests and streams under way on one connection"),
    of_kind(
        Kind::Duration,
        "grpc-keepalive-interval",
        "30s",
        "How often a silent client's connection is probed; 0s means never",
    ),
    of_kind(
        Kind::Duration,
        "grpc-keepalive-timeout",
        "20s",
        "How long a client may take to answer a probe; 0s means that none is sent",
    ),
    of_kind(
        Kind::Duration,
        "experimental-watch-progress-notify-interval",
        "10m",
        "How often a watch that asked for it hears that nothing happened",
    ),
    setting("auto-compaction-mode", "periodic", "periodic: by time; revision: by number of revisions"),
    setting(
        "auto-compaction-retention",
        "0",
        "What compaction keeps: a time like 30m, a number of hours, or with mode revision a number of revisions; 0 means all",
    ),
    setting(
        "cors",
        "",
        "Origins whose pages may call, comma-separated; * means all [default: none but this server's own]",
    ),
    setting(
        "host-whitelist",
        "*",
        "Host names that HTTP requests may be addressed to, comma-separated; * or empty means all",
    ),
    // TLS.
    setting("cert-file", "", "Certificate of the client port, for https:// URLs, in PEM"),
    setting("key-file", "", "Key of the client port"),
    of_kind(
        Kind::Switch,
        "client-cert-auth",
        "false",
        "Clients must show a certificate (so it is with --trusted-ca-file)",
    ),
    setting("client-crl-file", "", "Revoked certificates of clients"),
    setting("client-cert-allowed-hostname", "", "Host name that a client's certificate must have"),
    setting("trusted-ca-file", "", "CA that signs clients' certificates: they must show one"),
    of_kind(
        Kind::Switch,
        "auto-tls",
        "false",
        "Make a certificate for the client port: encryption, and no proof of who this is",
    ),
    setting("peer-cert-file", "", "Certificate of the peer port, and for dialling, in PEM"),
    setting("peer-key-file", "", "Key of the peer port"),
    setting("peer-client-cert-file", "", "Certificate to show to peers [default: --peer-cert-file]"),
    setting("peer-client-key-file", "", "Key to that [default: --peer-key-file]"),
    of_kind(
        Kind::Switch,
        "peer-client-cert-auth",
        "false",
        "Peers must show a certificate (so it is with --peer-trusted-ca-file)",
    ),
    setting("peer-trusted-ca-file", "", "CA that signs members' certificates: each must show its own"),
    setting("peer-cert-allowed-cn", "", "Common name that a peer's certificate must have"),
    setting("peer-cert-allowed-hostname", "", "Host name that a peer's certificate must have"),
    of_kind(
        Kind::Switch,
        "peer-auto-tls",
        "false",
        "Make a certificate for the peer port: encryption, and no proof of who this is",
    ),
    setting("peer-crl-file", "", "Revoked certificates of peers"),
    of_kind(Kind::Number, "self-signed-cert-validity", "", "Years for which certificates are made [default: 1]"),
    setting("cipher-suites", "", "Ciphers of TLS 1.2, comma-separated [default: all that are sound]"),
    setting("tls-min-version", "", "Lowest version of TLS: TLS1.2 or TLS1.3 [default: TLS1.2]"),
    setting("tls-max-version", "", "Highest version of TLS [default: TLS1.3]"),
    of_kind(
        Kind::Switch,
        "experimental-peer-skip-client-san-verification",
        "false",
        "Let a peer show any certificate that the CA signed, not its own alone",
    ),
    // Users and roles.
    setting(
        "auth-token",
        "simple",
        "What proves a user's further calls: simple, or jwt,pub-key=FILE,... as etcd has it",
    ),
    of_kind(Kind::Number, "auth-token-ttl", "300", "Seconds for which a token counts"),
    of_kind(
        Kind::Number,
        "bcrypt-cost",
        "10",
        "How much hashing a password costs, 4 to 31: each step doubles the time",
    ),
];

/// Adds the settings to a command as flags, and etcd's others.
pub(crate) fn with_settings(mut command: Command) -> Command {
    for setting in SETTINGS {
        let mut help = setting.help.to_string();
        if !setting.default.is_empty() {
            help.push_str(&format!(" [default: {}]", setting.default));
        }
        help.push_str(&format!(" [env: {}]", variable_of("HUSTINGS", setting.name)));
        command = command.arg(flag(setting.name, setting.kind).help(help));
    }
    for other in etcd::others() {
        command = command.arg(flag(other.name, other.kind).hide(true));
    }
    command.args_override_self(true).arg(
        Arg::new("config")
            .long("config")
            .visible_alias("config-file")
            .value_name("FILE")
            .help("Settings as TOML by flag name, or as etcd's YAML [env: HUSTINGS_CONFIG]"),
    )
}

fn flag(name: &'static str, kind: Kind) -> Arg {
    let flag = Arg::new(name).long(name).allow_hyphen_values(true).value_name("VALUE");
    match kind {
        // As etcd's: `--auto-tls`, or `--auto-tls=false`.
        Kind::Switch => flag.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => flag,
    }
}

/// Name of a setting's variable: `HUSTINGS_DATA_DIR` for `data-dir`.
pub(super) fn variable_of(prefix: &str, name: &str) -> String {
    format!("{prefix}_{}", name.replace('-', "_").to_uppercase())
}
