//! `--force-new-cluster`: a member goes on as a new cluster, on its own data directory.
//!
//! ```text
//!    n1.forcing                        written beside it, whole and durable
//!    n1 <──exchange──> n1.forcing      one rename of both: n1 is the old directory or the new one, at any moment
//!    n1.forcing ──► n1.before-CLUSTER  the old one, unchanged
//! ```
//!
//! The new directory says in a file that it was done ([`MARK`]), so that a flag that stays in a unit does it once: it neither raises
//! terms at each start nor throws out the members that were added since. etcd does it at every start.

use super::gather::gather;
use super::read;
use super::renew::{Wanted, draw, known_member, write};
use crate::settings::Plan;
use crate::snapshots::{REVISIONS_BUMPED, after_this, beside, make_alone, rename_durably};
use anyhow::{Context, Result, anyhow, bail};
use hustings_console::files::target_of;
use hustings_core::{ClusterId, Membership};
use rustix::fs::{CWD, RenameFlags};
use std::path::{Path, PathBuf};

/// The file in a directory that was made so. It holds the id of the cluster that it was made of.
const MARK: &str = "forced-new-cluster";

/// Makes a directory, before a node opens it, that of a cluster of this member alone, unless that was done already.
///
/// # Errors
/// The directory holds no member, somebody lives in it, it is damaged, or the disk refuses; then it stands as it was.
pub(crate) fn force_new_cluster(plan: &Plan) -> Result<()> {
    // A link stays a link: the directory that it names is exchanged.
    let directory = &target_of(&plan.data_dir).map_err(|why| anyhow!("{} {why}", plan.data_dir.display()))?;
    let forcing = beside(directory, ".forcing");
    let survey = read(directory).with_context(|| {
        format!(
            "--force-new-cluster makes a new cluster of what {} holds; where no member lived, take the flag out",
            directory.display()
        )
    })?;
    let old = survey.peek.identity.clone();
    put_away_what_a_crash_left(directory, &forcing, old.cluster_id)?;
    if let Some(from) = made_from(directory) {
        tracing::warn!(
            "--force-new-cluster changes nothing: {} was made of cluster {from} by it already; take the flag out. To do it once \
             more, remove the file {}",
            directory.display(),
            directory.join(MARK).display()
        );
        return Ok(());
    }
    if old.protocol != plan.identity {
        bail!(
            "{} is of protocol `{}` and this member was started with `{}`: start it with the same --protocol",
            directory.display(),
            old.protocol,
            plan.identity
        );
    }
    let surveys = [&survey];
    let gathered = gather(&surveys)?;
    let own = known_member(&survey, &gathered);
    let founding = Membership::founded_by([hustings_core::Member { name: plan.member.name.clone(), ..own }]);
    make_alone(&forcing).with_context(|| format!("cannot make {}", forcing.display()))?;
    let mark = forcing.join(MARK);
    std::fs::write(&mark, old.cluster_id.to_string())
        .and_then(|()| std::fs::File::open(&mark)?.sync_all())
        .with_context(|| format!("cannot write {}", mark.display()))?;
    // A second time from the same old directory is another cluster.
    let drawn = &draw();
    let wanted = Wanted { name: &plan.member.name, founding, token: &plan.token, drawn, bump: REVISIONS_BUMPED };
    let made = write(&forcing, &survey, &gathered, wanted)?;
    if let Err(errno) = rustix::fs::renameat_with(CWD, &forcing, CWD, directory, RenameFlags::EXCHANGE) {
        let _ = std::fs::remove_dir_all(&forcing);
        bail!(
            "{} cannot be exchanged for a new directory in one step ({}): nothing was changed; is it a mount point? make the new one \
             elsewhere, with `hustings recover {} --into NEW-DIR --lost ...`, and serve that",
            directory.display(),
            std::io::Error::from(errno),
            directory.display()
        );
    }
    let kept = keep(directory, &forcing, old.cluster_id)?;
    let absent: Vec<String> = gathered.absent(&surveys).into_iter().map(|(_, name)| name).collect();
    tracing::warn!(
        cluster = %made.cluster_id,
        was = %old.cluster_id,
        through = %gathered.last,
        revision = made.revision,
        term = made.term.0,
        kept = %kept.display(),
        ?absent,
        "goes on as a new cluster of this member alone: never start those that are absent on their old disks again; add them as new \
         members. To begin once more from the old directory, take the flag out: `hustings recover {} --into NEW-DIR --bump-revision {}` \
         begins above this cluster, and the flag would not; {}",
        kept.display(),
        2 * REVISIONS_BUMPED,
        after_this(REVISIONS_BUMPED)
    );
    Ok(())
}

/// The cluster that this directory was made of, if it was made so.
fn made_from(directory: &Path) -> Option<String> {
    std::fs::read_to_string(directory.join(MARK)).ok().map(|from| from.trim().to_string())
}

/// A crash leaves a new directory that was not finished, which goes, or an old one that was exchanged already, which is kept.
fn put_away_what_a_crash_left(directory: &Path, forcing: &Path, cluster_id: ClusterId) -> Result<()> {
    if !forcing.exists() {
        return Ok(());
    }
    let theirs = hustings_wal::peek(forcing).ok().flatten().map(|peek| peek.identity.cluster_id);
    if made_from(directory).is_some_and(|from| theirs.is_some_and(|theirs| theirs.to_string() == from)) {
        let was = theirs.expect("it was compared");
        return keep(directory, forcing, was).map(drop);
    }
    let is_empty = std::fs::read_dir(forcing).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty || made_from(forcing).is_some_and(|from| from.is_empty() || from == cluster_id.to_string()) {
        return std::fs::remove_dir_all(forcing).with_context(|| format!("cannot remove {}", forcing.display()));
    }
    bail!("{} is in the way and was not made here: move it away", forcing.display())
}

/// Gives the old directory the name under which it stays.
fn keep(directory: &Path, old: &Path, cluster_id: ClusterId) -> Result<PathBuf> {
    let names = std::iter::once(String::new()).chain((2..).map(|number| format!("-{number}")));
    let mut names = names.map(|number| beside(directory, &format!(".before-{cluster_id}{number}")));
    let kept = names.find(|path| !path.exists()).expect("names do not end");
    rename_durably(old, &kept)?;
    Ok(kept)
}
