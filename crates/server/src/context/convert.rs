//! Converts the API's words to the store's, and back.
//!
//! The store's types are not the generated ones, so that a log written today does not change when the wire's declarations
//! do. Keys and values move or share: no byte of them is copied.

use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::{compare, request_op, response_op};
use hustings_api::mvccpb;
use hustings_kv as kv;

pub(crate) fn range(range: pb::RangeRequest) -> kv::Range {
    kv::Range {
        key: range.key,
        range_end: range.range_end,
        limit: range.limit,
        revision: range.revision,
        sort_order: range.sort_order,
        sort_target: range.sort_target,
        keys_only: range.keys_only,
        count_only: range.count_only,
        min_mod_revision: range.min_mod_revision,
        max_mod_revision: range.max_mod_revision,
        min_create_revision: range.min_create_revision,
        max_create_revision: range.max_create_revision,
    }
}

pub(crate) fn put(put: pb::PutRequest) -> kv::Put {
    kv::Put {
        key: put.key,
        value: put.value,
        lease: put.lease,
        prev_kv: put.prev_kv,
        ignore_value: put.ignore_value,
        ignore_lease: put.ignore_lease,
    }
}

pub(crate) fn delete_range(delete: pb::DeleteRangeRequest) -> kv::DeleteRange {
    kv::DeleteRange { key: delete.key, range_end: delete.range_end, prev_kv: delete.prev_kv }
}

/// The depth is bounded by the decoders of both wire formats.
pub(crate) fn txn(txn: pb::TxnRequest) -> kv::Txn {
    kv::Txn {
        compare: txn.compare.into_iter().map(compare).collect(),
        success: txn.success.into_iter().map(operation).collect(),
        failure: txn.failure.into_iter().map(operation).collect(),
    }
}

/// The target's name decides; a value of another kind counts as that kind's default, as in etcd.
fn compare(compare: pb::Compare) -> kv::Compare {
    use compare::{TargetUnion as Given, TargetUnion};
    use pb::compare::CompareTarget as Target;
    let given = compare.target_union;
    let target = match (Target::try_from(compare.target).unwrap_or(Target::Version), given) {
        (Target::Version, Some(Given::Version(version))) => kv::CompareTarget::Version(version),
        (Target::Version, _) => kv::CompareTarget::Version(0),
        (Target::Create, Some(TargetUnion::CreateRevision(revision))) => kv::CompareTarget::Create(revision),
        (Target::Create, _) => kv::CompareTarget::Create(0),
        (Target::Mod, Some(TargetUnion::ModRevision(revision))) => kv::CompareTarget::Mod(revision),
        (Target::Mod, _) => kv::CompareTarget::Mod(0),
        (Target::Value, Some(TargetUnion::Value(value))) => kv::CompareTarget::Value(value),
        (Target::Value, _) => kv::CompareTarget::Value(bytes::Bytes::new()),
        (Target::Lease, Some(TargetUnion::Lease(lease))) => kv::CompareTarget::Lease(lease),
        (Target::Lease, _) => kv::CompareTarget::Lease(0),
    };
    kv::Compare { comparison: compare.result, key: compare.key, range_end: compare.range_end, target: Some(target) }
}

fn operation(operation: pb::RequestOp) -> kv::Operation {
    let request = operation.request.map(|request| match request {
        request_op::Request::RequestRange(request) => kv::Request::Range(range(request)),
        request_op::Request::RequestPut(request) => kv::Request::Put(put(request)),
        request_op::Request::RequestDeleteRange(request) => kv::Request::DeleteRange(delete_range(request)),
        request_op::Request::RequestTxn(request) => kv::Request::Txn(txn(request)),
    });
    kv::Operation { request }
}

pub(crate) fn key_value(kv: kv::KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: kv.key,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        value: kv.value,
        lease: kv.lease,
    }
}

fn key_values(kvs: Vec<kv::KeyValue>) -> Vec<mvccpb::KeyValue> {
    kvs.into_iter().map(key_value).collect()
}

pub(crate) fn range_response(header: Option<pb::ResponseHeader>, response: kv::RangeResponse) -> pb::RangeResponse {
    pb::RangeResponse { header, kvs: key_values(response.kvs), more: response.more, count: response.count }
}

pub(crate) fn put_response(header: Option<pb::ResponseHeader>, response: kv::PutResponse) -> pb::PutResponse {
    pb::PutResponse { header, prev_kv: response.prev_kv.map(key_value) }
}

pub(crate) fn delete_range_response(
    header: Option<pb::ResponseHeader>,
    response: kv::DeleteRangeResponse,
) -> pb::DeleteRangeResponse {
    pb::DeleteRangeResponse { header, deleted: response.deleted, prev_kvs: key_values(response.prev_kvs) }
}

pub(crate) fn txn_response(header: Option<pb::ResponseHeader>, response: kv::TxnResponse) -> pb::TxnResponse {
    let responses = response.results.into_iter().map(operation_response).collect();
    pb::TxnResponse { header, succeeded: response.succeeded, responses }
}

/// Inside a transaction etcd's headers carry the revision alone.
fn operation_response(response: kv::OperationResponse) -> pb::ResponseOp {
    let inner = |revision| Some(pb::ResponseHeader { revision, ..pb::ResponseHeader::default() });
    let response = match response {
        kv::OperationResponse::Range(response) => {
            response_op::Response::ResponseRange(range_response(inner(response.revision), response))
        }
        kv::OperationResponse::Put(response) => {
            response_op::Response::ResponsePut(put_response(inner(response.revision), response))
        }
        kv::OperationResponse::DeleteRange(response) => {
            response_op::Response::ResponseDeleteRange(delete_range_response(inner(response.revision), response))
        }
        kv::OperationResponse::Txn(response) => {
            response_op::Response::ResponseTxn(txn_response(inner(response.revision), response))
        }
        kv::OperationResponse::Deferred(_) => unreachable!("a proposal's answer is built before it is translated"),
    };
    pb::ResponseOp { response: Some(response) }
}
