//! Goal: a recording says at what its protocol panicked. Method: a leader alone is told what cannot be; the hook notes the panic; the
//! files are read while the process lives, as nobody closes them then. Alone in this file: the note goes to all tapes of a process.

use hustings_core::protocol::{Effect, Effects, Input};
use hustings_core::{Cluster, Durable, Lsn, Membership, NodeId, Protocol, Role, SnapshotReference, Term};
use hustings_raft::{Options, Raft};
use hustings_recorder::replay::{End, replay};
use hustings_recorder::{Life, Mark, NoteKind, Recorded, RecordedOptions, Recorder, Recording, Tape, note_panic};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

const ME: NodeId = NodeId(1);

/// Messages of the protocol to itself.
fn own(effects: Effects<Recorded<Raft>>) -> impl Iterator<Item = Input<Recorded<Raft>>> {
    effects.into_iter().filter_map(|effect| match effect {
        Effect::Send { to, message, .. } if to == ME => Some(Input::Message { from: ME, message }),
        _ => None,
    })
}

#[test]
fn a_panic_is_noted_behind_the_input_that_led_to_it() {
    let directory = tempfile::tempdir().expect("there is room");
    let (tape, life) = (Tape::new(), Life { member_id: ME.0, protocol: Raft::NAME.into(), ..Life::default() });
    let recorder = Recorder::start(tape.clone(), directory.path(), life, 1 << 20).expect("it can be");
    let options = RecordedOptions { tape: Some(tape), inner: Options::default() };
    let mut effects = Effects::new();
    let mut value = Recorded::<Raft>::start(Cluster::of(1, ME.0), options, Durable::default(), &mut effects);
    let mut inputs: VecDeque<_> = own(effects).collect();
    while let Some(input) = inputs.pop_front() {
        let mut effects = Effects::new();
        value.step(input, &mut effects);
        inputs.extend(own(effects));
    }
    assert_eq!(value.status().role, Role::Leader);

    // Nobody has committed that much.
    let lsn = Lsn { term: Term(1), index: 1_000 };
    let membership = Arc::new(Membership::of_voters([ME]));
    let never = Input::Compact(SnapshotReference { lsn, membership, bytes: 1, digest: 7 });
    let panic = catch_unwind(AssertUnwindSafe(|| value.step(never, &mut Effects::new()))).expect_err("it cannot be");
    let why = panic.downcast_ref::<&str>().expect("an assertion without numbers");
    note_panic(why);

    let lives = Recording::open(directory.path()).expect("it is written already");
    let [.., told, ended] = &lives[0].notes[..] else { panic!("two notes at least: {lives:?}") };
    assert!(matches!(told.kind, NoteKind::Told(_, None)), "the input without an answer: {told:?}");
    assert_eq!(ended.kind, NoteKind::Mark(Mark::Ended { why: (*why).to_owned() }));
    let replayed = replay::<Raft>(&lives[0], &Options::default());
    let End::Impossible { what, .. } = &replayed.end else { panic!("played again, it panics again: {replayed:?}") };
    assert!(what.contains(why), "{what}");
    drop(recorder);
}
