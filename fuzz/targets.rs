//! What takes bytes from others, and what must hold for any of them: nobody panics, and what was read is written as it was read.
//!
//! Shared by the targets of cargo-fuzz and by `crates/cli/tests/corpus.rs`, which runs them in CI.

use bytes::{Bytes, BytesMut};
use hustings_core::replica::{Action, Birth, Event, Policy, Replica, ReplicaMessage, ReplicaState, SnapshotContents};
use hustings_core::wire::EntryShape;
use hustings_core::{
    Cluster, Durable, Entry, Lsn, Protocol, Record, SnapshotReference, StateMachine, Status, Term, Wire,
};
use hustings_kv::KvStore;
use hustings_protocols::{Subject, Visit, visit};
use hustings_recorder::judge::judge;
use hustings_recorder::replay::replay;
use hustings_recorder::story::Story;
use hustings_recorder::{Clock, Recording};

/// A message between members: the first byte chooses the protocol.
pub fn messages(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let name = hustings_protocols::NAMES[usize::from(*first) % hustings_protocols::NAMES.len()];
    visit(&Subject::named(name), Reading(Bytes::copy_from_slice(rest))).expect("the list has this name");
}

struct Reading(Bytes);

impl Visit for Reading {
    type Out = ();

    fn visit<P: Protocol>(self, _: P::Options) {
        is_written_as_it_is_read::<P::Message>(&self.0);
        is_written_as_it_is_read::<ReplicaMessage<P::Message>>(&self.0);
    }
}

fn is_written_as_it_is_read<M: Wire + PartialEq + std::fmt::Debug>(bytes: &Bytes) {
    let Ok(message) = M::decode(bytes.clone()) else { return };
    let again = M::decode(message.to_bytes()).expect("what was written can be read");
    assert!(message == again, "{message:?} was written, and {again:?} was read");
}

/// Pieces of a file: each is its length in two bytes, and itself.
fn pieces(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk::<2>()?;
        let (piece, behind) = behind.split_at(usize::from(u16::from_le_bytes(*length)).min(behind.len()));
        rest = behind;
        Some(piece)
    })
}

/// Commands of a log, by the rules of the first apply version and by those of the newest.
pub fn commands(bytes: &[u8]) {
    let (mut old, mut new) = (KvStore::new(), KvStore::new());
    new.adopt(KvStore::VERSION_MAX);
    for (index, command) in (1..).zip(pieces(bytes)) {
        for store in [&mut old, &mut new] {
            // An answer or a refusal.
            let _ = store.apply(Lsn::new(1, index), &Bytes::copy_from_slice(command));
        }
    }
    for store in [old, new] {
        assert!(store.view().revision() >= 1, "a revision only grows");
        let mut written = BytesMut::new();
        KvStore::encode(&store.freeze(), &mut |bytes| written.extend_from_slice(&bytes));
        let again = KvStore::decode(&mut written.freeze()).expect("what was written can be read");
        assert_eq!(KvStore::digest(&again.freeze()), KvStore::digest(&store.freeze()), "a restored store is the same");
    }
}

/// Entries of a log, as a disk gives them back to a single member: the first byte chooses the protocol. The member leads and applies
/// them, whatever origin, kind, stamp and payload they have, and cuts snapshots on the way.
pub fn entries(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let name = hustings_protocols::NAMES[usize::from(*first) % hustings_protocols::NAMES.len()];
    visit(&Subject::named(name), Living(entries_of(rest))).expect("the list has this name");
}

/// The entries of a file; what is none is left out.
pub fn entries_of(bytes: &[u8]) -> Vec<Entry> {
    let shapes = pieces(bytes).filter_map(|piece| <EntryShape as prost::Message>::decode(piece).ok());
    shapes.filter_map(|shape| Entry::try_from(shape).ok()).collect()
}

/// Entries of a log of a single member.
pub struct Living(pub Vec<Entry>);

impl Visit for Living {
    type Out = Status;

    fn visit<P: Protocol>(self, options: P::Options) -> Status {
        let mut recovered = Durable { established: Term(1), ..Durable::default() };
        recovered.promise.term = Term(1);
        for (index, entry) in (1..).zip(self.0) {
            recovered.absorb(Record::Put(Entry { lsn: Lsn::new(1, index), ..entry }));
        }
        let birth: Birth<P, KvStore> = Birth {
            cluster: Cluster::of(1, 1),
            options,
            recovered,
            machine: KvStore::new(),
            blank: KvStore::new(),
            is_witness: false,
            state: ReplicaState::default(),
            incarnation: 1,
            policy: Policy { entries_max: 3, ..Policy::default() },
            can: KvStore::VERSION_MAX,
        };
        let mut out = Vec::new();
        let mut replica = Replica::start(birth, &mut out);
        let mut armed = std::collections::BTreeSet::new();
        // A single member leads after one election timeout; the rest are retries of what nobody answers.
        for _ in 0..20 {
            while !out.is_empty() {
                for action in std::mem::take(&mut out) {
                    match action {
                        Action::Persist(number, _) => replica.step(Event::Durable(number), &mut out),
                        Action::SetTimer(timer, _) => drop(armed.insert(timer)),
                        Action::CancelTimer(timer) => drop(armed.remove(&timer)),
                        Action::CutSnapshot(contents) => replica.step(cut(&contents), &mut out),
                        _ => {}
                    }
                }
            }
            let Some(timer) = armed.pop_first() else { break };
            replica.step(Event::Elapsed(1_000_000), &mut out);
            replica.step(Event::Timer(timer), &mut out);
        }
        replica.status()
    }
}

/// Encodes a snapshot, and reads it back.
fn cut<P: Protocol>(contents: &SnapshotContents<KvStore>) -> Event<P, KvStore> {
    let mut written = BytesMut::new();
    contents.encode(&mut |bytes| written.extend_from_slice(&bytes));
    let whole = written.freeze();
    let (machine, state) =
        SnapshotContents::<KvStore>::decode(&mut whole.clone()).expect("what was written can be read");
    assert_eq!(KvStore::digest(&machine.freeze()), KvStore::digest(&contents.view), "a restored store is the same");
    assert_eq!(state, contents.state);
    let (lsn, membership) = (contents.lsn, contents.membership.clone());
    Event::SnapshotCut(Some(SnapshotReference { lsn, membership, bytes: whole.len() as u64, digest: 0 }))
}

/// A file of bbolt, walked to its end.
pub fn bolt(bytes: &[u8]) {
    let file = Bytes::copy_from_slice(bytes);
    let Ok(database) = hustings_bolt::Database::open(file, bytes.len() as u64) else { return };
    for bucket in database.buckets() {
        let mut last: Option<Bytes> = None;
        for entry in database.entries(bucket) {
            let Ok((key, _)) = entry else { break };
            assert!(last.as_ref().is_none_or(|last| *last < key), "keys ascend");
            last = Some(key);
        }
    }
}

/// A body of the JSON gateway.
pub fn json(bytes: &[u8]) {
    use hustings_api::etcdserverpb::{LeaseGrantRequest, PutRequest, RangeRequest, TxnRequest};
    use hustings_api::json::{decode, encode};
    let _ = decode::<PutRequest>(bytes);
    let _ = decode::<RangeRequest>(bytes);
    let _ = decode::<LeaseGrantRequest>(bytes);
    if let Ok(request) = decode::<TxnRequest>(bytes)
        && let Ok(written) = encode(&request)
    {
        assert_eq!(decode::<TxnRequest>(&written).ok(), Some(request), "what was written can be read");
    }
}

/// A script of a storm.
pub fn scripts(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(script) = hustings_world::script::Script::parse(text) else { return };
    let written = script.to_string();
    let again = hustings_world::script::Script::parse(&written).expect("what was written can be read");
    assert_eq!(again.to_string(), written, "it is written as it was read");
}

/// A recording: the ring of a member, or a damaged one.
pub fn recordings(bytes: &[u8]) {
    let lives = Recording::read(Bytes::copy_from_slice(bytes));
    for life in &lives {
        // A recording may name a protocol that nobody has.
        let _ = visit(&Subject::named(&life.life.protocol), Replaying(life));
    }
    for moment in [None, Some(0), Some(u64::MAX)] {
        let told = Story::tell(&lives, moment).map(|story| story.sentences());
        assert!(told.is_none_or(|sentences| !sentences.is_empty()), "a story has a sentence");
    }
}

struct Replaying<'a>(&'a Recording);

impl Visit for Replaying<'_> {
    type Out = ();

    fn visit<P: Protocol>(self, options: P::Options) {
        let replayed = replay::<P>(self.0, &options);
        judge(&[(self.0.clone(), replayed)], &Clock::of([self.0]));
    }
}
