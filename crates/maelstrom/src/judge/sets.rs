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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::history::End;
    use crate::envelope::body;
    use serde_json::json;

    /// Requests that ended at once, in order; the last is of the end of the run.
    fn history(operations: Vec<(Value, End)>) -> Vec<Operation> {
        let count = operations.len();
        let operation = |(position, (request, end)): (usize, (Value, End))| {
            let place = position as u64 * 2;
            Operation {
                process: 0,
                node: 0,
                request: body(request),
                invoked_at: place,
                invoked: place,
                end: Some((place + 1, place + 1, end)),
                late: None,
                is_final: position + 1 == count,
            }
        };
        operations.into_iter().enumerate().map(operation).collect()
    }

    fn add(element: u64, end: End) -> (Value, End) {
        (json!({"type": "add", "element": element}), end)
    }

    fn read(list: Value) -> (Value, End) {
        (json!({"type": "read"}), End::Ok(body(json!({"type": "read_ok", "value": list}))))
    }

    fn done() -> End {
        End::Ok(body(json!({"type": "add_ok"})))
    }

    fn found(operations: Vec<(Value, End)>) -> Vec<&'static str> {
        judge_elements(&history(operations), "element", "value").into_iter().map(|found| found.property).collect()
    }

    #[test]
    fn elements_that_are_lost_unwritten_or_doubled_are_named() {
        let perhaps = || End::Info("no answer".into());
        let never = || End::Fail(11, "no leader".into());
        assert_eq!(found(vec![add(1, done()), add(2, perhaps()), add(3, never()), read(json!([1]))]), [""; 0]);
        assert_eq!(found(vec![add(1, done()), add(2, perhaps()), read(json!([1, 2]))]), [""; 0]);
        assert_eq!(found(vec![add(1, done()), read(json!([]))]), ["lost"]);
        // Seen once, it may not vanish, whatever its client heard.
        assert_eq!(found(vec![add(2, perhaps()), read(json!([2])), read(json!([]))]), ["lost"]);
        assert_eq!(found(vec![add(3, never()), read(json!([3]))]), ["unwritten"]);
        assert_eq!(found(vec![add(1, done()), read(json!([1, 1]))]), ["duplicated"]);
    }

    #[test]
    fn a_counter_may_be_any_sum_with_what_was_perhaps_added() {
        let count = |delta: i64, end: End| (json!({"type": "add", "delta": delta}), end);
        let told = |value: i64| {
            let perhaps = End::Info("no answer".into());
            let never = End::Fail(11, "no leader".into());
            judge_counter(&history(vec![count(3, done()), count(-1, perhaps), count(7, never), read(json!(value))]))
                .len()
        };
        assert_eq!([told(3), told(2), told(0), told(10)], [0, 0, 1, 1]);
    }
}
