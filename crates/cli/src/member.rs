//! The verbs about members: `member list`, `add`, `remove`, `promote`, `update`, and `transfer`.

use crate::client::{answered, connect, connect_to, text, within};
use crate::credentials::asked;
use crate::exit::{Code, Exit};
use crate::output::{Format, endpoints_of, format_of, not_found, table, timeout_of, unavailable};
use anyhow::{Result, bail};
use clap::ArgMatches;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use hustings_api::Client;
use hustings_api::client::{JOIN_SECRET, JOIN_TOKEN, WITNESS};
use hustings_api::etcdserverpb::{
    self as pb, MemberAddRequest, MemberListRequest, MemberPromoteRequest, MemberRemoveRequest, MemberUpdateRequest,
    MoveLeaderRequest, StatusRequest,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tonic::metadata::{MetadataMap, MetadataValue};

async fn members(matches: &ArgMatches, client: &Client) -> Result<Vec<pb::Member>> {
    Ok(within(matches, client.cluster().member_list(asked(MemberListRequest { linearizable: true }))).await?.members)
}

/// A member by id in hex or by name.
async fn find_member(matches: &ArgMatches, client: &Client, wanted: &str) -> Result<u64> {
    let members = members(matches, client).await?;
    let number = u64::from_str_radix(wanted.trim_start_matches("0x"), 16).ok();
    let found = members
        .iter()
        .find(|member| member.name == wanted)
        .or_else(|| members.iter().find(|member| Some(member.id) == number));
    found.map(|member| member.id).ok_or_else(|| {
        let (started, others): (Vec<&pb::Member>, Vec<&pb::Member>) =
            members.iter().partition(|member| !member.name.is_empty());
        let known: Vec<String> = started.iter().map(|member| format!("{} ({:x})", member.name, member.id)).collect();
        let mut what = format!("there is no member {wanted:?}; members are: {}", known.join(", "));
        let nameless: Vec<String> =
            others.iter().map(|member| format!("{:x} ({})", member.id, member.peer_urls.join(","))).collect();
        if !nameless.is_empty() {
            what.push_str(&format!(
                "; a member that was added and never started has no name yet, give its id: {}",
                nameless.join(", ")
            ));
        }
        not_found(what)
    })
}

/// Ids of the members that vote and hold no data, as an answer's metadata name them.
fn witnesses_of(metadata: &MetadataMap) -> BTreeSet<u64> {
    let ids = metadata.get(WITNESS).and_then(|ids| ids.to_str().ok()).unwrap_or_default();
    ids.split(',').filter_map(|id| u64::from_str_radix(id, 16).ok()).collect()
}

fn members_json(members: &[pb::Member], witnesses: &BTreeSet<u64>) -> Value {
    let member = |member: &pb::Member| {
        json!({
            "id": format!("{:x}", member.id),
            "name": member.name,
            "peer_urls": member.peer_urls,
            "client_urls": member.client_urls,
            "is_learner": member.is_learner,
            "is_witness": witnesses.contains(&member.id),
        })
    };
    let members: Vec<Value> = members.iter().map(member).collect();
    json!({ "apiVersion": "v1", "kind": "MemberList", "members": members })
}

fn show_members(members: &[pb::Member], witnesses: &BTreeSet<u64>, format: Format) {
    if format == Format::Json {
        return println!("{}", members_json(members, witnesses));
    }
    let kind = |member: &pb::Member| match (member.is_learner, witnesses.contains(&member.id)) {
        (true, true) => "learner, then witness",
        (false, true) => "witness",
        (true, false) => "learner",
        (false, false) => "voter",
    };
    let row = |member: &pb::Member| {
        vec![
            format!("{:x}", member.id),
            if member.name.is_empty() { "(not started)".into() } else { member.name.clone() },
            kind(member).into(),
            member.peer_urls.join(","),
            member.client_urls.join(","),
        ]
    };
    println!("{}", table(&["id", "name", "kind", "peer urls", "client urls"], members.iter().map(row).collect()));
}

/// Runs `hustings member`: lists, adds, promotes, updates or removes members.
pub(crate) async fn run(matches: &ArgMatches) -> Result<()> {
    let (verb, matches) = matches.subcommand().expect("clap requires one");
    let client = connect(matches).await?;
    let id = async || find_member(matches, &client, text(matches, "id")).await;
    let (members, witnesses) = match verb {
        "list" => {
            let request = asked(MemberListRequest { linearizable: true });
            listed(answered(matches, client.cluster().member_list(request)).await?, |answer| answer.members)
        }
        "add" => return add(matches, &client).await,
        "remove" => {
            let request = asked(MemberRemoveRequest { id: id().await? });
            listed(answered(matches, client.cluster().member_remove(request)).await?, |answer| answer.members)
        }
        "promote" => {
            let request = asked(MemberPromoteRequest { id: id().await? });
            listed(answered(matches, client.cluster().member_promote(request)).await?, |answer| answer.members)
        }
        _ => {
            let request = asked(MemberUpdateRequest { id: id().await?, peer_urls: urls_of(matches) });
            listed(answered(matches, client.cluster().member_update(request)).await?, |answer| answer.members)
        }
    };
    show_members(&members, &witnesses, format_of(matches));
    Ok(())
}

/// The members of an answer, and which of them are witnesses.
fn listed<T>(answer: tonic::Response<T>, members: impl Fn(T) -> Vec<pb::Member>) -> (Vec<pb::Member>, BTreeSet<u64>) {
    let witnesses = witnesses_of(answer.metadata());
    (members(answer.into_inner()), witnesses)
}

fn urls_of(matches: &ArgMatches) -> Vec<String> {
    matches.get_many::<String>("peer-urls").map(|urls| urls.cloned().collect()).unwrap_or_default()
}

async fn add(matches: &ArgMatches, client: &Client) -> Result<()> {
    let name = text(matches, "name");
    if let Some(member) = members(matches, client).await?.iter().find(|member| member.name == name) {
        let what = format!(
            "there is a member {name} already ({:x}): give the new one another name; if {name} is gone for good, remove it first, with \
             `hustings member remove {name}`",
            member.id
        );
        return Err(Exit::with(Code::Failed, what));
    }
    let token = format!("{:016x}", rand::random::<u64>().max(1));
    let mut request = asked(MemberAddRequest { peer_urls: urls_of(matches), is_learner: matches.get_flag("learner") });
    request.metadata_mut().insert(JOIN_TOKEN, token.parse().expect("digits are text"));
    let is_witness = matches.get_flag("witness");
    if is_witness {
        request.metadata_mut().insert(WITNESS, MetadataValue::from_static("true"));
    }
    let answer = answered(matches, client.cluster().member_add(request)).await?;
    let witnesses = witnesses_of(answer.metadata());
    let needs_secret = answer.metadata().contains_key(JOIN_SECRET);
    // Members tell their URLs a moment after they were founded; the one that was asked just now is known.
    let speaks_tls = client.endpoint().starts_with("https://");
    let answer = answer.into_inner();
    let added = answer.member.unwrap_or_default();
    if is_witness && !witnesses.contains(&added.id) {
        bail!(
            "{} knows of no witnesses, and has added {:x} as a member that holds data: remove it again, with `hustings member remove {:x}`",
            client.endpoint(),
            added.id,
            added.id
        );
    }
    let others: Vec<&pb::Member> = answer.members.iter().filter(|member| member.id != added.id).collect();
    let joining = Joining { name, token: &token, added: &added, others, needs_secret, speaks_tls };
    let (command, warnings) = (joining.command(), joining.warnings());
    eprintln!("added {:x}; start it with this token, which counts once:\n  {command}", added.id);
    for warning in &warnings {
        crate::logging::say(format_args!("{warning}"));
    }
    if format_of(matches) == Format::Json {
        let mut shown = members_json(&answer.members, &witnesses);
        shown["added"] = json!({
            "id": format!("{:x}", added.id), "join_token": token, "command": command, "warnings": warnings,
        });
        println!("{shown}");
    } else {
        show_members(&answer.members, &witnesses, Format::Table);
    }
    Ok(())
}

/// A member that is to join.
struct Joining<'a> {
    name: &'a str,
    token: &'a str,
    added: &'a pb::Member,
    others: Vec<&'a pb::Member>,
    /// The others have a cluster secret.
    needs_secret: bool,
    /// The one that was asked speaks TLS to clients.
    speaks_tls: bool,
}

impl Joining<'_> {
    /// The command that starts the new member. Words in capitals stand for values that only its operator knows.
    fn command(&self) -> String {
        let Joining { name, token, added, others, needs_secret, speaks_tls } = self;
        let mut cluster: Vec<String> = Vec::new();
        for member in others {
            cluster.extend(member.peer_urls.iter().map(|url| format!("{}={url}", member.name)));
        }
        cluster.extend(added.peer_urls.iter().map(|url| format!("{name}={url}")));
        let mut command = format!(
            "hustings serve --name {name} --join-token {token} --initial-cluster-state existing --initial-cluster {} --listen-peer-urls {}",
            cluster.join(","),
            added.peer_urls.join(",")
        );
        let is_tls = |urls: &[String]| urls.iter().any(|url| url.starts_with("https://"));
        if *needs_secret {
            command.push_str(" --cluster-secret-file FILE");
        }
        if is_tls(&added.peer_urls) || others.iter().any(|member| is_tls(&member.peer_urls)) {
            command.push_str(" --peer-cert-file FILE --peer-key-file FILE --peer-trusted-ca-file FILE");
        }
        if *speaks_tls || others.iter().any(|member| is_tls(&member.client_urls)) {
            command.push_str(" --listen-client-urls https://HOST:PORT --cert-file FILE --key-file FILE");
        }
        command
    }

    /// Warnings of settings by which the new member will not reach the others.
    fn warnings(&self) -> Vec<String> {
        let scheme = |url: &str| url.split_once("://").map_or("", |(scheme, _)| scheme).to_owned();
        let theirs: BTreeSet<String> =
            self.others.iter().flat_map(|member| &member.peer_urls).map(|url| scheme(url)).collect();
        let strange = self.added.peer_urls.iter().find(|url| !theirs.is_empty() && !theirs.contains(&scheme(url)));
        let warning = strange.map(|url| {
            let theirs = theirs.iter().map(|scheme| format!("{scheme}://")).collect::<Vec<_>>().join(" and ");
            format!(
                "{url} is {}://, and the others' peer URLs are {theirs}: they will not understand each other; `hustings member update {:x} --peer-urls ...` changes it",
                scheme(url),
                self.added.id
            )
        });
        warning.into_iter().collect()
    }
}

/// After one endpoint has named a leader, the others have this time to name a later one.
const SECOND_OPINION: Duration = Duration::from_millis(500);

/// The leader of the highest term that an endpoint names. All are asked at once: one that was cut off may name an earlier leader or
/// none, and one that hangs holds up nobody.
async fn leader_of_any(matches: &ArgMatches) -> Result<u64> {
    let ask = async |endpoint: String| {
        let client = connect_to(matches, &[endpoint]).await?;
        let status = within(matches, client.maintenance().status(asked(StatusRequest {}))).await?;
        Ok((status.raft_term, status.leader))
    };
    latest_leader(endpoints_of(matches).into_iter().map(ask).collect(), timeout_of(matches)).await
}

/// The leader of the highest term among answers of term and leader; the leader 0 is none.
async fn latest_leader(
    mut answers: FuturesUnordered<impl Future<Output = Result<(u64, u64)>>>,
    timeout: Duration,
) -> Result<u64> {
    let mut deadline = Instant::now() + timeout;
    let (mut latest, mut is_leaderless, mut refusal) = (None, false, None);
    while let Ok(Some(answer)) = timeout_at(deadline, answers.next()).await {
        match answer {
            Ok((_, 0)) => is_leaderless = true,
            Ok(named) => {
                latest = latest.max(Some(named));
                deadline = deadline.min(Instant::now() + SECOND_OPINION);
            }
            Err(error) => refusal = Some(error),
        }
    }
    match (latest, refusal) {
        (Some((_, leader)), _) => Ok(leader),
        (None, Some(refusal)) if !is_leaderless => Err(refusal),
        (None, None) if !is_leaderless => Err(unavailable(format!("no answer within {timeout:?}"))),
        (None, _) => Err(unavailable("there is no leader to hand over")),
    }
}

/// Runs `hustings transfer`: has the leader hand over to another member.
pub(crate) async fn transfer(matches: &ArgMatches) -> Result<()> {
    let any = connect(matches).await?;
    let target = find_member(matches, &any, text(matches, "to")).await?;
    let leader = leader_of_any(matches).await?;
    // Only the leader can hand over: ask it, wherever it listens.
    let all = members(matches, &any).await?;
    let name_of = |id: u64| match all.iter().find(|member| member.id == id && !member.name.is_empty()) {
        Some(member) => member.name.clone(),
        None => format!("{id:x}"),
    };
    let urls = all.iter().find(|member| member.id == leader).map(|member| member.client_urls.clone());
    let urls = urls
        .filter(|urls| !urls.is_empty())
        .ok_or_else(|| unavailable(format!("{leader:x} leads, and has not said yet where clients reach it")))?;
    let client = connect_to(matches, &urls).await?;
    within(matches, client.maintenance().move_leader(asked(MoveLeaderRequest { target_id: target }))).await?;
    match format_of(matches) {
        Format::Json => {
            println!(
                "{}",
                json!({ "apiVersion": "v1", "kind": "Transfer", "from": format!("{leader:x}"), "to": format!("{target:x}") })
            )
        }
        Format::Table if leader == target => println!("{} leads already", name_of(target)),
        Format::Table => println!("leadership went from {} to {}", name_of(leader), name_of(target)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::{BoxFuture, FutureExt as _, pending, ready};

    type Answer = BoxFuture<'static, Result<(u64, u64)>>;

    fn says(term: u64, leader: u64) -> Answer {
        ready(Ok((term, leader))).boxed()
    }

    fn refuses(why: &'static str) -> Answer {
        ready(Err(unavailable(why))).boxed()
    }

    async fn latest(answers: impl IntoIterator<Item = Answer>) -> Result<u64, String> {
        latest_leader(answers.into_iter().collect(), Duration::from_secs(5)).await.map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn the_leader_of_the_highest_term_is_the_leader() {
        assert_eq!(latest([says(4, 1), refuses("closed"), says(6, 3), says(5, 2), says(9, 0)]).await, Ok(3));
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_hangs_holds_up_nobody() {
        let begun = Instant::now();
        assert_eq!(latest([pending().boxed(), says(4, 1), pending().boxed(), says(6, 3)]).await, Ok(3));
        assert_eq!(begun.elapsed(), SECOND_OPINION);
        // One that is slow is waited for until then.
        let slow = tokio::time::sleep(SECOND_OPINION / 2).map(|()| Ok((7, 2))).boxed();
        assert_eq!(latest([says(4, 1), slow]).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_leader_the_reason_is_told() {
        let no_leader = Err("there is no leader to hand over".to_owned());
        assert_eq!(latest([refuses("closed"), says(9, 0), refuses("closed"), pending().boxed()]).await, no_leader);
        assert_eq!(latest([refuses("closed"), pending().boxed()]).await, Err("closed".to_owned()));
        assert_eq!(latest([pending().boxed()]).await, Err("no answer within 5s".to_owned()));
        let begun = Instant::now();
        assert_eq!(latest([says(9, 0), refuses("closed")]).await, no_leader);
        assert_eq!(begun.elapsed(), Duration::ZERO, "all have answered");
    }
}
