//! The data directory of a new cluster that goes on with the state of an old one: [`renew`].
//!
//! Complete or absent at any moment: it is written beside its place and renamed when all of it is durable.

use super::gather::Gathered;
use crate::serve::cluster_id_of;
use crate::settings::founders_in;
use crate::snapshots::{Beginning, raised, write_member, write_whole};
use anyhow::{Context, Result, anyhow, bail};
use clap::ArgMatches;
use hustings_core::{ClusterId, Member, Membership, NodeId, StateMachine, Term};
use hustings_kv::KvStore;
use hustings_wal::{Identity, Survey};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// The result of a recovery.
pub(crate) struct Made {
    pub(crate) data_dir: PathBuf,
    pub(crate) cluster_id: ClusterId,
    pub(crate) member: NodeId,
    pub(crate) name: String,
    pub(crate) revision: i64,
    pub(crate) term: Term,
    /// The distance by which the revision was raised.
    pub(crate) bump: u64,
    pub(crate) is_alone: bool,
}

/// The identity of the new cluster.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) founding: Membership,
    pub(super) token: &'a str,
    /// A random part of the id, which no other recovery has; empty where several members come to one.
    pub(super) drawn: &'a str,
    pub(super) bump: u64,
}

/// Makes the directory that `--into` names.
pub(super) fn renew(matches: &ArgMatches, surveys: &[&Survey], gathered: &Gathered, into: &Path) -> Result<Made> {
    let text = |name: &str| matches.get_one::<String>(name);
    let best = surveys[gathered.best];
    let own = known_member(best, gathered);
    let name = text("name").unwrap_or(&own.name);
    let founding = match text("initial-cluster") {
        None => Membership::founded_by([Member { name: name.clone(), ..own.clone() }]),
        Some(list) => {
            let founders = founders_in(list).map_err(|remedy| anyhow!("--initial-cluster {list:?}: {remedy}"))?;
            if !founders.contains_key(name) {
                bail!("--initial-cluster {list:?}: this member's name, {name:?}, is not among them; give --name");
            }
            Membership::founded_by(founders.into_values())
        }
    };
    let token = text("initial-cluster-token").expect("it has a default");
    let bump = *matches.get_one::<u64>("bump-revision").expect("it has a default");
    // Members of one list must come to one id. Without a list the member is alone, and what was made of these directories before is
    // another cluster.
    let drawn = text("initial-cluster").is_none().then(draw).unwrap_or_default();
    let made = write_whole(into, ("recovery", ".recovering"), |unfinished| {
        write(unfinished, best, gathered, Wanted { name, founding, token, bump, drawn: &drawn })
    })?;
    Ok(Made { data_dir: into.to_path_buf(), ..made })
}

/// A random part of a new cluster's id, where no other member must come to the same one.
pub(super) fn draw() -> String {
    format!(", {:016x}", rand::random::<u64>())
}

/// The cluster's knowledge of the member whose directory was chosen.
pub(super) fn known_member(best: &Survey, gathered: &Gathered) -> Member {
    let id = best.peek.identity.node;
    let known = gathered.membership.members.get(&id).or_else(|| best.peek.founding.members.get(&id));
    let mut member = known.cloned().unwrap_or_default();
    if member.name.is_empty() {
        member.name = id.to_string();
    }
    // The new directory draws its own.
    Member { storage_incarnation: None, wants_vote: false, ..member }
}

/// Writes the whole directory.
pub(super) fn write(directory: &Path, best: &Survey, gathered: &Gathered, wanted: Wanted<'_>) -> Result<Made> {
    let Wanted { name, founding, token, bump, drawn } = wanted;
    let mut store = gathered.store.clone();
    store.bump_revision(bump).with_context(|| format!("give a smaller --bump-revision than {bump}"))?;
    let me = founding.members.iter().find(|(_, member)| member.name == *name).map(|(id, _)| *id);
    let me = me.expect("the founders were checked: this member is one");
    let old = &best.peek.identity;
    // Made from what the directories hold, and equal wherever a list of founders is given with them: no member of the old cluster belongs
    // to it, nor does one that was recovered from others.
    let mut digest = Sha256::new();
    digest.update(old.cluster_id.0.to_le_bytes());
    digest.update(gathered.last.term.0.to_le_bytes());
    digest.update(gathered.last.index.to_le_bytes());
    KvStore::encode(&store.freeze(), &mut |part| digest.update(&part));
    let digest: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let cluster_id = cluster_id_of(&format!("{token} recovered from {digest}{drawn}"), &founding);
    let identity = Identity { cluster_id, node: me, protocol: old.protocol.clone() };
    let (term, revision, is_alone) = (raised(gathered.term, bump), store.view().revision(), founding.voters.len() == 1);
    let (lsn, version, view) = (gathered.last, gathered.version, store.freeze());
    write_member(directory, Beginning { identity: &identity, founding, lsn, term, version, view })?;
    let data_dir = directory.to_path_buf();
    Ok(Made { data_dir, cluster_id, member: me, name: name.to_string(), revision, term, bump, is_alone })
}
