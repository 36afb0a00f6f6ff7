//! Lives of all five protocols, recorded and played again.
//!
//! Method: three values in memory with a network that delays, cuts and reorders as the protocol allows, drawn from a seed; members
//! are killed and born again from what they had written. Each life goes through files.

use bytes::Bytes;
use hustings_blazingmq::BlazingMq;
use hustings_core::protocol::{Admin, Effect, Effects, Input, LinkState, Links, Proposal, Ticket};
use hustings_core::{
    Cluster, Durable, EntryKind, Lsn, NodeId, Origin, Protocol, Role, SnapshotReference, Stamp, Transition, Wire as _,
};
use hustings_gmt2000::Gmt2000;
use hustings_paxos::Paxos;
use hustings_raft::Raft;
use hustings_recorder::judge::{Conviction, judge};
use hustings_recorder::replay::{End, replay};
use hustings_recorder::{Life, Mark, Note, NoteKind, Recorded, RecordedOptions, Recorder, Recording, Tape};
use hustings_zab::Zab;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

const SECRET: &[u8] = b"what a client wrote and nobody else may read";
const RING_BYTES: u64 = 64 << 20;

/// Numbers that look like chance, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// A member: its value, its disk, its recorder.
struct Member<P: Protocol> {
    value: Recorded<P>,
    durable: Durable,
    armed: BTreeSet<P::Timer>,
    applied: Lsn,
    _recorder: Recorder,
}

struct Town<'a, P: Protocol> {
    directory: &'a Path,
    members: BTreeMap<NodeId, Member<P>>,
    wires: BTreeMap<(NodeId, NodeId), VecDeque<P::Message>>,
    linked: BTreeSet<(NodeId, NodeId)>,
    announced: BTreeMap<NodeId, Vec<Transition>>,
    proposed: u64,
    compactions: usize,
}

fn ids() -> [NodeId; 3] {
    [1, 2, 3].map(NodeId)
}

impl<'a, P: Protocol> Town<'a, P> {
    fn found(directory: &'a Path) -> Town<'a, P> {
        let mut town = Town {
            directory,
            members: BTreeMap::new(),
            wires: BTreeMap::new(),
            linked: BTreeSet::new(),
            announced: BTreeMap::new(),
            proposed: 0,
            compactions: 0,
        };
        for id in ids() {
            town.bear(id, Durable::default());
        }
        town
    }

    fn bear(&mut self, id: NodeId, durable: Durable) {
        let life = Life { member_id: id.0, name: id.to_string(), protocol: P::NAME.into(), ..Life::default() };
        let tape = Tape::new();
        let directory = self.directory.join(id.to_string());
        let recorder = Recorder::start(tape.clone(), &directory, life, RING_BYTES).expect("it can be");
        let options = RecordedOptions { tape: Some(tape), ..RecordedOptions::default() };
        let mut effects = Effects::new();
        let value = Recorded::<P>::start(Cluster::of(3, id.0), options, durable.clone(), &mut effects);
        let applied = durable.snapshot.as_ref().map_or(Lsn::ZERO, |snapshot| snapshot.lsn);
        self.members.insert(id, Member { value, durable, armed: BTreeSet::new(), applied, _recorder: recorder });
        self.carry_out(id, effects);
        for peer in ids() {
            if peer != id && self.members.contains_key(&peer) {
                self.link(id, peer, LinkState::Up);
            }
        }
    }

    fn kill(&mut self, id: NodeId) -> Durable {
        for peer in ids().into_iter().filter(|peer| *peer != id) {
            self.link(id, peer, LinkState::Down);
        }
        self.members.remove(&id).expect("it lives").durable
    }

    fn link(&mut self, one: NodeId, other: NodeId, state: LinkState) {
        for (id, peer) in [(one, other), (other, one)] {
            let is_news = match state {
                LinkState::Up => self.linked.insert((id, peer)),
                LinkState::Down => self.linked.remove(&(id, peer)),
            };
            self.wires.remove(&(id, peer));
            if is_news {
                self.tell(id, Input::Link { peer, state });
            }
        }
    }

    fn tell(&mut self, id: NodeId, input: Input<Recorded<P>>) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let mut effects = Effects::new();
        member.value.step(input, &mut effects);
        self.carry_out(id, effects);
    }

    fn carry_out(&mut self, id: NodeId, effects: Effects<Recorded<P>>) {
        let mut own = VecDeque::new();
        let mut installed = None;
        for effect in effects {
            let member = self.members.get_mut(&id).expect("it speaks");
            match effect {
                Effect::Persist(record) => member.durable.absorb(record),
                Effect::Send { to, message, .. } if to == id => own.push_back(message),
                Effect::Send { to, message, .. } => {
                    if self.linked.contains(&(id, to)) {
                        self.wires.entry((id, to)).or_default().push_back(message);
                    }
                }
                Effect::SetTimer { timer, .. } => drop(member.armed.insert(timer)),
                Effect::CancelTimer(timer) => drop(member.armed.remove(&timer)),
                Effect::Announce(transition) => self.announced.entry(id).or_default().push(transition),
                Effect::Apply(entry) => member.applied = entry.lsn,
                Effect::FetchSnapshot { reference, .. } => installed = Some(reference),
                Effect::Restore(reference) => member.applied = reference.lsn,
                Effect::ReadAt { .. } | Effect::Reply { .. } | Effect::Reconfigure { .. } => {}
            }
        }
        for message in own {
            self.tell(id, Input::Message { from: id, message });
        }
        if let Some(reference) = installed {
            let lsn = reference.lsn;
            self.tell(id, Input::SnapshotReady(reference));
            self.tell(id, Input::SnapshotInstalled(lsn));
        }
    }

    /// Something happens.
    fn go_on(&mut self, dice: &mut Dice) {
        let id = ids()[dice.below(3)];
        match dice.below(1_000) {
            0..600 => self.deliver(dice),
            600..750 => self.ring(id, dice),
            750..900 => self.propose(id),
            900..940 => self.tell(id, Input::Read { ticket: Ticket::Read { node: id, number: self.proposed } }),
            940..950 => {
                self.tell(id, Input::Admin { ticket: Ticket::Admin(1), request: Admin::Transfer(ids()[dice.below(3)]) })
            }
            950..975 => {
                let peer = ids()[dice.below(3)];
                if peer != id && self.members.contains_key(&id) && self.members.contains_key(&peer) {
                    let is_up = self.linked.contains(&(id, peer));
                    self.link(id, peer, if is_up { LinkState::Down } else { LinkState::Up });
                }
            }
            975..985 => self.compact(id),
            _ => {
                if self.members.contains_key(&id) {
                    let durable = self.kill(id);
                    self.bear(id, durable);
                }
            }
        }
    }

    fn deliver(&mut self, dice: &mut Dice) {
        let busy: Vec<_> = self.wires.iter().filter(|(_, wire)| !wire.is_empty()).map(|(ends, _)| *ends).collect();
        if busy.is_empty() {
            return;
        }
        let (from, to) = busy[dice.below(busy.len())];
        let wire = self.wires.get_mut(&(from, to)).expect("it is busy");
        let place = if P::LINKS == Links::Any { dice.below(wire.len().min(3)) } else { 0 };
        let message = wire.remove(place).expect("it is there");
        self.tell(to, Input::Message { from, message });
    }

    fn ring(&mut self, id: NodeId, dice: &mut Dice) {
        let Some(member) = self.members.get_mut(&id).filter(|member| !member.armed.is_empty()) else { return };
        let timer = *member.armed.iter().nth(dice.below(member.armed.len())).expect("one of them");
        member.armed.remove(&timer);
        self.tell(id, Input::Alarm(timer));
    }

    fn propose(&mut self, id: NodeId) {
        self.proposed += 1;
        let origin = Origin { node: id, incarnation: 1, sequence: self.proposed };
        let payload = Bytes::from_static(SECRET).slice(..self.proposed as usize % SECRET.len());
        let proposal = Proposal { origin, kind: EntryKind::Command, stamp: Stamp::NONE, payload };
        self.tell(
            id,
            Input::Propose(vec![proposal.clone(), Proposal { payload: Bytes::from_static(SECRET), ..proposal }]),
        );
    }

    /// The member's host has cut a snapshot of everything that is applied.
    fn compact(&mut self, id: NodeId) {
        let Some(member) = self.members.get(&id) else { return };
        let lsn = member.applied;
        if lsn.index > member.durable.snapshot_index() {
            let membership = member.value.status().membership;
            self.compactions += 1;
            self.tell(id, Input::Compact(SnapshotReference { lsn, membership, bytes: 100, digest: 7 }));
        }
    }
}

/// Runs, and gives back all lives that were recorded, with how many transitions were announced.
fn lives_of<P: Protocol>(seed: u64, steps: usize) -> (Vec<Recording>, usize) {
    let directory = tempfile::tempdir().expect("there is room");
    let mut dice = Dice(seed);
    let mut town = Town::<P>::found(directory.path());
    for _ in 0..steps {
        town.go_on(&mut dice);
    }
    let announced: Vec<_> = town.announced.values().flatten().cloned().collect();
    assert!(announced.iter().any(|transition| transition.to == Role::Leader), "somebody led");
    assert!(town.members.values().any(|member| member.applied > Lsn::ZERO), "something was applied");
    assert!(town.compactions > 0, "somebody has compacted");
    drop(town);
    let lives = ids().into_iter().flat_map(|id| {
        let path = directory.path().join(id.to_string());
        Recording::open(&path).expect("it was recorded")
    });
    (lives.collect(), announced.len())
}

fn are_played_again<P: Protocol>() {
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
        assert_eq!(judge(&played), [], "{} seed {seed}", P::NAME);
        assert!(played.iter().map(|(_, replayed)| replayed.applied.len()).sum::<usize>() > 50, "something is judged");
        assert_eq!(transitions, announced, "each transition is seen again");
    }
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
        let mut town = Town::<P>::found(directory.path());
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
    // What nobody answers and nothing remembers may be missing: a heartbeat's second answer, a read at a follower.
    assert!(convicted * 5 > places.len() * 2, "{convicted} of {}", places.len());
}

fn judged(lives: &[Recording]) -> Vec<Conviction> {
    let play = |life: &Recording| (life.clone(), replay::<Raft>(life, &hustings_raft::Options::default()));
    judge(&lives.iter().map(play).collect::<Vec<_>>())
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

/// Goal: whatever is in the files, reading them ends well. Method: bytes are changed, cut off and doubled at places drawn by a seed.
#[test]
fn whatever_the_files_hold_they_are_read_and_played() {
    let directory = tempfile::tempdir().expect("there is room");
    let mut town = Town::<Raft>::found(directory.path());
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
