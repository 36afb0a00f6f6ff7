//! Candidates, a store and a resource in virtual time, drawn from a seed and judged by true time.
#![allow(dead_code, unused_imports, reason = "each test uses another part")]

pub mod application;
pub mod dice;
pub mod faults;
pub mod host;
pub mod stage;
pub mod trouble;
pub mod world;

pub use dice::Dice;
pub use faults::{Faults, concerns};
pub use world::{Names, Seen, Setup, World};

pub const MILLISECOND: u64 = 1_000;
pub const SECOND: u64 = 1_000_000;
