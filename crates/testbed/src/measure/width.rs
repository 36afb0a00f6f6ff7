//! The cost of many leases, watches, connections and watchers of one prefix: [`run`].

use crate::crowd::{self, Crowd, Sizes};
use crate::resources::AtRest;
use crate::store::bench;
use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use hustings_testbed::{Cluster, Node, Program};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tonic::Streaming;

/// Time after which a cluster that was just used is at rest, and time for which it is then looked at.
const SETTLE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_secs(10);
/// Clients that write beside the crowd.
const CLIENTS: &str = "64";

/// The widths that are measured, each in a cluster of its own; 0 leaves one out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Widths {
    pub(crate) leases: u32,
    pub(crate) watches: u32,
    pub(crate) connections: u32,
    /// Keys below one prefix, and watchers of all of it.
    pub(crate) prefix_keys: u32,
    pub(crate) prefix_watchers: u32,
}

/// Measures all of it for each program in turn.
///
/// # Errors
/// A cluster does not start, or refuses something.
pub(crate) async fn run(programs: Vec<(&str, Program)>, binary: &str, widths: Widths) -> Result<()> {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "what",
        "system",
        "MiB a node",
        "bytes each, a node",
        "% of a core at rest",
        "put/s beside it",
        "p99, ms",
        "longest, ms",
        "events/s",
        "others took, %",
    ]);
    let Widths { leases, watches, connections, prefix_keys, prefix_watchers } = widths;
    let nothing = Sizes::default();
    for (name, program) in &programs {
        let none = one(name, program, binary, "nothing", nothing, 0.0).await?;
        told(&mut table, none.1);
        for (count, words, sizes) in [
            (leases, "leases", Sizes { leases, ..nothing }),
            (watches, "watches", Sizes { watchers: watches, ..nothing }),
            (connections, "connections", Sizes { connections, ..nothing }),
        ] {
            if count > 0 {
                told(&mut table, one(name, program, binary, &format!("{count} {words}"), sizes, none.0).await?.1);
            }
        }
        if prefix_watchers > 0 {
            told(&mut table, prefix(name, program, binary, prefix_keys, prefix_watchers).await?);
        }
    }
    println!("{table}");
    Ok(())
}

/// Adds a row, and says it at once: the whole takes minutes.
fn told(table: &mut Table, row: Vec<String>) {
    eprintln!("{}", row.join("  "));
    table.add_row(row);
}

/// One crowd in a cluster of its own: its row, and the memory of its largest node.
async fn one(
    name: &str,
    program: &Program,
    binary: &str,
    what: &str,
    sizes: Sizes,
    before_mib: f64,
) -> Result<(f64, Vec<String>)> {
    let cluster = Cluster::start(program.clone(), 3).await?;
    let crowd = Crowd::at(&cluster, sizes).await?;
    let Sizes { watchers, leases, connections } = sizes;
    // Every node knows all leases; watches and connections are divided.
    let count = f64::from(leases) + f64::from(watchers + connections) / 3.0;
    let rest = AtRest::of(&pids(&cluster), SETTLE, LOOK).await;
    let report = put_beside(&cluster, binary, &[]).await?;
    drop(crowd);
    let each = if count > 0.0 {
        format!("{:.0}", (rest.resident_mib - before_mib) * f64::from(1 << 20) / count)
    } else {
        String::new()
    };
    Ok((rest.resident_mib, row(what, name, rest, &each, &report, None)))
}

/// Keys below one prefix, and watchers of the whole of it, each on a connection of its own.
async fn prefix(name: &str, program: &Program, binary: &str, keys: u32, watchers: u32) -> Result<Vec<String>> {
    let cluster = Cluster::start(program.clone(), 3).await?;
    let keys_word = keys.to_string();
    bench(&cluster, binary, &["get", "--seconds", "1", "--keys", &keys_word]).await?;
    let filled = AtRest::of(&pids(&cluster), SETTLE, LOOK).await;
    let seen = Arc::new(AtomicU64::new(0));
    let mut queues = Vec::new();
    for (_, url) in (0..watchers).zip(cluster.endpoints().iter().cycle()) {
        // The bench's keys.
        let (requests, events) = crowd::watch(url, std::iter::once("bench/".to_owned()), "bench0").await?;
        queues.push(requests);
        tokio::spawn(count(events, seen.clone()));
    }
    let rest = AtRest::of(&pids(&cluster), SETTLE, LOOK).await;
    let before = seen.load(Ordering::Relaxed);
    let report = put_beside(&cluster, binary, &["--keys", &keys_word]).await?;
    let events = seen.load(Ordering::Relaxed) - before;
    let seconds = report["seconds"].as_f64().context("the bench tells how long it ran")?;
    let each = (rest.resident_mib - filled.resident_mib) * f64::from(1 << 20) * 3.0 / f64::from(watchers);
    let what = format!("{watchers} watchers of {keys} keys");
    Ok(row(&what, name, rest, &format!("{each:.0}"), &report, Some(events as f64 / (seconds + 1.0))))
}

async fn count(mut events: Streaming<hustings_api::etcdserverpb::WatchResponse>, seen: Arc<AtomicU64>) {
    while let Ok(Some(answer)) = events.message().await {
        seen.fetch_add(answer.events.len() as u64, Ordering::Relaxed);
    }
}

fn pids(cluster: &Cluster) -> Vec<u32> {
    cluster.nodes.iter().filter_map(Node::pid).collect()
}

/// Five seconds of puts after one of warming up.
async fn put_beside(cluster: &Cluster, binary: &str, words: &[&str]) -> Result<Value> {
    let line = [&["put", "--clients", CLIENTS, "--seconds", "5", "--warm-up", "1s"], words].concat();
    bench(cluster, binary, &line).await
}

fn row(what: &str, name: &str, rest: AtRest, each: &str, report: &Value, events: Option<f64>) -> Vec<String> {
    let number = |field: &str| report[field].as_f64().unwrap_or(f64::NAN);
    vec![
        what.to_owned(),
        name.to_owned(),
        format!("{:.1}", rest.resident_mib),
        each.to_owned(),
        format!("{:.2}", rest.core_percent),
        format!("{:.0}", number("per_second")),
        format!("{:.1}", number("p99_ms")),
        format!("{:.0}", number("max_ms")),
        events.map_or(String::new(), |events| format!("{events:.0}")),
        format!("{:.0}", number("cpu_others_share") * 100.0),
    ]
}
