//! Calls of every method of etcd's API, each as bytes and as JSON, with the permission that it needs: for tests that make each of them
//! as each kind of caller.
//!
//! Read next: [`cases()`], which lists them.

mod cases;
mod post;
mod wire;

pub use cases::{Access, CALLERS, Caller, Case, LEASES, PERMISSIONS, Permission, Proof, cases};
pub use post::post;
pub use wire::call;
