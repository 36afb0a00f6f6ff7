//! Goal: the bench convicts every wrong, each check at least once. Method: nodes that are wrong in one way each, and
//! histories written by hand.

mod support;

use hustings_maelstrom::bench::report::{Report, Verdict};
use hustings_maelstrom::bench::settings::{Nemesis, SECOND, Settings, Workload};
use hustings_maelstrom::json::Json;
use hustings_maelstrom::judge::append;
use hustings_maelstrom::judge::registers;
use hustings_maelstrom::judge::transactions::{Step, Transaction, Verb};
use hustings_raft::Raft;
use serde_json::{Value, json};
use support::{Breach, Fault, Lonely, run_breach, run_subjects, tutorial};

fn lonely(workload: Workload, nodes: usize, fault: Fault, seed: u64) -> Report {
    let settings = Settings { rate: 10.0, ..Settings::new(workload, nodes, seed) };
    run_subjects(settings, |_| Lonely::new(fault))
}

fn properties(report: &Report) -> Vec<&'static str> {
    report.violations.iter().map(|violation| violation.property).collect()
}

#[test]
fn a_lonely_node_that_is_right_is_found_right() {
    for workload in [Workload::LinKv, Workload::TxnListAppend, Workload::TxnRwRegister, Workload::PnCounter] {
        assert_eq!(lonely(workload, 1, Fault::None, 1).verdict(), Verdict::Valid);
    }
}

#[test]
fn mael_two_copies_negative() {
    for seed in 1..=5 {
        let report = lonely(Workload::LinKv, 2, Fault::None, seed);
        assert_eq!((report.verdict(), properties(&report)), (Verdict::Invalid, vec!["linearizability"]));
    }
}

#[test]
fn two_copies_are_convicted_in_every_workload_that_needs_agreement() {
    for workload in [Workload::TxnListAppend, Workload::TxnRwRegister, Workload::Broadcast, Workload::GSet] {
        let report = lonely(workload, 2, Fault::None, 1);
        assert_eq!(report.verdict(), Verdict::Invalid);
        assert!(!properties(&report).contains(&"lines"), "{report}");
    }
    assert_eq!(properties(&lonely(Workload::PnCounter, 2, Fault::None, 1)), ["counter"]);
}

#[test]
fn every_way_of_being_wrong_has_its_name() {
    let register = [
        (Fault::Chatters, "lines"),
        (Fault::Stutters, "replies"),
        (Fault::Embroiders, "replies"),
        (Fault::Lies, "linearizability"),
        (Fault::Forgets, "linearizability"),
        (Fault::Retires, "recovery"),
        (Fault::Refuses, "stats"),
        (Fault::Mumbles, "replies"),
        (Fault::Dreams, "lines"),
    ];
    for (fault, property) in register {
        let report = lonely(Workload::LinKv, 1, fault, 1);
        assert!(properties(&report).contains(&property), "{fault:?}: {report}");
        assert_eq!(report.verdict().exit_code(), 1);
    }
    let report = lonely(Workload::Echo, 2, Fault::Hurries, 1);
    assert!(report.to_string().contains("n0 speaks to n1 before the tool knows it"), "{report}");
    assert_eq!(properties(&lonely(Workload::Echo, 1, Fault::Distorts, 1)), ["echo"]);
    assert_eq!(properties(&lonely(Workload::UniqueIds, 1, Fault::Repeats, 1)), ["unique-ids"]);
    assert_eq!(properties(&lonely(Workload::GSet, 1, Fault::Forgets, 1)), ["lost"]);
    assert_eq!(properties(&lonely(Workload::PnCounter, 1, Fault::Forgets, 1)), ["counter"]);
}

/// Seeds until one run is convicted of what no order explains.
fn convicting_seed(breach: Breach, nemesis: Nemesis) -> Option<u64> {
    (1..=10).find(|seed| {
        let (nemeses, nemesis_interval, time_limit) = ([nemesis].into(), 3 * SECOND, 30 * SECOND);
        let settings = Settings { nemeses, nemesis_interval, time_limit, ..tutorial(*seed) };
        properties(&run_breach::<Raft>(settings, breach)).contains(&"linearizability")
    })
}

#[test]
fn a_breach_of_conformance_is_found_within_ten_seeds() {
    assert!(convicting_seed(Breach::ReadsLocally, Nemesis::Partition).is_some(), "MC-6");
    assert!(convicting_seed(Breach::SaysNever, Nemesis::Partition).is_some(), "MC-4");
    assert!(convicting_seed(Breach::SwapsLocally, Nemesis::Partition).is_some(), "MC-5");
    assert!(convicting_seed(Breach::Forgets, Nemesis::Kill).is_some(), "the data was not kept");
}

#[test]
fn a_node_that_ends_or_never_begins_breaks_the_run() {
    for fault in [Fault::Ends, Fault::Mute] {
        let report = lonely(Workload::LinKv, 1, fault, 1);
        assert_eq!(report.verdict().exit_code(), 255, "{fault:?}: {report}");
        assert_eq!(report.breakdowns.len(), 1);
    }
}

#[test]
fn a_run_without_operations_proves_nothing() {
    let settings = Settings { rate: 0.0, time_limit: SECOND, ..Settings::new(Workload::LinKv, 1, 1) };
    assert_eq!(run_subjects(settings, |_| Lonely::new(Fault::None)).verdict(), Verdict::Unknown);
}

/// A transaction that began and ended at these times; 0 for one of which nobody knows the end. `["r", key, list]` saw,
/// `["append", key, element]` appended.
fn transaction(began: u64, ended: u64, steps: Value) -> Transaction {
    let step = |step: &Value| Step {
        key: Json::of(&step[1]),
        verb: match step[0].as_str() {
            Some("r") => Verb::Read((ended > 0).then(|| Json::of(&step[2]))),
            _ => Verb::Write(Json::of(&step[2])),
        },
    };
    Transaction {
        process: began,
        invoked: began,
        returned: (ended > 0).then_some(ended),
        has_failed: false,
        operations: steps.as_array().expect("a list").iter().map(step).collect(),
    }
}

fn found(transactions: &[Transaction]) -> Vec<&'static str> {
    append::judge(transactions).into_iter().map(|violation| violation.property).collect()
}

#[test]
fn what_overlaps_may_stand_in_any_order() {
    let history = [
        transaction(1, 9, json!([["append", "x", 1]])),
        transaction(2, 8, json!([["append", "x", 2], ["r", "x", [2]]])),
        transaction(3, 0, json!([["append", "x", 3], ["r", "x", null]])),
        transaction(10, 11, json!([["r", "x", [2, 1]], ["append", "x", 4], ["r", "x", [2, 1, 4]]])),
        transaction(12, 13, json!([["r", "x", [2, 1, 4, 3]], ["r", "y", null]])),
    ];
    assert_eq!(found(&history), [""; 0]);
}

#[test]
fn every_anomaly_of_lists_has_its_name() {
    let all = |spans: [(u64, u64); 3], steps: [Value; 3]| -> Vec<Transaction> {
        spans.into_iter().zip(steps).map(|((began, ended), steps)| transaction(began, ended, steps)).collect()
    };
    let at_once = [(1, 10), (2, 11), (3, 12)];
    let in_turn = [(1, 2), (3, 4), (5, 6)];
    let none = || json!([]);
    let cases: [(&str, Vec<Transaction>); 12] = [
        // Two keys whose appends stand in opposite orders.
        (
            "G0",
            all(
                at_once,
                [
                    json!([["append", "x", 1], ["append", "y", 1]]),
                    json!([["append", "x", 2], ["append", "y", 2]]),
                    json!([["r", "x", [1, 2]], ["r", "y", [2, 1]]]),
                ],
            ),
        ),
        // Each saw the other.
        (
            "G1c",
            all(
                at_once,
                [json!([["append", "x", 1], ["r", "y", [1]]]), json!([["append", "y", 1], ["r", "x", [1]]]), none()],
            ),
        ),
        // A list as it was inside a transaction.
        ("G1b", all(at_once, [json!([["append", "x", 1], ["append", "x", 2]]), json!([["r", "x", [1]]]), none()])),
        // The second saw one key before the first and the other after it.
        (
            "G-single",
            all(
                at_once,
                [json!([["append", "x", 1], ["append", "y", 1]]), json!([["r", "x", []], ["r", "y", [1]]]), none()],
            ),
        ),
        // Write skew: neither saw the other.
        (
            "G2",
            all(
                at_once,
                [json!([["r", "x", []], ["append", "y", 1]]), json!([["r", "y", []], ["append", "x", 1]]), none()],
            ),
        ),
        // A stale read: the append had ended before the read began.
        ("G-single-realtime", all(in_turn, [json!([["append", "x", 1]]), json!([["r", "x", []]]), none()])),
        // The same, with a later read that shows the element.
        (
            "G-single-realtime",
            all(in_turn, [json!([["append", "x", 1]]), json!([["r", "x", null]]), json!([["r", "x", [1]]])]),
        ),
        // Appended later, stands earlier.
        (
            "G0-realtime",
            all(in_turn, [json!([["append", "x", 1]]), json!([["append", "x", 2]]), json!([["r", "x", [2, 1]]])]),
        ),
        ("internal", all(at_once, [json!([["append", "x", 1], ["r", "x", []]]), none(), none()])),
        (
            "incompatible-order",
            all(
                at_once,
                [
                    json!([["append", "x", 1], ["append", "z", 9]]),
                    json!([["r", "x", [1]]]),
                    json!([["r", "x", [7, 1]]]),
                ],
            ),
        ),
        ("unwritten", all(at_once, [json!([["r", "x", [7]]]), none(), none()])),
        ("duplicate-elements", all(at_once, [json!([["append", "x", 1]]), json!([["r", "x", [1, 1]]]), none()])),
    ];
    for (name, history) in cases {
        assert!(found(&history).contains(&name), "{name}: {:?}", append::judge(&history));
    }
    let mut failed = transaction(1, 0, json!([["append", "x", 1]]));
    failed.has_failed = true;
    assert!(found(&[failed, transaction(2, 3, json!([["r", "x", [1]]]))]).contains(&"G1a"));
}

#[test]
fn a_story_names_the_transactions_and_why_they_stand_as_they_do() {
    let history = [transaction(1, 2, json!([["append", "x", 1]])), transaction(3, 4, json!([["r", "x", []]]))];
    let told = append::judge(&history)[0].to_string();
    assert!(told.contains("T1[w \"x\":1] ─realtime→ T3[r \"x\"=[]] ─rw→"), "{told}");
}

#[test]
fn registers_in_transactions_are_judged_key_by_key_and_inside() {
    let stale = [transaction(1, 2, json!([["w", "x", 1], ["w", "x", 2]])), transaction(3, 4, json!([["r", "x", 1]]))];
    assert_eq!(registers::judge_transactions(&stale)[0].property, "linearizability");
    let torn = [transaction(1, 2, json!([["w", "x", 1], ["r", "x", 2]]))];
    assert_eq!(registers::judge_transactions(&torn)[0].property, "internal");
}

#[test]
fn circles_over_several_registers_are_found() {
    let skew = [
        transaction(1, 10, json!([["r", "x", null], ["w", "y", 1]])),
        transaction(2, 11, json!([["r", "y", null], ["w", "x", 1]])),
    ];
    let fracture = [
        transaction(1, 10, json!([["r", "x", null], ["w", "x", 1], ["w", "y", 1]])),
        transaction(2, 11, json!([["r", "x", null], ["r", "y", 1]])),
    ];
    let mutual = [
        transaction(1, 10, json!([["w", "x", 1], ["r", "y", 1]])),
        transaction(2, 11, json!([["w", "y", 1], ["r", "x", 1]])),
    ];
    for (history, name) in [(skew, "G2"), (fracture, "G-single"), (mutual, "G1c")] {
        let found = registers::judge_transactions(&history);
        assert!(matches!(&found[..], [violation] if violation.property == name), "{name}: {found:?}");
    }
}
