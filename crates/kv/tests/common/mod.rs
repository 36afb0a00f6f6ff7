//! Short words for the stories: a store that takes commands and counts entries.
#![allow(dead_code, reason = "each test file uses its own part of the vocabulary")]

use std::time::Duration;

use bytes::Bytes;
use hustings_core::{Lsn, StateMachine, Term};
use hustings_kv::*;

/// A store under test.
pub struct Store {
    pub kv: KvStore,
    index: u64,
}

impl Store {
    pub fn new() -> Store {
        Store { kv: KvStore::new(), index: 0 }
    }

    pub fn run(&mut self, command: Command) -> Outcome {
        self.index += 1;
        self.kv.apply(Lsn { term: Term(1), index: self.index }, &command.to_payload())
    }

    pub fn put(&mut self, key: &str, value: &str) -> i64 {
        match self.run(Command::Put(put(key, value))) {
            Ok(Response::Put(answer)) => answer.revision,
            other => panic!("a put answered {other:?}"),
        }
    }

    pub fn put_with_lease(&mut self, key: &str, lease: i64) -> Outcome {
        self.run(Command::Put(Put { lease, ..put(key, "leased") }))
    }

    pub fn delete(&mut self, key: &str, end: &str) -> DeleteRangeResponse {
        match self.run(Command::DeleteRange(DeleteRange { prev_kv: true, ..delete(key, end) })) {
            Ok(Response::DeleteRange(answer)) => answer,
            other => panic!("a deletion answered {other:?}"),
        }
    }

    pub fn txn(&mut self, txn: Txn) -> Result<TxnResponse, KvError> {
        match self.run(Command::Txn(txn))? {
            Response::Txn(answer) => Ok(answer),
            other => panic!("a transaction answered {other:?}"),
        }
    }

    pub fn compact(&mut self, revision: i64) -> Outcome {
        self.run(Command::Compact(Compact { revision }))
    }

    pub fn grant(&mut self, id: i64, ttl: i64) -> Outcome {
        self.run(Command::LeaseGrant(LeaseGrant { id, ttl }))
    }

    pub fn revoke(&mut self, id: i64) -> Outcome {
        self.run(Command::LeaseRevoke(LeaseRevoke { id }))
    }

    pub fn keep_alive(&mut self, id: i64) -> Option<i64> {
        match self.run(Command::LeaseKeepAlive(LeaseKeepAlive { ids: vec![id] })) {
            Ok(Response::LeaseKeepAlive { renewed, .. }) => renewed[0].1,
            other => panic!("a keep-alive answered {other:?}"),
        }
    }

    pub fn alarm(&mut self, kind: AlarmKind, raise: bool) -> Outcome {
        self.run(Command::Alarm(AlarmChange { raise, member: 1, kind: kind.into() }))
    }

    pub fn wait(&mut self, seconds: f64) {
        self.kv.advance(Duration::from_secs_f64(seconds));
    }

    /// Lets the removal of compacted history come to its end.
    pub fn settle(&mut self) {
        while self.kv.next_deadline() == Some(Duration::ZERO) {
            self.run(Command::Advance(Advance {})).expect("an advance is never refused");
        }
    }

    pub fn view(&self) -> View {
        self.kv.freeze()
    }

    pub fn revision(&self) -> i64 {
        self.kv.view().revision()
    }

    pub fn value(&self, key: &str) -> Option<Bytes> {
        let answer = self.view().range(&range(key, "")).expect("the present can be read");
        answer.kvs.into_iter().next().map(|kv| kv.value)
    }
}

pub fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub fn put(key: &str, value: &str) -> Put {
    Put { key: bytes(key), value: bytes(value), ..Put::default() }
}

pub fn delete(key: &str, end: &str) -> DeleteRange {
    DeleteRange { key: bytes(key), range_end: bytes(end), prev_kv: false }
}

pub fn range(key: &str, end: &str) -> Range {
    Range { key: bytes(key), range_end: bytes(end), ..Range::default() }
}

pub fn txn(success: Vec<Request>) -> Txn {
    branches(Vec::new(), success, Vec::new())
}

pub fn branches(compare: Vec<Compare>, success: Vec<Request>, failure: Vec<Request>) -> Txn {
    let operations = |requests: Vec<Request>| requests.into_iter().map(Operation::from).collect();
    Txn { compare, success: operations(success), failure: operations(failure) }
}

pub fn compare(key: &str, comparison: Comparison, target: CompareTarget) -> Compare {
    Compare { comparison: comparison.into(), key: bytes(key), range_end: Bytes::new(), target: Some(target) }
}

pub fn keys(answer: &RangeResponse) -> Vec<String> {
    answer.kvs.iter().map(|kv| String::from_utf8_lossy(&kv.key).into_owned()).collect()
}

pub fn between(key: &str, end: &str) -> KeyRange {
    KeyRange::new(bytes(key), bytes(end))
}

/// Reads all events from a revision on, a few at a time.
pub fn events(view: &View, from: i64, keys: &KeyRange) -> Vec<Event> {
    let mut all = Vec::new();
    let mut next = from;
    while next <= view.revision() {
        let part = view.events_since(next, keys, 2).expect("the history is there");
        assert!(part.next_revision > next, "a call moves on");
        next = part.next_revision;
        all.extend(part.events);
    }
    all
}

pub fn snapshot(view: &View) -> Vec<u8> {
    let mut bytes = Vec::new();
    KvStore::encode(view, &mut |chunk| bytes.extend_from_slice(&chunk));
    bytes
}
