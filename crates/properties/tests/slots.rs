//! Goal: slots that are filled by themselves are judged by value (TI-4, TI-6). Method: histories of records, told by hand.

use hustings_core::{Entry, EntryKind, Lsn, Membership, NodeId, Origin, Record, Role, Slots, Stamp, Status, Term};
use hustings_properties::{Chronicle, Rules};
use std::sync::Arc;

fn put(term: u64, index: u64, text: &'static str) -> Record {
    let lsn = Lsn::new(term, index);
    Record::Put(Entry {
        lsn,
        kind: EntryKind::Command,
        origin: Origin::NOBODY,
        stamp: Stamp::NONE,
        payload: text.into(),
    })
}

/// One of three voters that has committed all of its log, which ends here.
fn status(term: u64, end: u64) -> Status {
    Status {
        role: Role::Follower,
        term: Term(term),
        leader: None,
        last: Lsn::new(term, end),
        commit: end,
        first_index: 1,
        is_suspended: false,
        membership: Arc::new(Membership::of_voters((1..=3).map(NodeId))),
    }
}

/// Three members that write this in slot 1, all durable, and say that it is committed; what was violated, if anything.
fn told(slots: Slots, writes: [(u64, &'static str); 3]) -> Option<String> {
    let mut chronicle = Chronicle::new(Rules::default().of_slots(slots));
    for (node, (term, text)) in (1..).map(NodeId).zip(writes) {
        if let Err(violation) = chronicle.on_record(node, 1, &put(term, 1, text)) {
            return Some(violation.property.to_string());
        }
        chronicle.on_durable(node, 1);
    }
    for node in (1..=3).map(NodeId) {
        let term = writes[node.0 as usize - 1].0;
        if let Err(violation) = chronicle.on_status(node, &status(term, 1), None) {
            return Some(violation.property.to_string());
        }
    }
    None
}

#[test]
fn one_value_in_two_ballots_is_agreement_where_slots_are_filled_by_themselves() {
    let writes = [(2, "v"), (2, "v"), (3, "v")];
    assert_eq!(told(Slots::Independent, writes), None);
    assert_eq!(told(Slots::InOrder, writes), Some("state-machine-safety".into()));
}

#[test]
fn two_values_of_one_slot_are_none() {
    assert_eq!(told(Slots::Independent, [(2, "v"), (2, "v"), (3, "w")]), Some("state-machine-safety".into()));
}

#[test]
fn a_ballot_has_one_value_in_a_slot() {
    assert_eq!(told(Slots::Independent, [(2, "v"), (2, "w"), (2, "v")]), Some("log-matching".into()));
}

#[test]
fn an_older_ballot_on_disk_is_no_copy_of_what_was_chosen_in_a_later_one() {
    assert_eq!(told(Slots::Independent, [(3, "v"), (2, "v"), (2, "v")]), Some("commit-on-quorum".into()));
}

/// Goal: of slots that are filled by themselves each one is on a quorum's disks, not only the last of those that are committed together.
/// Method: three slots in one step; two of three members hold the first and the last, and one alone holds the second.
#[test]
fn each_slot_of_a_run_is_on_a_quorum() {
    let mut chronicle = Chronicle::new(Rules::default().of_slots(Slots::Independent));
    let mut numbers = [0; 3];
    for (node, index) in [(1, 1), (1, 2), (1, 3), (2, 1), (2, 3)] {
        let (node, number) = (NodeId(node), &mut numbers[node as usize]);
        *number += 1;
        chronicle.on_record(node, *number, &put(1, index, "v")).expect("all write the same");
        chronicle.on_durable(node, *number);
    }
    let status = status(1, 3);
    let violation = chronicle.on_status(NodeId(1), &status, None).expect_err("slot 2 is on one disk");
    assert_eq!(violation.property, "commit-on-quorum");
    assert!(violation.what.contains("1:2"), "{}", violation.what);
}
