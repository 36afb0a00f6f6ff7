//! `hustings snapshot status` and `restore`: a snapshot file examined, and made into the members of a new cluster.
//!
//! The file was written by `hustings snapshot save` or `etcdctl snapshot save`, of a cluster of Hustings or of etcd. Every
//! member of the new cluster restores from the same file with the same `--initial-cluster`, then runs `hustings serve`: all
//! begin with one history, which is the snapshot. The new cluster's id is drawn from its token, its members' names and URLs, the
//! file and the revision: members of the old one, and of a restoration from another file or with another bump, are strangers to it.
//!
//! Changes between the snapshot and the loss of the old cluster are unknown to the new one. So terms and revisions do not go
//! on where the snapshot was made but far above ([`TERMS_BUMPED`], `--bump-revision`): no new fencing token is below an old one, no lock's
//! revision comes twice, and a watcher that has seen later revisions than the snapshot's is told that they are compacted
//! instead of waiting for them.
//!
//! Read next: `hustings_server::snapshot` (the file), [`crate::serve`] (who a restored directory says it is).

use crate::exit::{Code, Exit};
use crate::output::{Format, format_of, output_argument, table};
use crate::serve::cluster_id_of;
use crate::settings::{OfProcess, Settings, with_settings};
use anyhow::{Context, Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_console::files::{folder_of, target_of};
use hustings_core::replica::ReplicaState;
use hustings_core::replica::SnapshotContents;
use hustings_core::{ApplyVersion, Lsn, Membership, NodeId, Promise, Record, StateMachine, Term};
use hustings_kv::KvStore;
use hustings_server::{DigestCheck, Origin, Snapshot, read_snapshot};
use hustings_wal::{Disk, Identity, Options, RealDisk, SnapshotStore, Wal};
use serde_json::json;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Distance from the snapshot's term to that at which the new cluster begins: more than a cluster elects in its life, also
/// where a term packs a ballot and a node (2^20 ballots), and no further than one message may raise a term.
const TERMS_BUMPED: u64 = 1 << 36;

/// Term up to which terms are raised by so much. A member that was just added follows no leap beyond 2^40: a cluster that was made
/// anew again and again must stay below.
const TERMS_PLENTY: u64 = 1 << 39;

/// Distance from there on: more than anybody elects while a recovery is under way, 256 ballots where a term packs them.
const TERMS_BUMPED_LESS: u64 = 1 << 24;

/// Distance from the snapshot's revision, unless asked otherwise: the most that etcd's manual reckons with, a week of 1,500 writes a
/// second.
pub(crate) const REVISIONS_BUMPED: u64 = 1_000_000_000;

/// Least distance between the terms of two beginnings of which one has twice the other's bump: 64 ballots where a term packs them.
const TERMS_APART_MIN: u64 = 1 << 22;

/// The term that a new cluster begins with: above all terms of the old one, and above those of an earlier beginning whose `bump` was at
/// most half as large.
pub(crate) fn raised(Term(term): Term, bump: u64) -> Term {
    let distance = if term < TERMS_PLENTY { TERMS_BUMPED } else { TERMS_BUMPED_LESS };
    let doublings = u64::from(u64::BITS - bump.leading_zeros());
    Term(term + distance + doublings * (distance / u64::from(u64::BITS)).max(TERMS_APART_MIN))
}

/// The same, for a cluster that others shall be able to join.
///
/// Errors: a member that is added follows no such leap.
fn raised_for_all(term: Term, bump: u64) -> Result<Term> {
    let raised = raised(term, bump);
    let what = || {
        format!(
            "it is of term {term}, and the new cluster would begin at {raised}: no member could be added to it, for a member \
             follows no leap beyond 2^40 (the file is made up, or its cluster was made anew too often)"
        )
    };
    if Term::ZERO.may_follow(raised) { Ok(raised) } else { Err(Exit::with(Code::Failed, what())) }
}

/// The flag `--bump-revision`: how far a restored store's revision is raised.
pub(crate) fn bump_argument() -> Arg {
    let bump = Arg::new("bump-revision").long("bump-revision").value_name("COUNT");
    bump.default_value(REVISIONS_BUMPED.to_string()).value_parser(value_parser!(u64)).help(
        "How far the revision is raised above what is found, so that none is given out twice; everything below is compacted",
    )
}

/// The command lines of `snapshot status` and `snapshot restore`.
pub(crate) fn commands() -> [Command; 2] {
    let file = || Arg::new("file").required(true).value_parser(value_parser!(PathBuf)).help("The snapshot");
    let skip = || {
        Arg::new("skip-hash-check").long("skip-hash-check").action(ArgAction::SetTrue).help(
            "Take a file without a valid SHA-256 at its end: one copied out of a data directory of etcd (member/snap/db) has none",
        )
    };
    let status = Command::new("status").about("Check a snapshot and show what it is of");
    let status = status.arg(file()).arg(skip()).arg(output_argument());
    let restore = Command::new("restore")
        .about("Make a snapshot into a new data directory of a new cluster; run it for every member");
    let marked = Arg::new("mark-compacted").long("mark-compacted").action(ArgAction::SetTrue).hide(true);
    [status, with_settings(restore).arg(file()).arg(skip()).arg(bump_argument()).arg(marked).arg(output_argument())]
}

fn read(matches: &ArgMatches) -> Result<Snapshot> {
    let path = matches.get_one::<PathBuf>("file").expect("clap requires it");
    let file = File::open(path).with_context(|| format!("cannot read the snapshot {}", path.display()))?;
    let length = file.metadata().with_context(|| format!("cannot read the snapshot {}", path.display()))?.len();
    let check = if matches.get_flag("skip-hash-check") { DigestCheck::Skipped } else { DigestCheck::Required };
    read_snapshot(&file, length, check).with_context(|| format!("{} cannot be used", path.display()))
}

/// Runs `hustings snapshot status` or `restore`.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    match matches.subcommand().expect("clap requires one") {
        ("status", matches) => status(matches),
        (_, matches) => restore(matches),
    }
}

fn status(matches: &ArgMatches) -> Result<()> {
    let snapshot = read(matches)?;
    let view = snapshot.store.view();
    let (revision, keys, leases) = (view.revision(), view.key_count(), view.leases().len());
    let hash = hustings_kv::hash_kv(view, 0)?.hash;
    let place = format!("{}:{}", snapshot.term, snapshot.index);
    if format_of(matches) == Format::Json {
        let mut value = json!({
            "apiVersion": "v1", "kind": "SnapshotStatus",
            "hash": hash,
            "revision": revision,
            "totalKey": keys,
            "totalSize": snapshot.file_bytes,
            "leases": leases,
            "users": view.users().users.len(),
            "term": snapshot.term,
            "index": snapshot.index,
            "notes": snapshot.notes,
        });
        match &snapshot.origin {
            Origin::Hustings { cluster_id, member_id } => {
                value["made_by"] = "hustings".into();
                value["cluster_id"] = format!("{cluster_id:x}").into();
                value["member_id"] = format!("{member_id:x}").into();
            }
            Origin::Etcd { version } => {
                value["made_by"] = "etcd".into();
                value["cluster_version"] = version.as_str().into();
            }
        }
        println!("{value}");
        return Ok(());
    }
    let cluster = match &snapshot.origin {
        Origin::Hustings { cluster_id, .. } => format!("{cluster_id:x}"),
        Origin::Etcd { version } => format!("etcd {version}"),
    };
    let numbers = [revision.to_string(), keys.to_string(), snapshot.file_bytes.to_string()];
    let row = [format!("{hash:x}")].into_iter().chain(numbers).chain([cluster, place]).collect();
    println!("{}", table(&["hash", "revision", "keys", "bytes", "cluster", "term:index"], vec![row]));
    tell(&snapshot);
    Ok(())
}

fn tell(snapshot: &Snapshot) {
    for note in &snapshot.notes {
        crate::logging::say(format_args!("{note}"));
    }
}

fn restore(matches: &ArgMatches) -> Result<()> {
    let is_wrong = |error: anyhow::Error| Exit::with(Code::Usage, format!("{error:#}"));
    let settings = Settings::resolve(matches, &OfProcess).map_err(is_wrong)?;
    for note in settings.check().map_err(is_wrong)? {
        crate::logging::say(format_args!("{note}"));
    }
    let plan = settings.to_plan().map_err(is_wrong)?;
    let founding = Membership::founded_by(plan.founders.iter().cloned());
    let found = founding.members.iter().find(|(_, member)| member.name == plan.member.name);
    let (me, listed) =
        found.map(|(id, member)| (*id, member)).expect("the settings were checked: this member is a founder");
    let advertised = &plan.member.peer_urls;
    if matches.contains_id("initial-advertise-peer-urls")
        && advertised.iter().any(|url| !listed.peer_urls.contains(url))
    {
        let what = format!(
            "--initial-advertise-peer-urls {} is not what --initial-cluster says of {:?} ({}): give both the same",
            advertised.join(","),
            plan.member.name,
            listed.peer_urls.join(",")
        );
        return Err(Exit::with(Code::Usage, what));
    }
    let mut snapshot = read(matches)?;
    let bump = *matches.get_one::<u64>("bump-revision").expect("it has a default");
    snapshot.store.bump_revision(bump).with_context(|| format!("give a smaller --bump-revision than {bump}"))?;
    let digest_text: String = snapshot.digest.iter().map(|byte| format!("{byte:02x}")).collect();
    // A beginning at another revision is another cluster: members of the one are strangers to the other.
    let revision = snapshot.store.view().revision();
    // So is one of other rules: an older build, which restores the same file to the first rules, makes strangers of its members.
    let version = snapshot.store.view().version_needed();
    let rules = if version == ApplyVersion::FIRST { String::new() } else { format!(" by rules {}", version.0) };
    let origin = format!("{} restored from {digest_text} at {revision}{rules}", plan.token);
    let cluster_id = cluster_id_of(&origin, &founding);
    let identity = Identity { cluster_id, node: me, protocol: plan.identity.clone() };
    let lsn = Lsn::new(snapshot.term.max(1), snapshot.index.max(1));
    let file = matches.get_one::<PathBuf>("file").expect("clap requires it");
    let term = raised_for_all(lsn.term, bump).with_context(|| format!("{} cannot be used", file.display()))?;
    let beginning = Beginning { identity: &identity, founding, lsn, term, version, view: snapshot.store.freeze() };
    write_whole(&plan.data_dir, ("restoration", ".restoring"), |unfinished| write_member(unfinished, beginning))?;
    tell(&snapshot);
    report(matches, &plan.data_dir, &identity, &plan.member.name, &snapshot, bump);
    Ok(())
}

fn report(matches: &ArgMatches, data_dir: &Path, identity: &Identity, name: &str, snapshot: &Snapshot, bump: u64) {
    let (cluster, revision) = (identity.cluster_id, snapshot.store.view().revision());
    let NodeId(member) = identity.node;
    if format_of(matches) == Format::Json {
        let value = json!({
            "apiVersion": "v1", "kind": "SnapshotRestore",
            "data_dir": data_dir.display().to_string(),
            "cluster_id": cluster.to_string(),
            "member_id": format!("{member:x}"),
            "revision": revision,
        });
        return println!("{value}");
    }
    println!("restored {name} of cluster {cluster} at revision {revision} into {}", data_dir.display());
    println!("restore every other member from the same file, then `hustings serve` each with the same flags");
    println!("{}", after_this(bump));
}

/// The advice at a new beginning, which raised the revision by so much: no term and no revision is to fall later.
pub(crate) fn after_this(bump: u64) -> String {
    format!(
        "save a snapshot once it serves: one that was saved before must be restored with --bump-revision {} or more, to begin above this \
         cluster",
        bump.saturating_mul(2).max(1)
    )
}

/// Refuses a directory that is not empty, and no other.
pub(crate) fn check_vacant(directory: &Path) -> Result<()> {
    let is_vacant = match std::fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => {
            return Err(error).with_context(|| format!("cannot use {} as a data directory", directory.display()));
        }
    };
    if is_vacant {
        return Ok(());
    }
    let what = format!(
        "{} exists and is not empty: nothing is overwritten; move it away or name another directory",
        directory.display()
    );
    Err(Exit::with(Code::Failed, what))
}

/// The contents of a new member's directory.
pub(crate) struct Beginning<'a> {
    /// Identity of the member whose directory it becomes.
    pub(crate) identity: &'a Identity,
    /// The founding members of the new cluster.
    pub(crate) founding: Membership,
    /// The place in the old history that the state is of.
    pub(crate) lsn: Lsn,
    /// Every leader of the new cluster is of a later term.
    pub(crate) term: Term,
    /// Version of the rules by which the state was computed, and by which the new cluster goes on.
    pub(crate) version: ApplyVersion,
    /// The state with which it begins.
    pub(crate) view: <KvStore as StateMachine>::View,
}

impl Beginning<'_> {
    /// The snapshot that all members of the new cluster begin with. Requests of the old one are not recognised: its members'
    /// counters begin anew.
    pub(crate) fn contents(&self) -> SnapshotContents<KvStore> {
        SnapshotContents {
            lsn: self.lsn,
            membership: Arc::new(self.founding.clone()),
            state: ReplicaState { version: self.version, ..ReplicaState::default() },
            view: self.view.clone(),
        }
    }
}

/// The whole data directory: the snapshot first, then the records that rest on it.
pub(crate) fn write_member(directory: &Path, beginning: Beginning<'_>) -> Result<()> {
    let contents = beginning.contents();
    let Beginning { identity, founding, term, version, .. } = beginning;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(directory)?);
    let options = Options { version_max: version, ..Options::default() };
    let (mut wal, _) = Wal::open(disk.clone(), identity, &founding, options)?;
    wal.need_version(version)?;
    let store = SnapshotStore::open(disk)?;
    let mut writer = store.writer(contents.lsn, contents.membership.clone())?;
    let mut written = Ok(());
    contents.encode(&mut |part| {
        if written.is_ok() {
            written = writer.write(&part);
        }
    });
    written?;
    let reference = writer.finish()?;
    wal.append(&Record::Promise(Promise::without_vote(term)))?;
    wal.append(&Record::Snapshot(reference))?;
    wal.sync()?;
    Ok(())
}

/// Makes a data directory that is complete or absent, by what writes it under a name of its own: one that was cut short must not be served.
pub(crate) fn write_whole<T>(
    data_dir: &Path,
    (called, suffix): (&str, &str),
    write: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    // A link stays a link: the directory that it names is made, on the disk where that is.
    let data_dir = &target_of(data_dir).map_err(|why| anyhow!("{} {why}", data_dir.display()))?;
    check_replaceable(data_dir)?;
    check_vacant(data_dir)?;
    let unfinished = beside(data_dir, suffix);
    // Whoever made it may write into it and remove it, and nobody else.
    make_alone(&unfinished).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => anyhow!(
            "{} is there: another {called} is under way, or an earlier one was cut short; if none is, remove it",
            unfinished.display()
        ),
        _ => anyhow!(error).context(format!("cannot make {}", unfinished.display())),
    })?;
    let made = write(&unfinished).and_then(|made| rename_durably(&unfinished, data_dir).map(|()| made));
    made.inspect_err(|_| {
        // It is worth nothing, and on a full disk in the way. The rest of it is named when it is in the way again.
        let _ = std::fs::remove_dir_all(&unfinished);
    })
}

/// Refuses a directory into whose place no other can be renamed, before anything is written.
fn check_replaceable(directory: &Path) -> Result<()> {
    let refuse = |what: &str| {
        let what = format!(
            "{} {what}, and the new directory comes into its place by one rename, or not at all: name a directory inside it",
            directory.display()
        );
        Err(Exit::with(Code::Usage, what))
    };
    if directory.file_name().is_none() {
        return refuse("has no name of its own");
    }
    let file_system = |path: &Path| std::fs::metadata(path).map(|there| there.dev());
    match (file_system(directory), file_system(folder_of(directory))) {
        (Ok(own), Ok(around)) if own != around => refuse("is a mount point"),
        // Absent, and whatever else is in the way is told when it is.
        _ => Ok(()),
    }
}

/// The path with something added to its last part.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    // Without a slash at the end, or the new name would lie within.
    let mut name = path.components().as_path().as_os_str().to_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

/// Makes a directory for its owner alone that was not there, and those around it where they are absent. Their names are durable.
pub(crate) fn make_alone(directory: &Path) -> std::io::Result<()> {
    let around = folder_of(directory);
    if !around.exists() {
        match make_alone(around) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    std::fs::DirBuilder::new().mode(0o700).create(directory)?;
    File::open(around)?.sync_all()
}

/// Renames a directory; after a crash it has the old name or the new one.
pub(crate) fn rename_durably(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))?;
    sync_name(to)
}

/// Makes a name durable that a file or a directory was just given.
pub(crate) fn sync_name(path: &Path) -> Result<()> {
    let around = folder_of(path);
    match File::open(around).and_then(|directory| directory.sync_all()) {
        Err(error) if is_beyond_us(&error) => {
            let what = format_args!(
                "{} may lose its name if the power goes now: cannot sync {}",
                path.display(),
                around.display()
            );
            crate::logging::say(format_args!("{what}: {error}"));
            Ok(())
        }
        synced => synced.with_context(|| format!("cannot sync {}", around.display())),
    }
}

/// Whether a directory may not be read by this user, or its file system syncs none: what is in it is whole all the same.
fn is_beyond_us(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_take_its_place_leaves_nothing() {
        // Goal: a failure at the last step, too, is no obstacle to the next try. Method: somebody takes the place while it is written.
        let place = tempfile::tempdir().expect("a directory");
        let taken = place.path().join("n1");
        let write = |unfinished: &Path| {
            std::fs::write(unfinished.join("meta"), "whole")?;
            std::fs::create_dir_all(&taken)?;
            Ok(std::fs::write(taken.join("other"), "somebody else's")?)
        };
        let said = write_whole(&taken, ("restoration", ".restoring"), write).expect_err("it is taken").to_string();
        assert!(said.contains("cannot rename"), "{said}");
        assert!(!place.path().join("n1.restoring").exists() && taken.join("other").exists());
    }

    #[test]
    fn of_two_restorations_into_one_directory_one_is_made_and_is_whole() {
        // Goal: whoever comes second neither writes into what the first one writes nor removes it. Method: the second begins while the
        // first has written nothing yet.
        let place = tempfile::tempdir().expect("a directory");
        let (into, of) = (place.path().join("around").join("n1"), ("restoration", ".restoring"));
        let second = || write_whole(&into, of, |_| -> Result<()> { Err(anyhow!("somebody lives there")) });
        let first = write_whole(&into, of, |unfinished| {
            let said = second().expect_err("one is enough").to_string();
            assert!(said.contains("n1.restoring is there: another restoration is under way"), "{said}");
            Ok(std::fs::write(unfinished.join("meta"), "whole")?)
        });
        first.expect("the second one was in nobody's way");
        let mode = std::fs::metadata(&into).expect("it is there").mode();
        assert!(into.join("meta").exists() && mode & 0o777 == 0o700, "{mode:o}");
    }

    #[test]
    fn terms_are_raised_again_and_again_and_newcomers_still_follow() {
        for bump in [0, REVISIONS_BUMPED, 3 * REVISIONS_BUMPED, u64::MAX] {
            let mut term = Term(1);
            for _ in 0..1000 {
                let next = raised(term, bump);
                assert!(next.0 - term.0 >= TERMS_BUMPED_LESS);
                assert!(Term::ZERO.may_follow(next), "a member that was just added follows no such leap: {next}");
                term = next;
            }
        }
    }

    #[test]
    fn a_file_of_a_term_from_which_nobody_could_be_added_is_refused() {
        for (term, bump) in [(1 << 40, 0), ((1 << 40) - TERMS_BUMPED_LESS, 1), (1 << 62, REVISIONS_BUMPED)] {
            let said = raised_for_all(Term(term), bump).expect_err("it is too high").to_string();
            assert!(
                said.contains(&format!("it is of term {term},")) && said.contains("no member could be added"),
                "{said}"
            );
        }
        let last = Term((1 << 40) - TERMS_BUMPED_LESS);
        assert_eq!(raised_for_all(last, 0).expect("all can follow"), Term(1 << 40));
    }

    #[test]
    fn a_beginning_with_twice_the_bump_is_above_the_one_before_in_terms_as_well() {
        for (term, apart) in [(Term(1), TERMS_BUMPED / 64), (Term(TERMS_PLENTY), TERMS_APART_MIN)] {
            for bump in [0, 1, 1000, REVISIONS_BUMPED, 8 * REVISIONS_BUMPED, i64::MAX as u64 / 2] {
                let (first, second) = (raised(term, bump), raised(term, (bump * 2).max(1)));
                assert_eq!(second.0 - first.0, apart, "{bump} from {term}");
            }
        }
    }
}
