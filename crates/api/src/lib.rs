//! The etcd v3 wire interface: messages, services, their JSON mapping, errors, and a client.
//!
//! Source: etcd 3.5, the packages `etcdserverpb`, `mvccpb`, `v3electionpb` and `v3lockpb`; the gRPC health protocol.
//! The declarations under `proto/` are ours, with etcd's names and numbers, so that its clients speak to us unchanged.
//! `cargo xtask proto` compiles them into `src/generated/`, which is committed: who builds this crate needs no
//! protobuf compiler. `bytes` fields are [`bytes::Bytes`]: a key or value is a slice of the frame it came in.
//!
//! All messages are also `serde` types, in the mapping of etcd's JSON gateway; [`json`] reads and writes whole bodies.
//!
//! What this crate does not do: answer requests (that is `hustings-server`), keep anything, or know our protocols.
//!
//! Read next: `proto/rpc.proto`, then [`error`], [`client`].

/// The client interface: store, watch, lease, cluster, maintenance.
#[allow(missing_docs, clippy::all, clippy::unwrap_used)]
#[path = "generated/etcdserverpb.rs"]
pub mod etcdserverpb;

/// Users' options, and permissions of roles.
#[allow(missing_docs, clippy::all, clippy::unwrap_used)]
#[path = "generated/authpb.rs"]
pub mod authpb;

/// The records of the store: keys with their history, events.
#[allow(missing_docs, clippy::all, clippy::unwrap_used)]
#[path = "generated/mvccpb.rs"]
pub mod mvccpb;

/// Leader election as a service.
#[allow(missing_docs, clippy::all, clippy::unwrap_used)]
#[path = "generated/v3electionpb.rs"]
pub mod v3electionpb;

/// Mutual exclusion as a service.
#[allow(missing_docs, clippy::all, clippy::unwrap_used)]
#[path = "generated/v3lockpb.rs"]
pub mod v3lockpb;

/// The gRPC health protocol, `grpc.health.v1`; it has no JSON mapping.
#[allow(missing_docs, clippy::all, clippy::unwrap_used)]
#[path = "generated/health.rs"]
pub mod health;

pub mod client;
pub mod dial;

pub mod error;
pub mod inside;
pub mod json;

pub use client::Client;
pub use error::EtcdError;
