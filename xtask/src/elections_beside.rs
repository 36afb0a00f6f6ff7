//! `cargo xtask elections-beside`: how soon a released election is led again, beside each store's own client.
//!
//! ```text
//!   holder leads ─ SIGTERM ─► it releases and ends      ┐ the same for ours and for the store's own client,
//!                  └───────────────► successor's line   ┘ in turns, at the same servers
//! ```
//!
//! All candidates are processes of their own, so what is measured is what an operator sees: from the signal to the line that
//! the successor writes. etcd is that of `HUSTINGS_TEST_ETCD_DIR`; ZooKeeper, Consul and PostgreSQL are those of the tests;
//! Curator comes from Maven Central; with `--kubernetes`, client-go and the API server come from the Go module proxy.

use crate::chore::{self, Profile, Surroundings};
use crate::kube_apiserver;
use anyhow::{Context, Result, bail};
use hustings_testbed::{Cluster, Consul, PATIENCE, Postgres, Program, Zookeeper, spawn};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Time that a waiting candidate gets to stand in its queue. Nothing says of a foreign one when it does.
const STANDING: Duration = Duration::from_secs(2);
const LEADS: &str = "echo leads; exec sleep 1000";

/// A way to be a candidate.
struct Side {
    name: &'static str,
    command: Box<dyn Fn(&str) -> Command>,
    /// Words that it writes when it leads.
    sign: &'static str,
}

impl Side {
    fn new(name: &'static str, sign: &'static str, command: impl Fn(&str) -> Command + 'static) -> Side {
        Side { name, command: Box::new(command), sign }
    }
}

struct Candidate {
    process: Child,
    lines: Receiver<(String, Instant)>,
}

impl Candidate {
    fn start(command: &mut Command) -> Result<Candidate> {
        let mut process = spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()))
            .with_context(|| format!("{command:?} does not start"))?;
        let out = process.stdout.take().context("it is piped")?;
        let (told, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.for_each(|line| drop(told.send((line, Instant::now()))));
        });
        Ok(Candidate { process, lines })
    }

    /// Waits for a line with these words; gives its moment.
    fn wrote(&self, words: &str) -> Result<Instant> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok((line, at)) if line.contains(words) => return Ok(at),
                Ok(_) => {}
                Err(_) => bail!("no line with {words:?} within {PATIENCE:?}"),
            }
        }
    }

    fn ask_to_end(&self) -> Result<()> {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).context("a process has a number")?;
        Ok(kill_process(pid, Signal::TERM)?)
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // One that has ended already is as dead as it gets.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the chore: `[--rounds N] [--only STORE] [--kubernetes] [--dev]`.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let usage = || "usage: cargo xtask elections-beside [--rounds N] [--only STORE] [--kubernetes] [--dev]".to_owned();
    let (mut rounds, mut profile, mut kubernetes, mut only) = (7, Profile::Release, false, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--dev" => profile = Profile::Dev,
            "--kubernetes" => kubernetes = true,
            "--only" => only = Some(rest.next().ok_or_else(usage)?.to_lowercase()),
            "--rounds" => rounds = rest.next().and_then(|count| count.parse().ok()).ok_or_else(usage)?,
            _ => return Err(usage()),
        }
    }
    profile.build(&["-p", "hustings", "--bins"])?;
    let curator = curator(&chore::target().join("curator"))?;
    let apiserver = if kubernetes { Some(kube_apiserver::built(kube_apiserver::VERSION)?) } else { None };
    let stores = Stores { hustings: profile.folder().join("hustings"), curator, apiserver, rounds, only };
    let surroundings = Surroundings::begin(profile);
    chore::block_on(1, stores.compare())?;
    println!("{}", surroundings.told());
    Ok(())
}

/// Candidates by Curator's recipes: a class each.
const CURATOR: [&str; 2] = ["Latch", "Selector"];

/// Fetches Curator and compiles the candidates, where they are not there yet. Gives their class path.
fn curator(folder: &Path) -> Result<String, String> {
    let sources = chore::root().join("xtask/elections-beside");
    let jars = folder.join("jars");
    let class_path = format!("{}:{}/*", folder.display(), jars.display());
    if CURATOR.iter().all(|class| folder.join(format!("{class}.class")).exists()) {
        return Ok(class_path);
    }
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut fetch = Command::new("mvn");
    fetch.args(["-q", "-B", "dependency:copy-dependencies", "-f"]).arg(sources.join("pom.xml"));
    chore::run(fetch.arg(format!("-DoutputDirectory={}", jars.display())))?;
    let mut compile = Command::new("javac");
    compile.args(["-cp", &class_path, "-d"]).arg(folder);
    chore::run(compile.args(CURATOR.map(|class| sources.join(format!("{class}.java")))))?;
    Ok(class_path)
}

struct Stores {
    hustings: PathBuf,
    curator: String,
    apiserver: Option<PathBuf>,
    rounds: usize,
    /// The only store that is looked at, in small letters.
    only: Option<String>,
}

impl Stores {
    async fn compare(&self) -> Result<()> {
        println!("{} rounds each, in turns; median (least to most)", self.rounds);
        if self.wants("hustings") {
            let cluster = Cluster::start(Program::hustings(&self.hustings), 3).await?;
            let url = format!("hustings://{}/billing", hosts(&cluster));
            self.hand_over("Hustings", &[self.elect(&url), etcdctl(&cluster)?])?;
        }
        if self.wants("etcd") {
            let cluster = Cluster::start(Program::etcd(etcd_directory()?.join("etcd")), 3).await?;
            let url = format!("etcd://{}/billing", hosts(&cluster));
            self.hand_over("etcd", &[self.elect(&url), etcdctl(&cluster)?])?;
        }
        if self.wants("zookeeper") {
            let ensemble = Zookeeper::start(3, Duration::from_millis(500), "").await?;
            let hosts = ensemble.hosts();
            let ours = self.elect(&format!("zookeeper://{hosts}/billing"));
            let latch = self.curator("Curator's LeaderLatch", "Latch", &hosts, "/latch");
            let selector = self.curator("Curator's LeaderSelector", "Selector", &hosts, "/selector");
            // The latch's entries are named as ours, so both may stand for one election.
            let rival = self.curator("Curator's LeaderLatch", "Latch", &hosts, "/billing");
            self.hand_over("ZooKeeper", &[ours, latch, selector])?;
            let ours = self.elect(&format!("zookeeper://{hosts}/billing"));
            self.take_turns("ZooKeeper", &ours, &rival)?;
        }
        if self.wants("consul") {
            let consul = Consul::start("").await?;
            let host = consul.host();
            let lock = Side::new("consul lock", "leads", {
                let host = host.clone();
                move |_| {
                    let mut command = Command::new(Consul::program());
                    command.args(["lock", &format!("-http-addr={host}"), "lock", LEADS]);
                    command
                }
            });
            let url = format!("consul://{host}/billing");
            self.hand_over("Consul", &[self.elect(&url), self.run(&url), lock])?;
        }
        if self.wants("postgresql") {
            let server = Postgres::start(&[])?;
            let url = server.url("billing");
            self.hand_over("PostgreSQL", &[self.elect(&url)])?;
        }
        if let Some(folder) = &self.apiserver {
            let cluster = Cluster::start(Program::hustings(&self.hustings), 3).await?;
            let (_server, kubeconfig) = kube_apiserver::serve(&cluster, folder, &self.hustings).await?;
            let ours = self.elect("kubernetes:///default");
            let with_config = kubeconfig.clone();
            let ours = Side::new(ours.name, ours.sign, move |id| {
                let mut command = (ours.command)(id);
                command.env("KUBECONFIG", &with_config);
                command
            });
            let program = folder.join("candidate");
            let theirs = Side::new("client-go, retry period 1 s", "leads", move |id| {
                let mut command = Command::new(&program);
                command.arg(&kubeconfig).args(["latch", id, "-"]);
                command
            });
            self.hand_over("Kubernetes", &[ours, theirs])?;
        }
        Ok(())
    }

    fn wants(&self, store: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == store)
    }

    fn elect(&self, url: &str) -> Side {
        self.ours("hustings elect", &["elect", "billing"], url, &[])
    }

    fn run(&self, url: &str) -> Side {
        self.ours("hustings run", &["run", "--election", "billing"], url, &["--", "sh", "-c", LEADS])
    }

    fn ours(
        &self,
        name: &'static str,
        verb: &'static [&'static str],
        url: &str,
        command: &'static [&'static str],
    ) -> Side {
        let (program, url) = (self.hustings.clone(), url.to_owned());
        Side::new(name, "leads", move |id| {
            let mut candidate = Command::new(&program);
            candidate.args(verb).args(["--store", &url, "--id", id]).args(command);
            candidate
        })
    }

    /// A candidate by one of Curator's recipes.
    fn curator(&self, name: &'static str, class: &'static str, hosts: &str, path: &'static str) -> Side {
        let (class_path, hosts) = (self.curator.clone(), hosts.to_owned());
        Side::new(name, "leads", move |id| {
            let mut command = Command::new("java");
            command.args(["-cp", &class_path, class, &hosts, path, id, "10000"]);
            command
        })
    }

    /// One election, for which both stand: each releases to the other in turns.
    fn take_turns(&self, store: &str, ours: &Side, theirs: &Side) -> Result<()> {
        for (holder, successor) in [(theirs, ours), (ours, theirs)] {
            let name = format!("{} after {}", successor.name, holder.name);
            let took: Result<Vec<Duration>> = (0..self.rounds).map(|round| once(holder, successor, round)).collect();
            print(store, &name, took.with_context(|| format!("{store}, {name}"))?);
        }
        Ok(())
    }

    /// Hands over in turns: ours, theirs, ours, and so on.
    fn hand_over(&self, store: &str, sides: &[Side]) -> Result<()> {
        let mut took = vec![Vec::new(); sides.len()];
        for round in 0..self.rounds {
            for (side, took) in sides.iter().zip(&mut took) {
                let one = once(side, side, round).with_context(|| format!("{store}, {}", side.name))?;
                took.push(one);
            }
        }
        for (side, took) in sides.iter().zip(took) {
            print(store, side.name, took);
        }
        Ok(())
    }
}

fn print(store: &str, name: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let (least, median, most) = (took[0], took[took.len() / 2], took[took.len() - 1]);
    println!("  {store:<11} {name:<42} {median:>9.1?}  ({least:.1?} to {most:.1?})");
}

/// One holder is told to end; how soon the one that waited says that it leads.
fn once(holds: &Side, follows: &Side, round: usize) -> Result<Duration> {
    let holder = Candidate::start(&mut (holds.command)(&format!("holder-{round}")))?;
    holder.wrote(holds.sign).context("the holder")?;
    let successor = Candidate::start(&mut (follows.command)(&format!("successor-{round}")))?;
    std::thread::sleep(STANDING);
    if successor.lines.try_iter().any(|(line, _)| line.contains(follows.sign)) {
        bail!("two lead");
    }
    let asked = Instant::now();
    holder.ask_to_end()?;
    let leads = successor.wrote(follows.sign).context("the successor")?;
    // It releases too, so that the next round finds nobody.
    successor.ask_to_end()?;
    for mut candidate in [holder, successor] {
        candidate.process.wait()?;
    }
    Ok(leads.saturating_duration_since(asked))
}

fn hosts(cluster: &Cluster) -> String {
    let urls = cluster.endpoints();
    urls.iter().map(|url| url.trim_start_matches("http://")).collect::<Vec<_>>().join(",")
}

fn etcd_directory() -> Result<PathBuf> {
    let named = std::env::var_os("HUSTINGS_TEST_ETCD_DIR");
    Ok(named.context("HUSTINGS_TEST_ETCD_DIR names no directory with etcd and etcdctl")?.into())
}

fn etcdctl(cluster: &Cluster) -> Result<Side> {
    let (program, endpoints) = (etcd_directory()?.join("etcdctl"), cluster.endpoints().join(","));
    Ok(Side::new("etcdctl elect", "successor-or-holder", move |id| {
        let mut command = Command::new(&program);
        command.args(["--endpoints", &endpoints, "elect", "billing-etcdctl", &format!("successor-or-holder-{id}")]);
        command.env("ETCDCTL_API", "3");
        command
    }))
}
