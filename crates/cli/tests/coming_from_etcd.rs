//! Goal: who configures etcd can configure this server, and no setting is passed over in silence.
//! Method: the help of the real etcd, its variables, its YAML, and what is wrong with them, given to the real binary.

use crate::support::{Ended, HUSTINGS, etcd_directory, hustings, run};
use std::path::Path;
use std::process::Command;

/// The flags in the help of the real etcd, with the default that it prints.
fn flags_of_etcd() -> Vec<(String, String)> {
    let binary = etcd_directory().join("etcd");
    let said = run(Command::new(&binary).arg("--help"));
    let help = format!("{}{}", said.stdout, said.stderr);
    let of_line = |line: &str| {
        let (name, default) = line.strip_prefix("  --")?.split_once(' ').unwrap_or((&line[4..], ""));
        Some((name.to_string(), default.trim().trim_matches('\'').to_string()))
    };
    let flags: Vec<_> = help.lines().filter_map(of_line).collect();
    assert!(flags.len() > 80, "the help of {} reads otherwise: {help}", binary.display());
    flags
}

/// The row of a flag in a table of `hustings config etcd`.
fn row_of<'t>(table: &'t str, flag: &str) -> Option<Vec<&'t str>> {
    let line = table.lines().find(|line| line.starts_with(&format!("| `--{flag}` |")))?;
    Some(line.trim_matches('|').split(" | ").map(str::trim).collect())
}

#[test]
fn every_flag_in_the_help_of_the_real_etcd_has_an_answer() {
    let table = hustings(&["config", "etcd"]).ok();
    for (flag, _) in flags_of_etcd() {
        let row = row_of(&table, &flag);
        let row = row.unwrap_or_else(|| panic!("`etcd --help` has --{flag}, and `hustings config etcd` no answer"));
        assert!(["taken", "accepted", "refused"].contains(&row[1]), "{row:?}");
        assert!(row[2].len() > 8, "no meaning and no reason: {row:?}");
    }
}

#[test]
fn every_flag_is_accepted_with_the_default_that_the_real_etcd_prints() {
    for (flag, default) in flags_of_etcd() {
        let argument = if default.is_empty() && flag.ends_with("megabytes") { "0" } else { default.as_str() };
        let ended = hustings(&["config", "validate", &format!("--{flag}={argument}")]);
        assert_eq!(ended.code, Some(0), "--{flag}={argument}: {ended:?}");
        assert!(!ended.stderr.contains("changes nothing"), "a default is no news: {ended:?}");
    }
}

#[test]
fn the_page_for_those_who_come_from_etcd_has_this_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/coming-from-etcd.md");
    let page = std::fs::read_to_string(page).expect("docs/coming-from-etcd.md is there");
    let table = hustings(&["config", "etcd"]).ok();
    for row in table.lines() {
        assert!(page.contains(row), "docs/coming-from-etcd.md lacks what `hustings config etcd` says: {row}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `--"));
    for row in rows {
        assert!(table.contains(row) || page.find(row) > page.find("## What differs"), "no such flag is taken: {row}");
    }
}

/// `hustings config VERB` with these variables alone, and these arguments.
fn config(verb: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Ended {
    let mut command = Command::new(HUSTINGS);
    command.args(["config", verb]).args(arguments).env_clear().envs(variables.iter().copied());
    run(&mut command)
}

#[track_caller]
fn assert_explained(ended: Ended, rows: &[(&str, &str, &str)]) {
    let said = ended.ok();
    for (name, value, source) in rows {
        let line = said.lines().find(|line| line.split("  ").next() == Some(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {said}"));
        assert!(line.contains(&format!("{value:?}")) && line.contains(source), "{line}");
    }
}

#[test]
fn variables_of_etcd_stand_below_ours_and_above_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("etcd.conf.yml");
    std::fs::write(&file, "name: from-file\nmax-txn-ops: 7\nsnapshot-count: 11\ndata-dir: /from/file\n")
        .expect("written");
    let variables = [
        ("ETCD_NAME", "from-etcd"),
        ("HUSTINGS_NAME", "ours"),
        ("ETCD_MAX_TXN_OPS", "8"),
        ("ETCD_SNAPSHOT_COUNT", ""),
        ("ETCD_DATA_DIR", "/from/etcd"),
        ("ETCD_CONFIG_FILE", file.to_str().expect("text")),
        ("ETCD_SERVICE_HOST", "10.0.0.1"),
    ];
    let ended = config("explain", &variables, &["--data-dir", "/from/flag"]);
    for note in [
        "ETCD_NAME is not used: HUSTINGS_NAME",
        "ETCD_DATA_DIR is not used: --data-dir",
        "ETCD_SERVICE_HOST is no flag",
    ] {
        assert!(ended.stderr.contains(note), "{ended:?}");
    }
    assert_explained(
        ended,
        &[
            ("name", "ours", "variable HUSTINGS_NAME"),
            ("max-txn-ops", "8", "variable ETCD_MAX_TXN_OPS"),
            ("snapshot-count", "11", "etcd.conf.yml"),
            ("data-dir", "/from/flag", "flag"),
        ],
    );
}

/// The sample of etcd's own repository, its values those of a member that runs.
const SAMPLE: &str = "\
# This is the configuration file for the etcd server.

# Human-readable name for this member.
name: 'm1'
data-dir: /var/lib/m1
# Path to the dedicated wal directory.
wal-dir:
snapshot-count: 10000
heartbeat-interval: 100
election-timeout: 1000
quota-backend-bytes: 0
listen-peer-urls: http://localhost:2380
listen-client-urls: http://localhost:2379
max-snapshots: 5
max-wals: 5
cors:
initial-advertise-peer-urls: http://localhost:2380
advertise-client-urls: http://localhost:2379
discovery:
discovery-fallback: 'proxy'
discovery-proxy:
discovery-srv:
initial-cluster: m1=http://localhost:2380
initial-cluster-token: 'etcd-cluster'
initial-cluster-state: 'new'
strict-reconfig-check: false
enable-v2: true
enable-pprof: true
proxy: 'off'
proxy-failure-wait: 5000
proxy-refresh-interval: 30000
proxy-dial-timeout: 1000
proxy-write-timeout: 5000
proxy-read-timeout: 0
experimental-corrupt-check-time: 60000000000
client-transport-security:
  # Path to the client server TLS cert file.
  cert-file:
  key-file:
  client-cert-auth: false
  trusted-ca-file:
  auto-tls: false
peer-transport-security:
  cert-file:
  key-file:
  client-cert-auth: false
  trusted-ca-file:
  auto-tls: false
self-signed-cert-validity: 1
log-level: debug
logger: zap
log-outputs: [stderr]
force-new-cluster: false
auto-compaction-mode: periodic
auto-compaction-retention: \"1\"
";

#[test]
fn the_sample_of_a_file_in_etcds_repository_is_understood() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["etcd.conf.yml", "etcd.conf"] {
        let file = directory.path().join(name);
        std::fs::write(&file, SAMPLE).expect("written");
        let ended = config("explain", &[], &["--config-file", file.to_str().expect("text")]);
        assert!(ended.stderr.contains("enable-v2 = \"true\"") && ended.stderr.contains("told 404"), "{ended:?}");
        assert_explained(
            ended,
            &[
                ("name", "m1", name),
                ("election-timeout", "1000", name),
                ("experimental-corrupt-check-time", "60000000000ns", name),
                ("log-outputs", "stderr", name),
                ("client-cert-auth", "false", name),
                ("auto-compaction-retention", "1", name),
            ],
        );
    }
}

/// Variables, arguments, and what is said of them.
type Row<'r> = (&'r [(&'r str, &'r str)], &'r [&'r str], &'r [&'r str]);

#[test]
fn what_is_wrong_in_etcds_words_is_named_with_its_place_and_its_remedy() {
    let directory = tempfile::tempdir().expect("a directory");
    let files: [(&str, &[&str]); 11] = [
        ("nmae: m1", &["there is no setting `nmae`", "initial-cluster"]),
        ("client-transport-security:\n  cert-fiel: x", &["no `cert-fiel` in `client-transport-security`", "cert-file"]),
        ("server-transport-security:\n  cert-file: x", &["no section `server-transport-security`"]),
        ("max-txn-ops: many", &["max-txn-ops = \"many\"", "whole number"]),
        ("name: a\nname: b", &["is not YAML", "name"]),
        ("name: {a: b}", &["no section `name`"]),
        ("name: [a, [b]]", &["`name`", "list of strings"]),
        ("- a\n- b", &["holds no keys"]),
        ("name: 'a", &["is not YAML"]),
        ("name: &a [*a, *a]", &["is not YAML"]),
        ("auto-compaction-retention: 5x", &["auto-compaction-retention = \"5x\"", "30m"]),
    ];
    for (text, words) in files {
        let file = directory.path().join("etcd.yml");
        std::fs::write(&file, text).expect("written");
        let said = config("validate", &[], &["--config-file", file.to_str().expect("text")]).failed();
        for word in words.iter().chain(&["etcd.yml"]) {
            assert!(said.contains(word), "{text:?}: no {word:?} in {said}");
        }
    }
    let rows: [Row<'_>; 15] = [
        (&[], &["--config-file", "/nonexistent.yml"], &["/nonexistent.yml", "is it there"]),
        (&[], &["--config-file", directory.path().to_str().expect("text")], &["cannot read the settings in"]),
        (&[("ETCD_MAX_WALS", "many")], &[], &["max-wals = \"many\" (from variable ETCD_MAX_WALS)", "whole number"]),
        (&[("ETCD_ENABLE_PPROF", "maybe")], &[], &["ETCD_ENABLE_PPROF", "give true or false"]),
        (&[("ETCD_UNSAFE_NO_FSYNC", "true")], &[], &["ETCD_UNSAFE_NO_FSYNC", "tmpfs"]),
        (&[("ETCD_WAL_DIR", "/ssd")], &[], &["wal-dir = \"/ssd\"", "--data-dir"]),
        (&[], &["--discovery-srv", "example.com"], &["--initial-cluster"]),
        (&[], &["--enable-log-rotation"], &["copytruncate"]),
        (&[], &["--force-new-cluster=perhaps"], &["force-new-cluster = \"perhaps\"", "give true or false"]),
        (&[], &["--proxy=on"], &["proxy = \"on\" (from flag)"]),
        (&[], &["--auto-compaction-mode", "often"], &["give periodic or revision"]),
        (&[], &["--auto-compaction-mode", "revision", "--auto-compaction-retention", "5m"], &["number of revisions"]),
        (&[], &["--grpc-keepalive-interval", "often"], &["grpc-keepalive-interval", "300ms, 5m or 1h30m"]),
        (&[], &["--max-txn-ops", "0"], &["give at least 1"]),
        (&[], &["--cors", "example.com"], &["is no origin", "SCHEME://HOST"]),
    ];
    for (variables, arguments, words) in rows {
        let said = config("validate", variables, arguments).failed();
        for word in words {
            assert!(said.contains(word), "{variables:?} {arguments:?}: no {word:?} in {said}");
        }
    }
}

#[test]
fn a_unit_that_sets_one_of_heartbeat_and_election_starts() {
    let rows = [
        ("--heartbeat-interval=100", "election-timeout is 1000,"),
        ("--election-timeout=1000", "heartbeat-interval is 50,"),
        ("--election-timeout=100", "heartbeat-interval is 20,"),
        ("--heartbeat-interval=1", "election-timeout is 250,"),
    ];
    for (argument, derived) in rows {
        let ended = config("validate", &[], &[argument]);
        assert!(ended.code == Some(0) && ended.stderr.contains(derived), "{ended:?}");
    }
    let both = ["--heartbeat-interval=100", "--election-timeout=250"];
    let said = config("validate", &[], &both).failed();
    assert!(said.contains("election-timeout = \"250\"") && said.contains("three heartbeat intervals"), "{said}");
}

/// Goal: units of etcd with values that only etcd's way of reading makes sense of start here. Method: each, as a setting.
#[test]
fn what_etcd_reads_in_its_own_way_is_read_alike() {
    let rest = ["--listen-peer-urls", "http://127.0.0.1:12380", "--data-dir", "none"];
    for flags in [
        &["--quota-backend-bytes=-1"][..],
        &["--initial-cluster", "default=http://127.0.0.1:12380,"],
        &["--listen-client-urls", "http://127.0.0.1:12379,http://127.0.0.1:12379"],
        &["--listen-client-urls", "HTTP://127.0.0.1:12379"],
        &["--snapshot-count=0x2710"],
        &["--max-request-bytes=1_572_864"],
        &["--auto-compaction-retention="],
    ] {
        let ended = hustings(&[&["config", "validate"], &rest[..], flags].concat());
        assert_eq!(ended.code, Some(0), "{flags:?}: {ended:?}");
    }
}
