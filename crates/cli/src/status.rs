//! `hustings status`: every member by name, as it sees itself, and if it cannot be asked, as the others see it. And why a request
//! waited in vain: who is missing, since when, and what to do.
//!
//! Shape of `-o json`, one object, also where nobody answers:
//!
//! ```text
//!   {"apiVersion": "v1", "cluster_id", "leader": name or null, "term", "voters", "reachable_voters", "quorum": bool,
//!    "healthy": bool, "summary": text, "warnings": [text], "members": [{"name", "id", "votes", "role", "endpoint", "pid", "term", "leader",
//!    "commit", "applied", "lag", "disk", "contradiction", "version", "protocol", "apply_version", "differing", "partitions", "healthy",
//!    "why": text or null, "silent_millis"}]}
//! ```
//!
//! `quorum` says whether the voters that can be reached suffice, in both halves of a joint membership. `role` is leader, follower,
//! learner, witness, caretaker (a witness that leads for a moment), candidate, pre-candidate, synchronizing or unreachable; `lag` is how many entries a member has yet to apply of what the
//! furthest one knows to be committed.

mod advice;
mod cluster;
mod members_table;

use crate::client::{lacks_certificate, log_in};
use crate::credentials;
use crate::exit::{Code, Exit};
use crate::http;
use crate::output::{Format, common, endpoints_of, format_of, options_of, timeout_of, unavailable};
use advice::remedy;
use anyhow::Result;
use clap::{Arg, ArgMatches, Command};
use cluster::Cluster;
use hustings_node::reach::in_words;
use hustings_node::remedies;
use hustings_tls::Connector;
use members_table::members_table;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

pub(crate) use advice::explained;

/// The pause between two looks of `--wait`.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The command line of `status`.
pub(crate) fn command() -> Command {
    common(Command::new("status").about("Show every member by name: role, term, lag, disk, and who is missing")).args([
        Arg::new("watch")
            .long("watch")
            .short('w')
            .value_name("EVERY")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("1s")
            .value_parser(crate::settings::duration)
            .help("Show it again and again until Ctrl-C"),
        Arg::new("wait")
            .long("wait")
            .value_name("DURATION")
            .conflicts_with("watch")
            .value_parser(crate::settings::duration)
            .help(
                "Look again until all members are well, follow one leader and hold what was committed when this began",
            ),
    ])
}

/// Runs `hustings status`: once, until all is well (`--wait`), or again and again (`--watch`).
pub(crate) async fn run(matches: &ArgMatches) -> Result<()> {
    if let Some(patience) = matches.get_one::<Duration>("wait") {
        return wait(matches, *patience).await;
    }
    let Some(every) = matches.get_one::<Duration>("watch") else {
        return show(matches, &look(matches).await?);
    };
    if every.is_zero() {
        return Err(Exit::with(Code::Usage, "--watch=0s leaves no time between two looks: give one like 1s"));
    }
    let mut seen = Ok(look(matches).await?);
    loop {
        if format_of(matches) == Format::Table && std::io::stdout().is_terminal() {
            // The cursor to the top, and what was there away.
            print!("\x1b[H\x1b[2J");
        }
        match &seen {
            // A bad state now is no reason to stop looking.
            Ok(cluster) => drop(show(matches, cluster)),
            Err(error) => crate::logging::say(format_args!("{error:#}")),
        }
        tokio::select! {
            () = tokio::time::sleep(*every) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
        seen = look(matches).await;
        // A token that ended was replaced: who is refused now is not let in any more.
        if seen.as_ref().is_err_and(credentials::is_refusal) {
            return seen.map(drop);
        }
    }
}

/// The output of `-o json`, of any cluster.
pub(crate) async fn told_in_json(matches: &ArgMatches) -> Result<Value> {
    Ok(look(matches).await?.in_json())
}

/// Looks until the cluster is settled, and shows the last look.
async fn wait(matches: &ArgMatches, patience: Duration) -> Result<()> {
    let deadline = tokio::time::Instant::now() + patience;
    let mut cluster = look(matches).await?;
    let mut goal = cluster.committed();
    loop {
        let Err(why) = cluster.is_settled(goal) else { return show(matches, &cluster) };
        if tokio::time::Instant::now() >= deadline {
            let error = show(matches, &cluster).err();
            let code = error.and_then(|error| Some(error.downcast_ref::<Exit>()?.code)).unwrap_or(Code::Degraded);
            return Err(Exit::with(
                code,
                format!("not settled within {}: {why}", humantime::format_duration(patience)),
            ));
        }
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        cluster = look(matches).await?;
        goal = goal.or_else(|| cluster.committed());
    }
}

/// Asks those named, then those that they know; who looks for longer than a token counts gets a new one.
async fn look(matches: &ArgMatches) -> Result<Cluster> {
    log_in(matches).await?;
    match look_once(matches).await {
        Err(error) if credentials::is_refusal(&error) && credentials::token().is_some() => {
            credentials::forget_token();
            log_in(matches).await?;
            look_once(matches).await
        }
        seen => seen,
    }
}

async fn look_once(matches: &ArgMatches) -> Result<Cluster> {
    let tls = options_of(matches)?.tls;
    let (asked, timeout) = (endpoints_of(matches), timeout_of(matches));
    let mut answers = ask(&asked, tls.as_ref(), timeout).await;
    let refused = answers.iter().find_map(|(_, answer)| answer.as_ref().err().filter(|unasked| unasked.is_not_allowed));
    if let Some(Unasked { why, .. }) = refused
        && answers.iter().all(|(_, answer)| answer.is_err())
    {
        return Err(http::not_allowed(why));
    }
    let known: BTreeMap<String, Value> =
        answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()).fold(BTreeMap::new(), |mut known, answer| {
            for member in answer["members"].as_array().into_iter().flatten() {
                known.entry(text(member, "name")).or_insert_with(|| member.clone());
            }
            known
        });
    let has_answered = |name: &str, answers: &[Asked]| {
        answers.iter().any(|(_, answer)| answer.as_ref().is_ok_and(|a| a["name"] == name))
    };
    let strangers = known.iter().filter(|(name, _)| !has_answered(name, &answers));
    let urls = strangers.filter_map(|(_, member)| member["client_urls"][0].as_str().map(str::to_owned));
    let urls: Vec<String> = urls.filter(|url| !asked.iter().any(|asked| is_same(asked, url))).collect();
    answers.extend(ask(&urls, tls.as_ref(), timeout).await);
    if answers.iter().any(|(_, answer)| answer.is_ok()) {
        for (_, answer) in &mut answers {
            if let Some(unasked) = answer.as_mut().err().filter(|unasked| unasked.is_not_allowed) {
                unasked.why.push_str(", which other members let ask: do the clocks of their machines agree? A token has a time by which it ends");
            }
        }
    }
    Ok(Cluster::of(answers, &known))
}

type Asked = (String, Result<Value, Unasked>);

/// A member that could not be asked.
struct Unasked {
    why: String,
    /// Whether it answered that this user may not ask.
    is_not_allowed: bool,
}

impl Unasked {
    fn new(why: impl Into<String>) -> Unasked {
        Unasked { why: why.into(), is_not_allowed: false }
    }
}

async fn ask(endpoints: &[String], tls: Option<&Connector>, timeout: Duration) -> Vec<Asked> {
    let asking = endpoints.iter().map(async |endpoint| {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = if endpoint.contains("://") { endpoint.clone() } else { format!("{scheme}://{endpoint}") };
        let url = url.trim_end_matches('/').to_owned();
        let answer = tokio::time::timeout(timeout, http::get(&url, "/v1/status", tls)).await;
        let answer = match answer {
            Ok(Ok(bytes)) => match serde_json::from_slice::<Value>(&bytes) {
                Ok(status) if status.is_object() => Ok(status),
                _ => Err(Unasked::new("its answer is no status: is this a member of Hustings?")),
            },
            Ok(Err(error)) => Err(Unasked { why: format!("{error:#}"), is_not_allowed: http::is_not_allowed(&error) }),
            Err(_) => {
                Err(Unasked::new(format!("no answer within {}: does its process stand still?", in_words(timeout))))
            }
        };
        (url, answer)
    });
    futures::future::join_all(asking).await
}

/// Whether an endpoint is this URL.
pub(crate) fn is_same(endpoint: &str, url: &str) -> bool {
    let address =
        |text: &str| text.split_once("://").map_or(text, |(_, address)| address).trim_end_matches('/').to_owned();
    address(endpoint) == address(url)
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn show(matches: &ArgMatches, cluster: &Cluster) -> Result<()> {
    let has_leader = cluster.leader().is_some() || cluster.unasked_leader().is_some();
    let (healthy, summary, warnings) = (cluster.is_healthy(), cluster.summary(), cluster.warnings());
    match format_of(matches) {
        Format::Json => println!("{}", cluster.in_json()),
        Format::Table => {
            println!("{}", members_table(&cluster.members));
            println!("{summary}");
            for warning in &warnings {
                println!("{warning}");
            }
        }
    }
    match (has_leader, healthy) {
        (true, true) => Ok(()),
        (true, false) => Err(Exit::with(Code::Degraded, "some member is not as it should be")),
        (false, _)
            if cluster.told.is_none()
                && lacks_certificate(cluster.members.iter().filter_map(|row| row["why"].as_str())) =>
        {
            Err(Exit::with(Code::NotAllowed, "no member tells anything to one without a certificate that it takes"))
        }
        (false, _) if cluster.told.is_none() => {
            Err(unavailable("no member answers: are they started, and is this their client port?"))
        }
        (false, _) => {
            let remedy = cluster.told.as_ref().map_or(remedies::NO_LEADER_YET, remedy);
            Err(unavailable(format!("there is no leader: {remedy}")))
        }
    }
}
