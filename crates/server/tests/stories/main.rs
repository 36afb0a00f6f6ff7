//! Stories of the services, told through a real port. One program for all of them: each that links tonic takes a minute to
//! build.

// A test may fail where it stands.
#![allow(clippy::unwrap_used)]

mod dashboard;
mod election;
mod etcd;
mod gateway;
mod hostile;
mod kv;
mod lease;
mod members;
mod own;
mod probe_fields;
mod probe_own;
mod probes;
mod support;
mod users;
mod vanished;
mod watch;
