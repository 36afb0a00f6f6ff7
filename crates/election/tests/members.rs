//! Goal: an election bears what members of Hustings or etcd do on a bad day. Method: a store in this process, which is told to do so.

mod stories;

use hustings_election::{CampaignError, Change, Election, Leadership, Named, Office, Wish};
use hustings_testbed::{Call, FakeEtcd};
use std::time::Duration;
use stories::{campaign, candidate, in_time, shown};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinHandle;

const TTL: Duration = Duration::from_secs(4);

/// Campaigns behind the leader, however that ends; returns once the candidate waits.
async fn stand_behind(url: &str, id: &str) -> JoinHandle<Result<Leadership, CampaignError>> {
    let (office, (sender, mut changes)) = (candidate(url, TTL, id), unbounded_channel());
    let waiting = tokio::spawn(async move { office.campaign_told(Some(sender)).await });
    while in_time("it waits", changes.recv()).await.expect("it stands") != Change::Waits {}
    waiting
}

/// Goal: where members grant leases of different least lengths, a session gets leases as long as its candidates count with. Method: the
/// first one is longer than it was asked for; it ends, and members grant what they are asked from then on.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_asks_for_the_time_that_its_candidates_count_with() {
    let store = FakeEtcd::start(1).expect("a port is free");
    store.grant(6, i64::MAX);
    let office = candidate(&store.url(&[0], "billing"), TTL, "a");
    let first = campaign(&office).await;
    assert!(first.remaining() > TTL, "{:?}", first.remaining());
    store.grant(0, i64::MAX);
    store.end_leases();
    in_time("the loss", first.lost()).await;
    // It stands again before the first tenure is given up: so the session stays.
    let mut again = Box::pin(office.campaign());
    tokio::select! {
        biased;
        _ = &mut again => panic!("two lead"),
        () = std::future::ready(()) => drop(first),
    }
    let second = in_time("the next one", again).await.expect("the times fit");
    assert!(second.remaining() > TTL, "{:?}", second.remaining());
    second.resign("done").await;
}

/// Goal: a store that refuses for good what it granted before ends the campaigns that wait, with the reason. Method: leases end, and
/// those that are asked for then are granted for less.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_is_told_that_the_store_refuses_for_good() {
    let store = FakeEtcd::start(1).expect("a port is free");
    let url = store.url(&[0], "billing");
    let first = campaign(&candidate(&url, TTL, "a")).await;
    let waiting = stand_behind(&url, "b").await;
    store.grant(0, 2);
    store.end_leases();
    let refused = in_time("the refusal", waiting).await.expect("it does not panic").expect_err("nobody may lead");
    assert!(
        matches!(&refused, CampaignError::Store(why) if why.contains("2s was granted where one of 4s")),
        "{refused}"
    );
    in_time("the leader's loss", first.lost()).await;
    in_time("whoever resigns waits for nobody", first.resign("done")).await;
}

/// Goal: whoever waits hears of the queue from the member that its session is at. Method: its member is silent for a moment, so that the session
/// goes on at another one, and answers late what it was asked; then it loses its peers, and not its clients.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_watches_where_its_session_is() {
    let store = FakeEtcd::start(3).expect("a port is free");
    let first = campaign(&candidate(&store.url(&[2], "billing"), TTL, "a")).await;
    let waiting = stand_behind(&store.url(&[0, 1], "billing"), "b").await;
    store.hold(0, &[Call::KeepAlive, Call::Look]);
    in_time("its session goes on elsewhere", store.more_than(1, Call::KeepAlive, 0)).await;
    in_time("the late answers", store.let_go(0)).await;
    store.lose_leader(0);
    in_time("the resignation", first.resign("deploy")).await;
    let second = in_time("the successor", waiting).await.expect("it does not panic").expect("it leads");
    second.resign("done").await;
}

/// Goal: an observer, which has no session, leaves a member that hears of nothing any more. Method: the member that it watches at has lost its
/// peers, and not its clients; somebody is elected at another one.
#[tokio::test(flavor = "multi_thread")]
async fn an_observer_leaves_a_member_without_a_leader() {
    let store = FakeEtcd::start(2).expect("a port is free");
    let mut observer = Election::open(&store.url(&[0, 1], "billing")).expect("the URL is right").observe();
    assert_eq!(shown(&mut observer).await, None);
    store.lose_leader(0);
    let first = campaign(&candidate(&store.url(&[1], "billing"), TTL, "a")).await;
    // It may look once more before anybody is elected.
    let seen = in_time("the leader", async {
        loop {
            if let Some(leader) = shown(&mut observer).await {
                break leader;
            }
        }
    });
    assert_eq!(seen.await.id, "a");
    first.resign("done").await;
}

/// Goal: a raised generation leaves no entry of the one before. Method: an entry comes between the reads of an operator's command and its
/// write.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_comes_while_the_generation_is_raised_does_not_stay() {
    let store = FakeEtcd::start(1).expect("a port is free");
    let election = Election::open(&store.url(&[0], "billing")).expect("the URL is right");
    store.put("billing/76", "there before");
    store.hold(0, &[Call::Other]);
    let raising = tokio::spawn(async move { election.wish(&Wish::Raise).await });
    in_time("the command writes", store.more_than(0, Call::Other, 0)).await;
    store.put("billing/77", "came between");
    in_time("the write", store.let_go(0)).await;
    let raised = in_time("the answer", raising).await.expect("it does not panic").expect("it is raised");
    assert!(raised.contains("is 1 now"), "{raised}");
    assert_eq!(store.keys("billing/"), []);
}

/// Goal: nobody leads with a token of an earlier generation. Method: the generation is written as an earlier version of the command might,
/// which has not seen the leader's entry.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_entry_is_of_an_earlier_generation_leads_no_more() {
    let store = FakeEtcd::start(1).expect("a port is free");
    let office = candidate(&store.url(&[0], "billing"), TTL, "a");
    let first = campaign(&office).await;
    let waiting = stand_behind(&store.url(&[0], "billing"), "b").await;
    store.put("billing.generation", "1");
    in_time("it is told to stop", first.stop()).await;
    assert!(first.is_leader() && !waiting.is_finished(), "nobody else leads before its work has stopped");
    first.resign("the generation was raised").await;
    let second = in_time("a leader", waiting).await.expect("it does not panic").expect("it leads");
    assert_eq!(second.lead().expect("it leads").token().generation, 1);
    second.resign("done").await;
}

/// A candidate with the session that all of this process share at this store.
fn sharing(url: &str, id: &str) -> Office {
    let election = Election::open(url).expect("the URL is right").ttl(TTL);
    election.candidate(Named::new(id).stop_grace(TTL / 10).kill_margin(TTL / 20))
}

/// Goal: an entry that comes after its candidate has gone blocks nobody. Method: the session lives on, for another election; a member takes the
/// request to stand, and carries it out when the campaign was given up and a look has found nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_stand_that_is_done_late_does_nothing() {
    let store = FakeEtcd::start(1).expect("a port is free");
    let kept = campaign(&sharing(&store.url(&[0], "kept"), "a")).await;
    let contended = store.come(0, Call::Contend);
    store.hold(0, &[Call::Contend]);
    let given_up = sharing(&store.url(&[0], "billing"), "a");
    let standing = tokio::spawn(async move { given_up.campaign().await });
    in_time("it asks to stand", store.more_than(0, Call::Contend, contended)).await;
    let looked = store.done(0, Call::Look);
    standing.abort();
    in_time("it looks", store.done_more_than(0, Call::Look, looked)).await;
    in_time("the late request", store.let_go(0)).await;
    assert_eq!(store.keys("billing/"), [], "an entry that leads nobody, for as long as the session lives");
    campaign(&candidate(&store.url(&[0], "billing"), TTL, "b")).await.resign("done").await;
    assert!(kept.is_leader());
    kept.resign("done").await;
}
