//! What clients did and saw: [`Operation`].
//!
//! A history is a list of operations on registers, one register per key. An operation that was definitely not done (MX-1:
//! a definite error) does not belong into a history; one that is perhaps done never returns.

use std::fmt;

/// The content of a register: a number that stands for a value, or nothing.
pub type Value = Option<u64>;

/// What an operation did, with what its client saw.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Act {
    /// Saw this.
    Read(Value),
    /// Wrote this (a deletion writes `None`).
    Write(Value),
    /// Replaced `from` by `to`; if the client does not know how it ended, it did so only if `from` was there.
    Swap {
        /// What had to be there.
        from: Value,
        /// What was put in its place.
        to: Value,
    },
    /// A compare-and-set was refused by the register itself, for `from` was not there; perhaps it says what was.
    Mismatch {
        /// What was not there.
        from: Value,
        /// What the answer said was there instead.
        saw: Option<Value>,
    },
}

impl Act {
    /// The register after this act upon `state`; `None` when the act is impossible there.
    pub fn upon(&self, state: Value) -> Option<Value> {
        match *self {
            Act::Read(saw) => (saw == state).then_some(state),
            Act::Write(value) => Some(value),
            Act::Swap { from, to } => (from == state).then_some(to),
            Act::Mismatch { from, saw } => (from != state && saw.is_none_or(|saw| saw == state)).then_some(state),
        }
    }

    /// What it leaves behind, if it changes anything.
    pub fn leaves(&self) -> Option<Value> {
        match *self {
            Act::Write(value) | Act::Swap { to: value, .. } => Some(value),
            Act::Read(_) | Act::Mismatch { .. } => None,
        }
    }
}

/// One operation of one client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Operation {
    /// Which register.
    pub key: u64,
    /// Who.
    pub client: u64,
    /// When it began, in any unit that grows.
    pub invoked: u64,
    /// When its answer came; `None` when it is perhaps done and may take effect at any later time, or never.
    pub returned: Option<u64>,
    /// What.
    pub act: Act,
}

fn shown(value: Value) -> String {
    value.map_or("nothing".into(), |value| value.to_string())
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} on key {}: ", self.client, self.key)?;
        match self.act {
            Act::Read(saw) => write!(f, "read {}", shown(saw))?,
            Act::Write(value) => write!(f, "wrote {}", shown(value))?,
            Act::Swap { from, to } => write!(f, "swapped {} for {}", shown(from), shown(to))?,
            Act::Mismatch { from, saw: None } => write!(f, "did not find {}", shown(from))?,
            Act::Mismatch { from, saw: Some(saw) } => write!(f, "did not find {} but {}", shown(from), shown(saw))?,
        }
        match self.returned {
            Some(returned) => write!(f, " (from {} to {returned})", self.invoked),
            None => write!(f, " (from {}, perhaps done)", self.invoked),
        }
    }
}
