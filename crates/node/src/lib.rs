//! The embeddable host: a replica in a process of yours, with a log on disk and links to its peers.
//!
//! [`start`] opens the data directory, binds the peer port and starts four threads; the [`Handle`] it gives back proposes,
//! reads and watches. The protocol is a type parameter: no host names one.
//!
//! Read next: [`node`] (the threads), [`host`] (the loop), [`door`] (handshakes), [`link`] (the wire between peers), [`disk`].

mod comparison;
mod complaints;
pub mod config;
pub mod counters;
pub mod cut;
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
