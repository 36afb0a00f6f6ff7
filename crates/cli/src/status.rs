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

use crate::client::{lacks_certificate, log_in};
use crate::exit::{Code, Exit};
use crate::http;
use crate::output::{
    Format, common, endpoints_of, format_of, narrow_table, options_of, table, timeout_of, unavailable,
};
use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use hustings_node::reach::in_words;
use hustings_node::remedies;
use hustings_tls::Connector;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

/// Time that a member may take to say how it is when a request has waited in vain already.
const DIAGNOSIS_TIMEOUT: Duration = Duration::from_secs(1);

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
            .value_parser(value_parser!(humantime::Duration))
            .help("Show it again and again until Ctrl-C"),
        Arg::new("wait")
            .long("wait")
            .value_name("DURATION")
            .conflicts_with("watch")
            .value_parser(value_parser!(humantime::Duration))
            .help(
                "Look again until all members are well, follow one leader and hold what was committed when this began",
            ),
    ])
}

/// Runs `hustings status`: once, until all is well (`--wait`), or again and again (`--watch`).
pub(crate) async fn run(matches: &ArgMatches) -> Result<()> {
    if let Some(patience) = matches.get_one::<humantime::Duration>("wait") {
        return wait(matches, **patience).await;
    }
    let Some(every) = matches.get_one::<humantime::Duration>("watch") else {
        return show(matches, &look(matches).await?);
    };
    if every.is_zero() {
        return Err(Exit::with(Code::Usage, "--watch=0s leaves no time between two looks: give one like 1s"));
    }
    loop {
        let cluster = look(matches).await?;
        if format_of(matches) == Format::Table && std::io::stdout().is_terminal() {
            // The cursor to the top, and what was there away.
            print!("\x1b[H\x1b[2J");
        }
        // A bad state now is no reason to stop looking.
        let _ = show(matches, &cluster);
        tokio::select! {
            () = tokio::time::sleep(**every) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
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

/// Everything that could be learnt about a cluster.
struct Cluster {
    members: Vec<Value>,
    /// An answering member's view of who can be reached: the leader's, if it answers.
    told: Option<Value>,
}

/// Asks those named, then those that they know.
async fn look(matches: &ArgMatches) -> Result<Cluster> {
    log_in(matches).await?;
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

impl Cluster {
    fn of(answers: Vec<Asked>, known: &BTreeMap<String, Value>) -> Cluster {
        let furthest = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()?["commit"].as_u64()).max();
        let told = answers
            .iter()
            .filter_map(|(_, answer)| answer.as_ref().ok())
            .max_by_key(|a| (a["role"] == "leader", a["leader"].is_string(), a["term"].as_u64()))
            .cloned();
        let mut members = Vec::new();
        for (url, answer) in answers {
            match answer {
                Ok(mut status) => {
                    status["endpoint"] = url.into();
                    let applied = status["applied"].as_u64();
                    status["lag"] =
                        applied.zip(furthest).map(|(applied, furthest)| furthest.saturating_sub(applied)).into();
                    status["why"] = Value::Null;
                    status["silent_millis"] = 0.into();
                    if let Some(status) = status.as_object_mut() {
                        for field in ["apiVersion", "members", "summary", "voters", "reachable_voters", "quorum"] {
                            status.remove(field);
                        }
                    }
                    members.push(status);
                }
                Err(unasked) => members.push(missing(Some(&url), None, &unasked.why, known)),
            }
        }
        // A member that nobody could ask is still a member.
        for (name, member) in known {
            if !members.iter().any(|row| row["name"] == *name) {
                let why = match member["client_urls"][0].as_str() {
                    Some(_) => "it was not asked".to_owned(),
                    None => "it has not said yet where clients reach it".to_owned(),
                };
                members.push(missing(member["client_urls"][0].as_str(), Some(name), &why, known));
            }
        }
        // The same member, asked by two of its names.
        let mut seen = Vec::new();
        members.retain(|row| {
            let place = (row["id"].clone(), row["name"].clone(), row["cluster_id"].clone());
            let is_new = row["name"].is_null() || !seen.contains(&place);
            seen.push(place);
            is_new
        });
        members.sort_by_key(|row| (row["name"].is_null(), text(row, "name")));
        Cluster { members, told }
    }

    fn leader(&self) -> Option<&Value> {
        self.members.iter().filter(|row| row["role"] == "leader").max_by_key(|row| row["term"].as_u64())
    }

    /// The leader that an answering member follows and hears, though it cannot be asked: its name, its term, and those who follow it.
    fn unasked_leader(&self) -> Option<(String, u64, Vec<String>)> {
        let told = self.told.as_ref().filter(|_| self.leader().is_none())?;
        let name = told["leader"].as_str()?;
        self.members.iter().find(|row| row["name"] == name && row["role"] == "unreachable")?;
        let members = told["members"].as_array().into_iter().flatten();
        let is_heard = members.filter(|member| member["name"] == name).any(|member| member["reach"] == "reachable");
        let followers = self.members.iter().filter(|row| row["leader"] == name).map(|row| text(row, "name"));
        is_heard.then(|| (name.to_owned(), told["term"].as_u64().unwrap_or_default(), followers.collect()))
    }

    fn is_healthy(&self) -> bool {
        let is_even = self.members.iter().all(|row| row["differing"].as_array().is_none_or(Vec::is_empty));
        self.leader().is_some()
            && is_even
            && self.clusters().len() < 2
            && self.members.iter().all(|row| row["healthy"] == true)
    }

    /// The clusters to which those that answered belong, each with its members' names.
    fn clusters(&self) -> BTreeMap<String, Vec<String>> {
        let mut clusters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in self.members.iter().filter(|row| row["cluster_id"].is_string()) {
            clusters.entry(text(row, "cluster_id")).or_default().push(text(row, "name"));
        }
        clusters
    }

    /// The highest commit index that a member told; `None` while none tells one.
    fn committed(&self) -> Option<u64> {
        self.members.iter().filter_map(|row| row["commit"].as_u64()).max()
    }

    /// Whether all members are well, follow one leader and have applied the log up to `goal`.
    ///
    /// # Errors
    /// Names the first member that is not there yet, and what it lacks.
    fn is_settled(&self, goal: Option<u64>) -> Result<(), String> {
        if let Some(warning) = self.ailments().into_iter().next() {
            return Err(warning);
        }
        let Some(leader) = self.leader() else { return Err(self.summary()) };
        for row in &self.members {
            let name = row["name"].as_str().unwrap_or("a member");
            if row["healthy"] != true {
                return Err(format!("{name} is not healthy"));
            } else if row["leader"] != leader["name"] {
                return Err(format!("{name} does not follow {}", leader["name"]));
            } else if row["applied"].as_u64() < goal {
                return Err(format!("{name} has applied {} of {} entries", row["applied"], goal.unwrap_or_default()));
            }
        }
        Ok(())
    }

    /// Warnings about the cluster by name, each with its cause.
    fn warnings(&self) -> Vec<String> {
        let suspended = self.members.iter().filter(|row| row["preference_suspended"] == true);
        let notes = suspended.map(|row| {
            let name = text(row, "name");
            format!("{name}: it is preferred as leader no more for a while, because it lost leadership again and again, asked by nobody")
        });
        self.ailments().into_iter().chain(notes).collect()
    }

    /// Warnings of states that an operator has to mend; whoever waits for a cluster waits until there are none.
    fn ailments(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let clusters = self.clusters();
        if clusters.len() > 1 {
            let told: Vec<String> =
                clusters.iter().map(|(id, names)| format!("{} of {id}", names.join(" and "))).collect();
            let leads = |id: &&String| {
                self.members.iter().any(|row| row["leader"].is_string() && row["cluster_id"].as_str() == Some(id))
            };
            let (may_write, remedy) = match clusters.keys().filter(leads).count() {
                0 | 1 => ("", "if they are to be one, compare their --initial-cluster and --initial-cluster-token"),
                _ => (", and each may take writes", "stop the one that clients should not use"),
            };
            warnings.push(format!("{} clusters answer{may_write}: {}; {remedy}", clusters.len(), told.join(", ")));
        }
        for row in &self.members {
            let name = row["name"].as_str().or(row["endpoint"].as_str()).unwrap_or("a member");
            if row["role"] == "unreachable" {
                warnings.push(format!("{name}: {}", text(row, "why")));
            }
            if row["role"] == "caretaker" {
                warnings.push(format!(
                    "{name}: it leads as a caretaker and accepts nothing: it is a witness, and the others lack entries of which it has the last; start the member that has them all"
                ));
            }
            if let Some(what) = row["contradiction"].as_str() {
                warnings.push(format!("{name}: {what}"));
            }
            if row["disk"] == "stalled" {
                warnings.push(format!("{name}: its disk does not answer"));
            }
        }
        let mut alarms: Vec<(String, String)> = self
            .members
            .iter()
            .flat_map(|row| row["alarms"].as_array().into_iter().flatten())
            .map(|alarm| (text(alarm, "member"), text(alarm, "alarm")))
            .collect();
        alarms.sort();
        alarms.dedup();
        for (name, alarm) in alarms {
            warnings.push(match alarm.as_str() {
                "NOSPACE" => format!("{name}: NOSPACE, writes are refused: {}", remedies::NO_SPACE),
                "CORRUPT" => format!("{name}: CORRUPT, writes are refused: {}", remedies::CORRUPT),
                _ => format!("{name}: the alarm {alarm} stands; `hustings alarm list` tells more"),
            });
        }
        let differing: Vec<&Value> =
            self.members.iter().flat_map(|row| row["differing"].as_array().into_iter().flatten()).collect();
        if let Some(name) = differing.first().and_then(|name| name.as_str()) {
            warnings.push(format!("{name}: its data differs from that of most: {}", remedies::CORRUPT));
        }
        warnings
    }

    fn in_json(&self) -> Value {
        let told = |field: &str| self.told.as_ref().map(|told| told[field].clone());
        let leader = self.leader();
        json!({
            "apiVersion": "v1", "kind": "Status",
            "cluster_id": told("cluster_id"),
            "leader": leader.map(|leader| leader["name"].clone()).or(self.unasked_leader().map(|(name, ..)| name.into())),
            "term": leader.map_or_else(|| told("term"), |leader| Some(leader["term"].clone())),
            "voters": told("voters"),
            "reachable_voters": told("reachable_voters"),
            "quorum": told("quorum"),
            "healthy": self.is_healthy(),
            "summary": self.summary(),
            "warnings": self.warnings(),
            "members": self.members,
        })
    }

    /// One line: how it stands.
    fn summary(&self) -> String {
        let Some(told) = &self.told else { return "no member answers".to_owned() };
        let counted = match (told["reachable_voters"].as_u64(), told["voters"].as_u64()) {
            (Some(reachable), Some(voters)) => format!("{reachable} of {voters} voters reachable"),
            _ => "one member".to_owned(),
        };
        match self.leader() {
            Some(leader) => format!("{} leads in term {}, {counted}", text(leader, "name"), leader["term"]),
            None => match self.unasked_leader() {
                Some((name, term, followers)) => {
                    format!(
                        "{name} leads in term {term}, say {}, and cannot be asked from here; {counted}",
                        followers.join(" and ")
                    )
                }
                None => format!("nobody leads: {counted}"),
            },
        }
    }
}

/// A member that did not answer, with what the others know of it: by its name, or by the URL that was asked.
fn missing(url: Option<&str>, name: Option<&str>, why: &str, known: &BTreeMap<String, Value>) -> Value {
    let is_it = |member: &&Value| {
        let urls = member["client_urls"].as_array().into_iter().flatten();
        url.is_some_and(|url| urls.filter_map(Value::as_str).any(|known| is_same(known, url)))
    };
    let member = name.and_then(|name| known.get(name)).or_else(|| known.values().find(is_it));
    let mut why = why.to_owned();
    if let Some(member) = member.filter(|member| member["reach"] != "reachable") {
        let since = in_words(Duration::from_millis(member["silent_millis"].as_u64().unwrap_or(0)));
        match member["reach"].as_str() {
            Some("refuses" | "refused") => why = format!("refused by its peers: {}", text(member, "why")),
            _ => why = format!("{why}; its peers have not heard it for {since}"),
        }
    }
    json!({
        "name": member.map(|member| member["name"].clone()),
        "id": member.map(|member| member["id"].clone()),
        "votes": member.map(|member| member["votes"].clone()),
        "endpoint": url, "pid": null, "role": "unreachable", "term": null, "leader": null, "commit": null, "applied": null,
        "contradiction": null, "lag": null, "disk": null, "alarms": [], "version": null, "protocol": null, "apply_version": null, "differing": [], "partitions": [],
        "healthy": false, "why": why, "silent_millis": member.map(|member| member["silent_millis"].clone()),
    })
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

/// Columns of a terminal as everybody has it.
const WIDTH: usize = 80;

/// A way to write an endpoint.
type Spelling = fn(&str) -> String;

/// The members, a line each where that fits a terminal: long terms and names cost the version first, then parts of
/// endpoints. What is still too wide is broken within its cells.
fn members_table(members: &[Value]) -> String {
    const COLUMNS: [&str; 8] = ["name", "role", "term", "applied", "lag", "disk", "version", "endpoint"];
    const FEWER: [&str; 7] = ["name", "role", "term", "applied", "lag", "disk", "endpoint"];
    let told = |columns: &[&str], endpoint: Spelling| {
        let cell = |row: &Value, column: &str| match &row[column] {
            Value::String(text) if column == "endpoint" => endpoint(text),
            Value::String(text) => text.clone(),
            Value::Null => "-".into(),
            other => other.to_string(),
        };
        members.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()).collect::<Vec<Vec<String>>>()
    };
    let tries: [(&[&str], Spelling); 4] =
        [(&COLUMNS, address), (&FEWER, address), (&FEWER, short_address), (&FEWER, port)];
    let mut tables = tries.into_iter().map(|(columns, endpoint)| table(columns, told(columns, endpoint)));
    let fitting = tables.find(|table| table.lines().all(|line| line.chars().count() <= WIDTH));
    fitting.unwrap_or_else(|| narrow_table(&FEWER, told(&FEWER, short_address), WIDTH))
}

/// An endpoint without its scheme.
fn address(url: &str) -> String {
    url.split_once("://").map_or(url, |(_, address)| address).to_owned()
}

/// An endpoint by the first part of its host's name and its port: `hustings-0…:2379`. An address of numbers stays whole.
fn short_address(url: &str) -> String {
    let address = address(url);
    match address.rsplit_once(':').and_then(|(host, port)| Some((host.split_once('.')?.0, port))) {
        Some((first, port)) if first.contains(|one: char| !one.is_ascii_digit()) => format!("{first}…:{port}"),
        _ => address,
    }
}

/// An endpoint by its port alone, where its host has a name.
fn port(url: &str) -> String {
    let short = short_address(url);
    short.split_once('…').map_or(short.clone(), |(_, port)| format!("…{port}"))
}

/// The remedy where nobody leads, by what a member told of the others.
fn remedy(told: &Value) -> &'static str {
    let (reachable, voters) = (told["reachable_voters"].as_u64(), told["voters"].as_u64());
    // An older member counts and does not judge.
    let is_majority = || reachable.zip(voters).is_none_or(|(reachable, voters)| reachable > voters / 2);
    match told["quorum"].as_bool().unwrap_or_else(is_majority) {
        false => remedies::NO_QUORUM,
        true => remedies::NO_LEADER_YET,
    }
}

/// Adds to an error of a request that waited in vain who is missing, since when and why, and the remedy that `status` names;
/// other errors stay as they are.
pub(crate) async fn explained(error: anyhow::Error, matches: &ArgMatches) -> anyhow::Error {
    let Some(Exit { code: Code::Unavailable, what }) = error.downcast_ref::<Exit>() else { return error };
    let mut matches = matches;
    while let Some((_, inner)) = matches.subcommand() {
        matches = inner;
    }
    let Ok(options) = options_of(matches) else { return error };
    let answers = ask(&endpoints_of(matches), options.tls.as_ref(), DIAGNOSIS_TIMEOUT).await;
    let told = answers
        .iter()
        .filter_map(|(_, answer)| answer.as_ref().ok())
        .max_by_key(|told| (!told["leader"].is_null(), told["term"].as_u64()));
    let Some(told) = told else {
        // The cause of the request's failure is said already.
        let news = answers.iter().filter_map(|(url, answer)| Some((url, answer.as_ref().err()?)));
        let news = news.filter(|(_, unasked)| !what.contains(&unasked.why));
        let each: Vec<String> = news.map(|(url, unasked)| format!("{url}: {}", unasked.why)).collect();
        if each.is_empty() {
            return error;
        }
        return unavailable(format!("{what}; no member answers ({})", each.join("; ")));
    };
    let (name, leader) = (text(told, "name"), told["leader"].as_str());
    let Some(summary) = told["summary"].as_str() else { return error };
    match leader {
        Some(leader) => unavailable(format!("{what}; {name} says: {leader} leads, {summary}")),
        None => unavailable(format!("{what}; {name} says: nobody leads, {summary}; {}", remedy(told))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, term: u64, endpoint: &str) -> Value {
        json!({
            "name": name, "role": "follower", "term": term, "applied": 1_000_000, "lag": 0, "disk": "ok",
            "version": "0.1.0", "endpoint": endpoint,
        })
    }

    fn shown(members: &[Value]) -> String {
        let table = members_table(members);
        assert!(table.lines().all(|line| line.chars().count() <= WIDTH), "it fits a terminal:\n{table}");
        table
    }

    /// Goal: who waits for a leader that cannot come is told so. Method: 3 of 5 voters, and of the old three one; an older member.
    #[test]
    fn a_majority_of_all_is_no_quorum_of_a_joint_membership() {
        let joint = json!({"voters": 5, "reachable_voters": 3, "quorum": false});
        assert_eq!(remedy(&joint), remedies::NO_QUORUM);
        let mut simple = joint.clone();
        simple["quorum"] = true.into();
        assert_eq!(remedy(&simple), remedies::NO_LEADER_YET);
        for (reachable, remedy_then) in [(3, remedies::NO_LEADER_YET), (2, remedies::NO_QUORUM)] {
            let older = json!({"voters": 5, "reachable_voters": reachable});
            assert_eq!(remedy(&older), remedy_then);
        }
    }

    #[test]
    fn a_table_of_long_terms_and_names_fits_a_terminal() {
        let after_restore = 1 << 36;
        let short = shown(&[member("n1", 7, "http://127.0.0.1:2379")]);
        assert!(short.contains("0.1.0") && short.contains(" 127.0.0.1:2379"), "nothing is left out:\n{short}");
        let long = shown(&[member("n1", after_restore, "http://192.168.100.100:22379")]);
        assert!(long.contains("68719476736") && long.contains(" 192.168.100.100:22379"), "{long}");
        let kubernetes = shown(&[member("hustings-0", after_restore, "http://hustings-0.hustings:2379")]);
        assert!(!kubernetes.contains("0.1.0") && kubernetes.contains("hustings-0…:2379"), "{kubernetes}");
        let mut silent =
            member("hustings-0", after_restore, "https://hustings-0.hustings.production.svc.cluster.local:2379");
        silent["role"] = "unreachable".into();
        let silent = shown(&[silent]);
        assert!(silent.contains("unreachable") && silent.contains(" …:2379"), "{silent}");
        let name = "a-member-with-a-name-that-is-as-long-as-somebody-has-patience";
        shown(&[member(name, after_restore, &format!("http://{name}.example:2379"))]);
    }
}
