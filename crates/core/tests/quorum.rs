//! Tables of quorums: what is committed and who has won, for majorities and for joint majorities.
//!
//! The shapes are those of etcd/raft's quorum suites: empty, 1, 2, 3, 4, 5 and 7 voters; halves that are disjoint, overlap in
//! one or two, are identical or empty. The expected results were worked out by hand; each row is checked once more in ways
//! that need no table: counting by hand, the other order of the halves, a half beside itself or nothing, and lowering.

use hustings_core::quorum::{Verdict, joint_reached, joint_verdict, majority_reached, majority_verdict};
use std::collections::{BTreeMap, BTreeSet};

/// Voters in the incoming and the outgoing half, acknowledged indices of all in the order of their ids, and the result.
type CommitRow = (&'static [u64], &'static [u64], &'static [u64], u64);

/// Nothing holds an empty group back.
const ALL: u64 = u64::MAX;

const MAJORITY_COMMITS: [CommitRow; 27] = [
    (&[], &[], &[], ALL),
    // One decides alone.
    (&[1], &[], &[0], 0),
    (&[1], &[], &[12], 12),
    // Two: both are needed, so the lower one counts.
    (&[1, 2], &[], &[0, 0], 0),
    (&[1, 2], &[], &[12, 0], 0),
    (&[1, 2], &[], &[12, 5], 5),
    (&[1, 2], &[], &[5, 5], 5),
    // Three: the middle one.
    (&[1, 2, 3], &[], &[0, 0, 0], 0),
    (&[1, 2, 3], &[], &[12, 0, 0], 0),
    (&[1, 2, 3], &[], &[12, 5, 0], 5),
    (&[1, 2, 3], &[], &[12, 5, 6], 6),
    (&[1, 2, 3], &[], &[5, 5, 5], 5),
    (&[1, 2, 3], &[], &[100, 101, 103], 101),
    (&[1, 2, 3], &[], &[101, 101, 103], 101),
    // Four: the second lowest, for three must have it.
    (&[1, 2, 3, 4], &[], &[0, 0, 0, 0], 0),
    (&[1, 2, 3, 4], &[], &[9, 9, 0, 0], 0),
    (&[1, 2, 3, 4], &[], &[1, 2, 3, 4], 2),
    (&[1, 2, 3, 4], &[], &[103, 103, 103, 104], 103),
    // Five: the middle one.
    (&[1, 2, 3, 4, 5], &[], &[5, 5, 0, 0, 0], 0),
    (&[1, 2, 3, 4, 5], &[], &[1, 2, 3, 4, 5], 3),
    (&[1, 2, 3, 4, 5], &[], &[101, 103, 103, 104, 0], 103),
    // Seven: the middle one; ids need not be neighbours.
    (&[1, 2, 3, 4, 5, 6, 7], &[], &[1, 2, 3, 4, 5, 6, 7], 4),
    (&[1, 2, 3, 4, 5, 6, 7], &[], &[9, 9, 9, 9, 0, 0, 0], 9),
    (&[1, 2, 3, 4, 5, 6, 7], &[], &[9, 9, 9, 1, 0, 0, 0], 1),
    (&[3, 9, 27], &[], &[7, 0, 8], 7),
    // More than are counted without an allocation.
    (
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17],
        &[],
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17],
        9,
    ),
    (
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        &[],
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        8,
    ),
];

const JOINT_COMMITS: [CommitRow; 36] = [
    (&[], &[1], &[5], 5),
    (&[], &[1, 2, 3], &[1, 2, 3], 2),
    // One beside one: the lower.
    (&[1], &[2], &[0, 0], 0),
    (&[1], &[2], &[0, 9], 0),
    (&[1], &[2], &[5, 9], 5),
    (&[1], &[2], &[5, 5], 5),
    (&[1], &[1], &[5], 5),
    (&[1], &[1, 2], &[9, 3], 3),
    (&[1, 2], &[1], &[9, 3], 3),
    (&[1, 2], &[1], &[3, 9], 3),
    (&[1, 2], &[3, 4], &[9, 9, 3, 4], 3),
    (&[1, 2], &[3, 4], &[9, 9, 9, 0], 0),
    (&[1, 2], &[2, 3], &[4, 9, 6], 4),
    // Disjoint halves of three.
    (&[1, 2, 3], &[4, 5, 6], &[0, 0, 0, 0, 0, 0], 0),
    (&[1, 2, 3], &[4, 5, 6], &[12, 0, 0, 12, 0, 0], 0),
    (&[1, 2, 3], &[4, 5, 6], &[1, 2, 3, 4, 5, 6], 2),
    (&[1, 2, 3], &[4, 5, 6], &[5, 5, 0, 9, 9, 0], 5),
    (&[1, 2, 3], &[4, 5, 6], &[5, 5, 5, 0, 0, 9], 0),
    (&[1, 2, 3], &[4, 5, 6], &[5, 0, 0, 9, 9, 9], 0),
    // They share one.
    (&[1, 2, 3], &[3, 4, 5], &[1, 2, 3, 4, 5], 2),
    (&[1, 2, 3], &[3, 4, 5], &[9, 9, 0, 0, 0], 0),
    (&[1, 2, 3], &[3, 4, 5], &[9, 0, 9, 9, 0], 9),
    (&[1, 2, 3], &[3, 4, 5], &[9, 9, 1, 1, 1], 1),
    // They share two: those two are enough for both.
    (&[1, 2, 3], &[2, 3, 4], &[0, 7, 7, 0], 7),
    (&[1, 2, 3], &[2, 3, 4], &[7, 7, 0, 7], 7),
    (&[1, 2, 3], &[2, 3, 4], &[7, 0, 0, 7], 0),
    (&[1, 2, 3], &[2, 3, 4], &[1, 2, 3, 4], 2),
    (&[1, 2, 3], &[1, 2, 3], &[1, 2, 3], 2),
    // Different sizes.
    (&[1, 2, 3, 4], &[5, 6, 7], &[1, 2, 3, 4, 9, 9, 0], 2),
    (&[1, 2, 3, 4, 5], &[1], &[9, 1, 2, 3, 4], 3),
    (&[1], &[1, 2, 3, 4, 5], &[9, 1, 2, 3, 4], 3),
    (&[1], &[1, 2, 3, 4, 5], &[2, 9, 9, 9, 9], 2),
    (&[1, 2, 3, 4, 5], &[3, 4, 5, 6, 7], &[5, 4, 3, 2, 1, 9, 9], 3),
    (&[1, 2, 3, 4, 5], &[6, 7], &[5, 4, 3, 2, 1, 9, 2], 2),
    (&[1, 2, 3, 4, 5, 6, 7], &[1, 2, 3, 4, 5], &[1, 2, 3, 4, 5, 6, 7], 3),
    (&[1, 2, 3, 4, 5, 6, 7], &[5, 6, 7], &[9, 9, 9, 9, 0, 4, 5], 4),
];

/// Voters in both halves, their votes in the order of ids (`y`, `n`, `_` for none), and the result.
type VoteRow = (&'static [u64], &'static [u64], &'static str, Verdict);

use Verdict::{Lost, Pending, Won};

const MAJORITY_VOTES: [VoteRow; 38] = [
    // Nobody to object.
    (&[], &[], "", Won),
    (&[1], &[], "_", Pending),
    (&[1], &[], "y", Won),
    (&[1], &[], "n", Lost),
    // Two: a single no decides.
    (&[1, 2], &[], "__", Pending),
    (&[1, 2], &[], "y_", Pending),
    (&[1, 2], &[], "n_", Lost),
    (&[1, 2], &[], "yy", Won),
    (&[1, 2], &[], "ny", Lost),
    (&[1, 2], &[], "nn", Lost),
    (&[1, 2, 3], &[], "___", Pending),
    (&[1, 2, 3], &[], "y__", Pending),
    (&[1, 2, 3], &[], "n__", Pending),
    (&[1, 2, 3], &[], "yy_", Won),
    (&[1, 2, 3], &[], "yn_", Pending),
    (&[1, 2, 3], &[], "nn_", Lost),
    (&[1, 2, 3], &[], "yyn", Won),
    (&[1, 2, 3], &[], "ynn", Lost),
    (&[1, 2, 3], &[], "yyy", Won),
    (&[1, 2, 3], &[], "nnn", Lost),
    // Four: half is not enough, and half against is.
    (&[1, 2, 3, 4], &[], "yy__", Pending),
    (&[1, 2, 3, 4], &[], "nn__", Lost),
    (&[1, 2, 3, 4], &[], "yyn_", Pending),
    (&[1, 2, 3, 4], &[], "yyy_", Won),
    (&[1, 2, 3, 4], &[], "yynn", Lost),
    (&[1, 2, 3, 4, 5], &[], "yy___", Pending),
    (&[1, 2, 3, 4, 5], &[], "yyy__", Won),
    (&[1, 2, 3, 4, 5], &[], "nnn__", Lost),
    (&[1, 2, 3, 4, 5], &[], "yynn_", Pending),
    (&[1, 2, 3, 4, 5], &[], "yynny", Won),
    (&[1, 2, 3, 4, 5], &[], "yynnn", Lost),
    (&[1, 2, 3, 4, 5, 6, 7], &[], "yyy____", Pending),
    (&[1, 2, 3, 4, 5, 6, 7], &[], "yyyy___", Won),
    (&[1, 2, 3, 4, 5, 6, 7], &[], "nnnn___", Lost),
    (&[1, 2, 3, 4, 5, 6, 7], &[], "yyynnn_", Pending),
    (&[1, 2, 3, 4, 5, 6, 7], &[], "yyynnny", Won),
    (&[1, 2, 3, 4, 5, 6, 7], &[], "yyynnnn", Lost),
    (&[1, 2, 3, 4, 5, 6, 7], &[], "nnnyyy_", Pending),
];

const JOINT_VOTES: [VoteRow; 51] = [
    (&[], &[1], "_", Pending),
    (&[], &[1], "y", Won),
    (&[], &[1], "n", Lost),
    (&[1], &[1], "_", Pending),
    (&[1], &[1], "y", Won),
    (&[1], &[1], "n", Lost),
    (&[1], &[2], "__", Pending),
    (&[1], &[2], "y_", Pending),
    (&[1], &[2], "yy", Won),
    (&[1], &[2], "n_", Lost),
    (&[1], &[2], "_n", Lost),
    (&[1], &[2], "yn", Lost),
    (&[1], &[1, 2], "y_", Pending),
    (&[1], &[1, 2], "yy", Won),
    (&[1], &[1, 2], "yn", Lost),
    (&[1], &[1, 2], "n_", Lost),
    (&[1], &[1, 2], "_n", Lost),
    (&[1, 2], &[3, 4], "yy__", Pending),
    (&[1, 2], &[3, 4], "yyyy", Won),
    (&[1, 2], &[3, 4], "y_n_", Lost),
    // Disjoint: each half must be won, and one lost half loses, whatever the other says.
    (&[1, 2, 3], &[4, 5, 6], "yy_yy_", Won),
    (&[1, 2, 3], &[4, 5, 6], "yy____", Pending),
    (&[1, 2, 3], &[4, 5, 6], "yy_nn_", Lost),
    (&[1, 2, 3], &[4, 5, 6], "nn____", Lost),
    (&[1, 2, 3], &[4, 5, 6], "y__y__", Pending),
    (&[1, 2, 3], &[4, 5, 6], "yyyy__", Pending),
    (&[1, 2, 3], &[4, 5, 6], "yynyyn", Won),
    (&[1, 2, 3], &[4, 5, 6], "ynnyyy", Lost),
    (&[1, 2, 3], &[4, 5, 6], "yyynnn", Lost),
    // They share one, whose vote counts in both.
    (&[1, 2, 3], &[3, 4, 5], "__y__", Pending),
    (&[1, 2, 3], &[3, 4, 5], "y_yy_", Won),
    (&[1, 2, 3], &[3, 4, 5], "_nn__", Lost),
    (&[1, 2, 3], &[3, 4, 5], "__nn_", Lost),
    (&[1, 2, 3], &[3, 4, 5], "y_n_y", Pending),
    (&[1, 2, 3], &[3, 4, 5], "yyn_y", Pending),
    (&[1, 2, 3], &[3, 4, 5], "yynyy", Won),
    // They share two members, which can decide everything between them.
    (&[1, 2, 3], &[2, 3, 4], "_yy_", Won),
    (&[1, 2, 3], &[2, 3, 4], "_nn_", Lost),
    (&[1, 2, 3], &[2, 3, 4], "y__y", Pending),
    (&[1, 2, 3], &[2, 3, 4], "yy__", Pending),
    (&[1, 2, 3], &[2, 3, 4], "yy_y", Won),
    (&[1, 2, 3], &[2, 3, 4], "ny_n", Pending),
    (&[1, 2, 3], &[2, 3, 4], "nyn_", Lost),
    // Identical.
    (&[1, 2, 3], &[1, 2, 3], "yn_", Pending),
    (&[1, 2, 3], &[1, 2, 3], "yny", Won),
    // Different sizes.
    (&[1, 2, 3, 4], &[5], "yyy_y", Won),
    (&[1, 2, 3, 4], &[5], "yyyyn", Lost),
    (&[1, 2, 3, 4, 5], &[1, 2, 3, 4, 5, 6, 7], "yyy____", Pending),
    (&[1, 2, 3, 4, 5], &[1, 2, 3, 4, 5, 6, 7], "yyyy___", Won),
    (&[1, 2, 3, 4, 5], &[1, 2, 3, 4, 5, 6, 7], "nnyyyy_", Won),
    (&[1, 2, 3, 4, 5], &[1, 2, 3, 4, 5, 6, 7], "yyynnnn", Lost),
];

fn group(ids: &[u64]) -> BTreeSet<u64> {
    ids.iter().copied().collect()
}

fn union(incoming: &BTreeSet<u64>, outgoing: &BTreeSet<u64>) -> Vec<u64> {
    incoming.union(outgoing).copied().collect()
}

/// The largest index that more than half of a group has; by trying all.
fn by_hand(group: &BTreeSet<u64>, values: &BTreeMap<u64, u64>) -> u64 {
    let holds = |n: u64| 2 * group.iter().filter(|id| values[*id] >= n).count() > group.len();
    if group.is_empty() { ALL } else { (0..=200).rev().find(|n| holds(*n)).expect("all hold index 0") }
}

#[test]
fn what_is_committed_is_what_the_tables_say() {
    for (incoming, outgoing, indices, expected) in MAJORITY_COMMITS.into_iter().chain(JOINT_COMMITS) {
        let (one, two) = (group(incoming), group(outgoing));
        let everyone = union(&one, &two);
        assert_eq!(everyone.len(), indices.len(), "an index for each voter: {incoming:?} {outgoing:?}");
        let values: BTreeMap<u64, u64> = everyone.iter().copied().zip(indices.iter().copied()).collect();
        let place = format!("{incoming:?} and {outgoing:?} with {indices:?}");
        let reached = |values: &BTreeMap<u64, u64>| joint_reached(&one, &two, |id| values[&id]);
        assert_eq!(reached(&values), expected, "{place}");

        assert_eq!(by_hand(&one, &values).min(by_hand(&two, &values)), expected, "counted by hand: {place}");
        assert_eq!(joint_reached(&two, &one, |id| values[&id]), expected, "in the other order: {place}");
        if outgoing.is_empty() {
            assert_eq!(majority_reached(&one, |id| values[&id]), expected, "alone: {place}");
            assert_eq!(joint_reached(&one, &one, |id| values[&id]), expected, "beside itself: {place}");
        }
        // Only the acknowledgements at the result carry it: those above may fall to it, those below to nothing.
        for id in &everyone {
            let mut lowered = values.clone();
            if values[id] > expected {
                lowered.insert(*id, expected);
            } else if values[id] < expected {
                lowered.insert(*id, 0);
            }
            assert_eq!(reached(&lowered), expected, "n{id} lowered: {place}");
        }
    }
}

fn votes_of(everyone: &[u64], votes: &str) -> BTreeMap<u64, Option<bool>> {
    assert_eq!(everyone.len(), votes.len(), "a vote for each voter: {votes}");
    let vote = |letter| match letter {
        'y' => Some(true),
        'n' => Some(false),
        '_' => None,
        other => panic!("{other} is no vote"),
    };
    everyone.iter().copied().zip(votes.chars().map(vote)).collect()
}

#[test]
fn who_has_won_is_what_the_tables_say() {
    for (incoming, outgoing, letters, expected) in MAJORITY_VOTES.into_iter().chain(JOINT_VOTES) {
        let (one, two) = (group(incoming), group(outgoing));
        let everyone = union(&one, &two);
        let votes = votes_of(&everyone, letters);
        let place = format!("{incoming:?} and {outgoing:?} with {letters}");
        assert_eq!(joint_verdict(&one, &two, |id| votes[&id]), expected, "{place}");

        assert_eq!(joint_verdict(&two, &one, |id| votes[&id]), expected, "in the other order: {place}");
        if outgoing.is_empty() {
            assert_eq!(majority_verdict(&one, |id| votes[&id]), expected, "alone: {place}");
            assert_eq!(joint_verdict(&one, &one, |id| votes[&id]), expected, "beside itself: {place}");
        }
        // The silent voters decide, or nothing is left to decide.
        let all = |late: bool| joint_verdict(&one, &two, |id| votes[&id].or(Some(late)));
        match expected {
            Verdict::Pending => assert_eq!((all(true), all(false)), (Verdict::Won, Verdict::Lost), "{place}"),
            decided => assert_eq!((all(true), all(false)), (decided, decided), "{place}"),
        }
    }
}
