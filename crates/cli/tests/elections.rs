//! Goal: an application elects one leader through a real store, knows when it stops being one, and is succeeded at once.
//! Method: the library's candidates in this process and in others, at a real cluster of ours and at the real etcd 3.5.

mod support;

use hustings_election::{Election, Leadership, Named, Office};
use hustings_testbed::{Cluster, Program};
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(6);

/// A name for an election's store at a cluster.
fn url_of(scheme: &str, cluster: &Cluster, name: &str) -> String {
    let hosts: Vec<String> =
        cluster.endpoints().iter().map(|url| url.trim_start_matches("http://").to_owned()).collect();
    format!("{scheme}://{}/{name}", hosts.join(","))
}

/// A candidate as another process would have it: with a session of its own.
fn candidate(url: &str, id: &str) -> Office {
    let election = Election::open(url).expect("the URL is right").ttl(TTL).own_session();
    election.candidate(Named::new(id).stop_grace(Duration::from_secs(1)))
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(20), future).await;
    waited.unwrap_or_else(|_| panic!("{what}: not within 20 s"))
}

async fn campaign(office: &Office) -> Leadership {
    in_time("a campaign", office.campaign()).await.expect("the times fit")
}

/// One leads, the other waits; the first resigns, and the second leads with a higher token.
async fn one_leads_after_the_other(scheme: &str, cluster: &Cluster) {
    let url = url_of(scheme, cluster, "billing");
    let (a, b) = (candidate(&url, "a"), candidate(&url, "b"));
    let first = campaign(&a).await;
    assert!(first.is_leader());
    let token = first.lead().expect("it leads").token();
    let waiting = tokio::spawn(async move { campaign(&b).await });
    // The second one is in the queue when it stands behind the first.
    tokio::time::timeout(Duration::from_millis(500), first.lost()).await.expect_err("nobody disturbs the first");
    assert!(!waiting.is_finished(), "two lead");
    let resigned = Instant::now();
    first.resign("deploy").await;
    let second = in_time("the successor", waiting).await.expect("it does not panic");
    println!("{scheme}: the successor leads {:?} after the resignation began", resigned.elapsed());
    assert!(second.lead().expect("it leads").token() > token, "tokens grow");
    second.resign("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_after_the_other_at_a_cluster_of_ours() {
    let cluster = Cluster::start(Program::hustings(support::HUSTINGS), 3).await.expect("it starts");
    one_leads_after_the_other("hustings", &cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_after_the_other_at_etcd() {
    let cluster = Cluster::start(support::etcd(), 3).await.expect("it starts");
    one_leads_after_the_other("etcd", &cluster).await;
}
