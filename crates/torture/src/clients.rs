//! Load and history: [`Load`]. Clients speak etcd's gRPC, each to one member at a time, and write down what they saw.
//!
//! Every value is written at most once, so that a value found anywhere names the operation that wrote it. An answer that says
//! *definitely not done* is believed here and checked by the verdict: what was refused must never be found (MX-1). Everything
//! else that is not a success is *perhaps done*.

use bytes::Bytes;
use hustings_api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use hustings_api::etcdserverpb::request_op::Request;
use hustings_api::etcdserverpb::response_op::Response;
use hustings_api::etcdserverpb::{Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest};
use hustings_api::{Client, EtcdError};
use hustings_properties::{Act, Operation, Value};
use hustings_world::dice::Dice;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tonic::Status;

/// Time that a client waits for an answer before it goes to the next member.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Time that it waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Its pause between two operations, in microseconds.
const PAUSE_MICROS: (u64, u64) = (1_000, 8_000);
/// Bits of a value that count a client's own writes.
const SEQUENCE_BITS: u32 = 32;

/// The end of a change, as its client knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Done, at this revision.
    Done(i64),
    /// The change was definitely not done.
    Refused,
    /// The change was perhaps done.
    Unknown,
}

/// A change that a client asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Number of the key.
    pub key: u64,
    /// Value that it was to hold.
    pub value: Value,
    /// The end of the change.
    pub fate: Outcome,
}

/// The operations of clients, with their results.
#[derive(Default, Debug)]
pub struct History {
    /// Operations for the judge: those that were done or perhaps done.
    pub operations: Vec<Operation>,
    /// Changes that clients tried.
    pub changes: Vec<Change>,
    /// Operations that ended well, refused ones, and those without an answer that says.
    pub done: u64,
    /// Operations that were definitely not done.
    pub refused: u64,
    /// Operations that were perhaps done.
    pub unknown: u64,
}

impl History {
    fn absorb(&mut self, other: History) {
        self.operations.extend(other.operations);
        self.changes.extend(other.changes);
        self.done += other.done;
        self.refused += other.refused;
        self.unknown += other.unknown;
    }
}

/// The name of a key.
pub fn key_name(key: u64) -> String {
    format!("torture/{key}")
}

/// A running load: its clients, until they are stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    /// Operations that ended well so far.
    pub done: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<History>>,
}

impl Load {
    /// Starts so many clients on so many keys.
    pub fn start(seed: u64, clients: u64, keys: u64, endpoints: &[String], begun: Instant) -> Load {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let worker = |number: u64| Worker {
            number,
            keys,
            endpoints: endpoints.to_vec(),
            position: number as usize % endpoints.len(),
            dice: Dice::new(seed, u64::from_be_bytes(*b"a client"), number),
            begun,
            written: 0,
            known: BTreeMap::new(),
            history: History::default(),
        };
        let tasks = (0..clients).map(|number| tokio::spawn(worker(number).run(stop.clone(), done.clone()))).collect();
        Load { stop, done, tasks }
    }

    /// Stops them; gives what they saw.
    pub async fn end(self) -> anyhow::Result<History> {
        self.stop.store(true, Ordering::Relaxed);
        let mut history = History::default();
        for task in self.tasks {
            history.absorb(task.await?);
        }
        Ok(history)
    }
}

struct Worker {
    number: u64,
    keys: u64,
    endpoints: Vec<String>,
    position: usize,
    dice: Dice,
    begun: Instant,
    written: u64,
    /// Last value that it saw under each key: it compares with that.
    known: BTreeMap<u64, Value>,
    history: History,
}

/// An answer: what was seen or done, and the revision of a change.
type Answer = (Act, Option<i64>);

impl Worker {
    async fn run(mut self, stop: Arc<AtomicBool>, done: Arc<AtomicU64>) -> History {
        let mut client = None;
        while !stop.load(Ordering::Relaxed) {
            let pause = self.dice.between(PAUSE_MICROS.0, PAUSE_MICROS.1);
            tokio::time::sleep(Duration::from_micros(pause)).await;
            let Some(connected) = &client else {
                let endpoint = self.endpoints[self.position].clone();
                client =
                    tokio::time::timeout(CONNECT_TIMEOUT, Client::connect(&[endpoint])).await.ok().and_then(Result::ok);
                if client.is_none() {
                    self.position = (self.position + 1) % self.endpoints.len();
                }
                continue;
            };
            let (key, act) = self.draw();
            let invoked = self.now();
            let asked = tokio::time::timeout(ANSWER_TIMEOUT, ask(connected, key, act)).await;
            let returned = self.now();
            let is_well = self.note(key, act, invoked, returned, asked.ok());
            if is_well {
                done.fetch_add(1, Ordering::Relaxed);
            } else {
                client = None;
                self.position = (self.position + 1) % self.endpoints.len();
            }
        }
        self.history
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn fresh(&mut self) -> Value {
        self.written += 1;
        Some(self.number << SEQUENCE_BITS | self.written)
    }

    fn draw(&mut self) -> (u64, Act) {
        let key = self.dice.below(self.keys);
        let act = match self.dice.below(10) {
            0..=3 => Act::Read(None),
            4..=6 => Act::Write(self.fresh()),
            7..=8 => Act::Swap { from: self.known.get(&key).copied().flatten(), to: self.fresh() },
            _ => Act::Write(None),
        };
        (key, act)
    }

    /// Writes down how an operation ended; whether it ended well.
    fn note(
        &mut self,
        key: u64,
        act: Act,
        invoked: u64,
        returned: u64,
        answer: Option<Result<Answer, Status>>,
    ) -> bool {
        let mut operation = Operation { key, client: self.number, invoked, returned: Some(returned), act };
        let (fate, is_well) = match answer {
            Some(Ok((seen, revision))) => {
                self.known.insert(
                    key,
                    match seen {
                        Act::Read(value) | Act::Write(value) | Act::Swap { to: value, .. } => value,
                        Act::Mismatch { saw, .. } => saw.flatten(),
                    },
                );
                operation.act = seen;
                self.history.operations.push(operation);
                self.history.done += 1;
                (revision.map(Outcome::Done), true)
            }
            Some(Err(status)) if is_definite(&status) => {
                self.history.refused += 1;
                (Some(Outcome::Refused), false)
            }
            _ => {
                self.history.unknown += 1;
                operation.returned = None;
                if act.leaves().is_some() {
                    self.history.operations.push(operation);
                }
                (Some(Outcome::Unknown), false)
            }
        };
        if let (Some(fate), Some(value)) = (fate, act.leaves()) {
            self.history.changes.push(Change { key, value, fate });
        }
        is_well
    }
}

/// Whether an error says that nothing was done and nothing will be.
pub(crate) fn is_definite(status: &Status) -> bool {
    matches!(EtcdError::of(status), Some(EtcdError::NoLeader | EtcdError::TooManyRequests | EtcdError::NoSpace))
}

fn value_of(bytes: &[u8]) -> Value {
    // A value that is not a number was not written by us; the verdict meets it again as a value that nobody wrote.
    Some(std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX))
}

fn text_of(value: Value) -> Bytes {
    value.map(|value| value.to_string()).unwrap_or_default().into()
}

async fn ask(client: &Client, key: u64, act: Act) -> Result<Answer, Status> {
    let name = Bytes::from(key_name(key));
    let read = RangeRequest { key: name.clone(), ..RangeRequest::default() };
    let put = |value| PutRequest { key: name.clone(), value: text_of(value), ..PutRequest::default() };
    Ok(match act {
        Act::Write(None) => {
            let delete = DeleteRangeRequest { key: name, ..DeleteRangeRequest::default() };
            let answer = client.kv().delete_range(delete).await?.into_inner();
            // Nothing deleted is nothing changed: the revision is somebody else's.
            let revision = (answer.deleted > 0).then_some(answer.header.unwrap_or_default().revision);
            (act, revision)
        }
        Act::Write(value) => {
            let answer = client.kv().put(put(value)).await?.into_inner();
            (act, Some(answer.header.unwrap_or_default().revision))
        }
        Act::Swap { from, to } => {
            let compare = Compare {
                result: CompareResult::Equal as i32,
                key: name.clone(),
                target: if from.is_some() { CompareTarget::Value } else { CompareTarget::Version } as i32,
                target_union: Some(match from {
                    Some(_) => TargetUnion::Value(text_of(from)),
                    None => TargetUnion::Version(0),
                }),
                ..Compare::default()
            };
            let txn = TxnRequest {
                compare: vec![compare],
                success: vec![RequestOp { request: Some(Request::RequestPut(put(to))) }],
                failure: vec![RequestOp { request: Some(Request::RequestRange(read)) }],
            };
            let answer = client.kv().txn(txn).await?.into_inner();
            if answer.succeeded {
                return Ok((act, Some(answer.header.unwrap_or_default().revision)));
            }
            let found = answer.responses.into_iter().find_map(|response| match response.response {
                Some(Response::ResponseRange(found)) => Some(found),
                _ => None,
            });
            let saw = found.map(|found| found.kvs.first().and_then(|kv| value_of(&kv.value)));
            (Act::Mismatch { from, saw }, None)
        }
        Act::Read(_) | Act::Mismatch { .. } => {
            let answer = client.kv().range(read).await?.into_inner();
            (Act::Read(answer.kvs.first().and_then(|kv| value_of(&kv.value))), None)
        }
    })
}
