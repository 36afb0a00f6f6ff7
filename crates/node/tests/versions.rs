//! Builds of two apply versions in one cluster, over real links and real directories.
//!
//! The counter of these stories has two sets of rules: by the second a command counts twice. The rules of a build are a parameter.

use crate::support::{Troupe, free_addresses, in_time, propose, read, until, url_of};
use hustings_core::{ApplyVersion, Change, Member, MembershipChange, NodeId};
use hustings_node::{StartError, discover};
use hustings_wal::WalError;

const NEXT: ApplyVersion = ApplyVersion(2);

async fn upgrade(troupe: &mut Troupe, id: NodeId) {
    troupe.stop(id).await;
    troupe.start(id).expect("the directory of an older build is read");
    troupe.leader().await;
}

/// Three members, upgraded one after the other; the version has risen.
async fn upgraded() -> Troupe {
    let mut troupe = Troupe::started(3);
    troupe.leader().await;
    troupe.can = NEXT;
    for id in [1, 2, 3].map(NodeId) {
        let leader = troupe.leader().await;
        assert_eq!(propose(troupe.handle(leader), &format!("before {id}")).await, 1, "somebody is old");
        upgrade(&mut troupe, id).await;
    }
    for handle in troupe.running.values() {
        until(handle, "the version rises", |status| status.version == NEXT).await;
    }
    troupe
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_upgrade_raises_the_version_once_and_nobody_diverges() {
    // Goal: mixed builds compute alike. Method: old, mixed, new, with a command in each state, and then all states are equal.
    let troupe = upgraded().await;
    let leader = troupe.leader().await;
    assert_eq!(propose(troupe.handle(leader), "after").await, 2, "by the second rules");
    for handle in troupe.running.values() {
        let counter = read(handle).await;
        assert_eq!((counter.total(), counter.of("after"), counter.counts_twice), (5, 2, true));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_build_is_refused_by_its_directory_and_by_the_others() {
    // Goal: no way back in silence. Method: a member is put back to the older build, and a joiner has it.
    let mut troupe = upgraded().await;
    let downgraded = troupe.follower().await;
    let directory = troupe.data_dir(downgraded);
    troupe.stop(downgraded).await;
    let meta = || std::fs::read(directory.join("meta")).expect("it is there");
    let before = meta();
    troupe.can = ApplyVersion::FIRST;
    let refused = troupe.start(downgraded).expect_err("its log is not for this build");
    assert!(matches!(&refused, StartError::Storage(WalError::NewerRules { found: NEXT, .. })), "{refused}");
    assert!(refused.to_string().contains("apply version 2, and this build can apply 1"), "{refused}");
    assert_eq!(meta(), before, "nothing was changed");

    let leader = troupe.leader().await;
    let itself = Member { name: "n4".into(), peer_urls: vec![url_of(free_addresses(1)[0])], ..Member::default() };
    let change = MembershipChange::of([Change::AddLearner(NodeId(4)), Change::Describe(NodeId(4), itself.clone())]);
    in_time(troupe.handle(leader).change_membership(change)).await.expect("a learner");
    let urls = [url_of(troupe.addresses[&leader])];
    let refused =
        in_time(discover(&urls, &itself, "raft", ApplyVersion::FIRST, None, None)).await.expect_err("too old");
    assert!(refused.to_string().contains("too old a build"), "{refused}");
    in_time(discover(&urls, &itself, "raft", NEXT, None, None)).await.expect("the others' build is welcome");

    troupe.can = NEXT;
    troupe.start(downgraded).expect("the newer build goes on");
    assert_eq!(read(troupe.handle(downgraded)).await.total(), 3);
}
