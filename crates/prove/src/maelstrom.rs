//! `hustings maelstrom`: one node on standard input and output, as Maelstrom wants it.

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_core::{Protocol, Timing};
use hustings_maelstrom::bench::history::History;
use hustings_maelstrom::bench::report::Report;
use hustings_maelstrom::bench::{settings, virtual_time};
use hustings_maelstrom::storage::Place;
use hustings_maelstrom::{Setup, stdio};
use hustings_protocols as protocols;
use hustings_protocols::{Subject, Visit, visit};
use std::path::PathBuf;
use std::time::Duration;

/// The settings of a node, from its command line.
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
pub fn command() -> Command {
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

/// Reads the timing from the flags.
pub(crate) fn timing(matches: &ArgMatches) -> Result<Timing> {
    let millis = |name: &str| Duration::from_millis(*matches.get_one::<u64>(name).expect("it has a default"));
    let timing = Timing::new(millis("heartbeat-interval"), millis("election-timeout"));
    timing.check().map_err(|misfit| anyhow::anyhow!("{misfit}"))?;
    Ok(timing)
}

/// The protocol's name, from the flags.
pub(crate) fn protocol(matches: &ArgMatches) -> String {
    matches.get_one::<String>("protocol").expect("it has a default").clone()
}

/// Runs a node until its input ends.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let settings = NodeSettings {
        protocol: protocol(matches),
        data_dir: matches.get_one::<PathBuf>("data-dir").cloned(),
        may_resume: matches.get_flag("resume"),
        timing: timing(matches)?,
    };
    run_maelstrom(settings)
}

/// Runs a Maelstrom node on standard input and output.
fn run_maelstrom(settings: NodeSettings) -> Result<()> {
    visit(&Subject::named(&settings.protocol), OnStandardStreams(&settings))?
}

struct OnStandardStreams<'a>(&'a NodeSettings);

impl Visit for OnStandardStreams<'_> {
    type Out = Result<()>;

    fn visit<P: Protocol>(self, _: P::Options) -> Result<()> {
        let NodeSettings { timing, may_resume, data_dir, .. } = self.0;
        let mut setup = Setup::<P>::new(rand::random());
        setup.timing = *timing;
        setup.may_resume = *may_resume;
        if let Some(directory) = data_dir {
            setup.place = Place::Below(directory.clone());
        }
        Ok(stdio::run(setup, std::io::BufReader::new(std::io::stdin()), std::io::stdout().lock())?)
    }
}

/// Runs Maelstrom nodes inside this process.
pub(crate) fn simulate_maelstrom(node: &NodeSettings, settings: settings::Settings) -> (Report, History) {
    visit(&Subject::named(&node.protocol), InVirtualTime { node, settings })
        .expect("clap takes only the names that there are")
}

struct InVirtualTime<'a> {
    node: &'a NodeSettings,
    settings: settings::Settings,
}

impl Visit for InVirtualTime<'_> {
    type Out = (Report, History);

    fn visit<P: Protocol>(self, _: P::Options) -> (Report, History) {
        let mut setup = Setup::<P>::new(0);
        setup.timing = self.node.timing;
        let (report, history, _) = virtual_time::run(self.settings, &setup);
        (report, history)
    }
}
