//! What takes bytes from others, and what must hold for any of them: nobody panics, and what was read is written as it was read.
//!
//! Shared by the targets of cargo-fuzz and by `crates/cli/tests/corpus.rs`, which runs them in CI.

use bytes::Bytes;
use hustings_core::{Lsn, Protocol, StateMachine as _, Wire};
use hustings_kv::KvStore;
use hustings_protocols::{Subject, Visit, visit};
use hustings_recorder::Recording;
use hustings_recorder::judge::judge;
use hustings_recorder::replay::replay;
use hustings_recorder::story::Story;

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
        let Ok(message) = P::Message::decode(self.0) else { return };
        let again = P::Message::decode(message.to_bytes()).expect("what was written can be read");
        assert!(message == again, "{message:?} was written, and {again:?} was read");
    }
}

/// Commands of a log: each is its length in two bytes, and itself.
pub fn commands(bytes: &[u8]) {
    let (mut store, mut rest, mut index) = (KvStore::new(), bytes, 0);
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let (command, behind) = behind.split_at(usize::from(u16::from_le_bytes(*length)).min(behind.len()));
        index += 1;
        // An answer or a refusal; a second store that hears the same says the same.
        let _ = store.apply(Lsn::new(1, index), &Bytes::copy_from_slice(command));
        rest = behind;
    }
    assert!(store.view().revision() >= 1, "a revision only grows");
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
        judge(&[(self.0.clone(), replayed)]);
    }
}
