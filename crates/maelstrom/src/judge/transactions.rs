//! Transactions as their clients saw them: [`Transaction`].

use crate::bench::history::{End, Operation};
use crate::json::Json;
use serde_json::Value;
use std::fmt;

/// A key or a value.
pub type Element = Json;

/// One step of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The key that is read or written.
    pub key: Element,
    /// The operation on that key.
    pub verb: Verb,
}

/// The operation of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verb {
    /// It saw this value; `None` when nobody knows what it saw.
    Read(Option<Element>),
    /// It wrote or appended this.
    Write(Element),
}

/// A transaction of one client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// Number of the process that made it.
    pub process: u64,
    /// Its beginning, as a place in the order of all that happened.
    pub invoked: u64,
    /// Its end in the same order; `None` when it is perhaps done, at any time since, or never.
    pub returned: Option<u64>,
    /// Whether it definitely had and will have no effect.
    pub has_failed: bool,
    /// Its steps, in order.
    pub operations: Vec<Step>,
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}[", self.invoked)?;
        for (position, Step { key, verb }) in self.operations.iter().enumerate() {
            let space = if position > 0 { " " } else { "" };
            match verb {
                Verb::Read(Some(value)) => write!(f, "{space}r {key}={value}")?,
                Verb::Read(None) => write!(f, "{space}r {key}=?")?,
                Verb::Write(value) => write!(f, "{space}w {key}:{value}")?,
            }
        }
        f.write_str("]")
    }
}

/// The transactions of a history.
pub fn parse(history: &[Operation]) -> Vec<Transaction> {
    let parse = |operation: &Operation| {
        let reply = operation.reply().and_then(|(_, reply)| reply.get("txn"));
        let is_known = reply.is_some();
        let steps = reply.or_else(|| operation.request.get("txn"))?.as_array()?;
        let operations = steps.iter().map(|step| {
            let key = Json::of(&step[1]);
            let value = Json::of(&step[2]);
            let verb = match step[0].as_str() {
                Some("r") => Verb::Read(is_known.then_some(value)),
                _ => Verb::Write(value),
            };
            Step { key, verb }
        });
        Some(Transaction {
            process: operation.process,
            invoked: operation.invoked,
            returned: operation.reply().map(|(place, _)| place),
            has_failed: matches!(operation.known(), Some((_, End::Fail(..)))),
            operations: operations.collect(),
        })
    };
    history.iter().filter_map(parse).collect()
}

/// The elements of a list; an absent list is an empty one. `None` when it is no list.
pub fn elements(list: &Element) -> Option<Vec<Element>> {
    match list.value() {
        Value::Null => Some(Vec::new()),
        Value::Array(list) => Some(list.iter().map(Json::of).collect()),
        _ => None,
    }
}
