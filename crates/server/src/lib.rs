//! The etcd v3 API of one member: gRPC and its JSON gateway on one port, over a replicated key-value store.
//!
//! Source: etcd 3.5, its services, error strings, gateway paths and HTTP endpoints, as its own clients expect them. A
//! [`Server`] stands on a [`Backend`], which is a node's handle, and translates: requests become the store's commands or
//! reads of its views, results become etcd's answers.
//!
//! Deliberately absent: the store's rules (`hustings-kv`), and consensus (`hustings-node` and below).
//!
//! Read on in the order of the modules.

pub mod options;

pub mod backend;

mod error;

mod convert;

mod audit;

mod caller;

mod token;

mod jwt;

mod password;

mod context;

mod quota;

mod integrity;

mod compaction;

mod memory;

mod body;

mod fate;

mod kv;

mod watch;

mod hub;

mod index;

mod lease;

mod accounts;

mod permissions;

mod recent;
mod renewals;

mod campaign;

mod election;

mod lock;

mod cluster;

mod maintenance;

pub mod snapshot;

mod health;

mod gateway;

mod hosts;

mod http;

mod own;

mod dashboard;

mod status;

mod tether;

pub mod metrics;

mod etcd_metrics;

mod access;

mod aside;

mod process;

mod tally;

mod begun;

mod port;

mod authority;

pub mod server;

pub use backend::Backend;
pub use caller::CommonName;
pub use http::VERSION;
pub use jwt::Jwt;
pub use metrics::Metrics;
pub use options::{Compaction, ServerOptions};
pub use port::Port;
pub use server::{NameOf, Server};
pub use snapshot::{DigestCheck, Origin, Snapshot, SnapshotFileError, read_snapshot};
