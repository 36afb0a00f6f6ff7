//! A Maelstrom node over standard input and output, and a bench that torments any such node.
//!
//! Maelstrom is a workbench for distributed systems: processes that read and write lines of JSON, a simulated network between
//! them, a load and a judge. Here are both sides, as values that take lines and times and give lines back:
//!
//! ```text
//!                 lines                      lines
//!    Bench  ───────────────►  stdio: a process  ───────────►  Node<P> = Replica<P, Store> + Wal
//!    (clients, network,           or                          (production code, a disk below)
//!     nemeses, judge)   ◄───  virtual time      ◄───────────
//! ```
//!
//! - the node: [`envelope`] (lines), [`request`] (what clients may ask), [`store`] (what is replicated), [`node`], [`stdio`];
//! - the bench: [`mod@bench`], and [`judge`], stricter than Maelstrom's own.
//!
//! Source of both: `docs/protocols/rules/maelstrom.md`; its rules are quoted by their names (MP-1, MC-4, ...).
//!
//! Maelstrom's network has no connections. A protocol that needs them (`Links::Session`) gets them from [`connection`].
//!
//! It deliberately changes no membership.
//!
//! A request of a client, as Maelstrom writes it:
//!
//! ```
//! use hustings_maelstrom::envelope::Envelope;
//!
//! let line = r#"{"src":"c1","dest":"n1","body":{"type":"cas","key":1,"from":2,"to":3,"msg_id":4}}"#;
//! let envelope = Envelope::parse(line).expect("a message");
//! assert_eq!((envelope.kind(), envelope.msg_id()), ("cas", Some(4)));
//! assert!(Envelope::parse("{").is_err());
//! ```
//!
//! Read next: [`node`], then [`mod@bench`].

pub mod dice;
pub mod json;

pub mod envelope;
pub mod request;
pub mod store;

pub mod connection;
pub mod node;
pub mod storage;
pub mod timers;

pub mod stdio;

pub mod bench;
pub mod judge;

pub use node::{Node, Setup};
pub use store::Store;

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
