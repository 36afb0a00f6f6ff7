//! TLS for both ports of a member and for its clients.
//!
//! ```text
//!   files ── read, and read again when they change ──► Acceptor (a port)   ──► a stream, and whose certificate it showed
//!                                                 └──► Connector (a client) ──► a stream
//! ```
//!
//! Certificates, keys, roots and revocations come from files in PEM, as etcd takes them. A thread looks every second
//! whether they changed ([`reload`]): new connections use the new ones, open connections go on. Files that are wrong are told
//! and left alone: what was in force stays in force.
//!
//! A CA and a certificate that it issues, for tests and for `hustings up --tls`:
//!
//! ```
//! use hustings_tls::Certificate;
//! use hustings_tls::made::{Authority, Subject};
//!
//! let authority = Authority::new("a CA of ours")?;
//! let issued = authority.issue(&Subject::new("n1").host("n1.example").address([127, 0, 0, 1]))?;
//! let certificate = Certificate::read(&issued.certificate).expect("it is a certificate");
//! assert_eq!(certificate.common_name, "n1");
//! assert!(certificate.is_for("n1.example") && !certificate.is_for("n2.example"));
//! # Ok::<(), hustings_tls::TlsError>(())
//! ```
//!
//! Read on in the order of the modules.

pub mod certificate;

pub mod files;

mod rules;

mod reload;

mod acceptor;

mod connector;

pub mod made;

pub use acceptor::{Acceptor, Allowed, Identity, ServerTls, end_answered};
pub use certificate::Certificate;
pub use connector::{ASKS_FOR_CERTIFICATE, ClientTls, Connector, Obstacle, Trust};
pub use files::{Pair, TlsError};
pub use reload::Expiry;
pub use rules::{Rules, Version};

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
