//! Echoes, ids, sets and counters.

use crate::bench::history::Operation;
use crate::json::Json;
use hustings_properties::Violation;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn violation(property: &'static str, what: String) -> Violation {
    Violation { property, what }
}

/// Every echo is what was asked.
pub fn judge_echo(history: &[Operation]) -> Vec<Violation> {
    let wrong = |operation: &&Operation| {
        operation.reply().is_some_and(|(_, reply)| reply.get("echo") != operation.request.get("echo"))
    };
    let tell = |operation: &Operation| violation("echo", format!("n{} gave another echo", operation.node));
    history.iter().find(wrong).map(tell).into_iter().collect()
}

/// No id is given twice.
pub fn judge_ids(history: &[Operation]) -> Vec<Violation> {
    let mut seen: BTreeMap<Json, usize> = BTreeMap::new();
    for operation in history {
        let Some(id) = operation.reply().and_then(|(_, reply)| reply.get("id")) else { continue };
        if let Some(before) = seen.insert(Json::of(id), operation.node) {
            return vec![violation("unique-ids", format!("n{before} and n{} both gave {id}", operation.node))];
        }
    }
    Vec::new()
}

/// Elements that were acknowledged, or seen once, are in every final read; nothing is read that was never added, and nothing
/// twice. (Stricter than the genuine tool, which forgives what some later read still shows, and never finds a duplicate.)
pub fn judge_elements(history: &[Operation], added_as: &str, read_as: &str) -> Vec<Violation> {
    let (mut asked, mut sure) = (BTreeSet::new(), BTreeSet::new());
    for operation in history {
        let Some(element) = operation.request.get(added_as).map(Json::of) else { continue };
        if !operation.is_void() {
            asked.insert(element.clone());
        }
        if operation.reply().is_some() {
            sure.insert(element);
        }
    }
    let mut reads = Vec::new();
    for operation in history {
        let Some(list) = operation.reply().and_then(|(_, reply)| reply.get(read_as)).and_then(Value::as_array) else {
            continue;
        };
        let read: BTreeSet<Json> = list.iter().map(Json::of).collect();
        if read.len() != list.len() {
            return vec![violation("duplicated", format!("n{} listed an element twice", operation.node))];
        }
        if let Some(strange) = read.difference(&asked).next() {
            return vec![violation("unwritten", format!("n{} listed {strange}, which nobody added", operation.node))];
        }
        sure.extend(read.iter().cloned());
        if operation.is_final {
            reads.push((operation.node, read));
        }
    }
    let lost = reads.iter().find_map(|(node, read)| sure.difference(read).next().map(|element| (node, element)));
    lost.map(|(node, element)| violation("lost", format!("n{node} had lost {element} at the end")))
        .into_iter()
        .collect()
}

/// The counter at the end is the sum of what was acknowledged and of some of what was perhaps done.
pub fn judge_counter(history: &[Operation]) -> Vec<Violation> {
    let mut sums = BTreeSet::from([0i64]);
    for operation in history {
        let Some(delta) = operation.request.get("delta").and_then(Value::as_i64) else { continue };
        if operation.is_void() {
            continue;
        }
        let moved: BTreeSet<i64> = sums.iter().map(|sum| sum + delta).collect();
        match operation.reply() {
            Some(_) => sums = moved,
            None => sums.extend(moved),
        }
    }
    for operation in history.iter().filter(|operation| operation.is_final) {
        let Some(value) = operation.reply().and_then(|(_, reply)| reply.get("value")?.as_i64()) else { continue };
        if !sums.contains(&value) {
            let what = format!("n{} says {value}, which no sum of what was added gives", operation.node);
            return vec![violation("counter", what)];
        }
    }
    Vec::new()
}
