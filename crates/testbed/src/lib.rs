//! Real processes on one machine, for tests and measurements: [`Cluster`].
//!
//! Runs `hustings serve` or, with the same words, a real etcd, so that both can be measured by one driver in one minute.
//! Every wait is for a condition with a deadline; nothing here guesses how long something takes.

use anyhow::{Context, Result, bail};
use hustings_api::Client;
use hustings_api::etcdserverpb::{HashKvRequest, PutRequest, RangeRequest, StatusRequest};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

mod cable;
mod consul;
mod fake_etcd;
mod fake_kube;
mod ports;
mod postgres;
mod process;
mod zookeeper;

pub mod probes;

pub use cable::Cable;
pub use consul::Consul;
pub use fake_etcd::{Call, FakeEtcd};
pub use fake_kube::{FakeKube, Faults};
pub use ports::{free_listener, free_port, free_ports, spawn};
pub use postgres::Postgres;
pub use process::{Process, memory_mib};
pub use zookeeper::Zookeeper;

/// Time that a condition may take to come true.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The secret that the members of every cluster of tests know.
pub const SECRET: &str = "known to the members of a test";

/// Where a node runs.
#[derive(Clone, Debug)]
pub struct Place {
    /// The host of its addresses.
    pub host: String,
    /// The program that starts it there, with its arguments; empty where none is needed. It becomes the node: the process stays the same.
    pub runner: Vec<String>,
}

impl Place {
    /// This machine, by its loopback address.
    pub fn here() -> Place {
        Place { host: "127.0.0.1".to_owned(), runner: Vec::new() }
    }
}

/// A program to run as a node.
#[derive(Clone, Debug)]
pub struct Program {
    /// Path of the binary.
    pub path: PathBuf,
    /// Whether it is a real etcd.
    pub is_etcd: bool,
    /// Further arguments of every node.
    pub arguments: Vec<String>,
}

impl Program {
    /// `hustings serve` of this binary.
    pub fn hustings(path: impl Into<PathBuf>) -> Program {
        Program { path: path.into(), is_etcd: false, arguments: Vec::new() }
    }

    /// A real etcd's binary.
    pub fn etcd(path: impl Into<PathBuf>) -> Program {
        Program { path: path.into(), is_etcd: true, arguments: Vec::new() }
    }

    /// Adds further arguments for every node.
    #[must_use]
    pub fn with(mut self, arguments: &[&str]) -> Program {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_string()));
        self
    }
}

/// One node, running or not.
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// URL at which clients reach it.
    pub client: String,
    /// URL at which it hears peers.
    pub peer: String,
    /// URL at which peers are told to reach it: the same, unless something stands between them.
    pub advertised: String,
    /// Directory of its data.
    pub data_dir: PathBuf,
    /// File of its log.
    pub log: PathBuf,
    runner: Vec<String>,
    process: Option<Child>,
}

impl Node {
    /// Its process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Sends a signal to its process.
    ///
    /// # Panics
    /// When the node does not run.
    pub fn signal(&self, signal: Signal) {
        let pid = self.pid().expect("the node runs");
        let pid =
            Pid::from_raw(i32::try_from(pid).expect("process ids are positive")).expect("process ids are not zero");
        kill_process(pid, signal).expect("an own child can be signalled");
    }

    /// SIGSTOP, and no thread of the process runs when this returns: a signal that is sent has not taken effect yet, and a
    /// busy machine may let the process answer for milliseconds more.
    ///
    /// # Panics
    /// When the node does not run.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP);
        // A stopped thread of a process that strace slows down is 't'.
        self.wait_for_threads("stand still", |state| matches!(state, 'T' | 't'))
    }

    /// SIGCONT, and every thread of the process may run again when this returns.
    ///
    /// # Panics
    /// When the node does not run.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT);
        self.wait_for_threads("go on", |state| state != 'T')
    }

    fn wait_for_threads(&self, what: &str, is_so: impl Fn(char) -> bool) -> Result<()> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.pid().context("the node does not run")?));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut states = Vec::new();
            for task in std::fs::read_dir(&tasks)? {
                // A thread that ends while we look has no state.
                states.extend(std::fs::read_to_string(task?.path().join("stat")).ok().and_then(|stat| state_in(&stat)));
            }
            if states.iter().all(|state| is_so(*state)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("waited {PATIENCE:?} in vain for {} to {what}: its threads are {states:?}", self.name);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// The state in a line of `/proc/PID/stat`: what follows the name, which may hold brackets and blanks itself.
fn state_in(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// A cluster of processes; all are killed when it is dropped.
pub struct Cluster {
    /// The nodes, in the order of their names.
    pub nodes: Vec<Node>,
    program: Program,
    directory: TempDir,
}

impl Cluster {
    /// Starts `count` nodes and waits until every one answers a linearizable read.
    pub async fn start(program: Program, count: usize) -> Result<Cluster> {
        let mut cluster = Cluster::prepare(program, count)?;
        for position in 0..count {
            cluster.start_node(position)?;
        }
        for position in 0..count {
            cluster.wait_until_serving(position).await?;
        }
        Ok(cluster)
    }

    /// Chooses ports and directories and starts nothing.
    pub fn prepare(program: Program, count: usize) -> Result<Cluster> {
        Cluster::prepare_at(program, vec![Place::here(); count])
    }

    /// The same with a place for each node.
    pub fn prepare_at(program: Program, places: Vec<Place>) -> Result<Cluster> {
        let directory = tempfile::Builder::new().prefix("hustings-testbed-").tempdir()?;
        let mut nodes = Vec::new();
        for (number, place) in (1..).zip(places) {
            nodes.push(Cluster::node(directory.path(), number, place)?);
        }
        Ok(Cluster { nodes, program, directory })
    }

    fn node(directory: &Path, number: usize, place: Place) -> Result<Node> {
        let name = format!("n{number}");
        let peer = format!("http://{}:{}", place.host, free_port()?);
        Ok(Node {
            client: format!("http://{}:{}", place.host, free_port()?),
            runner: place.runner,
            advertised: peer.clone(),
            peer,
            data_dir: directory.join(&name),
            log: directory.join(format!("{name}.log")),
            name,
            process: None,
        })
    }

    /// Directory of this cluster.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves the directory behind, for a person who wants to know what happened.
    pub fn keep(&mut self) {
        self.directory.disable_cleanup(true);
    }

    /// Nodes that are started from now on run this; those that run go on as they are.
    pub fn use_program(&mut self, program: Program) {
        self.program = program;
    }

    /// The client endpoints of all nodes.
    pub fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.client.clone()).collect()
    }

    /// The endpoints of the nodes that run.
    pub fn live_endpoints(&self) -> Vec<String> {
        self.nodes.iter().filter(|node| node.process.is_some()).map(|node| node.client.clone()).collect()
    }

    fn initial_cluster(&self) -> String {
        let pairs: Vec<String> = self.nodes.iter().map(|node| format!("{}={}", node.name, node.advertised)).collect();
        pairs.join(",")
    }

    /// Starts a node, on what its data directory holds.
    pub fn start_node(&mut self, position: usize) -> Result<()> {
        self.start_node_with(position, &[])
    }

    /// Starts a node with further arguments of its own.
    pub fn start_node_with(&mut self, position: usize, arguments: &[&str]) -> Result<()> {
        let cluster = self.initial_cluster();
        self.start_node_as(position, &cluster, "new", arguments)
    }

    fn start_node_as(&mut self, position: usize, cluster: &str, state: &str, arguments: &[&str]) -> Result<()> {
        let program = self.program.clone();
        let node = &mut self.nodes[position];
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&node.log)?;
        // A variable, which builds that know no secret ignore.
        let secret = self.directory.path().join("cluster-secret");
        if !secret.exists() {
            std::fs::write(&secret, SECRET)?;
        }
        let mut command = match node.runner.split_first() {
            None => Command::new(&program.path),
            Some((runner, arguments)) => {
                let mut command = Command::new(runner);
                command.args(arguments).arg(&program.path);
                command
            }
        };
        if !program.is_etcd {
            command.args(["serve", "--exit-with-parent", "--log-format", "json"]);
        }
        command
            .args(["--name", &node.name, "--data-dir"])
            .arg(&node.data_dir)
            .args(["--listen-client-urls", &node.client, "--advertise-client-urls", &node.client])
            .args(["--listen-peer-urls", &node.peer, "--initial-advertise-peer-urls", &node.advertised])
            .args(["--initial-cluster", cluster, "--initial-cluster-state", state])
            .args(&program.arguments)
            .args(arguments)
            .env("HUSTINGS_CLUSTER_SECRET_FILE", &secret)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = spawn(&mut command).with_context(|| format!("cannot run {}", program.path.display()))?;
        node.process = Some(process);
        Ok(())
    }

    /// Adds a node to the processes (not to the membership) and starts it to join the others.
    pub fn start_joiner(&mut self) -> Result<usize> {
        let number = self.nodes.len() + 1;
        let node = Cluster::node(self.directory.path(), number, Place::here())?;
        self.nodes.push(node);
        Ok(number - 1)
    }

    /// Starts a node that the cluster has added.
    pub fn join(&mut self, position: usize) -> Result<()> {
        self.join_with(position, &[])
    }

    /// Starts a node that the cluster has added, with further arguments of its own.
    pub fn join_with(&mut self, position: usize, arguments: &[&str]) -> Result<()> {
        let cluster = self.initial_cluster();
        self.start_node_as(position, &cluster, "existing", arguments)
    }

    /// `kill -9`, and the process is gone when this returns.
    pub fn kill(&mut self, position: usize) {
        if let Some(mut process) = self.nodes[position].process.take() {
            // One that has ended already is as dead as it gets.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// SIGTERM, and the process is gone when this returns.
    pub fn terminate(&mut self, position: usize) -> Result<()> {
        self.nodes[position].signal(Signal::TERM);
        self.wait_for_end(position).map(drop)
    }

    /// Exit status of a node's process, if it has ended without being asked to; it counts as not running from then on.
    pub fn has_ended(&mut self, position: usize) -> Result<Option<ExitStatus>> {
        let Some(process) = &mut self.nodes[position].process else { return Ok(None) };
        let ended = process.try_wait()?;
        if ended.is_some() {
            self.nodes[position].process = None;
        }
        Ok(ended)
    }

    /// Waits until a node's process ends; gives its exit code.
    pub fn wait_for_end(&mut self, position: usize) -> Result<Option<i32>> {
        let Some(mut process) = self.nodes[position].process.take() else { bail!("the node does not run") };
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = process.try_wait()? {
                return Ok(status.code());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = process.kill();
        bail!("{} did not end within {PATIENCE:?}", self.nodes[position].name)
    }

    /// Waits until a node answers a linearizable read.
    pub async fn wait_until_serving(&self, position: usize) -> Result<()> {
        let endpoint = self.nodes[position].client.clone();
        let what = format!("{} to serve (its log: {})", self.nodes[position].name, self.nodes[position].log.display());
        wait_for(&what, async || {
            let client = Client::connect(&[&endpoint]).await.ok()?;
            let request = RangeRequest { key: "x".into(), ..RangeRequest::default() };
            client.kv().range(request).await.ok().map(drop)
        })
        .await
    }

    /// The position of the leader, once all running nodes that answer agree on one.
    pub async fn leader(&self) -> Result<usize> {
        wait_for("a leader", async || {
            for (position, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.process.is_some()) {
                let client = Client::connect(&[&node.client]).await.ok()?;
                let answer = client.maintenance().status(StatusRequest {}).await.ok()?.into_inner();
                if answer.leader != 0 && answer.header.is_some_and(|header| header.member_id == answer.leader) {
                    return Some(position);
                }
            }
            None
        })
        .await
    }

    /// The store's hash at every running node, once all have applied the same revision.
    pub async fn hashes(&self) -> Result<Vec<(u32, i64)>> {
        wait_for("all nodes to hold the same revision", async || {
            let mut hashes = Vec::new();
            for endpoint in self.live_endpoints() {
                let client = Client::connect(&[&endpoint]).await.ok()?;
                let answer = client.maintenance().hash_kv(HashKvRequest { revision: 0 }).await.ok()?.into_inner();
                hashes.push((answer.hash, answer.header?.revision));
            }
            let revision = hashes.first()?.1;
            hashes.iter().all(|(_, other)| *other == revision).then_some(hashes)
        })
        .await
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for position in 0..self.nodes.len() {
            self.kill(position);
        }
    }
}

/// Asks again and again, a few milliseconds apart, until there is an answer or patience ends.
pub async fn wait_for<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let asked = tokio::time::timeout(Duration::from_secs(5), ask()).await;
        if let Ok(Some(answer)) = asked {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            bail!("waited {PATIENCE:?} in vain for {what}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Writes a key and says whether that was acknowledged.
pub async fn put(client: &Client, key: &str, value: &str) -> Result<i64, tonic::Status> {
    let request = PutRequest { key: key.to_string().into(), value: value.to_string().into(), ..PutRequest::default() };
    let answer = client.kv().put(request).await?.into_inner();
    Ok(answer.header.unwrap_or_default().revision)
}

/// Reads a key, linearizably.
pub async fn get(client: &Client, key: &str) -> Result<Option<(String, i64)>, tonic::Status> {
    let request = RangeRequest { key: key.to_string().into(), ..RangeRequest::default() };
    let answer = client.kv().range(request).await?.into_inner();
    let found = answer.kvs.first().map(|kv| (String::from_utf8_lossy(&kv.value).into_owned(), kv.mod_revision));
    Ok(found)
}
