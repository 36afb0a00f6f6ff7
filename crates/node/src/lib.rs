//! The embeddable host: a replica in a process of yours, with a log on disk and links to its peers.
//!
//! [`start`] opens the data directory, binds the peer port and starts four threads; the [`Handle`] it gives back proposes,
//! reads and watches. The protocol is a type parameter: no host names one.
//!
//! A service that wants nothing but a leader among its replicas has a state machine of nothing:
//!
//! ```
//! use hustings_core::{ClusterId, Membership, NodeId, Role};
//! use hustings_node::NodeConfig;
//! use hustings_raft::{Options, Raft};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! // The only member here; with three, each of them starts so, in a process of its own.
//! let founding = Membership::of_voters([NodeId(1)]);
//! let mut config = NodeConfig::new(ClusterId(1), NodeId(1), founding, directory.path());
//! config.peer_listen = vec!["127.0.0.1:0".parse()?];
//! let handle = hustings_node::start::<Raft, ()>(config, Options::default(), ())?.handle;
//!
//! let mut status = handle.status_changes();
//! status.wait_for(|status| status.role == Role::Leader).await?;
//! // A quorum confirms it, and gives the fencing token.
//! let leads = handle.leadership().await?;
//! assert!(leads.is_me && leads.token > 0);
//! handle.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! Read next: [`node`] (the threads), [`host`] (the loop), [`door`] (handshakes), [`link`] (the wire between peers), [`disk`].

mod comparison;
mod complaints;
pub mod config;
pub mod counters;
pub mod cut;
mod detached;
pub mod discovery;
mod disk;
mod door;
mod frame;
mod gatekeeper;
pub mod handle;
mod handshake;
mod host;
mod lifeline;
mod link;
mod loop_timer;
pub mod node;
mod pace;
mod peer_stream;
mod positions;
pub mod reach;
pub mod remedies;
pub mod secret;
mod snapshots;
mod timers;

pub use complaints::Complaints;
pub use config::{NodeConfig, OnFatal, OnSync, RecordingConfig, StartError};
pub use counters::{Counters, PeerCounters};
pub use discovery::{DiscoveryError, discover};
pub use frame::Welcome;
pub use handle::{Applied, Handle, Happening, Leads, NodeStatus, Readable, RequestError};
pub use handshake::site;
pub use node::{Node, start};
pub use peer_stream::PeerTls;
pub use reach::{Missing, Quorum, Reach};
pub use secret::{ClusterSecret, SecretError};

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
