//! Registers: lin-kv, and transactions over registers seen through one key at a time.
//!
//! Beyond the genuine tool: a read of `null` is a read of nothing and matches no other state; errors 20 and 22 are observations
//! and must be true at some moment of their request; an answer that came late is an answer.

use super::graph::{self, Edge, Graph};
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

/// Judges a history of lin-kv.
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

/// The effect of a transaction on one key, seen from outside: the value it read before it wrote, and the one it wrote last.
type Outside<'a> = BTreeMap<&'a Element, (Option<&'a Element>, Option<&'a Element>)>;

fn outside(transaction: &Transaction) -> Outside<'_> {
    let mut by_key: Outside<'_> = BTreeMap::new();
    for operation in &transaction.operations {
        let (read, written) = by_key.entry(&operation.key).or_default();
        match &operation.verb {
            Verb::Read(Some(value)) if written.is_none() && read.is_none() => *read = Some(value),
            Verb::Read(_) => {}
            Verb::Write(value) => *written = Some(value),
        }
    }
    by_key
}

/// Judges transactions over registers, first key by key, then by circles.
///
/// Strict serializability makes every key linearizable by itself, whatever the transactions do elsewhere. Values are unique per
/// key, so a read of a write that failed, or that was overwritten inside its own transaction, finds no place either.
pub fn judge_transactions(transactions: &[Transaction]) -> Vec<Violation> {
    let mut found: Vec<Violation> = transactions.iter().filter_map(judge_inside).collect();
    let mut keys = Numbers::default();
    let mut values = Numbers::default();
    let mut history = Vec::new();
    for transaction in transactions.iter().filter(|transaction| !transaction.has_failed) {
        for (key, (read, written)) in outside(transaction) {
            let mut value = |element: &Element| values.of(&element.value());
            let act = match (read, written) {
                (Some(from), Some(to)) => Act::Swap { from: value(from), to: value(to) },
                (None, Some(to)) => Act::Write(value(to)),
                (Some(saw), None) => Act::Read(value(saw)),
                (None, None) => continue,
            };
            history.push(hustings_properties::Operation {
                key: keys.of(&key.value()).unwrap_or_default(),
                client: transaction.process,
                invoked: transaction.invoked,
                returned: transaction.returned,
                act,
            });
        }
    }
    found.extend(check(&history));
    found.extend(graph::judge_circles(transactions, &order(transactions)));
    found
}

/// The order of transactions, as far as values tell it: a write comes before the reads of it; a write that saw another is the
/// next one after it, and follows all reads of that other; and every write that took effect follows all reads of nothing.
///
/// The order of two writes of which neither saw the other is not known here; only the judgement key by key sees it.
fn order(transactions: &[Transaction]) -> Graph {
    let mut graph = Graph::default();
    let spans: Vec<_> = transactions.iter().map(|transaction| (transaction.invoked, transaction.returned)).collect();
    graph.add_real_time(&spans);
    let seen: Vec<Outside<'_>> = transactions.iter().map(outside).collect();
    let mut writers: BTreeMap<(&Element, &Element), usize> = BTreeMap::new();
    let mut readers: BTreeMap<(&Element, &Element), Vec<usize>> = BTreeMap::new();
    for (at, keys) in seen.iter().enumerate() {
        for (key, (read, written)) in keys {
            if let Some(written) = written {
                writers.insert((key, written), at);
            }
            if let Some(read) = read {
                readers.entry((key, read)).or_default().push(at);
            }
        }
    }
    for ((key, value), readers) in &readers {
        let next = readers.iter().copied().filter(|at| matches!(seen[*at].get(key), Some((Some(_), Some(_)))));
        let mut next: Vec<usize> = next.collect();
        match writers.get(&(*key, *value)) {
            Some(writer) => {
                readers.iter().for_each(|reader| graph.add(*writer, Edge::WriteRead, *reader));
                next.iter().for_each(|next| graph.add(*writer, Edge::WriteWrite, *next));
            }
            None => next.extend(writers.iter().filter(|((of, _), _)| of == key).map(|(_, at)| *at)),
        }
        for next in next.into_iter().filter(|next| transactions[*next].returned.is_some()) {
            readers.iter().for_each(|reader| graph.add(*reader, Edge::ReadWrite, next));
        }
    }
    graph
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
