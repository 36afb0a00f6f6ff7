//! Goal: one command shows who leads and how far everybody is, and says in its exit code whether anybody leads.
//! Method: three real nodes; all asked through one, then with two of them dead.

use crate::support::{HUSTINGS, PROTOCOLS, hustings, program, wait_for_line};
use hustings_api::Client;
use hustings_testbed::{Cluster, put, wait_for};
use serde_json::Value;
use std::process::{Command, Stdio};

fn status(endpoints: &str) -> (Option<i32>, Vec<Value>) {
    let ended = hustings(&["status", "-o", "json", "--endpoints", endpoints]);
    let told: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    assert_eq!(told["apiVersion"], "v1", "{told}");
    (ended.code, told["members"].as_array().expect("a row for each").clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_shows_every_node_as_it_is() {
    for protocol in PROTOCOLS {
        is_shown_as_it_is(protocol).await;
    }
}

async fn is_shown_as_it_is(protocol: &str) {
    let program = program().with(&["--protocol", protocol]);
    let mut cluster = Cluster::start(program, 3).await.expect("three nodes start");
    let client = Client::connect(&cluster.endpoints()).await.expect("a node answers");
    put(&client, "a", "b").await.expect("it is written");
    cluster.hashes().await.expect("all have applied the same");
    let leader = cluster.leader().await.expect("a leader");
    // One endpoint is enough once the members have said where clients reach them.
    let rows = wait_for("all members to be described", async || {
        let (code, rows) = status(&cluster.nodes[0].client);
        (code == Some(0) && rows.len() == 3).then_some(rows)
    })
    .await
    .expect("all are shown");
    for (row, node) in rows.iter().zip(&cluster.nodes) {
        let role = if node.name == cluster.nodes[leader].name { "leader" } else { "follower" };
        assert_eq!(row["name"], node.name, "{row}");
        assert_eq!(row["endpoint"], node.client, "{row}");
        assert_eq!(row["pid"].as_u64(), node.pid().map(u64::from), "{row}");
        assert_eq!(
            (&row["role"], &row["healthy"], &row["protocol"]),
            (&role.into(), &true.into(), &protocol.into()),
            "{row}"
        );
        assert_eq!(row["leader"], cluster.nodes[leader].name, "{row}");
        assert!(row["term"].as_u64() >= Some(1) && row["commit"].as_u64() >= row["applied"].as_u64(), "{row}");
        assert!(row["applied"].as_u64() >= Some(1), "{row}");
    }
    let table = hustings(&["status", "--endpoints", &cluster.nodes[0].client]).ok();
    assert!(table.contains("leader") && table.contains("follower") && table.contains("n3"), "{table}");

    assert!(table.lines().all(|line| line.chars().count() <= 80), "it fits a terminal: {table}");
    assert!(
        table.contains(&format!("{} leads in term", cluster.nodes[leader].name)) && table.contains("3 of 3 voters")
    );

    let endpoints = cluster.endpoints().join(",");
    let (follower, last) = ((leader + 1) % 3, (leader + 2) % 3);
    cluster.kill(follower);
    let told = wait_for("the others to miss it", async || {
        let ended = hustings(&["status", "--endpoints", &cluster.nodes[last].client]);
        (ended.code == Some(6) && ended.stdout.contains("2 of 3 voters reachable")).then_some(ended.stdout)
    })
    .await
    .expect("there is a leader, and a member is missing");
    let name = cluster.nodes[follower].name.clone();
    let warning = told.lines().find(|line| line.starts_with(&format!("{name}: "))).expect("by name, with the cause");
    assert!(warning.contains("refused") && warning.contains("its peers have not heard it for"), "{told}");
    let missing = format!("2 of 3 voters reachable; {name} silent for ");
    wait_for_line(&cluster.nodes[last].log, &missing).await;

    cluster.kill(leader);
    let rows = wait_for("the last one to know that nobody leads", async || {
        let (code, rows) = status(&endpoints);
        (code == Some(4) && rows[last]["leader"].is_null()).then_some(rows)
    })
    .await
    .expect("it steps down");
    assert_eq!(rows.iter().filter(|row| row["role"] == "unreachable").count(), 2, "{rows:?}");
    let row = &rows[last];
    assert!(row["leader"].is_null() && row["role"] != "leader", "{row}");

    // A caller that waits in vain is told for which members.
    let waited = hustings(&["put", "--timeout", "1s", "--endpoints", &endpoints, "a", "c"]);
    assert_eq!(waited.code, Some(4), "{waited:?}");
    for words in [
        format!("{} says: nobody leads, 1 of 3 voters reachable; ", cluster.nodes[last].name),
        format!("{} silent for ", cluster.nodes[leader].name),
        format!("{name} silent for "),
    ] {
        assert!(waited.stderr.contains(&words), "{words:?} is not in {waited:?}");
    }
    // The same election is lost many times, and told a few times: once it is told who is missing.
    wait_for_line(&cluster.nodes[last].log, "1 of 3 voters reachable").await;
    let log = std::fs::read_to_string(&cluster.nodes[last].log).expect("the log can be read");
    let without_quorum = log.rsplit("1 of 3 voters reachable").next().unwrap_or_default();
    assert!(without_quorum.matches("because").count() < 10, "{without_quorum}");
    let lines = format!("\"node\":\"{}\"", cluster.nodes[last].name);
    let structured = log.lines().find(|line| line.contains("because") && line.contains(&lines)).expect("a transition");
    for field in ["\"from\":", "\"to\":", "\"reason\":", "\"term\":", "\"lsn\":"] {
        assert!(structured.contains(field), "{field} is not in {structured}");
    }
    // The member that has won leads, and its line says so.
    let (log, name) = (&cluster.nodes[leader].log, &cluster.nodes[leader].name);
    let log = std::fs::read_to_string(log).expect("the log can be read");
    let won = log.lines().find(|line| line.contains("\"to\":\"Leader\"")).expect("it won an election");
    for field in [format!("\"leader\":\"{name}\""), format!("\"node\":\"{name}\""), "\"reason\":".to_owned()] {
        assert!(won.contains(&field), "{field} is not in {won}");
    }

    cluster.kill(last);
    let nobody = hustings(&["status", "-o", "json", "--endpoints", &endpoints]);
    assert_eq!(nobody.code, Some(4), "{nobody:?}");
    let error: Value = serde_json::from_str(nobody.stderr.trim()).expect("an error is an object, too");
    assert_eq!((&error["apiVersion"], &error["error"]["code"]), (&"v1".into(), &4.into()), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_the_log_and_a_refusal_name_the_remedy_of_status() {
    // Goal: an operator who meets the lost quorum in the log or at a refused command is told what to do. Method: two of three are
    // killed; `status` names the remedy, and the others are held to its words.
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    cluster.kill(1);
    cluster.kill(2);
    let last = cluster.nodes[0].client.clone();
    let error = wait_for("the last one to know that nobody leads", async || {
        let ended = hustings(&["status", "--endpoints", &last]);
        (ended.code == Some(4) && ended.stdout.contains("1 of 3 voters reachable")).then_some(ended.stderr)
    })
    .await
    .expect("it steps down");
    let (_, remedy) = error.trim().split_once("there is no leader: ").expect("status names a remedy");
    assert!(remedy.contains("start members until most are back"), "{remedy}");
    for verb in [&["put", "a", "c"][..], &["get", "a"]] {
        let refused = hustings(&[verb, &["--timeout", "1s", "--endpoints", &last]].concat());
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.stderr.contains(remedy), "{verb:?} lacks {remedy:?}: {refused:?}");
    }
    let line = wait_for("its log to say that a majority is missing", async || {
        let log = std::fs::read_to_string(&cluster.nodes[0].log).ok()?;
        log.lines().find(|line| line.contains("1 of 3 voters reachable")).map(str::to_owned)
    });
    let line = line.await.expect("it is said");
    assert!(line.contains(remedy), "the log lacks {remedy:?}: {line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_store_has_one_remedy_in_status_log_and_refusal() {
    // Goal: as above, for the alarm NOSPACE. Method: a store with room for nothing; what `status` says behind the alarm's name is
    // found in the log and in the refusal.
    let cluster = Cluster::start(program().with(&["--quota-backend-bytes", "1"]), 1).await.expect("a node starts");
    let node = &cluster.nodes[0];
    let refused = wait_for("a write that finds no room", async || {
        let ended = hustings(&["put", "a", "b", "--endpoints", &node.client]);
        (ended.code != Some(0)).then_some(ended)
    });
    let refused = refused.await.expect("the quota is a byte");
    let told = wait_for("the alarm to stand", async || {
        let ended = hustings(&["status", "--endpoints", &node.client]);
        ended.stdout.contains("NOSPACE").then_some(ended.stdout)
    });
    let told = told.await.expect("the alarm goes up");
    let remedy = told.lines().find_map(|line| Some(line.split_once("NOSPACE, writes are refused: ")?.1));
    let remedy = remedy.expect("status names a remedy");
    assert!(remedy.contains("`hustings alarm disarm`"), "{remedy}");
    assert!(refused.stderr.contains(remedy), "the refusal lacks {remedy:?}: {refused:?}");
    wait_for_line(&node.log, remedy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_stands_still_is_told_from_one_that_is_gone() {
    // Goal: "its process stands still" is said of a process that does. Method: a follower is stopped by a signal; its kernel
    // keeps its connections and answers for it.
    let cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let leader = cluster.leader().await.expect("a leader");
    let (still, other) = ((leader + 1) % 3, (leader + 2) % 3);
    cluster.nodes[still].pause().expect("it stands still");
    let missing = format!("2 of 3 voters reachable; {} silent for ", cluster.nodes[still].name);
    wait_for_line(&cluster.nodes[other].log, &missing).await;
    let ended = wait_for("a leader, and a member that does not answer", async || {
        let ended = hustings(&["status", "--timeout", "500ms", "--endpoints", &cluster.endpoints().join(",")]);
        (ended.code == Some(6)).then_some(ended)
    });
    let ended = ended.await.expect("two of three serve");
    let warning = format!("{}: no answer within 0.5 s: does its process stand still?", cluster.nodes[still].name);
    assert!(ended.stdout.contains(&warning), "{ended:?}");
    cluster.nodes[still].resume().expect("it goes on");
    wait_for_line(&cluster.nodes[other].log, "all 3 voters can be reached").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_has_read_enough_is_no_error() {
    // Goal: `hustings status --watch | head -3` ends without a word. Method: the pipe's reader is closed before the first line.
    let cluster = Cluster::start(program(), 1).await.expect("a node starts");
    for arguments in [&["status", "--watch=10ms"][..], &["status", "--watch=10ms", "-o", "json"], &["status"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(HUSTINGS);
        command.args(arguments).args(["--endpoints", &cluster.nodes[0].client]).stdout(writer).stderr(Stdio::piped());
        let ended = command.output().expect("it runs");
        assert_eq!((ended.status.code(), &*ended.stderr), (Some(0), &b""[..]), "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_shows_who_is_primary_of_which_partition() {
    // Goal: PT-1 with processes. Method: three partitions over three nodes; the primary of one dies, and another gets it under a
    // higher lease.
    let options = ["--protocol", "blazingmq", "--protocol-options", "partitions=3,placement=least-assigned"];
    let mut cluster = Cluster::start(program().with(&options), 3).await.expect("three nodes start");
    let partitions = |at: usize, cluster: &Cluster| {
        let (_, rows) = status(&cluster.endpoints().join(","));
        rows[at]["partitions"].as_array().cloned().unwrap_or_default()
    };
    let before = wait_for("every partition to have a primary", async || {
        let rows = partitions(0, &cluster);
        (rows.len() == 3).then_some(rows)
    })
    .await
    .expect("all are assigned");
    let names: std::collections::BTreeSet<String> = before.iter().map(|row| row["primary"].to_string()).collect();
    assert_eq!(names.len(), 3, "one each: {before:?}");
    let victim = (0..3).find(|at| before[1]["primary"] == cluster.nodes[*at].name).expect("a member is primary");
    let lease = before[1]["lease"].as_u64().expect("a lease is a number");
    cluster.kill(victim);
    let after = wait_for("another primary", async || {
        let rows = partitions((victim + 1) % 3, &cluster);
        rows.get(1).filter(|row| row["primary"] != before[1]["primary"]).cloned()
    })
    .await
    .expect("it is replaced");
    assert_eq!(after["lease"].as_u64(), Some(lease + 1), "{after}");
}

/// Goal: an operator who waits for a preferred member to lead again is told why it does not. Method: it stands still twice while it leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preferred_member_that_does_not_last_is_named() {
    let mut cluster = Cluster::prepare(program(), 3).expect("ports are free");
    for (position, priority) in [(0, "preferred"), (1, "normal"), (2, "normal")] {
        cluster.start_node_with(position, &["--priority", priority]).expect("it starts");
    }
    let endpoints = cluster.endpoints().join(",");
    let is_named = || {
        let shown = hustings(&["status", "--endpoints", &endpoints]);
        shown.stdout.contains("n1: it is preferred as leader no more for a while")
            || shown.stderr.contains("n1: it is preferred as leader no more for a while")
    };
    for _ in 0..2 {
        // On a machine that is busy it may have lost leadership once by itself.
        wait_for("the preferred member to lead", async || {
            (is_named() || cluster.leader().await.ok()? == 0).then_some(())
        })
        .await
        .expect("it is handed leadership");
        cluster.nodes[0].pause().expect("it stands still");
        let others = [cluster.nodes[1].client.clone(), cluster.nodes[2].client.clone()].join(",");
        wait_for("another one to lead", async || {
            hustings(&["put", "key", "value", "--timeout", "1s", "--endpoints", &others]).code.filter(|code| *code == 0)
        })
        .await
        .expect("one is elected");
        cluster.nodes[0].resume().expect("it goes on");
    }
    wait_for("it to be named", async || is_named().then_some(())).await.expect("whoever asks is told");
    // It is no ailment: the cluster serves, and `--wait` does not wait for the preference.
    hustings(&["status", "--wait", "20s", "--endpoints", &endpoints]).ok();
    wait_for_line(&cluster.nodes[0].log, "this member is preferred as leader no more for a while").await;
}

/// Goal: two clusters that both serve are not called one that is well. Method: two that know nothing of each other, asked together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clusters_that_answer_are_told_apart() {
    let one = Cluster::start(program(), 1).await.expect("a node starts");
    // Their token is the same and so are their members' names: where the members are is not.
    let other = Cluster::start(program(), 1).await.expect("a node starts");
    let endpoints = [one.endpoints(), other.endpoints()].concat().join(",");
    let ended = hustings(&["status", "-o", "json", "--endpoints", &endpoints]);
    let told: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    assert_eq!((ended.code, &told["healthy"]), (Some(6), &false.into()), "{told}");
    assert_eq!(
        told["members"].as_array().map(Vec::len),
        Some(2),
        "both are shown, though their names are equal: {told}"
    );
    let warning = told["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.starts_with("2 clusters answer, and each may take writes"), "{told}");
}
