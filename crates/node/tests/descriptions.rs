//! Goal: names and client addresses of members come into the membership soon after an election, and changes of membership that are
//! asked for at once get along. Method: founders of whom the founding membership knows less than they say of themselves.

use crate::support::{Counter, Troupe, in_time, propose, run, until};
use hustings_core::{Change, Member, MembershipChange, NodeId};
use hustings_node::Handle;
use std::time::{Duration, Instant};

/// The loop looks for members that are not described so often by itself.
const SWEEP: Duration = Duration::from_millis(500);

fn client_url(id: NodeId) -> String {
    format!("http://10.0.0.{id}:2379")
}

/// Members of whom each says where clients reach it; one of them may have another name.
fn started(size: u64, renamed: Option<(NodeId, String)>) -> Troupe {
    let mut troupe = Troupe::of(size);
    for id in troupe.founding.voters.clone() {
        let mut config = troupe.config_of(id);
        config.member.client_urls = vec![client_url(id)];
        if let Some((_, name)) = renamed.as_ref().filter(|(renamed, _)| *renamed == id) {
            config.member.name = name.clone();
        }
        troupe.running.insert(id, run(config).expect("a founder starts").handle);
    }
    troupe
}

/// Waits until so many members are described.
async fn described(handle: &Handle<Counter>, count: usize) -> Vec<NodeId> {
    let known = |member: &Member| !member.client_urls.is_empty();
    let status = until(handle, "so many are described", |status| {
        status.membership.members.values().filter(|member| known(member)).count() >= count
    });
    let members = status.await.membership.members.clone();
    members.into_iter().filter(|(_, member)| known(member)).map(|(id, _)| id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_describes_all_members_without_waiting_for_its_sweeps() {
    let troupe = started(5, None);
    let leader = troupe.handle(troupe.leader().await);
    described(leader, 1).await;
    let first = Instant::now();
    described(leader, 5).await;
    let took = first.elapsed();
    assert!(took < SWEEP * 3, "one a sweep would take four of them: {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_description_is_refused_holds_up_nobody() {
    // Names have 512 bytes at most; the member with the lowest id has its turn first.
    let troupe = started(5, Some((NodeId(1), "m".repeat(600))));
    let leader = troupe.handle(troupe.leader().await);
    assert_eq!(described(leader, 4).await, [2, 3, 4, 5].map(NodeId));
    // And nobody else who changes something.
    let change = MembershipChange::of([Change::Describe(NodeId(1), Member { name: "m1".into(), ..Member::default() })]);
    in_time(leader.change_membership(change)).await.expect("it is changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_are_asked_for_at_once_are_made_one_after_the_other() {
    let troupe = started(3, None);
    // A leader changes nothing before its first own entry is committed.
    propose(troupe.handle(troupe.leader().await), "x").await;
    let asked: Vec<_> = (0..12)
        .map(|number| {
            let (id, handle) = (NodeId(number % 3 + 1), troupe.handle(NodeId(number / 4 + 1)).clone());
            let member = Member { name: format!("m{id}-{number}"), ..troupe.founding.members[&id].clone() };
            tokio::spawn(async move {
                let change = MembershipChange::of([Change::Describe(id, member.clone())]);
                let membership = in_time(handle.change_membership(change)).await.expect("it waits for its turn");
                assert_eq!(membership.members[&id], member, "the one that resulted comes back");
            })
        })
        .collect();
    for change in asked {
        in_time(change).await.expect("it is made");
    }
}
