//! Members of several builds in one cluster: they compute by the same rules, or one of them stops.

mod hosts;

use hosts::{Hosts, three};
use hustings_core::{Change, Member, MembershipChange, NodeId};

/// Commands, and the heartbeat that tells the others what is committed.
fn write(hosts: &mut Hosts, leader: u64, text: &str) {
    hosts.propose(leader, text);
    hosts.settle();
    hosts.heartbeat(leader);
}

#[test]
fn the_version_rises_when_the_last_member_can_and_not_before() {
    // Goal: no divergence while builds are mixed. Method: one member after the other is rebuilt, commands in between; by the
    // second rules a command is written in capitals.
    let mut hosts = three();
    hosts.elect(1);
    for id in [2, 3] {
        write(&mut hosts, 1, &format!("before n{id}"));
        hosts.rebuild(id, 2);
        hosts.tell_who_is_able(1);
        hosts.heartbeat(1);
    }
    write(&mut hosts, 1, "mixed");
    hosts.rebuild(1, 2);
    hosts.elect(2);
    hosts.isolate(3);
    hosts.tell_who_is_able(2);
    hosts.heal();
    write(&mut hosts, 2, "one is away");
    assert_eq!([1, 2, 3].map(|id| hosts.version(id)), [1; 3], "who is away may come back as any build");
    hosts.tell_who_is_able(2);
    write(&mut hosts, 2, "all can");
    let expected = ["before n2", "before n3", "mixed", "one is away", "ALL CAN"];
    for id in 1..=3 {
        assert_eq!((hosts.version(id), hosts.lines(id)), (2, &expected.map(String::from)[..]), "n{id}");
    }
}

#[test]
fn a_member_that_was_added_meanwhile_is_not_known_to_be_able() {
    // Goal: the entry names who can. Method: a learner is added before the entry is applied, and stands before it in the log.
    let mut hosts = three();
    for id in 1..=3 {
        hosts.rebuild(id, 2);
    }
    hosts.elect(1);
    let learner = MembershipChange::of([Change::AddLearner(NodeId(4)), Change::Describe(NodeId(4), Member::default())]);
    hosts.change(1, &learner);
    // The change is in the log and not in force: the leader still counts three members.
    hosts.tell_who_is_able(1);
    write(&mut hosts, 1, "quietly");
    for id in 1..=3 {
        assert_eq!((hosts.version(id), hosts.lines(id)), (1, &["quietly".to_string()][..]), "n{id}");
    }
}

#[test]
fn a_member_that_meets_a_version_beyond_it_stops_and_a_newer_build_goes_on() {
    // Goal: no silent divergence, nothing lost. Method: a member says that it can, and is put back to an older build before it
    // hears of the new version; later it gets the build that the others run.
    let mut hosts = three();
    for id in 1..=3 {
        hosts.rebuild(id, 2);
    }
    hosts.elect(1);
    write(&mut hosts, 1, "before");
    hosts.rebuild(3, 1);
    hosts.hosts.get_mut(&3).expect("a host").can.0 = 2;
    hosts.tell_who_is_able(1);
    write(&mut hosts, 1, "after");
    let stopped = hosts.host(3).stopped.clone().expect("it cannot apply what comes");
    assert!(stopped.contains("apply version 2") && stopped.contains("build can 1"), "{stopped}");
    assert_eq!(hosts.lines(3), ["before"], "nothing of it is applied");
    hosts.rebuild(3, 2);
    hosts.heartbeat(1);
    assert_eq!((hosts.version(3), hosts.lines(3)), (2, &["before".to_string(), "AFTER".to_string()][..]));
}
