//! The keys of a [`super::FakeEtcd`] and their history.

use bytes::Bytes;
use hustings_api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use hustings_api::etcdserverpb::request_op::Request as Op;
use hustings_api::etcdserverpb::response_op::Response as Done;
use hustings_api::etcdserverpb::{
    Compare, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse, RequestOp,
    ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
};
use hustings_api::mvccpb::{Event, KeyValue, event::EventType};
use std::collections::{BTreeMap, BTreeSet};
use tonic::Status;

/// The store that all members share: each request happens at one moment.
#[derive(Default)]
pub(super) struct Keys {
    pub(super) revision: i64,
    keys: BTreeMap<Bytes, KeyValue>,
    leases: BTreeSet<i64>,
    last_lease: i64,
    /// All events, each with its revision.
    pub(super) events: Vec<(i64, Event)>,
}

/// Whether a key is the one that is asked for, or in the range, which has no end where that is a zero byte.
pub(super) fn is_within(key: &[u8], from: &[u8], end: &[u8]) -> bool {
    if end.is_empty() { key == from } else { key >= from && (key < end || end == b"\0") }
}

impl Keys {
    pub(super) fn grant(&mut self) -> i64 {
        self.last_lease += 1;
        self.leases.insert(self.last_lease);
        self.last_lease
    }

    pub(super) fn is_alive(&self, lease: i64) -> bool {
        self.leases.contains(&lease)
    }

    /// Ends a lease, and deletes its keys.
    pub(super) fn revoke(&mut self, lease: i64) {
        self.leases.remove(&lease);
        self.revision += 1;
        let keys: Vec<Bytes> = self.keys.values().filter(|kv| kv.lease == lease).map(|kv| kv.key.clone()).collect();
        keys.iter().for_each(|key| self.delete(key));
    }

    pub(super) fn leases(&self) -> Vec<i64> {
        self.leases.iter().copied().collect()
    }

    pub(super) fn header(&self) -> Option<ResponseHeader> {
        Some(ResponseHeader { revision: self.revision, ..ResponseHeader::default() })
    }

    /// Removes a key at the present revision.
    fn delete(&mut self, key: &Bytes) {
        let Some(_) = self.keys.remove(key) else { return };
        let kv = KeyValue { key: key.clone(), mod_revision: self.revision, ..KeyValue::default() };
        self.tell(EventType::Delete, kv);
    }

    fn tell(&mut self, kind: EventType, kv: KeyValue) {
        let event = Event { r#type: kind.into(), kv: Some(kv), prev_kv: None };
        self.events.push((self.revision, event));
    }

    pub(super) fn range(&self, asked: &RangeRequest) -> RangeResponse {
        let mut kvs: Vec<KeyValue> =
            self.keys.values().filter(|kv| is_within(&kv.key, &asked.key, &asked.range_end)).cloned().collect();
        // Whoever asks for many wants them in this order.
        kvs.sort_by_key(|kv| kv.create_revision);
        if asked.limit > 0 {
            kvs.truncate(usize::try_from(asked.limit).unwrap_or(usize::MAX));
        }
        RangeResponse { header: self.header(), count: kvs.len() as i64, kvs, ..RangeResponse::default() }
    }

    pub(super) fn txn(&mut self, asked: TxnRequest) -> Result<TxnResponse, Status> {
        let succeeded = asked.compare.iter().all(|compare| self.is_so(compare));
        let operations = if succeeded { asked.success } else { asked.failure };
        let lease = operations.iter().find_map(|operation| match &operation.request {
            Some(Op::RequestPut(put)) if put.lease != 0 && !self.is_alive(put.lease) => Some(put.lease),
            _ => None,
        });
        if lease.is_some() {
            return Err(Status::not_found("etcdserver: requested lease not found"));
        }
        let is_write = |operation: &RequestOp| !matches!(operation.request, Some(Op::RequestRange(_)));
        self.revision += i64::from(operations.iter().any(is_write));
        let responses = operations.into_iter().map(|operation| ResponseOp { response: self.done(operation) }).collect();
        Ok(TxnResponse { header: self.header(), succeeded, responses })
    }

    fn done(&mut self, operation: RequestOp) -> Option<Done> {
        Some(match operation.request? {
            Op::RequestRange(range) => Done::ResponseRange(self.range(&range)),
            Op::RequestPut(put) => Done::ResponsePut(self.put(put)),
            Op::RequestDeleteRange(delete) => Done::ResponseDeleteRange(self.delete_range(&delete)),
            Op::RequestTxn(_) => return None,
        })
    }

    fn put(&mut self, put: PutRequest) -> PutResponse {
        let known = self.keys.get(&put.key);
        let kv = KeyValue {
            key: put.key.clone(),
            create_revision: known.map_or(self.revision, |known| known.create_revision),
            mod_revision: self.revision,
            version: known.map_or(1, |known| known.version + 1),
            value: put.value,
            lease: put.lease,
        };
        self.keys.insert(put.key, kv.clone());
        self.tell(EventType::Put, kv);
        PutResponse { header: self.header(), prev_kv: None }
    }

    fn delete_range(&mut self, asked: &DeleteRangeRequest) -> DeleteRangeResponse {
        let keys: Vec<Bytes> =
            self.keys.keys().filter(|key| is_within(key, &asked.key, &asked.range_end)).cloned().collect();
        keys.iter().for_each(|key| self.delete(key));
        DeleteRangeResponse { header: self.header(), deleted: keys.len() as i64, prev_kvs: Vec::new() }
    }

    fn is_so(&self, compare: &Compare) -> bool {
        let known = self.keys.get(&compare.key);
        let (mine, theirs) = match (compare.target(), &compare.target_union) {
            (CompareTarget::Create, Some(TargetUnion::CreateRevision(revision))) => {
                (known.map_or(0, |kv| kv.create_revision), *revision)
            }
            (CompareTarget::Mod, Some(TargetUnion::ModRevision(revision))) => {
                (known.map_or(0, |kv| kv.mod_revision), *revision)
            }
            other => panic!("this store compares revisions alone, and not {other:?}"),
        };
        match compare.result() {
            CompareResult::Equal => mine == theirs,
            CompareResult::Less => mine < theirs,
            CompareResult::Greater => mine > theirs,
            CompareResult::NotEqual => mine != theirs,
        }
    }
}
