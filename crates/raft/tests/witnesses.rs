//! Witnesses: members that vote and keep the tail of the log, and hold no state (ADR 40).

mod hosts;

use hosts::{Ended, Hosts, three_with_witness};
use hustings_core::replica::{Event, ReplicaMessage, ReplicaTimer};
use hustings_core::{Lsn, Refusal, Role};
use hustings_raft::Timer;

const WITNESS: u64 = 3;

fn write(hosts: &mut Hosts, leader: u64, text: &str) {
    hosts.propose(leader, text);
    hosts.settle();
    hosts.heartbeat(leader);
}

#[test]
fn a_witness_makes_a_quorum_and_holds_nothing() {
    // Goal: two members with data and a witness commit while one of the two is away. Method: one is isolated, the others write.
    let mut hosts = three_with_witness();
    hosts.elect(1);
    hosts.isolate(2);
    write(&mut hosts, 1, "beside the witness");
    assert_eq!(hosts.lines(1), ["beside the witness"]);
    assert_eq!(hosts.lines(WITNESS), [] as [&str; 0]);
    assert_eq!(
        hosts.host(WITNESS).replica.applied(),
        hosts.host(1).replica.applied(),
        "it follows the log all the same"
    );
}

#[test]
fn a_witness_refuses_its_clients_at_once() {
    let mut hosts = three_with_witness();
    hosts.elect(1);
    let (written, read) = (hosts.propose(WITNESS, "here"), hosts.read(WITNESS));
    hosts.settle();
    hosts.heartbeat(1);
    assert_eq!(hosts.outcome(WITNESS, written), Some(Ended::Refused(Refusal::IsWitness)));
    assert_eq!(hosts.host(WITNESS).reads[&read], [Ended::Refused(Refusal::IsWitness)]);
    assert_eq!(hosts.lines(1), [] as [&str; 0], "it was definitely not done");
}

#[test]
fn what_only_the_witness_holds_comes_to_the_other_member_through_a_caretaker() {
    // Goal: nothing acknowledged is lost with the leader, though the other member with data lacks it. Method: it is written beside
    // the witness alone, and the leader goes.
    let mut hosts = three_with_witness();
    hosts.elect(1);
    hosts.isolate(2);
    write(&mut hosts, 1, "only here and at the witness");
    hosts.heal();
    hosts.isolate(1);
    for id in [2, WITNESS] {
        hosts.link_down(id, 1);
    }
    hosts.fire(2, ReplicaTimer::Protocol(Timer::Election));
    hosts.settle();
    assert_ne!(hosts.role(2), Role::Leader, "it lacks what is committed");
    // Nobody else leads within a whole timeout, because of what only the witness holds.
    for _ in 0..2 {
        hosts.fire(WITNESS, ReplicaTimer::Protocol(Timer::Election));
        hosts.settle();
    }
    assert_eq!(hosts.role(WITNESS), Role::Leader, "it takes care");
    hosts.heartbeat(WITNESS);
    assert_eq!(
        (hosts.role(2), hosts.role(WITNESS)),
        (Role::Leader, Role::Follower),
        "it handed over as soon as the other one had caught up"
    );
    hosts.heartbeat(2);
    assert_eq!(hosts.lines(2), ["only here and at the witness"]);
}

#[test]
fn a_witness_gives_nobody_a_snapshot() {
    let mut hosts = three_with_witness();
    hosts.elect(1);
    write(&mut hosts, 1, "state");
    let lsn = Lsn::new(1, 2);
    hosts.step(
        WITNESS,
        Event::Peer { from: hustings_core::NodeId(2), message: ReplicaMessage::AskChunk { lsn, digest: 0, offset: 0 } },
    );
    assert!(hosts.sent.contains(&(WITNESS, 2, ReplicaMessage::ChunkGone { lsn })));
}

#[test]
fn a_witness_that_is_far_behind_writes_a_snapshot_of_its_own_and_fetches_nothing() {
    // Goal: a third site is not sent the state. Method: the witness is away until what it lacks is compacted.
    let mut hosts = three_with_witness();
    hosts.elect(1);
    hosts.isolate(WITNESS);
    for number in 0..8 {
        write(&mut hosts, 1, &format!("line {number}"));
    }
    let through = hosts.finish_cut(1);
    hosts.settle();
    hosts.heal();
    let before = hosts.sent.len();
    hosts.heartbeat(1);
    hosts.heartbeat(1);
    let stand_in = hosts.finish_cut(WITNESS);
    hosts.settle();
    assert_eq!(stand_in, through, "its own reaches as far as the one that was offered");
    hosts.heartbeat(1);
    write(&mut hosts, 1, "afterwards");
    assert_eq!(hosts.host(WITNESS).replica.applied(), hosts.host(1).replica.applied());
    assert_eq!(hosts.lines(WITNESS), [] as [&str; 0]);
    let has_asked =
        |(from, _, said): &(u64, u64, hosts::Said)| *from == WITNESS && matches!(said, ReplicaMessage::AskChunk { .. });
    assert!(!hosts.sent[before..].iter().any(has_asked));
}
