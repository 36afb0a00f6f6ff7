//! Values, recovery, retransmission as stories. Goal: the named scenarios of `docs/protocols/rules` (§1.10) that are about
//! what is chosen, and the two published violations (TH-1, TH-2). Method: values in memory, journals as they were
//! found.

mod support;

use hustings_core::{Cluster, Entry, Limits, Lsn, Membership, NodeId, Record, Role, Term};
use hustings_paxos::{Message, Options, Timer};
use std::sync::Arc;
use support::{End, Theatre, Verbs as _, ballot, cast, journal, one};

fn is_accept(message: &Message) -> bool {
    matches!(message, Message::Accept { accepts, .. } if !accepts.is_empty())
}

fn led(voters: u64) -> Theatre {
    let mut theatre = cast(voters);
    theatre.elect(1);
    theatre.heartbeat(1);
    theatre
}

/// n1 accepted 5, 6 and 7 in its ballot, n2 has 5 and 7, n3 has 5; four slots are committed everywhere; n1 is gone.
fn in_flight() -> Theatre {
    let (three, one) = (ballot(3, 1), ballot(1, 1));
    let common = [(1, one, "v1"), (2, one, "v2"), (3, one, "v3"), (4, one, "v4"), (5, three, "v5")];
    let mut theatre = cast(3);
    let with = |more: &[(u64, Term, &'static str)]| {
        let slots: Vec<(u64, Term, &str)> = common.iter().chain(more).copied().collect();
        journal(three, &slots, 4)
    };
    theatre.enter(1, with(&[(6, three, "v6"), (7, three, "v7")]));
    theatre.enter(2, with(&[(7, three, "v7")]));
    theatre.enter(3, with(&[]));
    theatre.isolate(1);
    theatre
}

/// trex_recover_in_flight_range; TR-3.
#[test]
fn the_whole_in_flight_range_is_recovered_with_no_ops_in_the_holes() {
    let mut theatre = in_flight();
    theatre.elect(2);
    assert_eq!(theatre.leaders(), [2]);
    assert_eq!(theatre.promised(2), ballot(4, 2));
    theatre.heartbeat(2);
    for id in [2, 3] {
        assert_eq!(theatre.commit(id), 8);
        assert_eq!(theatre.lines(id)[4..], ["v5", "v7"], "6 is a no-op, and so is 8");
    }
    // n1 had accepted v6, and nobody else; it takes the no-op like everybody.
    theatre.heal();
    theatre.heartbeat(2);
    theatre.heartbeat(2);
    assert_eq!(theatre.lines(1), theatre.lines(2));
}

/// trex_expand_range_from_majority; TR-3 a.
#[test]
fn the_range_grows_to_what_the_quorum_accepted() {
    let mut theatre = in_flight();
    theatre.elect(3);
    assert_eq!((theatre.leaders(), theatre.promised(3)), (vec![3], ballot(4, 3)));
    assert_eq!(theatre.lines(3)[4..], ["v5", "v7"]);
}

/// The answer to a prepare comes in pages; nothing is proposed beyond what they cover.
#[test]
fn a_range_that_fills_many_messages_is_recovered_page_by_page() {
    let cluster = Cluster { limits: Limits { message_bytes_max: 1, ..Limits::default() }, ..Cluster::of(3, 1) };
    let mut theatre = Theatre::new(cluster, Options::default());
    let slots: Vec<(u64, Term, &str)> = (1..=6).map(|index| (index, ballot(2, 3), "x")).collect();
    theatre.enter(2, journal(ballot(2, 3), &slots, 0));
    theatre.isolate(3);
    theatre.elect(1);
    assert_eq!((theatre.leaders(), theatre.commit(1), theatre.lines(1).len()), (vec![1], 7, 6));
    assert!(theatre.count(2, |said| matches!(said, Message::PrepareAck { .. })) >= 6);
}

/// The same with four, and the one whose pages are awaited cannot be heard any more: half of four may still accept, and there is nothing
/// that they could be asked to.
#[test]
fn who_waits_for_promises_that_cannot_come_gives_way() {
    let cluster = Cluster { limits: Limits { message_bytes_max: 1, ..Limits::default() }, ..Cluster::of(4, 1) };
    let mut theatre = Theatre::new(cluster, Options::default());
    let slots: Vec<(u64, Term, &str)> = (1..=6).map(|index| (index, ballot(2, 4), "x")).collect();
    theatre.enter(4, journal(ballot(2, 4), &slots, 0));
    theatre.isolate(3);
    let is_promise = |said: &Message| matches!(said, Message::PrepareAck { .. });
    theatre.fire(2, Timer::Deadline);
    theatre.settle();
    theatre.fire(2, Timer::Grace);
    theatre.settle_until(4, is_promise);
    theatre.pick(4, 2, is_promise);
    theatre.cut_one_way(4, 2);
    theatre.settle();
    assert_eq!(theatre.role(2), Role::Synchronizing, "n1 and n4 promised, and n4 has more to say");
    // One check takes note, the next one acts.
    for _ in 0..2 {
        theatre.fire_if_armed(2, Timer::Heartbeat);
        theatre.settle();
        theatre.fire_if_armed(2, Timer::QuorumCheck);
        theatre.settle();
    }
    assert_eq!((theatre.role(2), theatre.commit(2)), (Role::Follower, 1), "n1 answers, and that is not enough");
    theatre.elect(1);
    assert_eq!((theatre.leaders(), theatre.lines(1).len()), (vec![1], 6), "n1 hears all who are left");
}

/// trex_out_of_order_acks; TL-5.
#[test]
fn slots_are_chosen_in_any_order_and_committed_in_theirs() {
    let mut theatre = led(3);
    theatre.isolate(3);
    for text in ["ten", "eleven", "twelve"] {
        theatre.propose_quietly(1, text);
    }
    let before = theatre.commit(1);
    // Its accepts come last first: slots may stand in the journal before those below them.
    for slot in [4, 3] {
        let is_it = |said: &Message| matches!(said, Message::Accept { accepts, .. } if accepts.first().is_some_and(|a| a.entry().lsn.index == slot));
        theatre.pick(1, 2, is_it);
        assert!(theatre.last(2).index == 4, "a hole at 2");
        theatre.pick(2, 1, |said| matches!(said, Message::AcceptAck { from, .. } if *from == slot));
        assert_eq!(theatre.commit(1), before, "not before the first");
    }
    theatre.settle();
    assert_eq!((theatre.commit(1), theatre.lines(1)), (4, vec!["ten".into(), "eleven".into(), "twelve".into()]));
}

/// trex_crash_between_value_and_promise; TA-7, TH-9, TI-2, TI-3.
#[test]
fn a_crash_between_the_promise_and_the_value_of_an_accept_forgets_no_answer() {
    for records in 0..=2 {
        let mut theatre = Theatre::new(Cluster::of(3, 1), Options { low_ball: false, ..Options::default() });
        theatre.elect(1);
        theatre.heartbeat(1);
        theatre.propose_quietly(1, "old");
        let old: Vec<_> = theatre.table.drain(..).filter(|(_, to, _)| *to == 3).collect();
        theatre.isolate(3);
        // n3 did not promise to n1's successor; it learns of the ballot from an accept.
        theatre.elect(2);
        theatre.heal();
        theatre.end_disk_after(3, records, End::AtOnce);
        theatre.propose(2, "new");
        theatre.restart(3);
        assert_eq!(theatre.promised(3), if records == 0 { ballot(1, 1) } else { ballot(2, 2) }, "{records} records");
        // The old leader's accept comes again, too late for nodes that promised.
        let before = theatre.last(3);
        for (from, to, message) in old {
            theatre.deliver(from, to, message);
        }
        assert!(records == 0 || theatre.last(3) == before, "{records} records");
        theatre.heartbeat(2);
        theatre.heartbeat(2);
        let lines = theatre.lines(2);
        assert!(lines.contains(&"new".to_string()));
        assert!(theatre.ids().into_iter().all(|id| theatre.lines(id) == lines), "{records} records");
    }
}

/// TL-7: a lost window is sent again, identically, in the same ballot.
#[test]
fn a_whole_window_that_is_lost_is_sent_again_in_the_same_ballot() {
    let mut theatre = led(3);
    for number in 0..10 {
        theatre.propose_quietly(1, &format!("value {number}"));
    }
    theatre.lose(|_, _, said| is_accept(said));
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    assert!((1..=3).all(|id| theatre.lines(id).len() == 10));
    assert_eq!(theatre.promised(1), ballot(1, 1));
}

/// The schedule of TH-1: n1's accept is refused with a higher promise, and a value is chosen that n1 does not know.
fn after_th1(is_published: bool) -> Theatre {
    let options = Options { as_published: is_published, ..Options::default() };
    let mut theatre = Theatre::new(Cluster::of(3, 1), options);
    theatre.elect(1);
    theatre.heartbeat(1);
    // Proposed, accepted by n1 alone; the accepts are on their way.
    theatre.propose_quietly(1, "V");
    let accepts: Vec<_> = theatre.table.drain(..).collect();
    theatre.isolate(1);
    theatre.elect(2);
    theatre.propose_quietly(2, "W");
    theatre.settle();
    assert_eq!(theatre.lines(2), ["W"], "chosen by n2 and n3");
    // n3 learns of no commit behind n2's first one; then n2 is gone, and n1's old accept arrives.
    theatre.lose(|_, _, _| true);
    theatre.isolate(2);
    theatre.heal();
    theatre.isolate(2);
    for (from, to, message) in accepts.into_iter().filter(|(_, to, _)| *to == 3) {
        theatre.deliver(from, to, message);
    }
    theatre.settle();
    theatre
}

/// trex_no_ballot_bump_without_prepare.
#[test]
fn a_refused_accept_raises_no_ballot() {
    let mut theatre = after_th1(false);
    for _ in 0..4 {
        theatre.fire_if_armed(1, Timer::Heartbeat);
        theatre.settle();
    }
    let highest = |said: &Message| matches!(said, Message::Accept { ballot: b, .. } if *b > ballot(1, 1));
    let is_prepared = theatre.count(3, |said| matches!(said, Message::PrepareAck { ballot: b, .. } if b.node() == 1));
    assert!(theatre.count(1, highest) == 0 || is_prepared > 0);
    theatre.heal();
    let leader = theatre.leaders().into_iter().max().unwrap_or(2);
    theatre.heartbeat(leader);
    theatre.heartbeat(leader);
    assert!((1..=3).all(|id| theatre.lines(id).first().is_some_and(|line| line == "W")), "slot 2 is W everywhere");
}

/// The same schedule as published: what n2 committed in slot 2 is overwritten by V at n3, and n1 commits it.
#[test]
fn as_published_a_refused_accept_overwrites_what_was_chosen() {
    let mut theatre = after_th1(true);
    theatre.heartbeat_if_armed(1);
    let second = |id: u64| theatre.actor(id).applied[1].clone();
    assert_eq!((second(1).payload.as_ref(), second(1).lsn.index), (&b"V"[..], 2), "TH-1");
    assert!(second(2).lsn.index == 2 && !support::same_value(&second(1), &second(2)));
}

/// trex_catchup_does_not_raise_epoch; TH-2.
#[test]
fn a_request_from_a_higher_promise_raises_no_ballot() {
    let mut theatre = led(3);
    theatre.propose(1, "fixed");
    theatre.cut(1, 2);
    theatre.cut(1, 3);
    theatre.elect(2);
    theatre.propose(2, "W");
    theatre.isolate(2);
    theatre.join(1, 3);
    theatre.heartbeat(1);
    theatre.propose(1, "X");
    theatre.heartbeat_if_armed(1);
    theatre.heal();
    for id in theatre.leaders() {
        theatre.heartbeat(id);
    }
    theatre.heartbeat_if_armed(2);
    let at = |id: u64, line: &str| theatre.lines(id).iter().position(|found| found == line);
    assert!((1..=3).all(|id| at(id, "fixed") == Some(0) && at(id, "W") == Some(1)), "W stays");
}

/// TX-1, TI-10: what is trimmed is fetched as a snapshot, and never reported as nothing.
#[test]
fn who_needs_trimmed_slots_is_told_of_a_snapshot() {
    let cluster = Cluster { limits: Limits { trailing_entries: 0, ..Limits::default() }, ..Cluster::of(3, 1) };
    let mut theatre = Theatre::new(cluster, Options::default());
    theatre.elect(1);
    theatre.isolate(3);
    for text in ["one", "two", "three"] {
        theatre.propose(1, text);
    }
    theatre.heartbeat(1);
    theatre.compact(1);
    theatre.compact(2);
    theatre.heal();
    theatre.heartbeat(1);
    theatre.finish_fetch(3);
    theatre.propose(1, "four");
    theatre.heartbeat(1);
    assert_eq!((theatre.commit(3), theatre.commit(1)), (5, 5));
    // TA-4: asked about what is committed, it promises nothing and says how far it is.
    theatre.deliver(3, 2, Message::Prepare { ballot: ballot(7, 3), from: 2 });
    assert_eq!(theatre.promised(2), ballot(1, 1));
    assert_eq!(theatre.count(2, |said| matches!(said, Message::PrepareNack { committed: 5, .. })), 1);
}

/// A change of membership fences: what is behind it waits until it is in force.
#[test]
fn nothing_is_proposed_behind_a_change_before_it_is_in_force() {
    let mut theatre = led(3);
    let add = one(hustings_core::Change::AddLearner(NodeId(4)));
    theatre.change_quietly(1, &add);
    let origin = theatre.propose_quietly(1, "behind");
    assert_eq!(theatre.refusal(1, origin), Some(hustings_core::Refusal::NotReady));
    theatre.settle();
    assert!(theatre.value(1).promised() == ballot(1, 1) && theatre.commit(1) == 2);
    theatre.propose(1, "after");
    assert_eq!(theatre.lines(1), ["after"]);
}

/// A new voter must promise, where the old ones are no quorum of the new membership.
#[test]
fn promises_are_of_the_membership_in_which_a_slot_is_counted() {
    let mut theatre = cast(2);
    theatre.elect(1);
    theatre.heartbeat(1);
    let cluster = Cluster { membership: Arc::new(Membership::of_voters([1, 2].map(NodeId))), ..Cluster::of(2, 3) };
    theatre.enter_as(cluster, Default::default());
    theatre.change(1, &one(hustings_core::Change::AddVoter(NodeId(3))));
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    assert_eq!(theatre.promised(3), ballot(1, 1), "it was asked, though two of three had promised");
    theatre.isolate(2);
    theatre.propose(1, "with the new one");
    assert_eq!(theatre.lines(1), ["with the new one"]);
}

/// The same with a voter down, found by a crash at every operation: the new one is asked about what is behind its own
/// admission, and its answer counts though it was never asked about what is before.
#[test]
fn a_new_voter_promises_for_one_that_is_down() {
    let mut theatre = led(3);
    theatre.isolate(2);
    theatre.enter_as(Cluster { me: NodeId(4), ..Cluster::of(3, 4) }, Default::default());
    theatre.change(1, &one(hustings_core::Change::AddVoter(NodeId(4))));
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    theatre.propose(1, "three of four");
    assert_eq!(theatre.lines(1), ["three of four"]);
}

/// TL-10 and reads: a leader that nobody answers confirms none.
#[test]
fn reads_wait_for_answers_to_a_later_heartbeat() {
    let mut theatre = led(3);
    theatre.propose(1, "seen");
    theatre.isolate(1);
    let ticket = theatre.read(1, 1);
    theatre.settle();
    assert_eq!(theatre.read_index(1, ticket), None);
    theatre.heal();
    let ticket = theatre.read(1, 2);
    theatre.settle();
    assert_eq!(theatre.read_index(1, ticket), Some(2));
    assert_eq!(theatre.role(1), Role::Leader);
}

/// TI-6, found by a seed: the old leader's accepts were chosen as well, and it learns so after its successor committed
/// the same value in a higher ballot. It keeps its own ballot; both hold one value.
#[test]
fn a_slot_may_be_committed_in_two_ballots_with_one_value() {
    let mut theatre = led(3);
    theatre.propose_quietly(1, "one value");
    theatre.lose(|_, to, said| to == 2 && is_accept(said));
    theatre.settle_until(3, |said| matches!(said, Message::AcceptAck { .. }));
    let late: Vec<_> = theatre.table.drain(..).filter(|(from, to, _)| (*from, *to) == (3, 1)).collect();
    theatre.isolate(1);
    theatre.elect(2);
    assert_eq!((theatre.lines(2), theatre.last(2).term), (vec!["one value".to_string()], ballot(2, 2)));
    for (from, to, message) in late {
        theatre.deliver(from, to, message);
    }
    assert_eq!((theatre.lines(1), theatre.last(1).term), (vec!["one value".to_string()], ballot(1, 1)));
}

/// Found by a seed: half of four may commit, so the removal of a voter could be known to one of the three that stay,
/// and be lost with it. It is in force only when somebody of each of their promise quorums holds it.
#[test]
fn a_removal_is_in_force_when_those_who_stay_hold_it() {
    let mut theatre = led(4);
    for peer in [2, 3] {
        theatre.cut(1, peer);
    }
    theatre.change(1, &one(hustings_core::Change::Remove(NodeId(4))));
    let before = theatre.commit(1);
    assert_eq!(before, 1, "n1 and n4 are half of four, and n4 goes");
    theatre.heal();
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    assert_eq!(theatre.commit(1), 2);
    assert_eq!(hustings_core::Protocol::status(theatre.value(1)).membership.voters.len(), 3);
}

/// The price of that: the two who live refuse every write meanwhile, for the fence, and serve again once a third is back.
#[test]
fn two_of_four_refuse_writes_while_one_of_them_is_removed_and_serve_again() {
    // Goal: what the fence costs, and when it ends. Method: n2 and n3 are down; n1 and n4 write, until n4 is removed; then
    // n3 is back.
    let mut theatre = led(4);
    for down in [2, 3] {
        theatre.kill(down);
    }
    theatre.propose(1, "before");
    assert!([1, 4].into_iter().all(|id| theatre.lines(id) == ["before"]), "half of four accept");
    theatre.change(1, &one(hustings_core::Change::Remove(NodeId(4))));
    for _ in 0..3 {
        theatre.heartbeat(1);
        let origin = theatre.propose(1, "meanwhile");
        assert_eq!(theatre.refusal(1, origin), Some(hustings_core::Refusal::NotReady));
    }
    assert_eq!((theatre.role(1), theatre.commit(1), theatre.membership(1).voters.len()), (Role::Leader, 2, 4));
    theatre.enter(3, Default::default());
    theatre.join(1, 3);
    theatre.heartbeat(1);
    theatre.heartbeat(1);
    assert_eq!((theatre.commit(1), theatre.membership(1).voters.len()), (3, 3), "those who stay hold it");
    theatre.propose(1, "after");
    assert!([1, 3].into_iter().all(|id| theatre.lines(id) == ["before", "after"]), "and nothing of what was refused");
}

/// An acknowledgement says what it says, and nothing of the slots before it.
#[test]
fn a_removal_counts_nobody_as_a_holder_who_acknowledged_that_slot_alone() {
    // Goal: `is_secured` asks who holds a change *with everything before it*. Method: four slots are chosen by n1 and
    // n4; n3 gets the removal of n4 alone and acknowledges it, and what it then asks for is lost.
    let mut theatre = led(4);
    for peer in [2, 3] {
        theatre.cut(1, peer);
        theatre.cut(4, peer);
    }
    for text in ["a", "b", "c", "d"] {
        theatre.propose(1, text);
    }
    let before = theatre.commit(1);
    assert_eq!((before, theatre.commit(3)), (5, 1), "half of four");
    theatre.heal();
    theatre.change_quietly(1, &one(hustings_core::Change::Remove(NodeId(4))));
    theatre.lose(|_, to, _| to == 2 || to == 4);
    theatre.pick(1, 3, |said| matches!(said, Message::Accept { accepts, .. } if !accepts.is_empty()));
    theatre.pick(3, 1, |said| matches!(said, Message::AcceptAck { .. }));
    assert_eq!(theatre.commit(1), before, "n3 holds the change, and nothing of what it decides about");
    theatre.lose(|_, _, _| true);
    theatre.kill(1);
    theatre.elect(4);
    assert_eq!(theatre.lines(4), ["a", "b", "c", "d"], "nothing that was acknowledged is lost");
}

/// TI-1 over a restart: what the journal shows to be promised is promised on disk before anybody hears of it.
#[test]
fn who_restarts_with_a_ballot_in_its_journal_has_promised_it_on_disk() {
    let mut theatre = Theatre::new(Cluster::of(3, 1), Options::default());
    theatre.enter(3, journal(ballot(2, 3), &[(1, ballot(5, 2), "learnt")], 0));
    assert_eq!(theatre.promised(3), ballot(5, 2));
    assert_eq!(theatre.actor(3).durable.promise.term, ballot(5, 2));
}

/// n1 leads in its first ballot with the promises of n2 and n3, and has given X for slot 2 to n2 alone. Cut off with n2,
/// it does not hear that n4 leads in a later ballot and chose a no-op in slot 2 and Y in slot 3. Gives back n1's first
/// prepare to n5, still on its way.
fn a_later_reign_chose_otherwise(limits: Limits) -> (Theatre, Message) {
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(5, 1) }, Options::default());
    theatre.fire(1, Timer::Deadline);
    theatre.settle_until(1, |said| matches!(said, Message::Prepare { .. }));
    let late = theatre.table.iter().find(|(_, to, said)| *to == 5 && matches!(said, Message::Prepare { .. }));
    let (_, _, late) = late.expect("it asks everybody").clone();
    theatre.lose(|_, to, said| to >= 4 && matches!(said, Message::Prepare { .. }));
    theatre.cut(1, 4);
    theatre.cut(1, 5);
    theatre.settle();
    theatre.heartbeat(1);
    assert_eq!((theatre.leaders(), theatre.commit(1)), (vec![1], 1));
    for (a, b) in [(1, 3), (2, 3), (2, 4), (2, 5)] {
        theatre.cut(a, b);
    }
    theatre.propose(1, "X");
    assert_eq!((theatre.last(2).index, theatre.commit(2)), (2, 1), "n2 alone holds X");
    // Its first poll finds out what is committed, its second that nobody near leads.
    theatre.elect(4);
    theatre.elect(4);
    theatre.propose(4, "Y");
    theatre.heartbeat(4);
    assert_eq!((theatre.commit(5), theatre.lines(5)), (3, vec!["Y".to_string()]));
    (theatre, late)
}

/// TF-2, and why a leader that learns of a later reign is none any more: n2 would commit X.
#[test]
fn who_learns_what_a_later_ballot_chose_leads_no_more() {
    let (mut theatre, late) = a_later_reign_chose_otherwise(Limits::default());
    theatre.join(1, 5);
    theatre.deliver(1, 5, late);
    theatre.settle();
    assert_eq!((theatre.role(1), theatre.commit(1)), (Role::Follower, 3), "it learnt from n5, and gave way");
    theatre.heal();
    theatre.heartbeat(4);
    theatre.heartbeat(4);
    assert!((1..=5).all(|id| theatre.lines(id) == ["Y"]), "and X is nowhere");
}

/// The same where what was chosen is trimmed: a snapshot does not say in which ballots.
#[test]
fn who_is_told_of_a_snapshot_leads_no_more() {
    let (mut theatre, late) = a_later_reign_chose_otherwise(Limits { trailing_entries: 0, ..Limits::default() });
    theatre.compact(5);
    theatre.join(1, 5);
    theatre.deliver(1, 5, late);
    theatre.settle();
    assert_eq!(theatre.role(1), Role::Follower);
    theatre.finish_fetch(1);
    theatre.fire_if_armed(1, Timer::Heartbeat);
    theatre.settle();
    assert_eq!((theatre.commit(1), theatre.commit(2)), (3, 1), "n2 hears no commit from it");
    theatre.heal();
    theatre.heartbeat(4);
    theatre.heartbeat(4);
    assert_eq!(theatre.lines(2), ["Y"]);
}

/// Ballots do not grow from slot to slot: the last of what is learnt may be old, and one before it of a later reign.
#[test]
fn every_slot_that_is_learnt_is_looked_at_for_a_later_ballot() {
    let mut theatre = led(3);
    theatre.isolate(1);
    let (old, later) = (ballot(1, 1), ballot(7, 2));
    let entries = journal(later, &[(2, later, "chosen later"), (3, old, "chosen before")], 0).entries;
    let told = Message::RetransmitResponse { entries: entries.into_values().collect(), committed: 3 };
    theatre.deliver(2, 1, told);
    assert_eq!((theatre.role(1), theatre.commit(1)), (Role::Follower, 3));
    assert!(theatre.value(1).promised() == old, "learning promises nothing");
}

/// The gate, where slots are filled out of order: what rests on a slot rests on the last record that filled it.
#[test]
fn a_slot_that_was_filled_twice_is_applied_when_it_is_durable_twice() {
    let mut gate = hustings_core::replica::gate::Gate::<hustings_paxos::Paxos>::new();
    let filled = |slot: u64| Record::Put(Entry::blank(Lsn::new(1, slot)));
    let numbers: Vec<u64> = [5, 5, 7].map(|slot| gate.number(&filled(slot))).to_vec();
    assert_eq!(gate.apply(Entry::blank(Lsn::new(1, 5))), None);
    assert!(gate.on_durable(numbers[0]).is_empty(), "the second record of slot 5 is on no disk yet");
    assert_eq!(gate.on_durable(numbers[1]).len(), 1);
}
