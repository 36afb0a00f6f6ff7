//! Stories of leaders that were killed while others stood still, were dead or came back.

use super::*;

fn link_is_up() -> Mark {
    Mark::LinkUp { peer: "n1".into() }
}

/// Told from the survivors' recordings, and with that of the leader: both say that it was killed after ten seconds, and who saw it.
fn is_told_as_killed(survivors: &[Recording], seen_by: &[&str], gap_micros: u64) {
    let mut all = survivors.to_vec();
    all.push(killed_leader());
    for lives in [survivors, &all] {
        let told = story(lives);
        assert_eq!((words(&told), told.gap_micros), (vec!["killed"], gap_micros), "{told:#?}");
        let Some(Cause::Killed { seen_by: seen }) = told.causes.first() else { unreachable!() };
        assert_eq!(seen.iter().map(|(who, ..)| who.as_str()).collect::<Vec<_>>(), seen_by, "{told:#?}");
    }
}

/// A member that stands still from 9.5 s, when its leader lives, to 11.5 s, when that one is dead: what the kernel kept for it, it hears
/// when it runs again, unless the link was reset.
fn paused_follower(silence_micros: u64, then: Vec<(u64, Mark)>) -> Recording {
    let mut notes = vec![
        follows_n1(),
        (11_500_000, Mark::Late { micros: 1_950_000, waited_micros: 0 }),
        (11_500_100, dies("n1")),
        (11_501_000, goes_down(Role::PreCandidate, silence_micros, false)),
    ];
    notes.extend(then);
    notes.push((19 * SECOND, Mark::DiskRecovered));
    life("n2", 2, notes)
}

/// A member that runs all the time, and sees that its leader is killed after ten seconds.
pub(crate) fn awake_follower(then: Vec<(u64, Mark)>) -> Recording {
    let mut notes =
        vec![follows_n1(), (10_000_300, dies("n1")), (10_000_500, goes_down(Role::PreCandidate, 30_000, false))];
    notes.extend(then);
    notes.push((19 * SECOND, Mark::DiskRecovered));
    life("n3", 3, notes)
}

/// Goal: a leader ends when the first that is awake sees it, and the pause is that of the member that stood still. Method: a follower
/// stands still, the leader is killed, and the follower runs again 1.5 s later; the one that was awake is elected.
#[test]
fn a_kill_while_a_follower_stands_still_is_told_at_its_time() {
    let leads = (11_520_300, leads(2, "vote won", &[("n1", 1_550_000)]));
    for silence_micros in [1_200, 1_990_000] {
        let survivors = [paused_follower(silence_micros, vec![]), awake_follower(vec![leads.clone()])];
        is_told_as_killed(&survivors, &["n3", "n2"], 1_520_000);
    }
}

/// Goal: a member that stood still misses nobody meanwhile. Method: the follower that stood still is elected; it has heard nothing from its
/// leader for two seconds, or has just heard what was kept for it.
#[test]
fn the_pause_of_a_successor_is_not_ascribed_to_the_killed_leader() {
    for silence_micros in [1_200, 1_990_000] {
        let leads = (11_520_300, leads(2, "vote won", &[("n1", silence_micros + 19_300)]));
        let survivors = [paused_follower(silence_micros, vec![leads]), awake_follower(vec![])];
        is_told_as_killed(&survivors, &["n3", "n2"], 1_520_000);
        // Without the one that was awake nobody knows when the leader was killed; that it stood still, nobody saw.
        assert_eq!(words(&story(&survivors[..1])), ["killed"]);
    }
}

/// Goal: a leader that is killed while nobody can follow it is told as killed. Method: one follower is dead; the other one sees the kill,
/// and is elected when the first is back, which never heard the leader and says how long ago it began.
#[test]
fn a_kill_while_a_follower_is_dead_is_told_at_its_time() {
    let dead = life("n2", 2, vec![follows_n1(), (9_200_000, Mark::DiskRecovered)]);
    let back = life(
        "n2",
        2,
        vec![
            (11_500_000, Mark::DiskRecovered),
            (11_720_000, goes_down(Role::Follower, 200_000, false)),
            (19 * SECOND, Mark::DiskRecovered),
        ],
    );
    let missed = turns(Role::PreCandidate, Role::PreCandidate, 1, None, "no leader was heard", &[("n1", 148_000)]);
    let successor =
        awake_follower(vec![(10_118_500, missed), (11_720_300, leads(2, "vote won", &[("n1", 1_750_000)]))]);
    is_told_as_killed(&[dead, back, successor], &["n3"], 1_720_000);
}

/// Goal: only links that end with the leader say when it ended. Method: before it is killed, one comes back; one of two dials that cross
/// ends behind the other; and one stays down while the other member hears the leader.
#[test]
fn links_that_ended_while_the_leader_led_on_do_not_count() {
    let before: [Vec<(u64, Mark)>; 3] = [
        vec![(9 * SECOND, link_ends()), (9_100_000, link_is_up())],
        vec![(9 * SECOND, link_is_up()), (9_000_100, link_is_up()), (9_000_200, link_ends())],
        vec![],
    ];
    for (place, early) in before.into_iter().enumerate() {
        let successor = awake_follower(vec![(11_520_300, leads(2, "vote won", &[("n1", 1_550_000)]))]);
        let mut other = vec![follows_n1()];
        other.extend(early);
        let seen_by: &[&str] = match place {
            2 => {
                other.push((9_300_000, link_ends()));
                &["n3"]
            }
            _ => {
                other.push((10_000_400, dies("n1")));
                &["n3", "n2"]
            }
        };
        other.push((19 * SECOND, Mark::DiskRecovered));
        is_told_as_killed(&[successor, life("n2", 2, other)], seen_by, 1_520_000);
    }
}

/// Goal: a leader that comes back before anybody follows it ended all the same. Method: its links are up again, to its next process.
#[test]
fn a_killed_leader_that_is_back_before_the_election_is_told_as_killed() {
    let again = life("n1", 1, vec![(10_800_000, Mark::DiskRecovered), (19 * SECOND, Mark::DiskRecovered)]);
    let successor =
        awake_follower(vec![(10_900_000, link_is_up()), (11_520_300, leads(2, "vote won", &[("n1", 40_000)]))]);
    is_told_as_killed(&[successor, again], &["n3"], 1_520_000);
}

/// Goal: a pause is ascribed to nobody whose own recording is not here. Method: the leader is missed for a
/// second, and then its links end; a third member stands still and sees it late.
#[test]
fn a_silence_before_a_kill_is_a_pause_where_the_leaders_recording_shows_it() {
    let missed = turns(Role::Follower, Role::PreCandidate, 1, None, "no leader was heard", &[("n1", 400_000)]);
    let new = life(
        "n2",
        2,
        vec![
            follows_n1(),
            (9_400_000, missed),
            (10 * SECOND, dies("n1")),
            (11_520_000, leads(2, "vote won", &[("n1", 2_520_000)])),
            (19 * SECOND, Mark::DiskRecovered),
        ],
    );
    let third = Recording {
        life: Life { name: "n3".into(), member_id: 3, ..new.life.clone() },
        ..paused_follower(2_501_000, vec![])
    };
    let told = story(&[third.clone(), new.clone()]);
    assert_eq!((words(&told), told.gap_micros), (vec!["silent", "killed"], 1_520_000), "{told:#?}");
    assert!(told.sentences()[0].contains("n2 had heard nothing from it for 1.0 s"), "{told:#?}");
    let old = life("n1", 1, vec![(SECOND, leads(1, "vote won", &[])), (8_900_000, Mark::DiskRecovered)]);
    let told = story(&[old, third, new]);
    assert_eq!((words(&told), told.gap_micros), (vec!["paused", "killed"], 1_520_000), "{told:#?}");
    assert!(told.sentences()[0].contains("the process of n1 stood still for 1.0 s"), "{told:#?}");
}

/// Goal: a hand-over that nobody took up does not hide a kill. Method: leadership should go to a member that stands still; the leader is
/// killed, and then that member runs again, hears of the hand-over first and of the end afterwards, and is elected.
#[test]
fn a_hand_over_that_is_heard_after_the_kill_is_not_blamed() {
    let asked = Mark::Asked { what: "to hand leadership to n2".into() };
    let old = life(
        "n1",
        1,
        vec![(SECOND, leads(1, "vote won", &[])), (9_700_000, asked), (10 * SECOND, Mark::DiskRecovered)],
    );
    let handed = turns(Role::Follower, Role::Candidate, 2, None, "n1 hands over", &[("n1", 1_200)]);
    let successor = life(
        "n2",
        2,
        vec![
            follows_n1(),
            (11_500_000, Mark::Late { micros: 1_950_000, waited_micros: 0 }),
            (11_500_100, handed),
            (11_500_200, dies("n1")),
            (11_520_300, leads(2, "vote won", &[("n1", 21_500)])),
            (19 * SECOND, Mark::DiskRecovered),
        ],
    );
    let told = story(&[old, successor, awake_follower(vec![])]);
    assert_eq!((words(&told)[0], told.gap_micros), ("killed", 1_520_000), "{told:#?}");
    assert_eq!(told.election_micros, Some(20_200));
    assert!(
        told.sentences().iter().any(|said| said.ends_with("; its election took 20 ms.")),
        "{:#?}",
        told.sentences()
    );
}
