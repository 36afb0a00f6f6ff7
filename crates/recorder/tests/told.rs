//! Stories of recordings that were written by hand: what processes can be made to do is told in `cargo test -p hustings --test why`.

use hustings_core::{Lsn, Role, Term};
use hustings_recorder::story::Story;
use hustings_recorder::{Heard, Life, Mark, Note, NoteKind, Recording};

const SECOND: u64 = 1_000_000;

fn life(name: &str, member_id: u64, marks: Vec<(u64, Mark)>) -> Recording {
    let boot_micros = marks.first().map_or(0, |(at_micros, _)| *at_micros);
    let life = Life { name: name.into(), member_id, boot_id: "one machine".into(), boot_micros, ..Life::default() };
    let note = |(at_micros, mark)| Note { at_micros, kind: NoteKind::Mark(mark) };
    Recording { life, notes: marks.into_iter().map(note).collect(), damage: Vec::new() }
}

fn becomes(to: Role, term: u64, silence_micros: u64) -> Mark {
    let heard = Heard { peer: "n1".into(), silence_micros, is_linked: true };
    Mark::Transition {
        from: Role::Follower,
        to,
        term: Term(term),
        leader: None,
        lsn: Lsn::ZERO,
        because: "vote won".into(),
        heard: vec![heard],
        disk_busy_micros: 0,
    }
}

/// The verdict on a leader that noted these times of lateness, each with how much of it its thread had waited, in milliseconds.
fn told(late: &[(u64, u64)]) -> &'static str {
    let end = 12 * SECOND;
    let mark = |(micros, waited): &(u64, u64)| Mark::Late { micros: micros * 1_000, waited_micros: waited * 1_000 };
    let mut old = vec![(SECOND, becomes(Role::Leader, 1, 0))];
    old.extend(late.iter().map(|late| (end, mark(late))));
    let new = vec![
        (11_900_000, becomes(Role::PreCandidate, 1, 700_000)),
        (11_950_000, becomes(Role::Leader, 2, 750_000)),
        (end + 1, Mark::DiskRecovered),
    ];
    let story = Story::tell(&[life("n1", 1, old), life("n2", 2, new)], None).expect("somebody leads");
    assert_eq!((story.after.leader.as_str(), story.causes.len()), ("n2", 1), "{story:#?}");
    story.causes[0].word()
}

/// Goal: a stall that is noted twice is told as what it was. Method: the first note has its thread's waiting, and the second is longer.
#[test]
fn a_stall_that_is_noted_twice_is_told_once() {
    assert_eq!(told(&[(790, 780)]), "starved");
    assert_eq!(told(&[(780, 760), (800, 5)]), "starved");
    assert_eq!(told(&[(780, 5), (800, 1)]), "paused");
}

/// Goal: one that lived through it shows that the power was not lost. Method: the leader ends, soon after another member did, and that
/// one leads when it is back; the third notes something until then, or began anew as well.
#[test]
fn members_that_end_one_after_the_other_did_not_lose_their_power() {
    let cause = |third: Vec<Recording>| {
        let mut lives = vec![
            life("n1", 1, vec![(SECOND, becomes(Role::Leader, 1, 0))]),
            life("n1", 1, vec![(3 * SECOND, Mark::DiskRecovered)]),
            life("n2", 2, vec![(960_000, Mark::DiskRecovered)]),
            life("n2", 2, vec![(1_050_000, Mark::DiskRecovered), (1_500_000, becomes(Role::Leader, 2, 100_000))]),
        ];
        lives.extend(third);
        Story::tell(&lives, None).expect("somebody leads").causes[0].word()
    };
    let (before, after) = ((900_000, Mark::DiskRecovered), (1_510_000, Mark::DiskRecovered));
    assert_eq!(cause(vec![life("n3", 3, vec![before.clone(), after.clone()])]), "killed");
    assert_eq!(cause(vec![life("n3", 3, vec![before]), life("n3", 3, vec![after])]), "power-lost");
}

/// Goal: whoever is killed is told as killed, however long the election takes. Method: the successor sees its link end at once and wins
/// 300 ms later; or it had heard nothing for 300 ms before its link ended.
#[test]
fn an_election_that_takes_long_makes_no_pause_of_a_kill() {
    let link_ends = Mark::LinkDown { peer: "n1".into(), why: "closed by the peer".into() };
    let causes = |link_ends_at: u64| {
        let old = life("n1", 1, vec![(SECOND, becomes(Role::Leader, 1, 0)), (2 * SECOND, Mark::DiskRecovered)]);
        let mut notes = vec![
            (link_ends_at, link_ends.clone()),
            (2_300_000, becomes(Role::Leader, 2, 300_000)),
            (9 * SECOND, Mark::DiskRecovered),
        ];
        notes.insert(0, (SECOND, Mark::DiskRecovered));
        let story = Story::tell(&[old, life("n2", 2, notes)], None).expect("somebody leads");
        story.causes.iter().map(|cause| cause.word()).collect::<Vec<_>>()
    };
    assert_eq!(causes(2_000_300), ["killed"]);
    assert_eq!(causes(2_290_000), ["paused", "killed"]);
}
