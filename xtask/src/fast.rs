//! The two-minute answer: what most often goes wrong, looked at first, with the time that each look took.
//!
//! It promises less than `.ci/run`: no process is started, no foreign client asks, seeds are few and short.

use crate::chore::{self, Outcome};
use std::time::Instant;

/// A look: what it is called, what `cargo` is asked for, and with which environment.
struct Look {
    name: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

const PROTOCOLS: &[&str] = &[
    "test",
    "-q",
    "-p",
    "hustings-core",
    "-p",
    "hustings-raft",
    "-p",
    "hustings-gmt2000",
    "-p",
    "hustings-blazingmq",
    "-p",
    "hustings-zab",
    "-p",
    "hustings-paxos",
];
const STORE: &[&str] = &["test", "-q", "-p", "hustings-kv", "-p", "hustings-wal", "-p", "hustings-properties"];
const WORLD: &[&str] =
    &["test", "-q", "-p", "hustings-world", "--test", "stories", "--", "seeds::", "found::", "hostile::"];

const LOOKS: [Look; 5] = [
    Look { name: "format", arguments: &["fmt", "--all", "--check"], environment: &[] },
    Look {
        name: "lints of what ships",
        arguments: &["clippy", "--workspace", "--lib", "--bins", "-q", "--", "-D", "warnings"],
        environment: &[],
    },
    Look { name: "protocols and core", arguments: PROTOCOLS, environment: &[] },
    Look { name: "store, log and judge", arguments: STORE, environment: &[] },
    Look {
        name: "worlds, few and short",
        arguments: WORLD,
        environment: &[("HUSTINGS_SEEDS", "20"), ("HUSTINGS_SEED_MINUTES", "1")],
    },
];

/// Looks until something is wrong.
///
/// # Errors
/// The first look that failed.
pub fn run() -> Outcome {
    let begun = Instant::now();
    for Look { name, arguments, environment } in LOOKS {
        let since = Instant::now();
        chore::run(chore::cargo().args(arguments).envs(environment.iter().copied()))?;
        println!("{name:<24} {:>6.1} s", since.elapsed().as_secs_f64());
    }
    println!("{:<24} {:>6.1} s", "all", begun.elapsed().as_secs_f64());
    Ok(())
}
