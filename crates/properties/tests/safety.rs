//! Goal: each predicate of safety convicts what it is there for, and nothing else. Method: two logs, a past and three disks,
//! told by hand, for logs that are filled in order and for slots that are filled by themselves.

use hustings_core::{Entry, Lsn, Membership, NodeId, Slots, Term};
use hustings_properties::safety::{Committed, Logged, Placed, check_leader, check_state, value_of};
use hustings_properties::{Rules, Violation};
use std::collections::BTreeMap;

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);

/// A log without a snapshot: terms and values by index, from 1.
struct WrittenLog(Vec<(u64, u64)>);

impl Logged for WrittenLog {
    fn covered(&self) -> u64 {
        0
    }

    fn place(&self, index: u64) -> Option<Lsn> {
        self.0.get(index as usize - 1).map(|(term, _)| Lsn::new(*term, index))
    }

    fn value(&self, place: Lsn) -> Option<u64> {
        self.0.get(place.index as usize - 1).map(|(_, value)| *value)
    }

    fn end(&self) -> Lsn {
        self.place(self.0.len() as u64).unwrap_or(Lsn::ZERO)
    }
}

/// What was committed, in order: term, value, reign.
fn committed(entries: &[(u64, u64, u64)]) -> Vec<Committed> {
    let entry = |(index, (term, value, reign)): (u64, &(u64, u64, u64))| Committed {
        lsn: Lsn::new(*term, index),
        value: *value,
        reign: Term(*reign),
    };
    (1..).zip(entries).map(entry).collect()
}

fn in_order() -> Rules {
    Rules::default()
}

fn by_slots() -> Rules {
    Rules::default().of_slots(Slots::Independent)
}

fn property(verdict: Result<(), Violation>) -> Option<&'static str> {
    verdict.err().map(|violation| violation.property)
}

#[test]
fn a_term_has_one_leader() {
    let mut leaders = BTreeMap::new();
    assert_eq!(property(check_leader(&mut leaders, Term(1), N1)), None);
    assert_eq!(property(check_leader(&mut leaders, Term(1), N1)), None, "itself, again");
    assert_eq!(property(check_leader(&mut leaders, Term(2), N2)), None, "another term");
    assert_eq!(property(check_leader(&mut leaders, Term(1), N2)), Some("one-leader-per-term"));
}

#[test]
fn whoever_applied_as_much_is_in_the_same_state() {
    let mut states = BTreeMap::new();
    assert_eq!(property(check_state(&mut states, N1, 1, 7)), None);
    assert_eq!(property(check_state(&mut states, N2, 1, 7)), None);
    assert_eq!(property(check_state(&mut states, N2, 2, 8)), None);
    assert_eq!(property(check_state(&mut states, N1, 2, 9)), Some("state-machine-safety"));
}

#[test]
fn one_place_holds_one_entry_after_one_other_where_logs_are_chains() {
    let at = |value, before: u64| Placed { value, before: Some(Term(before)) };
    let behind_a_hole = Placed { value: 7, before: None };
    let compare =
        |rules: Rules, theirs| property(rules.check_same_entry(N1, Lsn::new(2, 2), at(7, 1), ("n2 does", theirs)));
    assert_eq!(compare(in_order(), at(7, 1)), None);
    assert_eq!(compare(in_order(), behind_a_hole), None, "what stands before it is not known");
    assert_eq!(compare(in_order(), at(8, 1)), Some("log-matching"));
    assert_eq!(compare(in_order(), at(7, 2)), Some("log-matching"));
    assert_eq!(compare(by_slots(), at(7, 2)), None, "a slot stands alone");
    assert_eq!(compare(by_slots(), at(8, 2)), Some("log-matching"), "and holds one value of a ballot");
}

#[test]
fn a_leader_lacks_nothing_that_was_committed_before_its_reign() {
    let past = committed(&[(1, 7, 1), (2, 8, 2)]);
    let lead = |rules: Rules, term, log: &[(u64, u64)]| {
        property(rules.check_complete(N1, Term(term), &WrittenLog(log.to_vec()), &past))
    };
    assert_eq!(lead(in_order(), 3, &[(1, 7), (2, 8)]), None);
    assert_eq!(lead(in_order(), 3, &[(1, 7)]), Some("leader-completeness"));
    assert_eq!(lead(in_order(), 3, &[(1, 7), (1, 8)]), Some("leader-completeness"), "another term's entry");
    assert_eq!(lead(in_order(), 3, &[(2, 7), (2, 8)]), Some("leader-completeness"), "not only the last one counts");
    assert_eq!(lead(in_order(), 2, &[(1, 7)]), None, "what its own reign commits it need not have held before");
    assert_eq!(lead(by_slots(), 3, &[(1, 7), (1, 8)]), None, "an earlier ballot with the same value");
    assert_eq!(lead(by_slots(), 3, &[(1, 7), (2, 9)]), Some("leader-completeness"));
}

#[test]
fn nobody_commits_another_entry_where_one_was_committed() {
    let chosen = committed(&[(2, 7, 2)])[0];
    let commit = |rules: Rules, term, value| property(rules.check_agreement(N1, (Lsn::new(term, 1), value), chosen));
    assert_eq!(commit(in_order(), 2, Some(7)), None);
    assert_eq!(commit(in_order(), 3, Some(7)), Some("state-machine-safety"));
    assert_eq!(commit(by_slots(), 3, Some(7)), None);
    assert_eq!(commit(by_slots(), 3, Some(8)), Some("state-machine-safety"));
    assert_eq!(commit(by_slots(), 3, None), None, "of an unknown value nothing is said");
}

#[test]
fn what_is_committed_is_on_the_disks_of_a_quorum() {
    let membership = Membership::of_voters((1..=3).map(NodeId));
    let on = |disks: u64| property(in_order().check_on_quorum(N1, Lsn::new(1, 1), [&membership], |id| id.0 <= disks));
    assert_eq!((on(2), on(1)), (None, Some("commit-on-quorum")));
    let is_lost = |lacking: u64| in_order().is_lost(&membership, |id| id.0 <= lacking);
    assert_eq!((is_lost(1), is_lost(2)), (false, true));
}

#[test]
fn an_older_ballot_on_disk_holds_nothing_of_a_later_one() {
    let chosen = committed(&[(2, 7, 2)])[0];
    let holds = |rules: Rules, term, value| rules.is_held(&WrittenLog(vec![(term, value)]), chosen);
    assert!(holds(in_order(), 2, 7) && !holds(in_order(), 3, 7));
    assert!(holds(by_slots(), 3, 7) && !holds(by_slots(), 1, 7) && !holds(by_slots(), 3, 8));
}

#[test]
fn a_value_is_the_same_in_whatever_term_it_was_written() {
    let entry = |term, index| value_of(&Entry::blank(Lsn::new(term, index)));
    assert_eq!(entry(1, 1), entry(2, 1));
    assert_ne!(entry(1, 1), entry(1, 2));
}
