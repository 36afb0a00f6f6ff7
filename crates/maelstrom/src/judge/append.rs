//! Transactions over lists: are they strictly serializable? [`judge`].
//!
//! Every element is appended once, so a list that somebody read *is* the order of its versions, and every read says
//! which appends it follows. Only elements that nobody ever read are in doubt, and they come after all that was read.
//!
//! ```text
//!    T1 append x 1 ──ww──► T2 append x 2 ──wr──► T3 read x [1 2] ──rw──► T4 append x 3
//!    T4 ended ──realtime──► T1 began: a circle, so there is no such order
//! ```
//!
//! Circles of ww alone are G0; with wr, G1c; with one rw, G-single; with more, G2. A circle that needs an edge of real time
//! is one of a strict order. Source: Adya, "Weak Consistency", 1999; Kingsbury and Alvaro, "Elle", 2020, §4.

use super::graph::{self, Edge, Graph};
use super::transactions::{Element, Transaction, Verb, elements};
use hustings_properties::Violation;
use std::collections::{BTreeMap, BTreeSet};

/// Finds what is wrong with a history of transactions over lists, one finding of each kind.
pub fn judge(transactions: &[Transaction]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut report = |violation: Violation| {
        if seen.insert(violation.property) {
            found.push(violation);
        }
    };
    let writers = writers(transactions);
    transactions.iter().filter_map(judge_inside).for_each(&mut report);
    let reads: Vec<Read> =
        transactions.iter().enumerate().flat_map(|(at, transaction)| reads(at, transaction)).collect();
    let longest = longest(transactions, &reads, &mut report);
    for read in &reads {
        judge_read(transactions, &writers, read).into_iter().for_each(&mut report);
    }
    let graph = order(transactions, &writers, &reads, &longest);
    graph::judge_circles(transactions, &graph).into_iter().for_each(&mut report);
    found
}

/// The transaction that appended an element, and whether that was its last append to the key.
type Writers<'a> = BTreeMap<(&'a Element, &'a Element), (usize, bool)>;

/// A list that a transaction saw of others: without its own appends.
struct Read {
    by: usize,
    key: Element,
    list: Vec<Element>,
    /// The list as it was read, with its own appends.
    whole: Vec<Element>,
}

fn writers(transactions: &[Transaction]) -> Writers<'_> {
    let mut writers: Writers<'_> = BTreeMap::new();
    for (at, transaction) in transactions.iter().enumerate() {
        let mut last: BTreeMap<&Element, &Element> = BTreeMap::new();
        for step in &transaction.operations {
            if let Verb::Write(element) = &step.verb {
                if let Some(before) = last.insert(&step.key, element) {
                    writers.insert((&step.key, before), (at, false));
                }
                writers.insert((&step.key, element), (at, true));
            }
        }
    }
    writers
}

/// A transaction sees its own appends, and nothing else changes under it.
fn judge_inside(transaction: &Transaction) -> Option<Violation> {
    let wrong = |what: String| Some(Violation { property: "internal", what: format!("{transaction}: {what}") });
    let mut known: BTreeMap<&Element, Vec<Element>> = BTreeMap::new();
    let mut own: BTreeMap<&Element, Vec<Element>> = BTreeMap::new();
    for step in &transaction.operations {
        let key = &step.key;
        match &step.verb {
            Verb::Write(element) => match known.get_mut(key) {
                Some(list) => list.push(element.clone()),
                None => own.entry(key).or_default().push(element.clone()),
            },
            Verb::Read(None) => {}
            Verb::Read(Some(value)) => {
                let Some(list) = elements(value) else { return wrong(format!("{value} is no list")) };
                match known.get(key) {
                    Some(before) if *before != list => return wrong(format!("{key} changed to {value} under it")),
                    None if !list.ends_with(own.get(key).map_or(&[], Vec::as_slice)) => {
                        return wrong(format!("its own appends to {key} are not in {value}"));
                    }
                    _ => {}
                }
                known.insert(key, list);
            }
        }
    }
    None
}

/// The first read of each key, without the transaction's own appends before it.
fn reads(by: usize, transaction: &Transaction) -> Vec<Read> {
    if transaction.has_failed {
        return Vec::new();
    }
    let mut own: BTreeMap<&Element, usize> = BTreeMap::new();
    let mut done: BTreeSet<&Element> = BTreeSet::new();
    let mut found = Vec::new();
    for step in &transaction.operations {
        match &step.verb {
            Verb::Write(_) => *own.entry(&step.key).or_default() += 1,
            Verb::Read(None) => {}
            Verb::Read(Some(value)) => {
                if let Some(whole) = elements(value)
                    && done.insert(&step.key)
                {
                    let of_others = whole.len().saturating_sub(own.get(&step.key).copied().unwrap_or(0));
                    found.push(Read { by, key: step.key.clone(), list: whole[..of_others].to_vec(), whole });
                }
            }
        }
    }
    found
}

/// The longest list that was read of each key; all others must be its beginnings.
fn longest(
    transactions: &[Transaction],
    reads: &[Read],
    report: &mut impl FnMut(Violation),
) -> BTreeMap<Element, Vec<Element>> {
    let mut longest: BTreeMap<Element, Vec<Element>> = BTreeMap::new();
    for read in reads {
        let list = longest.entry(read.key.clone()).or_default();
        if read.whole.len() > list.len() {
            list.clone_from(&read.whole);
        }
    }
    for read in reads {
        let list = &longest[&read.key];
        if !list.starts_with(&read.whole) {
            let by = &transactions[read.by];
            report(Violation {
                property: "incompatible-order",
                what: format!("{by}: {:?} is not the beginning of {list:?}, which was read too", read.whole),
            });
        }
        let distinct: BTreeSet<&Element> = read.whole.iter().collect();
        if distinct.len() != read.whole.len() {
            let by = &transactions[read.by];
            report(Violation { property: "duplicate-elements", what: format!("{by}: an element stands twice") });
        }
    }
    longest
}

/// Checks that the elements read were appended, by a transaction that did not fail, and as that transaction left them.
fn judge_read(transactions: &[Transaction], writers: &Writers<'_>, read: &Read) -> Vec<Violation> {
    let mut found = Vec::new();
    let by = &transactions[read.by];
    for (position, element) in read.list.iter().enumerate() {
        match writers.get(&(&read.key, element)) {
            None => found.push(Violation {
                property: "unwritten",
                what: format!("{by}: nobody ever appended {element} to {}", read.key),
            }),
            Some((writer, _)) if transactions[*writer].has_failed => found.push(Violation {
                property: "G1a",
                what: format!(
                    "{by} read {element} of {}, whose append had failed: {}",
                    read.key, transactions[*writer]
                ),
            }),
            Some((writer, false)) if position + 1 == read.list.len() && *writer != read.by => found.push(Violation {
                property: "G1b",
                what: format!("{by} read {} as it was inside {}", read.key, transactions[*writer]),
            }),
            Some(_) => {}
        }
    }
    found
}

/// The order of transactions, as far as it is known.
fn order(
    transactions: &[Transaction],
    writers: &Writers<'_>,
    reads: &[Read],
    longest: &BTreeMap<Element, Vec<Element>>,
) -> Graph {
    let mut graph = Graph::default();
    let spans: Vec<(u64, Option<u64>)> =
        transactions.iter().map(|transaction| (transaction.invoked, transaction.returned)).collect();
    graph.add_real_time(&spans);
    let writer = |key: &Element, element: &Element| writers.get(&(key, element)).map(|(at, _)| *at);
    // Elements that nobody read, and that are known to be appended, come after all that was read.
    let mut unread: BTreeMap<&Element, BTreeSet<usize>> = BTreeMap::new();
    for ((key, element), (at, _)) in writers {
        let is_read = longest.get(*key).is_some_and(|list| list.contains(element));
        if !is_read && transactions[*at].returned.is_some() {
            unread.entry(key).or_default().insert(*at);
        }
    }
    for (key, list) in longest {
        for pair in list.windows(2) {
            if let (Some(one), Some(next)) = (writer(key, &pair[0]), writer(key, &pair[1])) {
                graph.add(one, Edge::WriteWrite, next);
            }
        }
        if let Some(last) = list.last().and_then(|last| writer(key, last)) {
            unread.get(key).into_iter().flatten().for_each(|next| graph.add(last, Edge::WriteWrite, *next));
        }
    }
    for read in reads {
        if let Some(from) = read.list.last().and_then(|last| writer(&read.key, last)) {
            graph.add(from, Edge::WriteRead, read.by);
        }
        let list = &longest[&read.key];
        match list.get(read.list.len()).map(|next| writer(&read.key, next)) {
            Some(Some(next)) => graph.add(read.by, Edge::ReadWrite, next),
            Some(None) => {}
            None => {
                unread.get(&read.key).into_iter().flatten().for_each(|next| graph.add(read.by, Edge::ReadWrite, *next));
            }
        }
    }
    graph
}
