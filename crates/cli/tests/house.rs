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

/// The crates that each crate may name. A new arrow needs an ADR and a line here.
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
    // Measuring programs count who used the machine as `hustings bench` does (ADR 24).
    ("hustings-testbed", &["hustings-api", "hustings-console", "hustings-tls"]),
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

/// The entries of a list in `deny.toml`.
fn listed(section: &str, list: &str) -> BTreeSet<String> {
    let deny: toml::Table =
        std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml").parse().expect("TOML");
    let entries = deny[section][list].as_array().expect("a list");
    entries.iter().map(|entry| entry.as_str().expect("a name").to_owned()).collect()
}

// The three checks below are those of `cargo deny check licenses bans sources`; the lists of licences and bans are read from deny.toml.

#[test]
fn licences_are_ones_that_we_accept() {
    let accepted = listed("licenses", "allow");
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

/// What cargo resolves each workspace to: the product's, and that of the foreign clients.
const LOCKS: [&str; 2] = ["Cargo.lock", "interop/Cargo.lock"];

#[test]
fn no_package_is_one_that_we_refuse_or_comes_from_elsewhere() {
    let refused = listed("bans", "deny");
    assert!(refused.contains("openssl-sys"));
    for lock in LOCKS {
        let text = std::fs::read_to_string(root().join(lock)).unwrap_or_else(|error| panic!("{lock}: {error}"));
        let resolved: toml::Table = text.parse().expect("TOML");
        for package in resolved["package"].as_array().expect("packages") {
            let name = package["name"].as_str().expect("a name");
            assert!(!refused.contains(name), "{lock} has {name}, which deny.toml refuses");
            // Packages of the workspace have no source.
            let source = package.get("source").map_or("", |source| source.as_str().expect("a text"));
            let is_known = matches!(source, "" | "registry+https://github.com/rust-lang/crates.io-index");
            assert!(is_known, "{lock} has {name} from {source}: deny.toml takes packages from crates.io only");
        }
    }
}

#[test]
fn each_dependency_has_a_version() {
    for package in metadata(&["--no-deps"])["packages"].as_array().expect("packages") {
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let is_of_the_workspace = dependency["path"].is_string();
            let requirement = text(dependency, "req");
            assert!(
                is_of_the_workspace || requirement != "*",
                "{} takes any version of {}",
                text(package, "name"),
                text(dependency, "name")
            );
        }
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

/// Where a crate's stories share a program, a file that no program names would be told by nobody.
#[test]
fn every_file_of_stories_belongs_to_a_program() {
    let mut shared = 0;
    for package in std::fs::read_dir(root().join("crates")).expect("the crates").flatten() {
        let manifest = std::fs::read_to_string(package.path().join("Cargo.toml")).expect("a crate has one");
        if !manifest.contains("\nautotests = false\n") {
            continue;
        }
        let programs: Vec<&str> = manifest
            .split("[[test]]")
            .skip(1)
            .filter_map(|test| test.split("name = \"").nth(1)?.split('"').next())
            .collect();
        let tests = package.path().join("tests");
        let read = |program: &&str| std::fs::read_to_string(tests.join(format!("{program}.rs"))).unwrap_or_default();
        let told: String = programs.iter().map(read).collect();
        for file in std::fs::read_dir(&tests).expect("it has tests").flatten().map(|entry| entry.path()) {
            let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
            let is_program = programs.contains(&name.as_str());
            let is_source =
                file.extension().is_some_and(|extension| extension == "rs") || file.join("main.rs").exists();
            let is_named = is_program || told.contains(&format!("\nmod {name};\n"));
            assert!(!is_source || is_named, "{}: no [[test]] of its crate names it", file.display());
            shared += usize::from(is_source && !is_program);
        }
    }
    assert!(shared > 40, "only {shared} files of stories share a program");
}

/// The rooms of the server, from the lowest up: a file uses its own room and those before it.
const ROOMS: [&str; 5] = ["context", "watch", "services", "http", "port"];

#[test]
fn arrows_between_the_rooms_of_the_server_point_down() {
    let server = root().join("crates/server/src");
    let mut arrows = 0;
    for (path, text) in sources() {
        let Ok(inside) = path.strip_prefix(&server) else { continue };
        if inside == Path::new("lib.rs") {
            continue;
        }
        let room = inside.iter().next().and_then(|room| room.to_str()).unwrap_or_default();
        let floor = ROOMS.iter().position(|known| *known == room);
        let floor = floor.unwrap_or_else(|| panic!("{} stands in no room of the server", inside.display()));
        // Comments may name what is above; code may not.
        for line in text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")) {
            assert!(!line.contains("super::super"), "{}: `{line}` leaves a room by the stairs", inside.display());
            for used in line.split("crate::").skip(1) {
                let used =
                    used.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or_default();
                let other = ROOMS.iter().position(|known| *known == used);
                let other = other.unwrap_or_else(|| panic!("{}: `{line}` names no room", inside.display()));
                assert!(other <= floor, "{} uses `{used}`, a room above its own: `{line}`", inside.display());
                arrows += 1;
            }
        }
    }
    assert!(arrows > 150, "only {arrows} arrows were seen");
}

/// The rooms of the core, from the lowest up; what stands in none is the vocabulary, below both.
const ROOMS_OF_THE_CORE: [&str; 2] = ["leading", "replica"];

/// Names that the replica's room lends the crate's root.
const LENT: [&str; 5] = ["Replica", "Replicated", "StateMachine", "SnapshotError", "ApplyVersion"];

#[test]
fn arrows_between_the_rooms_of_the_core_point_down() {
    let core = root().join("crates/core/src");
    let mut seen = [0; 3];
    for (path, text) in sources() {
        let Ok(inside) = path.strip_prefix(&core) else { continue };
        if inside == Path::new("lib.rs") {
            continue;
        }
        let room = inside.iter().next().and_then(|room| room.to_str()).unwrap_or_default().trim_end_matches(".rs");
        let floor = ROOMS_OF_THE_CORE.iter().position(|known| *known == room).map_or(0, |position| position + 1);
        seen[floor] += 1;
        let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
        for line in lines {
            for above in &ROOMS_OF_THE_CORE[floor..] {
                let is_used = line.contains(&format!("crate::{above}"));
                assert!(!is_used, "{} uses `{above}`, a room above its own: `{line}`", inside.display());
            }
            let mut words = line.split(|letter: char| !letter.is_alphanumeric());
            let is_lent = floor < 2 && words.any(|word| LENT.contains(&word));
            assert!(!is_lent, "{} uses what stands in `replica`: `{line}`", inside.display());
        }
    }
    assert!(seen.iter().all(|files| *files >= 10), "the core has {seen:?} files on its floors");
}

#[test]
fn a_module_stands_where_its_name_says() {
    let by_path = ["#[", "path"].concat();
    for (path, text) in sources() {
        let is_shipped =
            path.strip_prefix(root().join("crates")).is_ok_and(|inside| inside.iter().nth(1) == Some("src".as_ref()));
        assert!(!is_shipped || !text.contains(&by_path), "{} fetches a module from elsewhere", path.display());
    }
}

#[test]
fn a_protocol_changes_its_role_in_one_file() {
    for protocol in hustings_protocols::NAMES {
        let folder = root().join("crates").join(protocol).join("src");
        let (mut moves, mut announcements) = (0, 0);
        for (path, text) in sources().into_iter().filter(|(path, _)| path.starts_with(&folder)) {
            let here = text.matches("self.role_state = ").count() + text.matches("&mut self.role_state, ").count();
            assert!(here == 0 || path.ends_with("roles.rs"), "{} changes the role: that is roles.rs's", path.display());
            moves += here;
            let said = text.matches(".announce(").count();
            assert!(
                said == 0 || path.ends_with("roles.rs"),
                "{} says what it has become: that is roles.rs's",
                path.display()
            );
            announcements += said;
        }
        assert!(moves >= 3, "{protocol} changes its role {moves} times");
        assert!(announcements >= 5, "{protocol} announces its role at {announcements} places");
    }
}

/// The functions that a trail names, each with the file that stands behind it.
fn steps(trail: &str) -> Vec<(String, String)> {
    let (mut steps, mut waiting) = (Vec::new(), Vec::new());
    for word in trail.split('`').skip(1).step_by(2) {
        let function = word.rsplit("::").next().unwrap_or(word);
        if word.starts_with("crates/") && word.ends_with(".rs") {
            steps.extend(waiting.drain(..).map(|function| (function, word.to_owned())));
        } else if function.len() > 2 && function.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_') {
            waiting.push(word.to_owned());
        }
    }
    assert!(waiting.is_empty(), "no file stands behind {waiting:?}");
    steps
}

#[test]
fn the_trails_begin_in_the_server_and_name_the_file_of_each_function() {
    let trails = std::fs::read_dir(root().join("docs")).expect("the pages").flatten().map(|entry| entry.path());
    let is_trail = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("life-of-"));
    let mut seen = 0;
    for trail in trails.filter(is_trail) {
        let text = std::fs::read_to_string(&trail).expect("the trail");
        // The text before the first step says how to read it.
        let (_, text) = text.split_once("\n1. ").expect("a trail has steps");
        let (steps, name) = (steps(text), trail.display());
        assert!(steps.len() >= 20, "{name} names hardly any function");
        assert!(steps[0].1.starts_with("crates/server/"), "{name} begins in {}", steps[0].1);
        for (function, file) in &steps {
            let source = std::fs::read_to_string(root().join(file)).unwrap_or_else(|_| panic!("{name} names {file}"));
            let (owner, own) = function.rsplit_once("::").unwrap_or(("", function));
            let is_there = source.contains(&format!("fn {own}(")) || source.contains(&format!("fn {own}<"));
            assert!(is_there, "{name} names `{function}`, which is not in {file}");
            let is_owner_there = source.contains(owner) || file.ends_with(&format!("/{owner}.rs"));
            assert!(is_owner_there, "{name} names `{function}`, and {file} knows no {owner}");
        }
        seen += 1;
    }
    assert_eq!(seen, 2, "the trails of a write and of an election");
}

/// The files in which a path of modules may stand: `core::replica::gate` is `crates/core/src/replica/gate.rs`.
fn places(path: &str) -> [PathBuf; 2] {
    let (package, modules) = path.split_once("::").unwrap_or((path, "lib"));
    let module = root().join("crates").join(package).join("src").join(modules.replace("::", "/"));
    [module.with_extension("rs"), module.join("mod.rs")]
}

/// Goal: a reader who follows a path of the map arrives. Method: each path of modules and each file that the pages at the root name is
/// there.
#[test]
fn the_pages_at_the_root_name_modules_and_files_that_exist() {
    let is_path = |word: &str| word.chars().all(|letter| letter.is_ascii_lowercase() || "_:".contains(letter));
    let mut seen = 0;
    for page in ["ARCHITECTURE.md", "GLOSSARY.md", "CONTRIBUTING.md", "SECURITY.md"] {
        let text = std::fs::read_to_string(root().join(page)).expect("the page");
        for word in text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2)) {
            let is_there = if !word.contains(['*', ' ']) && (word.starts_with("crates/") || word.starts_with("docs/")) {
                root().join(word).exists()
            } else if word.contains("::") && is_path(word) {
                places(word).iter().any(|place| place.exists())
            } else {
                continue;
            };
            assert!(is_there, "{page} names `{word}`, and it is not there");
            seen += 1;
        }
    }
    assert!(seen >= 4, "only {seen} names were looked for");
    let known = ["core::replica::gate", "server::services", "core"];
    assert!(known.iter().all(|path| places(path).iter().any(|place| place.exists())));
    assert!(places("core::replica::sessions").iter().all(|place| !place.exists()));
}

/// The tables of files in the pages of protocols.
#[test]
fn the_pages_of_the_protocols_name_files_that_exist() {
    for protocol in hustings_protocols::NAMES {
        let page = std::fs::read_to_string(root().join(format!("docs/protocols/{protocol}.md"))).expect("the page");
        let rows = page.lines().filter(|line| line.starts_with('|'));
        let names = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).filter(|name| name.ends_with(".rs"));
        for name in names.filter(|name| !name.contains('/')) {
            let path = root().join("crates").join(protocol).join("src").join(name);
            assert!(path.exists(), "docs/protocols/{protocol}.md names {name}, and there is no {}", path.display());
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

/// The comments of documentation in a source, each with its first line's number.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (place, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let words = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        match (words, found.last_mut().filter(|_| is_open)) {
            (Some(words), Some((_, said))) => said.push_str(words),
            (Some(words), None) => found.push((place + 1, words.trim_start().to_owned())),
            (None, _) => {}
        }
        is_open = words.is_some();
    }
    found
}

#[test]
fn what_is_documented_is_told_in_more_than_three_words_and_does_not_ask() {
    let questions = ["Who ", "Whose ", "Which ", "Whoever "];
    let mut seen = 0;
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        for (line, said) in comments(&text) {
            seen += 1;
            let is_short = !is_test && (1..=3).contains(&said.split_whitespace().count());
            if is_short || questions.iter().any(|question| said.starts_with(question)) {
                wrong.push(format!("{}:{line}: {said}", path.display()));
            }
        }
    }
    assert!(seen > 10_000, "only {seen} comments were seen");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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

/// Goal: a machine that was suspended, or whose clock was set, does not believe longer that it leads. Method: what computes a belief
/// has one clock, the boot clock of `clock.rs`; only drivers of stores know others, for how long a connection is silent.
#[test]
fn an_election_tells_the_time_by_one_clock() {
    let of_elections = root().join("crates/election/src");
    let computes_belief = |path: &Path| {
        path.starts_with(&of_elections) && !path.starts_with(of_elections.join("stores")) && !path.ends_with("clock.rs")
    };
    let files: Vec<_> = sources().into_iter().filter(|(path, _)| computes_belief(path)).collect();
    assert!(files.len() >= 15, "only {} files were seen", files.len());
    for (path, text) in files {
        for clock in ["Instant", "SystemTime"] {
            assert!(
                !text.contains(clock),
                "{} tells the time by {clock}, which stands still or is set",
                path.display()
            );
        }
    }
}

#[test]
fn no_error_says_its_cause_twice() {
    // An error's chain is printed with colons between: an error that has a cause, and says it too, says it twice. thiserror takes a field
    // that is called `source`, or converted with `#[from]`, for the cause.
    let says_a_cause = |message: &str| message.contains("{source}") || message.contains("{0}");
    let mut twice = Vec::new();
    for (path, text) in sources() {
        for (place, _) in text.match_indices("#[error(") {
            let variant = &text[place..];
            let Some((message, rest)) = variant.split_once(")]\n") else { continue };
            let declared = rest.lines().next().unwrap_or_default();
            let has_cause = message.contains("{source}") || declared.contains("(#[from]");
            if has_cause && says_a_cause(message) {
                twice.push(format!("{}: {}", path.display(), message.trim()));
            }
        }
    }
    assert!(twice.is_empty(), "{twice:#?}");
}
