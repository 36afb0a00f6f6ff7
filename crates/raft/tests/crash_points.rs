//! A crash after every record of an election, a hand-over, an append, a cut-back tail, a change of members and a snapshot: the
//! suite of all protocols (`hustings_stage::crashes`). Goal: `raft_crash_points`.
//!
//! Beside it, acknowledgements that come late: of entries that stood at the same index in an earlier term.

mod support;

use hustings_core::{Lsn, Term};
use hustings_raft::{Message, Timer};
use hustings_stage::crashes::{Crashing, SCENES, Scene, crash_after_any_record};
use support::{Ours, Theatre, Verbs as _, cast};

impl Crashing for Ours {
    fn call(theatre: &mut Theatre, id: u64, among: &[u64]) {
        among.iter().for_each(|id| theatre.forget_freshness(*id));
        theatre.fire_if_armed(id, Timer::Election);
    }

    /// Nothing that Raft says waits for a round trip.
    fn pass(_: &mut Theatre, _: u64) {}
}

#[test]
fn a_crash_after_any_record_breaks_no_promise() {
    SCENES.into_iter().chain([Scene::JointDemotion]).for_each(crash_after_any_record::<Ours>);
}

#[test]
fn an_own_acknowledgement_from_an_earlier_term_counts_for_nothing() {
    // Goal: RH-7, RH-19, the leader's side. Method: n1 leads term 1, is deposed, leads term 3; its disk is held, one follower
    // has the new entry; now the acknowledgement of an entry at the same index, written in term 1, comes late.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.elect(2);
    theatre.elect(1);
    assert_eq!(theatre.term(1), 3);
    theatre.isolate(3);
    theatre.hold_disk(1);
    theatre.propose(1, "x");
    let (last, commit) = (theatre.last(1).index, theatre.commit(1));
    assert_eq!(commit + 1, last, "one of three holds it durably");
    for term in [1, 2] {
        theatre.deliver(1, 1, Message::Matched { term: Term(term), index: last });
        assert_eq!(theatre.commit(1), commit, "written in term {term}, and perhaps overwritten since");
    }
    theatre.release_disk(1);
    theatre.settle();
    assert_eq!(theatre.commit(1), last);
}

#[test]
fn an_acknowledgement_waits_for_the_copy_of_its_own_term() {
    // Goal: `raft_async_append_aba`, RH-7, the follower's side. Method: n3's disk is held while leaders of terms 1, 2 and 3
    // write the same index one after the other; then its records become durable one by one.
    let mut theatre = cast(3);
    theatre.elect(1);
    theatre.take_messages();
    theatre.hold_disk(3);
    let entry = |term| hustings_core::Entry::blank(Lsn::new(term, 2));
    let previous = Lsn::new(1, 1);
    for (term, leader) in [(1, 1), (2, 2), (3, 1)] {
        let append = Message::Append { term: Term(term), previous, entries: vec![entry(term)], commit: 1 };
        theatre.deliver(leader, 3, append);
    }
    let acknowledged = |theatre: &mut Theatre| {
        let said = theatre.take_messages();
        said.into_iter().filter_map(|(_, _, message)| match message {
            Message::Matched { term, index: 2 } => Some(term.0),
            _ => None,
        })
    };
    let mut told = Vec::new();
    let mut steps = 0;
    while theatre.unsynced(3) > 0 {
        theatre.sync_one(3);
        steps += 1;
        let holds = theatre.actor(3).durable.entries.get(&2).map(|entry| entry.lsn.term.0);
        for term in acknowledged(&mut theatre) {
            assert_eq!(holds, Some(term), "it acknowledges what it holds");
            told.push(term);
        }
    }
    assert!(steps >= 5, "an entry, a promise, a truncation and an entry for each later term: {steps}");
    assert_eq!(told.last(), Some(&3));
}
