//! What `cargo xtask proto` compiled from `proto/`: one module for each package of the wire interface.
//!
//! The files beside this one, in `generated/`, are written by the chore and by nobody else.

#![allow(missing_docs, clippy::all, clippy::unwrap_used)]

/// The client interface: store, watch, lease, cluster, maintenance.
pub mod etcdserverpb;

/// Users' options, and permissions of roles.
pub mod authpb;

/// The records of the store: keys with their history, events.
pub mod mvccpb;

/// Leader election as a service.
pub mod v3electionpb;

/// Mutual exclusion as a service.
pub mod v3lockpb;

/// The gRPC health protocol, `grpc.health.v1`; it has no JSON mapping.
pub mod health;
