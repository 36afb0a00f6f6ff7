//! What a member tells long after its routine has pushed a change of leader out of its ring.

use hustings_core::protocol::{DiskHealth, Effects, Input};
use hustings_core::{Cluster, Durable, Lsn, Protocol, Role, Term};
use hustings_raft::{Options, Raft};
use hustings_recorder::replay::{End, replay};
use hustings_recorder::story::Story;
use hustings_recorder::{Clock, Life, Mark, Note, NoteKind, Recorded, RecordedOptions, Recorder, Recording, Tape};
use std::path::Path;

const RING_BYTES: u64 = 400_000;

fn life(process_id: u32) -> Life {
    Life { member_id: 1, name: "n1".into(), protocol: Raft::NAME.into(), process_id, ..Life::default() }
}

fn leads(term: u64) -> Mark {
    Mark::Transition {
        from: Role::Candidate,
        to: Role::Leader,
        term: Term(term),
        leader: Some("n1".into()),
        lsn: Lsn::ZERO,
        because: "vote won".into(),
        heard: Vec::new(),
        disk_busy_micros: 0,
    }
}

/// A process that comes to lead, and then does what fills its ring several times over.
fn a_busy_life(directory: &Path, process_id: u32, term: u64) {
    let tape = Tape::new();
    let _recorder = Recorder::start(tape.clone(), directory, life(process_id), RING_BYTES).expect("it can be");
    let options = RecordedOptions { tape: Some(tape.clone()), inner: Options::default() };
    let mut value = Recorded::<Raft>::start(Cluster::of(1, 1), options, Durable::default(), &mut Effects::new());
    tape.mark(leads(term));
    for number in 0..40_000 {
        value.step(Input::Health(DiskHealth::Recovered), &mut Effects::new());
        if number % 100 == 0 {
            tape.mark(Mark::LinkUp { peer: number.to_string() });
        }
        if number % 2_000 == 0 {
            tape.settle();
        }
    }
}

fn bytes_in(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("it is there").flatten();
    entries
        .map(
            |entry| {
                if entry.path().is_dir() { bytes_in(&entry.path()) } else { entry.metadata().expect("it is").len() }
            },
        )
        .sum()
}

fn told(life: &Recording) -> usize {
    life.notes.iter().filter(|note| matches!(note.kind, NoteKind::Told(..))).count()
}

fn links_of(life: &Recording) -> Vec<String> {
    let marks = life.notes.iter().filter_map(|note| match &note.kind {
        NoteKind::Mark(Mark::LinkUp { peer }) => Some(peer.clone()),
        _ => None,
    });
    marks.collect()
}

#[test]
fn a_change_of_leader_is_told_when_routine_has_filled_the_ring() {
    let directory = tempfile::tempdir().expect("there is room");
    a_busy_life(directory.path(), 1, 1);
    a_busy_life(directory.path(), 2, 2);
    assert!(bytes_in(directory.path()) <= RING_BYTES, "no more is kept than may be");

    let lives = Recording::open(directory.path()).expect("it was recorded");
    let [first, second] = &lives[..] else { panic!("two lives: {lives:#?}") };
    assert_eq!((first.life.process_id, second.life.process_id), (1, 2));
    assert_eq!(told(first), 0, "the second life has filled the ring");
    assert!(told(second) > 100 && told(second) < 30_000, "of the second the newest is left, and not all");
    assert!(matches!(&second.notes[..], [Note { kind: NoteKind::Mark(mark), .. }, ..] if *mark == leads(2)));
    assert!(second.notes.is_sorted_by_key(|note| note.at_micros));
    let readings = second.notes.iter().filter(|note| matches!(note.kind, NoteKind::Life(_))).count();
    assert!(readings > 1, "each file in which it went on says what both clocks showed: {readings}");
    // Also those that waited, when a file that is left was begun, together with routine that is left.
    assert_eq!(links_of(second), (0..40_000).step_by(100).map(|number| number.to_string()).collect::<Vec<_>>());

    let story = Story::tell(&lives, None).expect("somebody led");
    let before = story.before.as_ref().expect("the reign before is known as well");
    assert_eq!((before.term, story.after.term), (Term(1), Term(2)), "{story:#?}");
    let until = before.until_micros.expect("it ended");
    let ran_until = Clock::of(&lives).unix_micros(&first.life, first.end_micros());
    assert!(ran_until.abs_diff(until) <= 1, "its process ran until then: {story:#?}");
    assert!(first.end_micros() > first.notes[0].at_micros, "which the marks say");

    // A life without its beginning is played by nobody.
    for life in [first, second] {
        assert!(matches!(replay::<Raft>(life, &Options::default()).end, End::NoBeginning(_)));
    }
}

/// Goal: processes of one number are told apart. Method: a container's entry script makes theirs 7, 8 and 7 again.
#[test]
fn a_number_that_comes_back_is_another_process() {
    let directory = tempfile::tempdir().expect("there is room");
    for (process_id, term) in [(7, 1), (8, 2), (7, 3)] {
        a_busy_life(directory.path(), process_id, term);
        let lives = Recording::open(directory.path()).expect("it was recorded");
        assert_eq!(lives.len() as u64, term);
        let story = Story::tell(&lives, None).expect("somebody led");
        let before = story.before.as_ref().map_or(0, |before| before.term.0);
        assert_eq!((before, story.after.term.0), (term - 1, term), "{story:#?}");
        assert!(lives.iter().all(|life| links_of(life).len() == 400), "each has its own marks");
    }
}

/// Goal: files of the marks alone, of the ring alone, and in another order say what is in them.
#[test]
fn marks_and_ring_can_be_read_apart() {
    let directory = tempfile::tempdir().expect("there is room");
    a_busy_life(directory.path(), 1, 1);
    let read = |path: &Path| hustings_recorder::ring::read_all(path).expect("it is there");
    let all = read(directory.path());
    let marks = read(&directory.path().join("marks"));
    let ring = all[marks.len()..].to_vec();
    let told_of = |bytes: Vec<u8>| Recording::read(bytes.into()).iter().map(told).sum::<usize>();
    assert_eq!((told_of(marks.clone()), told_of(ring.clone())), (0, told_of(all.clone())));
    let turned = Recording::read([ring.clone(), marks.clone()].concat().into());
    assert_eq!(turned, Recording::read(all.into()), "whichever is first");
    let [alone] = &Recording::read(marks.into())[..] else { panic!("one life") };
    assert!(alone.damage.is_empty() && alone.notes[0].kind == NoteKind::Mark(leads(1)), "{alone:#?}");
    let [alone] = &Recording::read(ring.into())[..] else { panic!("one life") };
    assert!(alone.life.is_continued && alone.damage.is_empty());
}

/// Goal: of a life that is in its ring as a whole nothing is told twice.
#[test]
fn a_short_life_is_told_once() {
    let directory = tempfile::tempdir().expect("there is room");
    let recorder = Recorder::start(Tape::new(), directory.path(), life(1), RING_BYTES).expect("it can be");
    recorder.tape().mark(leads(1));
    recorder.tape().mark(Mark::Stopping);
    drop(recorder);
    let lives = Recording::open(directory.path()).expect("it was recorded");
    let [life] = &lives[..] else { panic!("one life: {lives:#?}") };
    let kinds: Vec<_> = life.notes.iter().map(|note| note.kind.clone()).collect();
    assert_eq!(kinds, [leads(1), Mark::Stopping].map(NoteKind::Mark));
}
