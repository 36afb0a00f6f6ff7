//! Requests as chance makes them, over few keys, so that they meet: [`Drawing`].
//!
//! What ends etcd 3.5.1 for good is not drawn: a put within a transaction that keeps a value or a lease, or names a lease that does not
//! exist, behind a delete of its key.

use bytes::Bytes;
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::compare::TargetUnion;
use hustings_api::etcdserverpb::request_op::Request as Op;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A request to both servers.
#[derive(Clone, Debug)]
pub enum Asked {
    Range(pb::RangeRequest),
    Put(pb::PutRequest),
    Delete(pb::DeleteRangeRequest),
    Txn(pb::TxnRequest),
    Compact(pb::CompactionRequest),
    Grant(pb::LeaseGrantRequest),
    Revoke(pb::LeaseRevokeRequest),
    KeepAlive(pb::LeaseKeepAliveRequest),
    TimeToLive(pb::LeaseTimeToLiveRequest),
    Leases,
    HashKv(pb::HashKvRequest),
    Watch(pb::WatchCreateRequest),
}

const KEYS: [&str; 12] = ["a", "aa", "ab", "abc", "b", "ba", "c", "c/1", "c/2", "d", "\u{1}", "zz"];
const ENDS: [&str; 9] = ["", "\0", "b", "aa", "ab", "c0", "d", "zzz", "a"];
const VALUES: [&str; 6] = ["", "1", "2", "10", "b", "a value that is somewhat longer than the others"];
/// Ids that leases are given, and one that none is.
const LEASES: [i64; 4] = [7, 8, 9, 77];

/// Draws requests from a seed.
pub struct Drawing {
    dice: StdRng,
    /// Leases that stand, as far as the answers told.
    pub leases: Vec<i64>,
    /// The revision that was told last.
    pub revision: i64,
}

impl Drawing {
    pub fn new(seed: u64) -> Drawing {
        Drawing { dice: StdRng::seed_from_u64(seed), leases: Vec::new(), revision: 1 }
    }

    fn one_in(&mut self, many: u32) -> bool {
        self.dice.random_range(0..many) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.dice.random_range(0..choices.len())]
    }

    fn key(&mut self) -> Bytes {
        if self.one_in(40) {
            return self.of(&[&b""[..], b"\0", b"\xff\xfe"]).into();
        }
        self.of(&KEYS).into()
    }

    /// The end of a range: mostly none.
    fn end(&mut self) -> Bytes {
        match self.dice.random_range(0..10) {
            0..=4 => Bytes::new(),
            5 => self.of(&[&b"\xff"[..], b"a\xff"]).into(),
            _ => self.of(&ENDS).into(),
        }
    }

    fn value(&mut self) -> Bytes {
        self.of(&VALUES).into()
    }

    /// A revision around those that were, some of them compacted or still to come.
    fn a_revision(&mut self) -> i64 {
        match self.dice.random_range(0..12) {
            0 => self.revision + 1,
            1 => self.revision + 1_000,
            2 => -1,
            3 => self.revision,
            _ => self.dice.random_range(0..=self.revision),
        }
    }

    fn a_lease(&mut self) -> i64 {
        match self.leases.is_empty() || self.one_in(3) {
            true => 0,
            false => self.leases[self.dice.random_range(0..self.leases.len())],
        }
    }

    pub fn asked(&mut self) -> Asked {
        match self.dice.random_range(0..100) {
            0..=24 => Asked::Range(self.range()),
            25..=49 => Asked::Put(self.put(true)),
            50..=57 => Asked::Delete(self.delete()),
            58..=79 => Asked::Txn(self.txn(0)),
            80..=81 => Asked::Compact(pb::CompactionRequest { revision: self.a_revision(), physical: self.one_in(2) }),
            82..=85 => Asked::Grant(pb::LeaseGrantRequest {
                id: self.of(&LEASES[..3]),
                ttl: self.of(&[1_000, 5_000, 100_000]),
            }),
            86..=87 => Asked::Revoke(pb::LeaseRevokeRequest { id: self.of(&LEASES) }),
            88..=89 => Asked::KeepAlive(pb::LeaseKeepAliveRequest { id: self.of(&LEASES) }),
            90..=92 => Asked::TimeToLive(pb::LeaseTimeToLiveRequest { id: self.of(&LEASES), keys: self.one_in(2) }),
            93 => Asked::Leases,
            94..=95 => {
                // At the compacted revision itself 3.5.1 refuses, and later versions answer, as ours does.
                let next = self.revision + 1;
                Asked::HashKv(pb::HashKvRequest { revision: self.of(&[0, next]) })
            }
            _ => Asked::Watch(self.watch()),
        }
    }

    fn range(&mut self) -> pb::RangeRequest {
        let mut range = pb::RangeRequest { key: self.key(), range_end: self.end(), ..Default::default() };
        if self.one_in(3) {
            range.limit = self.dice.random_range(-1..4);
        }
        if self.one_in(3) {
            range.revision = self.a_revision();
        }
        if self.one_in(3) {
            range.sort_order = self.dice.random_range(0..3);
            range.sort_target = self.dice.random_range(0..5);
        }
        range.serializable = self.one_in(4);
        range.keys_only = self.one_in(6);
        range.count_only = self.one_in(6);
        if self.one_in(8) {
            range.min_mod_revision = self.dice.random_range(0..=self.revision);
        }
        if self.one_in(8) {
            range.max_mod_revision = self.dice.random_range(0..=self.revision);
        }
        if self.one_in(8) {
            range.min_create_revision = self.dice.random_range(0..=self.revision);
        }
        if self.one_in(8) {
            range.max_create_revision = self.dice.random_range(0..=self.revision);
        }
        range
    }

    fn put(&mut self, is_alone: bool) -> pb::PutRequest {
        let mut put = pb::PutRequest { key: self.key(), value: self.value(), ..Default::default() };
        put.prev_kv = self.one_in(3);
        if self.one_in(3) {
            put.lease = self.a_lease();
        }
        if is_alone {
            if self.one_in(20) {
                put.lease = 77;
            }
            // Of a lease and a key that both do not exist, either may be named.
            put.ignore_value = put.lease != 77 && self.one_in(8);
            put.ignore_lease = self.one_in(8);
            if put.ignore_value && !self.one_in(4) {
                put.value = Bytes::new();
            }
            if put.ignore_lease && !self.one_in(4) {
                put.lease = 0;
            }
        }
        put
    }

    fn delete(&mut self) -> pb::DeleteRangeRequest {
        pb::DeleteRangeRequest { key: self.key(), range_end: self.end(), prev_kv: self.one_in(3) }
    }

    fn txn(&mut self, depth: u32) -> pb::TxnRequest {
        let compare = (0..self.dice.random_range(0..3)).map(|_| self.compare()).collect();
        let success = self.operations(depth);
        let failure = self.operations(depth);
        pb::TxnRequest { compare, success, failure }
    }

    fn compare(&mut self) -> pb::Compare {
        let number = self.dice.random_range(0..4);
        let revision = self.dice.random_range(0..=self.revision);
        let target = self.dice.random_range(0..5);
        let union = match target {
            0 => TargetUnion::Version(number),
            1 => TargetUnion::CreateRevision(revision),
            2 => TargetUnion::ModRevision(revision),
            3 => TargetUnion::Value(self.value()),
            _ => TargetUnion::Lease(self.of(&[0, 7, 8, 9])),
        };
        let range_end = if self.one_in(4) { self.end() } else { Bytes::new() };
        pb::Compare {
            result: self.dice.random_range(0..4),
            target,
            key: self.key(),
            range_end,
            target_union: Some(union),
        }
    }

    fn operations(&mut self, depth: u32) -> Vec<pb::RequestOp> {
        let operation = |drawing: &mut Drawing| match drawing.dice.random_range(0..10) {
            0..=2 => {
                // Below 0 is now, says etcd of a read alone, and "compacted" within a transaction once anything was: ours says now.
                let range = drawing.range();
                Op::RequestRange(pb::RangeRequest { revision: range.revision.max(0), sort_target: 0, ..range })
            }
            3..=6 => Op::RequestPut(drawing.put(false)),
            7..=8 => Op::RequestDeleteRange(drawing.delete()),
            _ if depth < 2 => Op::RequestTxn(drawing.txn(depth + 1)),
            _ => Op::RequestPut(drawing.put(false)),
        };
        (0..self.dice.random_range(0..4)).map(|_| pb::RequestOp { request: Some(operation(self)) }).collect()
    }

    fn watch(&mut self) -> pb::WatchCreateRequest {
        pb::WatchCreateRequest {
            key: self.key(),
            range_end: self.end(),
            start_revision: if self.one_in(2) { 0 } else { self.dice.random_range(0..=self.revision + 2) },
            filters: match self.dice.random_range(0..6) {
                0 => vec![0],
                1 => vec![1],
                _ => Vec::new(),
            },
            prev_kv: self.one_in(2),
            fragment: self.one_in(4),
            ..Default::default()
        }
    }
}
