//! Nodes in one process for stories: a state machine that counts, free ports, temporary directories, waiting for conditions.

#![allow(dead_code, reason = "each test file uses its own part of the support")]

pub mod greeting;
pub mod lifelines;

use bytes::{Buf, Bytes};
use hustings_core::replica::Policy;
use hustings_core::{
    Admin, ApplyVersion, Change, ClusterId, Limits, Lsn, Member, Membership, MembershipChange, NodeId, Role,
    SnapshotError, StateMachine,
};
use hustings_node::{ClusterSecret, Handle, Node, NodeConfig, NodeStatus, PeerTls, StartError};
use hustings_raft::{Options, Raft};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// Time that no story takes; a condition that does not come true by then never will.
const PATIENCE: Duration = Duration::from_secs(30);

/// Counts how often each command was applied.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counter {
    pub times: Arc<BTreeMap<Bytes, u64>>,
    /// Whether a command counts twice, by its second rules.
    pub counts_twice: bool,
}

impl Counter {
    pub fn of(&self, command: &str) -> u64 {
        self.times.get(command.as_bytes()).copied().unwrap_or_default()
    }

    pub fn total(&self) -> u64 {
        self.times.values().sum()
    }
}

/// Holds up the loop that applies the command `hold`, until released.
#[derive(Default)]
pub struct Dam {
    pub reached: tokio::sync::Notify,
    is_open: Mutex<bool>,
    opened: Condvar,
}

/// Whether a member has been defective; one story uses it.
pub static DEFECT: AtomicBool = AtomicBool::new(false);

/// The process has one dam; one story uses it.
pub static DAM: std::sync::LazyLock<Dam> = std::sync::LazyLock::new(Dam::default);

impl Dam {
    fn wait(&self) {
        self.reached.notify_one();
        let is_open = self.is_open.lock().expect("nobody panics holding it");
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).expect("nobody panics holding it"));
    }

    pub fn open(&self) {
        *self.is_open.lock().expect("nobody panics holding it") = true;
        self.opened.notify_all();
    }
}

impl StateMachine for Counter {
    type Response = u64;
    type View = Counter;

    const VERSION_MAX: ApplyVersion = ApplyVersion(2);

    fn adopt(&mut self, version: ApplyVersion) {
        self.counts_twice = version >= ApplyVersion(2);
    }

    fn advance(&mut self, _: Duration) {}

    fn apply(&mut self, _: Lsn, payload: &Bytes) -> u64 {
        if payload == "hold" {
            DAM.wait();
        }
        // One member, the first that comes, computes what the others do not.
        let is_defective = payload == "defect" && !DEFECT.swap(true, Ordering::Relaxed);
        let times = Arc::make_mut(&mut self.times).entry(payload.clone()).or_default();
        *times += if self.counts_twice || is_defective { 2 } else { 1 };
        *times
    }

    fn freeze(&self) -> Counter {
        self.clone()
    }

    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    fn encode(view: &Counter, sink: &mut dyn FnMut(Bytes)) {
        for (command, times) in view.times.iter() {
            sink(Bytes::copy_from_slice(&(command.len() as u64).to_le_bytes()));
            sink(command.clone());
            sink(Bytes::copy_from_slice(&times.to_le_bytes()));
        }
    }

    fn decode(snapshot: &mut dyn Buf) -> Result<Counter, SnapshotError> {
        let short = |_| SnapshotError { what: "it is cut off".into() };
        let mut times = BTreeMap::new();
        while snapshot.has_remaining() {
            let length = usize::try_from(snapshot.try_get_u64_le().map_err(short)?).expect("64 bits");
            if length > snapshot.remaining() {
                return Err(SnapshotError { what: "it is cut off".into() });
            }
            let command = snapshot.copy_to_bytes(length);
            times.insert(command, snapshot.try_get_u64_le().map_err(short)?);
        }
        Ok(Counter { times: Arc::new(times), counts_twice: false })
    }
}

/// Members of one cluster, some of them running.
pub struct Troupe {
    pub directory: TempDir,
    pub founding: Membership,
    pub addresses: BTreeMap<NodeId, SocketAddr>,
    pub running: BTreeMap<NodeId, Handle<Counter>>,
    pub limits: Limits,
    pub policy: Policy,
    /// The apply version that a build of the next start can.
    pub can: ApplyVersion,
    /// TLS settings of each member, where members speak TLS.
    pub tls: BTreeMap<NodeId, PeerTls>,
}

pub fn free_addresses(count: u64) -> Vec<SocketAddr> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("it is bound")).collect()
}

pub fn url_of(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// The secret that all members of a story know.
pub fn secret() -> ClusterSecret {
    ClusterSecret::new(b"known to the members of this story", Path::new("story")).expect("it is long enough")
}

/// Name of a member: `m` and its id.
pub fn named(id: NodeId) -> String {
    format!("m{}", id.0)
}

impl Troupe {
    /// `size` founders, none of them started.
    pub fn of(size: u64) -> Troupe {
        let addresses: BTreeMap<NodeId, SocketAddr> = (1..).map(NodeId).zip(free_addresses(size)).collect();
        let founding = Membership::founded_by(addresses.iter().map(|(id, address)| Member {
            name: named(*id),
            peer_urls: vec![url_of(*address)],
            ..Member::default()
        }));
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (limits, policy, can) = (Limits::default(), Policy::default(), ApplyVersion::FIRST);
        Troupe { directory, founding, addresses, running: BTreeMap::new(), limits, policy, can, tls: BTreeMap::new() }
    }

    /// `size` founders, all running.
    pub fn started(size: u64) -> Troupe {
        let mut troupe = Troupe::of(size);
        troupe.start_all();
        troupe
    }

    pub fn start_all(&mut self) {
        for id in self.founding.voters.clone() {
            self.start(id).expect("a founder starts");
        }
    }

    pub fn data_dir(&self, id: NodeId) -> PathBuf {
        self.directory.path().join(named(id))
    }

    pub fn config_of(&self, id: NodeId) -> NodeConfig {
        let config = NodeConfig::new(ClusterId(7), id, self.founding.clone(), self.data_dir(id));
        self.equipped(config, self.addresses[&id])
    }

    pub fn equipped(&self, mut config: NodeConfig, address: SocketAddr) -> NodeConfig {
        config.peer_listen = vec![address];
        config.limits = self.limits;
        config.policy = self.policy;
        config.version_max = self.can;
        config.tls = self.tls.get(&config.me).cloned().unwrap_or_default();
        config.compare_states_every = Some(Duration::from_millis(1));
        config.on_fatal = Arc::new(|why| panic!("the node cannot go on: {why}"));
        config
    }

    pub fn start(&mut self, id: NodeId) -> Result<(), StartError> {
        let node = run(self.config_of(id))?;
        self.running.insert(id, node.handle);
        Ok(())
    }

    /// Adds a member at an address that no founder knows, starts it, and waits until it votes. In TLS its settings stand there already.
    pub async fn join(&mut self) -> NodeId {
        let leader = self.leader().await;
        // A leader changes nothing before its first own entry is committed.
        propose(self.handle(leader), "before it joins").await;
        let (id, address) = (NodeId(self.handle(leader).status().membership.next_id), free_addresses(1)[0]);
        let url = if self.tls.contains_key(&id) { format!("https://{address}") } else { url_of(address) };
        let itself = Member { name: named(id), peer_urls: vec![url], ..Member::default() };
        let seat = Member { name: String::new(), wants_vote: true, ..itself.clone() };
        let change = MembershipChange::of([Change::AddLearner(id), Change::Describe(id, seat)]);
        let known = in_time(self.handle(leader).change_membership(change)).await.expect("it is added");
        let (founding, data_dir) = (self.founding.clone(), self.data_dir(id));
        let config = NodeConfig::joining(ClusterId(7), id, itself, founding, (*known).clone(), data_dir);
        let node = run(self.equipped(config, address)).expect("it starts");
        until(&node.handle, "it votes", |status| status.membership.voters.contains(&id)).await;
        self.addresses.insert(id, address);
        self.running.insert(id, node.handle);
        id
    }

    /// Waits until all who run know all members by their directories: one that knows of a change and has not applied it does not lead.
    pub async fn know_each_other(&self) {
        let is_described =
            |status: &NodeStatus| status.membership.members.values().all(|it| it.storage_incarnation.is_some());
        for member in self.running.values() {
            until(member, "it knows all members by their directories", is_described).await;
        }
    }

    /// Stops a member, has another one join and lead meanwhile, and starts the first again: it is to follow.
    pub async fn follow_one_that_joined_meanwhile(&mut self) {
        let away = self.follower().await;
        self.know_each_other().await;
        self.stop(away).await;
        let joined = self.join().await;
        self.know_each_other().await;
        let leader = self.leader().await;
        in_time(self.handle(leader).admin(Admin::Transfer(joined))).await.expect("it is handed over");
        until(self.handle(joined), "it leads", |status| status.role == Role::Leader).await;
        self.start(away).expect("it starts again");
        until(self.handle(away), "it follows", |status| status.leader == Some(joined)).await;
        propose(self.handle(away), "it is back").await;
    }

    pub async fn stop(&mut self, id: NodeId) {
        let handle = self.running.remove(&id).expect("it runs");
        assert!(handle.status().differing.is_empty(), "states differ: {:?}", handle.status());
        handle.stop().await;
    }

    pub fn handle(&self, id: NodeId) -> &Handle<Counter> {
        &self.running[&id]
    }

    /// Waits until all who run follow one leader that leads, and says who.
    pub async fn leader(&self) -> NodeId {
        loop {
            let someone = self.running.values().next().expect("someone runs");
            let known = |status: &NodeStatus| status.leader.is_some_and(|id| self.running.contains_key(&id));
            let leader = until(someone, "it follows a leader that runs", known).await.leader.expect("waited for");
            for handle in self.running.values() {
                until(handle, "it follows someone who runs", known).await;
            }
            if self.running.values().all(|handle| handle.status().leader == Some(leader)) {
                return leader;
            }
        }
    }

    pub async fn follower(&self) -> NodeId {
        let leader = self.leader().await;
        *self.running.keys().find(|id| **id != leader).expect("someone else runs")
    }
}

pub fn run(config: NodeConfig) -> Result<Node<Counter>, StartError> {
    hustings_node::start::<Raft, Counter>(config, Options::default(), Counter::default())
}

/// Waits until the node's status fulfils `condition`: also one on its positions, whose changes wake nobody who follows the status.
pub async fn until(handle: &Handle<Counter>, what: &str, mut condition: impl FnMut(&NodeStatus) -> bool) -> NodeStatus {
    let (mut changes, mut applied) = (handle.status_changes(), handle.applied_changes());
    let waiting = async {
        loop {
            let status = changes.borrow_and_update().clone();
            if condition(&status) {
                return status;
            }
            tokio::select! {
                changed = changes.changed() => changed.expect("the node runs"),
                changed = applied.changed() => changed.expect("the node runs"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never true: {what}"))
}

/// Waits for an answer that must come.
pub async fn in_time<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, answer).await.expect("an answer comes")
}

pub async fn propose(handle: &Handle<Counter>, command: &str) -> u64 {
    let payload = Bytes::copy_from_slice(command.as_bytes());
    in_time(handle.propose(payload)).await.expect("it is applied").response
}

pub async fn read(handle: &Handle<Counter>) -> Counter {
    in_time(handle.read()).await.expect("it is served").view
}
