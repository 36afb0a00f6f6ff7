//! The verbs that a full store or disk asks for: `alarm`, `compact`.

use crate::client::{connect, within};
use crate::credentials::asked;
use crate::output::{Format, common, format_of, table};
use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use hustings_api::Client;
use hustings_api::etcdserverpb::{
    self as pb, AlarmMember, AlarmRequest, AlarmType, CompactionRequest, alarm_request::AlarmAction,
};
use serde_json::{Value, json};

/// The command lines of upkeep.
pub(crate) fn commands() -> [Command; 2] {
    let alarms = Command::new("alarm")
        .about("Show the alarms, or end them when their cause is gone")
        .subcommand_required(true)
        .subcommand(common(Command::new("list").about("Show which alarms are up, and who raised them")))
        .subcommand(common(Command::new("disarm").about("End all alarms: clients may write again")));
    let revision = Arg::new("revision").required(true).value_parser(value_parser!(i64)).help("Forget what is older");
    [alarms, common(Command::new("compact").about("Forget the history before a revision").arg(revision))]
}

/// Runs `alarm` or `compact`.
pub(crate) async fn run(verb: &str, matches: &ArgMatches) -> Result<()> {
    match (verb, matches.subcommand()) {
        ("alarm", Some(("list", matches))) => {
            let client = connect(matches).await?;
            let alarms = ask(matches, &client, AlarmAction::Get, AlarmMember::default()).await?;
            show(matches, &client, &alarms).await
        }
        ("alarm", Some((_, matches))) => {
            let client = connect(matches).await?;
            let alarms = ask(matches, &client, AlarmAction::Get, AlarmMember::default()).await?;
            for alarm in &alarms {
                ask(matches, &client, AlarmAction::Deactivate, *alarm).await?;
            }
            show(matches, &client, &alarms).await
        }
        _ => compact(matches).await,
    }
}

async fn ask(matches: &ArgMatches, client: &Client, action: AlarmAction, of: AlarmMember) -> Result<Vec<AlarmMember>> {
    let request = AlarmRequest { action: action as i32, member_id: of.member_id, alarm: of.alarm };
    Ok(within(matches, client.maintenance().alarm(asked(request))).await?.alarms)
}

/// Shows alarms that are up, or that were.
async fn show(matches: &ArgMatches, client: &Client, alarms: &[AlarmMember]) -> Result<()> {
    let request = pb::MemberListRequest { linearizable: true };
    let members = within(matches, client.cluster().member_list(asked(request))).await?.members;
    let rows = alarms.iter().map(|alarm| {
        let name = members.iter().find(|member| member.id == alarm.member_id).map(|member| member.name.clone());
        let kind = AlarmType::try_from(alarm.alarm).map_or("UNKNOWN", |kind| kind.as_str_name());
        (name.unwrap_or_else(|| format!("{:x}", alarm.member_id)), kind)
    });
    match format_of(matches) {
        Format::Json => {
            let alarms: Vec<Value> = rows.map(|(name, kind)| json!({ "member": name, "alarm": kind })).collect();
            println!("{}", json!({ "apiVersion": "v1", "kind": "Alarms", "alarms": alarms }));
        }
        Format::Table if alarms.is_empty() => println!("no alarm is up"),
        Format::Table => {
            println!("{}", table(&["member", "alarm"], rows.map(|(name, kind)| vec![name, kind.into()]).collect()));
        }
    }
    Ok(())
}

async fn compact(matches: &ArgMatches) -> Result<()> {
    let revision = *matches.get_one::<i64>("revision").expect("clap requires it");
    let request = CompactionRequest { revision, physical: true };
    let answer = within(matches, connect(matches).await?.kv().compact(asked(request))).await?;
    let now = answer.header.unwrap_or_default().revision;
    match format_of(matches) {
        Format::Json => {
            println!("{}", json!({ "apiVersion": "v1", "kind": "Compaction", "revision": now, "compacted": revision }))
        }
        Format::Table => println!("history before revision {revision} is forgotten"),
    }
    Ok(())
}
