//! `measure`: how long a cluster is gone when its leader dies, is asked to stop, or falls silent; how much it answers; what it
//! costs at rest. Beside a real etcd, in the same run.
//!
//! ```text
//!   measure failover [--binary PATH] [--etcd PATH] [--times 50] [--rest 500] [--keys 0] [--signal kill|term|stop]
//!   measure compare  [--binary PATH] [--etcd PATH] [--zookeeper] [--rounds 5] [--seconds 5] [--loads put:64,get:256] [-o json]
//!   measure idle     [--binary PATH] [--etcd PATH]
//! ```
//!
//! A driver that is connected to the survivors writes one key after the other; the gap is the time from the signal to the
//! next acknowledged write that was begun after it. Every acknowledged write is read back at the end.

use anyhow::{Context, Result, bail};
use clap::{Arg, Command, value_parser};
use compare::{Comparison, Load};
use hustings_api::Client;
use hustings_api::etcdserverpb::watch_request::RequestUnion;
use hustings_api::etcdserverpb::{LeaseGrantRequest, WatchCreateRequest, WatchRequest};
use hustings_console::usage::Usage;
use hustings_testbed::{Cluster, Program, get, put};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

mod compare;
mod drive_zookeeper;

fn main() -> Result<()> {
    let common = |command: Command| {
        command
            .arg(
                Arg::new("binary")
                    .long("binary")
                    .help("The hustings to measure; by default the one beside this program"),
            )
            .arg(Arg::new("etcd").long("etcd").help("Measure this etcd too, in the same run"))
            .arg(
                Arg::new("protocol")
                    .long("protocol")
                    .value_delimiter(',')
                    .default_value("raft")
                    .help("One, or several to lay beside each other"),
            )
    };
    let number = |name: &'static str, default: &'static str| {
        Arg::new(name).long(name).default_value(default).value_parser(value_parser!(u32))
    };
    let matches = Command::new("measure")
        .subcommand_required(true)
        .subcommand(
            common(Command::new("failover").about("Time without service when the leader goes"))
                .arg(number("times", "50"))
                .arg(number("keys", "0").help("Keys that the store holds before, with values of 256 bytes"))
                .arg(
                    number("rest", "500")
                        .help("Milliseconds of peace before each signal: elections in a row wait for each other"),
                )
                .arg(Arg::new("signal").long("signal").default_value("kill").value_parser(["kill", "term", "stop"])),
        )
        .subcommand(compare::arguments(common(
            Command::new("compare").about("Requests per second beside others, alternating, medians"),
        )))
        .subcommand(common(Command::new("idle").about("Memory and processor time of a cluster that nobody uses")))
        .subcommand(drive_zookeeper::command())
        .get_matches();
    let (verb, matches) = matches.subcommand().expect("clap requires one");
    if verb == drive_zookeeper::NAME {
        return drive_zookeeper::run(matches);
    }
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let number = |name: &str| *matches.get_one::<u32>(name).expect("it has a default");
    let protocols: Vec<String> = matches.get_many("protocol").into_iter().flatten().cloned().collect();
    let beside = std::env::current_exe()?.with_file_name("hustings");
    let binary = text("binary").unwrap_or_else(|| beside.display().to_string());
    let title = |name: &'_ String| if protocols.len() > 1 { name.clone() } else { "hustings".into() };
    let titles: Vec<String> = protocols.iter().map(title).collect();
    let mut programs: Vec<(&str, Program)> = titles
        .iter()
        .zip(&protocols)
        .map(|(title, name)| (title.as_str(), Program::hustings(&binary).with(&["--protocol", name.as_str()])))
        .collect();
    programs.extend(text("etcd").map(|path| ("etcd", Program::etcd(path))));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match verb {
            "failover" => {
                let (times, signal) = (number("times"), text("signal").expect("it has a default"));
                let rest = Duration::from_millis(number("rest").into());
                for (name, program) in programs {
                    failover(name, program, &binary, Round { times, rest, keys: number("keys"), signal: &signal })
                        .await?;
                }
            }
            "compare" => {
                let loads = matches.get_many::<Load>("loads").into_iter().flatten().cloned().collect();
                let comparison = Comparison {
                    binary: &binary,
                    programs,
                    with_zookeeper: matches.get_flag("zookeeper"),
                    loads,
                    rounds: number("rounds"),
                    seconds: number("seconds"),
                    value_size: number("value-size"),
                };
                compare::run(comparison, text("output").as_deref() == Some("json")).await?;
            }
            _ => {
                for (name, program) in programs {
                    idle(name, program).await?;
                }
            }
        }
        Ok(())
    })
}

/// A cluster at rest; then with 1,000 watches and 10,000 leases of an hour.
async fn idle(name: &str, program: Program) -> Result<()> {
    let cluster = Cluster::start(program, 3).await?;
    let pids: Vec<u32> = cluster.nodes.iter().filter_map(hustings_testbed::Node::pid).collect();
    let quiet = at_rest(&pids).await;
    println!("{name:9} idle: {quiet}");
    let client = Client::connect(&cluster.endpoints()).await?;
    let mut lease = client.lease();
    for _ in 0..10_000 {
        lease.lease_grant(LeaseGrantRequest { ttl: 3_600, ..LeaseGrantRequest::default() }).await?;
    }
    let (requests, queue) = tokio::sync::mpsc::channel(1_024);
    let mut watch = client.watch();
    let answers = watch.watch(tokio_stream::wrappers::ReceiverStream::new(queue));
    for number in 0..1_000 {
        let create = WatchCreateRequest { key: format!("watched/{number}").into(), ..WatchCreateRequest::default() };
        requests.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await?;
    }
    let mut answers = answers.await?.into_inner();
    for _ in 0..1_000 {
        answers.message().await?.context("the watch stream ended")?;
    }
    let busy = at_rest(&pids).await;
    println!("{name:9} idle with 1,000 watches and 10,000 leases: {busy}");
    Ok(())
}

/// Time after which a cluster that was just used is at rest.
const SETTLE: Duration = Duration::from_secs(15);
/// Time for which it is then looked at.
const REST: Duration = Duration::from_secs(30);

/// Resources that processes use while nobody asks them anything: processor share of one core and memory, the largest of them.
async fn at_rest(pids: &[u32]) -> String {
    // Time of all threads on a processor, nanoseconds: ticks of 10 ms would be a third of what is measured.
    let on_processor = |pid: &u32| {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let of_thread = |thread: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            stat.split(' ').next().and_then(|time| time.parse::<u64>().ok()).unwrap_or(0)
        };
        threads.map(of_thread).sum::<u64>()
    };
    let resident = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("").to_string();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0)
    };
    tokio::time::sleep(SETTLE).await;
    let before: Vec<u64> = pids.iter().map(on_processor).collect();
    tokio::time::sleep(REST).await;
    let used = pids.iter().zip(before).map(|(pid, before)| on_processor(pid).saturating_sub(before)).max().unwrap_or(0);
    let memory = pids.iter().map(resident).max().unwrap_or(0);
    format!(
        "{:.2} % of a core, {:.1} MiB (the largest of the nodes)",
        100.0 * used as f64 / REST.as_nanos() as f64,
        memory as f64 / 1_024.0
    )
}

/// The median time of a 4 KiB overwrite and its sync in `directory`, the floor under every election.
fn median_sync(directory: &std::path::Path) -> Result<Duration> {
    let path = directory.join("probe");
    std::fs::write(&path, vec![0; 1 << 20])?;
    let file = std::fs::OpenOptions::new().write(true).open(&path)?;
    file.sync_all()?;
    let mut times = Vec::new();
    for number in 0..101u64 {
        let begun = Instant::now();
        file.write_all_at(&[1; 4096], number * 4096)?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    times.sort();
    Ok(times[50])
}

/// The fault that is done to a cluster, over and over.
struct Round<'a> {
    times: u32,
    rest: Duration,
    keys: u32,
    signal: &'a str,
}

/// Fills the store, as the bench does before it reads.
fn fill(binary: &str, endpoints: &[String], keys: u32) -> Result<()> {
    let output = std::process::Command::new(binary)
        .args(["bench", "get", "--clients", "256", "--seconds", "1", "--keys", &keys.to_string()])
        .args(["--endpoints", &endpoints.join(",")])
        .output()?;
    if !output.status.success() {
        bail!("the store could not be filled: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

async fn failover(name: &str, program: Program, binary: &str, round: Round<'_>) -> Result<()> {
    let Round { times, rest, keys, signal } = round;
    let mut cluster = Cluster::start(program, 3).await?;
    if keys > 0 {
        fill(binary, &cluster.endpoints(), keys)?;
    }
    let mut gaps = Vec::new();
    let mut acknowledged = Vec::new();
    let mut syncs = Vec::new();
    let before = Usage::now(&BTreeSet::new());
    for round in 0..times {
        tokio::time::sleep(rest).await;
        let leader = cluster.leader().await?;
        if round % 10 == 0 {
            syncs.push(median_sync(cluster.directory())?);
        }
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
            _ => cluster.nodes[leader].pause()?,
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
                cluster.nodes[leader].resume()?;
                cluster.wait_until_serving(leader).await?;
                continue;
            }
        }
        cluster.start_node(leader)?;
        cluster.wait_until_serving(leader).await?;
    }
    let share = Usage::now(&BTreeSet::new()).since(&before).idle_share();
    let client = Client::connect(&cluster.endpoints()).await?;
    let mut lost = 0;
    for (key, value) in &acknowledged {
        // A write whose first answer was lost may have been overtaken by its own repetition, never by an older one.
        let found = get(&client, key).await?.map(|(value, _)| value);
        lost += u32::from(found.as_ref() != Some(value));
    }
    gaps.sort();
    syncs.sort();
    let ms = |gap: Duration| gap.as_secs_f64() * 1_000.0;
    let at = |share: f64| ms(gaps[((gaps.len() - 1) as f64 * share).round() as usize]);
    println!(
        "{name:9} {keys} keys  SIG{:4} × {times}: median {:.2} ms  p90 {:.2} ms  worst {:.2} ms  acknowledged and lost: {lost}  (median sync of this run {:.2} ms, cpu idle {:.0} %)",
        signal.to_uppercase(),
        at(0.5),
        at(0.9),
        ms(*gaps.last().context("at least one round")?),
        ms(syncs[syncs.len() / 2]),
        share * 100.0
    );
    if lost > 0 {
        bail!("{lost} acknowledged writes are missing");
    }
    Ok(())
}
