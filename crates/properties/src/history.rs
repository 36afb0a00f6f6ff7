//! Operations of clients and their outcomes: [`Operation`].
//!
//! A history is a list of operations on registers, one register per key. An operation that was definitely not done (MX-1:
//! a definite error) does not belong into a history; one that is perhaps done never returns.

use std::fmt;

/// The content of a register: a number that stands for a value, or nothing.
pub type Value = Option<u64>;

/// The effect of an operation, as its client saw it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Act {
    /// Read this value; `None` where there was no key.
    Read(Value),
    /// Wrote this (a deletion writes `None`).
    Write(Value),
    /// Replaced `from` by `to`; if the client does not know how it ended, it did so only if `from` was there.
    Swap {
        /// The value that had to be there.
        from: Value,
        /// The value that was put in its place.
        to: Value,
    },
    /// A compare-and-set was refused by the register itself, for `from` was not there; perhaps it says what was.
    Mismatch {
        /// The value that was expected and not there.
        from: Value,
        /// The value that was there instead, if the answer said so.
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

    /// The content it leaves in the register; `None` if it changes nothing.
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
    /// Key of the register.
    pub key: u64,
    /// Number of the client.
    pub client: u64,
    /// Time of the request, in any unit that grows.
    pub invoked: u64,
    /// Time of the answer; `None` when it is perhaps done and may take effect at any later time, or never.
    pub returned: Option<u64>,
    /// The effect of the operation.
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
