//! Goal: what a run will do can be read before, and given back. Method: the program itself, asked for a plan, and for the plan of that.

use std::process::{Command, Output};

fn torture(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_torture")).args(arguments).output().expect("it runs")
}

#[test]
fn a_plan_that_is_printed_can_be_given_back() {
    let planned = torture(&["--seed", "7", "--seconds", "40", "--plan"]);
    let plan = String::from_utf8(planned.stdout).expect("a script is text");
    assert!(planned.status.success() && plan.lines().count() > 5, "{plan}");
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("storm");
    std::fs::write(&script, &plan).expect("written");
    let again = torture(&["--seed", "7", "--script", script.to_str().expect("a path that is text"), "--plan"]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), plan);
}

#[test]
fn a_fault_that_nobody_knows_is_refused_with_its_name() {
    let refused = torture(&["--faults", "kill,gremlins", "--plan"]);
    assert_eq!(refused.status.code(), Some(2));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("gremlins"), "{told}");
}
