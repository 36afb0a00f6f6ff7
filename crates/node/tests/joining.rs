//! Goal: a member that was added with a join token is begun by the holder of that token, once, and by nobody else. Method: newcomers
//! with no token, a wrong one and the right one ask a cluster that runs who they are; then the right one again, as the member serves
//! and after it has lost its directory.

use crate::support::{Troupe, free_addresses, in_time, propose, run, until, url_of};
use hustings_core::{ApplyVersion, Change, Member, MembershipChange, NodeId};
use hustings_node::{NodeConfig, discover};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

const TOKEN: u64 = 0x0dd5_7a61_2c3b_9e04;

/// A newcomer at this address, with this join token.
fn newcomer(address: SocketAddr, token: Option<u64>) -> Member {
    Member { name: "db-d".into(), peer_urls: vec![url_of(address)], storage_incarnation: token, ..Member::default() }
}

/// The reason that the cluster gives for not telling this newcomer who it is.
async fn refusal(urls: &[String], newcomer: &Member) -> String {
    let asked = in_time(discover(urls, newcomer, "raft", ApplyVersion::FIRST, None, None)).await;
    asked.expect_err("it is refused").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_token_is_asked_for_and_counts_once() {
    let troupe = Troupe::started(3);
    let leader = troupe.leader().await;
    propose(troupe.handle(leader), "x").await;
    let address = free_addresses(1)[0];
    let urls = [url_of(troupe.addresses[&leader])];
    let id = NodeId(troupe.handle(leader).status().membership.next_id);
    let seat = Member { name: String::new(), wants_vote: true, ..newcomer(address, Some(TOKEN)) };
    let change = MembershipChange::of([Change::AddLearner(id), Change::Describe(id, seat)]);
    in_time(troupe.handle(leader).change_membership(change)).await.expect("it is added");

    // One that was added without a token, as etcdctl does it, is told who the members are, and nobody's token.
    let other = free_addresses(1)[0];
    let open = NodeId(id.0 + 1);
    let seat = Member { name: String::new(), ..newcomer(other, None) };
    let change = MembershipChange::of([Change::AddLearner(open), Change::Describe(open, seat)]);
    in_time(troupe.handle(leader).change_membership(change)).await.expect("it is added");
    let welcome = in_time(discover(&urls, &newcomer(other, None), "raft", ApplyVersion::FIRST, None, None)).await;
    let welcome = welcome.expect("whoever has its URL may begin as it");
    assert_eq!(
        (welcome.you, welcome.membership.members[&id].storage_incarnation),
        (open, None),
        "the other's token is not told"
    );

    assert!(refusal(&urls, &newcomer(address, None)).await.contains("give the --join-token"));
    let wrong = refusal(&urls, &newcomer(address, Some(TOKEN + 1))).await;
    assert!(wrong.contains("this is not the join token") && !wrong.contains("dd57a6"), "it is not told: {wrong}");

    let itself = newcomer(address, Some(TOKEN));
    let welcome =
        in_time(discover(&urls, &itself, "raft", ApplyVersion::FIRST, None, None)).await.expect("it holds it");
    let config = |data_dir| {
        let (founding, hints) = (welcome.founding.clone(), welcome.membership.clone());
        let config = NodeConfig::joining(welcome.cluster_id, id, itself.clone(), founding, hints, data_dir);
        troupe.equipped(config, address)
    };
    let joiner = run(config(troupe.data_dir(id))).expect("it starts");
    until(&joiner.handle, "it is a voter", |status| status.membership.voters.contains(&id)).await;
    assert_eq!(propose(&joiner.handle, "mine").await, 1);
    until(troupe.handle(leader), "its name is known", |status| status.membership.name_of(id) == "db-d").await;

    let again = refusal(&urls, &itself).await;
    assert!(again.contains("db-d has a data directory already"), "{again}");

    // A member that forges the way around that question, with a directory of the same storage incarnation, has less than was acknowledged.
    joiner.handle.stop().await;
    let (said, hears) = (Arc::new(Mutex::new(String::new())), Arc::new(tokio::sync::Notify::new()));
    let (words, heard) = (said.clone(), hears.clone());
    let forged = NodeConfig {
        on_fatal: Arc::new(move |why| {
            *words.lock().expect("nobody panics holding it") = why.to_owned();
            heard.notify_one();
        }),
        ..config(troupe.directory.path().join("forged"))
    };
    let _forged = run(forged).expect("it starts, and is found out");
    in_time(hears.notified()).await;
    let said = said.lock().expect("nobody panics holding it").clone();
    assert!(said.contains("older than what db-d has acknowledged") && said.contains("remove the member"), "{said}");
}

/// Goal: a member that was away follows a leader that it has not heard of, as those do that it knows. Method: without a secret, which would
/// prove the leader; the members that it asks know it by its directory.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_away_follows_a_leader_that_joined_meanwhile() {
    Troupe::started(3).follow_one_that_joined_meanwhile().await;
}
