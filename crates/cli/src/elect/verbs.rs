//! `hustings elect`, `observe`, `lock` and `why`: elections by hand.

use super::{caller_arguments, election_of, own_id, run, start_logging, store_arguments};
use crate::exit::{Code, Exit};
use crate::output::{Format, format_of, not_found, one_line, output_argument, unavailable};
use anyhow::Result;
use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use hustings_election::{CampaignError, Change, Election, History, Leader, Loss, Named, Scheme, StoreError, Wish};
use serde_json::json;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Time that a store has to take back what this process holds there, when it ends.
const STORE_PATIENCE: Duration = Duration::from_secs(2);
/// Time for which `observe --once` waits for a store.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The first second of the year 10000, since 1970: no moment from then on can be written.
const SECONDS_MAX: u64 = 253_402_300_800;

/// The command lines of elections.
pub(crate) fn commands() -> Vec<Command> {
    let name = || Arg::new("name").required(true).value_name("NAME").help("Which election");
    vec![
        Command::new("elect")
            .about("Stand for election by hand: say so when elected, lead until told to end; or speak to the leader")
            .after_help("Exit code 75 when the leadership was lost, 3 when there is nobody to speak to.")
            .arg(name())
            .arg(Arg::new("value").help("What observers are told"))
            .arg(
                Arg::new("id")
                    .long("id")
                    .value_parser(NonEmptyStringValueParser::new())
                    .value_name("NAME")
                    .help("What others see [default: host name and process id]"),
            )
            .arg(
                Arg::new("step-down")
                    .long("step-down")
                    .action(ArgAction::SetTrue)
                    .conflicts_with_all(["value", "raise"])
                    .help("Tell the leader to step down"),
            )
            .arg(
                Arg::new("tether")
                    .long("tether")
                    .action(ArgAction::SetTrue)
                    .conflicts_with_all(["step-down", "raise"])
                    .help("Be succeeded at once when this process is killed, by a store that can see it: hustings"),
            )
            .arg(Arg::new("to").long("to").value_name("ID").requires("step-down").help("In favour of this candidate"))
            .arg(
                Arg::new("raise")
                    .long("raise")
                    .action(ArgAction::SetTrue)
                    .conflicts_with("value")
                    .help("After the store was restored: later tokens are above all earlier ones"),
            )
            .args(store_arguments())
            .args(caller_arguments())
            .arg(output_argument()),
        Command::new("observe")
            .about("Show who leads an election, and whenever that changes")
            .arg(name())
            .arg(
                Arg::new("once")
                    .long("once")
                    .action(ArgAction::SetTrue)
                    .help("Only now; exit code 3 when nobody leads"),
            )
            .args(store_arguments())
            .args(caller_arguments())
            .arg(output_argument()),
        run::with_options(
            Command::new("lock")
                .about("Run a command once, when nobody else holds the lock, and end it before anybody else may")
                .arg(name()),
            "exit",
        ),
    ]
}

/// Runs one of them.
pub(crate) async fn run(verb: &str, matches: &ArgMatches) -> Result<()> {
    start_logging()?;
    let name = matches.get_one::<String>("name").expect("it is required");
    let election = named(matches, name)?;
    match verb {
        "elect" => elect(matches, election).await,
        _ => observe(matches, election).await,
    }
}

/// The election of a command line; one that names none is wrong itself.
fn named(matches: &ArgMatches, name: &str) -> Result<Election> {
    election_of(matches, name).map_err(|error| Exit::with(Code::Usage, format!("{error:#}")))
}

async fn elect(matches: &ArgMatches, election: Election) -> Result<()> {
    let because = || "asked by `hustings elect --step-down`".to_owned();
    let wish = match (matches.get_flag("step-down"), matches.get_flag("raise")) {
        (true, _) => Some(Wish::StepDown { because: because(), to: matches.get_one("to").cloned() }),
        (_, true) => Some(Wish::Raise),
        _ => None,
    };
    if let Some(wish) = wish {
        let deposed = if matches!(wish, Wish::Raise) { who_is_not_awaited(&election).await } else { None };
        println!("{}", election.wish(&wish).await.map_err(of_store)?);
        if let Some(Leader { id, .. }) = deposed {
            crate::logging::say(format_args!(
                "{} held the election in that moment: if it does not reach the store, it believes that it leads until its lease would have ended, beside whoever comes next; `--step-down` before a raise has it stop first",
                one_line(&id)
            ));
        }
        return Ok(());
    }
    let id = matches.get_one::<String>("id").cloned().unwrap_or_else(own_id);
    let named = Named::new(&id).value(matches.get_one::<String>("value").cloned().unwrap_or_default());
    let election = match matches.get_flag("tether") {
        true if election.scheme() != Scheme::Hustings => {
            let why = "--tether: only a cluster of Hustings sees that a process has ended: leave it out, and a successor waits until the lease ends, or use `hustings run`, which leaves a last will at every store";
            return Err(Exit::with(Code::Usage, why));
        }
        true => election.tethered(),
        false => election,
    };
    let office = election.candidate(named.stop_grace(Duration::ZERO).kill_margin(Duration::ZERO));
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut told = async move || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let (sender, mut changes) = mpsc::unbounded_channel();
    let said = tokio::spawn(async move {
        while let Some(change) = changes.recv().await {
            if change == Change::Waits {
                crate::logging::say(format_args!("waits for its turn"));
            }
        }
    });
    let leadership = tokio::select! {
        won = office.campaign_told(Some(sender)) => won.map_err(of_campaign)?,
        () = told() => {
            let _ = tokio::time::timeout(STORE_PATIENCE, election.close()).await;
            return Ok(());
        }
    };
    let shown = leadership.lead().map(|lead| lead.token()).map_err(|loss| lost(&loss))?;
    match format_of(matches) {
        Format::Json => {
            println!(
                "{}",
                json!({"apiVersion": "v1", "kind": "Leadership", "leads": true, "id": id, "token": shown.to_string()})
            )
        }
        _ => println!("{id} leads {}, token {shown}", election.name()),
    }
    let loss = tokio::select! {
        loss = leadership.lost() => Some(loss),
        (loss, _) = leadership.stop() => Some(loss),
        () = told() => None,
    };
    // A store that does not answer is not waited for: the lease ends there by itself.
    let left = leadership.remaining() + STORE_PATIENCE;
    let leave = async {
        leadership.resign("told to end").await;
        election.close().await;
    };
    let _ = tokio::time::timeout(left, leave).await;
    said.abort();
    loss.map_or(Ok(()), |loss| Err(lost(&loss)))
}

/// The holder of an election whose entries a raise deletes at once; `None` where there is none, or where the raise waits for it.
async fn who_is_not_awaited(election: &Election) -> Option<Leader> {
    if matches!(election.scheme(), Scheme::Postgres | Scheme::Kubernetes) {
        return None;
    }
    tokio::time::timeout(ANSWER_TIMEOUT, election.observe().next()).await.ok()?.ok()?
}

fn of_store(error: StoreError) -> anyhow::Error {
    match &error {
        StoreError::NobodyLeads(_) | StoreError::NotWaiting(_) => not_found(error.to_string()),
        StoreError::Silent(_) => unavailable(error.to_string()),
        StoreError::Denied(why) => Exit::with(Code::NotAllowed, why),
    }
}

fn of_campaign(error: CampaignError) -> anyhow::Error {
    match error {
        CampaignError::Denied(why) => Exit::with(Code::NotAllowed, why),
        CampaignError::Timing(why) | CampaignError::Candidate(why) => Exit::with(Code::Usage, why),
        error => error.into(),
    }
}

fn lost(loss: &Loss) -> anyhow::Error {
    Exit::with(Code::Lost, format!("leads no more: {loss}"))
}

fn show(format: Format, leader: Option<&Leader>) {
    match (format, leader) {
        (Format::Json, Some(Leader { id, value, token })) => {
            println!(
                "{}",
                json!({"apiVersion": "v1", "kind": "Leader", "id": id, "value": value, "token": token.to_string()})
            );
        }
        (Format::Json, None) => println!("{}", json!({"apiVersion": "v1", "kind": "Leader", "id": null})),
        (_, Some(Leader { id, value, token })) => {
            let value = if value.is_empty() { String::new() } else { format!(": {}", one_line(value)) };
            println!("{} leads, token {token}{value}", one_line(id));
        }
        (_, None) => println!("nobody leads"),
    }
}

async fn observe(matches: &ArgMatches, election: Election) -> Result<()> {
    let mut observer = election.observe();
    if matches.get_flag("once") {
        let asked = tokio::time::timeout(ANSWER_TIMEOUT, observer.next()).await;
        let leader = asked.map_err(|_| unavailable("the store does not answer"))?.map_err(of_store)?;
        show(format_of(matches), leader.as_ref());
        return leader.map(drop).ok_or_else(|| not_found(format!("nobody leads {}", election.name())));
    }
    loop {
        let leader = observer.next().await.map_err(of_store)?;
        show(format_of(matches), leader.as_ref());
    }
}

/// Prints the leaders of an election, and why each leadership ended.
pub(crate) async fn why(matches: &ArgMatches, name: &str) -> Result<()> {
    start_logging()?;
    let election = named(matches, name)?;
    // Asked first: a store that does not answer is told so, and not waited for.
    election.history().await.map_err(of_store)?;
    let looked = tokio::time::timeout(ANSWER_TIMEOUT, election.observe().next()).await.ok().and_then(Result::ok);
    // Read after the leader was seen, so that one of ours stands in it.
    let history = election.history().await.map_err(of_store)?;
    let unwritten = looked.iter().flatten().find(|leader| history.tenures().all(|tenure| tenure.token < leader.token));
    let strange = match history.strange_lines() {
        0 => String::new(),
        lines => format!(
            "{lines} lines where its history stands were written by something else, and the next winner replaces them"
        ),
    };
    if history.tenures().next().is_none() && unwritten.is_none() {
        let known = format!("nobody is known to have led {}", election.name());
        let told = if strange.is_empty() { known } else { format!("{known}: {strange}") };
        return Err(not_found(told));
    }
    if !strange.is_empty() {
        crate::logging::say(format_args!("{strange}"));
    }
    let format = format_of(matches);
    let last_end = last_end(&history, looked.as_ref().map(Option::as_ref));
    let ends = history.tenures().skip(1).map(|next| Some(next.before.to_string())).chain([last_end.clone()]);
    for (tenure, ended) in history.tenures().zip(ends) {
        let (token, who, before) = (tenure.token, &tenure.who, &tenure.before);
        let since = tenure.since_unix_seconds;
        // Whoever may write the history may write any number there.
        let since = since.filter(|seconds| *seconds < SECONDS_MAX);
        let at = since.map(|seconds| std::time::UNIX_EPOCH + Duration::from_secs(seconds));
        let at = at.map(|at| humantime::format_rfc3339_seconds(at).to_string());
        match format {
            Format::Json => println!(
                "{}",
                json!({
                    "apiVersion": "v1", "kind": "Tenure", "token": token.to_string(), "id": who.0, "since": at,
                    "before": before.to_string(), "ended": ended,
                })
            ),
            _ => {
                let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
                let (who, before) = (one_line(&who.to_string()), one_line(&before.to_string()));
                println!("token {token}: {who} was elected{at}; the one before: {before}");
            }
        }
    }
    match (unwritten, last_end, format) {
        (Some(Leader { id, token, .. }), _, Format::Json) => println!(
            "{}",
            json!({
                "apiVersion": "v1", "kind": "Tenure", "token": token.to_string(), "id": id, "since": null, "before": null,
                "ended": null,
            })
        ),
        (Some(Leader { id, token, .. }), _, _) => println!(
            "token {token}: {} leads now, and has not written why: other programs, such as `etcdctl elect`, write no history",
            one_line(id)
        ),
        (None, Some(ended), Format::Table) => {
            println!("nobody has been elected since; the last one: {}", one_line(&ended));
        }
        _ => {}
    }
    Ok(())
}

/// The end of the last tenure that is written down; `None` while it lasts, or where the leader could not be seen.
fn last_end(history: &History, looked: Option<Option<&Leader>>) -> Option<String> {
    let last = history.tenures().next_back()?.token;
    let leads = looked?.is_some_and(|leader| leader.token == last);
    (!leads).then(|| history.last_note().unwrap_or("left no note").to_owned())
}
