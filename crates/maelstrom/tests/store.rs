//! Goal: the store does what the workloads ask, and its snapshots are whole. Method: chance, beside plain maps.

use bytes::Bytes;
use hustings_core::{Lsn, StateMachine};
use hustings_maelstrom::Store;
use hustings_maelstrom::json::Json;
use hustings_maelstrom::store::{Answer, Command, Heap, Micro, Question};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

fn number(value: u64) -> Json {
    Json::of(&json!(value))
}

fn micro() -> impl Strategy<Value = Micro> {
    (0u64..4, 0u64..9, 0..3).prop_map(|(key, value, verb)| match verb {
        0 => Micro::Read(number(key)),
        // Lists and registers live at keys of their own.
        1 => Micro::Write(number(key), number(value)),
        _ => Micro::Append(number(key + 10), number(value)),
    })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        (0u64..4, 0u64..4).prop_map(|(key, value)| Command::Write { key: number(key), value: number(value) }),
        (0u64..4, 0u64..4, 0u64..4, any::<bool>()).prop_map(|(key, from, to, creates)| Command::Swap {
            key: number(key),
            from: number(from),
            to: number(to),
            creates
        }),
        prop::collection::vec(micro(), 0..5).prop_map(Command::Transaction),
        (0u64..9, any::<bool>()).prop_map(|(element, is_message)| {
            Command::Add(if is_message { Heap::Messages } else { Heap::Elements }, number(element))
        }),
        (-5i64..5).prop_map(Command::Count),
        (0u64..3, 0u64..9).prop_map(|(key, message)| Command::Send {
            key: Json::of(&json!(key.to_string())),
            message: number(message)
        }),
        (0u64..3, 0u64..9).prop_map(|(key, offset)| {
            Command::Commit(BTreeMap::from([(Json::of(&json!(key.to_string())), offset)]))
        }),
    ]
}

/// The same with plain maps.
#[derive(Default)]
struct Model {
    values: BTreeMap<Json, Value>,
    messages: BTreeSet<Json>,
    elements: BTreeSet<Json>,
    counter: i64,
    logs: BTreeMap<Json, Vec<Json>>,
}

impl Model {
    fn apply(&mut self, command: &Command) -> Answer {
        match command {
            Command::Write { key, value } => {
                self.values.insert(key.clone(), value.value());
                Answer::Done
            }
            Command::Swap { key, from, to, creates } => {
                let found = self.values.get(key).map(Json::of);
                if found.is_none() && !creates {
                    return Answer::Absent;
                }
                if let Some(found) = found.filter(|found| found != from) {
                    return Answer::Mismatch(found);
                }
                self.values.insert(key.clone(), to.value());
                Answer::Done
            }
            Command::Transaction(micros) => {
                let mut results = Vec::new();
                for micro in micros {
                    results.push(match micro {
                        Micro::Read(key) => Json::of(self.values.get(key).unwrap_or(&Value::Null)),
                        Micro::Write(key, value) => {
                            self.values.insert(key.clone(), value.value());
                            value.clone()
                        }
                        Micro::Append(key, element) => {
                            let list = self.values.entry(key.clone()).or_insert_with(|| json!([]));
                            list.as_array_mut().expect("a list").push(element.value());
                            element.clone()
                        }
                    });
                }
                Answer::Transaction(results)
            }
            Command::Add(Heap::Messages, element) => {
                self.messages.insert(element.clone());
                Answer::Done
            }
            Command::Add(Heap::Elements, element) => {
                self.elements.insert(element.clone());
                Answer::Done
            }
            Command::Count(delta) => {
                self.counter += delta;
                Answer::Done
            }
            Command::Send { key, message } => {
                let log = self.logs.entry(key.clone()).or_default();
                log.push(message.clone());
                Answer::Offset(log.len() as u64 - 1)
            }
            Command::Commit(_) => Answer::Done,
        }
    }
}

fn encoded(store: &Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    Store::encode(&store.freeze(), &mut |chunk| bytes.extend_from_slice(&chunk));
    bytes
}

proptest! {
    #[test]
    fn the_store_answers_as_plain_maps_do_and_survives_its_snapshot(commands in prop::collection::vec(command(), 0..60)) {
        let (mut store, mut model) = (Store::new(), Model::default());
        for command in &commands {
            prop_assert_eq!(store.apply(Lsn::ZERO, &command.encode()), model.apply(command));
        }
        for key in 0..14 {
            let found = store.ask(&Question::Value(number(key))).map(|reply| reply["value"].clone());
            prop_assert_eq!(found.as_ref(), model.values.get(&number(key)));
        }
        let messages: Vec<Value> = model.messages.iter().map(Json::value).collect();
        prop_assert_eq!(store.ask(&Question::Messages), Some(json!({"messages": messages})));
        let again = Store::decode(&mut Bytes::from(encoded(&store))).unwrap();
        prop_assert_eq!(&again, &store);
        prop_assert_eq!(encoded(&again), encoded(&store));
    }

    #[test]
    fn bytes_that_are_no_command_change_nothing(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut store = Store::new();
        let answer = store.apply(Lsn::ZERO, &Bytes::from(bytes.clone()));
        prop_assert!(matches!(answer, Answer::Malformed(_)));
        prop_assert_eq!(store, Store::new());
        prop_assert!(Store::decode(&mut Bytes::from(bytes)).is_err());
    }
}

#[test]
fn a_transaction_that_makes_no_sense_changes_nothing() {
    let mut store = Store::new();
    let write = |key: u64| Micro::Write(number(key), number(1));
    store.apply(Lsn::ZERO, &Command::Transaction(vec![write(1)]).encode());
    let before = store.clone();
    let senseless = Command::Transaction(vec![write(2), Micro::Append(number(1), number(2))]);
    assert!(matches!(store.apply(Lsn::ZERO, &senseless.encode()), Answer::Malformed(why) if why.contains("no list")));
    assert_eq!(store, before);
}

#[test]
fn a_log_is_polled_from_the_asked_place_and_offsets_only_grow() {
    let mut store = Store::new();
    let key = Json::of(&json!("a"));
    for message in 7..10 {
        store.apply(Lsn::ZERO, &Command::Send { key: key.clone(), message: number(message) }.encode());
    }
    for offset in [2, 1] {
        store.apply(Lsn::ZERO, &Command::Commit(BTreeMap::from([(key.clone(), offset)])).encode());
    }
    let poll = Question::Poll(BTreeMap::from([(key.clone(), 1), (number(4), 0)]));
    assert_eq!(store.ask(&poll), Some(json!({"msgs": {"a": [[1, 8], [2, 9]]}})));
    assert_eq!(store.ask(&Question::Committed(vec![key, number(4)])), Some(json!({"offsets": {"a": 2}})));
}
