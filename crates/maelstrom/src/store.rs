//! The replicated state: one map of JSON values with the operations of all workloads, [`Store`].
//!
//! A key holds any JSON value: lin-kv and txn-rw-register write it, txn-list-append appends to it. Beside the map stand a
//! set (broadcast, g-set), a counter and the logs of the kafka workload. Commands, and the snapshot, are JSON themselves.
//!
//! It deliberately knows no time: nothing here ever falls due.
//!
//! Read next: [`crate::request`], how a client's message becomes a [`Command`] or a [`Question`].

use crate::json::Json;
use bytes::{Buf, Bytes};
use hustings_core::{Lsn, SnapshotError, StateMachine};
use imbl::{OrdMap, OrdSet, Vector};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Messages that one poll answers per key.
const POLL_MAX: usize = 32;

/// One operation inside a transaction.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Micro {
    /// Reads the value of this key.
    Read(Json),
    /// Puts a value under this key.
    Write(Json, Json),
    /// Put an element at the end of the list there; an absent key is an empty list.
    Append(Json, Json),
}

/// The set that an element belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Heap {
    /// Messages that were broadcast.
    Messages,
    /// Elements that were added (g-set).
    Elements,
}

/// A change of the store.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Put a value under a key.
    Write {
        /// The key to write.
        key: Json,
        /// The value to put there.
        value: Json,
    },
    /// Put `to` there if `from` is.
    Swap {
        /// The key to write.
        key: Json,
        /// The value that must be there.
        from: Json,
        /// The value to put there.
        to: Json,
        /// Whether an absent key takes `to` too.
        creates: bool,
    },
    /// All of it, at one moment.
    Transaction(Vec<Micro>),
    /// Put an element into a set.
    Add(Heap, Json),
    /// Adds this to the counter; it may be negative.
    Count(i64),
    /// Put a message at the end of a log.
    Send {
        /// Key of the log.
        key: Json,
        /// The message to append.
        message: Json,
    },
    /// Somebody has worked on these logs up to here; smaller numbers than before change nothing.
    Commit(BTreeMap<Json, u64>),
}

/// The store's answer to a command.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// The command was carried out.
    Done,
    /// It is not done: there is no such key.
    Absent,
    /// It is not done: this value was there instead.
    Mismatch(Json),
    /// It is done; the results in the order of the operations.
    Transaction(Vec<Json>),
    /// It is done; the message is at this place of the log.
    Offset(u64),
    /// Not done, and nothing changed: the command makes no sense, for this reason.
    Malformed(String),
}

/// A request that only reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// The value of this key.
    Value(Json),
    /// The content of the set, or the counter: whichever was ever used.
    Whole,
    /// All messages that were broadcast.
    Messages,
    /// A transaction of reads alone.
    Values(Vec<Json>),
    /// The messages of these logs from these places on.
    Poll(BTreeMap<Json, u64>),
    /// The places up to which these logs were worked on.
    Committed(Vec<Json>),
}

/// The replicated state machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Store {
    values: OrdMap<Json, Json>,
    messages: OrdSet<Json>,
    elements: OrdSet<Json>,
    counter: Option<i64>,
    logs: OrdMap<Json, Vector<Json>>,
    committed: OrdMap<Json, u64>,
}

/// A store as a snapshot shows it.
#[derive(Default, Serialize, Deserialize)]
struct Image {
    values: Vec<(Json, Json)>,
    messages: Vec<Json>,
    elements: Vec<Json>,
    counter: Option<i64>,
    logs: Vec<(Json, Vec<Json>)>,
    committed: Vec<(Json, u64)>,
}

impl Command {
    /// The command as an entry carries it.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("a command is strings and numbers").into()
    }
}

impl Store {
    /// A store without any content.
    pub fn new() -> Store {
        Store::default()
    }

    fn null_or(value: Option<&Json>) -> Json {
        value.cloned().unwrap_or_else(|| Json::of(&Value::Null))
    }

    fn on_command(&mut self, command: Command) -> Answer {
        match command {
            Command::Write { key, value } => {
                self.values.insert(key, value);
                Answer::Done
            }
            Command::Swap { key, from, to, creates } => match self.values.get(&key) {
                None if !creates => Answer::Absent,
                Some(found) if *found != from => Answer::Mismatch(found.clone()),
                _ => {
                    self.values.insert(key, to);
                    Answer::Done
                }
            },
            Command::Transaction(micros) => self.on_transaction(micros),
            Command::Add(heap, element) => {
                let set = match heap {
                    Heap::Messages => &mut self.messages,
                    Heap::Elements => &mut self.elements,
                };
                set.insert(element);
                Answer::Done
            }
            Command::Count(delta) => match self.counter.unwrap_or(0).checked_add(delta) {
                Some(sum) => {
                    self.counter = Some(sum);
                    Answer::Done
                }
                None => Answer::Malformed("the counter would overflow".into()),
            },
            Command::Send { key, message } => {
                let log = self.logs.entry(key).or_default();
                log.push_back(message);
                Answer::Offset(log.len() as u64 - 1)
            }
            Command::Commit(offsets) => {
                for (key, offset) in offsets {
                    let committed = self.committed.entry(key).or_default();
                    *committed = offset.max(*committed);
                }
                Answer::Done
            }
        }
    }

    /// Does all of it or nothing: it works on a copy, which costs nothing until something is written.
    fn on_transaction(&mut self, micros: Vec<Micro>) -> Answer {
        let mut values = self.values.clone();
        let mut results = Vec::with_capacity(micros.len());
        for micro in micros {
            match micro {
                Micro::Read(key) => results.push(Store::null_or(values.get(&key))),
                Micro::Write(key, value) => {
                    values.insert(key, value.clone());
                    results.push(value);
                }
                Micro::Append(key, element) => {
                    let mut list = match values.get(&key).map(Json::value) {
                        None => Vec::new(),
                        Some(Value::Array(list)) => list,
                        Some(other) => return Answer::Malformed(format!("{key} holds {other}, which is no list")),
                    };
                    list.push(element.value());
                    values.insert(key, Json::of(&Value::Array(list)));
                    results.push(element);
                }
            }
        }
        self.values = values;
        Answer::Transaction(results)
    }

    /// Answers a question; the fields of the reply beside its type. `None`: there is no such key, or nothing was ever put in.
    pub fn ask(&self, question: &Question) -> Option<Value> {
        let list = |set: &OrdSet<Json>| Value::Array(set.iter().map(Json::value).collect());
        Some(match question {
            Question::Value(key) => json!({"value": self.values.get(key)?.value()}),
            Question::Messages => json!({"messages": list(&self.messages)}),
            Question::Whole if !self.messages.is_empty() => json!({"messages": list(&self.messages)}),
            Question::Whole if !self.elements.is_empty() => json!({"value": list(&self.elements)}),
            Question::Whole => json!({"value": self.counter?}),
            Question::Values(keys) => {
                let read = |key| json!(["r", Json::value(key), Store::null_or(self.values.get(key)).value()]);
                json!({"txn": keys.iter().map(read).collect::<Vec<_>>()})
            }
            Question::Poll(from) => {
                let mut found = Map::new();
                for (key, from) in from {
                    let Some(log) = self.logs.get(key) else { continue };
                    let messages = (0u64..).zip(log.iter()).skip_while(|(offset, _)| offset < from).take(POLL_MAX);
                    let messages = messages.map(|(offset, message)| json!([offset, message.value()])).collect();
                    found.insert(name_of(key), Value::Array(messages));
                }
                json!({"msgs": found})
            }
            Question::Committed(keys) => {
                let known = keys.iter().filter_map(|key| Some((name_of(key), json!(self.committed.get(key)?))));
                json!({"offsets": known.collect::<Map<_, _>>()})
            }
        })
    }
}

/// A key as the name of a field: kafka's keys are strings.
fn name_of(key: &Json) -> String {
    match key.value() {
        Value::String(name) => name,
        other => other.to_string(),
    }
}

impl StateMachine for Store {
    type Response = Answer;
    type View = Store;

    fn advance(&mut self, _: Duration) {}

    fn apply(&mut self, _: Lsn, payload: &Bytes) -> Answer {
        match serde_json::from_slice(payload) {
            Ok(command) => self.on_command(command),
            Err(error) => Answer::Malformed(error.to_string()),
        }
    }

    /// A clone: the maps are persistent, so it copies their roots.
    fn freeze(&self) -> Store {
        self.clone()
    }

    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    fn encode(view: &Store, sink: &mut dyn FnMut(Bytes)) {
        let pairs = |map: &OrdMap<Json, Json>| map.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let image = Image {
            values: pairs(&view.values),
            messages: view.messages.iter().cloned().collect(),
            elements: view.elements.iter().cloned().collect(),
            counter: view.counter,
            logs: view.logs.iter().map(|(key, log)| (key.clone(), log.iter().cloned().collect())).collect(),
            committed: view.committed.iter().map(|(key, offset)| (key.clone(), *offset)).collect(),
        };
        sink(serde_json::to_vec(&image).expect("an image is strings and numbers").into());
    }

    fn decode(snapshot: &mut dyn Buf) -> Result<Store, SnapshotError> {
        let bytes = snapshot.copy_to_bytes(snapshot.remaining());
        let image: Image = serde_json::from_slice(&bytes).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            SnapshotError { what: format!("{error}, at offset {} of line {line}", column.saturating_sub(1)) }
        })?;
        Ok(Store {
            values: image.values.into_iter().collect(),
            messages: image.messages.into_iter().collect(),
            elements: image.elements.into_iter().collect(),
            counter: image.counter,
            logs: image.logs.into_iter().map(|(key, log)| (key, Vector::from(log))).collect(),
            committed: image.committed.into_iter().collect(),
        })
    }
}
