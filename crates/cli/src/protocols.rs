//! The protocols by name: the only place that knows more than one.

use crate::maelstrom::NodeSettings;
use anyhow::{Result, bail};
use hustings_blazingmq::BlazingMq;
use hustings_core::Protocol;
use hustings_gmt2000::Gmt2000;
use hustings_kv::KvStore;
use hustings_maelstrom::bench::history::History;
use hustings_maelstrom::bench::report::Report;
use hustings_maelstrom::bench::{settings, virtual_time};
use hustings_maelstrom::storage::Place;
use hustings_maelstrom::{Setup, stdio};
use hustings_node::{Node, NodeConfig};
use hustings_paxos::Paxos;
use hustings_raft::Raft;
use hustings_zab::Zab;

/// The names that `--protocol` takes.
pub(crate) const NAMES: [&str; 5] = [Raft::NAME, Gmt2000::NAME, BlazingMq::NAME, Zab::NAME, Paxos::NAME];

/// Checks a name.
pub(crate) fn check(name: &str) -> Result<()> {
    if NAMES.contains(&name) {
        return Ok(());
    }
    bail!("there is no protocol `{name}`; choose one of: {}", NAMES.join(", "))
}

/// Runs a Maelstrom node on standard input and output.
pub(crate) fn run_maelstrom(settings: NodeSettings) -> Result<()> {
    match settings.protocol.as_str() {
        Raft::NAME => run_maelstrom_node::<Raft>(settings),
        Gmt2000::NAME => run_maelstrom_node::<Gmt2000>(settings),
        BlazingMq::NAME => run_maelstrom_node::<BlazingMq>(settings),
        Zab::NAME => run_maelstrom_node::<Zab>(settings),
        Paxos::NAME => run_maelstrom_node::<Paxos>(settings),
        other => check(other),
    }
}

fn run_maelstrom_node<P: Protocol>(settings: NodeSettings) -> Result<()> {
    let mut setup = Setup::<P>::new(rand::random());
    setup.timing = settings.timing;
    setup.may_resume = settings.may_resume;
    if let Some(directory) = settings.data_dir {
        setup.place = Place::Below(directory);
    }
    Ok(stdio::run(setup, std::io::BufReader::new(std::io::stdin()), std::io::stdout().lock())?)
}

/// Runs Maelstrom nodes inside this process.
pub(crate) fn simulate_maelstrom(node: &NodeSettings, settings: settings::Settings) -> (Report, History) {
    fn simulate<P: Protocol>(node: &NodeSettings, settings: settings::Settings) -> (Report, History) {
        let mut setup = Setup::<P>::new(0);
        setup.timing = node.timing;
        let (report, history, _) = virtual_time::run(settings, &setup);
        (report, history)
    }
    match node.protocol.as_str() {
        Raft::NAME => simulate::<Raft>(node, settings),
        Gmt2000::NAME => simulate::<Gmt2000>(node, settings),
        BlazingMq::NAME => simulate::<BlazingMq>(node, settings),
        Zab::NAME => simulate::<Zab>(node, settings),
        Paxos::NAME => simulate::<Paxos>(node, settings),
        _ => unreachable!("clap takes only the names above"),
    }
}

/// Starts a node that runs the protocol with this name.
pub(crate) fn start(name: &str, config: NodeConfig) -> Result<Node<KvStore>> {
    check(name)?;
    Ok(match name {
        Raft::NAME => hustings_node::start::<Raft, KvStore>(config, Default::default(), KvStore::new())?,
        Gmt2000::NAME => {
            let options = hustings_gmt2000::Options::default();
            // No flag leads there; if one ever does, a server still refuses what is known to lose writes.
            if options.is_laboratory() {
                bail!("protocol `{name}` as published is for the laboratory: it can have two leaders in one term");
            }
            hustings_node::start::<Gmt2000, KvStore>(config, options, KvStore::new())?
        }
        BlazingMq::NAME => {
            let options = hustings_blazingmq::Options::default();
            if options.is_laboratory() {
                bail!(
                    "protocol `{name}` as published is for the laboratory: a crash makes it forget whom it supported"
                );
            }
            hustings_node::start::<BlazingMq, KvStore>(config, options, KvStore::new())?
        }
        Zab::NAME => {
            let options = hustings_zab::Options::default();
            if options.is_laboratory() {
                bail!("protocol `{name}` as published is for the laboratory: it can lose acknowledged writes");
            }
            hustings_node::start::<Zab, KvStore>(config, options, KvStore::new())?
        }
        Paxos::NAME => {
            let options = hustings_paxos::Options::default();
            if options.is_laboratory() {
                bail!(
                    "protocol `{name}` as published is for the laboratory: it raises ballots without asking, and loses writes"
                );
            }
            hustings_node::start::<Paxos, KvStore>(config, options, KvStore::new())?
        }
        _ => unreachable!("checked above"),
    })
}

/// Work that is the same for every protocol.
pub(crate) trait Visit {
    /// What it leads to.
    type Out;

    /// The work.
    fn visit<P>(self, options: P::Options) -> Self::Out
    where
        P: Protocol + Sync,
        P::Options: Sync,
        P::Message: Sync,
        P::Timer: Sync;
}

/// Does something with the protocol of this name, in the laboratory: perhaps as published, perhaps with a planted defect.
pub(crate) fn visit<V: Visit>(name: &str, is_published: bool, plant: Option<&str>, visitor: V) -> Result<V::Out> {
    visit_with(name, is_published, plant, true, visitor)
}

/// As [`visit`], perhaps without the pre-vote of protocols that have one.
pub(crate) fn visit_with<V: Visit>(
    name: &str,
    is_published: bool,
    plant: Option<&str>,
    pre_vote: bool,
    visitor: V,
) -> Result<V::Out> {
    check(name)?;
    Ok(match name {
        Raft::NAME => {
            let mut options = hustings_raft::Options::default();
            if is_published {
                options = hustings_raft::Options { pre_vote: false, check_quorum: false, ..options };
            }
            options.pre_vote &= pre_vote;
            options.defect = plant.and_then(hustings_raft::Defect::named);
            visitor.visit::<Raft>(options)
        }
        Gmt2000::NAME => visitor.visit::<Gmt2000>(hustings_gmt2000::Options { as_published: is_published }),
        BlazingMq::NAME => visitor.visit::<BlazingMq>(hustings_blazingmq::Options {
            scouting: pre_vote,
            as_published: is_published,
            defect: plant.and_then(hustings_blazingmq::Defect::named),
            ..Default::default()
        }),
        Zab::NAME => visitor.visit::<Zab>(hustings_zab::Options {
            as_published: is_published,
            defect: plant.and_then(hustings_zab::Defect::named),
            ..hustings_zab::Options::default()
        }),
        Paxos::NAME => visitor.visit::<Paxos>(hustings_paxos::Options {
            low_ball: pre_vote,
            as_published: is_published,
            defect: plant.and_then(hustings_paxos::Defect::named),
            ..Default::default()
        }),
        _ => unreachable!("checked above"),
    })
}

/// The defects that can be planted in a protocol.
pub(crate) fn defects_of(name: &str) -> Vec<&'static str> {
    match name {
        Raft::NAME => hustings_raft::Defect::ALL.iter().map(|defect| defect.name()).collect(),
        BlazingMq::NAME => hustings_blazingmq::Defect::ALL.iter().map(|defect| defect.name()).collect(),
        Zab::NAME => hustings_zab::Defect::ALL.iter().map(|defect| defect.name()).collect(),
        Paxos::NAME => hustings_paxos::Defect::ALL.iter().map(|defect| defect.name()).collect(),
        _ => Vec::new(),
    }
}
