//! A service that is its own store: each of its three replicas has a member of Hustings inside, and they elect the one that works.
//! There is no store to run beside it, and no port for clients.
//!
//! ```text
//! cargo run -p hustings-server --example embedded
//!
//!   replica ─┬─ member ◄── peers ──► the members of the other replicas
//!            └─ candidate ── a connection in memory ──► that member
//! ```
//!
//! A service writes [`Replica`]. The story below it starts three in one process, which would be three processes, stops
//! the one that leads with all that is in it, and sees the next one lead with a higher token.

use hustings_core::{ClusterId, Member, Membership, NodeId};
use hustings_election::{Election, Inside, Leadership, Named};
use hustings_kv::KvStore;
use hustings_node::{Handle, NodeConfig};
use hustings_raft::{Options, Raft};
use hustings_server::{Server, ServerOptions};
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Time to live of a lease whose owner is gone.
const TTL: Duration = Duration::from_millis(2_500);

/// One replica of the service, with its member.
struct Replica {
    name: String,
    /// The way to its own member.
    inside: Inside,
    handle: Handle<KvStore>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Replica {
    /// Starts (or starts again) the member; its directory remembers everything else.
    fn start(id: NodeId, founding: &Membership, peers: SocketAddr, directory: &Path) -> Fallible<Replica> {
        let mut config = NodeConfig::new(ClusterId(0xE1EC), id, founding.clone(), directory.join(id.to_string()));
        config.peer_listen = vec![peers];
        let node = hustings_node::start::<Raft, KvStore>(config, Options::default(), KvStore::new())?;
        let (inside, listener) = Inside::new();
        let server = Server::new(node.handle.clone(), ServerOptions::default()).open_inside(listener);
        let (stop, stopped) = oneshot::channel::<()>();
        // No ports: nobody comes from outside. Name some, and `hustings elect` and `etcdctl` can look.
        let serving = tokio::spawn(server.serve_boxed(
            Vec::new(),
            Box::pin(async {
                let _ = stopped.await;
            }),
        ));
        Ok(Replica { name: founding.name_of(id), inside, handle: node.handle, stop, serving })
    }

    /// Waits until this replica is the one that works.
    async fn campaign(&self) -> Fallible<Leadership> {
        let election = Election::inside(&self.inside, "billing")?.ttl(TTL);
        let named =
            Named::new(&self.name).stop_grace(Duration::from_millis(200)).kill_margin(Duration::from_millis(100));
        Ok(election.candidate(named).campaign().await?)
    }

    /// Ends the member, as the end of its process does.
    async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.serving.await;
        self.handle.stop().await;
    }
}

// --- The story. --------------------------------------------------------------------------------------------------

/// Ports that are free now. A real deployment configures them.
fn free_addresses(count: usize) -> std::io::Result<Vec<SocketAddr>> {
    // All are held until all are known, so that no port is given out twice.
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<_>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}

/// The story; gives how long nobody led.
pub async fn story() -> Fallible<Duration> {
    let directory = tempfile::tempdir()?;
    let addresses = free_addresses(3)?;
    let founding = Membership::founded_by(["ada", "bob", "cyd"].iter().zip(&addresses).map(|(name, address)| Member {
        name: (*name).into(),
        peer_urls: vec![format!("http://{address}")],
        ..Member::default()
    }));
    let start = |id: NodeId| Replica::start(id, &founding, addresses[id.0 as usize - 1], directory.path());
    let mut replicas: Vec<Replica> = founding.voters.iter().map(|id| start(*id)).collect::<Fallible<_>>()?;

    println!("three replicas start and elect the one that works");
    let [ada, bob, cyd] = &replicas[..] else { return Err("there are three".into()) };
    let (first, leadership) = tokio::select! {
        won = ada.campaign() => (0, won?),
        won = bob.campaign() => (1, won?),
        won = cyd.campaign() => (2, won?),
    };
    let token = leadership.lead()?.token();
    println!("{} works, with token {token}", replicas[first].name);

    println!("it is stopped with its member, as if its process had ended");
    let stopped = Instant::now();
    replicas.remove(first).stop().await;
    let [one, other] = &replicas[..] else { return Err("two are left".into()) };
    let next = tokio::select! {
        won = one.campaign() => won?,
        won = other.campaign() => won?,
    };
    let took = stopped.elapsed();
    if leadership.is_leader() {
        return Err("two lead".into());
    }
    let higher = next.lead()?.token();
    println!("the next one works after {took:.1?}, with token {higher}");
    if higher <= token {
        return Err("tokens grow".into());
    }
    drop(leadership);
    next.resign("the story ends").await;
    for replica in replicas {
        replica.stop().await;
    }
    Ok(took)
}

#[tokio::main]
async fn main() -> Fallible<()> {
    story().await.map(drop)
}
