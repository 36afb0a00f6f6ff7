//! `cargo xtask replays`: recordings of clusters that are tormented, played again.
//!
//! ```text
//!   three members, a writer ── kill -9, SIGSTOP, SIGTERM, of leader and followers in turns ──► the ring of each
//!   hustings replay of all rings of a run ──► each life says what it said, and no two facts contradict each other
//! ```

use crate::chore::{self, Profile};
use anyhow::{Context, Result, ensure};
use hustings_api::Client;
use hustings_testbed::{Cluster, Program, put, wait_for};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PROTOCOLS: [&str; 5] = ["raft", "gmt2000", "blazingmq", "zab", "paxos"];
/// Acknowledged writes between two faults.
const WRITES: u64 = 100;
/// Time for which a process stands still.
const PAUSE: Duration = Duration::from_millis(700);

/// A fault of one member, which is itself again when the next one comes.
#[derive(Clone, Copy, Debug)]
enum Fault {
    LeaderKilled,
    FollowerKilled,
    LeaderPaused,
    LeaderStopped,
    FollowerPaused,
}

const FAULTS: [Fault; 5] =
    [Fault::LeaderKilled, Fault::FollowerPaused, Fault::LeaderPaused, Fault::FollowerKilled, Fault::LeaderStopped];

/// Runs the chore: `[--runs N] [--dev]`.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let usage = || "usage: cargo xtask replays [--runs N] [--dev]".to_owned();
    let (mut runs, mut profile) = (3, Profile::Release);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--dev" => profile = Profile::Dev,
            "--runs" => runs = rest.next().and_then(|count| count.parse().ok()).ok_or_else(usage)?,
            _ => return Err(usage()),
        }
    }
    profile.build(&["-p", "hustings", "--bins"])?;
    chore::block_on(2, replay_all(&profile.folder().join("hustings"), runs))
}

async fn replay_all(binary: &Path, runs: usize) -> Result<()> {
    let mut all = 0;
    for protocol in PROTOCOLS {
        let (mut lives, mut inputs) = (0, 0);
        for run in 0..runs {
            let program = Program::hustings(binary).with(&["--protocol", protocol, "--snapshot-count", "1000"]);
            let mut cluster = Cluster::start(program, 3).await?;
            let replayed = match torment(&mut cluster, run).await {
                Ok(()) => replay(binary, &cluster),
                Err(error) => Err(error),
            };
            if replayed.is_err() {
                eprintln!("what was left of the cluster: {}", cluster.directory().display());
                cluster.keep();
            }
            let (of_run, told) = replayed.with_context(|| format!("{protocol}, run {run}"))?;
            lives += of_run;
            inputs += told;
        }
        println!("{protocol:9} {runs} runs, {lives} lives, {inputs} inputs: all of them said the same again");
        all += lives;
    }
    println!("{all} of {all} recordings were played again, and no two facts contradict each other");
    Ok(())
}

/// Draws faults while somebody writes; at the end all members have ended as they are told to.
async fn torment(cluster: &mut Cluster, run: usize) -> Result<()> {
    let (is_over, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writer = tokio::spawn(write(cluster.endpoints(), is_over.clone(), written.clone()));
    let outcome = strike_all(cluster, run, &written).await;
    is_over.store(true, Ordering::Relaxed);
    writer.await?;
    outcome?;
    for position in 0..cluster.nodes.len() {
        cluster.terminate(position)?;
    }
    Ok(())
}

async fn strike_all(cluster: &mut Cluster, run: usize, written: &AtomicU64) -> Result<()> {
    for fault in FAULTS.iter().cycle().skip(run).take(FAULTS.len()) {
        let before = written.load(Ordering::Relaxed);
        wait_for("writes to go on", async || (written.load(Ordering::Relaxed) >= before + WRITES).then_some(()))
            .await?;
        let leader = cluster.leader().await?;
        let follower = (leader + 1 + run % 2) % cluster.nodes.len();
        match fault {
            Fault::LeaderKilled => start_again(cluster, leader, Cluster::kill).await?,
            Fault::FollowerKilled => start_again(cluster, follower, Cluster::kill).await?,
            Fault::LeaderStopped => {
                cluster.terminate(leader)?;
                start_again(cluster, leader, |_, _| {}).await?;
            }
            Fault::LeaderPaused => pause(cluster, leader).await?,
            Fault::FollowerPaused => pause(cluster, follower).await?,
        }
    }
    Ok(())
}

async fn start_again(cluster: &mut Cluster, position: usize, end: impl Fn(&mut Cluster, usize)) -> Result<()> {
    end(cluster, position);
    cluster.start_node(position)?;
    cluster.wait_until_serving(position).await
}

async fn pause(cluster: &Cluster, position: usize) -> Result<()> {
    cluster.nodes[position].pause()?;
    tokio::time::sleep(PAUSE).await;
    cluster.nodes[position].resume()?;
    cluster.wait_until_serving(position).await
}

/// Writes one key after the other; what a member that goes down does not answer is not asked again.
async fn write(endpoints: Vec<String>, is_over: Arc<AtomicBool>, written: Arc<AtomicU64>) {
    let mut position = 0;
    while !is_over.load(Ordering::Relaxed) {
        position += 1;
        let Ok(client) = Client::connect(&[&endpoints[position % endpoints.len()]]).await else { continue };
        while !is_over.load(Ordering::Relaxed) {
            let number = written.load(Ordering::Relaxed);
            let (key, value) = (format!("key/{}", number % 100), number.to_string());
            match tokio::time::timeout(Duration::from_secs(3), put(&client, &key, &value)).await {
                Ok(Ok(_)) => written.fetch_add(1, Ordering::Relaxed),
                _ => break,
            };
        }
    }
}

/// Plays all rings of a cluster again; gives the number of lives, and of what they were told.
fn replay(binary: &Path, cluster: &Cluster) -> Result<(u64, u64)> {
    let rings = cluster.nodes.iter().map(|node| &node.data_dir);
    let output = Command::new(binary).args(["replay", "-o", "json"]).args(rings).output().context("hustings replay")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (mut ends, mut inputs) = (BTreeMap::<String, u64>::new(), 0);
    for line in said.lines() {
        let told: serde_json::Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        if told["kind"] == "Replay" {
            *ends.entry(told["end"].as_str().unwrap_or("?").to_owned()).or_default() += 1;
            inputs += told["inputs"].as_u64().unwrap_or(0);
        }
    }
    let lives = ends.get("same").copied().unwrap_or(0);
    let is_clean = output.status.success() && ends.len() == 1 && lives >= 3;
    ensure!(is_clean, "{ends:?}\n{said}{}", String::from_utf8_lossy(&output.stderr));
    Ok((lives, inputs))
}
