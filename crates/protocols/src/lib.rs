//! The protocols by name: the only place that knows more than one.
//!
//! ```
//! // Directories and handshakes know a protocol by its name and those of its options that nodes without them could not join.
//! assert_eq!(hustings_protocols::identity("raft", "").expect("there is such a protocol"), "raft");
//! let refused = hustings_protocols::identity("raft", "colour=red").expect_err("Raft has no such option");
//! assert!(refused.to_string().contains("colour"), "{refused}");
//! ```

use anyhow::{Result, bail};
use hustings_blazingmq::BlazingMq;
use hustings_core::Protocol;
use hustings_core::options::Options as _;
use hustings_gmt2000::Gmt2000;
use hustings_kv::KvStore;
use hustings_node::{Node, NodeConfig};
use hustings_paxos::Paxos;
use hustings_raft::Raft;
use hustings_recorder::{Recorded, RecordedOptions};
use hustings_zab::Zab;

/// The names that `--protocol` takes.
pub const NAMES: [&str; 5] = [Raft::NAME, Gmt2000::NAME, BlazingMq::NAME, Zab::NAME, Paxos::NAME];

/// BlazingMQ's article to the letter: a scouting is answered with yes only by smaller ids (§1.7 of
/// `docs/protocols/rules/blazingmq.md`). Nothing unsafe follows from it, but the smallest ids never lead.
const SEED_LITERAL: &str = "seed-literal";

/// Checks that a protocol of this name exists.
pub fn check(name: &str) -> Result<()> {
    if NAMES.contains(&name) {
        return Ok(());
    }
    bail!(no_protocol(name))
}

fn no_protocol(name: &str) -> String {
    format!("there is no protocol `{name}`; choose one of: {}", NAMES.join(", "))
}

/// Starts a node that runs the protocol with this name and these options.
pub fn start(name: &str, options: &str, config: NodeConfig) -> Result<Node<KvStore>> {
    visit(&Subject::with_options(name, options), Starting(config))?
}

struct Starting(NodeConfig);

impl Visit for Starting {
    type Out = Result<Node<KvStore>>;

    fn visit<P: Protocol>(self, options: P::Options) -> Result<Node<KvStore>> {
        // No option leads there; if one ever does, a server still refuses what is known to lose writes.
        if options.is_laboratory() {
            bail!("protocol `{}` in this form is for the laboratory: it is known to lose acknowledged writes", P::NAME);
        }
        let tape = self.0.recording.as_ref().map(|recording| recording.tape.clone());
        let options = RecordedOptions { inner: options, tape };
        Ok(hustings_node::start::<Recorded<P>, KvStore>(self.0, options, KvStore::new())?)
    }
}

/// The name of a protocol with these options, as directories and handshakes know it.
///
/// # Errors
/// There is no such protocol, or it has no such options.
pub fn identity(name: &str, options: &str) -> Result<String> {
    visit(&Subject::with_options(name, options), Naming)
}

/// Does something with the protocol that directories and handshakes know by this name.
///
/// # Errors
/// There is no such protocol.
pub fn visit_identity<V: Visit>(identity: &str, visitor: V) -> Result<V::Out> {
    let (name, options) = identity.split_once(' ').unwrap_or((identity, ""));
    visit(&Subject::with_options(name, options), visitor)
}

struct Naming;

impl Visit for Naming {
    type Out = String;

    fn visit<P: Protocol>(self, options: P::Options) -> String {
        options.identity(P::NAME)
    }
}

/// Work that is the same for every protocol.
pub trait Visit {
    /// The result of the work.
    type Out;

    /// Does the work for the protocol `P`.
    fn visit<P>(self, options: P::Options) -> Self::Out
    where
        P: Protocol + Sync,
        P::Options: Sync,
        P::Message: Sync,
        P::Timer: Sync;
}

/// A protocol in the form about which something is proved.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// Name of the protocol.
    pub protocol: String,
    /// As it was published, with its defects.
    pub is_published: bool,
    /// Name of the planted defect, if any.
    pub plant: Option<String>,
    /// Whether it does not ask before it disturbs a leader, though it could.
    pub lacks_pre_vote: bool,
    /// Its own options, as `a=1,b=2`.
    pub options: String,
}

impl Subject {
    /// The safe form of the protocol with this name.
    pub fn named(protocol: &str) -> Subject {
        Subject { protocol: protocol.into(), ..Subject::default() }
    }

    /// The same with options of its own, as `a=1,b=2`.
    fn with_options(protocol: &str, options: &str) -> Subject {
        Subject { options: options.into(), ..Subject::named(protocol) }
    }

    /// The flags that lead here again.
    pub fn flags(&self) -> String {
        let published = if self.is_published { " --as-published" } else { "" };
        let plant = self.plant.as_ref().map_or(String::new(), |plant| format!(" --plant {plant}"));
        let options = if self.options.is_empty() { "" } else { &format!(" --protocol-options {}", self.options) };
        let pre_vote = if self.lacks_pre_vote { " --no-pre-vote" } else { "" };
        format!("--protocol {}{published}{plant}{options}{pre_vote}", self.protocol)
    }
}

/// Does something with a protocol, in the form that is asked for: the one place where names become types.
///
/// # Errors
/// There is no such protocol, or it has no such options.
pub fn visit<V: Visit>(subject: &Subject, visitor: V) -> Result<V::Out> {
    let Subject { protocol, is_published, plant, lacks_pre_vote, options } = subject;
    let (is_published, pre_vote, plant) = (*is_published, !*lacks_pre_vote, plant.as_deref());
    Ok(match protocol.as_str() {
        Raft::NAME => {
            let mut options = hustings_raft::Options::parse(Raft::NAME, options)?;
            options.pre_vote &= pre_vote && !is_published;
            options.check_quorum &= !is_published;
            options.defect = plant.and_then(hustings_raft::Defect::named);
            visitor.visit::<Raft>(options)
        }
        Gmt2000::NAME => {
            let mut options = hustings_gmt2000::Options::parse(Gmt2000::NAME, options)?;
            options.as_published = is_published;
            options.defect = plant.and_then(hustings_gmt2000::Defect::named);
            visitor.visit::<Gmt2000>(options)
        }
        BlazingMq::NAME => {
            let mut options = hustings_blazingmq::Options::parse(BlazingMq::NAME, options)?;
            options.scouting &= pre_vote;
            options.as_published = is_published;
            options.seed_literal = plant == Some(SEED_LITERAL);
            options.defect = plant.and_then(hustings_blazingmq::Defect::named);
            visitor.visit::<BlazingMq>(options)
        }
        Zab::NAME => {
            let mut options = hustings_zab::Options::parse(Zab::NAME, options)?;
            options.as_published = is_published;
            options.defect = plant.and_then(hustings_zab::Defect::named);
            visitor.visit::<Zab>(options)
        }
        Paxos::NAME => {
            let mut options = hustings_paxos::Options::parse(Paxos::NAME, options)?;
            options.low_ball &= pre_vote;
            options.as_published = is_published;
            options.defect = plant.and_then(hustings_paxos::Defect::named);
            visitor.visit::<Paxos>(options)
        }
        other => bail!(no_protocol(other)),
    })
}

/// The defects that can be planted in a protocol: its own, and those of what all share that show under it.
pub fn defects_of(name: &str) -> Vec<&'static str> {
    let shared = hustings_core::laboratory::Defect::ALL.into_iter().filter(|defect| shows_under(*defect, name));
    own_defects_of(name).into_iter().chain(shared.map(|defect| defect.name())).collect()
}

/// Whether a defect of what all protocols share makes a difference under this one.
fn shows_under(defect: hustings_core::laboratory::Defect, name: &str) -> bool {
    use hustings_core::laboratory::Defect;
    match defect {
        // Paxos commits slot by slot, and a node that promises there may lead.
        Defect::CommitsOnce | Defect::TakesNoCare => name != Paxos::NAME,
        // In ZAB and Paxos a fetch ends with the leader that it was begun under.
        Defect::PinsFetches => [Raft::NAME, Gmt2000::NAME, BlazingMq::NAME].contains(&name),
        // Elsewhere what an isolated leader wrote never counts again.
        Defect::StampsDifferences => name == Paxos::NAME,
        // Only where there are witnesses: `crates/world/tests/witnesses.rs`.
        Defect::WitnessGivesSnapshots => false,
        // Nothing of ZAB that is counted rests on a promise alone, nothing of Paxos on entries, and nothing of these two but snapshots, and
        // the ends of ledgers, on all that was written (`crates/world/tests/defects_shared.rs`).
        Defect::UnsyncedPromises => name != Zab::NAME,
        Defect::UnsyncedEntries => name != Paxos::NAME,
        Defect::UnsyncedRecords => ![Gmt2000::NAME, BlazingMq::NAME].contains(&name),
        Defect::InsistsOnPreference
        | Defect::RemovesLastLeader
        | Defect::LosesTimeWithReigns
        | Defect::CountsItselfAtOnce => true,
    }
}

fn own_defects_of(name: &str) -> Vec<&'static str> {
    match name {
        Raft::NAME => hustings_raft::Defect::ALL.iter().map(|defect| defect.name()).collect(),
        Gmt2000::NAME => hustings_gmt2000::Defect::ALL.iter().map(|defect| defect.name()).collect(),
        BlazingMq::NAME => {
            let defects = hustings_blazingmq::Defect::ALL.iter().map(|defect| defect.name());
            defects.chain([SEED_LITERAL]).collect()
        }
        Zab::NAME => hustings_zab::Defect::ALL.iter().map(|defect| defect.name()).collect(),
        Paxos::NAME => hustings_paxos::Defect::ALL.iter().map(|defect| defect.name()).collect(),
        _ => Vec::new(),
    }
}

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
