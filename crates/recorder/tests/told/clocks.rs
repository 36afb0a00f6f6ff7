//! Stories of clocks that were set, and of clocks that differ.

use super::killed::awake_follower;
use super::*;

/// Goal: times are told as the wall clock went last, with no second between two notes more or less. Method: a machine without a clock of
/// its own is set while its first member runs; then again while the second does.
#[test]
fn times_are_told_as_the_wall_clock_went_last() {
    const YEARS: u64 = 56 * 365 * 24 * 3_600 * SECOND;
    // As earlier builds noted it, which did not read both clocks for it.
    let set = |micros: u64| Mark::WallClock { micros: micros.cast_signed(), ahead_micros: None };
    let old = vec![(SECOND, becomes(Role::Leader, 1, 0)), (2 * SECOND, set(YEARS)), (3 * SECOND, Mark::DiskRecovered)];
    let new =
        vec![(3_100_000, becomes(Role::Leader, 2, 100_000)), (4 * SECOND, set(SECOND)), (5 * SECOND, Mark::Stopping)];
    let mut lives = vec![life("n1", 1, old), life("n2", 2, new)];
    lives[1].life.unix_micros += YEARS;
    let story = Story::tell(&lives, None).expect("somebody leads");
    let before = story.before.expect("n1 led");
    assert_eq!((before.since_micros, story.after.since_micros), (YEARS + 2 * SECOND, YEARS + 4_100_000));
    let told: Vec<u64> = story.evidence.iter().map(|evidence| evidence.at_micros).collect();
    assert!(told.is_sorted() && told.first() > Some(&YEARS), "{told:?}");

    // The life that notes it is not always the one that began last; and a file in which it goes on begins with what both clocks show then.
    let mut lives = vec![
        life(
            "n1",
            1,
            vec![(SECOND, becomes(Role::Leader, 1, 0)), (9 * SECOND, set(YEARS)), (12 * SECOND, Mark::DiskRecovered)],
        ),
        life("n2", 2, vec![(2 * SECOND, Mark::DiskRecovered), (5 * SECOND, Mark::Stopping)]),
    ];
    let since = |lives: &[Recording]| Story::tell(lives, None).expect("somebody leads").after.since_micros;
    assert_eq!(since(&lives), YEARS + SECOND);
    let read = Life { boot_micros: 10 * SECOND, unix_micros: 2 * YEARS + 10 * SECOND, ..lives[0].life.clone() };
    lives[0].notes.insert(2, Note { at_micros: 10 * SECOND, kind: NoteKind::Life(read) });
    assert_eq!(since(&lives), 2 * YEARS + SECOND);
}

/// Goal: a step counts once. Method: a member's clock is set, and before its host looks, a file begins, which shows the clock as it is;
/// then the host notes the step.
#[test]
fn a_step_that_a_new_file_shows_already_counts_once() {
    let is_set = Mark::WallClock { micros: (7 * SECOND).cast_signed(), ahead_micros: Some((7 * SECOND).cast_signed()) };
    let mut lives = vec![life("n1", 1, vec![(SECOND, becomes(Role::Leader, 1, 0)), (4_400_000, is_set)])];
    let read = Life { boot_micros: 4 * SECOND, unix_micros: 11 * SECOND, ..lives[0].life.clone() };
    lives[0].notes.insert(1, Note { at_micros: 4 * SECOND, kind: NoteKind::Life(read) });
    assert_eq!(Story::tell(&lives, None).expect("somebody leads").after.since_micros, 8 * SECOND);
}

/// What the clocks of a machine show more than the time of the story, in microseconds; the wall clock perhaps less.
#[derive(Clone, Copy)]
struct Machine {
    boot_micros: u64,
    wall_micros: i64,
}

/// Puts a recording, which was told by the time of the story, on a machine.
fn put_on(recording: &mut Recording, name: &str, Machine { boot_micros, wall_micros }: Machine) {
    recording.life.boot_id = name.to_owned();
    recording.life.unix_micros = recording.life.boot_micros.saturating_add_signed(wall_micros);
    recording.life.boot_micros += boot_micros;
    recording.notes.iter_mut().for_each(|note| note.at_micros += boot_micros);
}

/// Time that a message is under way, from the member in the first place to the one in the second, in microseconds.
type Ways = [[i64; 3]; 3];

const NEAR: Ways = [[0, 300, 400], [200, 0, 400], [200, 300, 0]];

/// A leader that is killed after ten seconds and those that see it, each on a machine of its own; after two seconds they compare clocks, or
/// nobody does.
fn lives_on(machines: [Machine; 3], ways: Option<Ways>) -> Vec<Recording> {
    let successor = awake_follower(vec![(10_010_000, leads(2, "vote won", &[("n1", 11_000)]))]);
    let mut other = awake_follower(vec![]);
    (other.life.name, other.life.member_id) = ("n2".into(), 2);
    let mut lives = vec![killed_leader(), other, successor];
    for (here, recording) in lives.iter_mut().enumerate() {
        if let Some(ways) = ways {
            let seen = |there: usize| {
                let apart = machines[here].boot_micros.cast_signed() - machines[there].boot_micros.cast_signed();
                let kind = Mark::PeerClock { peer: format!("n{}", there + 1), ahead_micros: apart + ways[there][here] };
                Note { at_micros: 2 * SECOND, kind: NoteKind::Mark(kind) }
            };
            recording.notes.extend((0..3).filter(|there| *there != here).map(seen));
            recording.notes.sort_by_key(|note| note.at_micros);
        }
        put_on(recording, &format!("machine {here}"), machines[here]);
    }
    lives
}

fn killed_on(machines: [Machine; 3], ways: Option<Ways>) -> Story {
    story(&lives_on(machines, ways))
}

/// The present, in microseconds since 1970.
const NOW: i64 = 1_700_000_000_000_000;

/// Machines whose boot clocks have nothing to do with each other, and whose wall clocks show so much more.
fn machines(wall_micros: [i64; 3]) -> [Machine; 3] {
    let boots = [3_600 * SECOND, 77 * SECOND, 0];
    [0, 1, 2].map(|place| Machine { boot_micros: boots[place], wall_micros: NOW + wall_micros[place] })
}

fn wrong_clocks(story: &Story) -> Vec<(&str, i64)> {
    story.clocks.iter().map(|(name, micros)| (name.as_str(), (micros + 500).div_euclid(1_000))).collect()
}

/// Goal: found by a hostile reader: where wall clocks of machines differ, a killed leader was told as one whose links had ended. Members
/// compare their boot clocks, and what happened is told by those. Method: clocks that differ by 0.1 to 30 s; and nobody compared them.
#[test]
fn machines_whose_wall_clocks_differ_tell_what_was_done() {
    for apart in [100_000, 300_000, 3_000_000, 30_000_000] {
        let machines = machines([apart, 0, -apart]);
        let told = killed_on(machines, Some(NEAR));
        assert_eq!(words(&told), ["killed"], "{told:#?}");
        assert!((9_000..11_000).contains(&told.gap_micros), "{}", told.gap_micros);
        assert_eq!(wrong_clocks(&told), [("n1", apart / 1_000), ("n3", -apart / 1_000)]);
        assert_eq!(told.sentences().iter().filter(|line| line.starts_with("The wall clock of")).count(), 2);
        // By wall clocks alone it is another story.
        assert_ne!(words(&killed_on(machines, None)), ["killed"]);
        // Of two that agree the third is not believed, wherever it stands.
        let told = killed_on(self::machines([0, apart, 0]), Some(NEAR));
        assert_eq!((words(&told), wrong_clocks(&told)), (vec!["killed"], vec![("n2", apart / 1_000)]));
    }
}

/// Goal: right wall clocks are believed where messages take longer one way than the other. Method: the way to n3 takes 250 ms, and 1 ms back.
#[test]
fn a_way_that_is_longer_in_one_direction_makes_no_clock_wrong() {
    let mut ways = NEAR;
    (ways[0][2], ways[1][2], ways[2][0], ways[2][1]) = (250_000, 250_000, 1_000, 1_000);
    let told = killed_on(machines([0, 0, 0]), Some(ways));
    assert_eq!((words(&told), wrong_clocks(&told)), (vec!["killed"], vec![]), "{told:#?}");
}

/// Goal: found by a hostile reader: each start of a machine counts from zero, so a note about one fits others, too. Method: all members ran
/// before, while their machines' boot clocks showed what they show now, with other clocks; and a cluster of the same names is there.
#[test]
fn an_earlier_start_of_a_machine_and_another_cluster_are_not_taken_for_this_one() {
    let now = machines([3_000_000, 0, -3_000_000]);
    let day = 86_400_000_000;
    let mut before = lives_on(machines([7_000_000, 0, 0]), Some(NEAR));
    for (place, recording) in before.iter_mut().enumerate() {
        recording.life.boot_id = format!("machine {place} before");
        recording.life.unix_micros -= day;
    }
    let mut strangers = lives_on(machines([-9_000_000, 8_000_000, 0]), Some(NEAR));
    for (place, recording) in strangers.iter_mut().enumerate() {
        (recording.life.boot_id, recording.life.cluster_id) = (format!("stranger {place}"), 7);
        recording.life.unix_micros -= day / 2;
    }
    let told = story(&[before, strangers, lives_on(now, Some(NEAR))].concat());
    assert_eq!((words(&told), wrong_clocks(&told)), (vec!["killed"], vec![("n1", 3_000), ("n3", -3_000)]), "{told:#?}");
    assert!((9_000..11_000).contains(&told.gap_micros), "{}", told.gap_micros);
}

/// Goal: each member has one voice about the time, however often its machine was started. Method: n1 was started four times before, a day
/// apart, always with a wall clock that is an hour ahead.
#[test]
fn a_machine_that_was_started_often_has_one_voice() {
    let hour = 3_600_000_000;
    let mut lives = lives_on(machines([hour, 0, 0]), Some(NEAR));
    for start in 1..=4 {
        let mut earlier = lives[0].clone();
        earlier.life.boot_id = format!("machine 0, start {start}");
        earlier.life.unix_micros -= start * 86_400 * SECOND;
        lives.insert(0, earlier);
    }
    let told = story(&lives);
    assert_eq!(wrong_clocks(&told), [("n1", hour / 1_000)], "{told:#?}");
}

/// Goal: what two members know of each other counts before what one alone knows. Method: one note of three pairs is missing.
#[test]
fn a_note_of_one_side_alone_is_not_needed_where_there_is_a_way_round() {
    for (here, there) in [(0, 2), (2, 0), (0, 1), (1, 0), (1, 2), (2, 1)] {
        let mut lives = lives_on(machines([3_000_000, 0, -3_000_000]), Some(NEAR));
        let is_it = |note: &Note| matches!(&note.kind, NoteKind::Mark(Mark::PeerClock { peer, .. }) if *peer == format!("n{}", there + 1));
        lives[here].notes.retain(|note| !is_it(note));
        let told = story(&lives);
        assert_eq!(words(&told), ["killed"], "n{} has not noted n{}: {told:#?}", here + 1, there + 1);
        assert_eq!(wrong_clocks(&told), [("n1", 3_000), ("n3", -3_000)]);
    }
}
