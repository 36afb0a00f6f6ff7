//! The protocols by name: the only place that knows more than one.

use anyhow::{Result, bail};
use hustings_core::Protocol;
use hustings_kv::KvStore;
use hustings_node::{Node, NodeConfig};
use hustings_raft::Raft;

/// The names that `--protocol` takes.
pub(crate) const NAMES: [&str; 1] = [Raft::NAME];

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
        _ => unreachable!("checked above"),
    })
}
