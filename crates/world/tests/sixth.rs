//! Goal: a page that is true helps those who add a protocol. Method: the page's own example plays under what seeds draw, and
//! every block of code on the page stands in it.

#[path = "../examples/sixth.rs"]
#[allow(dead_code, reason = "the example has a `main` of its own")]
mod example;

use example::{Baton, Options};
use hustings_kv::KvStore;
use hustings_world::Plants;
use hustings_world::seed::{Plan, run};

const PAGE: &str = include_str!("../../../docs/a-sixth-protocol.md");
const EXAMPLE: &str = include_str!("../examples/sixth.rs");

#[test]
fn the_example_of_the_page_survives_what_seeds_draw() {
    let (mut completed, mut changes) = (0, 0);
    for seed in 1..=60 {
        // It does not look whether a quorum hears it: beside a sick leader it need not serve.
        let plan = Plan { sick: Vec::new(), ..Plan::draw(seed, 3 + seed % 3, 20_000_000) };
        let report = run::<Baton, KvStore>(&plan, &Options, Plants::default(), 0);
        assert!(report.violation.is_none(), "seed {seed}: {:?}", report.violation);
        completed += report.counts.completed;
        changes += report.counts.elections;
    }
    assert!(completed > 1_000 && changes > 100, "{completed} requests, {changes} changes of leadership");
}

#[test]
fn every_block_of_code_on_the_page_stands_in_the_example() {
    let blocks: Vec<&str> = PAGE.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 6, "the page shows hardly anything");
    for block in blocks {
        assert!(EXAMPLE.contains(block), "the page shows what the example does not have:\n{block}");
    }
}

#[test]
fn every_function_that_the_page_names_exists() {
    let leading = concat!(
        include_str!("../../core/src/leading.rs"),
        include_str!("../../core/src/leading/acknowledging.rs"),
        include_str!("../../core/src/leading/hand_over.rs"),
        include_str!("../../core/src/leading/in_order.rs"),
        include_str!("../../core/src/leading/node.rs"),
        include_str!("../../core/src/leading/reads.rs"),
        include_str!("../../core/src/wire.rs"),
        include_str!("../src/seed.rs"),
        include_str!("../../protocols/src/lib.rs"),
    );
    let is_name = |name: &&str| name.len() > 2 && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let names: Vec<&str> = PAGE.split('`').skip(1).step_by(2).filter(is_name).filter(|name| *name != "send").collect();
    assert!(names.len() >= 15, "the page names hardly any function: {names:?}");
    for name in names {
        let form = format!("fn {name}");
        assert!(leading.contains(&form) || EXAMPLE.contains(&form), "the page names `{name}`");
    }
}
