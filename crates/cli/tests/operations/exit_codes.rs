//! Goal: scripts can rely on the table of exit codes.
//! Method: each row of `docs/exit-codes.md` is driven once by a command that deserves it; a row without one fails.

use crate::support::{Ended, HUSTINGS, hustings, program, run};
use hustings_testbed::{Cluster, wait_for};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The rows of the page: code and commands.
fn rows() -> Vec<(i32, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exit-codes.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let row = |line: &str| {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        Some((cells.next()?.parse().ok()?, cells.next()?.to_string()))
    };
    page.lines().filter_map(row).collect()
}

/// Drives a row; the member's endpoint is there to be asked.
fn driven(code: i32, commands: &str, member: &str, directory: &Path) -> Ended {
    let store = format!("hustings://{}", crate::support::address(member));
    let lock = |command: &str| hustings(&["lock", "job", "--store", &store, "--", command]);
    let socket = format!("unix:{}/absent/socket", directory.display());
    match (code, commands) {
        (0, _) => hustings(&["put", "key", "value", "--endpoints", member]),
        (1, _) => hustings(&["config", "validate", "--protocol", "nothing"]),
        (2, "all") => hustings(&["frobnicate"]),
        (2, "workload") => hustings(&["workload", "--virtual", "--time-limit", "0"]),
        (3, "simulate, check, play, compare, convict") => hustings(&["simulate", "--seeds", "0"]),
        (3, _) => hustings(&["inspect", directory.to_str().expect("text")]),
        (4, _) => hustings(&["get", "key", "--endpoints", "127.0.0.1:1"]),
        // Users count by now, and this one has no role.
        (5, _) => hustings(&["get", "key", "--user", "nobody:secret", "--endpoints", member]),
        (6, _) => hustings(&["status", "--endpoints", &format!("{member},127.0.0.1:1")]),
        (125, _) => hustings(&["lock", "job", "--store", &store, "--listen", &socket, "--", "true"]),
        (126, _) => lock("/etc/passwd"),
        (127, _) => lock("/absent/command"),
        (130, _) => an_interrupted_search(directory),
        (254, _) => hustings(&["workload", "--concurrency=5"]),
        (255, _) => hustings(&["workload", "--bin=/bin/false", "--concurrency=6"]),
        _ => panic!("nothing drives the row {code} of {commands:?}: add it here"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_exit_code_of_the_table_is_one_that_a_command_ends_with() {
    let mut rows = rows();
    assert!(rows.len() >= 15, "the page has the table");
    let directory = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let member = cluster.nodes[0].client.clone();
    // Last comes what asks without a name once users count.
    rows.sort_by_key(|(code, _)| *code == 5);
    for (code, commands) in rows {
        if code == 5 {
            for words in ["user add nobody:secret", "user add root:secret", "user grant-role root root", "auth enable"]
            {
                run(Command::new(HUSTINGS).args(words.split(' ')).args(["--endpoints", &member])).ok();
            }
        }
        let ended = match code {
            75 => a_lost_leadership(&member).await,
            _ => driven(code, &commands, &member, directory.path()),
        };
        assert_eq!(ended.code, Some(code), "{commands}: {ended:?}");
    }
}

/// A search that is told to end once it has begun.
fn an_interrupted_search(directory: &Path) -> Ended {
    let corpus = directory.join("corpus");
    let mut search = Command::new(HUSTINGS);
    search.args(["simulate", "--guided", "--seeds", "1000000", "--corpus"]).arg(&corpus);
    let search = search.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let begun = Instant::now();
    while !corpus.is_dir() && begun.elapsed() < Duration::from_secs(30) {
        std::thread::yield_now();
    }
    crate::support::signal_pid(search.id(), rustix::process::Signal::INT);
    let output = search.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    Ended { code: output.status.code(), stdout, stderr, took: begun.elapsed() }
}

/// A sidecar whose entry somebody removes.
async fn a_lost_leadership(member: &str) -> Ended {
    let store = format!("hustings://{}", crate::support::address(member));
    let mut sidecar = Command::new(HUSTINGS);
    sidecar.args(["run", "--election", "seat", "--store", &store, "--on-loss", "exit", "--", "sleep", "60"]);
    let sidecar = std::thread::spawn(move || run(&mut sidecar));
    let leads = async || hustings(&["observe", "seat", "--once", "--store", &store]).code.filter(|code| *code == 0);
    wait_for("the sidecar leads", leads).await.expect("it is elected");
    hustings(&["del", "--prefix", "seat", "--endpoints", member]).ok();
    sidecar.join().expect("it ended in time")
}

#[test]
fn a_page_for_people_ends_with_the_codes() {
    let said = hustings(&["--help"]).ok();
    for (code, _) in rows() {
        assert!(said.lines().any(|line| line.trim_start().starts_with(&format!("{code}  "))), "--help lacks {code}");
    }
}
