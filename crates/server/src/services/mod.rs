//! etcd's services, one file each, and what a member does by itself: compaction, the alarm CORRUPT.
//!
//! They know what is asked of them, not over which wire: gRPC and the gateway ([`crate::http::gateway`]) call the same functions.
//!
//! Read next: [`kv`], the simplest.

pub(crate) mod kv;

pub(crate) mod lease;

pub(crate) mod accounts;

pub(crate) mod campaign;

pub(crate) mod election;

pub(crate) mod lock;

pub(crate) mod cluster;

pub(crate) mod maintenance;

pub mod snapshot;

mod health;

pub(crate) mod compaction;

pub(crate) mod integrity;
