//! A member that has committed more and cannot give it: its disk hangs, and only a snapshot holds its slots. Goal: the others
//! lead without it where they can, and wait for it where they must. Method: n1 leads and commits alone, its disk stalls, and
//! nobody fetches what it offers.

mod support;

use hustings_core::{Cluster, DiskHealth, Input, Limits, Role};
use hustings_paxos::{Message, Options, Timer};
use support::{Theatre, Verbs as _, ballot};

/// n1 knows that "one" is committed, the others accepted it; n1's disk stalls. With `trailing` slots below its snapshot.
fn one_is_ahead(voters: u64, trailing: u64) -> Theatre {
    let limits = Limits { trailing_entries: trailing, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(voters, 1) }, Options::default());
    theatre.elect(1);
    theatre.heartbeat(1);
    theatre.propose_quietly(1, "one");
    theatre.keep_losing(|from, _, said| {
        let is_news = match said {
            Message::Commit { slot, .. } => *slot > 1,
            Message::Accept { commit, .. } => *commit > 1,
            Message::RetransmitResponse { .. } => true,
            _ => false,
        };
        from == 1 && is_news
    });
    theatre.settle();
    assert_eq!((theatre.commit(1), theatre.commit(2), theatre.last(2).index), (2, 1, 2));
    theatre.compact(1);
    theatre.input(1, Input::Health(DiskHealth::Stalled));
    // It asks another to take over, and is not heard.
    theatre.lose(|from, _, _| from == 1);
    theatre.settle();
    assert_eq!(theatre.leaders(), [0; 0]);
    theatre
}

/// The fetch of what n1 offered fails: it never gives a byte.
fn fail_fetch(theatre: &mut Theatre, id: u64) {
    let reference = theatre.actor_mut(id).fetching.take().expect("n1 offered its snapshot");
    theatre.input(id, Input::SnapshotFailed(reference));
    theatre.settle();
}

/// TF-5: the same commit, shown twice by one that hears nobody, is evidence once.
#[test]
fn one_that_is_silent_and_shows_the_same_commit_again_keeps_nobody_from_leading() {
    let mut theatre = one_is_ahead(3, 1000);
    theatre.elect(2);
    assert_eq!(
        (theatre.role(2), theatre.count(2, |said| matches!(said, Message::RetransmitRequest { .. }))),
        (Role::Follower, 1)
    );
    theatre.elect(2);
    assert_eq!((theatre.role(2), theatre.lines(2)), (Role::Leader, vec!["one".to_string()]));
}

/// One that has committed on between two polls is evidence each time: there was a leader.
#[test]
fn one_that_commits_on_is_evidence_again() {
    let mut theatre = one_is_ahead(3, 1000);
    theatre.input(1, Input::Health(DiskHealth::Recovered));
    theatre.elect(2);
    theatre.lose_nothing();
    theatre.elect(1);
    theatre.cut(1, 2);
    theatre.propose(1, "two");
    assert_eq!((theatre.commit(1), theatre.commit(2)), (4, 3));
    theatre.input(1, Input::Health(DiskHealth::Stalled));
    theatre.lose(|from, _, _| from == 1);
    theatre.join(1, 2);
    theatre.elect(2);
    assert_eq!((theatre.role(2), theatre.commit(2)), (Role::Follower, 4));
}

/// Its offer ends no reign that has a quorum without it.
#[test]
fn an_offer_of_one_ahead_ends_no_reign_that_others_answer() {
    for is_offer_first in [false, true] {
        let mut theatre = one_is_ahead(5, 0);
        theatre.elect(2);
        fail_fetch(&mut theatre, 2);
        theatre.fire(2, Timer::Deadline);
        theatre.settle_until(2, |said| matches!(said, Message::Prepare { .. }));
        if is_offer_first {
            for peer in [3, 4, 5] {
                theatre.lose(|_, to, said| to == peer && matches!(said, Message::Prepare { .. }));
            }
            theatre.settle();
            assert_eq!((theatre.role(2), theatre.actor(2).fetching.is_some()), (Role::Candidate, false));
            theatre.fire(2, Timer::Deadline);
        }
        theatre.settle();
        assert_eq!((theatre.role(2), theatre.lines(2)), (Role::Leader, vec!["one".to_string()]));
    }
}

/// Where no quorum could promise without it, what it offers is fetched, as often as that fails, and no ballot is raised in vain.
#[test]
fn one_ahead_that_is_needed_is_asked_again_and_again() {
    let mut theatre = one_is_ahead(3, 0);
    theatre.isolate(3);
    for _ in 0..5 {
        // The first offer after a fetch that failed is left to others.
        theatre.elect(2);
        theatre.elect(2);
        fail_fetch(&mut theatre, 2);
    }
    assert_eq!((theatre.role(2), theatre.promised(2)), (Role::Follower, ballot(1, 1)));
    theatre.elect(2);
    theatre.elect(2);
    theatre.finish_fetch(2);
    assert_eq!(theatre.commit(2), 2);
}

/// So is one whose answers make no quorum: it may know of a change of membership that makes them one.
#[test]
fn one_ahead_is_asked_again_where_too_few_answer() {
    let mut theatre = one_is_ahead(5, 1000);
    for peer in [3, 4, 5] {
        theatre.cut(2, peer);
    }
    theatre.elect(2);
    theatre.lose_nothing();
    theatre.elect(2);
    assert_eq!((theatre.role(2), theatre.commit(2)), (Role::PreCandidate, 1), "its question was lost");
    theatre.elect(2);
    assert_eq!((theatre.role(2), theatre.commit(2)), (Role::PreCandidate, 2));
}

/// The same where the others fall silent after they have promised: a reign gives way to what is offered.
#[test]
fn a_reign_that_only_one_ahead_of_it_answers_gives_way_to_what_that_one_offers() {
    let mut theatre = one_is_ahead(3, 0);
    theatre.elect(2);
    fail_fetch(&mut theatre, 2);
    theatre.fire(2, Timer::Deadline);
    theatre.settle_until(3, |said| matches!(said, Message::PrepareAck { .. }));
    theatre.lose(|_, to, said| to == 3 && matches!(said, Message::Accept { .. }));
    theatre.settle_until(2, |said| matches!(said, Message::Accept { .. }));
    theatre.isolate(3);
    theatre.settle();
    assert_eq!((theatre.role(2), theatre.actor(2).fetching.is_some()), (Role::Synchronizing, false));
    for _ in 0..2 {
        theatre.fire_if_armed(2, Timer::QuorumCheck);
        theatre.heartbeat_if_armed(2);
    }
    assert_eq!((theatre.role(2), theatre.actor(2).fetching.is_some()), (Role::Follower, true));
}
