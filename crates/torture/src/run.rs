//! A whole run: [`run()`].

use crate::clients::{History, Load};
use crate::onlookers::Onlookers;
use crate::rig::Rig;
use crate::rivals::{self, Rivals};
use crate::script::Script;
use crate::verdict::{self, Events, Report};
use anyhow::{Context, Result};
use bytes::Bytes;
use hustings_api::Client;
use hustings_api::etcdserverpb::request_op::Request;
use hustings_api::etcdserverpb::{PutRequest, RequestOp, TxnRequest};
use hustings_properties::Violation;
use hustings_testbed::{Node, Program, put, wait_for};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Applied entries between snapshots: few, so that a short run sees snapshots sent and logs cut.
const SNAPSHOT_COUNT: &str = "1000";

/// Keys of ballast that come together: as many operations as a transaction may have.
const BALLAST_BATCH: usize = 128;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Torture {
    /// Path of the `hustings` binary.
    pub binary: PathBuf,
    /// Name of the protocol.
    pub protocol: String,
    /// Number of members of the cluster.
    pub nodes: usize,
    /// Duration of the load, at least.
    pub length: Duration,
    /// Seed of the clients' and the proxies' dice.
    pub seed: u64,
    /// Number of clients that write, read and compare at once.
    pub clients: u64,
    /// Number of keys that the clients use.
    pub keys: u64,
    /// Acts that break the cluster, and their moments.
    pub script: Script,
    /// Number of keys of 256 bytes that stand in the store before anything begins.
    pub ballast: u64,
    /// Binary that `upgrade` starts.
    pub newer: Option<PathBuf>,
    /// Whether the logs stay when everything held, too.
    pub logs: Logs,
}

/// The treatment of the nodes' logs when everything held; else they stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Logs {
    /// Remove the logs of a run in which everything held.
    Remove,
    /// Keep the logs of every run.
    Keep,
}

/// Breaks a cluster as the script says, under load, and judges it. Tells `say` what it does.
///
/// # Errors
/// When the run could not be made. Properties that did not hold are in the report.
pub async fn run(torture: &Torture, say: &mut (dyn FnMut(&str) + Send)) -> Result<Report> {
    let program = protocol_of(Program::hustings(&torture.binary), torture);
    let needs_disks = torture.script.steps.iter().any(|step| step.act.needs_disks());
    let mut rig = Rig::start(program, torture.nodes, torture.seed, needs_disks).await?;
    rig.newer = torture.newer.as_ref().map(|newer| protocol_of(Program::hustings(newer), torture));
    rig.history.told = lay_ballast(&rig.cluster.endpoints(), torture.ballast).await?;
    let result = break_and_judge(torture, &mut rig, say).await;
    if torture.logs == Logs::Keep || !matches!(&result, Ok(report) if report.violations.is_empty()) {
        rig.cluster.keep();
        say(&format!("the logs stay in {}", rig.cluster.directory().display()));
    }
    result
}

fn protocol_of(program: Program, torture: &Torture) -> Program {
    program.with(&["--protocol", &torture.protocol, "--snapshot-count", SNAPSHOT_COUNT])
}

/// Fills the store with keys that nobody asks for; gives the revision behind them.
async fn lay_ballast(endpoints: &[String], keys: u64) -> Result<i64> {
    let client = Client::connect(endpoints).await?;
    let (mut revision, value) = (0, Bytes::from(vec![7; 256]));
    for first in (0..keys).step_by(BALLAST_BATCH) {
        let put = |number: u64| RequestOp {
            request: Some(Request::RequestPut(PutRequest {
                key: format!("ballast/{number:012}").into(),
                value: value.clone(),
                ..PutRequest::default()
            })),
        };
        let success = (first..keys.min(first + BALLAST_BATCH as u64)).map(put).collect();
        let txn = TxnRequest { success, ..TxnRequest::default() };
        let answer = client.kv().txn(txn).await.context("the ballast")?.into_inner();
        revision = answer.header.context("answers have headers")?.revision;
    }
    Ok(revision)
}

async fn break_and_judge(torture: &Torture, rig: &mut Rig, say: &mut (dyn FnMut(&str) + Send)) -> Result<Report> {
    let mut report = Report::default();
    let begun = Instant::now();
    let load = Load::start(torture.seed, torture.clients, torture.keys, &rig.cluster.endpoints(), begun);
    let onlookers = Onlookers::start(&rig.cluster.endpoints(), rig.history.told);
    let rivals = Rivals::start(torture.seed, &rig.cluster.endpoints(), begun);
    for step in &torture.script.steps {
        tokio::time::sleep(step.at.saturating_sub(begun.elapsed())).await;
        let text = step.act.to_string();
        let whom = rig.perform(&step.act).await.with_context(|| format!("at {:?}: {text}", step.at))?;
        say(&format!("{:>8.3}s  {text}  {whom}", begun.elapsed().as_secs_f64()));
        *report.injected.entry(word_of(&text)).or_default() += 1;
    }
    tokio::time::sleep(torture.length.saturating_sub(begun.elapsed())).await;
    let whole = Instant::now();
    rig.make_whole().await?;
    report.recovered_in = whole.elapsed();
    let left_out =
        rig.left_out.values().map(|what| Violation::of("every member serves when all is whole", what.clone()));
    report.violations.extend(left_out);
    if !rig.has_quorum() {
        // Nobody is left who could say what became of the rest; what members wrote down themselves is judged all the same.
        let what = format!("{} of {} members do not", rig.left_out.len(), torture.nodes);
        report.violations.push(Violation::of("a majority serves when all is whole", what));
        judge_what_is_written(torture, rig, &mut report)?;
        return Ok(report);
    }
    // The last word belongs to a cluster that is whole: every client gets through again.
    let before = load.done.load(Ordering::Relaxed);
    wait_for("clients to be served again", async || {
        (load.done.load(Ordering::Relaxed) > before + torture.clients).then_some(())
    })
    .await?;
    let end = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    let history = load.end().await?;
    report.took.0 = begun.elapsed();
    report.unavailable = verdict::gaps(&history, end);
    report.operations = (history.done, history.refused, history.unknown);
    onlookers.let_leases_end();
    // Before the last write: what the rivals leave behind changes the store until their leases have ended.
    let rivals = rivals.end(&Client::connect(&rig.cluster.live_endpoints()).await?).await?;
    let judging = Instant::now();
    judge(torture, rig, &history, (onlookers, rivals), &mut report).await?;
    report.took.1 = judging.elapsed();
    Ok(report)
}

/// Plays again what the members recorded, before they were replaced as well: the same value, told the same, must say the same; and no two
/// lives contradict each other.
fn replay(binary: &Path, nodes: &[Node], kept: &[PathBuf], report: &mut Report) -> Result<()> {
    let play =
        |directories: &[&PathBuf]| Command::new(binary).args(["replay", "-o", "json"]).args(directories).output();
    let mut directories: Vec<&PathBuf> = nodes.iter().map(|node| &node.data_dir).collect();
    for directory in kept {
        // One whose disk lost its power may have nothing that can be read: the others would not be played either.
        match String::from_utf8_lossy(&play(&[directory])?.stderr).contains("no recording of a member") {
            true => report.replayed.1 += 1,
            false => directories.push(directory),
        }
    }
    judge_replay(&play(&directories)?, nodes, report);
    Ok(())
}

/// Judges what `hustings replay` said of all lives, and how it ended.
fn judge_replay(played: &Output, nodes: &[Node], report: &mut Report) {
    let known = report.violations.len();
    let text = String::from_utf8_lossy(&played.stdout);
    let said: Vec<serde_json::Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let (judgements, lives): (Vec<_>, Vec<_>) = said.iter().partition(|said| said["kind"] == "Judgement");
    for node in nodes.iter().filter(|node| !lives.iter().any(|life| life["member"] == node.name.as_str())) {
        let what = format!("{} recorded nothing: {}", node.name, String::from_utf8_lossy(&played.stderr));
        report.violations.push(Violation::of("a life is played again", what));
    }
    for life in lives {
        match life["end"].as_str() {
            Some("same") => report.replayed.0 += 1,
            Some("gap" | "no-beginning") => report.replayed.1 += 1,
            _ => report.violations.push(Violation::of("a life is played again", life.to_string())),
        }
    }
    if judgements.is_empty() {
        report.violations.push(Violation::of("all lives are judged together", "there is no judgement"));
    }
    for violation in judgements.iter().flat_map(|judgement| judgement["violations"].as_array()).flatten() {
        report.violations.push(Violation::of("no two lives contradict each other", violation.to_string()));
    }
    // It says nothing of a life that it cannot play, and ends with an error.
    if !played.status.success() && report.violations.len() == known {
        let what = format!("{}: {}", played.status, String::from_utf8_lossy(&played.stderr));
        report.violations.push(Violation::of("all lives are played again", what));
    }
}

/// Judges what members have left behind: their logs, their ends, their recordings.
fn judge_what_is_written(torture: &Torture, rig: &mut Rig, report: &mut Report) -> Result<()> {
    let mut reigns = BTreeSet::new();
    for node in &rig.cluster.nodes {
        let (own, violations) = verdict::reigns_in(&node.log)?;
        reigns.extend(own);
        report.violations.extend(violations);
    }
    report.violations.extend(verdict::one_leader_per_term(&reigns));
    let terms: BTreeSet<u64> = reigns.iter().map(|reign| reign.term).collect();
    report.leader_changes = terms.len().saturating_sub(1);
    rig.note_ends()?;
    report.expected_ends = rig.expected_ends;
    // Where members were upgraded, older builds may know nothing of recordings.
    replay(torture.newer.as_ref().unwrap_or(&torture.binary), &rig.cluster.nodes, &rig.kept, report)?;
    let ends = rig.unexpected_ends.iter().map(|end| Violation::of("nobody ends by itself", end.clone()));
    report.violations.extend(ends);
    Ok(())
}

async fn judge(
    torture: &Torture,
    rig: &mut Rig,
    history: &History,
    (onlookers, rivals): (Onlookers, rivals::End),
    report: &mut Report,
) -> Result<()> {
    let client = Client::connect(&rig.cluster.live_endpoints()).await?;
    let last = put(&client, "end", "0").await.context("the last write")?;
    report.violations.append(&mut rig.history.violations);
    let mut told = Vec::new();
    let serving = |position: &usize| !rig.left_out.contains_key(position);
    for position in (0..torture.nodes).filter(serving) {
        let node = &rig.cluster.nodes[position];
        let (events, violations) = verdict::events_of(&node.client, rig.history.told, last).await?;
        report.violations.extend(violations);
        // The members told this before they forgot it.
        let whole = rig.history.events.clone().into_iter().chain(events).collect::<Events>();
        told.push((node.name.clone(), whole));
    }
    let (first, others) = told.split_first().context("a cluster has members")?;
    report.revisions = first.1.len();
    let (watched, violations) = onlookers.end(&client, last, rig.history.compacted, &first.1).await?;
    report.watched = watched;
    report.violations.extend(violations);
    let (rivalry, violations) = rivals.judge(&first.1);
    report.rivalry = rivalry;
    report.violations.extend(violations);
    report.violations.extend(verdict::compare(&history.changes, &first.1));
    for (name, events) in others {
        let difference = first.1.iter().find(|(revision, event)| events.get(revision) != Some(event));
        if events.len() != first.1.len() || difference.is_some() {
            let what = format!("{} and {name} tell different histories; first {difference:?}", first.0);
            report.violations.push(Violation::of("members are equal", what));
        }
    }
    let hashes = rig.cluster.hashes().await?;
    if hashes.len() + rig.left_out.len() != torture.nodes || hashes.iter().any(|hash| *hash != hashes[0]) {
        report.violations.push(Violation::of("members are equal", format!("their hashes are {hashes:?}")));
    }
    let mut operations = history.operations.clone();
    operations.sort_by_key(|operation| operation.invoked);
    let judged = tokio::task::spawn_blocking(move || hustings_properties::check(&operations)).await?;
    if let Err(nonlinearizable) = judged {
        report.violations.push(Violation::of("linearizable", nonlinearizable.to_string()));
    }
    judge_what_is_written(torture, rig, report)?;
    let passed = &rig.proxies.passed;
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    report.passed = (read(&passed.connections), read(&passed.bytes), read(&passed.hindered), read(&passed.resets));
    report.violations.extend(missing_in(report));
    Ok(())
}

/// What a run has not shown: one that broke nothing, served nobody or never changed its leader has shown nothing (ADR 35).
fn missing_in(report: &Report) -> Vec<Violation> {
    let has = |words: &[&str]| words.iter().any(|word| report.injected.contains_key(*word));
    let hinders = has(&["mute", "cut", "isolate", "partition", "bandwidth"]);
    let rivalry = &report.rivalry;
    let zeroes = [
        (hinders && report.passed.2 == 0, "links were broken, and nothing that passed was hindered"),
        (has(&["disk fail", "disk crash-at"]) && report.expected_ends == 0, "no system call was hit"),
        (report.injected.is_empty(), "no fault was injected"),
        (report.operations.0 == 0, "no operation was served"),
        (report.watched.renewals == 0, "no lease was renewed"),
        (rivalry.tenures.0 == 0, "nobody held the lock"),
        (rivalry.tenures.1 == 0, "nobody won the election"),
        (rivalry.writes == 0, "no holder wrote anything"),
        (rivalry.repeated == 0, "no call was given up and repeated elsewhere"),
        (report.leader_changes == 0, "no leader ever changed"),
        (report.replayed.0 == 0, "no life was played again"),
    ];
    let empty = zeroes.iter().filter(|(is_zero, _)| *is_zero);
    empty.map(|(_, what)| Violation::of("the run shows something", *what)).collect()
}

/// The word under which an act is counted: its first one, and of a disk what goes wrong with it.
fn word_of(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        ["disk", _, fault, ..] => format!("disk {fault}"),
        [word, ..] => word.to_string(),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::Rivalry;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn convicted(report: &Report) -> Vec<&'static str> {
        report.violations.iter().map(|violation| violation.property).collect()
    }

    /// Goal: a life that this build cannot play does not vanish. Method: the answer of a replay that played one life of two, and ended with 1;
    /// then one that ended with 0.
    #[test]
    fn a_replay_that_ends_with_an_error_is_a_finding() {
        let stdout =
            concat!(r#"{"kind":"Replay","member":"n1","end":"same"}"#, "\n", r#"{"kind":"Judgement","violations":[]}"#);
        let judged = |code: i32, stderr: &str| {
            let mut report = Report::default();
            let status = ExitStatus::from_raw(code << 8);
            let played = Output { status, stdout: stdout.into(), stderr: stderr.into() };
            judge_replay(&played, &[], &mut report);
            assert_eq!(report.replayed, (1, 0));
            report
        };
        let failed = judged(1, "these lives cannot be played by this build: n2, process 7");
        assert_eq!(convicted(&failed), ["all lives are played again"]);
        assert!(failed.violations[0].what.contains("n2, process 7"), "{failed:?}");
        assert_eq!(convicted(&judged(0, "")), [""; 0]);
    }

    /// Goal: a run of whose recordings nothing could be played again has not shown that they can. Method: a report with something of
    /// everything, and one without lives.
    #[test]
    fn a_run_in_which_no_life_was_played_again_shows_nothing() {
        let mut report = Report {
            injected: [("crash".to_owned(), 1)].into(),
            operations: (1, 0, 0),
            leader_changes: 1,
            rivalry: Rivalry { tenures: (1, 1), writes: 1, repeated: 1, ..Rivalry::default() },
            replayed: (1, 0),
            ..Report::default()
        };
        report.watched.renewals = 1;
        let missing =
            |report: &Report| missing_in(report).into_iter().map(|violation| violation.what).collect::<Vec<_>>();
        assert_eq!(missing(&report), [""; 0]);
        report.replayed = (0, 3);
        assert_eq!(missing(&report), ["no life was played again"]);
    }
}
