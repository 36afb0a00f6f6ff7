//! `hustings import --from-etcd` and `hustings export --to-etcd`: a live store copied into another one, and followed until its clients
//! move.
//!
//! ```text
//!   1  the destination's revision is raised far above the source's         (Hustings as the destination)
//!   2  leases under their ids, kept alive here while they live there
//!   3  all keys as of one revision R; those of leaders, of locks and of waiters in the order of their revisions
//!   4  what changes after R, in order, until told to cut over
//!   5  both compared, key by key
//! ```
//!
//! Both speak etcd's API, so one way is the other one with the ends exchanged.

#[cfg(test)]
mod fake;
mod follow;
mod leases;
mod side;

use crate::client::{connect, of_connect};
use crate::exit::{Code, Exit};
use crate::http;
use crate::keys::{bytes_argument, bytes_of};
use crate::output::{Format, TlsNames, common, endpoints_of, format_of, options_named, options_of};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use follow::{Batch, Follower, is_candidate};
use hustings_api::Client;
use hustings_api::client::prefix_end;
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::auth_client::AuthClient;
use hustings_api::mvccpb::KeyValue;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use leases::Leases;
use serde_json::json;
use side::{Keys, Refused, Side};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Revisions by which the destination begins above the source's: more than the source changes while it is followed.
const REVISIONS_AHEAD: i64 = 1_000_000_000;
/// Time for which raising the revision is tried, and the pause before it is tried again.
const RAISE_WITHIN: Duration = Duration::from_secs(15);
const RAISE_PAUSE: Duration = Duration::from_millis(200);
/// Comparisons after which a difference is no delay.
const COMPARISONS_MAX: u32 = 5;
/// Keys that are named where both differ.
const NAMED_MAX: usize = 5;
/// Pause between two lines of progress, where nobody sees a bar.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Names of the TLS flags for etcd, where both clusters are asked by one command.
const ETCD: TlsNames = TlsNames {
    cacert: "etcd-cacert",
    cert: "etcd-cert",
    key: "etcd-key",
    skip: "etcd-insecure-skip-verify",
    has_variables: false,
};

/// The command lines of `import` and `export`.
pub(crate) fn commands() -> [Command; 2] {
    let urls = |long: &'static str, help: &'static str| {
        Arg::new("etcd").long(long).required(true).value_name("URL,...").value_delimiter(',').help(help)
    };
    let copying = |command: Command, urls: Arg| {
        let command = common(command)
            .arg(urls)
            .args([
                Arg::new("etcd-user")
                    .long("etcd-user")
                    .env("HUSTINGS_ETCD_USER")
                    .hide_env_values(true)
                    .value_name("NAME[:PASSWORD]")
                    .help("The user that asks etcd"),
                Arg::new("etcd-password")
                    .long("etcd-password")
                    .env("HUSTINGS_ETCD_PASSWORD")
                    .hide_env_values(true)
                    .requires("etcd-user")
                    .help("That user's password, if --etcd-user does not give it"),
                Arg::new("etcd-password-file")
                    .long("etcd-password-file")
                    .env("HUSTINGS_ETCD_PASSWORD_FILE")
                    .value_name("FILE")
                    .requires("etcd-user")
                    .help("The file whose first line is that password, so that no list of processes shows it"),
            ])
            .arg(bytes_argument("prefix").long("prefix").default_value("").help("Only keys that begin with this"))
            .arg(Arg::new("follow").long("follow").action(ArgAction::SetTrue).help(
                "Write what changes at the source, too, until Ctrl-C or SIGTERM says that its clients have stopped",
            ))
            .arg(Arg::new("resume").long("resume").action(ArgAction::SetTrue).help(
                "Go on with a copy that was cut short: what the destination has and the source lacks is deleted",
            ));
        ETCD.arguments().into_iter().fold(command, Command::arg)
    };
    [
        copying(
            Command::new("import")
                .about("Copy a live etcd into this cluster: keys and leases, and what changes meanwhile"),
            urls("from-etcd", "Members of the etcd to copy"),
        ),
        copying(
            Command::new("export")
                .about("Copy this cluster into a live etcd: keys and leases, and what changes meanwhile"),
            urls("to-etcd", "Members of the etcd to write to"),
        ),
    ]
}

/// Runs `hustings import` or `export`.
pub(crate) async fn run(verb: &str, matches: &ArgMatches) -> Result<()> {
    connect_and_copy(verb, matches).await.map_err(Refused::told)
}

async fn connect_and_copy(verb: &str, matches: &ArgMatches) -> Result<()> {
    let urls: Vec<String> = matches.get_many::<String>("etcd").expect("clap requires it").cloned().collect();
    let user = etcd_user(matches)?;
    let names = if verb == "import" { ["source", "destination"] } else { ["destination", "source"] };
    let etcd = Client::connect_with(&urls, options_named(matches, &ETCD)?).await;
    let etcd = Side::new(names[0], etcd.map_err(|error| of_connect(&error))?, "--etcd-user", user).await?;
    // Says who asks, if users count here.
    connect(matches).await?;
    let ours = Client::connect_with(&endpoints_of(matches), options_of(matches)?).await?;
    let ours = Side::new(names[1], ours, "--user", crate::credentials::given(matches)?).await?;
    let prefix = bytes_of(matches, "prefix");
    let from = if prefix.is_empty() { Bytes::from_static(b"\0") } else { prefix.clone() };
    let keys = Keys { from, end: prefix_end(&prefix) };
    let (source, destination) = if verb == "import" { (etcd, ours) } else { (ours, etcd) };
    let copy = Copy { source, destination, keys, leases: Leases::default() };
    copy.run(verb, matches).await
}

/// The user that asks etcd, with the password from wherever it was given.
fn etcd_user(matches: &ArgMatches) -> Result<Option<(String, String)>> {
    let given = |name: &str| matches.get_one::<String>(name).filter(|value| !value.is_empty());
    let Some(user) = given("etcd-user") else { return Ok(None) };
    let is_typed = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
    // What is typed wins over variables.
    let wins = is_typed("etcd-user") && !is_typed("etcd-password") && !is_typed("etcd-password-file");
    if let Some((name, password)) = user.split_once(':').filter(|_| wins) {
        return Ok(Some((name.to_owned(), password.to_owned())));
    }
    if let Some(password) = given("etcd-password") {
        return Ok(Some((user.clone(), password.clone())));
    }
    if let Some(path) = given("etcd-password-file") {
        let read = std::fs::read_to_string(path);
        let read = read.with_context(|| format!("--etcd-password-file: {path} cannot be read"))?;
        let password = read.lines().next().unwrap_or_default();
        if password.is_empty() {
            bail!("--etcd-password-file: the first line of {path} is empty");
        }
        return Ok(Some((user.clone(), password.to_owned())));
    }
    match user.split_once(':') {
        Some((name, password)) => Ok(Some((name.to_owned(), password.to_owned()))),
        None => bail!(
            "--etcd-user {user} has no password: give --etcd-password-file FILE, HUSTINGS_ETCD_PASSWORD, or NAME:PASSWORD"
        ),
    }
}

struct Copy {
    source: Side,
    destination: Side,
    keys: Keys,
    leases: Leases,
}

impl Copy {
    async fn run(mut self, verb: &str, matches: &ArgMatches) -> Result<()> {
        let resumes = matches.get_flag("resume");
        let (one, other) = (self.source.cluster().await?, self.destination.cluster().await?);
        if let Some(((id, places), others)) = one.zip(other)
            // Clusters founded before ids were made of addresses may have one id; a place is one member's.
            && id == others.0
            && others.1.iter().any(|url| places.contains(url))
        {
            let what = format!("source and destination are the same cluster, {id:x}: nothing is copied into itself");
            return Err(Exit::with(Code::Usage, what));
        }
        let held = self.destination.count(&self.keys).await?;
        if held > 0 && !resumes {
            let what = format!(
                "the destination holds {held} keys already: copy into an empty one, or give --resume to go on with a copy that was cut short (what the source lacks is deleted then)"
            );
            return Err(Exit::with(Code::Failed, what));
        }
        for what in self.what_is_left_behind(verb).await? {
            eprintln!("hustings: {what}");
        }
        let revision = self.source.revision(&self.keys).await?;
        let aim = revision.checked_add(REVISIONS_AHEAD).with_context(|| {
            format!("the source says that it is at revision {revision}, and none is left above it: is that an etcd?")
        })?;
        let raised = if verb == "import" { raise(matches, aim).await? } else { 0 };
        let keeping = self.leases.clone().keep(self.source.clone(), self.destination.clone());
        let copying = async {
            self.leases.copy_all(&mut self.source, &mut self.destination).await?;
            let copied = self.copy_keys(revision, resumes).await?;
            self.follow(matches, revision, raised, copied).await
        };
        tokio::select! {
            copied = copying => copied,
            failed = keeping => failed.context("leases cannot be kept alive at the destination"),
        }
    }

    /// The parts of a cluster that a copy cannot hold, in words.
    async fn what_is_left_behind(&mut self, verb: &str) -> Result<Vec<String>> {
        let mut left = vec![
            "versions, creation and modification revisions begin anew at the destination; history before the copy stays behind".to_owned(),
        ];
        let auth = self.source.ask(async |side| {
            AuthClient::new(side.client.channel()).auth_status(side.asked(pb::AuthStatusRequest {})).await
        });
        // A client that may not ask whether users count is a user of those.
        if auth.await.is_ok_and(|status| status.enabled) {
            left.push("users and roles stay behind, because passwords cannot be read: make them at the destination before its clients come".to_owned());
        }
        if verb == "export" {
            left.push("etcd cannot raise its revision while it runs: fencing tokens and lock revisions fall there, unless it was restored with `etcdutl snapshot restore --bump-revision`".to_owned());
        }
        Ok(left)
    }

    /// All keys as of this revision; says how many.
    async fn copy_keys(&mut self, revision: i64, resumes: bool) -> Result<u64> {
        let bar = bar(self.source.count(&self.keys).await?.unsigned_abs());
        let (mut copied, mut batch) = (0, Batch::default());
        let mut candidates: Vec<KeyValue> = Vec::new();
        let mut next = Some(self.keys.from.clone());
        while let Some(from) = next {
            let keys = Keys { from: from.clone(), end: self.keys.end.clone() };
            let (page, after) = self.source.page(&keys, revision).await?;
            if resumes {
                let keys = Keys { from, end: after.clone().unwrap_or(self.keys.end.clone()) };
                self.delete_others(&keys, &page).await?;
            }
            for kv in page {
                if is_candidate(&kv) {
                    candidates.push(kv);
                    continue;
                }
                if !batch.has_room(&kv) {
                    batch.write(&mut self.source, &mut self.destination, &self.leases).await?;
                }
                let lease = self.lease_of(&kv).await?;
                batch.put(&kv, lease);
                copied += 1;
            }
            bar.set_position(copied);
            next = after;
        }
        batch.write(&mut self.source, &mut self.destination, &self.leases).await?;
        // The first one leads or holds the lock: each in a revision of its own, in their order.
        candidates.sort_by_key(|kv| kv.create_revision);
        for kv in candidates {
            let lease = self.lease_of(&kv).await?;
            batch.put(&kv, lease);
            batch.write(&mut self.source, &mut self.destination, &self.leases).await?;
            copied += 1;
            bar.set_position(copied);
        }
        bar.finish_and_clear();
        Ok(copied)
    }

    async fn lease_of(&mut self, kv: &KeyValue) -> Result<i64> {
        let has_one = kv.lease != 0 && self.leases.ensure(kv.lease, &mut self.source, &mut self.destination).await?;
        Ok(if has_one { kv.lease } else { 0 })
    }

    /// Deletes what stands in this part of the destination and not in the source; candidates too, whose order must be made anew.
    async fn delete_others(&mut self, keys: &Keys, page: &[KeyValue]) -> Result<()> {
        let mut next = Some(keys.from.clone());
        let mut batch = Batch::default();
        while let Some(from) = next {
            let (found, after) = self.destination.page(&Keys { from, end: keys.end.clone() }, 0).await?;
            for kv in found {
                let there = page.binary_search_by(|other| other.key.cmp(&kv.key)).ok().map(|place| &page[place]);
                if there.is_some_and(|there| !is_candidate(there)) {
                    continue;
                }
                if !batch.has_room(&kv) {
                    batch.write(&mut self.source, &mut self.destination, &self.leases).await?;
                }
                batch.delete(&kv.key);
            }
            next = after;
        }
        batch.write(&mut self.source, &mut self.destination, &self.leases).await
    }

    /// Writes what changed since the copy, until told to cut over; then compares. Told twice, it ends.
    async fn follow(self, matches: &ArgMatches, revision: i64, raised: i64, copied: u64) -> Result<()> {
        if !matches.get_flag("follow") {
            return self.catch_up(matches, revision, raised, copied, None).await;
        }
        let words = count_words()?;
        let mut second = words.clone();
        tokio::select! {
            done = self.catch_up(matches, revision, raised, copied, Some(words)) => done,
            // The sender lives as long as this process.
            _ = second.wait_for(|words| *words > 1) => {
                let what = "told to end a second time: not all that the source has is at the destination, or nobody has compared them; go on with --resume";
                Err(Exit::with(Code::Failed, what))
            }
        }
    }

    async fn catch_up(
        self,
        matches: &ArgMatches,
        revision: i64,
        raised: i64,
        copied: u64,
        words: Option<watch::Receiver<u32>>,
    ) -> Result<()> {
        let Copy { mut source, mut destination, keys, leases } = self;
        let (aim, mut target) = watch::channel(None);
        let telling = ProgressLine::new(words.is_some());
        let (mut asker, asked) = (source.clone(), keys.clone());
        let cutting = async {
            if let Some(mut words) = words {
                let copied = HumanCount(copied);
                eprintln!(
                    "hustings: {copied} keys are copied; following. Stop the clients of the source, then Ctrl-C or SIGTERM"
                );
                // The sender lives as long as this process.
                let _ = words.wait_for(|words| *words > 0).await;
                eprintln!(
                    "hustings: cutting over: what has changed until now is copied, then both are compared; told once more, this ends at once"
                );
            }
            let end = asker.revision(&asked).await?;
            aim.send_replace(Some(end));
            Ok::<_, anyhow::Error>(end)
        };
        let (sides, leases_too, keys_too) = ((source.clone(), destination.clone()), leases.clone(), keys.clone());
        let mut follower = Follower::new(sides, leases_too, keys_too, revision);
        let told = |revision, changes| telling.tell(revision, changes);
        let ((), mut end) = tokio::try_join!(follower.run(&mut target, &told), cutting)?;
        let (mut differing, mut has_all_leases) = (Vec::new(), false);
        for comparison in 0..COMPARISONS_MAX {
            if comparison > 0 {
                // Some versions of etcd say that they have sent everything before they have.
                end = source.revision(&keys).await?;
                follower.run_again(end, &told).await?;
            }
            // A lease that has no keys is in no change, and none of these differs by it.
            leases.look(&mut source, &mut destination).await?;
            leases.renew_all(&mut destination).await?;
            follower.repair().await?;
            differing = differences(&mut source, &mut destination, &keys, end).await?;
            // Their owners have all of their time to come.
            has_all_leases = leases.renew_all(&mut destination).await?;
            if differing.is_empty() && has_all_leases {
                break;
            }
        }
        telling.end();
        if !differing.is_empty() {
            let names: Vec<String> =
                differing.iter().take(NAMED_MAX).map(|key| format!("{:?}", String::from_utf8_lossy(key))).collect();
            let what = format!(
                "both differ at {} keys, among them {}: does anybody else write to the destination, or is the source still written to? Stop that, and begin again with --resume",
                differing.len(),
                names.join(", ")
            );
            return Err(Exit::with(Code::Failed, what));
        }
        if !has_all_leases {
            bail!(
                "leases end at the destination before they are renewed: is it out of reach now and then? Begin again with --resume"
            );
        }
        let (there, changes, leases) = (destination.revision(&keys).await?, follower.changes, leases.len());
        if raised > 0 && there <= end {
            bail!("the destination is at revision {there}, below the source's {end}: its fencing tokens would fall");
        }
        match format_of(matches) {
            Format::Json => println!(
                "{}",
                json!({
                    "apiVersion": "v1", "kind": "Copy", "keys": copied, "changes": changes, "leases": leases,
                    "source_revision": end, "destination_revision": there,
                })
            ),
            Format::Table => println!(
                "copied {} keys, {leases} leases and {} changes up to revision {end}; the destination holds the same, at revision {there}. Leases there live on for their time to live: let their owners come now",
                HumanCount(copied),
                HumanCount(changes)
            ),
        }
        Ok(())
    }
}

/// Counts from now on how often Ctrl-C or SIGTERM has come.
fn count_words() -> Result<watch::Receiver<u32>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (words, counted) = watch::channel(0);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            words.send_modify(|words| *words += 1);
        }
    });
    Ok(counted)
}

/// Raises the revision of this cluster; answers where it is now. A cluster that has just begun learns within seconds that all its members
/// can.
async fn raise(matches: &ArgMatches, revision: i64) -> Result<i64> {
    let tls = options_of(matches)?.tls;
    let began = Instant::now();
    loop {
        let mut why = anyhow::anyhow!("no endpoint is given");
        for endpoint in endpoints_of(matches) {
            let scheme = if tls.is_some() { "https" } else { "http" };
            let url = if endpoint.contains("://") { endpoint } else { format!("{scheme}://{endpoint}") };
            let body = json!({ "at_least": revision });
            match http::post(url.trim_end_matches('/'), "/v1/revision", &body, tls.as_ref()).await {
                Ok(answer) => {
                    let raised = answer["revision"].as_str().and_then(|text| text.parse().ok());
                    return raised.context("the destination does not say its revision: is it a Hustings?");
                }
                Err(error) => why = error,
            }
        }
        if began.elapsed() > RAISE_WITHIN {
            return Err(why.context(
                "the destination's revision cannot be raised above the source's, so fencing tokens would fall",
            ));
        }
        tokio::time::sleep(RAISE_PAUSE).await;
    }
}

/// Keys that differ between the source at a revision and the destination now.
async fn differences(source: &mut Side, destination: &mut Side, keys: &Keys, revision: i64) -> Result<Vec<Bytes>> {
    let mut differing = Vec::new();
    let (mut ours, mut theirs) = (Pages::new(source, keys, revision), Pages::new(destination, keys, 0));
    let (mut one, mut other) = (ours.next().await?, theirs.next().await?);
    loop {
        match (&one, &other) {
            (None, None) => return Ok(differing),
            (Some(kv), Some(copy)) if kv.key == copy.key => {
                if kv.value != copy.value || kv.lease != copy.lease {
                    differing.push(kv.key.clone());
                }
                (one, other) = (ours.next().await?, theirs.next().await?);
            }
            (Some(kv), copy) if copy.as_ref().is_none_or(|copy| kv.key < copy.key) => {
                differing.push(kv.key.clone());
                one = ours.next().await?;
            }
            (_, copy) => {
                differing.extend(copy.as_ref().map(|copy| copy.key.clone()));
                other = theirs.next().await?;
            }
        }
    }
}

/// The keys of a range, one after the other.
struct Pages<'s> {
    side: &'s mut Side,
    revision: i64,
    end: Bytes,
    next: Option<Bytes>,
    page: std::vec::IntoIter<KeyValue>,
}

impl<'s> Pages<'s> {
    fn new(side: &'s mut Side, keys: &Keys, revision: i64) -> Pages<'s> {
        Pages { side, revision, end: keys.end.clone(), next: Some(keys.from.clone()), page: Vec::new().into_iter() }
    }

    async fn next(&mut self) -> Result<Option<KeyValue>> {
        loop {
            if let Some(kv) = self.page.next() {
                return Ok(Some(kv));
            }
            let Some(from) = self.next.take() else { return Ok(None) };
            let (page, next) = self.side.page(&Keys { from, end: self.end.clone() }, self.revision).await?;
            (self.page, self.next) = (page.into_iter(), next);
        }
    }
}

fn bar(keys: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {human_pos} of {human_len} keys, {per_sec}, {eta} left");
    ProgressBar::new(keys).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Shows the progress while it follows: on a terminal a line that changes, else a line now and then.
struct ProgressLine {
    bar: ProgressBar,
    told_at: std::cell::Cell<Instant>,
    is_wanted: bool,
}

impl ProgressLine {
    fn new(is_wanted: bool) -> ProgressLine {
        let bar = if is_wanted { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        ProgressLine { bar, told_at: std::cell::Cell::new(Instant::now()), is_wanted }
    }

    fn tell(&self, revision: i64, changes: u64) {
        let line =
            format!("everything up to revision {revision} is there, {} changes since the copy", HumanCount(changes));
        if self.is_wanted && self.bar.is_hidden() && self.told_at.get().elapsed() > TELL_EVERY {
            self.told_at.set(Instant::now());
            eprintln!("hustings: {line}");
        }
        self.bar.set_message(line);
        self.bar.tick();
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}
