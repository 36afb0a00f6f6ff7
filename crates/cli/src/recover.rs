//! `hustings recover`: what is left of a cluster that lost its quorum, and a new cluster made of it.
//!
//! ```text
//!    hustings recover DIR...                                  shows what is left; changes nothing
//!    hustings recover DIR... --lost n2,n3 --into NEW          makes NEW, a cluster of the member whose history was chosen
//!    hustings serve --name n1 --data-dir NEW                  serves
//! ```
//!
//! The directories are read with their locks held and never changed. The new cluster has an id of its own, so that no member of the
//! old one can join it; its term and its revision begin far above the old ones', and its history is compacted ([`crate::snapshots`]
//! says why): no new fencing token is below an old one, and a watcher that comes back is told so instead of waiting.
//!
//! It refuses while a quorum may live: a process holds one of the directories, or the members without a directory, and those of which
//! it is an old copy, are a quorum and nobody said that they are gone (`--lost`), or the directories themselves are a quorum that has
//! only to be started (`--even-with-quorum`), or a member answers at its address and serves (`--even-if-alive`).
//!
//! Read next: [`gather`] (which history), [`living`] (who still serves), [`renew`] (the new directory), [`force`] (in
//! place), `docs/the-worst-day.md`.

mod force;
mod gather;
mod living;
mod renew;
mod report;

use crate::credentials;
use crate::exit::{Code, Exit};
use crate::output::{Format, OURS, format_of, output_argument};
use crate::settings::check_member_name;
use crate::snapshots::bump_argument;
use anyhow::{Context, Result, anyhow};
use clap::{Arg, ArgMatches, Command, value_parser};
use gather::{Gathered, keeps_its_word};
use hustings_core::{Membership, NodeId, StateMachine};
use hustings_kv::KvStore;
use hustings_wal::{Survey, WalError};
use living::Asked;
use renew::Made;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) use force::force_new_cluster;

/// The command line of `recover`.
pub(crate) fn command() -> Command {
    let path = || value_parser!(PathBuf);
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new("recover")
        .about("Make a new cluster of the data directories that are left of one that lost its quorum")
        .arg(
            Arg::new("directory")
                .value_name("DATA-DIR")
                .num_args(1..)
                .value_parser(path())
                .help("Data directory that is left; it is only read"),
        )
        .arg(
            text("data-dir", "DATA-DIR", "The same, by flag; may be given several times")
                .value_parser(path())
                .action(clap::ArgAction::Append),
        )
        .arg(
            text("into", "NEW-DIR", "Make the new cluster's data directory here; without it, only show")
                .value_parser(path()),
        )
        .arg(
            text(
                "lost",
                "NAME,...",
                "These members are gone for good: their processes are stopped, their disks will never be started again",
            )
            .value_delimiter(','),
        )
        .arg(Arg::new("even-with-quorum").long("even-with-quorum").action(clap::ArgAction::SetTrue).help(
            "Make a new cluster although these directories are a quorum of the old one, which could be started again",
        ))
        .arg(
            Arg::new("even-if-alive")
                .long("even-if-alive")
                .action(clap::ArgAction::SetTrue)
                .help("Make a new cluster although a member of the old one answers at its address and serves, or may"),
        )
        .arg(text("name", "NAME", "Name of the member that goes on [default: the one whose directory was chosen]"))
        .arg(text(
            "initial-cluster",
            "NAME=URL,...",
            "Members of the new cluster; run this with the same directories for each [default: that member alone]",
        ))
        .arg(
            text("initial-cluster-token", "TOKEN", "Tells new clusters made of the same directories apart")
                .default_value("hustings-cluster"),
        )
        .arg(bump_argument())
        .args(OURS.arguments())
        .args(credentials::arguments())
        .arg(output_argument())
}

/// One of the directories that were given.
pub(crate) struct Remains {
    path: PathBuf,
    found: Result<Survey>,
}

/// The time that each phase took, in their order.
struct Phases {
    begun: Instant,
    took: Vec<(&'static str, Duration)>,
}

impl Phases {
    fn begin() -> Phases {
        Phases { begun: Instant::now(), took: Vec::new() }
    }

    /// The phase of this name ends here, and the next one begins.
    fn end(&mut self, name: &'static str) {
        self.took.push((name, self.begun.elapsed()));
        self.begun = Instant::now();
    }
}

/// A new cluster, as it is reported.
struct Founded {
    made: Made,
    asked: Vec<Asked>,
    took: Vec<(&'static str, Duration)>,
}

/// Runs `hustings recover` on data directories.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let given = |name: &str| matches.get_many::<PathBuf>(name).into_iter().flatten().cloned().collect::<Vec<_>>();
    let mut paths = given("directory");
    paths.extend(given("data-dir"));
    if paths.is_empty() {
        let what = "give the data directories that are left: hustings recover DATA-DIR...";
        return Err(Exit::with(Code::Usage, what));
    }
    if let Some(name) = matches.get_one::<String>("name") {
        check_member_name(name).map_err(|why| Exit::with(Code::Usage, format!("--name {name:?}: {why}")))?;
    }
    // One that is given twice, or by a link to it, is one.
    let mut known = BTreeSet::new();
    paths.retain(|path| known.insert(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())));
    if let Some(into) = matches.get_one::<PathBuf>("into")
        && let Some(within) = known.iter().find(|known| absolute(into).starts_with(known))
    {
        let what = format!("--into {} is inside {}, which is not changed", into.display(), within.display());
        return Err(Exit::with(Code::Usage, what));
    }
    let mut phases = Phases::begin();
    let remains: Vec<Remains> = paths.into_iter().map(|path| Remains { found: read(&path), path }).collect();
    phases.end("read");
    let is_json = format_of(matches) == Format::Json;
    let checked = check(&remains);
    let (surveys, gathered) = match checked.and_then(|()| {
        let surveys = remains.iter().map(|remains| remains.found.as_ref().expect("they were checked"));
        let surveys: Vec<&Survey> = surveys.collect();
        gather::gather(&surveys).map(|gathered| (surveys, gathered))
    }) {
        Ok(found) => found,
        Err(error) => {
            report::show(&remains, None, None, is_json);
            return Err(error);
        }
    };
    phases.end("choose");
    let lost = lost(matches, &gathered, &surveys);
    let refused = lost.and_then(|lost| refuse_if_alive(&gathered, &surveys, &lost));
    let refused = refused.and_then(|()| match matches.get_flag("even-with-quorum") {
        true => Ok(()),
        false => refuse_if_quorum(&gathered, &surveys),
    });
    let into = matches.get_one::<PathBuf>("into");
    let asked = match (into, &refused) {
        (Some(_), Ok(())) => living::ask(matches, &gathered, surveys[gathered.best].peek.identity.cluster_id)?,
        _ => Vec::new(),
    };
    phases.end("ask");
    let refused = refused.and_then(|()| match matches.get_flag("even-if-alive") {
        true => Ok(()),
        false => living::refuse(&asked),
    });
    let founded = match (into, &refused) {
        (Some(into), Ok(())) => Some(renew::renew(matches, &surveys, &gathered, into).map(|made| {
            phases.end("write");
            Founded { made, asked, took: phases.took }
        })),
        _ => None,
    };
    let founded = founded.transpose();
    report::show(&remains, Some(&gathered), founded.as_ref().ok().and_then(Option::as_ref), is_json);
    founded?;
    if into.is_some() { refused } else { Ok(()) }
}

/// Makes a path absolute that need not exist: its nearest ancestor that does is followed.
fn absolute(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let there = whole.ancestors().find_map(|ancestor| {
        let rest = whole.strip_prefix(ancestor).ok()?;
        Some(std::fs::canonicalize(ancestor).ok()?.join(rest))
    });
    there.unwrap_or(whole)
}

/// Reads one directory; an error says what to do on such a day.
fn read(path: &Path) -> Result<Survey> {
    if path.is_file() {
        let what = "it is a file: give data directories of members; a snapshot goes to `hustings snapshot restore`";
        return Err(anyhow!("{} cannot be used: {what}", path.display()));
    }
    let members = crate::serve::members_in(path);
    if !members.is_empty() && !crate::serve::is_begun(path) {
        let what = format!("it holds data directories of members ({}): give those", members.join(", "));
        return Err(anyhow!("{} cannot be used: {what}", path.display()));
    }
    match Survey::of(path, KvStore::VERSION_MAX) {
        Ok(Some(survey)) => Ok(survey),
        Ok(None) => Err(anyhow!("{} holds no member: it is absent or empty; leave it out", path.display())),
        Err(error @ WalError::InUse { .. }) => {
            Err(error).context("a member lives there: stop it first; if it still serves, nothing need be recovered")
        }
        // Without what these errors advise on another day.
        Err(WalError::Damaged { file, offset, what }) => damaged(path, &format!("{file}, byte {offset}: {what}")),
        Err(WalError::Missing { file, what }) => damaged(path, &format!("{file} is missing: {what}")),
        Err(error) => Err(error).with_context(|| format!("{} cannot be used", path.display())),
    }
}

fn damaged(path: &Path, what: &str) -> Result<Survey> {
    Err(anyhow!(
        "{} is damaged: leave it out and recover from another, or put back a copy of it that is whole; where none is left, `hustings \
         snapshot restore` makes a cluster of a snapshot: {what}",
        path.display()
    ))
}

/// Refuses what cannot be read, and directories that do not belong together.
fn check(remains: &[Remains]) -> Result<()> {
    let bad: Vec<String> =
        remains.iter().filter_map(|remains| remains.found.as_ref().err()).map(|error| format!("{error:#}")).collect();
    if !bad.is_empty() {
        return Err(Exit::with(Code::Failed, bad.join("\n")));
    }
    let surveys: Vec<&Survey> = remains.iter().filter_map(|remains| remains.found.as_ref().ok()).collect();
    let first = surveys.first().expect("at least one was given");
    for (position, survey) in surveys.iter().enumerate() {
        let (one, other) = (&first.peek.identity, &survey.peek.identity);
        let differs = |what: &str, one: &str, other: &str| {
            anyhow!(
                "{} belongs to {what} {one} and {} to {what} {other}: give directories of one cluster",
                first.directory.display(),
                survey.directory.display()
            )
        };
        if one.cluster_id != other.cluster_id {
            return Err(differs("cluster", &one.cluster_id.to_string(), &other.cluster_id.to_string()));
        }
        if one.protocol != other.protocol {
            return Err(differs("protocol", &one.protocol, &other.protocol));
        }
        if let Some(twin) = surveys[..position].iter().find(|twin| twin.peek.identity.node == other.node) {
            return Err(anyhow!(
                "{} and {} are both of member {}: give the one that was used last",
                twin.directory.display(),
                survey.directory.display(),
                name_of(survey)
            ));
        }
    }
    Ok(())
}

/// Name of a directory's member, as far as the directory knows it.
fn name_of(survey: &Survey) -> String {
    let id = survey.peek.identity.node;
    let snapshot = survey.durable.snapshot.as_ref().and_then(|reference| known_name(&reference.membership, id));
    snapshot.or_else(|| known_name(&survey.peek.founding, id)).unwrap_or_else(|| unnamed(id))
}

/// A member whose name is not known: as no name is written, for `n4` may be another's.
pub(crate) fn unnamed(NodeId(id): NodeId) -> String {
    format!("(id {id:x})")
}

/// Name of a member where it has one.
pub(crate) fn known_name(membership: &Membership, id: NodeId) -> Option<String> {
    membership.members.get(&id).map(|member| member.name.clone()).filter(|name| !name.is_empty())
}

/// The members that `--lost` names, by id.
fn lost(matches: &ArgMatches, gathered: &Gathered, surveys: &[&Survey]) -> Result<BTreeSet<NodeId>> {
    let absent = gathered.absent(surveys);
    let names = || absent.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(",");
    let given = matches
        .get_many::<String>("lost")
        .into_iter()
        .flatten()
        .map(|name| name.trim())
        .filter(|name| !name.is_empty());
    given
        .map(|given| match absent.iter().find(|(_, name)| name == given) {
            Some((id, _)) => Ok(*id),
            None if absent.is_empty() => Err(anyhow!("--lost {given}: no voter is absent here")),
            None => Err(anyhow!("--lost {given}: no such voter is absent here; those are: {}", names())),
        })
        .collect()
}

/// Refuses while members that are not here may be serving.
fn refuse_if_alive(gathered: &Gathered, surveys: &[&Survey], lost: &BTreeSet<NodeId>) -> Result<()> {
    if !gathered.may_be_served_elsewhere(surveys, lost) {
        return Ok(());
    }
    let absent = gathered.absent(surveys);
    let all: Vec<&str> = absent.iter().map(|(_, name)| name.as_str()).collect();
    let living: Vec<&str> = absent.iter().filter(|(id, _)| !lost.contains(id)).map(|(_, name)| name.as_str()).collect();
    let what = format!(
        "{} may be serving at this moment: without the directories that were given they are enough to. A second cluster beside \
         them would split the data. If they live, add members to them instead; if their disks are gone, or their processes are \
         stopped for good, say so: --lost {}",
        living.join(" and "),
        all.join(",")
    );
    Err(Exit::with(Code::Failed, what))
}

/// Refuses while nothing need be recovered: these members have only to be started.
fn refuse_if_quorum(gathered: &Gathered, surveys: &[&Survey]) -> Result<()> {
    if !gathered.is_quorum_here(surveys) {
        return Ok(());
    }
    let what = format!(
        "a quorum is here, so nothing need be recovered: start {} on these directories, and the cluster goes on with all that it \
         acknowledged. To make a new cluster beside it all the same, say --even-with-quorum, and start none of them again",
        startable(surveys)
    );
    Err(Exit::with(Code::Failed, what))
}

/// Names of the members that can be started on these directories: the others refuse one that has an old copy.
fn startable(surveys: &[&Survey]) -> String {
    let keeping = surveys.iter().filter(|survey| keeps_its_word(survey, surveys));
    keeping.map(|survey| name_of(survey)).collect::<Vec<_>>().join(" and ")
}
