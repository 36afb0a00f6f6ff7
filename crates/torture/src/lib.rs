//! Breaks real processes on purpose, under load, and judges what their clients saw.
//!
//! ```text
//!    clients ──etcd gRPC──► hustings serve n1 ──► proxy of n2 ──► hustings serve n2 ──► disk of its own
//!       │                        ▲                    ▲                                   ▲
//!       │                        └── kill, pause ──── ┼ ─ cut, mute, delay, reset ... ────┤ freeze, fill, power off, fail
//!       ▼                                             │                                   │
//!    history ──► verdict ◄── logs, hashes         a script, by hand or from a seed ───────┘
//! ```
//!
//! The world (`hustings-world`) breaks a simulated cluster with the same words and the same judge; here the kernel, the file
//! system, the sockets and the host are real, and a run is not repeated exactly: its plan is.
//!
//! - [`script`]: what is done when, as lines of text; [`plan`]: such a script from a seed;
//! - [`proxy`]: what stands between peers; [`disks`]: what stands under them; [`rig`]: both, with the processes;
//! - [`clients`]: load and history; [`onlookers`]: watchers and leases; [`rivals`] for a lock and an
//!   election, and [`tenures`], what they believed; [`verdict`]: what must hold; [`run()`]: all of it.
//!
//! It does not break machines, and it does not touch clocks: those are the world's.

pub mod script;

pub mod plan;

pub mod disks;
mod operator;
pub mod proxy;
pub mod rig;

pub mod clients;
pub mod onlookers;
pub mod rivals;
pub mod tenures;
pub mod verdict;

mod run;

pub use plan::Kind;
pub use run::{Logs, Torture, run};
pub use script::{Act, Script, Step};
pub use verdict::Report;
