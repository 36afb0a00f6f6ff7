//! Tables of membership changes: simple, joint, left again; and that the two ways to the same goal agree.
//!
//! Steps are written as in etcd/raft's confchange suites: `v1` makes n1 a voter, `l1` a learner, `r1` removes it, `u1`
//! describes it anew. Sources: Raft §6, dissertation §4.3; rules RM-4, RM-6, RM-9.

use hustings_core::{Change, Member, Membership, MembershipChange, MembershipRefusal, NodeId, Passage, Wire};
use hustings_stage::arbitrary::{membership, steps, steps_text};
use proptest::prelude::*;

fn voters(ids: &[u64]) -> Membership {
    Membership::of_voters(ids.iter().copied().map(NodeId))
}

/// `voters | outgoing / learners > learners_next`, as numbers, with `!` when it leaves by itself.
fn shape(membership: &Membership) -> String {
    let numbers =
        |ids: &std::collections::BTreeSet<NodeId>| ids.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(" ");
    let mut text = numbers(&membership.voters);
    for (mark, ids) in
        [(" | ", &membership.outgoing), (" / ", &membership.learners), (" > ", &membership.learners_next)]
    {
        if !ids.is_empty() {
            text += mark;
            text += &numbers(ids);
        }
    }
    if membership.auto_leave {
        text += " !";
    }
    text
}

fn simple(from: &Membership, text: &str) -> Result<Membership, MembershipRefusal> {
    from.after_simple(&steps(text)).map_err(|error| error.kind)
}

fn enter(from: &Membership, text: &str) -> Result<Membership, MembershipRefusal> {
    from.after_entering(&steps(text), false).map_err(|error| error.kind)
}

fn leave(from: &Membership) -> Result<Membership, MembershipRefusal> {
    from.after_leaving().map_err(|error| error.kind)
}

/// Makes simple changes one after the other and compares the shape after each.
fn follow(start: &Membership, rows: &[(&str, Result<&str, MembershipRefusal>)]) {
    let mut now = start.clone();
    for (text, expected) in rows {
        let next = simple(&now, text);
        let found = next.as_ref().map(shape).map_err(|refusal| *refusal);
        assert_eq!(found, expected.map(str::to_string), "`{text}` from {}", shape(&now));
        now = next.unwrap_or(now);
    }
}

#[test]
fn doing_a_simple_change_twice_is_doing_it_once() {
    // `simple_idempotency`.
    let rows = [
        ("v1", Ok("1")),
        ("v2", Ok("1 2")),
        ("v2", Ok("1 2")),
        ("l1", Ok("2 / 1")),
        ("l1", Ok("2 / 1")),
        ("r1", Ok("2")),
        ("r1", Ok("2")),
        ("v3", Ok("2 3")),
        ("r3", Ok("2")),
        ("r3", Ok("2")),
        ("r4", Ok("2")),
    ];
    follow(&voters(&[1]), &rows);
}

#[test]
fn one_step_may_promote_and_demote_the_same_node() {
    // `simple_promote_demote`: what counts is the difference between before and after.
    let rows = [
        ("l1 v1", Ok("1 2 3")),
        ("v1 l1", Ok("2 3 / 1")),
        ("l1 v1", Ok("1 2 3")),
        ("r2 v2 l2", Ok("1 3 / 2")),
        // One up and one down are two.
        ("v2 l3", Err(MembershipRefusal::NotSimple)),
        ("v2 r2", Ok("1 3")),
    ];
    follow(&voters(&[1, 2, 3]), &rows);
}

#[test]
fn a_simple_change_moves_one_voter_and_leaves_one() {
    // `simple_safety`.
    let rows = [
        ("r1", Err(MembershipRefusal::NoVoters)),
        ("l1", Err(MembershipRefusal::NoVoters)),
        ("v2 v3", Err(MembershipRefusal::NotSimple)),
        ("r1 v5", Err(MembershipRefusal::NotSimple)),
        ("v2", Ok("1 2")),
        ("v3", Ok("1 2 3")),
        ("r2 r3", Err(MembershipRefusal::NotSimple)),
        ("r1 r2 r3", Err(MembershipRefusal::NoVoters)),
        ("r1 v4", Err(MembershipRefusal::NotSimple)),
        // Learners decide nothing, so any number of them may change.
        ("l4 l5 l6", Ok("1 2 3 / 4 5 6")),
        ("r4 r5 l7", Ok("1 2 3 / 6 7")),
        ("l3 r6 l8", Ok("1 2 / 3 7 8")),
    ];
    follow(&voters(&[1]), &rows);
}

#[test]
fn describing_a_member_changes_no_quorum() {
    // `update`: also while joint; a description of nobody is forgotten.
    let three = voters(&[1, 2, 3]);
    let described = simple(&three, "u2 u9").expect("it changes no quorum");
    assert_eq!(shape(&described), "1 2 3");
    assert_eq!((described.name_of(NodeId(2)), described.members.len()), ("described 2".into(), 3));
    let joint = enter(&three, "v4").expect("one at a time");
    let described = simple(&joint, "u4").expect("it changes no quorum");
    assert_eq!((shape(&described), described.name_of(NodeId(4))), ("1 2 3 4 | 1 2 3".into(), "described 4".into()));
}

#[test]
fn a_joint_change_can_be_repeated_within_itself() {
    // `joint_idempotency`, with its given result.
    let joint = enter(&voters(&[1]), "r1 r2 r9 v2 v3 v4 v2 v3 v4 l2 l2 r4 r4 l1 l1").expect("n3 is left to vote");
    assert_eq!(shape(&joint), "3 | 1 / 2 > 1");
    assert_eq!(shape(&leave(&joint).expect("it is joint")), "3 / 1 2");
}

#[test]
fn a_demoted_voter_votes_until_the_joint_change_is_left() {
    // `joint_learners_next`.
    let joint = enter(&voters(&[1]), "v2 l1").expect("n2 is left to vote");
    assert_eq!(shape(&joint), "2 | 1 > 1");
    assert!(joint.is_voter(NodeId(1)) && !joint.is_learner(NodeId(1)));
    assert_eq!(shape(&leave(&joint).expect("it is joint")), "2 / 1");
    // Taken back, or gone altogether, before it is left.
    let back = enter(&voters(&[1, 2]), "l1 v1").expect("both are left to vote");
    assert_eq!(shape(&back), "1 2 | 1 2");
    let gone = enter(&voters(&[1, 2]), "l1 r1").expect("n2 is left to vote");
    assert_eq!(shape(&leave(&gone).expect("it is joint")), "2");
}

#[test]
fn what_leaves_by_itself_says_so_until_it_has_left() {
    // `joint_autoleave`.
    let joint = voters(&[1]).after_entering(&steps("v2 v3"), true).expect("all fine");
    assert_eq!(shape(&joint), "1 2 3 | 1 !");
    assert_eq!(shape(&leave(&joint).expect("it is joint")), "1 2 3");
}

#[test]
fn a_joint_change_is_entered_once_left_once_and_never_without_voters() {
    // `joint_safety`.
    let one = voters(&[1]);
    assert_eq!(leave(&one), Err(MembershipRefusal::NotJoint));
    assert_eq!(enter(&Membership::default(), "v1"), Err(MembershipRefusal::NoVoters));
    assert_eq!(enter(&one, "r1"), Err(MembershipRefusal::NoVoters));
    let joint = enter(&one, "v2 v3").expect("all fine");
    assert_eq!(enter(&joint, "v4"), Err(MembershipRefusal::AlreadyJoint));
    assert_eq!(enter(&joint, ""), Err(MembershipRefusal::AlreadyJoint));
    assert_eq!(simple(&joint, "v4"), Err(MembershipRefusal::AlreadyJoint));
    assert_eq!(simple(&joint, "l4"), Err(MembershipRefusal::AlreadyJoint));
    let left = leave(&joint).expect("it is joint");
    assert_eq!(leave(&left), Err(MembershipRefusal::NotJoint));
    // A joint change of nothing is one all the same.
    assert_eq!(enter(&one, "").map(|joint| shape(&joint)), Ok("1 | 1".into()));
}

#[test]
fn the_passage_decides_how_steps_are_taken() {
    let change = |text: &str, passage| MembershipChange { steps: steps(text), passage };
    let rows = [
        ("v4", Passage::Auto, Ok("1 2 3 4")),
        ("v4 u4", Passage::Auto, Ok("1 2 3 4")),
        ("v4 v5", Passage::Auto, Ok("1 2 3 4 5 | 1 2 3 !")),
        ("v4", Passage::JointImplicit, Ok("1 2 3 4 | 1 2 3 !")),
        ("v4", Passage::JointExplicit, Ok("1 2 3 4 | 1 2 3")),
        ("", Passage::Leave, Err(MembershipRefusal::NotJoint)),
        ("", Passage::Auto, Ok("1 2 3")),
    ];
    for (text, passage, expected) in rows {
        let next = voters(&[1, 2, 3]).after(&change(text, passage));
        let next = next.map(|next| shape(&next)).map_err(|error| error.kind);
        assert_eq!(next, expected.map(str::to_string), "`{text}` by {passage:?}");
    }
}

#[test]
fn nobody_is_number_zero() {
    // `zero`: etcd skips a step for node 0; ours cannot be written down, so it never reaches a log.
    for step in [Change::AddVoter(NodeId(0)), Change::AddLearner(NodeId(0)), Change::Remove(NodeId(0))] {
        let bytes = MembershipChange::of([step.clone()]).to_bytes();
        assert!(MembershipChange::decode(bytes).is_err(), "{step:?}");
    }
}

#[test]
fn names_live_as_long_as_their_members_and_ids_are_never_given_twice() {
    let three = voters(&[1, 2, 3]);
    let next = simple(&three, "r3").expect("one voter");
    assert_eq!((next.members.len(), next.next_id), (2, 4));
    let joint = enter(&three, "r3").expect("two are left");
    assert!(joint.members.contains_key(&NodeId(3)), "an outgoing voter must be reached");
    assert!(!leave(&joint).expect("it is joint").members.contains_key(&NodeId(3)));
}

/// The part on which both ways must agree. Names are left out: of a member that is removed and added again in one joint
/// change the name is kept, since it never was a stranger in between.
fn without_names(mut membership: Membership) -> Membership {
    membership.members.values_mut().for_each(|member| *member = Member::default());
    membership
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// n1 is always a voter; the steps concern n2 to n10.
    #[test]
    fn one_by_one_and_jointly_lead_to_the_same_membership(
        before in steps_text(2..=10, 0..12),
        change in steps_text(2..=10, 0..12),
        auto_leave: bool,
    ) {
        let one_by_one = |start: Membership, text: &str| {
            steps(text).into_iter().fold(start, |now, step| {
                now.after_simple(&[step]).expect("n1 stays a voter, and one voter at most changes")
            })
        };
        let start = one_by_one(voters(&[1]), &before);
        let slowly = one_by_one(start.clone(), &change);
        let joint = start.after_entering(&steps(&change), auto_leave).expect("n1 stays a voter");
        prop_assert_eq!(&joint.outgoing, &start.voters);
        let at_once = joint.after_leaving().expect("it is joint");
        prop_assert_eq!(without_names(slowly), without_names(at_once), "from {} by `{}`", shape(&start), change);
    }

    #[test]
    fn a_membership_survives_being_written_down(membership in membership()) {
        membership.assert_invariants();
        prop_assert_eq!(Membership::decode(membership.to_bytes()), Ok(membership));
    }

    /// RI-16: two memberships that follow each other always share a voter in any two quorums.
    #[test]
    fn adjacent_memberships_have_quorums_that_meet(before in membership(), text in steps_text(1..=10, 0..6), votes: u64) {
        let passages = [Passage::Auto, Passage::JointExplicit, Passage::Leave];
        for passage in passages {
            let Ok(after) = before.after(&MembershipChange { steps: steps(&text), passage }) else { continue };
            // A voter of the one does not vote in the other: then not both can win.
            let vote = |id: NodeId| votes >> id.0 & 1 == 1;
            let both = before.verdict(|id| Some(vote(id))) == hustings_core::quorum::Verdict::Won
                && after.verdict(|id| Some(!vote(id))) == hustings_core::quorum::Verdict::Won;
            prop_assert!(!both, "{} and {} decide apart", shape(&before), shape(&after));
        }
    }
}

#[test]
fn four_memberships_of_note_survive_being_written_down() {
    // RI-18: plain, with learners, joint, joint with one that waits to become a learner.
    let plain = voters(&[1, 2, 3]);
    let learners = simple(&plain, "l4 l5").expect("learners");
    let joint = enter(&learners, "r1 v4 v6").expect("joint");
    let waiting = enter(&learners, "l3 r2 v9").expect("joint");
    for membership in [plain, learners, joint, waiting] {
        assert_eq!(Membership::decode(membership.to_bytes()), Ok(membership.clone()), "{}", shape(&membership));
    }
}

#[test]
fn names_and_addresses_that_no_header_could_hold_are_refused() {
    // Goal: every snapshot and every greeting carries the membership. Method: one huge address; many; very many members.
    let refusal = |membership: &Membership, id: u64, peer_urls: Vec<String>| {
        let member = Member { peer_urls, ..Member::default() };
        let change = MembershipChange::of([Change::AddLearner(NodeId(id)), Change::Describe(NodeId(id), member)]);
        membership.refusal_of(&change, |_| true).map(|error| error.kind)
    };
    let three = voters(&[1, 2, 3]);
    let too_large = Some(MembershipRefusal::TooLarge);
    assert_eq!(refusal(&three, 4, vec!["x".repeat(1_400_000)]), too_large);
    assert_eq!(refusal(&three, 4, (0..17).map(|number| format!("http://h:{number}")).collect()), too_large);
    assert_eq!(refusal(&three, 4, vec!["http://h:1".into()]), None);

    let mut membership = three;
    let urls =
        |id: u64| (0..16).map(|number| format!("http://{id}.{number}.{}:1", "h".repeat(480))).collect::<Vec<_>>();
    while refusal(&membership, membership.next_id, urls(membership.next_id)).is_none() {
        let id = NodeId(membership.next_id);
        let member = Member { peer_urls: urls(id.0), ..Member::default() };
        let change = MembershipChange::of([Change::AddLearner(id), Change::Describe(id, member)]);
        membership = membership.after(&change).expect("it is admitted");
        assert!(membership.to_bytes().len() <= 24 << 10, "two of them fit in a greeting");
    }
    assert_eq!(refusal(&membership, membership.next_id, urls(membership.next_id)), too_large);
    let smaller = MembershipChange::of([Change::Remove(NodeId(4))]);
    assert_eq!(membership.refusal_of(&smaller, |_| true), None, "there is a way back");
}

#[test]
fn ids_are_given_out_one_after_the_other() {
    // Goal: no id is so high that none comes after it. Method: three members, so the next is 4.
    let members = Membership::of_voters((1..=3).map(NodeId));
    let refused = |ids: &[u64]| {
        let change = MembershipChange::of(ids.iter().map(|id| Change::AddLearner(NodeId(*id))));
        members.refusal_of(&change, |_| true).map(|error| error.kind)
    };
    assert_eq!((refused(&[4]), refused(&[4, 5])), (None, None));
    for ids in [&[5][..], &[4, 6], &[5, 4], &[u64::from(u32::MAX)], &[u64::MAX]] {
        assert_eq!(refused(ids), Some(MembershipRefusal::Taken), "{ids:?}");
    }
    // A change in the log is applied, however absurd, and never ends a node.
    let absurd = MembershipChange::of([Change::AddLearner(NodeId(u64::MAX))]);
    assert_eq!(members.after(&absurd).map_err(|error| error.kind), Err(MembershipRefusal::Taken));
}

/// n1 to n`voters`, of which the last `witnesses` are witnesses.
fn with_witnesses(voters: u64, witnesses: u64) -> Membership {
    let mut membership = Membership::of_voters((1..=voters).map(NodeId));
    let last = membership.members.values_mut().rev().take(witnesses as usize);
    last.for_each(|member| member.is_witness = true);
    membership
}

#[test]
fn witnesses_stay_fewer_than_half_of_the_voters() {
    // Goal: whatever decides includes a member that holds the state, also the half that suffices Paxos. Method: every way to shrink
    // the others, and to add one more.
    let refused = Err(MembershipRefusal::Witness);
    let kind = |from: &Membership, text: &str| simple(from, text).map(|next| shape(&next));
    let three = with_witnesses(3, 1);
    assert_eq!(kind(&three, "r1"), refused, "removed");
    assert_eq!(kind(&three, "l1"), refused, "demoted");
    assert_eq!(enter(&three, "r1 r2 v4").map(drop), refused.clone().map(drop), "through a joint change");
    assert_eq!(kind(&three, "r3"), Ok("1 2".into()), "the witness may go");
    assert_eq!(kind(&three, "v4"), Ok("1 2 3 4".into()));
    let five = with_witnesses(5, 2);
    assert_eq!(kind(&five, "r1"), refused, "two of four suffice Paxos, and would be witnesses");
    assert_eq!(kind(&five, "r5"), Ok("1 2 3 4".into()));
    // As a learner one more is nobody's half; as a voter it is.
    let witness = Member { is_witness: true, ..Member::default() };
    let added =
        three.after(&MembershipChange::of([Change::AddLearner(NodeId(4)), Change::Describe(NodeId(4), witness)]));
    let added = added.expect("it only listens");
    assert_eq!(simple(&added, "v4").map(drop), refused.map(drop));
}

#[test]
fn a_member_stays_what_it_was_added_as() {
    let three = with_witnesses(3, 1);
    let described = |id: u64, is_witness: bool| {
        let member = Member { is_witness, ..three.members[&NodeId(id)].clone() };
        three.after(&MembershipChange::of([Change::Describe(NodeId(id), member)])).map(drop).map_err(|error| error.kind)
    };
    assert_eq!(described(1, false), Ok(()));
    assert_eq!(described(3, true), Ok(()));
    assert_eq!(described(1, true), Err(MembershipRefusal::Witness), "it would forget its state");
    assert_eq!(described(3, false), Err(MembershipRefusal::Witness), "it has none");
}
