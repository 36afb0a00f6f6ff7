//! The requests of which an election's transactions are made.

use super::keys::Names;
use bytes::Bytes;
use hustings_api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use hustings_api::etcdserverpb::request_op::Request as Op;
use hustings_api::etcdserverpb::{Compare, PutRequest, RangeRequest, RequestOp, range_request};

/// The key was created at this revision; 0: it is not there.
pub(super) fn is_created(key: &str, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.to_owned().into(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        ..Compare::default()
    }
}

/// The key was written last at this revision; 0: it is not there.
pub(super) fn is_last_written(key: &str, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: key.to_owned().into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..Compare::default()
    }
}

/// Writes a key that lives on no lease.
pub(super) fn put(key: &str, value: impl Into<Bytes>) -> RequestOp {
    let put = PutRequest { key: key.to_owned().into(), value: value.into(), ..PutRequest::default() };
    RequestOp { request: Some(Op::RequestPut(put)) }
}

/// A request to read one key.
pub(super) fn one(key: &str) -> RangeRequest {
    RangeRequest { key: key.to_owned().into(), ..RangeRequest::default() }
}

/// Reads all entries in the order of their creation, or so many of them; 0: all.
pub(super) fn entries(names: &Names, limit: i64) -> RangeRequest {
    RangeRequest {
        key: names.entries.clone().into(),
        range_end: names.entries_end(),
        sort_target: range_request::SortTarget::Create.into(),
        sort_order: range_request::SortOrder::Ascend.into(),
        limit,
        ..RangeRequest::default()
    }
}
