//! Lives of all five protocols, recorded and played again.
//!
//! Method: three values in memory with a network that delays, cuts and reorders as the protocol allows, drawn from a seed; members
//! are killed and born again from what they had written. Each life goes through files.

mod support;

use bytes::Bytes;
use hustings_blazingmq::BlazingMq;
use hustings_core::{EntryKind, Protocol, Role, Wire as _};
use hustings_gmt2000::Gmt2000;
use hustings_paxos::Paxos;
use hustings_raft::Raft;
use hustings_recorder::Clock;
use hustings_recorder::judge::{Conviction, judge};
use hustings_recorder::replay::{End, replay};
use hustings_recorder::{Life, Mark, Note, NoteKind, Recorder, Recording, Tape};
use hustings_zab::Zab;
use support::{Dice, SECRET, Town, ids, lives_of};

fn are_played_again<P: Protocol>() {
    let mut applied = 0;
    for seed in 1..=4 {
        let (lives, announced) = lives_of::<P>(seed, 4_000);
        assert!(lives.len() > 10, "{} lives", lives.len());
        let mut transitions = 0;
        let mut played = Vec::new();
        for life in &lives {
            assert_eq!(life.damage, [], "{}", P::NAME);
            let replayed = replay::<P>(life, &P::Options::default());
            assert_eq!(
                replayed.end,
                End::Same,
                "{} seed {seed}, {} after {} steps",
                P::NAME,
                life.life.name,
                replayed.steps
            );
            transitions += replayed.transitions.len();
            played.push((life.clone(), replayed));
        }
        assert_eq!(judge(&played, &Clock::default()), [], "{} seed {seed}", P::NAME);
        applied += played.iter().map(|(_, replayed)| replayed.applied.len()).sum::<usize>();
        assert_eq!(transitions, announced, "each transition is seen again");
    }
    assert!(applied > 200, "{applied} applied entries are too few to judge anything by");
}

#[test]
fn lives_of_raft_are_played_again() {
    are_played_again::<Raft>();
}

#[test]
fn lives_of_gmt2000_are_played_again() {
    are_played_again::<Gmt2000>();
}

#[test]
fn lives_of_blazingmq_are_played_again() {
    are_played_again::<BlazingMq>();
}

#[test]
fn lives_of_zab_are_played_again() {
    are_played_again::<Zab>();
}

#[test]
fn lives_of_paxos_are_played_again() {
    are_played_again::<Paxos>();
}

#[test]
fn nothing_that_a_client_wrote_is_kept() {
    fn keeps_nothing<P: Protocol>() {
        let directory = tempfile::tempdir().expect("there is room");
        let mut town = Town::<P>::found(directory.path(), P::Options::default());
        let mut dice = Dice(5);
        (0..3_000).for_each(|_| town.go_on(&mut dice));
        drop(town);
        for id in ids() {
            let bytes = hustings_recorder::ring::read_all(&directory.path().join(id.to_string())).expect("it is there");
            let part = &SECRET[..12];
            assert!(bytes.len() > 1_000 && !bytes.windows(part.len()).any(|window| window == part), "{}", P::NAME);
        }
    }
    keeps_nothing::<Raft>();
    keeps_nothing::<Gmt2000>();
    keeps_nothing::<BlazingMq>();
    keeps_nothing::<Zab>();
    keeps_nothing::<Paxos>();
}

/// Goal: a value that says something else is convicted. Method: one input of a life is left out, each in turn.
#[test]
fn a_life_that_lacks_an_input_is_not_the_same() {
    let (lives, _) = lives_of::<Raft>(3, 1_500);
    let life = lives.iter().max_by_key(|life| life.notes.len()).expect("there are some");
    let told = |note: &hustings_recorder::Note| matches!(note.kind, NoteKind::Told(..));
    let places: Vec<usize> = (0..life.notes.len()).filter(|place| told(&life.notes[*place])).collect();
    let differs = |place: &&usize| {
        let mut notes = life.notes.clone();
        notes.remove(**place);
        let shorter = Recording { notes, ..life.clone() };
        replay::<Raft>(&shorter, &hustings_raft::Options::default()).end != End::Same
    };
    let convicted = places.iter().filter(differs).count();
    // Inputs that nobody answers and nothing remembers may be missing: a heartbeat's second answer, a read at a follower.
    assert!(convicted * 5 > places.len() * 2, "{convicted} of {}", places.len());
}

fn judged(lives: &[Recording]) -> Vec<Conviction> {
    let play = |life: &Recording| (life.clone(), replay::<Raft>(life, &hustings_raft::Options::default()));
    judge(&lives.iter().map(play).collect::<Vec<_>>(), &Clock::of(lives))
}

#[track_caller]
fn is_convicted(lives: &[Recording], property: &str, members: [&str; 2]) {
    let convictions = judged(lives);
    let found = convictions.iter().find(|conviction| conviction.property == property);
    let found = found.unwrap_or_else(|| panic!("{property} holds: {convictions:#?}"));
    let named = found.facts.each_ref().map(|fact| fact.member.as_str());
    assert!(named == members || [named[1], named[0]] == members, "{found:#?}");
    assert!(found.facts.iter().all(|fact| fact.at_micros > 0 && fact.what.contains("told of a ")), "{found:#?}");
}

/// Goal: recordings that contradict each other are convicted, with who said what. Method: true ones are doctored.
#[test]
fn lives_that_contradict_each_other_are_convicted() {
    let (lives, _) = lives_of::<Raft>(2, 4_000);
    assert_eq!(judged(&lives), []);

    // The life of a leader is told as another member's, too.
    let leads = |life: &&Recording| {
        life.notes.iter().any(|note| matches!(&note.kind, NoteKind::Told(..)))
            && replay::<Raft>(life, &hustings_raft::Options::default())
                .transitions
                .iter()
                .any(|said| said.transition.to == Role::Leader)
    };
    let leader = lives.iter().find(leads).expect("somebody led");
    let mut twin = leader.clone();
    (twin.life.member_id, twin.life.name) = (9, "n9".into());
    let names = [leader.life.name.as_str(), "n9"];
    is_convicted(&[lives.clone(), vec![twin.clone()]].concat(), "one-leader-per-term", names);
    twin.life.cluster_id = 77;
    assert_eq!(judged(&[lives.clone(), vec![twin]].concat()), [], "another cluster may have the same terms");

    // A checksum of what one member was told is another.
    let mut hidden = Bytes::from_static(SECRET);
    hustings_recorder::mask::hide(EntryKind::Command, &mut hidden);
    let mut doctored = lives.clone();
    let follower = doctored.iter_mut().filter(|life| life.life.name != leader.life.name);
    let follower = follower.max_by_key(|life| life.notes.len()).expect("there are others");
    for note in &mut follower.notes {
        if !matches!(note.kind, NoteKind::Told(..)) {
            continue;
        }
        let mut bytes = note.to_bytes().to_vec();
        while let Some(place) = bytes.windows(8).position(|window| window == &hidden[..]) {
            bytes[place + 7] ^= 1;
        }
        *note = Note::decode(bytes.into()).expect("it is a note");
    }
    let doctored_name = follower.life.name.clone();
    assert!(judged(&doctored).iter().all(|conviction| conviction.property == "state-machine-safety"));
    let convictions = judged(&doctored);
    let facts = &convictions.first().expect("it is convicted").facts;
    assert!(facts.iter().any(|fact| fact.member == doctored_name) && facts[0].what != facts[1].what, "{facts:#?}");

    // A life begins a second time, from nothing.
    let mut again = lives.iter().max_by_key(|life| life.notes.len()).expect("there are some").clone();
    let birth = lives.iter().find(|life| life.life.name == again.life.name).expect("its first life").notes[0].clone();
    assert!(matches!(birth.kind, NoteKind::Birth(..)));
    again.notes.push(birth);
    let name = again.life.name.clone();
    is_convicted(&[again], "never-backwards", [&name, &name]);
}

#[test]
fn notes_that_were_lost_end_a_replay_and_are_said() {
    let (mut lives, _) = lives_of::<Raft>(1, 1_500);
    let life = lives.iter_mut().max_by_key(|life| life.notes.len()).expect("there are some");
    let at_micros = life.notes[20].at_micros;
    life.notes[20].kind = NoteKind::Mark(Mark::Lost { count: 7 });
    let replayed = replay::<Raft>(life, &hustings_raft::Options::default());
    assert_eq!(replayed.end, End::Gap { at_micros });
    life.notes.remove(0);
    let replayed = replay::<Raft>(life, &hustings_raft::Options::default());
    assert!(matches!(replayed.end, End::NoBeginning(_)), "{replayed:?}");
}

/// Goal: reading files ends well, with any content. Method: bytes are changed, cut off and doubled at places drawn by a seed.
#[test]
fn whatever_the_files_hold_they_are_read_and_played() {
    let directory = tempfile::tempdir().expect("there is room");
    let mut town = Town::<Raft>::found(directory.path(), hustings_raft::Options::default());
    let mut dice = Dice(11);
    (0..600).for_each(|_| town.go_on(&mut dice));
    drop(town);
    let sound = hustings_recorder::ring::read_all(&directory.path().join("n1")).expect("it is there");
    let whole: usize = Recording::read(sound.clone().into()).iter().map(|life| life.notes.len()).sum();
    for _ in 0..300 {
        let mut bytes = sound.clone();
        match dice.below(3) {
            0 => bytes.truncate(dice.below(sound.len())),
            1 => (0..1 + dice.below(4)).for_each(|_| {
                let place = dice.below(sound.len());
                bytes[place] = dice.below(256) as u8;
            }),
            _ => {
                let (place, more) = (dice.below(sound.len()), sound[dice.below(sound.len())..].to_vec());
                bytes.truncate(place);
                bytes.extend(more);
            }
        }
        let lives = Recording::read(bytes.into());
        assert!(lives.iter().map(|life| life.notes.len()).sum::<usize>() <= whole * 2);
        for life in lives {
            replay::<Raft>(&life, &hustings_raft::Options::default());
        }
    }
}

#[test]
fn a_ring_keeps_the_newest_and_never_more_than_it_may() {
    let directory = tempfile::tempdir().expect("there is room");
    let life = |process_id| Life { member_id: 1, process_id, ..Life::default() };
    let bytes_max = 400_000;
    for process in 1..=3 {
        let recorder = Recorder::start(Tape::new(), directory.path(), life(process), bytes_max).expect("it can be");
        for number in 0..20_000 {
            recorder.tape().mark(Mark::SlowSync { micros: number });
            if number % 1_000 == 0 {
                recorder.tape().settle();
            }
        }
    }
    let length = hustings_recorder::ring::read_all(directory.path()).expect("it is there").len() as u64;
    assert!(length <= bytes_max && length > bytes_max / 2, "{length}");
    let lives = Recording::open(directory.path()).expect("it was recorded");
    let last = lives.last().expect("there is one");
    assert_eq!((last.life.process_id, last.life.is_continued), (3, true), "its beginning has gone");
    let numbers: Vec<u64> = last
        .notes
        .iter()
        .filter_map(|note| match note.kind {
            NoteKind::Mark(Mark::SlowSync { micros }) => Some(micros),
            _ => None,
        })
        .collect();
    assert!(numbers.last() == Some(&19_999) && numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
}

#[test]
fn what_is_no_recording_is_named() {
    let directory = tempfile::tempdir().expect("there is room");
    let file = directory.path().join("notes.txt");
    std::fs::write(&file, "nothing").expect("it is written");
    for path in [&file, directory.path()] {
        let why = Recording::open(path).expect_err("it is none").to_string();
        assert!(why.contains(&path.display().to_string()) && why.contains("no recording"), "{why}");
    }
    let why = Recording::open(&directory.path().join("nowhere")).expect_err("it is not there").to_string();
    assert!(why.contains("nowhere") && why.contains("cannot be read"), "{why}");
}

/// Goal: what a device or a pipe would give is not waited for. Method: both are named where a recording should be.
#[test]
fn what_has_no_end_is_not_read() {
    let directory = tempfile::tempdir().expect("there is room");
    let pipe = directory.path().join("0000000001");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    for path in [std::path::Path::new("/dev/zero"), &pipe, directory.path()] {
        let why = Recording::open(path).expect_err("it is none").to_string();
        assert!(why.contains("it is no file"), "{why}");
    }
}

/// Goal: a member may have any name. Method: name, settings and notes hold the word that each file begins with.
#[test]
fn the_first_word_of_a_file_may_stand_in_its_notes() {
    let directory = tempfile::tempdir().expect("there is room");
    let word = "HUSTREC1".to_owned();
    let life = Life { name: word.clone(), member_id: 1, settings: vec![word.repeat(3)], ..Life::default() };
    let recorder = Recorder::start(Tape::new(), directory.path(), life, 100_000).expect("it can be");
    for number in 0..3_000 {
        recorder.tape().mark(Mark::LinkDown { peer: word.clone(), why: format!("{word}{number}") });
        if number % 100 == 0 {
            recorder.tape().settle();
        }
    }
    drop(recorder);
    let lives = Recording::open(directory.path()).expect("it was recorded");
    assert_eq!((lives.len(), lives[0].life.name == word, &lives[0].damage), (1, true, &Vec::new()));
    let last = lives[0].notes.iter().rev().find_map(|note| match &note.kind {
        NoteKind::Mark(Mark::LinkDown { why, .. }) => Some(why.clone()),
        _ => None,
    });
    assert!(lives[0].notes.len() > 500 && last == Some(format!("{word}2999")), "{last:?}");
}
