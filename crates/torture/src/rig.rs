//! Processes, what stands between them and what stands under them: [`Rig`]. It does what a script says.

use crate::disks::Disk;
use crate::operator::Past;
use crate::proxy::{Direction, Proxies};
use crate::script::Act;
use anyhow::{Context, Result, bail};
use hustings_api::Client;
use hustings_api::etcdserverpb::alarm_request::AlarmAction;
use hustings_api::etcdserverpb::{AlarmRequest, AlarmType, StatusRequest};
use hustings_testbed::{Cluster, PATIENCE, Program, wait_for};
use hustings_world::{Command, DiskFault, Target};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time that a member may take to say who leads.
const ASK_TIMEOUT: Duration = Duration::from_millis(300);

/// Time that an operator tries to replace a member before the next fault comes.
const REPLACE_PATIENCE: Duration = Duration::from_secs(2);

/// System calls with which a node writes and syncs.
const WRITES: &str = "fdatasync,pwrite64";

/// Takes every alarm NOSPACE down, as an operator does who has made room; says whether none stood. CORRUPT is not taken down: it
/// is what this program looks for.
async fn disarm(endpoints: &[String]) -> Result<bool> {
    let client = Client::connect(endpoints).await?;
    let ask = AlarmRequest { action: AlarmAction::Get as i32, ..AlarmRequest::default() };
    let mut full = client.maintenance().alarm(ask).await?.into_inner().alarms;
    full.retain(|standing| standing.alarm == AlarmType::Nospace as i32);
    for standing in &full {
        let (action, member_id, alarm) = (AlarmAction::Deactivate as i32, standing.member_id, standing.alarm);
        client.maintenance().alarm(AlarmRequest { action, member_id, alarm }).await?;
    }
    Ok(full.is_empty())
}

/// A cluster that can be broken; processes end and disks are unmounted when it is dropped.
pub struct Rig {
    /// Processes of the cluster.
    pub cluster: Cluster,
    /// Proxies between the members.
    pub proxies: Proxies,
    pub(crate) disks: Vec<Disk>,
    tracers: Vec<Option<Tracer>>,
    /// Members whose process may end by itself, because its disk fails it or it is removed.
    pub(crate) is_excused: Vec<bool>,
    is_paused: Vec<bool>,
    last_leader: usize,
    /// The history that was compacted away, as a member told it before.
    pub(crate) history: Past,
    /// Program that `upgrade` starts.
    pub newer: Option<Program>,
    /// Members that were removed and have not joined again.
    pub(crate) replacing: BTreeSet<usize>,
    /// Members that joined instead of being founders.
    pub(crate) is_replaced: Vec<bool>,
    /// Whether a member has served since it was replaced; true of founders.
    pub(crate) has_joined: Vec<Arc<AtomicBool>>,
    /// Directories with the recordings of members that were replaced, whose own are gone.
    pub kept: Vec<PathBuf>,
    /// Ends of processes that nothing excuses.
    pub unexpected_ends: Vec<String>,
    /// Ends of processes that their disks explain.
    pub expected_ends: usize,
    /// Members that did not serve once everything was whole, with the last word of each: they were killed then.
    pub left_out: BTreeMap<usize, String>,
    directory: TempDir,
}

/// An `strace` that makes system calls of a process fail.
struct Tracer {
    process: std::process::Child,
    log: PathBuf,
    /// Whether it only makes calls slow.
    is_harmless: bool,
}

impl Rig {
    /// Starts a cluster behind proxies, with disks of its own or without, and waits until every member serves.
    pub async fn start(program: Program, count: usize, seed: u64, has_disks: bool) -> Result<Rig> {
        let mut cluster = Cluster::prepare(program, count)?;
        let directory = tempfile::Builder::new().prefix("hustings-torture-").tempdir()?;
        let mut targets = Vec::new();
        for node in &cluster.nodes {
            targets.push(node.peer.trim_start_matches("http://").parse()?);
        }
        let (proxies, addresses) = Proxies::start(seed, &targets).await?;
        for (node, address) in cluster.nodes.iter_mut().zip(addresses) {
            node.advertised = format!("http://{address}");
        }
        let mut rig = Rig {
            cluster,
            proxies,
            disks: Vec::new(),
            tracers: (0..count).map(|_| None).collect(),
            is_excused: vec![false; count],
            is_paused: vec![false; count],
            last_leader: 0,
            history: Past::default(),
            newer: None,
            replacing: BTreeSet::new(),
            is_replaced: vec![false; count],
            has_joined: (0..count).map(|_| Arc::new(AtomicBool::new(true))).collect(),
            kept: Vec::new(),
            unexpected_ends: Vec::new(),
            expected_ends: 0,
            left_out: BTreeMap::new(),
            directory,
        };
        for position in 0..count {
            if has_disks {
                let disk = Disk::create(rig.directory.path(), &rig.cluster.nodes[position].name)?;
                rig.cluster.nodes[position].data_dir = disk.data_dir();
                rig.disks.push(disk);
            }
            rig.cluster.start_node(position)?;
        }
        for position in 0..count {
            if let Err(error) = rig.cluster.wait_until_serving(position).await {
                // The logs of a cluster that fails without any fault are worth reading.
                rig.cluster.keep();
                rig.note_ends()?;
                bail!("{error:#} {}", rig.unexpected_ends.join("; "));
            }
        }
        Ok(rig)
    }

    fn count(&self) -> usize {
        self.cluster.nodes.len()
    }

    /// The leader, as the members themselves say; the last known one when nobody answers.
    pub async fn leader(&mut self) -> usize {
        let mut asked = tokio::task::JoinSet::new();
        for (position, node) in self.cluster.nodes.iter().enumerate().filter(|(_, node)| node.pid().is_some()) {
            let endpoint = node.client.clone();
            asked.spawn(tokio::time::timeout(ASK_TIMEOUT, async move {
                let client = Client::connect(&[&endpoint]).await.ok()?;
                let answer = client.maintenance().status(StatusRequest {}).await.ok()?.into_inner();
                let leads = answer.header.is_some_and(|header| header.member_id == answer.leader);
                leads.then_some((answer.raft_term, position))
            }));
        }
        let answers = asked.join_all().await;
        if let Some((_, leader)) = answers.into_iter().filter_map(|answer| answer.ok().flatten()).max() {
            self.last_leader = leader;
        }
        self.last_leader
    }

    /// The positions that a word means now.
    async fn those(&mut self, who: Target) -> Result<Vec<usize>> {
        let all = 0..self.count();
        let position = match who {
            Target::All => return Ok(all.collect()),
            Target::Wiped => bail!("no disk is wiped under real processes: name a member"),
            Target::Node(id) => usize::try_from(id)?.wrapping_sub(1),
            Target::Leader => self.leader().await,
            Target::Others => {
                let leader = self.leader().await;
                return Ok(all.filter(|position| *position != leader).collect());
            }
            Target::Follower(number) => {
                let leader = self.leader().await;
                let followers: Vec<usize> = all.filter(|position| *position != leader).collect();
                let place = usize::try_from(number)?.wrapping_sub(1);
                *followers.get(place).with_context(|| format!("there is no {who} among {} members", self.count()))?
            }
        };
        if position >= self.count() {
            bail!("there is no {who} among {} members", self.count());
        }
        Ok(vec![position])
    }

    /// All directions from one to another.
    async fn directions(&mut self, from: Target, to: Target) -> Result<Vec<Direction>> {
        let (from, to) = (self.those(from).await?, self.those(to).await?);
        let ids = from.iter().flat_map(|from| to.iter().map(move |to| (*from as u64 + 1, *to as u64 + 1)));
        Ok(ids.filter(|(from, to)| from != to).collect())
    }

    async fn both_ways(&mut self, one: Target, other: Target) -> Result<Vec<Direction>> {
        let mut directions = self.directions(one, other).await?;
        directions.extend(directions.clone().into_iter().map(|(from, to)| (to, from)));
        Ok(directions)
    }

    fn names(&self, positions: &[usize]) -> String {
        let names: Vec<&str> = positions.iter().map(|at| self.cluster.nodes[*at].name.as_str()).collect();
        names.join(" ")
    }

    /// Performs an act; gives the members or directions that it hit.
    pub async fn perform(&mut self, act: &Act) -> Result<String> {
        let command = match act {
            Act::HalfOpen(from, to) => {
                let directions = self.directions(*from, *to).await?;
                self.proxies.set(&directions, crate::proxy::Line::half_open);
                return Ok(shown(&directions));
            }
            Act::Bandwidth(from, to, bytes) => {
                let directions = self.directions(*from, *to).await?;
                self.proxies.set(&directions, |line| line.narrow(*bytes));
                return Ok(shown(&directions));
            }
            Act::Lie(who) => {
                let positions = self.those(*who).await?;
                for position in &positions {
                    self.trace(*position, "fdatasync", "retval=0")?;
                }
                return Ok(self.names(&positions));
            }
            Act::Descriptors(who, left) => {
                let positions = self.those(*who).await?;
                for position in &positions {
                    self.limit_descriptors(*position, *left)?;
                }
                return Ok(self.names(&positions));
            }
            Act::Compact => return self.compact().await,
            Act::Replace(who) => {
                let positions = self.those(*who).await?;
                for position in &positions {
                    self.replacing.insert(*position);
                    self.replace(*position, REPLACE_PATIENCE).await?;
                }
                return Ok(self.names(&positions));
            }
            Act::Upgrade(who) => {
                let newer = self.newer.clone().context("there is no newer build: name it with --newer")?;
                self.cluster.use_program(newer);
                let positions = self.those(*who).await?;
                for position in &positions {
                    self.perform_at(&Command::Crash(*who), *position).await?;
                    self.restart(*position)?;
                }
                return Ok(self.names(&positions));
            }
            Act::Shared(command) => command,
        };
        let directions = match command {
            Command::Crash(who)
            | Command::PowerOff(who)
            | Command::Restart(who)
            | Command::Pause(who)
            | Command::Resume(who)
            | Command::Disk(who, _) => {
                let positions = self.those(*who).await?;
                for position in &positions {
                    self.perform_at(command, *position).await?;
                }
                return Ok(self.names(&positions));
            }
            Command::Heal => {
                self.proxies.set_all(crate::proxy::Line::heal);
                return Ok(String::new());
            }
            Command::Links { delay_min, delay_max, .. } => {
                let (least, most) = (Duration::from_micros(*delay_min), Duration::from_micros(*delay_max));
                self.proxies.set_all(|line| line.delay(least, most));
                return Ok(String::new());
            }
            Command::Mend(one, other) => {
                let directions = self.both_ways(*one, *other).await?;
                self.proxies.set(&directions, crate::proxy::Line::heal);
                return Ok(shown(&directions));
            }
            Command::Reset(one, other) => {
                let directions = self.both_ways(*one, *other).await?;
                self.proxies.set(&directions, crate::proxy::Line::reset);
                return Ok(shown(&directions));
            }
            Command::Mute(from, to) => self.directions(*from, *to).await?,
            Command::Cut(one, other) => self.both_ways(*one, *other).await?,
            Command::Isolate(who) => self.both_ways(*who, Target::All).await?,
            Command::Partition(groups) => {
                let mut group_of = vec![None; self.count()];
                for (number, group) in groups.iter().enumerate() {
                    for who in group {
                        self.those(*who).await?.into_iter().for_each(|position| group_of[position] = Some(number));
                    }
                }
                let all = self.directions(Target::All, Target::All).await?;
                // A member in no group is alone.
                let of = |id: u64| group_of[id as usize - 1];
                all.into_iter().filter(|(from, to)| of(*from).is_none() || of(*from) != of(*to)).collect()
            }
            other => bail!("`{other}` cannot be done to real processes"),
        };
        self.proxies.set(&directions, crate::proxy::Line::hold);
        Ok(shown(&directions))
    }

    async fn perform_at(&mut self, command: &Command, position: usize) -> Result<()> {
        match command {
            Command::Crash(_) => {
                self.note_ends()?;
                self.thaw(position)?;
                self.cluster.kill(position);
                self.is_paused[position] = false;
            }
            Command::PowerOff(_) => {
                self.note_ends()?;
                self.is_excused[position] = true;
                self.disk(position)?.cut_power()?;
                self.cluster.kill(position);
                self.is_paused[position] = false;
            }
            Command::Restart(_) => self.restart(position)?,
            Command::Pause(_) if self.cluster.nodes[position].pid().is_some() && !self.is_paused[position] => {
                self.note_ends()?;
                if self.cluster.nodes[position].pid().is_some() {
                    // One whose disk is frozen cannot be stopped before it thaws.
                    self.thaw(position)?;
                    self.cluster.nodes[position].pause()?;
                    self.is_paused[position] = true;
                }
            }
            Command::Resume(_) if self.is_paused[position] => {
                self.is_paused[position] = false;
                self.cluster.nodes[position].resume()?;
            }
            Command::Disk(_, fault) => self.break_disk(*fault, position)?,
            // Nobody to pause, nobody to wake.
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn disk(&mut self, position: usize) -> Result<&mut Disk> {
        self.disks.get_mut(position).context("the nodes have no disks of their own")
    }

    fn thaw(&mut self, position: usize) -> Result<()> {
        self.disks.get_mut(position).map_or(Ok(()), Disk::thaw)
    }

    fn break_disk(&mut self, fault: DiskFault, position: usize) -> Result<()> {
        match fault {
            DiskFault::Stall => self.disk(position)?.freeze(),
            DiskFault::Full(left) => {
                self.is_excused[position] = true;
                self.disk(position)?.fill(left)
            }
            DiskFault::Roomy => {
                self.disk(position)?.empty()?;
                // An operator that makes room disarms the alarm, too; if nobody serves now, it stands until everything is whole.
                let endpoints = self.cluster.endpoints();
                tokio::spawn(async move { disarm(&endpoints).await });
                Ok(())
            }
            DiskFault::Slow(micros) => self.trace(position, "fdatasync", &format!("delay_exit={micros}")),
            DiskFault::Recover => {
                self.thaw(position)?;
                self.untrace(position)
            }
            DiskFault::Fail(operation) => self.trace(position, WRITES, &format!("error=EIO:when={operation}")),
            DiskFault::CrashAt(operation) => self.trace(position, WRITES, &format!("signal=KILL:when={operation}")),
            other => bail!("a real disk cannot be told to {other:?}"),
        }
    }

    /// Lets a write or sync of a node go wrong.
    fn trace(&mut self, position: usize, calls: &str, what: &str) -> Result<()> {
        self.note_ends()?;
        let Some(pid) = self.cluster.nodes[position].pid() else { return Ok(()) };
        if self.tracers[position].is_some() || self.is_paused[position] {
            return Ok(());
        }
        let log = self.directory.path().join(format!("{}.strace", self.cluster.nodes[position].name));
        let mut command = std::process::Command::new("strace");
        command
            .args(["-f", "-qq", "-e", &format!("trace={WRITES}"), "-p", &pid.to_string()])
            .args(["-e", &format!("inject={calls}:{what}"), "-o"])
            .arg(&log)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let process = hustings_testbed::spawn(&mut command).context("cannot run strace: install its package")?;
        let is_harmless = what.starts_with("delay");
        self.is_excused[position] |= !is_harmless;
        self.tracers[position] = Some(Tracer { process, log, is_harmless });
        let deadline = Instant::now() + PATIENCE;
        // strace seizes one thread after the other, and one of those may start another meanwhile.
        let is_traced = || {
            let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            threads.into_iter().all(|thread| {
                let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
                !status.lines().any(|line| line.split_whitespace().eq(["TracerPid:", "0"]))
            })
        };
        while !(is_traced() && is_traced()) {
            if Instant::now() > deadline {
                bail!("strace did not attach to {pid} within {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    fn untrace(&mut self, position: usize) -> Result<()> {
        let Some(mut tracer) = self.tracers[position].take() else { return Ok(()) };
        let pid = Pid::from_raw(i32::try_from(tracer.process.id())?).context("process ids are not zero")?;
        // One that has ended with its tracee is gone already.
        let _ = kill_process(pid, Signal::TERM);
        tracer.process.wait()?;
        let log = std::fs::read_to_string(&tracer.log).unwrap_or_default();
        // A node that was slowed down for a moment only may have written nothing in it.
        if log.is_empty() && !tracer.is_harmless {
            bail!("strace saw no write and no sync of {}", self.cluster.nodes[position].name);
        }
        Ok(())
    }

    fn restart(&mut self, position: usize) -> Result<()> {
        self.note_ends()?;
        if self.cluster.nodes[position].pid().is_some() {
            return Ok(());
        }
        self.untrace(position)?;
        self.thaw(position)?;
        if let Some(disk) = self.disks.get_mut(position) {
            disk.restore_power()?;
        }
        self.is_excused[position] = false;
        if self.replacing.contains(&position) {
            // One that has lost its data starts when it is a member again.
            if !self.cluster.nodes[position].data_dir.exists() {
                return Ok(());
            }
            // The others may need its vote to remove it; and one that is removed already ends when it hears of that.
            self.is_excused[position] = true;
        }
        self.start_process(position)
    }

    /// Starts a process: a founder, or one that joins.
    pub(crate) fn start_process(&mut self, position: usize) -> Result<()> {
        match self.is_replaced[position] {
            true => self.cluster.join(position),
            false => self.cluster.start_node(position),
        }
    }

    /// Ends a process that is no member any more.
    pub(crate) async fn end(&mut self, position: usize) -> Result<()> {
        self.is_excused[position] = true;
        self.perform_at(&Command::Resume(Target::All), position).await?;
        self.untrace(position)?;
        self.perform_at(&Command::Crash(Target::All), position).await
    }

    /// Lets a process open so many more files than it has open, or as many as the system allows.
    fn limit_descriptors(&mut self, position: usize, left: Option<u64>) -> Result<()> {
        let Some(pid) = self.cluster.nodes[position].pid() else { return Ok(()) };
        let process = Pid::from_raw(i32::try_from(pid)?).context("process ids are not zero")?;
        // One that ends meanwhile needs no limit.
        let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Ok(()) };
        let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
        let current = left.map_or(maximum, |left| Some(open.count() as u64 + left));
        let _ = prlimit(Some(process), Resource::Nofile, Rlimit { current, maximum });
        Ok(())
    }

    /// Notices processes that have ended by themselves.
    pub fn note_ends(&mut self) -> Result<()> {
        for position in 0..self.count() {
            let Some(status) = self.cluster.has_ended(position)? else { continue };
            self.is_paused[position] = false;
            if self.may_end(position) {
                self.expected_ends += 1;
            } else {
                let node = &self.cluster.nodes[position];
                let log = std::fs::read_to_string(&node.log).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(3).collect();
                self.unexpected_ends.push(format!("{} ended by itself, {status}: {}", node.name, last.join(" | ")));
            }
        }
        Ok(())
    }

    /// Makes everything whole again and waits until every member serves. One that does not is killed and counts as left out.
    pub async fn make_whole(&mut self) -> Result<()> {
        self.proxies.set_all(|line| {
            line.heal();
            line.delay(Duration::ZERO, Duration::ZERO);
        });
        for position in 0..self.count() {
            if let Some(disk) = self.disks.get_mut(position) {
                disk.thaw()?;
                disk.empty()?;
            }
            self.untrace(position)?;
            self.perform_at(&Command::Resume(Target::All), position).await?;
            self.restart(position)?;
            self.limit_descriptors(position, None)?;
        }
        for position in self.replacing.clone() {
            self.replace(position, PATIENCE).await?;
        }
        if let Some(position) = self.replacing.first() {
            bail!("{} could not be replaced within {PATIENCE:?}", self.cluster.nodes[*position].name);
        }
        let mut deadline = Instant::now() + PATIENCE;
        let mut missing: BTreeSet<usize> = (0..self.count()).collect();
        while let Some(position) = missing.first().copied() {
            // One whose disk failed it a moment ago may end only now.
            self.note_ends()?;
            if self.cluster.nodes[position].pid().is_none() {
                if !self.may_end(position) {
                    missing.remove(&position);
                    self.leave_out(position)?;
                    continue;
                }
                self.restart(position)?;
            }
            match tokio::time::timeout(Duration::from_secs(1), self.cluster.wait_until_serving(position)).await {
                Ok(served) => {
                    served?;
                    missing.remove(&position);
                }
                Err(_) if Instant::now() > deadline => {
                    missing.remove(&position);
                    self.leave_out(position)?;
                    // It may have led: the others have their time anew.
                    deadline = Instant::now() + PATIENCE;
                }
                Err(_) => {}
            }
        }
        if !self.has_quorum() {
            return Ok(());
        }
        // A disk that was full may have raised it: it stands until an operator has looked, and writes are refused.
        let endpoints = self.cluster.live_endpoints();
        wait_for("alarms to be disarmed", async || disarm(&endpoints).await.ok().filter(|none| *none).map(drop))
            .await?;
        // Earlier failures are forgiven; later ones are not.
        self.is_excused.fill(false);
        Ok(())
    }

    /// Whether more than half of all members serve: the others were left out.
    pub(crate) fn has_quorum(&self) -> bool {
        self.left_out.len() * 2 < self.count()
    }

    /// Kills a member that does not serve, so that the others are judged without it; keeps what it warned of last.
    fn leave_out(&mut self, position: usize) -> Result<()> {
        self.cluster.kill(position);
        let node = &self.cluster.nodes[position];
        let log = std::fs::read_to_string(&node.log).with_context(|| node.log.display().to_string())?;
        let is_said =
            |line: &&str| line.contains("\"WARN\"") || line.contains("\"ERROR\"") || line.contains("panicked");
        let is_warning = |line: &&str| is_said(line) && !line.contains("a request took too long");
        let last = log.lines().rev().find(is_warning).unwrap_or("it warned of nothing");
        self.left_out.insert(position, format!("{} does not serve: {last}", node.name));
        Ok(())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for position in 0..self.count() {
            // A process cannot end while its disk is frozen, nor while it is traced and held.
            let _ = self.thaw(position);
            if let Some(mut tracer) = self.tracers[position].take() {
                let _ = tracer.process.kill();
                let _ = tracer.process.wait();
            }
            self.cluster.kill(position);
        }
        self.disks.clear();
    }
}

fn shown(directions: &[Direction]) -> String {
    let mut names: Vec<String> = directions.iter().map(|(from, to)| format!("n{from}→n{to}")).collect();
    names.sort();
    names.dedup();
    names.join(" ")
}
