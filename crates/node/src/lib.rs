//! The embeddable host.

pub mod handle;

pub use handle::{Applied, Handle, Happening, NodeStatus, Readable, RequestError};
