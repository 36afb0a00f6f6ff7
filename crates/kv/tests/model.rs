//! Goal: the store answers as etcd would, in whatever order it is asked. Method: a naive model, a list of all writes ever,
//! answers the same random commands and reads; they must agree, also after compactions, through snapshots, and between two
//! replicas.

mod common;

use bytes::Bytes;
use common::*;
use hustings_core::{Lsn, StateMachine, Term};
use hustings_kv::*;
use proptest::{collection::vec, prelude::*};

/// All writes ever; a `KeyValue` with version 0 is a deletion.
#[derive(Clone, Default)]
struct Model {
    writes: Vec<KeyValue>,
    revision: i64,
    compacted: i64,
}

impl Model {
    fn new() -> Model {
        Model { writes: Vec::new(), revision: 1, compacted: -1 }
    }

    /// The keys of a range at a revision: the last write of each, if it is no deletion.
    fn range(&self, keys: &KeyRange, revision: i64) -> Vec<KeyValue> {
        let mut found = std::collections::BTreeMap::new();
        for write in self.writes.iter().filter(|write| write.mod_revision <= revision && keys.contains(&write.key)) {
            found.insert(write.key.clone(), write.clone());
        }
        found.into_values().filter(|kv| kv.version > 0).collect()
    }

    fn put(&mut self, key: &Bytes, value: &Bytes, main: i64) {
        let before = self.range(&KeyRange::new(key.clone(), Bytes::new()), main).pop();
        self.writes.push(KeyValue {
            key: key.clone(),
            value: value.clone(),
            create_revision: before.as_ref().map_or(main, |kv| kv.create_revision),
            mod_revision: main,
            version: before.map_or(0, |kv| kv.version) + 1,
            lease: 0,
        });
    }

    fn delete(&mut self, keys: &KeyRange, main: i64) -> i64 {
        let there = self.range(keys, main);
        for kv in &there {
            self.writes.push(KeyValue { key: kv.key.clone(), mod_revision: main, ..KeyValue::default() });
        }
        there.len() as i64
    }

    fn run(&mut self, step: &Step) -> Option<i64> {
        let main = self.revision + 1;
        let count = self.writes.len();
        match step {
            Step::Write(changes) => {
                for change in changes {
                    match change {
                        Change::Put(key, value) => self.put(key, value, main),
                        Change::Delete(key, end) => {
                            self.delete(&KeyRange::new(key.clone(), end.clone()), main);
                        }
                    }
                }
            }
            Step::Compact(back) => {
                let revision = self.revision - back;
                if revision <= self.compacted {
                    return None;
                }
                self.compacted = revision;
            }
            Step::Settle => {}
        }
        if self.writes.len() > count {
            self.revision = main;
        }
        Some(self.revision)
    }
}

#[derive(Clone, Debug)]
enum Change {
    Put(Bytes, Bytes),
    Delete(Bytes, Bytes),
}

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<Change>),
    Compact(i64),
    Settle,
}

fn key() -> impl Strategy<Value = Bytes> {
    // Few keys, so that they meet; one longer than a tree node holds.
    prop_oneof![
        4 => "[a-d]".prop_map(Bytes::from),
        1 => Just(Bytes::from_static(b"\0")),
        1 => Just(Bytes::from(vec![b'b'; 40])),
    ]
}

fn end() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just(Bytes::new()), Just(Bytes::from_static(b"\0")), key()]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (key(), "[x-z]{0,2}").prop_map(|(key, value)| Change::Put(key, value.into())),
        1 => (key(), end()).prop_map(|(key, end)| Change::Delete(key, end)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => vec(change(), 1..4).prop_map(Step::Write),
        1 => (0..6_i64).prop_map(Step::Compact),
        1 => Just(Step::Settle),
    ]
}

fn command(step: &Step, model: &Model) -> Command {
    match step {
        Step::Write(changes) => {
            let request = |change: &Change| match change.clone() {
                Change::Put(key, value) => Request::Put(Put { key, value, ..Put::default() }),
                Change::Delete(key, range_end) => Request::DeleteRange(DeleteRange { key, range_end, prev_kv: false }),
            };
            match (&changes[..], request(&changes[0])) {
                ([_], Request::Put(put)) => Command::Put(put),
                ([_], Request::DeleteRange(delete)) => Command::DeleteRange(delete),
                _ => Command::Txn(txn(changes.iter().map(request).collect())),
            }
        }
        Step::Compact(back) => Command::Compact(Compact { revision: model.revision - back }),
        Step::Settle => Command::Advance(Advance {}),
    }
}

fn assert_reads_agree(view: &View, model: &Model, keys: &KeyRange, request: &Range) -> Result<(), TestCaseError> {
    for revision in model.compacted.max(1)..=model.revision {
        let expected = model.range(keys, revision);
        let answer = view.range(&Range { revision, ..request.clone() }).expect("the revision is readable");
        prop_assert_eq!(answer.count, expected.len() as i64);
        prop_assert_eq!(answer.revision, model.revision);
        prop_assert_eq!(&answer.kvs, &expected);
        let limited = Range { revision, limit: 2, sort_order: SortOrder::Descend.into(), ..request.clone() };
        let answer = view.range(&limited).expect("the revision is readable");
        let last_two: Vec<_> = expected.iter().rev().take(2).cloned().collect();
        prop_assert_eq!(answer.kvs, last_two);
        let limited = Range { revision, limit: 2, ..request.clone() };
        let answer = view.range(&limited).expect("the revision is readable");
        prop_assert_eq!(answer.more, expected.len() > 2);
        prop_assert_eq!(answer.count, expected.len() as i64);
        prop_assert_eq!(&answer.kvs[..], &expected[..expected.len().min(2)]);
    }
    if model.compacted > 1 {
        let below = Range { revision: model.compacted - 1, ..request.clone() };
        prop_assert_eq!(view.range(&below), Err(KvError::Compacted { compact_revision: model.compacted }));
    }
    Ok(())
}

fn assert_watches_agree(view: &View, model: &Model, keys: &KeyRange) -> Result<(), TestCaseError> {
    for from in model.compacted.max(1)..=model.revision + 1 {
        let is_seen = |write: &&KeyValue| write.mod_revision >= from && keys.contains(&write.key);
        // History between the compact revision and now is whole; nothing before `from` comes.
        let expected: Vec<_> = model.writes.iter().filter(is_seen).cloned().collect();
        let seen = events(view, from, keys);
        for event in &seen {
            prop_assert_eq!(event.kind == EventKind::Delete, event.kv.version == 0);
            let before = KeyRange::new(event.kv.key.clone(), Bytes::new());
            let before = model.range(&before, event.kv.mod_revision - 1).pop();
            let is_readable = event.kv.mod_revision > model.compacted;
            // Deleted and written in one transaction it begins anew: that put has nothing before it.
            let is_beginning = event.kind == EventKind::Put && event.kv.create_revision == event.kv.mod_revision;
            prop_assert_eq!(view.prev_kv(event), before.filter(|_| is_readable && !is_beginning));
        }
        prop_assert_eq!(seen.into_iter().map(|event| event.kv).collect::<Vec<_>>(), expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_store_answers_as_a_list_of_all_writes_would(
        steps in vec(step(), 1..40), from in key(), to in end(),
    ) {
        let mut store = Store::new();
        let mut model = Model::new();
        for step in &steps {
            let command = command(step, &model);
            let outcome = store.run(command);
            let expected = model.run(step);
            prop_assert_eq!(outcome.is_ok(), expected.is_some());
            prop_assert_eq!(store.revision(), model.revision);
        }
        let keys = KeyRange::new(from.clone(), to.clone());
        let request = Range { key: from, range_end: to, ..Range::default() };
        for is_settled in [false, true] {
            let view = store.view();
            assert_reads_agree(&view, &model, &keys, &request)?;
            assert_watches_agree(&view, &model, &keys)?;
            assert_watches_agree(&view, &model, &KeyRange::all())?;
            if !is_settled {
                let before = hash_kv(&view, 0);
                store.settle();
                prop_assert_eq!(hash_kv(&store.view(), 0), before, "the hash does not see how far the clean-up is");
            }
        }
        // Settled, the store holds what a compaction keeps, and no more.
        let kept = model.writes.iter().enumerate().filter(|(place, write)| {
            let is_superseded = model.writes[place + 1..]
                .iter()
                .any(|later| later.key == write.key && later.mod_revision <= model.compacted);
            write.mod_revision >= model.compacted || (write.version > 0 && !is_superseded)
        });
        prop_assert_eq!(store.view().version_count(), kept.count());
        let restored = KvStore::decode(&mut &snapshot(&store.view())[..]).expect("our own snapshot is readable");
        prop_assert!(restored == store.kv);
    }

    #[test]
    fn replicas_that_apply_the_same_entries_are_equal(steps in vec(step(), 1..60), cut in 0_usize..60) {
        let mut model = Model::new();
        let mut ours = KvStore::new();
        let mut theirs = KvStore::new();
        let mut kept_views = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            let payload = command(step, &model).to_payload();
            model.run(step);
            let lsn = Lsn { term: Term(1), index: index as u64 };
            // One replica has readers, the other is restored from a snapshot on the way.
            kept_views.push(ours.freeze());
            if index == cut {
                theirs = KvStore::decode(&mut &snapshot(&theirs.freeze())[..]).expect("our own snapshot is readable");
            }
            prop_assert_eq!(ours.apply(lsn, &payload), theirs.apply(lsn, &payload));
            prop_assert!(ours == theirs);
        }
        prop_assert_eq!(hash_kv(&ours.freeze(), 0), hash_kv(&theirs.freeze(), 0));
        prop_assert_eq!(snapshot(&ours.freeze()), snapshot(&theirs.freeze()));
    }

    #[test]
    fn no_payload_makes_apply_panic(payloads in vec(vec(any::<u8>(), 0..64), 1..20), real in vec(step(), 1..8), hits in vec((0_usize..200, any::<u8>()), 0..20)) {
        let mut store = KvStore::new();
        let mut payloads: Vec<Bytes> = payloads.into_iter().map(Bytes::from).collect();
        // Real commands with a byte or two changed reach further than noise.
        for step in &real {
            let mut payload = command(step, &Model::new()).to_payload().to_vec();
            for (place, byte) in &hits {
                let place = place % payload.len().max(1);
                payload[place] = *byte;
            }
            payloads.push(payload.into());
        }
        for (index, payload) in payloads.iter().enumerate() {
            let before = store.clone();
            let lsn = Lsn { term: Term(1), index: index as u64 };
            if store.apply(lsn, payload) == Err(KvError::Malformed) {
                prop_assert!(store == before, "malformed bytes change nothing");
            }
        }
        let restored = KvStore::decode(&mut &snapshot(&store.freeze())[..]).expect("our own snapshot is readable");
        prop_assert!(restored == store);
    }

    #[test]
    fn no_bytes_make_decoding_a_snapshot_panic(steps in vec(step(), 1..20), hits in vec((any::<usize>(), any::<u8>()), 1..4), cut in any::<usize>(), noise in vec(any::<u8>(), 0..200)) {
        let mut store = Store::new();
        let mut model = Model::new();
        for step in &steps {
            let command = command(step, &model);
            model.run(step);
            let _ = store.run(command);
        }
        let whole = snapshot(&store.view());
        prop_assert!(KvStore::decode(&mut &whole[..cut % whole.len()]).is_err(), "a torn snapshot is refused");
        let mut damaged = whole.clone();
        for (place, byte) in hits {
            let place = place % damaged.len();
            damaged[place] = byte;
        }
        prop_assert_eq!(KvStore::decode(&mut &damaged[..]).is_ok(), damaged == whole);
        prop_assert!(KvStore::decode(&mut &noise[..]).is_err());
    }
}
