//! The report of `hustings recover`: for people, and as JSON.

use super::gather::{Gathered, more_remembered};
use super::living::Asked;
use super::{Founded, Remains, known_name, name_of, startable, unnamed};
use crate::output::table;
use crate::snapshots::after_this;
use hustings_core::NodeId;
use hustings_node::reach::in_words;
use hustings_wal::Survey;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Shows what was found, what would be gone on with, and what was made.
pub(super) fn show(remains: &[Remains], gathered: Option<&Gathered>, founded: Option<&Founded>, is_json: bool) {
    let surveys: Vec<&Survey> = remains.iter().filter_map(|remains| remains.found.as_ref().ok()).collect();
    if is_json {
        let value = json!({
            "apiVersion": "v1", "kind": "Recovery",
            "directories": remains.iter().map(directory_json).collect::<Vec<_>>(),
            "recovery": gathered.map(|gathered| gathered_json(gathered, &surveys)),
            "made": founded.map(made_json),
        });
        return println!("{value}");
    }
    let columns = ["directory", "member", "cluster", "protocol", "last", "committed", "snapshot", "state"];
    println!("{}", table(&columns, remains.iter().map(|remains| row(remains, &surveys)).collect()));
    for note in surveys.iter().flat_map(|survey| notes_on(survey, &surveys)) {
        println!("  {note}");
    }
    let Some(gathered) = gathered else { return };
    for line in findings(gathered, &surveys) {
        println!("  {line}");
    }
    match founded {
        None => {
            let lost: Vec<String> = gathered.absent(&surveys).into_iter().map(|(_, name)| name).collect();
            let lost = if gathered.may_be_served_elsewhere(&surveys, &Default::default()) {
                format!(" --lost {}", lost.join(","))
            } else {
                String::new()
            };
            let given: Vec<String> = remains.iter().map(|remains| remains.path.display().to_string()).collect();
            if gathered.is_quorum_here(&surveys) {
                return println!("nothing was changed");
            }
            println!(
                "nothing was changed; to go on from here: hustings recover {}{lost} --into NEW-DIR",
                given.join(" ")
            );
        }
        Some(Founded { made, asked, took }) => {
            for found in asked.iter().filter_map(Asked::told) {
                println!("  {found}");
            }
            println!(
                "made {}: {} of the new cluster {}, at revision {} and term {}",
                made.data_dir.display(),
                made.name,
                made.cluster_id,
                made.revision,
                made.term
            );
            let next = if made.is_alone {
                "`hustings serve` it with this member's flags; then `hustings member add` the others, which start with empty directories"
            } else {
                "recover every other member from the same directories, then `hustings serve` each"
            };
            println!("{next}");
            println!("never start a member on an old directory again: {}", never_again(gathered, &surveys).join(", "));
            println!("{}", after_this(made.bump));
            let took: Vec<String> = took.iter().map(|(phase, took)| format!("{phase} {}", in_words(*took))).collect();
            println!("took: {}", took.join(", "));
        }
    }
}

/// Names the members whose old directories must rest.
fn never_again(gathered: &Gathered, surveys: &[&Survey]) -> Vec<String> {
    // A member that joined has its name in the log, which all of them together have.
    let name = |id: NodeId| {
        let memberships = [&*gathered.membership].into_iter().chain(&gathered.possible);
        memberships.into_iter().find_map(|membership| known_name(membership, id))
    };
    let here = surveys.iter().map(|survey| {
        let name = name(survey.peek.identity.node).unwrap_or_else(|| name_of(survey));
        format!("{name} ({})", survey.directory.display())
    });
    let absent = gathered.absent(surveys).into_iter();
    let absent = absent.map(|(id, _)| format!("{} (wherever its disk is)", name(id).unwrap_or_else(|| unnamed(id))));
    here.chain(absent).collect()
}

fn row(remains: &Remains, surveys: &[&Survey]) -> Vec<String> {
    let path = remains.path.display().to_string();
    match &remains.found {
        Err(_) => {
            vec![path, "-".into(), "-".into(), "-".into(), "-".into(), "-".into(), "-".into(), "cannot be used".into()]
        }
        Ok(survey) => {
            let identity = &survey.peek.identity;
            let snapshot = survey.durable.snapshot.as_ref().map_or("-".into(), |reference| reference.lsn.to_string());
            let state = match (&survey.refused_by_others, more_remembered(survey, surveys)) {
                (Some(_), _) => "refused by others",
                (None, Some(_)) => "an old copy",
                (None, None) => "whole",
            };
            vec![
                path,
                name_of(survey),
                identity.cluster_id.to_string(),
                identity.protocol.clone(),
                last_of(survey),
                survey.durable.committed.to_string(),
                snapshot,
                state.into(),
            ]
        }
    }
}

/// The highest slot that it holds, with or without gaps below.
fn last_of(survey: &Survey) -> String {
    let last = survey.durable.entries.values().next_back().map(|entry| entry.lsn);
    last.unwrap_or_else(|| survey.durable.last()).to_string()
}

/// Notes on one directory.
fn notes_on(survey: &Survey, surveys: &[&Survey]) -> Vec<String> {
    let name = name_of(survey);
    let mut notes = Vec::new();
    if let Some(why) = &survey.refused_by_others {
        notes.push(format!("{name}: other members refused this directory: {why}"));
    }
    if let Some((other, remembered)) = more_remembered(survey, surveys) {
        notes.push(format!(
            "{name}: an old copy, {} remembers that {} batches of its log were durable and this directory has {}: what it acknowledged since is not in it",
            name_of(other),
            remembered,
            survey.batches
        ));
    }
    if survey.torn_bytes > 0 {
        notes.push(format!(
            "{name}: the last {} bytes are an unfinished write, which was never acknowledged",
            survey.torn_bytes
        ));
    }
    let (promise, last) = (survey.durable.promise, survey.durable.last());
    if promise.term > last.term {
        notes.push(format!("{name}: it has promised term {} and holds nothing of a term above {}: what a leader since then wrote is not in it", promise.term, last.term));
    }
    notes
}

/// Conclusions from all of them.
fn findings(gathered: &Gathered, surveys: &[&Survey]) -> Vec<String> {
    let best = surveys[gathered.best];
    let mut lines = vec![format!(
        "the history to go on with: {} ({}), through {}, revision {}, {} keys",
        name_of(best),
        best.directory.display(),
        gathered.last,
        gathered.store.view().revision(),
        gathered.store.view().key_count()
    )];
    if gathered.is_quorum_here(surveys) {
        let names = startable(surveys);
        lines.push(format!("a quorum is here: start {names} on their directories, and nothing need be recovered"));
    }
    if gathered.last.index > gathered.committed {
        lines.push(format!(
            "kept: entries {} to {}, though none of these directories knows them to be committed; they may have been acknowledged",
            gathered.committed + 1,
            gathered.last.index
        ));
    }
    for (position, first, count) in &gathered.dropped {
        lines.push(format!(
            "not kept: {count} entries of {} from {first} on; a later leader put others in their place, and they were never acknowledged",
            name_of(surveys[*position])
        ));
    }
    if !gathered.holes.is_empty() {
        let slots: Vec<String> = gathered.holes.iter().map(u64::to_string).collect();
        lines
            .push(format!("slots that none of these directories holds, and that are passed over: {}", slots.join(" ")));
    }
    if !gathered.store.view().alarms().is_empty() {
        let kinds: Vec<String> =
            gathered.store.view().alarms().iter().map(|alarm| format!("{:?}", alarm.kind)).collect();
        lines.push(format!("alarms that are up, and stay up: {}; see `hustings alarm list`", kinds.join(", ")));
    }
    let absent: Vec<String> = gathered.absent(surveys).into_iter().map(|(_, name)| name).collect();
    if absent.is_empty() {
        return lines;
    }
    let absent = absent.join(" and ");
    lines.push(match gathered.may_be_served_elsewhere(surveys, &Default::default()) {
        true => format!("may be lost: what {absent} acknowledged behind {} without any of these", gathered.last),
        false => {
            format!("nothing that was acknowledged is lost: {absent} cannot have acknowledged without one of these")
        }
    });
    lines
}

fn directory_json(remains: &Remains) -> Value {
    let directory = remains.path.display().to_string();
    let survey = match &remains.found {
        Ok(survey) => survey,
        Err(error) => return json!({ "directory": directory, "usable": false, "why": format!("{error:#}") }),
    };
    let identity = &survey.peek.identity;
    let durable = &survey.durable;
    json!({
        "directory": directory,
        "usable": true,
        "name": name_of(survey),
        "member_id": format!("{:x}", identity.node.0),
        "cluster_id": identity.cluster_id.to_string(),
        "protocol": identity.protocol,
        "last": last_of(survey),
        "committed": durable.committed.to_string(),
        "snapshot": durable.snapshot.as_ref().map(|reference| reference.lsn.to_string()),
        "promised_term": durable.promise.term.0,
        "voted_for": durable.promise.vote.map(|vote| survey.peek.founding.name_of(vote)),
        "batches": survey.batches,
        "torn_bytes": survey.torn_bytes,
        "refused_by_others": survey.refused_by_others,
    })
}

fn gathered_json(gathered: &Gathered, surveys: &[&Survey]) -> Value {
    let best = surveys[gathered.best];
    let absent: Vec<String> = gathered.absent(surveys).into_iter().map(|(_, name)| name).collect();
    let dropped = gathered.dropped.iter().map(|(position, first, count)| {
        json!({ "directory": surveys[*position].directory.display().to_string(), "from": first.to_string(), "entries": count })
    });
    json!({
        "best": best.directory.display().to_string(),
        "last": gathered.last.to_string(),
        "committed_index": gathered.committed,
        "kept_uncommitted": gathered.last.index - gathered.committed,
        "not_kept": dropped.collect::<Vec<_>>(),
        "empty_slots": gathered.holes,
        "revision": gathered.store.view().revision(),
        "keys": gathered.store.view().key_count(),
        "absent": absent,
        "may_be_served_elsewhere": gathered.may_be_served_elsewhere(surveys, &Default::default()),
        "quorum_is_here": gathered.is_quorum_here(surveys),
        "never_start_again": never_again(gathered, surveys),
        "notes": surveys.iter().flat_map(|survey| notes_on(survey, surveys)).collect::<Vec<_>>(),
    })
}

fn made_json(Founded { made, asked, took }: &Founded) -> Value {
    let millis = took.iter().map(|(phase, took)| (*phase, u64::try_from(took.as_millis()).unwrap_or(u64::MAX)));
    let asked = asked
        .iter()
        .map(|asked| json!({ "name": asked.name, "url": asked.url, "answer": asked.word(), "why": asked.why() }));
    json!({
        "asked": asked.collect::<Vec<_>>(),
        "took_millis": millis.collect::<BTreeMap<_, _>>(),
        "data_dir": made.data_dir.display().to_string(),
        "cluster_id": made.cluster_id.to_string(),
        "member_id": format!("{:x}", made.member.0),
        "name": made.name,
        "revision": made.revision,
        "term": made.term.0,
    })
}
