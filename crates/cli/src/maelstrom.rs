//! `hustings maelstrom`: one node on standard input and output, as Maelstrom wants it.

use crate::protocols;
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_core::Timing;
use std::path::PathBuf;
use std::time::Duration;

/// What a node is told on its command line.
pub(crate) struct NodeSettings {
    pub(crate) protocol: String,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) may_resume: bool,
    pub(crate) timing: Timing,
}

/// Flags that the node and the bench share.
pub(crate) fn node_arguments() -> [Arg; 3] {
    let millis = |name: &'static str, default: &'static str| {
        Arg::new(name).long(name).value_name("MS").value_parser(value_parser!(u64).range(1..)).default_value(default)
    };
    [
        Arg::new("protocol")
            .long("protocol")
            .value_parser(clap::builder::PossibleValuesParser::new(protocols::NAMES))
            .default_value(protocols::NAMES[0])
            .help("The protocol under test"),
        millis("heartbeat-interval", "100").help("A leader speaks at least this often, in milliseconds"),
        millis("election-timeout", "1000").help("The shortest silence that lets a follower campaign, in milliseconds"),
    ]
}

/// The command line of `maelstrom`.
pub(crate) fn command() -> Command {
    Command::new("maelstrom")
        .about("Run one Maelstrom node on standard input and output")
        .args(node_arguments())
        .arg(
            Arg::new("data-dir")
                .long("data-dir")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Keep the log in DIR/<node id>; without it, in memory"),
        )
        .arg(
            Arg::new("resume")
                .long("resume")
                .action(ArgAction::SetTrue)
                .requires("data-dir")
                .help("Go on with what an earlier life left in DIR; without it, such a directory is refused"),
        )
}

/// Reads the flags.
pub(crate) fn timing(matches: &ArgMatches) -> Result<Timing> {
    let millis = |name: &str| Duration::from_millis(*matches.get_one::<u64>(name).expect("it has a default"));
    let timing = Timing::new(millis("heartbeat-interval"), millis("election-timeout"));
    timing.check().map_err(|misfit| anyhow::anyhow!("{misfit}"))?;
    Ok(timing)
}

/// The protocol's name.
pub(crate) fn protocol(matches: &ArgMatches) -> String {
    matches.get_one::<String>("protocol").expect("it has a default").clone()
}

/// Runs a node until its input ends.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let settings = NodeSettings {
        protocol: protocol(matches),
        data_dir: matches.get_one::<PathBuf>("data-dir").cloned(),
        may_resume: matches.get_flag("resume"),
        timing: timing(matches)?,
    };
    protocols::run_maelstrom(settings)
}
