//! The cost of a store of many keys: memory of a member, its start, and the longest put while snapshots are cut: [`run`].
//!
//! Each round gives each program a cluster of its own, one after the other. Keys are written in their order, as the bench does before it
//! reads; each member is killed and started again in turn; then 64 clients overwrite keys in any order while members cut snapshots and a
//! client saves one.

use crate::compare;
use crate::resources::resident_mib;
use anyhow::{Context, Result, bail};
use comfy_table::{Table, presets};
use hustings_api::Client;
use hustings_api::etcdserverpb::SnapshotRequest;
use hustings_testbed::{Cluster, Node, Program};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time after which a member has given back what it does not need.
const SETTLE: Duration = Duration::from_secs(10);
/// Time for which clients write beside snapshots, in seconds.
const WRITING: &str = "20";

/// The measurements of one cluster.
#[derive(Clone, Copy, Default)]
struct Seen {
    filled_mib: f64,
    start_ms: f64,
    restarted_mib: f64,
    longest_put_ms: f64,
    p99_put_ms: f64,
    snapshots: f64,
    written_mib: f64,
    others_percent: f64,
}

/// Measures each program so often.
///
/// # Errors
/// A cluster does not start, or refuses something.
pub(crate) async fn run(programs: Vec<(&str, Program)>, binary: &str, keys: u32, rounds: u32) -> Result<()> {
    let mut seen: Vec<Vec<Seen>> = programs.iter().map(|_| Vec::new()).collect();
    for round in 1..=rounds {
        for ((name, program), seen) in programs.iter().zip(&mut seen) {
            let one = one(program, binary, keys).await.with_context(|| format!("{name}, round {round}"))?;
            eprintln!("{name}, round {round}: {}", row(&[one]).join("  "));
            seen.push(one);
        }
    }
    println!(
        "{keys} keys with values of 256 bytes, 3 members; medians of {rounds}, the largest or slowest member of each"
    );
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "system",
        "MiB, filled",
        "start, ms",
        "MiB, restarted",
        "longest put, ms",
        "p99 put, ms",
        "snapshots meanwhile",
        "MiB after it",
        "others took, %",
    ]);
    for ((name, _), seen) in programs.iter().zip(&seen) {
        table.add_row([vec![(*name).to_owned()], row(seen)].concat());
    }
    println!("{table}");
    Ok(())
}

/// The medians of all rounds, as cells of a row.
fn row(seen: &[Seen]) -> Vec<String> {
    let median = |of: fn(&Seen) -> f64| {
        let mut all: Vec<f64> = seen.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        compare::median(&all)
    };
    vec![
        format!("{:.0}", median(|seen| seen.filled_mib)),
        format!("{:.0}", median(|seen| seen.start_ms)),
        format!("{:.0}", median(|seen| seen.restarted_mib)),
        format!("{:.1}", median(|seen| seen.longest_put_ms)),
        format!("{:.1}", median(|seen| seen.p99_put_ms)),
        format!("{:.0}", median(|seen| seen.snapshots)),
        format!("{:.0}", median(|seen| seen.written_mib)),
        format!("{:.0}", median(|seen| seen.others_percent)),
    ]
}

async fn one(program: &Program, binary: &str, keys: u32) -> Result<Seen> {
    let mut cluster = Cluster::start(program.clone(), 3).await?;
    fill(&cluster, binary, keys).await?;
    let filled_mib = largest(&cluster).await;

    let mut start_ms: f64 = 0.0;
    for position in 0..3 {
        cluster.kill(position);
        let begun = Instant::now();
        cluster.start_node(position)?;
        cluster.wait_until_serving(position).await?;
        start_ms = start_ms.max(begun.elapsed().as_secs_f64() * 1_000.0);
    }
    let restarted_mib = largest(&cluster).await;

    let before = snapshots(&cluster);
    let keys = keys.to_string();
    let write = ["put", "--seconds", WRITING, "--clients", "64", "--keys", &keys];
    let (report, saved) = tokio::join!(bench(&cluster, binary, &write), save(&cluster));
    let (report, ()) = (report?, saved?);
    // One that was cut and removed again before this look is not counted.
    let cut = snapshots(&cluster).difference(&before).count();
    let number = |field: &str| report[field].as_f64().unwrap_or(f64::NAN);
    Ok(Seen {
        filled_mib,
        start_ms,
        restarted_mib,
        longest_put_ms: number("max_ms"),
        p99_put_ms: number("p99_ms"),
        snapshots: cut as f64,
        written_mib: largest(&cluster).await,
        others_percent: number("cpu_others_share") * 100.0,
    })
}

/// Memory of the largest member, once it is at rest.
async fn largest(cluster: &Cluster) -> f64 {
    tokio::time::sleep(SETTLE).await;
    cluster.nodes.iter().filter_map(Node::pid).map(resident_mib).fold(0.0, f64::max)
}

/// A client saves a snapshot of the leader.
async fn save(cluster: &Cluster) -> Result<()> {
    let leader = cluster.leader().await?;
    let client = Client::connect(&[&cluster.nodes[leader].client]).await?;
    let mut parts = client.maintenance().snapshot(SnapshotRequest {}).await?.into_inner();
    while parts.message().await?.is_some() {}
    Ok(())
}

/// The files of snapshots that the members have.
fn snapshots(cluster: &Cluster) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for node in &cluster.nodes {
        look_for_snapshots(&node.data_dir, &mut found);
    }
    found
}

fn look_for_snapshots(directory: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            look_for_snapshots(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "snap") {
            found.insert(path);
        }
    }
}

/// Writes so many keys in their order, as the bench does before it reads.
pub(crate) async fn fill(cluster: &Cluster, binary: &str, keys: u32) -> Result<()> {
    let keys = keys.to_string();
    let words = ["get", "--seconds", "1", "--warm-up", "0s", "--clients", "256", "--keys", &keys];
    bench(cluster, binary, &words).await.map(drop)
}

/// Runs `hustings bench`, and gives its report.
pub(crate) async fn bench(cluster: &Cluster, binary: &str, words: &[&str]) -> Result<Value> {
    let mut command = std::process::Command::new(binary);
    command.arg("bench").args(words).args(["-o", "json", "--endpoints", &cluster.endpoints().join(",")]);
    // Others of this thread go on meanwhile.
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    if !output.status.success() {
        bail!("the bench failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
