//! A store without a cluster behind a real listener, and a client of it.
#![allow(dead_code)] // Each test file uses its part.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hustings_api::Client;
use hustings_api::etcdserverpb::LeaseGrantRequest;
use hustings_core::{
    Admin, ApplyVersion, ClusterId, Lsn, Membership, MembershipChange, MembershipError, NodeId, Refusal, Role,
};
use hustings_core::{StateMachine, Term};
use hustings_kv::{KvStore, Outcome, View};
use hustings_node::{Applied, Happening, NodeStatus, Readable, RequestError};
use hustings_server::{Backend, Metrics, NameOf, Port, Server, ServerOptions};
use hustings_tls::made::{Made, Subject};
use hustings_tls::{Acceptor, Identity, Rules, ServerTls};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::task::JoinHandle;

/// The way in which the double answers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Behaviour {
    /// It answers at once.
    #[default]
    Willing,
    /// It does not answer.
    Silent,
    /// It refuses with this error.
    Refusing(Option<RequestError>),
    /// It does what it is asked for, and says that nobody knows whether it did.
    Unsure,
    /// It answers as soon as it is no longer frozen.
    Frozen,
    /// Reads at once, proposals as soon as it no longer hesitates.
    Hesitant,
}

struct State {
    store: KvStore,
    index: u64,
    admins: Vec<Admin>,
    /// So many looks at the store come to nothing, as where the loop has too much to do.
    looks_in_vain: u64,
    refusals: u64,
}

/// One member that is its own quorum.
#[derive(Clone)]
pub struct Double {
    state: Arc<Mutex<State>>,
    mood: Arc<watch::Sender<Behaviour>>,
    status: Arc<watch::Sender<NodeStatus>>,
    applied: Arc<watch::Sender<u64>>,
    happenings: broadcast::Sender<Happening>,
}

impl Double {
    pub fn new() -> Double {
        let mut membership = Membership::of_voters([NodeId(1), NodeId(2), NodeId(3)]);
        for (id, member) in &mut membership.members {
            member.peer_urls = vec![format!("http://127.0.0.1:{}", 10_000 + id.0)];
        }
        let status = NodeStatus {
            me: NodeId(1),
            cluster_id: ClusterId(0xc1),
            protocol: "raft",
            role: Role::Leader,
            term: Term(7),
            leader: Some(NodeId(1)),
            last: Lsn::new(7, 0),
            commit: 0,
            applied: Lsn::new(7, 0),
            membership: Arc::new(membership),
            is_disk_healthy: true,
            contradiction: None,
            is_suspended: false,
            version: ApplyVersion::FIRST,
            differing: BTreeSet::default(),
            compared_at: 0,
        };
        let state = State { store: KvStore::new(), index: 0, admins: Vec::new(), looks_in_vain: 0, refusals: 0 };
        Double {
            state: Arc::new(Mutex::new(state)),
            mood: Arc::new(watch::channel(Behaviour::Willing).0),
            status: Arc::new(watch::channel(status).0),
            applied: Arc::new(watch::channel(0).0),
            happenings: broadcast::channel(16).0,
        }
    }

    /// Another member over the same store, with a mood of its own.
    pub fn beside(other: &Double) -> Double {
        Double { mood: Arc::new(watch::channel(Behaviour::Willing).0), ..other.clone() }
    }

    /// Decides how requests are answered from now on.
    pub fn be(&self, mood: Behaviour) {
        self.mood.send_replace(mood);
    }

    /// So many looks at the store come to nothing.
    pub fn fail_looks(&self, count: u64) {
        self.state.lock().unwrap().looks_in_vain = count;
    }

    pub fn fails_looks(&self) -> bool {
        self.state.lock().unwrap().looks_in_vain > 0
    }

    /// Number of requests that it has refused.
    pub fn refusals(&self) -> u64 {
        self.state.lock().unwrap().refusals
    }

    /// Number of requests that wait for it to thaw.
    pub fn frozen(&self) -> usize {
        self.mood.receiver_count()
    }

    /// Changes what the member says of itself.
    pub fn declare(&self, change: impl FnOnce(&mut NodeStatus)) {
        self.status.send_modify(change);
    }

    /// Applies by these rules from here on.
    pub fn adopt(&self, version: ApplyVersion) {
        self.state.lock().unwrap().store.adopt(version);
        self.declare(|status| status.version = version);
    }

    /// Lets the log's clock pass.
    pub fn pass(&self, elapsed: Duration) {
        let mut state = self.state.lock().unwrap();
        state.store.advance(elapsed);
        self.apply(&mut state, &hustings_kv::Command::Advance(hustings_kv::Advance {}).to_payload());
    }

    /// Lets the log's clock pass, and nothing else happen.
    pub fn pass_at_once(&self, elapsed: Duration) {
        let mut state = self.state.lock().unwrap();
        state.store.advance(elapsed);
        state.index += 1;
        self.applied.send_replace(state.index);
    }

    /// Applies a command without a request.
    pub fn apply_now(&self, command: &hustings_kv::Command) {
        let mut state = self.state.lock().unwrap();
        let payload = command.to_payload_by(Some(&hustings_kv::Caller::member()));
        self.apply(&mut state, &payload).response.unwrap();
    }

    /// Number of commands that were applied.
    pub fn proposals(&self) -> u64 {
        self.state.lock().unwrap().index
    }

    /// Goes through a transition.
    pub fn go_through(&self, transition: hustings_core::Transition) {
        let (at, moment) = (std::time::SystemTime::now(), std::time::Instant::now());
        let happening = Happening { at, moment, transition };
        assert!(self.happenings.send(happening).is_ok(), "the server listens");
    }

    /// The name of a member.
    pub fn name_of(&self, id: u64) -> String {
        self.status.borrow().membership.name_of(NodeId(id))
    }

    /// The requests of administrators, in order.
    pub fn admins(&self) -> Vec<Admin> {
        self.state.lock().unwrap().admins.clone()
    }

    pub fn wants_vote(&self, id: u64) -> bool {
        self.status.borrow().membership.members[&NodeId(id)].wants_vote
    }

    pub fn view(&self) -> View {
        self.state.lock().unwrap().store.freeze()
    }

    fn apply(&self, state: &mut State, payload: &Bytes) -> Applied<Outcome> {
        state.index += 1;
        let lsn = Lsn::new(7, state.index);
        let response = state.store.apply(lsn, payload);
        self.status.send_modify(|status| (status.applied, status.last, status.commit) = (lsn, lsn, lsn.index));
        self.applied.send_replace(state.index);
        Applied { lsn, response }
    }

    async fn until_not(&self, mood: Behaviour) {
        let is_over = self.mood.subscribe().wait_for(|now| *now != mood).await.is_ok();
        assert!(is_over, "the double lives as long as its requests");
    }

    async fn mood(&self) -> Result<(), RequestError> {
        let mood = self.mood.borrow().clone();
        match mood {
            Behaviour::Frozen => {
                self.until_not(mood).await;
                Ok(())
            }
            Behaviour::Hesitant => Ok(()),
            Behaviour::Willing | Behaviour::Unsure => Ok(()),
            Behaviour::Silent => std::future::pending().await,
            Behaviour::Refusing(error) => {
                self.state.lock().unwrap().refusals += 1;
                Err(error.unwrap_or(RequestError::QueueFull))
            }
        }
    }
}

impl Backend for Double {
    async fn propose(&self, payload: Bytes) -> Result<Applied<Outcome>, RequestError> {
        self.mood().await?;
        self.until_not(Behaviour::Hesitant).await;
        let applied = self.apply(&mut self.state.lock().unwrap(), &payload);
        let is_unsure = *self.mood.borrow() == Behaviour::Unsure;
        if is_unsure { Err(RequestError::Unknown) } else { Ok(applied) }
    }

    async fn read(&self) -> Result<Readable<View>, RequestError> {
        self.mood().await?;
        self.read_local().await
    }

    async fn read_local(&self) -> Result<Readable<View>, RequestError> {
        let mut state = self.state.lock().unwrap();
        if state.looks_in_vain > 0 {
            state.looks_in_vain -= 1;
            return Err(RequestError::QueueFull);
        }
        Ok(Readable { applied: Lsn::new(7, state.index), view: state.store.freeze() })
    }

    async fn change_membership(&self, change: MembershipChange) -> Result<Arc<Membership>, RequestError> {
        self.mood().await?;
        let next = self.status.borrow().membership.after(&change);
        match next {
            Ok(next) => {
                let next = Arc::new(next);
                self.status.send_modify(|status| status.membership = next.clone());
                Ok(next)
            }
            Err(MembershipError { kind, what }) => Err(RequestError::Refused(Refusal::Membership(kind, what))),
        }
    }

    async fn admin(&self, admin: Admin) -> Result<(), RequestError> {
        self.mood().await?;
        self.state.lock().unwrap().admins.push(admin);
        Ok(())
    }

    fn status(&self) -> NodeStatus {
        self.status.borrow().clone()
    }

    fn status_changes(&self) -> watch::Receiver<NodeStatus> {
        self.status.subscribe()
    }

    fn applied_changes(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    fn happenings(&self) -> broadcast::Receiver<Happening> {
        self.happenings.subscribe()
    }
}

/// A server on a free port.
pub struct Served {
    pub double: Double,
    pub address: String,
    pub metrics: Arc<Metrics>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Served {
    pub async fn start() -> Served {
        Served::start_with(ServerOptions::default()).await
    }

    /// A second member of the same cluster.
    pub async fn beside(other: &Served) -> Served {
        Served::over(Double::beside(&other.double), ServerOptions::default()).await
    }

    pub async fn start_with(options: ServerOptions) -> Served {
        Served::over(Double::new(), options).await
    }

    /// One whose connections have names, as certificates give them.
    pub async fn start_naming(options: ServerOptions, name_of: NameOf) -> Served {
        Served::over_naming(Double::new(), options, Some(name_of)).await
    }

    async fn over(double: Double, options: ServerOptions) -> Served {
        Served::over_naming(double, options, None).await
    }

    /// One whose port speaks TLS, with a certificate that it made itself.
    pub async fn start_in_tls(options: ServerOptions) -> Served {
        let made = Made::by_itself(&Subject::new("server").address([127, 0, 0, 1])).unwrap();
        let (identity, protocols) = (Identity::Made(Arc::new(made)), vec!["h2", "http/1.1"]);
        let (trusted_ca, revoked, allowed, rules) = (None, None, None, Rules::default());
        let tls = ServerTls { of: "client", identity, trusted_ca, revoked, allowed, rules, protocols };
        Served::over_port(Double::new(), options, None, Some(Acceptor::new(tls).unwrap())).await
    }

    async fn over_naming(double: Double, options: ServerOptions, name_of: Option<NameOf>) -> Served {
        Served::over_port(double, options, name_of, None).await
    }

    async fn over_port(
        double: Double,
        options: ServerOptions,
        name_of: Option<NameOf>,
        tls: Option<Acceptor>,
    ) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = match name_of {
            Some(name_of) => Server::new(double.clone(), options).naming(name_of),
            None => Server::new(double.clone(), options),
        };
        let metrics = server.metrics();
        let port = Port { listener, tls, names_users: false };
        let task = tokio::spawn(server.serve(vec![port], async move {
            let _ = stopped.await;
        }));
        Served { double, address, metrics, stop: Some(stop), task }
    }

    pub async fn client(&self) -> Client {
        Client::connect(&[&self.address]).await.unwrap()
    }

    pub async fn stop(mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.task.await.unwrap();
    }
}

/// Grants a lease of a minute.
pub async fn grant(served: &Served, id: i64) {
    served.client().await.lease().lease_grant(LeaseGrantRequest { ttl: 60, id }).await.unwrap();
}

/// Waits until the store is so.
pub async fn until(served: &Served, is_so: impl Fn(&View) -> bool) {
    let mut applied = hustings_server::Backend::applied_changes(&served.double);
    while !is_so(&served.double.view()) {
        applied.changed().await.unwrap();
    }
}

/// The revision at which a key was created; 0 if it is not there.
pub fn creations(view: &View, key: &str) -> i64 {
    let range = hustings_kv::Range { key: key.to_owned().into(), ..hustings_kv::Range::default() };
    view.range(&range).unwrap().kvs.first().map_or(0, |kv| kv.create_revision)
}
