//! The requests of which an election's transactions and watches are made.

use super::keys::Names;
use bytes::Bytes;
use hustings_api::Client;
use hustings_api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use hustings_api::etcdserverpb::request_op::Request as Op;
use hustings_api::etcdserverpb::{
    Compare, PutRequest, RangeRequest, RequestOp, WatchCreateRequest, WatchRequest, WatchResponse, range_request,
    watch_request,
};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

/// A watch that is open, and the line that must be held for as long as it is wanted.
pub(super) type Watching = (mpsc::Sender<WatchRequest>, Streaming<WatchResponse>);

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

/// Reads one key.
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

/// Watches a range of keys from a revision on.
pub(super) async fn watch(
    client: &Client,
    key: &str,
    range_end: Bytes,
    start_revision: i64,
) -> Result<Watching, Status> {
    let create =
        WatchCreateRequest { key: key.to_owned().into(), range_end, start_revision, ..WatchCreateRequest::default() };
    let (requests, outgoing) = mpsc::channel(1);
    let union = watch_request::RequestUnion::CreateRequest(create);
    requests.try_send(WatchRequest { request_union: Some(union) }).expect("a channel of one holds one");
    let outgoing = tokio_stream::wrappers::ReceiverStream::new(outgoing);
    Ok((requests, client.watch().watch(outgoing).await?.into_inner()))
}
