//! Requests of clients, and whether the answers have the right shape: [`Load`], [`shape`].
//!
//! Source: `docs/protocols/rules/maelstrom.md`, §3.9 (lin-kv), §3.10 (the others), MX-3 (schemas are closed).

use super::settings::{Settings, Workload};
use crate::dice::Dice;
use crate::envelope::{Body, body};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Number of values that registers may hold.
const VALUES: u64 = 5;
/// A key of lin-kv is retired when so many processes have touched it.
const PROCESSES_PER_KEY: usize = 20;

/// Threads that work on one key of lin-kv.
#[derive(Clone, Debug)]
struct Group {
    key: u64,
    processes: BTreeSet<u64>,
}

/// The source of requests.
#[derive(Clone, Debug)]
pub struct Load {
    settings: Settings,
    dice: Dice,
    groups: Vec<Group>,
    next_key: u64,
    /// Keys of transactions, and how often each was written.
    keys: Vec<(u64, u64)>,
    next_element: u64,
}

impl Load {
    /// The load of a run.
    pub fn new(settings: &Settings, dice: Dice) -> Load {
        let groups = settings.concurrency.div_ceil(2 * settings.nodes) as u64;
        let (groups, keys, next_key) = match settings.workload {
            Workload::LinKv => {
                ((0..groups).map(|key| Group { key, processes: BTreeSet::new() }).collect(), Vec::new(), groups)
            }
            _ => (Vec::new(), (0..settings.key_count).map(|key| (key, 0)).collect(), settings.key_count),
        };
        Load { settings: settings.clone(), dice, groups, next_key, keys, next_element: 0 }
    }

    /// The next request of this thread.
    pub fn next(&mut self, thread: usize, process: u64) -> Body {
        let even = self.dice.chance(0.5);
        body(match self.settings.workload {
            Workload::LinKv => self.register(thread, process),
            Workload::Echo => json!({"type": "echo", "echo": format!("Please echo {}", self.dice.below(128))}),
            Workload::UniqueIds => json!({"type": "generate"}),
            Workload::TxnListAppend => self.transaction("append"),
            Workload::TxnRwRegister => self.transaction("w"),
            Workload::Broadcast if even => json!({"type": "broadcast", "message": self.element()}),
            Workload::GSet if even => json!({"type": "add", "element": self.element()}),
            Workload::PnCounter if even => {
                let delta = i64::try_from(self.dice.below(10)).unwrap_or_default() - 5;
                json!({"type": "add", "delta": delta})
            }
            Workload::Broadcast | Workload::GSet | Workload::PnCounter => json!({"type": "read"}),
        })
    }

    /// The last request to each node when all is over, to see that it serves again.
    pub fn last(&mut self) -> Body {
        body(match self.settings.workload {
            Workload::LinKv => {
                let group = self.dice.index(self.groups.len());
                json!({"type": "read", "key": self.groups[group].key})
            }
            Workload::Echo => json!({"type": "echo", "echo": "the last one"}),
            Workload::UniqueIds => json!({"type": "generate"}),
            Workload::TxnListAppend | Workload::TxnRwRegister => {
                json!({"type": "txn", "txn": self.keys.iter().map(|(key, _)| json!(["r", key, null])).collect::<Vec<_>>()})
            }
            Workload::Broadcast | Workload::GSet | Workload::PnCounter => json!({"type": "read"}),
        })
    }

    fn element(&mut self) -> u64 {
        self.next_element += 1;
        self.next_element - 1
    }

    /// Readers are one thread per node; the others write once for every two swaps.
    fn register(&mut self, thread: usize, process: u64) -> Value {
        let width = 2 * self.settings.nodes;
        let group = &mut self.groups[thread / width];
        if !group.processes.contains(&process) && group.processes.len() >= PROCESSES_PER_KEY {
            *group = Group { key: self.next_key, processes: BTreeSet::new() };
            self.next_key += 1;
        }
        group.processes.insert(process);
        let key = group.key;
        if thread % width < self.settings.nodes {
            return json!({"type": "read", "key": key});
        }
        let (one, other) = (self.dice.below(VALUES), self.dice.below(VALUES));
        match self.dice.below(3) {
            0 => json!({"type": "write", "key": key, "value": one}),
            _ => json!({"type": "cas", "key": key, "from": one, "to": other}),
        }
    }

    fn transaction(&mut self, verb: &str) -> Value {
        let length = self.dice.between(1, self.settings.max_txn_length);
        let operations: Vec<Value> = (0..length)
            .map(|_| {
                let position = self.dice.index(self.keys.len());
                let (key, writes) = self.keys[position];
                if self.dice.chance(0.5) {
                    return json!(["r", key, null]);
                }
                self.keys[position].1 += 1;
                if writes + 1 >= self.settings.max_writes_per_key {
                    self.keys[position] = (self.next_key, 0);
                    self.next_key += 1;
                }
                // Every write to a key has a value of its own: the judge knows whose value it sees.
                json!([verb, key, writes + 1])
            })
            .collect();
        json!({"type": "txn", "txn": operations})
    }
}

/// Checks that a success reply is what its request allows: its type, and exactly these fields.
///
/// # Errors
/// In words, what is wrong.
pub fn shape(workload: Workload, request: &Body, reply: &Body) -> Result<(), String> {
    let asked = request.get("type").and_then(Value::as_str).unwrap_or_default();
    let wanted = format!("{asked}_ok");
    let said = reply.get("type").and_then(Value::as_str).unwrap_or_default();
    if said != wanted {
        return Err(format!("`{asked}` was answered by `{said}`"));
    }
    let field = match (asked, workload) {
        ("read", Workload::Broadcast) => Some("messages"),
        ("read", _) => Some("value"),
        ("echo", _) => Some("echo"),
        ("generate", _) => Some("id"),
        ("txn", _) => Some("txn"),
        _ => None,
    };
    let is_known =
        |name: &&String| ["type", "msg_id", "in_reply_to"].contains(&name.as_str()) || Some(name.as_str()) == field;
    if let Some(strange) = reply.keys().find(|name| !is_known(name)) {
        return Err(format!("`{said}` has a field `{strange}`"));
    }
    let Some(field) = field else { return Ok(()) };
    let Some(value) = reply.get(field) else { return Err(format!("`{said}` has no `{field}`")) };
    let is_right = match (asked, workload) {
        ("read", Workload::Broadcast | Workload::GSet) => value.is_array(),
        ("read", Workload::PnCounter) => value.is_i64(),
        ("txn", _) => is_filled(request.get("txn"), value),
        _ => true,
    };
    if is_right { Ok(()) } else { Err(format!("the `{field}` of `{said}` is {value}")) }
}

/// Whether this is the asked transaction with its reads filled in.
fn is_filled(asked: Option<&Value>, said: &Value) -> bool {
    let (Some(asked), Some(said)) = (asked.and_then(Value::as_array), said.as_array()) else { return false };
    asked.len() == said.len()
        && asked.iter().zip(said).all(|(asked, said)| {
            said.as_array().is_some_and(|said| said.len() == 3)
                && asked[0] == said[0]
                && asked[1] == said[1]
                && (asked[0] == "r" || asked[2] == said[2])
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_retired_when_twenty_processes_have_touched_it() {
        let mut load = Load::new(&Settings::new(Workload::LinKv, 1, 1), Dice::new(1, 1));
        let keys: Vec<Value> = (0..21).map(|process| load.next(0, process)["key"].clone()).collect();
        assert_eq!((&keys[19], &keys[20]), (&json!(0), &json!(1)));
    }

    #[test]
    fn replies_of_another_shape_are_named() {
        let read = body(json!({"type": "read", "key": 1}));
        let told = |reply: Value| shape(Workload::LinKv, &read, &body(reply));
        assert_eq!(told(json!({"type": "read_ok", "value": null, "in_reply_to": 1})), Ok(()));
        assert!(told(json!({"type": "read_ok"})).is_err());
        assert!(told(json!({"type": "read_ok", "value": 1, "more": 1})).is_err());
        assert!(told(json!({"type": "write_ok"})).is_err());
        let txn = body(json!({"type": "txn", "txn": [["r", 1, null], ["append", 1, 2]]}));
        let told = |said: Value| shape(Workload::TxnListAppend, &txn, &body(json!({"type": "txn_ok", "txn": said})));
        assert_eq!(told(json!([["r", 1, []], ["append", 1, 2]])), Ok(()));
        assert!(told(json!([["r", 1, []]])).is_err());
        assert!(told(json!([["r", 1, []], ["append", 1, 3]])).is_err());
    }
}
