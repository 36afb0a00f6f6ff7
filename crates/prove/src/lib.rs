//! The proving ground: `simulate` (seeds, searches), `check` (every possibility), `play` (scripts), `convict` (how soon planted
//! defects are found), and the laboratory: `compare`, and `lab`, a page on which clusters are broken by clicking.
//!
//! Exit codes are these commands' own: 0 when all properties held and the bounds were completed, 1 when a property was
//! violated, 3 when the bounds were not completed, 2 on usage.

/// Instead of the standard library's, which panics when nobody reads any more.
macro_rules! println {
    ($($word:tt)*) => { hustings_console::println!($($word)*) };
}

/// As [`println`], on standard error, and nothing ends.
macro_rules! eprintln {
    ($($word:tt)*) => { hustings_console::eprintln!($($word)*) };
}

/// As [`println`], without an end of line.
#[allow(unused_macros)]
macro_rules! print {
    ($($word:tt)*) => { hustings_console::print!($($word)*) };
}

mod charts;
pub mod check;
pub mod compare;
pub mod convict;
mod corpus;
mod files;
mod interruption;
pub mod lab;
pub mod maelstrom;
mod picture;
pub mod play;
pub mod regions;
mod report;
pub mod simulate;
mod stories;
pub mod workload;

pub use report::write_page;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_console::exit::{Code, Exit};
use hustings_core::laboratory::Defect;
use hustings_protocols::{self as protocols, Subject};
use std::path::PathBuf;

/// `--protocol`, of commands that lay several side by side.
fn protocols_argument() -> Arg {
    Arg::new("protocol")
        .long("protocol")
        .value_delimiter(',')
        .value_parser(protocols::NAMES)
        .help("Only these; by default all")
}

/// The protocols that it names.
fn protocols_of(matches: &ArgMatches) -> Vec<String> {
    match matches.get_many::<String>("protocol") {
        Some(names) => names.cloned().collect(),
        None => protocols::NAMES.map(str::to_string).to_vec(),
    }
}

/// Arguments that all three take.
fn common(command: Command) -> Command {
    command
        .arg(
            Arg::new("protocol")
                .long("protocol")
                .default_value("raft")
                .value_parser(protocols::NAMES)
                .help("Which protocol"),
        )
        .arg(
            Arg::new("protocol-options")
                .long("protocol-options")
                .value_name("NAME=VALUE,...")
                .help("Options of this protocol alone"),
        )
        .arg(
            Arg::new("as-published")
                .long("as-published")
                .action(ArgAction::SetTrue)
                .help("The form in which the protocol was published, with its defects"),
        )
        .arg(
            Arg::new("plant")
                .long("plant")
                .value_name("DEFECT")
                .help("Plant a defect, to see it found; `list` names them"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_parser(["table", "json"])
                .default_value("table")
                .help("For people or for programs"),
        )
}

/// `--report`, of commands that draw a run.
fn report_argument(help: &'static str) -> Arg {
    Arg::new("report").long("report").value_name("FILE.html").value_parser(value_parser!(PathBuf)).help(help)
}

fn no_pre_vote() -> Arg {
    Arg::new("no-pre-vote")
        .long("no-pre-vote")
        .action(ArgAction::SetTrue)
        .help("Raft without its pre-vote: far fewer worlds")
}

fn is_json(matches: &ArgMatches) -> bool {
    matches.get_one::<String>("output").is_some_and(|format| format == "json")
}

/// The protocol that a command line asks for, and in which form.
///
/// # Errors
/// There is no such protocol, or it has no such options.
pub fn subject_of(matches: &ArgMatches) -> anyhow::Result<Subject> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let subject = Subject {
        protocol: text("protocol").unwrap_or_default(),
        is_published: matches.get_flag("as-published"),
        plant: text("plant"),
        // Not every one of these commands has the flag.
        lacks_pre_vote: matches.try_get_one::<bool>("no-pre-vote").is_ok_and(|flag| flag == Some(&true)),
        options: text("protocol-options").unwrap_or_default(),
    };
    protocols::identity(&subject.protocol, &subject.options)
        .map_err(|error| Exit::with(Code::Usage, error.to_string()))?;
    Ok(subject)
}

/// A panic inside a member that is simulated or played again is a finding and not the end of this process; every other panic is told as
/// before.
pub fn keep_quiet_about_findings() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !hustings_world::panics::is_caught() {
            before(panic);
        }
    }));
}

/// Threads for so many runs, if so many are asked for: no more than there are runs, or cores.
pub(crate) fn threads(wanted: u64, runs: u64) -> u64 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    wanted.min(runs).min(cores).max(1)
}

/// Every defect that can be planted under this protocol.
pub(crate) fn plants_of(protocol: &str) -> Vec<&'static str> {
    let mut names = protocols::defects_of(protocol);
    names.extend(hustings_world::Plants::NAMES);
    names
}

/// The defects of candidates for an election, which stand at the members' own store under every protocol.
pub(crate) fn plants_of_candidates() -> Vec<String> {
    hustings_lease::Defect::ALL.into_iter().map(|defect| format!("candidate-{}", defect.name())).collect()
}

/// Whether only the names are wanted, as with `--plant list`.
fn lists_plants(subject: &Subject) -> bool {
    let lists = subject.plant.as_deref() == Some("list");
    if lists {
        plants_of(&subject.protocol).iter().for_each(|name| println!("{name}"));
        plants_of_candidates().iter().for_each(|name| println!("{name}"));
    }
    lists
}

fn check_plant(subject: &Subject) -> anyhow::Result<()> {
    let of_candidates = plants_of_candidates();
    let mut known = plants_of(&subject.protocol);
    known.extend(of_candidates.iter().map(String::as_str));
    match subject.plant.as_deref() {
        Some(name) if !known.contains(&name) => {
            let protocol = &subject.protocol;
            let others: Vec<&str> =
                protocols::NAMES.into_iter().filter(|other| plants_of(other).contains(&name)).collect();
            let what = match others[..] {
                [] => {
                    let nearest = hustings_world::parse::nearest(name, &known);
                    format!("there is no defect `{name}`; did you mean `{nearest}`?")
                }
                _ => format!("`{name}` is a defect of {}, and not of {protocol}", others.join(", ")),
            };
            Err(Exit::with(
                Code::Usage,
                format!("{what}; `--plant list --protocol {protocol}` names all of {protocol}"),
            ))
        }
        _ => Ok(()),
    }
}

/// The defect of what all protocols share that is to be planted in every member of every world, if it is one of these.
///
/// # Errors
/// It is one of hosts, clients or candidates, or of changes of members, preferences, snapshots or leases: none are in these worlds.
fn defect_in_every_world(subject: &Subject) -> anyhow::Result<Option<Defect>> {
    let Some(name) = subject.plant.as_deref() else { return Ok(None) };
    let of = match Defect::named(name) {
        Some(
            defect @ (Defect::UnsyncedPromises
            | Defect::UnsyncedEntries
            | Defect::UnsyncedRecords
            | Defect::CountsItselfAtOnce
            | Defect::TakesNoCare),
        ) => return Ok(Some(defect)),
        Some(_) => "changes of members, preferences, snapshots or leases",
        None if name.starts_with("candidate-") => "candidates",
        None if hustings_world::Plants::NAMES.contains(&name) => "hosts, disks, clients or state machines",
        None => return Ok(None),
    };
    let why = format!("`{name}` is a defect of {of}, and there are none in these worlds: `simulate` has them");
    Err(Exit::with(Code::Usage, why))
}

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
