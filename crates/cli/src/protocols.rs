//! The protocols by name: the only place that knows more than one.

use anyhow::{Result, bail};
use hustings_core::Protocol;
use hustings_gmt2000::Gmt2000;
use hustings_kv::KvStore;
use hustings_node::{Node, NodeConfig};
use hustings_raft::Raft;

/// The names that `--protocol` takes.
pub(crate) const NAMES: [&str; 2] = [Raft::NAME, Gmt2000::NAME];

/// Checks a name.
pub(crate) fn check(name: &str) -> Result<()> {
    if NAMES.contains(&name) {
        return Ok(());
    }
    bail!("there is no protocol `{name}`; choose one of: {}", NAMES.join(", "))
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
        _ => unreachable!("checked above"),
    })
}

/// The defects that can be planted in a protocol.
pub(crate) fn defects_of(name: &str) -> Vec<&'static str> {
    match name {
        Raft::NAME => hustings_raft::Defect::ALL.iter().map(|defect| defect.name()).collect(),
        _ => Vec::new(),
    }
}
