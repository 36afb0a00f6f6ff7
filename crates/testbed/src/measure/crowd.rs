//! Clients that are there and ask nothing: [`Crowd`], with its watchers, leases and connections.

use anyhow::{Context, Result, bail};
use hustings_api::Client;
use hustings_api::etcdserverpb::watch_request::RequestUnion;
use hustings_api::etcdserverpb::{LeaseGrantRequest, WatchCreateRequest, WatchRequest, WatchResponse};
use hustings_testbed::Cluster;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, Sender};
use tokio::task::JoinSet;
use tonic::Streaming;

/// Watches on one stream.
const WATCHES_PER_STREAM: u32 = 1_000;
/// Requests on their way at a time, while a crowd comes together.
const EAGERNESS: u32 = 64;
/// Life of each lease: longer than any measurement, seconds.
const LEASE_SECONDS: i64 = 86_400;

/// Numbers of what clients hold, over all nodes together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sizes {
    /// Watches, each of a key of its own that nobody writes.
    pub(crate) watchers: u32,
    /// Leases of a day.
    pub(crate) leases: u32,
    /// Connections that ask nothing.
    pub(crate) connections: u32,
}

/// Clients of a cluster, in equal parts at each of its nodes.
pub(crate) struct Crowd {
    sizes: Sizes,
    at: Vec<AtNode>,
    thread: CrowdThread,
}

/// The one thread on which a crowd lives, behind everybody else: elsewhere its clients run on machines of their own. When a node
/// dies each of them notices, and a measurement on the same threads would wait until the last one has.
struct CrowdThread(Option<Runtime>);

impl CrowdThread {
    fn start() -> Result<CrowdThread> {
        let give_way = || {
            // An error leaves the thread as it is.
            let _ = rustix::process::nice(19);
        };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().on_thread_start(give_way).build();
        Ok(CrowdThread(Some(runtime.context("cannot start the crowd's thread")?)))
    }

    async fn run<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        self.0.as_ref().context("it runs until it is dropped")?.spawn(work).await?
    }
}

impl Drop for CrowdThread {
    fn drop(&mut self) {
        // Dropped where others run: nothing may wait here.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// The part of a crowd at one node. Nothing reads it: it is there.
#[derive(Default)]
struct AtNode {
    _watches: Vec<(Sender<WatchRequest>, Streaming<WatchResponse>)>,
    _connections: Vec<Client>,
}

impl Crowd {
    /// Comes together.
    ///
    /// # Errors
    /// A lease, a watch or a connection is refused.
    pub(crate) async fn at(cluster: &Cluster, sizes: Sizes) -> Result<Crowd> {
        grant(&cluster.endpoints(), sizes.leases).await?;
        let mut crowd = Crowd { sizes, at: Vec::new(), thread: CrowdThread::start()? };
        for position in 0..cluster.nodes.len() {
            crowd.at.push(AtNode::default());
            crowd.come_back(cluster, position).await?;
        }
        Ok(crowd)
    }

    /// Connects again to a node that was started anew.
    ///
    /// # Errors
    /// A watch or a connection is refused.
    pub(crate) async fn come_back(&mut self, cluster: &Cluster, position: usize) -> Result<()> {
        let nodes = u32::try_from(cluster.nodes.len())?;
        let part = |all: u32| all / nodes + u32::from((position as u32) < all % nodes);
        let url = cluster.nodes[position].client.clone();
        let (mut left, connections) = (part(self.sizes.watchers), part(self.sizes.connections));
        let coming = async move {
            let mut watches = Vec::new();
            while left > 0 {
                let count = left.min(WATCHES_PER_STREAM);
                let keys = (0..count).map(|number| format!("watched/{position}/{}", left - number));
                watches.push(watch(&url, keys.collect::<Vec<_>>().into_iter(), "").await?);
                left -= count;
            }
            Ok(AtNode { _watches: watches, _connections: connect(&url, connections).await? })
        };
        self.at[position] = self.thread.run(coming).await?;
        Ok(())
    }
}

/// Opens watches on one stream of one connection of its own, from each key to the end of the range, if it names one.
pub(crate) async fn watch(
    url: &str,
    keys: impl Iterator<Item = String>,
    range_end: &str,
) -> Result<(Sender<WatchRequest>, Streaming<WatchResponse>)> {
    let (requests, queue) = mpsc::channel(WATCHES_PER_STREAM as usize);
    let mut client = Client::connect(&[url]).await?.watch();
    let answers = client.watch(tokio_stream::wrappers::ReceiverStream::new(queue));
    let mut count = 0;
    for key in keys {
        let create = WatchCreateRequest {
            key: key.into(),
            range_end: range_end.to_owned().into(),
            ..WatchCreateRequest::default()
        };
        requests.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await?;
        count += 1;
    }
    let mut answers = answers.await?.into_inner();
    for _ in 0..count {
        let answer = answers.message().await?.context("the watch stream ended")?;
        if !answer.created || answer.canceled {
            bail!("{url} refuses a watch: {}", answer.cancel_reason);
        }
    }
    Ok((requests, answers))
}

/// Grants leases, by all nodes.
async fn grant(endpoints: &[String], count: u32) -> Result<()> {
    let next = Arc::new(AtomicU32::new(0));
    let mut granting = JoinSet::new();
    for (_, url) in (0..EAGERNESS.min(count)).zip(endpoints.iter().cycle()) {
        let (mut lease, next) = (Client::connect(&[url]).await?.lease(), next.clone());
        granting.spawn(async move {
            while next.fetch_add(1, Ordering::Relaxed) < count {
                let request = LeaseGrantRequest { ttl: LEASE_SECONDS, ..LeaseGrantRequest::default() };
                lease.lease_grant(request).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(granted) = granting.join_next().await {
        granted??;
    }
    Ok(())
}

/// Connects so often to one node.
async fn connect(url: &str, count: u32) -> Result<Vec<Client>> {
    let mut connecting = JoinSet::new();
    let mut connections = Vec::new();
    for _ in 0..count {
        if connecting.len() >= EAGERNESS as usize {
            connections.extend(connecting.join_next().await.transpose()?.transpose()?);
        }
        let url = url.to_owned();
        connecting.spawn(async move { Client::connect(&[url]).await });
    }
    while let Some(connected) = connecting.join_next().await {
        connections.push(connected??);
    }
    Ok(connections)
}
