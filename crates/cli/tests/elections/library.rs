//! Goal: what holds of an election over every store holds over ours and over etcd. Method: the stories that all stores tell, at a real
//! cluster of ours and at the real etcd; and ports where no store is.

#[path = "../../../election/tests/stories/mod.rs"]
mod stories;

use crate::support::{HUSTINGS, Running, etcd, program};
use crate::url_of;
use hustings_election::{Election, OpenError};
use hustings_testbed::Cluster;
use rustix::process::Signal;
use std::process::Command;
use std::time::{Duration, Instant};
use stories::strangers::{Stranger, is_waited_for, told_of_strangers};
use stories::{campaign_behind, candidate, in_time, token_of};

const TTL: Duration = Duration::from_secs(3);
/// The lease's whole time, and a busy machine.
const AT_MOST: Duration = Duration::from_millis(4_500);

async fn all_are_told(scheme: &str, cluster: &Cluster) {
    let url = |name: &str| url_of(scheme, cluster, name);
    tokio::join!(
        async { stories::one_leads_after_the_other(&url("one"), TTL).await },
        async { stories::everybody_has_its_turn(&url("turns"), TTL, 8).await },
        async { stories::an_operator_is_heard(&url("team/operator"), TTL).await },
        async { stories::a_will_releases_its_tenure_and_no_other(&url("will"), TTL).await },
    );
    tokio::join!(
        async { stories::who_is_preferred_is_handed_over_to(&url("preferred"), TTL).await },
        async { stories::who_is_named_is_handed_over_to(&url("named"), TTL).await },
        async { stories::progress::dead_work_loses_its_leadership(&url("hangs"), TTL, AT_MOST).await },
        async { stories::progress::work_that_ignores_an_operator_is_succeeded(&url("deaf"), TTL, AT_MOST).await },
    );
    let stop = || cluster.nodes.iter().for_each(|node| node.pause().expect("it stops"));
    let go_on = || cluster.nodes.iter().for_each(|node| node.resume().expect("it goes on"));
    stories::a_silent_store_ends_belief(&url("silent"), TTL, stop, go_on).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stories_of_every_store_at_a_cluster_of_ours() {
    all_are_told("hustings", &Cluster::start(program(), 3).await.expect("it starts")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stories_of_every_store_at_etcd() {
    all_are_told("etcd", &Cluster::start(etcd(), 3).await.expect("it starts")).await;
}

/// Goal: a process that stood still does not believe when it goes on. Method: one that holds an election is stopped until another leads.
async fn a_stopped_holder_is_succeeded_and_sees_it(scheme: &str, cluster: &Cluster) {
    let url = url_of(scheme, cluster, "stopped");
    let store = url.trim_end_matches("/stopped");
    let mut elect = Command::new(HUSTINGS);
    elect.args(["elect", "stopped", "--store", store, "--id", "holder", "--ttl", "3s"]);
    let mut holder = Running::start(&mut elect);
    holder.line_with("leads");
    let waiting = campaign_behind(candidate(&url, TTL, "successor")).await;
    let stopped = Instant::now();
    holder.signal(Signal::STOP);
    let second = in_time("the successor", waiting).await.expect("it does not panic");
    let behind = stopped.elapsed().as_secs_f64() - TTL.as_secs_f64();
    let token = token_of(&second);
    let woken = Instant::now();
    holder.signal(Signal::CONT);
    assert_eq!(holder.end(), Some(75), "it sees on waking that it leads no more");
    println!(
        "{scheme}: the successor leads {:+.0} ms from T = {TTL:?} after SIGSTOP of the holder, which ends {:.1?} after SIGCONT",
        behind * 1_000.0,
        woken.elapsed()
    );
    assert_eq!(token_of(&second), token, "and disturbs nobody");
    second.resign("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_holder_is_succeeded_at_both() {
    for (scheme, program) in [("hustings", program()), ("etcd", etcd())] {
        let cluster = Cluster::start(program, 1).await.expect("it starts");
        a_stopped_holder_is_succeeded_and_sees_it(scheme, &cluster).await;
    }
}

/// Goal: who names the wrong port is told what is there. Method: nobody, somebody silent, somebody who speaks another language.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_store_is_told() {
    for scheme in ["hustings", "etcd"] {
        let url = |port: u16| format!("{scheme}://127.0.0.1:{port}/x");
        for says in [&b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..], b"SSH-2.0-OpenSSH_9.2\r\n"] {
            told_of_strangers(url, says).await;
        }
        for stranger in [Stranger::nobody(), Stranger::silent(), Stranger::answers(&b"SSH-2.0-OpenSSH_9.2\r\n"[..])] {
            let port = stranger.port.to_string();
            is_waited_for(&url(stranger.port), TTL, &["no session", &port]).await;
        }
    }
}

#[test]
fn a_store_without_an_election_is_told_what_is_missing() {
    let stores = [
        "hustings://127.0.0.1:2379",
        "etcd://127.0.0.1:2379/",
        "zookeeper://h:2181",
        "consul://h:8500",
        "postgres://u@h/d",
    ];
    for store in stores {
        match Election::open(store) {
            Err(error @ OpenError::NoElection(_)) => {
                let told = error.to_string();
                assert!(told.contains("names a store and no election: add its name, as in"), "{store}: {told}");
            }
            other => panic!("{store}: {other:?}"),
        }
    }
}

/// Goal: a user of a version with a known fault hears of it before it matters. Method: etcd 3.5.1.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_with_a_known_fault_is_told_at_the_start() {
    stories::log::keep();
    let cluster = Cluster::start(etcd(), 1).await.expect("it starts");
    let leadership = stories::campaign(&candidate(&url_of("etcd", &cluster, "warned"), TTL, "a")).await;
    let line = stories::log::says(&["etcd#17465", "etcd#20616"]).await;
    assert!(line.contains("WARN") && line.contains("upgrade it to 3.5.23 or later"), "{line}");
    leadership.resign("done").await;
}
