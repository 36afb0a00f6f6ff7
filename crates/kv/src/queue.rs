//! Queues of candidates, as commands: [`stand`], [`leave`], [`place_in`].
//!
//! A candidate stands in a queue with a key that lives on its lease; the queue is ordered by creation revision, and the first
//! is in. Servers wait for candidates' turns; what they write is here, so that a simulated cluster can be told the same.
//!
//! A client may cancel a call and ask again with the same lease, at another member: two calls then share one key, and the
//! first, which is perhaps only now noticed to be dead, must not remove what the second stands on. So every call writes, also
//! when it finds its key, and removes a key only at the modification revision that it wrote itself. Writing is what leaves a
//! trace: a call that merely looked whether its key is there would lose it to the one before.
//!
//! Source: etcd 3.5, `client/v3/concurrency` (`mutex.go`, `key.go`), and where that falls short.

use crate::{
    Compare, CompareTarget, Comparison, DeleteRange, OperationResponse, Put, Range, Request, Txn, TxnResponse,
};
use bytes::Bytes;

/// The way in which a call came by its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The call made the key.
    Made,
    /// An earlier call of the same lease had made it.
    Adopted,
}

/// A place in a queue, as one call wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The creation revision of the key: the place in the queue, and the fencing token.
    pub revision: i64,
    /// The modification revision of this call's own write.
    pub written: i64,
    /// Whether it made the key.
    pub origin: Origin,
}

/// "This key was created at this revision, and is the same still"; 0: it does not exist.
pub fn created_at(key: &Bytes, revision: i64) -> Compare {
    let target = Some(CompareTarget::Create(revision));
    Compare { comparison: Comparison::Equal as i32, key: key.clone(), range_end: Bytes::new(), target }
}

/// "This key is as it was written at this revision."
pub fn modified_at(key: &Bytes, revision: i64) -> Compare {
    let target = Some(CompareTarget::Mod(revision));
    Compare { comparison: Comparison::Equal as i32, key: key.clone(), range_end: Bytes::new(), target }
}

/// Makes the key, or takes it over by writing it again. Without a value a new key is empty, and an old one keeps its own.
pub fn stand(key: &Bytes, lease: i64, value: Option<Bytes>) -> Txn {
    let put = |value: Option<Bytes>| Put {
        key: key.clone(),
        ignore_value: value.is_none(),
        value: value.unwrap_or_default(),
        // Named again and not kept: a lease that is gone must refuse this, and a key without one gets one.
        lease,
        ..Put::default()
    };
    let range = Range { key: key.clone(), ..Range::default() };
    Txn {
        compare: vec![created_at(key, 0)],
        success: vec![Request::Put(put(Some(value.clone().unwrap_or_default()))).into()],
        failure: vec![Request::Put(put(value)).into(), Request::Range(range).into()],
    }
}

/// The place of a call in the queue, from its answer; `None` if that answers something else.
pub fn place_in(mut txn: TxnResponse) -> Option<Place> {
    let written = txn.revision;
    match (txn.succeeded, txn.results.pop()) {
        (true, _) => Some(Place { revision: written, written, origin: Origin::Made }),
        (false, Some(OperationResponse::Range(mut range))) => {
            let revision = range.kvs.pop()?.create_revision;
            Some(Place { revision, written, origin: Origin::Adopted })
        }
        (false, _) => None,
    }
}

/// Removes a key if it is as this call wrote it. A call that adopted its key asks first whether somebody stands before: if
/// nobody does, the call that made the key may have told its client that it is in.
pub fn leave(key: &Bytes, written: i64) -> Txn {
    let delete = Request::DeleteRange(DeleteRange { key: key.clone(), ..DeleteRange::default() });
    Txn { compare: vec![modified_at(key, written)], success: vec![delete.into()], failure: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, KvStore, LeaseGrant, Response};
    use hustings_core::{Lsn, StateMachine};

    /// A store, told one command after the other.
    struct Shop(KvStore, u64);

    impl Shop {
        fn told(&mut self, command: Command) -> TxnResponse {
            self.1 += 1;
            match self.0.apply(Lsn::new(1, self.1), &command.to_payload()).and_then(Response::answered) {
                Ok(Response::Txn(txn)) => txn,
                Ok(_) => TxnResponse::default(),
                Err(error) => panic!("refused: {error}"),
            }
        }
    }

    /// Goal: a cancelled call takes nothing from the one that follows it. Method: a client asks twice with one lease, and the
    /// first call gives up last.
    #[test]
    fn a_call_removes_only_what_it_wrote_itself() {
        let mut shop = Shop(KvStore::new(), 0);
        shop.told(Command::LeaseGrant(LeaseGrant { id: 7, ttl: 60 }));
        let key = Bytes::from_static(b"lock/7");
        let first = place_in(shop.told(Command::Txn(stand(&key, 7, None)))).expect("a place");
        let second = place_in(shop.told(Command::Txn(stand(&key, 7, None)))).expect("a place");
        assert_eq!((first.origin, second.origin), (Origin::Made, Origin::Adopted));
        assert_eq!(first.revision, second.revision, "the place in the queue stays");
        assert!(!shop.told(Command::Txn(leave(&key, first.written))).succeeded);
        assert!(shop.told(Command::Txn(leave(&key, second.written))).succeeded);
    }
}
