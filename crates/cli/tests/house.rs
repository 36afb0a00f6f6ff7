//! Goal: the house stays as ARCHITECTURE.md says. Method: read `cargo metadata`, the trails and the sources.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is two floors up")
}

fn metadata(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Who may name whom. A new arrow needs an ADR and a line here.
const ARROWS: [(&str, &[&str]); 26] = [
    ("hustings-core", &[]),
    ("hustings-raft", &["hustings-core"]),
    ("hustings-gmt2000", &["hustings-core"]),
    ("hustings-blazingmq", &["hustings-core"]),
    ("hustings-zab", &["hustings-core"]),
    ("hustings-paxos", &["hustings-core"]),
    ("hustings-lease", &[]),
    ("hustings-tls", &[]),
    ("hustings-bolt", &[]),
    ("hustings-election", &["hustings-api", "hustings-lease", "hustings-tls"]),
    ("hustings-kv", &["hustings-core"]),
    ("hustings-wal", &["hustings-core"]),
    ("hustings-api", &["hustings-tls"]),
    ("hustings-properties", &["hustings-core"]),
    ("hustings-world", &["hustings-core", "hustings-kv", "hustings-lease", "hustings-properties", "hustings-wal"]),
    ("hustings-recorder", &["hustings-core"]),
    ("hustings-node", &["hustings-core", "hustings-recorder", "hustings-tls", "hustings-wal"]),
    ("hustings-maelstrom", &["hustings-core", "hustings-properties", "hustings-wal"]),
    (
        "hustings-server",
        &[
            "hustings-api",
            "hustings-bolt",
            "hustings-core",
            "hustings-kv",
            "hustings-lease",
            "hustings-node",
            "hustings-recorder",
            "hustings-tls",
        ],
    ),
    ("hustings-console", &[]),
    (
        "hustings-protocols",
        &[
            "hustings-blazingmq",
            "hustings-core",
            "hustings-gmt2000",
            "hustings-kv",
            "hustings-node",
            "hustings-paxos",
            "hustings-raft",
            "hustings-recorder",
            "hustings-zab",
        ],
    ),
    (
        "hustings-prove",
        &[
            "hustings-console",
            "hustings-core",
            "hustings-kv",
            "hustings-lease",
            "hustings-maelstrom",
            "hustings-properties",
            "hustings-protocols",
            "hustings-world",
        ],
    ),
    (
        "hustings",
        &[
            "hustings-api",
            "hustings-console",
            "hustings-core",
            "hustings-election",
            "hustings-kv",
            "hustings-lease",
            "hustings-node",
            "hustings-protocols",
            "hustings-prove",
            "hustings-recorder",
            "hustings-server",
            "hustings-tls",
            "hustings-wal",
        ],
    ),
    ("hustings-stage", &["hustings-core"]),
    ("hustings-testbed", &["hustings-api", "hustings-tls"]),
    ("hustings-torture", &["hustings-api", "hustings-properties", "hustings-testbed", "hustings-world"]),
];

#[test]
fn arrows_between_crates_point_down() {
    let metadata = metadata(&["--no-deps"]);
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ARROWS.iter().map(|(name, down)| (*name, down.iter().copied().collect())).collect();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = text(package, "name");
        if name == "xtask" {
            continue;
        }
        let ours = package["dependencies"].as_array().expect("dependencies").iter();
        let found: BTreeSet<&str> = ours
            // A development dependency is no arrow: tests may look at anything.
            .filter(|dependency| dependency["kind"].is_null())
            .map(|dependency| text(dependency, "name"))
            .filter(|dependency| dependency.starts_with("hustings"))
            .collect();
        let allowed = allowed.get(name).unwrap_or_else(|| panic!("{name} has no line in ARROWS"));
        assert!(found.is_subset(allowed), "{name} names {:?}", found.difference(allowed).collect::<Vec<_>>());
    }
}

#[test]
fn below_the_hosts_nothing_is_asynchronous_and_nothing_is_random() {
    let metadata = metadata(&["--no-deps"]);
    for package in metadata["packages"].as_array().expect("packages") {
        let name = text(package, "name");
        if ![
            "hustings-core",
            "hustings-raft",
            "hustings-gmt2000",
            "hustings-blazingmq",
            "hustings-zab",
            "hustings-paxos",
            "hustings-lease",
            "hustings-bolt",
            "hustings-kv",
            "hustings-properties",
            "hustings-stage",
            "hustings-world",
        ]
        .contains(&name)
        {
            continue;
        }
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let is_normal = dependency["kind"].is_null();
            let forbidden = ["tokio", "rand", "tracing", "rustix", "socket2", "tonic", "hyper", "futures"];
            let dependency = text(dependency, "name");
            assert!(!(is_normal && forbidden.contains(&dependency)), "{name} depends on {dependency}");
        }
    }
}

#[test]
fn licences_are_ones_that_we_accept() {
    let accepted: BTreeSet<String> = std::fs::read_to_string(root().join("deny.toml"))
        .expect("deny.toml")
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.split('"').next().map(str::to_owned))
        .collect();
    assert!(accepted.contains("MIT"));
    for package in metadata(&[])["packages"].as_array().expect("packages") {
        let licence = text(package, "license").replace('/', " OR ").replace("2.0+", "2.0");
        // Enough of the grammar: one alternative all of whose parts are accepted.
        let is_accepted = licence.split(" OR ").any(|alternative| {
            alternative
                .trim_matches(['(', ')', ' '])
                .split(" AND ")
                .all(|part| accepted.contains(part.trim_matches(['(', ')', ' '])))
        });
        assert!(is_accepted, "{} has the licence {licence:?}", text(package, "name"));
    }
}

/// All Rust sources of ours, generated code apart.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut waiting = vec![root().join("crates"), root().join("xtask")];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory of ours").flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("generated") && !path.ends_with("target") {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source of ours");
                found.push((path, text));
            }
        }
    }
    found
}

#[test]
fn the_trails_name_functions_that_exist() {
    let sources: String = sources().into_iter().map(|(_, text)| text).collect();
    for trail in ["docs/life-of-an-election.md", "docs/life-of-a-write.md"] {
        let text = std::fs::read_to_string(root().join(trail)).expect("the trail");
        let mut checked = 0;
        for name in text.split('`').skip(1).step_by(2) {
            let function = name.rsplit("::").next().unwrap_or(name);
            let is_function = function.chars().all(|c| c.is_ascii_lowercase() || c == '_') && function.len() > 2;
            if !is_function || ["kv", "etcdctl", "core", "raft", "node"].contains(&function) {
                continue;
            }
            let is_there = [" fn ", " async fn "].iter().any(|form| {
                [format!("{form}{function}("), format!("{form}{function}<")]
                    .iter()
                    .any(|start| sources.contains(start.as_str()))
            });
            assert!(is_there, "{trail} names `{name}`, and there is no such function");
            checked += 1;
        }
        assert!(checked >= 10, "{trail} names hardly any function");
        for path in text.split('`').filter(|name| name.ends_with(".rs") && name.contains('/')) {
            assert!(root().join(path).exists(), "{trail} names {path}");
        }
    }
}

#[test]
fn files_are_a_sitting_long() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= 620, "{} has {lines} lines: cut it along the phases of its text", path.display());
    }
}

#[test]
fn nothing_is_left_undone_or_asleep() {
    let (undone, ignored) = (["todo", "!("].concat(), ["#[", "ignore"].concat());
    let asleep = ["thread::", "sleep("].concat();
    for (path, text) in sources() {
        assert!(!text.contains(&undone) && !text.contains(&ignored), "{} has something undone", path.display());
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        assert!(!is_test || !text.contains(&asleep), "{} sleeps", path.display());
    }
}
