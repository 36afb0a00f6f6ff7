//! An operation of a client that has no answer yet, and what an answer, or none, makes of it: [`Pending`].

use super::value_from;
use hustings_kv::{OperationResponse, Outcome, Response};
use hustings_properties::{Act, Operation, Value};

/// An operation that a client wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    Read,
    Write(u64),
    Delete,
    Swap(Value, u64),
}

#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) number: u64,
    pub(super) key: u64,
    pub(super) wish: Wish,
    pub(super) invoked: u64,
    pub(super) at: usize,
    pub(super) request: Option<u64>,
}

impl Pending {
    /// The operation as a client saw it that got an answer.
    pub(super) fn saw(&self, client: u64, returned: u64, act: Act) -> Operation {
        Operation { key: self.key, client, invoked: self.invoked, returned: Some(returned), act }
    }

    /// The operation as a client saw it that got none; a read without an answer says nothing.
    pub(super) fn perhaps(&self, client: u64) -> Option<Operation> {
        let act = match self.wish {
            Wish::Read => return None,
            Wish::Write(value) => Act::Write(Some(value)),
            Wish::Delete => Act::Write(None),
            Wish::Swap(from, to) => Act::Swap { from, to: Some(to) },
        };
        Some(Operation { key: self.key, client, invoked: self.invoked, returned: None, act })
    }

    pub(super) fn act_of(&self, outcome: &Outcome) -> Result<Act, String> {
        match (self.wish, outcome) {
            (Wish::Write(value), Ok(Response::Put(_))) => Ok(Act::Write(Some(value))),
            (Wish::Delete, Ok(Response::DeleteRange(_))) => Ok(Act::Write(None)),
            (Wish::Swap(from, to), Ok(Response::Txn(txn))) if txn.succeeded => Ok(Act::Swap { from, to: Some(to) }),
            (Wish::Swap(from, _), Ok(Response::Txn(txn))) => match txn.results.first() {
                Some(OperationResponse::Range(range)) => {
                    Ok(Act::Mismatch { from, saw: Some(range.kvs.first().map(|kv| value_from(&kv.value))) })
                }
                other => Err(format!("a compare-and-set that found something else is answered with {other:?}")),
            },
            (wish, outcome) => Err(format!("{wish:?} is answered with {outcome:?}")),
        }
    }
}
