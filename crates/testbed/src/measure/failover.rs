//! How long a cluster is gone when its leader goes: [`run`].
//!
//! A driver that is connected to the survivors writes one key after the other; the gap is the time from the end of the leader to the next
//! acknowledged write that was begun after it. Every acknowledged write is read back at the end. Clusters of several programs stand beside
//! each other, and each round strikes them in turn: they share every minute of the machine.

use crate::crowd::{Crowd, Sizes};
use crate::namespaces::Namespaces;
use crate::store::{bench, fill};
use anyhow::{Context, Result, bail};
use comfy_table::{Table, presets};
use hustings_api::Client;
use hustings_console::usage::Usage;
use hustings_testbed::{Cluster, Program, get, put};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The end of a leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// `kill -9`: the kernel ends it.
    Kill,
    /// SIGTERM: it is asked to stop.
    Term,
    /// SIGSTOP: it stands still, and its kernel goes on.
    Stop,
    /// SIGABRT, in which a panic ends.
    Panic,
    /// Its cable is pulled: nobody hears a word of its end.
    Silent,
}

impl End {
    /// The words of the command line.
    pub(crate) const WORDS: [&'static str; 5] = ["kill", "term", "stop", "panic", "silent"];

    /// The end that a word of [`End::WORDS`] stands for.
    pub(crate) fn named(word: &str) -> End {
        match word {
            "kill" => End::Kill,
            "term" => End::Term,
            "stop" => End::Stop,
            "panic" => End::Panic,
            _ => End::Silent,
        }
    }
}

/// The measurement, as its flags describe it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    /// The hustings that fills stores.
    pub(crate) binary: &'a str,
    pub(crate) times: u32,
    /// Peace before each end.
    pub(crate) rest: Duration,
    /// Keys that the store holds before, with values of 256 bytes.
    pub(crate) keys: u32,
    /// Writes since the last snapshot; 0 leaves snapshots alone.
    pub(crate) entries: u32,
    pub(crate) crowd: Sizes,
    pub(crate) end: End,
}

/// A cluster that is struck, and what was seen.
struct Subject {
    name: String,
    cluster: Cluster,
    crowd: Crowd,
    gaps: Vec<Duration>,
    acknowledged: Vec<(String, String)>,
}

/// Strikes each program's cluster so often, and tells.
///
/// # Errors
/// A cluster does not start or come back, or an acknowledged write is missing.
pub(crate) async fn run(programs: Vec<(&str, Program)>, plan: Plan<'_>) -> Result<()> {
    if plan.end == End::Silent {
        // They would share the namespaces.
        for program in programs {
            let namespaces = Namespaces::make(3)?;
            measure(vec![program], plan, Some(namespaces)).await?;
        }
        return Ok(());
    }
    measure(programs, plan, None).await
}

async fn measure(programs: Vec<(&str, Program)>, plan: Plan<'_>, namespaces: Option<Namespaces>) -> Result<()> {
    let mut subjects = Vec::new();
    for (name, program) in programs {
        subjects.push(Subject::prepare(name, program, plan, namespaces.as_ref()).await?);
    }
    let before = Usage::now(&BTreeSet::new());
    let mut syncs = Vec::new();
    for round in 0..plan.times {
        for subject in &mut subjects {
            tokio::time::sleep(plan.rest).await;
            if round % 10 == 0 {
                syncs.push(median_sync(subject.cluster.directory())?);
            }
            subject.strike(round, plan.end, namespaces.as_ref()).await?;
        }
    }
    let share = Usage::now(&BTreeSet::new()).since(&before).idle_share();
    syncs.sort();
    let Sizes { watchers, leases, connections } = plan.crowd;
    println!(
        "{:?} × {}: {} keys, {} entries since a snapshot, {watchers} watchers, {leases} leases, {connections} connections; \
         median sync {:.2} ms, cpu idle {:.0} %",
        plan.end,
        plan.times,
        plan.keys,
        plan.entries,
        ms(syncs[syncs.len() / 2]),
        share * 100.0
    );
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["system", "median, ms", "p90", "worst", "of the last one's median", "acknowledged and lost"]);
    let last = subjects.last_mut().map(|subject| subject.at(0.5)).context("somebody is measured")?;
    let mut lost_of_all = 0;
    for subject in &mut subjects {
        let lost = subject.lost().await?;
        lost_of_all += lost;
        table.add_row([
            subject.name.clone(),
            format!("{:.2}", subject.at(0.5)),
            format!("{:.2}", subject.at(0.9)),
            format!("{:.2}", subject.at(1.0)),
            format!("{:.3}", subject.at(0.5) / last),
            lost.to_string(),
        ]);
    }
    println!("{table}");
    if lost_of_all > 0 {
        bail!("{lost_of_all} acknowledged writes are missing");
    }
    Ok(())
}

impl Subject {
    async fn prepare(name: &str, program: Program, plan: Plan<'_>, namespaces: Option<&Namespaces>) -> Result<Subject> {
        // More entries than anybody writes: no snapshot is due.
        let program = if plan.entries > 0 { program.with(&["--snapshot-count", "1000000000"]) } else { program };
        let mut cluster = match namespaces {
            Some(namespaces) => Cluster::prepare_at(program, namespaces.places())?,
            None => Cluster::prepare(program, 3)?,
        };
        for position in 0..3 {
            cluster.start_node(position)?;
        }
        for position in 0..3 {
            cluster.wait_until_serving(position).await?;
        }
        if plan.keys > 0 {
            fill(&cluster, plan.binary, plan.keys).await?;
        }
        if plan.entries > 0 {
            let entries = plan.entries.to_string();
            // Small values: a snapshot is due after 64 MiB of commands, too.
            let words = ["put", "--keys", "1000", "--total", &entries, "--value-size", "16", "--clients", "256"];
            let words = [&words[..], &["--warm-up", "0s"]].concat();
            bench(&cluster, plan.binary, &words).await?;
        }
        let crowd = Crowd::at(&cluster, plan.crowd).await?;
        Ok(Subject { name: name.to_owned(), cluster, crowd, gaps: Vec::new(), acknowledged: Vec::new() })
    }

    /// Ends the leader, waits for the next acknowledged write, and makes the cluster whole again.
    async fn strike(&mut self, round: u32, end: End, namespaces: Option<&Namespaces>) -> Result<()> {
        let cluster = &mut self.cluster;
        let leader = cluster.leader().await?;
        // Connected before the end, to both survivors; each write goes to one, and to the other if it fails.
        let mut drivers = Vec::new();
        for survivor in (0..3).filter(|position| *position != leader) {
            let client = Client::connect(&[&cluster.nodes[survivor].client]).await?;
            put(&client, "warm", "up").await.context("a survivor must serve before the leader goes")?;
            drivers.push(client);
        }
        let begun = Instant::now();
        match (end, namespaces) {
            (End::Kill, _) => cluster.nodes[leader].signal(Signal::KILL),
            (End::Term, _) => cluster.nodes[leader].signal(Signal::TERM),
            (End::Panic, _) => cluster.nodes[leader].signal(Signal::ABORT),
            (End::Stop, _) => cluster.nodes[leader].pause()?,
            (End::Silent, Some(namespaces)) => namespaces.unplug(leader)?,
            (End::Silent, None) => bail!("a silent end takes namespaces"),
        }
        let key = format!("round/{round}");
        let mut attempt = 0;
        let value = loop {
            let value = format!("{attempt}");
            let asked = put(&drivers[attempt % drivers.len()], &key, &value);
            match tokio::time::timeout(Duration::from_secs(10), asked).await {
                Ok(Ok(_)) => break value,
                Ok(Err(_)) | Err(_) if begun.elapsed() < Duration::from_secs(30) => attempt += 1,
                _ => bail!("no write was acknowledged for thirty seconds"),
            }
        };
        self.gaps.push(begun.elapsed());
        self.acknowledged.push((key, value));
        match (end, namespaces) {
            (End::Stop, _) => {
                cluster.nodes[leader].resume()?;
                return cluster.wait_until_serving(leader).await;
            }
            (End::Term, _) => drop(cluster.wait_for_end(leader)?),
            (_, namespaces) => {
                cluster.kill(leader);
                namespaces.map_or(Ok(()), |namespaces| namespaces.plug(leader))?;
            }
        }
        cluster.start_node(leader)?;
        cluster.wait_until_serving(leader).await?;
        self.crowd.come_back(&self.cluster, leader).await
    }

    /// Number of acknowledged writes that are not there any more.
    async fn lost(&self) -> Result<u32> {
        let client = Client::connect(&self.cluster.endpoints()).await?;
        let mut lost = 0;
        for (key, value) in &self.acknowledged {
            // A write whose first answer was lost may have been overtaken by its own repetition, never by an older one.
            let found = get(&client, key).await?.map(|(value, _)| value);
            lost += u32::from(found.as_ref() != Some(value));
        }
        Ok(lost)
    }

    /// The gap, ms, that this share of all does not exceed.
    fn at(&mut self, share: f64) -> f64 {
        self.gaps.sort();
        let position = (self.gaps.len().saturating_sub(1) as f64 * share).round() as usize;
        self.gaps.get(position).map_or(f64::NAN, |gap| ms(*gap))
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// The median time of a 4 KiB overwrite and its sync in `directory`, the floor under every election.
fn median_sync(directory: &Path) -> Result<Duration> {
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
