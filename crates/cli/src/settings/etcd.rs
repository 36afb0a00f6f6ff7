//! etcd's flags and what becomes of each here.
//!
//! Source: `etcd --help` of 3.5.1, and the flags that 3.5 takes without naming them there. A test reads the help of the real
//! binary and fails for a flag that is missing here.
//!
//! Read next: [`super::table`], the settings that this program has.

use super::table::{self, Kind};

/// The treatment of one of etcd's flags that is no setting here.
pub(super) enum Answer {
    /// Accepted: the reason why it changes nothing here.
    NotNeeded(&'static str),
    /// Any value but the default is refused: the reason and the remedy.
    Refused(&'static str),
}

/// One of etcd's flags that is no setting here.
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// etcd's default, which asks for nothing.
    pub(super) default: &'static str,
    pub(super) answer: Answer,
}

const fn not_needed(name: &'static str, kind: Kind, default: &'static str, why: &'static str) -> Flag {
    Flag { name, kind, default, answer: Answer::NotNeeded(why) }
}

const fn refused(name: &'static str, kind: Kind, default: &'static str, why: &'static str) -> Flag {
    Flag { name, kind, default, answer: Answer::Refused(why) }
}

const NO_BBOLT: &str = "there is no bbolt file: the store is in memory, its log and snapshots on disk";
const NO_DISCOVERY: &str = "no discovery service is asked; name the founding members in --initial-cluster";
const NO_LOOP: &str = "its own JSON and HTTP pages reach the store without a connection to itself";
const NO_PROXY: &str = "there is no v2 API and no proxy for it";
const NO_TRACES: &str = "traces are not sent anywhere; metrics and the log are what there is. Leave the flag out";
const TRACES_OFF: &str = "traces are not sent anywhere";
const NO_V2: &str = "the v2 API is not served: its clients are told 404 and must move to v3";

/// Flags that mean nothing here or cannot be had, in the order of `etcd --help`; then those that it does not show.
const OTHERS: &[Flag] = &[
    refused("wal-dir", Kind::Text, "", "log and snapshots share a directory; put --data-dir on the disk for the log"),
    not_needed(
        "initial-election-tick-advance",
        Kind::Switch,
        "true",
        "timers are not counted in ticks; a member that starts stands for election within two election timeouts",
    ),
    not_needed("client-cert-file", Kind::Text, "", NO_LOOP),
    not_needed("client-key-file", Kind::Text, "", NO_LOOP),
    not_needed("max-snapshots", Kind::Number, "5", "snapshots that a newer one replaces are deleted"),
    not_needed("max-wals", Kind::Number, "5", "files of the log that a snapshot replaces are deleted"),
    not_needed("backend-bbolt-freelist-type", Kind::Text, "map", NO_BBOLT),
    not_needed("backend-batch-interval", Kind::Duration, "", NO_BBOLT),
    not_needed("backend-batch-limit", Kind::Number, "0", NO_BBOLT),
    not_needed(
        "grpc-keepalive-min-time",
        Kind::Duration,
        "5s",
        "a client that pings more often is answered, not disconnected",
    ),
    refused(
        "socket-reuse-port",
        Kind::Switch,
        "false",
        "a second process on the same port would take a share of the connections; stop the first one instead",
    ),
    not_needed("socket-reuse-address", Kind::Switch, "false", "it is always so"),
    refused("discovery", Kind::Text, "", NO_DISCOVERY),
    not_needed("discovery-fallback", Kind::Text, "proxy", "no discovery service is asked"),
    refused("discovery-proxy", Kind::Text, "", NO_DISCOVERY),
    refused("discovery-srv", Kind::Text, "", NO_DISCOVERY),
    refused("discovery-srv-name", Kind::Text, "", NO_DISCOVERY),
    not_needed("strict-reconfig-check", Kind::Switch, "true", "it is always so"),
    not_needed("pre-vote", Kind::Switch, "true", "it is so unless --protocol-options pre-vote=false says otherwise"),
    not_needed("enable-v2", Kind::Switch, "false", NO_V2),
    not_needed("v2-deprecation", Kind::Text, "not-yet", "there is no v2 store"),
    not_needed("enable-pprof", Kind::Switch, "false", "profiles are not served; use perf(1)"),
    refused(
        "enable-log-rotation",
        Kind::Switch,
        "false",
        "files are not rotated here; let logrotate(8) do it with `copytruncate`: they are opened to append",
    ),
    not_needed(
        "log-rotation-config-json",
        Kind::Text,
        r#"{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}"#,
        "it belongs to --enable-log-rotation",
    ),
    refused("experimental-enable-distributed-tracing", Kind::Switch, "false", NO_TRACES),
    not_needed("experimental-distributed-tracing-address", Kind::Text, "localhost:4317", TRACES_OFF),
    not_needed("experimental-distributed-tracing-service-name", Kind::Text, "etcd", TRACES_OFF),
    not_needed("experimental-distributed-tracing-instance-id", Kind::Text, "", TRACES_OFF),
    refused("proxy", Kind::Text, "off", "there is no v2 API and no proxy for it; give clients all members' URLs"),
    not_needed("proxy-failure-wait", Kind::Number, "5000", NO_PROXY),
    not_needed("proxy-refresh-interval", Kind::Number, "30000", NO_PROXY),
    not_needed("proxy-dial-timeout", Kind::Number, "1000", NO_PROXY),
    not_needed("proxy-write-timeout", Kind::Number, "5000", NO_PROXY),
    not_needed("proxy-read-timeout", Kind::Number, "0", NO_PROXY),
    not_needed(
        "experimental-initial-corrupt-check",
        Kind::Switch,
        "false",
        "no member is asked before it serves; files are checked against their checksums at each start, and members compare what they hold every --experimental-corrupt-check-time",
    ),
    refused("experimental-enable-v2v3", Kind::Text, "", "the v2 API is not served; move its clients to v3"),
    not_needed(
        "experimental-enable-lease-checkpoint",
        Kind::Switch,
        "false",
        "leases expire by the log's clock: no leader change prolongs one",
    ),
    not_needed("experimental-compaction-batch-limit", Kind::Number, "1000", "compaction goes in steps of bounded cost"),
    not_needed(
        "experimental-warning-apply-duration",
        Kind::Duration,
        "100ms",
        "turns of the loop of 50 ms and more are counted (`etcd_server_slow_apply_total`) and recorded, always",
    ),
    not_needed("experimental-txn-mode-write-with-shared-buffer", Kind::Switch, "true", NO_BBOLT),
    not_needed("experimental-bootstrap-defrag-threshold-megabytes", Kind::Number, "0", NO_BBOLT),
    refused(
        "unsafe-no-fsync",
        Kind::Switch,
        "false",
        "writes that were acknowledged would be lost; for a cluster of tests put --data-dir into memory, on a tmpfs",
    ),
    not_needed("enable-grpc-gateway", Kind::Switch, "true", "it is always so"),
    not_needed(
        "experimental-enable-lease-checkpoint-persist",
        Kind::Switch,
        "false",
        "leases expire by the log's clock: no leader change prolongs one",
    ),
    not_needed(
        "experimental-compact-hash-check-enabled",
        Kind::Switch,
        "false",
        "see --experimental-corrupt-check-time",
    ),
    not_needed("experimental-compact-hash-check-time", Kind::Duration, "1m", "see --experimental-corrupt-check-time"),
    not_needed(
        "experimental-compaction-sleep-interval",
        Kind::Duration,
        "",
        "compaction goes in steps of bounded cost",
    ),
    not_needed("experimental-downgrade-check-time", Kind::Duration, "5s", "see docs/upgrading.md"),
    refused(
        "experimental-memory-mlock",
        Kind::Switch,
        "false",
        "memory is not locked; keep this member out of swap by `MemorySwapMax=0` in its unit, or turn swap off",
    ),
    not_needed("experimental-max-learners", Kind::Number, "1", "the number of learners has no limit of its own"),
    not_needed(
        "experimental-wait-cluster-ready-timeout",
        Kind::Duration,
        "5s",
        "systemd is told once there is a leader",
    ),
    not_needed("experimental-snapshot-catchup-entries", Kind::Number, "5000", "the log is kept by its size"),
    not_needed("experimental-stop-grpc-service-on-defrag", Kind::Switch, "false", NO_BBOLT),
    not_needed("experimental-distributed-tracing-sampling-rate", Kind::Number, "0", TRACES_OFF),
    refused(
        "listen-client-http-urls",
        Kind::Text,
        "",
        "gRPC and HTTP share a port; add the URLs to --listen-client-urls",
    ),
];

/// etcd's flags that are settings here, in the order of its help.
const TAKEN: &[&str] = &[
    "name",
    "data-dir",
    "snapshot-count",
    "heartbeat-interval",
    "election-timeout",
    "listen-peer-urls",
    "listen-client-urls",
    "quota-backend-bytes",
    "max-txn-ops",
    "metrics",
    "experimental-warning-unary-request-duration",
    "max-request-bytes",
    "max-concurrent-streams",
    "grpc-keepalive-interval",
    "grpc-keepalive-timeout",
    "initial-advertise-peer-urls",
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
    "advertise-client-urls",
    "auto-compaction-retention",
    "auto-compaction-mode",
    "cert-file",
    "key-file",
    "client-cert-auth",
    "client-crl-file",
    "client-cert-allowed-hostname",
    "trusted-ca-file",
    "auto-tls",
    "peer-cert-file",
    "peer-key-file",
    "peer-client-cert-file",
    "peer-client-key-file",
    "peer-client-cert-auth",
    "peer-trusted-ca-file",
    "peer-cert-allowed-cn",
    "peer-cert-allowed-hostname",
    "peer-auto-tls",
    "self-signed-cert-validity",
    "peer-crl-file",
    "cipher-suites",
    "tls-min-version",
    "tls-max-version",
    "cors",
    "host-whitelist",
    "auth-token",
    "bcrypt-cost",
    "auth-token-ttl",
    "listen-metrics-urls",
    "logger",
    "log-outputs",
    "log-level",
    "log-format",
    "experimental-corrupt-check-time",
    "experimental-peer-skip-client-san-verification",
    "experimental-watch-progress-notify-interval",
    "force-new-cluster",
];

/// The flags of etcd that are no settings here.
pub(super) fn others() -> impl Iterator<Item = &'static Flag> {
    OTHERS.iter()
}

/// The table for people, as Markdown: flag, what becomes of it, meaning or reason.
pub(super) fn as_markdown() -> String {
    let mut out = String::from("| etcd's flag | here | meaning, or why not |\n|---|---|---|\n");
    let mut row = |name: &str, here: &str, text: &str| {
        out.push_str(&format!("| `--{name}` | {here} | {} |\n", text.replace('|', "\\|")));
    };
    for name in TAKEN {
        let setting = table::SETTINGS.iter().find(|setting| setting.name == *name);
        let setting = setting.expect("a test compares both tables");
        let default = match setting.default {
            "" => String::new(),
            default => format!(" (default here: `{default}`)"),
        };
        row(name, "taken", &format!("{}{default}", setting.help));
    }
    for flag in OTHERS {
        match flag.answer {
            Answer::NotNeeded(why) => row(flag.name, "accepted", why),
            Answer::Refused(why) => row(flag.name, "refused", why),
        }
    }
    for (name, what) in [
        ("config-file", "etcd's YAML, or TOML by flag name; it stands below flags and variables"),
        ("version", "prints the version of etcd that is spoken, and this program's"),
        ("help", "prints the settings"),
    ] {
        row(name, "taken", what);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_that_is_taken_is_a_setting_and_no_flag_has_two_answers() {
        let settings: Vec<&str> = table::SETTINGS.iter().map(|setting| setting.name).collect();
        for name in TAKEN {
            assert!(settings.contains(name), "--{name} is said to be taken and is no setting");
        }
        for flag in OTHERS {
            assert!(!settings.contains(&flag.name), "--{} is a setting and has an answer beside it", flag.name);
            assert_eq!(OTHERS.iter().filter(|other| other.name == flag.name).count(), 1, "{}", flag.name);
        }
    }
}
