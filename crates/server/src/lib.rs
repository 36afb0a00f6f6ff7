//! The etcd v3 API of one member: gRPC and its JSON gateway on one port, over a replicated key-value store.
//!
//! Source: etcd 3.5, its services, error strings, gateway paths and HTTP endpoints, as its own clients expect them. A
//! [`Server`] stands on a [`Backend`], which is a node's handle, and translates: requests become the store's commands or
//! reads of its views, results become etcd's answers.
//!
//! Deliberately absent: the store's rules (`hustings-kv`), and consensus (`hustings-node` and below).
//!
//! Five rooms, each of which uses those above it in this list and none below (`crates/cli/tests/house.rs` reads their `use`
//! lines):
//!
//! ```text
//!   context    the store behind deadlines, who calls, what is held and counted: what all services share
//!   watch      streams of watchers, and the task that tells them
//!   services   etcd's services, and what a member does by itself
//!   http       plain HTTP, the JSON gateway, our own calls, the dashboard
//!   port       connections, and which service a request is for
//! ```
//!
//! A member of one, with its API on a port that the system chooses:
//!
//! ```
//! use hustings_api::Client;
//! use hustings_api::etcdserverpb::{PutRequest, RangeRequest};
//! use hustings_core::{ClusterId, Membership, NodeId};
//! use hustings_kv::KvStore;
//! use hustings_node::NodeConfig;
//! use hustings_raft::{Options, Raft};
//! use hustings_server::{Server, ServerOptions};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! let founding = Membership::of_voters([NodeId(1)]);
//! let mut config = NodeConfig::new(ClusterId(1), NodeId(1), founding, directory.path());
//! config.peer_listen = vec!["127.0.0.1:0".parse()?];
//! let handle = hustings_node::start::<Raft, KvStore>(config, Options::default(), KvStore::new())?.handle;
//!
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let url = format!("http://{}", listener.local_addr()?);
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let server = Server::new(handle.clone(), ServerOptions::default());
//! let serving = tokio::spawn(server.serve(vec![listener], async { drop(stopped.await) }));
//!
//! let client = Client::connect(&[url]).await?;
//! client.kv().put(PutRequest { key: "greeting".into(), value: "hello".into(), ..PutRequest::default() }).await?;
//! let range = RangeRequest { key: "greeting".into(), ..RangeRequest::default() };
//! assert_eq!(client.kv().range(range).await?.into_inner().kvs[0].value, "hello");
//!
//! drop(stop);
//! serving.await?;
//! handle.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! Read on in the order of the rooms, in each in the order of its modules.

mod context;

mod watch;

mod services;

mod http;

mod port;

pub use context::backend::{self, Backend};
pub use context::caller::CommonName;
pub use context::jwt::Jwt;
pub use context::metrics::{self, Metrics};
pub use context::options::{self, Compaction, ServerOptions};
pub use context::version::VERSION;
pub use port::Port;
pub use port::server::{self, NameOf, Server};
pub use services::snapshot::{self, DigestCheck, Origin, Snapshot, SnapshotFileError, read_snapshot};

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
