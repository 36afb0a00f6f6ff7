//! The same judgement by another algorithm: all orders at once, moment by moment.
//!
//! Walks through the history in time and keeps every pair of (register, operations taken although they have not returned).
//! When an operation returns, the pairs in which it has not been taken by then are dropped. Simple enough to be obviously
//! right, and exponential in what overlaps: for tests of [`crate::linearizability`].

use crate::history::{Operation, Value};
use std::collections::BTreeSet;

type Configuration = (Value, BTreeSet<usize>);

/// Whether some order explains the history; every register is empty at first.
pub fn is_linearizable(history: &[Operation]) -> bool {
    let keys: BTreeSet<u64> = history.iter().map(|operation| operation.key).collect();
    keys.into_iter().all(|key| {
        let operations: Vec<Operation> = history.iter().filter(|operation| operation.key == key).copied().collect();
        is_register(&operations)
    })
}

fn is_register(operations: &[Operation]) -> bool {
    let mut moments: Vec<(u64, bool, usize)> = Vec::new();
    for (position, operation) in operations.iter().enumerate() {
        moments.push((operation.invoked, false, position));
        if let Some(returned) = operation.returned {
            moments.push((returned.max(operation.invoked), true, position));
        }
    }
    moments.sort_unstable();
    let mut pending: BTreeSet<usize> = BTreeSet::new();
    let mut configurations: BTreeSet<Configuration> = BTreeSet::from([(None, BTreeSet::new())]);
    for (_, is_return, position) in moments {
        if is_return {
            configurations = closure(operations, &pending, configurations);
            configurations.retain(|(_, taken)| taken.contains(&position));
            configurations = configurations
                .into_iter()
                .map(|(state, taken)| (state, &taken - &BTreeSet::from([position])))
                .collect();
            pending.remove(&position);
        } else {
            pending.insert(position);
        }
    }
    !configurations.is_empty()
}

/// All configurations that lead from these by taking pending operations.
fn closure(
    operations: &[Operation],
    pending: &BTreeSet<usize>,
    from: BTreeSet<Configuration>,
) -> BTreeSet<Configuration> {
    let mut all = from.clone();
    let mut fresh: Vec<Configuration> = from.into_iter().collect();
    while let Some((state, taken)) = fresh.pop() {
        for position in pending.difference(&taken) {
            if let Some(next) = operations[*position].act.upon(state) {
                let mut more = taken.clone();
                more.insert(*position);
                if all.insert((next, more.clone())) {
                    fresh.push((next, more));
                }
            }
        }
    }
    all
}
