//! `measure`: how long a cluster is gone when its leader dies, is asked to stop, or falls silent; beside a real etcd.
//!
//! ```text
//!   measure failover --binary target/release/hustings [--etcd PATH] [--times 50] [--signal kill|term|stop]
//! ```
//!
//! A driver that is connected to the survivors writes one key after the other; the gap is the time from the signal to the
//! next acknowledged write that was begun after it. Every acknowledged write is read back at the end.

use anyhow::{Context, Result, bail};
use clap::{Arg, Command, value_parser};
use hustings_api::Client;
use hustings_testbed::{Cluster, Program, get, put};
use rustix::process::Signal;
use std::time::{Duration, Instant};

fn main() -> Result<()> {
    let matches = Command::new("measure")
        .subcommand_required(true)
        .subcommand(
            Command::new("failover")
                .about("Time without service when the leader goes")
                .arg(Arg::new("binary").long("binary").default_value("target/release/hustings"))
                .arg(Arg::new("etcd").long("etcd").help("Measure this etcd too, in the same run"))
                .arg(Arg::new("times").long("times").default_value("50").value_parser(value_parser!(u32)))
                .arg(Arg::new("signal").long("signal").default_value("kill").value_parser(["kill", "term", "stop"]))
                .arg(Arg::new("protocol").long("protocol").default_value("raft")),
        )
        .get_matches();
    let (_, matches) = matches.subcommand().expect("clap requires one");
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let times = *matches.get_one::<u32>("times").expect("it has a default");
    let signal = text("signal").expect("it has a default");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let protocol = text("protocol").expect("it has a default");
        let binary = Program::hustings(text("binary").expect("it has a default")).with(&["--protocol", &protocol]);
        failover("hustings", binary, times, &signal).await?;
        if let Some(path) = text("etcd") {
            failover("etcd", Program::etcd(path), times, &signal).await?;
        }
        Ok(())
    })
}

async fn failover(name: &str, program: Program, times: u32, signal: &str) -> Result<()> {
    let mut cluster = Cluster::start(program, 3).await?;
    let mut gaps = Vec::new();
    let mut acknowledged = Vec::new();
    let idle = Processors::now();
    for round in 0..times {
        let leader = cluster.leader().await?;
        let survivors: Vec<usize> = (0..3).filter(|position| *position != leader).collect();
        // Connected before the signal, to both survivors; each write goes to one, and to the other if it fails.
        let mut drivers = Vec::new();
        for survivor in &survivors {
            let client = Client::connect(&[&cluster.nodes[*survivor].client]).await?;
            put(&client, "warm", "up").await.context("a survivor must serve before the leader goes")?;
            drivers.push(client);
        }
        let begun = Instant::now();
        match signal {
            "kill" => cluster.nodes[leader].signal(Signal::KILL),
            "term" => cluster.nodes[leader].signal(Signal::TERM),
            _ => cluster.nodes[leader].signal(Signal::STOP),
        }
        let key = format!("round/{round}");
        let mut attempt = 0;
        loop {
            let driver = &drivers[attempt % drivers.len()];
            let value = format!("{attempt}");
            match tokio::time::timeout(Duration::from_secs(10), put(driver, &key, &value)).await {
                Ok(Ok(_)) => {
                    acknowledged.push((key, value));
                    break;
                }
                Ok(Err(_)) | Err(_) if begun.elapsed() < Duration::from_secs(30) => attempt += 1,
                _ => bail!("no write was acknowledged for thirty seconds"),
            }
        }
        gaps.push(begun.elapsed());
        match signal {
            "kill" => cluster.kill(leader),
            "term" => drop(cluster.wait_for_end(leader)?),
            _ => {
                cluster.nodes[leader].signal(Signal::CONT);
                cluster.wait_until_serving(leader).await?;
                continue;
            }
        }
        cluster.start_node(leader)?;
        cluster.wait_until_serving(leader).await?;
    }
    let share = Processors::now().idle_share_since(&idle);
    let client = Client::connect(&cluster.endpoints()).await?;
    let mut lost = 0;
    for (key, value) in &acknowledged {
        // A write whose first answer was lost may have been overtaken by its own repetition, never by an older one.
        let found = get(&client, key).await?.map(|(value, _)| value);
        lost += u32::from(found.as_ref() != Some(value));
    }
    gaps.sort();
    let ms = |gap: Duration| gap.as_secs_f64() * 1_000.0;
    let at = |share: f64| ms(gaps[((gaps.len() - 1) as f64 * share).round() as usize]);
    println!(
        "{name:9} SIG{:4} × {times}: median {:.2} ms  p90 {:.2} ms  worst {:.2} ms  acknowledged and lost: {lost}  cpu idle {:.0} %",
        signal.to_uppercase(),
        at(0.5),
        at(0.9),
        ms(*gaps.last().context("at least one round")?),
        share * 100.0
    );
    if lost > 0 {
        bail!("{lost} acknowledged writes are missing");
    }
    Ok(())
}

/// Ticks of all processors, from /proc/stat.
struct Processors {
    idle: u64,
    all: u64,
}

impl Processors {
    fn now() -> Processors {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks: Vec<u64> =
            text.lines().next().unwrap_or_default().split_whitespace().skip(1).filter_map(|tick| tick.parse().ok()).collect();
        Processors { idle: ticks.get(3).copied().unwrap_or(0), all: ticks.iter().sum() }
    }

    fn idle_share_since(&self, before: &Processors) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.idle.saturating_sub(before.idle) as f64 / all as f64
    }
}
