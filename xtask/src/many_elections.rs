//! `cargo xtask many-elections`: ten thousand elections, each stood for by three of thirty processes.
//!
//! ```text
//!   ten services × three replicas, 1,000 elections each ──► a cluster of three: what does it cost at rest?
//!   one replica is killed                               ──► when are all its elections held again?
//! ```
//!
//! Then the same by client-go's pattern: [`client_go`].

mod client_go;

use crate::chore::{self, Profile, Surroundings};
use anyhow::{Context, Result};
use hustings_testbed::{Cluster, Program, spawn, wait_for};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SERVICES: usize = 10;
const REPLICAS: usize = 3;
/// Time until all are in step.
const SETTLING: Duration = Duration::from_secs(10);
/// Time for which the cluster is looked at.
const REST: Duration = Duration::from_secs(30);
/// A tick of `/proc/PID/stat`, as on every Linux of today.
const TICKS_PER_SECOND: f64 = 100.0;

struct Replica {
    process: Child,
    leads: Arc<AtomicUsize>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        // One that has ended already is as dead as it gets.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the chore: `[--elections N] [--dev]`.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let usage = || "usage: cargo xtask many-elections [--elections N] [--dev]".to_owned();
    let (mut elections, mut profile) = (10_000, Profile::Release);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--dev" => profile = Profile::Dev,
            "--elections" => elections = rest.next().and_then(|count| count.parse().ok()).ok_or_else(usage)?,
            _ => return Err(usage()),
        }
    }
    profile.build(&["-p", "hustings", "--bins"])?;
    profile.build(&["-p", "hustings-election", "--example", "many_elections"])?;
    let surroundings = Surroundings::begin(profile);
    chore::block_on(1, measure(&profile.folder(), elections))?;
    chore::block_on(1, client_go::measure(&profile.folder().join("hustings"), elections))?;
    println!("{}", surroundings.told());
    Ok(())
}

async fn measure(target: &Path, elections: usize) -> Result<()> {
    let cluster = Cluster::start(Program::hustings(target.join("hustings")), 3).await?;
    let hosts: Vec<&str> = cluster.nodes.iter().map(|node| node.client.trim_start_matches("http://")).collect();
    let each = elections / SERVICES;
    let begun = Instant::now();
    let mut replicas = Vec::new();
    for place in 0..SERVICES * REPLICAS {
        // Each replica asks another member first, as a balanced set of services would.
        let mut hosts = hosts.clone();
        hosts.rotate_left(place % 3);
        let url = format!("hustings://{}/service-{}", hosts.join(","), place / REPLICAS);
        replicas.push(start(&target.join("examples/many_elections"), &url, each, place)?);
    }
    let held =
        |replicas: &[Replica]| replicas.iter().map(|replica| replica.leads.load(Ordering::Relaxed)).sum::<usize>();
    patiently("all elections are held", || held(&replicas) == each * SERVICES).await?;
    let keys = each * SERVICES * REPLICAS;
    println!(
        "{} elections, {} candidates in {} processes: all held {:.1?} after the start",
        each * SERVICES,
        keys,
        replicas.len(),
        begun.elapsed()
    );

    tokio::time::sleep(SETTLING).await;
    let before = clients(&replicas);
    watch("at rest, T = 10 s", &cluster).await?;
    let (after, most) = clients(&replicas);
    println!(
        "  a process with {each} candidates: {:.2} % of a core, at most {most:.0} MiB",
        (after - before.0) / REST.as_secs_f64() * 100.0 / replicas.len() as f64
    );

    // The one that leads the most: what it held is what the others have to take over.
    let leads = |place: &usize| replicas[*place].leads.load(Ordering::Relaxed);
    let struck = (0..replicas.len()).max_by_key(leads).context("somebody stands")?;
    let lost = leads(&struck);
    let killed = Instant::now();
    drop(replicas.swap_remove(struck));
    patiently("all are held again", || held(&replicas) == each * SERVICES).await?;
    println!(
        "the process that led the most, {lost} of {each}, was killed: all are held again {:.2?} later",
        killed.elapsed()
    );
    Ok(())
}

/// Waits for longer than tests do: thirty processes begin at once.
async fn patiently(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let mut last = Ok(());
    for _ in 0..10 {
        last = wait_for(what, async || is_so().then_some(())).await;
        if last.is_ok() {
            return Ok(());
        }
    }
    last
}

fn start(program: &Path, url: &str, count: usize, place: usize) -> Result<Replica> {
    let mut command = Command::new(program);
    command.args([url, &count.to_string(), &format!("replica-{place}")]).stdout(Stdio::piped());
    let mut process = spawn(&mut command)?;
    let lines = BufReader::new(process.stdout.take().context("it is piped")?).lines();
    let leads = Arc::new(AtomicUsize::new(0));
    let told = leads.clone();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let count = line.rsplit(' ').next().and_then(|count| count.parse().ok());
            count.into_iter().for_each(|count| told.store(count, Ordering::Relaxed));
        }
        told.store(0, Ordering::Relaxed);
    });
    Ok(Replica { process, leads })
}

struct Look {
    entries: f64,
    calls: f64,
    nodes: Vec<Usage>,
}

/// Looks at the cluster for a while, and prints what it did and what that cost.
async fn watch(what: &str, cluster: &Cluster) -> Result<()> {
    let before = Look::at(cluster)?;
    tokio::time::sleep(REST).await;
    let after = Look::at(cluster)?;
    let seconds = REST.as_secs_f64();
    println!(
        "{what}: {:.1} entries a second, {:.1} calls a second",
        (after.entries - before.entries) / seconds,
        (after.calls - before.calls) / seconds
    );
    for (node, (before, after)) in cluster.nodes.iter().zip(before.nodes.iter().zip(&after.nodes)) {
        let share = (after.processor_seconds - before.processor_seconds) / seconds * 100.0;
        println!("  {}: {share:.2} % of a core, {:.0} MiB, {:.0} of them its own", node.name, after.mib, after.own_mib);
    }
    Ok(())
}

impl Look {
    fn at(cluster: &Cluster) -> Result<Look> {
        let hosts: Vec<&str> = cluster.nodes.iter().map(|node| node.client.trim_start_matches("http://")).collect();
        let calls = hosts.iter().filter_map(|host| metric(host, "grpc_server_handled_total")).sum();
        let entries = metric(hosts[0], "etcd_server_proposals_applied_total").context("it is told")?;
        let nodes: Option<Vec<_>> = cluster.nodes.iter().map(|node| usage(node.pid()?)).collect();
        Ok(Look { entries, calls, nodes: nodes.context("nodes run")? })
    }
}

/// Seconds of a processor of all clients together, and MiB of the largest.
fn clients(replicas: &[Replica]) -> (f64, f64) {
    let clients: Vec<_> = replicas.iter().filter_map(|replica| usage(replica.process.id())).collect();
    (clients.iter().map(|one| one.processor_seconds).sum(), clients.iter().map(|one| one.mib).fold(0.0, f64::max))
}

/// The sum over all labels.
fn metric(host: &str, name: &str) -> Option<f64> {
    let mut stream = TcpStream::connect(host).ok()?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let of = |line: &str| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with([' ', '{']).then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
    };
    text.lines().filter_map(of).reduce(|sum, value| sum + value)
}

/// The cost of a process so far.
struct Usage {
    processor_seconds: f64,
    /// MiB in memory: its own, and pages of the program's file and of the recorder's.
    mib: f64,
    own_mib: f64,
}

fn usage(pid: u32) -> Option<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok().map(|kibibytes| kibibytes / 1_024.0)
    };
    Some(Usage { processor_seconds: ticks / TICKS_PER_SECOND, mib: mib("VmRSS:")?, own_mib: mib("RssAnon:")? })
}
