//! The settings of `serve`, one row each, as flags of the command line.
//!
//! Read next: [`super::resolve`].

use clap::{Arg, ArgAction, Command};

/// One setting.
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) default: &'static str,
    pub(super) help: &'static str,
}

const fn setting(name: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { name, default, help }
}

/// All settings of `serve`. An empty default means "derived from the others".
pub(super) const SETTINGS: &[Setting] = &[
    setting("name", "default", "Name of this member"),
    setting("data-dir", "", "Directory of log and snapshots [default: NAME.hustings]"),
    setting("listen-client-urls", "http://127.0.0.1:2379", "URLs to serve clients on, comma-separated"),
    setting("advertise-client-urls", "", "URLs that clients reach this member by [default: where it listens]"),
    setting("listen-peer-urls", "http://127.0.0.1:2380", "URLs to hear peers on, comma-separated"),
    setting("initial-advertise-peer-urls", "", "URLs that peers reach this member by [default: where it listens]"),
    setting(
        "initial-cluster",
        "",
        "Founding members, name=url,...; read at the first start only [default: this member alone]",
    ),
    setting("initial-cluster-state", "new", "new: found a cluster; existing: join one that has added this member"),
    setting(
        "cluster-secret-file",
        "",
        "File with what all members know and strangers do not; without it whoever reaches the peer port may pretend to be a member",
    ),
    setting("initial-cluster-token", "hustings-cluster", "Tells clusters with equal member names apart"),
    setting("heartbeat-interval", "50", "Milliseconds between a leader's heartbeats"),
    setting("election-timeout", "250", "Milliseconds of silence before an election; drawn from this to twice this"),
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
    setting(
        "experimental-corrupt-check-time",
        "5m",
        "How often members compare digests of what they hold; one that differs raises the alarm CORRUPT; 0s means never",
    ),
    setting(
        "apply-version-max",
        "",
        "Hold an upgrade back: the highest apply version this member says it can; empty means all that this build can",
    ),
    setting("snapshot-count", "100000", "Applied entries between snapshots"),
    setting(
        "quota-backend-bytes",
        "2147483648",
        "Bytes of keys and values before the NOSPACE alarm; 0 means the default",
    ),
    setting(
        "memory-limit",
        "",
        "Bytes that all clients together may make this member hold beside the store: bodies, proposals, answers, events [default: a quarter of the memory]",
    ),
    setting("max-request-bytes", "1572864", "Bytes of the largest client request"),
    setting("protocol", "raft", "Election and replication protocol; the same on all members"),
    setting("protocol-options", "", "Options of the protocol alone, as name=value,name=value; the same on all members"),
    setting("priority", "normal", "How much this member should lead: normal, preferred or never"),
    setting("cert-file", "", "Certificate of the client port, for https:// URLs, in PEM"),
    setting("key-file", "", "Its key"),
    setting("trusted-ca-file", "", "CA that signs clients' certificates: they must show one"),
    setting("client-cert-auth", "", "Clients must show a certificate (so it is with --trusted-ca-file)"),
    setting("client-crl-file", "", "Certificates of clients that are not good any more"),
    setting("client-cert-allowed-hostname", "", "Host that a client's certificate must be for"),
    setting("auto-tls", "", "Make a certificate for the client port: encryption, and no proof of who this is"),
    setting("peer-cert-file", "", "Certificate of the peer port, and for whoever is dialled, in PEM"),
    setting("peer-key-file", "", "Its key"),
    setting("peer-client-cert-file", "", "Certificate to show to peers [default: --peer-cert-file]"),
    setting("peer-client-key-file", "", "Its key"),
    setting("peer-trusted-ca-file", "", "CA that signs members' certificates: each must show its own"),
    setting("peer-client-cert-auth", "", "Peers must show a certificate (so it is with --peer-trusted-ca-file)"),
    setting("peer-crl-file", "", "Certificates of members that are not good any more"),
    setting("peer-cert-allowed-cn", "", "Common name that a peer's certificate must have"),
    setting("peer-cert-allowed-hostname", "", "Host that a peer's certificate must be for"),
    setting("peer-auto-tls", "", "Make a certificate for the peer port: encryption, and no proof of who this is"),
    setting("self-signed-cert-validity", "", "Years for which certificates are made [default: 1]"),
    setting("tls-min-version", "", "Lowest version of TLS: TLS1.2 or TLS1.3 [default: TLS1.2]"),
    setting("tls-max-version", "", "Highest version of TLS [default: TLS1.3]"),
    setting("cipher-suites", "", "Ciphers of TLS 1.2, comma-separated [default: all that are sound]"),
    setting(
        "experimental-peer-skip-client-san-verification",
        "",
        "Let a peer show any certificate that the CA signed, not its own alone",
    ),
    setting("shutdown-grace", "10s", "Time to hand leadership over and drain after SIGTERM"),
    setting("log-level", "info", "error, warn, info, debug or trace, or a tracing filter"),
    setting("log-format", "auto", "human, json, or auto: human on a terminal"),
];

/// etcd's flags that mean nothing here and are accepted with a warning, so that existing units start.
pub(super) const ACCEPTED: &[&str] =
    &["logger", "log-outputs", "enable-v2", "enable-pprof", "strict-reconfig-check", "pre-vote", "metrics"];

/// Those that are on when they stand alone.
const SWITCHES: &[&str] = &[
    "client-cert-auth",
    "auto-tls",
    "peer-client-cert-auth",
    "peer-auto-tls",
    "experimental-peer-skip-client-san-verification",
];

/// Adds the settings to a command as flags.
pub(crate) fn with_settings(mut command: Command) -> Command {
    for setting in SETTINGS {
        let mut help = setting.help.to_string();
        if !setting.default.is_empty() {
            help.push_str(&format!(" [default: {}]", setting.default));
        }
        help.push_str(&format!(" [env: {}]", variable_of(setting.name)));
        let mut flag = Arg::new(setting.name).long(setting.name).allow_negative_numbers(true);
        if SWITCHES.contains(&setting.name) {
            flag = flag.num_args(0..=1).require_equals(true).default_missing_value("true");
        }
        command = command.arg(flag.value_name("VALUE").help(help));
    }
    for name in ACCEPTED {
        command = command.arg(Arg::new(*name).long(*name).num_args(0..=1).action(ArgAction::Append).hide(true));
    }
    command.arg(
        Arg::new("config")
            .long("config")
            .visible_alias("config-file")
            .value_name("FILE")
            .help("Settings as TOML, by flag name"),
    )
}

pub(super) fn variable_of(name: &str) -> String {
    format!("HUSTINGS_{}", name.replace('-', "_").to_uppercase())
}
