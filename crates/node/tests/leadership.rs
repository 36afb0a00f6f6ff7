//! Goal: an application that only wants a leader has no state machine to write. Method: three members that replicate nothing.

use crate::support::{Troupe, in_time};
use hustings_core::{ClusterId, NodeId};
use hustings_node::{Handle, Leads, NodeConfig, NodeStatus};
use hustings_raft::{Options, Raft};

async fn follows(handle: &Handle<()>, is_so: impl FnMut(&NodeStatus) -> bool) {
    let mut status = handle.status_changes();
    in_time(status.wait_for(is_so)).await.expect("it runs");
}

async fn leads(handle: &Handle<()>) -> Leads {
    in_time(handle.leadership()).await.expect("there is a quorum")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_a_state_has_one_leader_whose_token_grows() {
    let troupe = Troupe::of(3);
    let start = |id: NodeId| {
        let config = NodeConfig::new(ClusterId(7), id, troupe.founding.clone(), troupe.data_dir(id));
        let config = troupe.equipped(config, troupe.addresses[&id]);
        hustings_node::start::<Raft, ()>(config, Options::default(), ()).expect("it starts").handle
    };
    let mut members: Vec<Handle<()>> = (1..=3).map(|id| start(NodeId(id))).collect();
    let first = leads(&members[0]).await;
    for member in &members {
        follows(member, |status| status.leader == Some(first.leader)).await;
        let leads = leads(member).await;
        assert_eq!((leads.leader, leads.token), (first.leader, first.token));
        assert_eq!(leads.is_me, member.status().me == first.leader);
    }
    let place = members.iter().position(|member| member.status().me == first.leader).expect("it is one of them");
    members.remove(place).stop().await;
    for member in &members {
        follows(member, |status| status.leader.is_some_and(|leader| leader != first.leader)).await;
        let next = leads(member).await;
        assert!(next.leader != first.leader && next.token > first.token, "{next:?} after {first:?}");
    }
    for member in members {
        member.stop().await;
    }
}
