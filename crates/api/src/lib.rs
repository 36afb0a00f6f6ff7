//! The etcd v3 wire interface: messages, services, their JSON mapping, errors, and a client.
//!
//! Source: etcd 3.5, the packages `etcdserverpb`, `mvccpb`, `v3electionpb` and `v3lockpb`; the gRPC health protocol.
//! The declarations under `proto/` are ours, with etcd's names and numbers, so that its clients speak to us unchanged.
//! `cargo xtask proto` compiles them into `src/generated/`, which is committed: a build of this crate needs
//! no protobuf compiler. `bytes` fields are [`bytes::Bytes`]: a key or value is a slice of the frame it came in.
//!
//! All messages are also `serde` types, in the mapping of etcd's JSON gateway; [`json`] reads and writes whole bodies.
//!
//! This crate answers no requests (that is `hustings-server`), keeps nothing, and knows none of our protocols.
//!
//! Errors have etcd's codes and words, and are recognised by them:
//!
//! ```
//! use hustings_api::EtcdError;
//! use tonic::{Code, Status};
//!
//! let status = Status::from(EtcdError::PermissionDenied);
//! assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "etcdserver: permission denied"));
//! assert_eq!(EtcdError::of(&status), Some(EtcdError::PermissionDenied));
//! // A prefix is the range from itself to the key behind all that begin with it.
//! assert_eq!(hustings_api::client::prefix_end(b"jobs/"), "jobs0");
//! ```
//!
//! Read next: `proto/rpc.proto`, then [`error`], [`client`].

mod generated;

pub mod client;
pub mod dial;

pub mod error;
pub mod inside;
pub mod json;

pub use client::Client;
pub use error::EtcdError;
pub use generated::{authpb, etcdserverpb, health, mvccpb, v3electionpb, v3lockpb};

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
