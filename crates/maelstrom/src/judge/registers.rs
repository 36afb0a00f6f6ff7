//! Registers: lin-kv, and transactions over registers seen through one key at a time.
//!
//! Beyond the genuine tool: a read of `null` is a read of nothing and matches no other state; errors 20 and 22 are observations
//! and must be true at some moment of their request; an answer that came late is an answer.

use super::transactions::{Element, Transaction, Verb};
use crate::bench::history::{End, Operation};
use crate::envelope::code;
use crate::json::Json;
use hustings_properties::{Act, Violation, history, linearizability};
use serde_json::Value;
use std::collections::BTreeMap;

/// Gives every distinct value a number; `null` is nothing.
#[derive(Default)]
struct Numbers(BTreeMap<Json, u64>);

impl Numbers {
    fn of(&mut self, value: &Value) -> history::Value {
        let next = self.0.len() as u64;
        (!value.is_null()).then(|| *self.0.entry(Json::of(value)).or_insert(next))
    }
}

/// Judges lin-kv.
pub fn judge(operations: &[Operation]) -> Vec<Violation> {
    let (mut keys, mut values) = (Numbers::default(), Numbers::default());
    let mut history = Vec::new();
    let mut found = Vec::new();
    for operation in operations {
        let field = |name: &str| operation.request.get(name).unwrap_or(&Value::Null);
        let key = keys.of(field("key")).unwrap_or_default();
        let known = operation.known();
        let observed = operation.observed().map(|(_, code)| code);
        let act = match (operation.function(), observed) {
            ("read", None) => match operation.reply() {
                Some((_, reply)) => Act::Read(values.of(reply.get("value").unwrap_or(&Value::Null))),
                None => continue,
            },
            ("read", Some(code::ABSENT)) => Act::Read(None),
            ("write", None) => Act::Write(values.of(field("value"))),
            ("cas", None) => Act::Swap { from: values.of(field("from")), to: values.of(field("to")) },
            ("cas", Some(code::ABSENT)) => Act::Mismatch { from: values.of(field("from")), saw: Some(None) },
            ("cas", Some(_)) => Act::Mismatch { from: values.of(field("from")), saw: None },
            (function, Some(code)) => {
                let what =
                    format!("n{} answered `{function}` with error {code}, which says nothing of it", operation.node);
                found.push(Violation { property: "replies", what });
                continue;
            }
            _ => continue,
        };
        if observed.is_none() && matches!(known, Some((_, End::Fail(..)))) {
            continue;
        }
        let returned = known.map(|(place, _)| place);
        history.push(hustings_properties::Operation {
            key,
            client: operation.process,
            invoked: operation.invoked,
            returned,
            act,
        });
    }
    found.extend(check(&history));
    found
}

fn check(history: &[hustings_properties::Operation]) -> Option<Violation> {
    let stuck = linearizability::check(history).err()?;
    Some(Violation { property: "linearizability", what: stuck.to_string() })
}

/// Judges transactions over registers. Strict serializability makes every key linearizable by itself: a transaction is, on each
/// key, what it read before it wrote and what it wrote last. Values are unique per key, so a read of a write that failed or that
/// was overwritten inside its own transaction finds no place either.
///
/// What this does not see: cycles that need more than one key, for the order of versions of a register cannot be known.
pub fn judge_transactions(transactions: &[Transaction]) -> Vec<Violation> {
    let mut found: Vec<Violation> = transactions.iter().filter_map(judge_inside).collect();
    let mut keys = Numbers::default();
    let mut values = Numbers::default();
    let mut history = Vec::new();
    for transaction in transactions.iter().filter(|transaction| !transaction.has_failed) {
        let mut by_key: BTreeMap<&Element, (Option<history::Value>, Option<history::Value>)> = BTreeMap::new();
        for operation in &transaction.operations {
            let (read, written) = by_key.entry(&operation.key).or_default();
            match &operation.verb {
                Verb::Read(Some(value)) if written.is_none() && read.is_none() => {
                    *read = Some(values.of(&value.value()))
                }
                Verb::Read(_) => {}
                Verb::Write(value) => *written = Some(values.of(&value.value())),
            }
        }
        for (key, (read, written)) in by_key {
            let act = match (read, written) {
                (Some(from), Some(to)) => Act::Swap { from, to },
                (None, Some(to)) => Act::Write(to),
                (Some(saw), None) => Act::Read(saw),
                (None, None) => continue,
            };
            let key = keys.of(&key.value()).unwrap_or_default();
            history.push(hustings_properties::Operation {
                key,
                client: transaction.process,
                invoked: transaction.invoked,
                returned: transaction.returned,
                act,
            });
        }
    }
    found.extend(check(&history));
    found
}

/// A transaction sees its own writes.
fn judge_inside(transaction: &Transaction) -> Option<Violation> {
    let mut known: BTreeMap<&Element, Element> = BTreeMap::new();
    for operation in &transaction.operations {
        match &operation.verb {
            Verb::Write(value) => drop(known.insert(&operation.key, value.clone())),
            Verb::Read(Some(value)) => {
                let before = known.entry(&operation.key).or_insert_with(|| value.clone());
                if before != value {
                    let what = format!("{transaction}: read {value} of {}, where it knew of {before}", operation.key);
                    return Some(Violation { property: "internal", what });
                }
            }
            Verb::Read(None) => {}
        }
    }
    None
}
