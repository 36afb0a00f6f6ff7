//! Stories of clocks that were set.

use super::{SECOND, becomes, life};
use hustings_core::Role;
use hustings_recorder::story::Story;
use hustings_recorder::{Life, Mark, Note, NoteKind, Recording};

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
