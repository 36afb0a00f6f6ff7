//! Stories of recordings that were written by hand: what processes can be made to do is told in `cargo test -p hustings --test why`.

mod clocks;
mod incidents;
mod killed;

use hustings_core::{Lsn, Role, Term};
use hustings_recorder::story::{Cause, Story};
use hustings_recorder::{Damage, Heard, Life, Mark, Note, NoteKind, Recording};
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000;

fn life(name: &str, member_id: u64, marks: Vec<(u64, Mark)>) -> Recording {
    let boot_micros = marks.first().map_or(0, |(at_micros, _)| *at_micros);
    let unix_micros = boot_micros;
    let boot_id = "one machine".to_owned();
    let life = Life { name: name.into(), member_id, boot_id, boot_micros, unix_micros, ..Life::default() };
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

/// Goal: a leader that is killed is told as killed, however long the election takes. Method: the successor sees its link end at once and
/// wins 300 ms later; or it had heard nothing for 300 ms before its link ended.
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

fn turns(from: Role, to: Role, term: u64, leader: Option<&str>, because: &str, silences: &[(&str, u64)]) -> Mark {
    let heard = |(peer, silence_micros): &(&str, u64)| Heard {
        peer: (*peer).into(),
        silence_micros: *silence_micros,
        is_linked: true,
    };
    Mark::Transition {
        from,
        to,
        term: Term(term),
        leader: leader.map(str::to_owned),
        lsn: Lsn::ZERO,
        because: because.into(),
        heard: silences.iter().map(heard).collect(),
        disk_busy_micros: 0,
    }
}

fn leads(term: u64, because: &str, silences: &[(&str, u64)]) -> Mark {
    turns(Role::Candidate, Role::Leader, term, None, because, silences)
}

fn link_ends() -> Mark {
    Mark::LinkDown { peer: "n1".into(), why: "reset".into() }
}

fn dies(peer: &str) -> Mark {
    Mark::LinkDown { peer: peer.into(), why: "its lifeline ended: its process has died".into() }
}

fn goes_down(to: Role, silence_micros: u64, is_linked: bool) -> Mark {
    let heard = vec![Heard { peer: "n1".into(), silence_micros, is_linked }];
    match turns(Role::Follower, to, 1, None, "the link to n1 went down", &[]) {
        Mark::Transition { from, to, term, leader, lsn, because, disk_busy_micros, .. } => {
            Mark::Transition { from, to, term, leader, lsn, because, heard, disk_busy_micros }
        }
        other => other,
    }
}

fn follows_n1() -> (u64, Mark) {
    (SECOND, turns(Role::Follower, Role::Follower, 1, Some("n1"), "n1 leads", &[("n1", 0)]))
}

/// The recording of n1, which leads and is killed after ten seconds: what it noted last was not written.
fn killed_leader() -> Recording {
    life("n1", 1, vec![(SECOND, leads(1, "vote won", &[])), (9_900_000, Mark::DiskRecovered)])
}

fn words(story: &Story) -> Vec<&'static str> {
    story.causes.iter().map(|cause| cause.word()).collect()
}

fn story(lives: &[Recording]) -> Story {
    Story::tell(lives, None).expect("somebody leads")
}

/// Goal: a firewall that ends connections is not told as a cut network. Method: the successor's link ends while both run, 16 ms after it
/// heard its leader, and comes up again before it leads.
#[test]
fn a_connection_that_was_ended_between_two_that_run_is_told_as_that() {
    let old = life("n1", 1, vec![(SECOND, becomes(Role::Leader, 1, 0)), (9 * SECOND, Mark::DiskRecovered)]);
    let notes = vec![
        (SECOND, Mark::DiskRecovered),
        (3_000_000, Mark::LinkDown { peer: "n1".into(), why: "its lifeline ended: its process has died".into() }),
        (3_010_000, Mark::LinkUp { peer: "n1".into() }),
        (3_016_000, becomes(Role::Leader, 2, 16_000)),
        (9 * SECOND, Mark::DiskRecovered),
    ];
    let told = story(&[old, life("n2", 2, notes)]);
    assert_eq!(words(&told), ["link-ended"]);
}

/// Goal: a killed leader is told as killed, however soon the others end after it; one that lives notes the end of its links, too.
/// Method: all three are killed within 15 ms, and a successor was elected in between. The leader's last note is older than the end of
/// its links, or younger; or the third member's link did not end, and the leader's recording was fetched before the others' were.
#[test]
fn a_kill_is_told_where_the_others_were_killed_at_once() {
    let cause = |last_note: u64, third: (u64, Mark)| {
        let old = life("n1", 1, vec![(SECOND, leads(1, "vote won", &[])), (last_note, Mark::DiskRecovered)]);
        let new = vec![
            follows_n1(),
            (3_000_000, link_ends()),
            (3_000_100, goes_down(Role::PreCandidate, 12_000, false)),
            (3_002_000, leads(2, "vote won", &[("n1", 14_000)])),
        ];
        let third = vec![follows_n1(), third, (3_006_000, Mark::DiskRecovered)];
        let told = story(&[old, life("n2", 2, new), life("n3", 3, third)]);
        (told.causes[0].word(), told.causes.len())
    };
    assert_eq!(cause(2_990_000, (3_000_050, link_ends())), ("killed", 1));
    assert_eq!(cause(3_000_020, (3_000_050, link_ends())), ("link-ended", 1));
    assert_eq!(cause(2_990_000, (3_000_050, Mark::DiskRecovered)), ("link-ended", 1));
}

/// Goal: a silence that was over explains nothing. Method: the successor missed its leader for a while, followed it again, and wins when
/// that one is paused five seconds later.
#[test]
fn only_the_last_silence_of_a_leader_counts() {
    let old = life(
        "n1",
        1,
        vec![(SECOND, leads(1, "vote won", &[])), (12 * SECOND, Mark::Late { micros: 2_400_000, waited_micros: 0 })],
    );
    let follows = turns(Role::PreCandidate, Role::Follower, 1, Some("n1"), "n1 leads", &[("n1", 0)]);
    let new = life(
        "n2",
        2,
        vec![
            (5 * SECOND, turns(Role::Follower, Role::PreCandidate, 1, None, "no leader was heard", &[("n1", SECOND)])),
            (5_500_000, follows),
            (9_900_000, turns(Role::Follower, Role::PreCandidate, 1, None, "no leader was heard", &[("n1", 300_000)])),
            (10 * SECOND, leads(2, "vote won", &[("n1", 400_000)])),
        ],
    );
    let story = story(&[old, new]);
    assert_eq!((words(&story), story.gap_micros), (vec!["paused"], 400_000), "{story:#?}");
}

/// Goal: a reign whose leader's notes are lost is told by what others noted. Method: n1 leads between two reigns of n2, and only the
/// notes of its next process are here.
#[test]
fn a_reign_whose_own_notes_are_lost_is_told() {
    let follows = turns(Role::Follower, Role::Follower, 2, Some("n1"), "n1 leads", &[]);
    let old = life("n2", 2, vec![(SECOND, leads(1, "vote won", &[])), (2 * SECOND, Mark::DiskRecovered)]);
    let third = life(
        "n3",
        3,
        vec![
            (SECOND, Mark::DiskRecovered),
            (2_100_000, follows.clone()),
            (5 * SECOND, dies("n1")),
            (9 * SECOND, Mark::DiskRecovered),
        ],
    );
    let back = life(
        "n2",
        2,
        vec![
            (3 * SECOND, follows),
            (5_010_000, leads(3, "vote won", &[("n1", 10_000)])),
            (9 * SECOND, Mark::DiskRecovered),
        ],
    );
    let again = life("n1", 1, vec![(7 * SECOND, Mark::DiskRecovered)]);
    let story = story(&[old, third, back, again]);
    let before = story.before.as_ref().expect("somebody led before");
    assert_eq!((before.leader.as_str(), before.term, words(&story)), ("n1", Term(2), vec!["killed"]), "{story:#?}");
    assert_eq!((story.after.term, story.gap_micros), (Term(3), 10_000));
}

/// Goal: what happens to a member long after it led explains nothing. Method: its disk fails 23 s after another leads.
#[test]
fn a_failure_that_comes_later_is_not_blamed() {
    let failed = Mark::Ended { why: "the disk failed".into() };
    let cause = |failed_at: u64| {
        let old = life(
            "n1",
            1,
            vec![
                (SECOND, leads(1, "vote won", &[])),
                (12 * SECOND, Mark::Late { micros: 2_400_000, waited_micros: 0 }),
                (failed_at, failed.clone()),
            ],
        );
        let new = life(
            "n2",
            2,
            vec![
                (
                    9_900_000,
                    turns(Role::Follower, Role::PreCandidate, 1, None, "no leader was heard", &[("n1", 300_000)]),
                ),
                (10 * SECOND, leads(2, "vote won", &[("n1", 400_000)])),
            ],
        );
        story(&[old, new]).causes[0].word()
    };
    assert_eq!([cause(9_600_000), cause(33 * SECOND)], ["failed", "paused"]);
}

/// Goal: a request that came to nothing is not blamed. Method: leadership should go to a member that stands still, and the leader is
/// killed three seconds later; or its successor says that it was handed over.
#[test]
fn a_request_that_came_to_nothing_is_not_blamed() {
    let cause = |because: &str| {
        let asked = Mark::Asked { what: "to hand leadership to n3".into() };
        let old = life(
            "n1",
            1,
            vec![(SECOND, leads(1, "vote won", &[])), (2 * SECOND, asked), (5 * SECOND, Mark::DiskRecovered)],
        );
        let new = life(
            "n2",
            2,
            vec![
                (SECOND, Mark::DiskRecovered),
                (5_000_100, link_ends()),
                (5_000_200, turns(Role::Follower, Role::PreCandidate, 1, None, because, &[("n1", 2_000)])),
                (5_003_000, leads(2, "vote won", &[("n1", 4_000)])),
                (9 * SECOND, Mark::DiskRecovered),
            ],
        );
        story(&[old, new]).causes[0].word()
    };
    assert_eq!([cause("the link to n1 went down"), cause("n1 hands over")], ["killed", "handed-over"]);
}

/// Goal: a member that only sees that leadership was handed over does not say why. Method: the successor's notes alone, and with the
/// leader's.
#[test]
fn a_hand_over_is_explained_by_who_did_it() {
    let old = life(
        "n1",
        1,
        vec![(SECOND, leads(1, "vote won", &[])), (2 * SECOND, Mark::Stopping), (2_100_000, Mark::DiskRecovered)],
    );
    let new = life(
        "n2",
        2,
        vec![
            (SECOND, turns(Role::Follower, Role::Follower, 1, Some("n1"), "n1 leads", &[])),
            (2_000_100, turns(Role::Follower, Role::Candidate, 2, None, "n1 hands over", &[("n1", 100)])),
            (2_003_000, leads(2, "vote won", &[("n1", 3_000)])),
            (9 * SECOND, Mark::DiskRecovered),
        ],
    );
    assert_eq!(words(&story(&[old, new.clone()])), ["stopped"]);
    let alone = story(&[new]);
    assert_eq!(words(&alone), ["gave-way"]);
    assert!(alone.sentences()[0].contains("handed over to n2; why it did so stands in its own notes"), "{alone:#?}");
}

/// Goal: a life that is read twice is one. Method: as it was in a directory, and later from the member itself.
#[test]
fn a_life_that_is_read_twice_counts_once() {
    let marks = |last: u64| vec![(2 * SECOND, leads(2, "vote won", &[("n1", 400_000)])), (last, Mark::DiskRecovered)];
    let old = life("n1", 1, vec![(SECOND, leads(1, "vote won", &[]))]);
    let lives = [life("n2", 2, marks(3 * SECOND)), old, life("n2", 2, marks(9 * SECOND))];
    let story = story(&lives);
    assert_eq!(story.before.as_ref().map(|before| before.leader.as_str()), Some("n1"), "{story:#?}");
    assert_eq!(Recording::distinct(&lives)[0].notes[1].at_micros, 9 * SECOND, "what is known last counts");
    // Containers give each of their processes the same number.
    assert_eq!(
        Recording::distinct(&[
            life("n2", 2, marks(3 * SECOND)),
            life("n2", 2, vec![(4 * SECOND, Mark::DiskRecovered)])
        ])
        .len(),
        2
    );
}

/// Goal: two clusters are two stories. Method: a member of another one leads, before and after.
#[test]
fn members_of_another_cluster_are_left_out_and_named() {
    let of = |cluster_id: u64, mut recording: Recording| {
        recording.life.cluster_id = cluster_id;
        recording
    };
    let lives = [
        of(1, life("n1", 1, vec![(SECOND, leads(7, "vote won", &[]))])),
        of(1, life("n2", 2, vec![(3 * SECOND, leads(8, "vote won", &[("n1", 400_000)]))])),
        of(2, life("n5", 5, vec![(2 * SECOND, leads(3, "vote won", &[]))])),
    ];
    let told = story(&lives);
    assert_eq!((told.before.as_ref().map(|before| before.term), told.after.term), (Some(Term(7)), Term(8)));
    assert!(
        told.left_out.contains("n5") && told.sentences().iter().any(|line| line.contains("n5 are here too")),
        "{told:#?}"
    );
    let at = 2_500_000;
    assert_eq!(Story::tell(&lives, Some(at)).map(|story| story.after.leader), Some("n5".to_owned()));
}

/// Goal: a membership that somebody knew long ago removes nobody. Method: a third member comes back and notes the voters of its time,
/// before the leader is killed.
#[test]
fn a_membership_of_one_that_was_away_removes_nobody() {
    let voters = |names: &[&str]| Mark::Membership {
        voters: names.iter().map(|name| (*name).to_owned()).collect(),
        witnesses: Vec::new(),
    };
    let all = ["n1", "n2", "n3"];
    let old = life(
        "n1",
        1,
        vec![(SECOND, voters(&all)), (SECOND, leads(1, "vote won", &[])), (5 * SECOND, Mark::DiskRecovered)],
    );
    let new = life(
        "n2",
        2,
        vec![
            (SECOND, voters(&all)),
            (5_000_100, link_ends()),
            (5_003_000, leads(2, "vote won", &[("n1", 4_000)])),
            (9 * SECOND, Mark::DiskRecovered),
        ],
    );
    let back = life("n3", 3, vec![(4_500_000, voters(&["n2", "n3"])), (9 * SECOND, Mark::DiskRecovered)]);
    assert_eq!(words(&story(&[old, new, back])), ["killed"]);
}

/// Goal: a leader that gives way because nobody answers it is not left unexplained. Method: both others stand still for two seconds.
#[test]
fn the_pause_of_all_others_is_told() {
    let alone = turns(
        Role::Leader,
        Role::Follower,
        1,
        None,
        "no quorum is heard, only {n1}",
        &[("n2", 600_000), ("n3", 600_000)],
    );
    let old = life(
        "n1",
        1,
        vec![(SECOND, leads(1, "vote won", &[])), (3 * SECOND, alone), (9 * SECOND, Mark::DiskRecovered)],
    );
    let late = Mark::Late { micros: 2_300_000, waited_micros: 0 };
    let new = life(
        "n2",
        2,
        vec![
            (SECOND, Mark::DiskRecovered),
            (4_700_000, late.clone()),
            (4_800_000, leads(2, "vote won", &[("n1", 20_000)])),
            (9 * SECOND, Mark::DiskRecovered),
        ],
    );
    let third =
        life("n3", 3, vec![(SECOND, Mark::DiskRecovered), (4_710_000, late), (9 * SECOND, Mark::DiskRecovered)]);
    let told = story(&[old, new, third]);
    assert_eq!(words(&told), ["paused", "paused"], "{told:#?}");
    assert!(told.sentences()[0].contains("the process of n2 stood still for 2.3 s"), "{told:#?}");
    assert!(told.sentences()[1].contains("n3"), "{told:#?}");
}

/// Goal: a leader that is killed while it stands still stood still until then. Method: it is missed after 400 ms, and killed after two seconds.
#[test]
fn a_pause_that_a_kill_ends_lasted_until_the_kill() {
    let old = life("n1", 1, vec![(SECOND, leads(1, "vote won", &[])), (2 * SECOND, Mark::DiskRecovered)]);
    let new = life(
        "n2",
        2,
        vec![
            (SECOND, Mark::DiskRecovered),
            (2_400_000, turns(Role::Follower, Role::PreCandidate, 1, None, "no leader was heard", &[("n1", 400_000)])),
            (4 * SECOND, link_ends()),
            (4_010_000, leads(2, "vote won", &[("n1", 2_010_000)])),
            (9 * SECOND, Mark::DiskRecovered),
        ],
    );
    let told = story(&[old, new]);
    assert_eq!(words(&told), ["paused", "killed"], "{told:#?}");
    assert!(told.sentences()[0].contains("stood still for 2.0 s"), "{told:#?}");
}

/// Goal: nobody is told to have begun to lead when another one heard of it. Method: of three members the recording of the old leader
/// alone is here; it was killed, and hears a second later, in its next life, that n2 leads.
#[test]
fn a_reign_that_only_another_one_heard_of_is_told_as_that() {
    let killed = life("n1", 1, vec![(SECOND, leads(1, "vote won", &[])), (10 * SECOND, Mark::DiskRecovered)]);
    let hears = turns(Role::Follower, Role::Follower, 2, Some("n2"), "n2 leads", &[]);
    let again = life("n1", 1, vec![(11 * SECOND, hears), (12 * SECOND, Mark::DiskRecovered)]);
    let told = story(&[killed, again]).sentences();
    assert!(told[1].starts_with("n2 leads term 2 since, at the latest, "), "{told:#?}");
    assert!(told[2].starts_with("For at most ") && told[2].ends_with(" nobody led."), "{told:#?}");
}

/// Goal: the recording of a leader that stood still is enough to tell so. Method: nothing else is here; it runs again after three seconds, and
/// hears that another one leads.
#[test]
fn a_pause_is_told_from_the_recording_of_the_one_that_paused() {
    let paused = life(
        "n1",
        1,
        vec![
            (SECOND, leads(1, "vote won", &[])),
            (13 * SECOND, Mark::Late { micros: 2_950_000, waited_micros: 0 }),
            (
                13_000_500,
                turns(Role::Leader, Role::Follower, 2, Some("n2"), "n2 is in a later term", &[("n2", 2_950_400)]),
            ),
            (19 * SECOND, Mark::DiskRecovered),
        ],
    );
    let told = story(&[paused]);
    assert_eq!((words(&told), told.gap_micros), (vec!["paused"], 2_950_500), "{told:#?}");
    assert!(told.after.is_heard_of());
    assert!(told.sentences()[2].starts_with("For at most 2.9 s"), "{:#?}", told.sentences());
}

/// Goal: damage is told. Method: the recording of a follower cannot be read in one place.
#[test]
fn a_recording_that_is_damaged_is_named() {
    let damage = Damage { offset: 7, what: "a note's checksum is wrong".to_owned() };
    let damaged = Recording { damage: vec![damage], ..killed::awake_follower(vec![]) };
    let told = story(&[killed_leader(), damaged]);
    assert_eq!(told.damaged, BTreeMap::from([("n3".to_owned(), "a note's checksum is wrong".to_owned())]));
    let says = |sentence: &String| sentence.starts_with("The recording of n3 is damaged (a note's checksum is wrong)");
    assert!(told.sentences().iter().any(says), "{:#?}", told.sentences());
}
