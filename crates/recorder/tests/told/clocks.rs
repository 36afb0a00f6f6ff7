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

/// A leader that is killed after ten seconds and those that see it, each on a machine of its own; after two seconds they compare clocks, or
/// nobody does. How long a message to each is under way differs.
fn killed_on(machines: [Machine; 3], compared: bool) -> Story {
    let successor = awake_follower(vec![(10_010_000, leads(2, "vote won", &[("n1", 11_000)]))]);
    let mut other = awake_follower(vec![]);
    (other.life.name, other.life.member_id) = ("n2".into(), 2);
    let mut lives = [killed_leader(), other, successor];
    for (here, recording) in lives.iter_mut().enumerate() {
        if compared {
            let seen = |there: usize| {
                let apart = machines[here].boot_micros.cast_signed() - machines[there].boot_micros.cast_signed();
                let ahead_micros = apart + [200, 300, 400][here];
                let kind = NoteKind::Mark(Mark::PeerClock { peer: format!("n{}", there + 1), ahead_micros });
                Note { at_micros: 2 * SECOND, kind }
            };
            recording.notes.extend((0..3).filter(|there| *there != here).map(seen));
            recording.notes.sort_by_key(|note| note.at_micros);
        }
        let Machine { boot_micros, wall_micros } = machines[here];
        recording.life.boot_id = format!("machine {here}");
        recording.life.unix_micros = recording.life.boot_micros.saturating_add_signed(wall_micros);
        recording.life.boot_micros += boot_micros;
        recording.notes.iter_mut().for_each(|note| note.at_micros += boot_micros);
    }
    story(&lives)
}

/// Goal: found by a hostile reader: where wall clocks of machines differ, a killed leader was told as one whose links had ended. Members
/// compare their boot clocks, and what happened is told by those. Method: clocks that differ by 0.1 to 30 s; and nobody compared them.
#[test]
fn machines_whose_wall_clocks_differ_tell_what_was_done() {
    let now = 1_700_000_000_000_000;
    for apart in [100_000, 300_000, 3_000_000, 30_000_000] {
        let machines = [
            Machine { boot_micros: 3_600 * SECOND, wall_micros: now + apart },
            Machine { boot_micros: 77 * SECOND, wall_micros: now },
            Machine { boot_micros: 0, wall_micros: now - apart },
        ];
        let told = killed_on(machines, true);
        assert_eq!(words(&told), ["killed"], "{told:#?}");
        assert!((9_000..10_500).contains(&told.gap_micros), "{}", told.gap_micros);
        let clocks: Vec<(&str, i64)> = told.clocks.iter().map(|(name, micros)| (name.as_str(), *micros)).collect();
        let [("n1", more), ("n3", less)] = clocks[..] else { panic!("two are wrong: {clocks:?}") };
        assert!((more - apart).abs() < 500 && (less + apart).abs() < 500, "{clocks:?}");
        assert_eq!(told.sentences().iter().filter(|line| line.starts_with("The wall clock of")).count(), 2);
        // By wall clocks alone it is another story.
        assert_ne!(words(&killed_on(machines, false)), ["killed"]);
    }
}
