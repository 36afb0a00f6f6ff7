//! The gateway's bodies: what etcd 3.5.1 was seen to accept and to write.

#![allow(clippy::unwrap_used, reason = "a test may end where it fails")]

use bytes::Bytes;
use hustings_api::EtcdError;
use hustings_api::etcdserverpb::*;
use hustings_api::json::{self, GatewayError};
use hustings_api::mvccpb::{Event, KeyValue, event::EventType};
use hustings_api::v3electionpb::CampaignRequest;
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use tonic::{Code, Status};

fn read<M: DeserializeOwned + Default>(body: &str) -> M {
    json::decode(body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {error}"))
}

fn written<M: Serialize>(message: &M) -> String {
    String::from_utf8(json::encode(message).unwrap()).unwrap()
}

#[test]
fn an_answer_looks_like_etcds() {
    let header = |revision| {
        Some(ResponseHeader { cluster_id: 13455796455940752355, member_id: 443629905751424238, revision, raft_term: 2 })
    };
    let previous = KeyValue {
        key: Bytes::from_static(b"foo"),
        create_revision: 2,
        mod_revision: 3,
        version: 2,
        value: Bytes::from_static(b"bar"),
        lease: 0,
    };
    assert_eq!(
        written(&PutResponse { header: header(4), prev_kv: Some(previous) }),
        r#"{"header":{"cluster_id":"13455796455940752355","member_id":"443629905751424238","revision":"4","raft_term":"2"},"prev_kv":{"key":"Zm9v","create_revision":"2","mod_revision":"3","version":"2","value":"YmFy"}}"#
    );
    assert_eq!(
        written(&MemberListResponse {
            header: header(0),
            members: vec![Member {
                id: 443629905751424238,
                name: "default".into(),
                peer_urls: vec!["http://127.0.0.1:32380".into()],
                client_urls: vec!["http://127.0.0.1:32379".into()],
                is_learner: false,
            }],
        }),
        r#"{"header":{"cluster_id":"13455796455940752355","member_id":"443629905751424238","raft_term":"2"},"members":[{"ID":"443629905751424238","name":"default","peerURLs":["http://127.0.0.1:32380"],"clientURLs":["http://127.0.0.1:32379"]}]}"#
    );
    assert_eq!(
        written(&LeaseTimeToLiveResponse { header: None, id: 7, ttl: 99, granted_ttl: 100, keys: vec![] }),
        r#"{"ID":"7","TTL":"99","grantedTTL":"100"}"#
    );
}

#[test]
fn an_event_names_its_type_unless_it_is_a_put() {
    let event = |kind: EventType| Event { r#type: kind.into(), kv: Some(KeyValue::default()), prev_kv: None };
    assert_eq!(written(&event(EventType::Put)), r#"{"kv":{}}"#);
    assert_eq!(written(&event(EventType::Delete)), r#"{"type":"DELETE","kv":{}}"#);
}

#[test]
fn a_request_may_be_spelt_in_all_ways_that_etcd_takes() {
    let expected = RangeRequest {
        key: Bytes::from_static(b"foo"),
        limit: 5,
        sort_order: range_request::SortOrder::Descend.into(),
        sort_target: range_request::SortTarget::Value.into(),
        ..Default::default()
    };
    let spellings = [
        r#"{"key":"Zm9v","limit":"5","sort_order":"DESCEND","sort_target":"VALUE"}"#,
        r#"{"key":"Zm9v","limit":5,"sortOrder":2,"sortTarget":4}"#,
        r#"{"key":"Zm9v","limit":5,"sortOrder":"DESCEND","sort_target":4,"range_end":null,"revision":null}"#,
        r#"{"key":"Zm9v","limit":5,"sortOrder":"DESCEND","sort_target":4,"bogus":{"deep":[null]}}"#,
        r#" {"key":"Zm9v","limit":5,"sortOrder":"DESCEND","sort_target":4} trailing"#,
    ];
    for spelling in spellings {
        assert_eq!(read::<RangeRequest>(spelling), expected, "{spelling}");
    }
}

#[test]
fn an_empty_body_is_an_empty_message() {
    assert_eq!(read::<RangeRequest>(""), RangeRequest::default());
    assert_eq!(read::<RangeRequest>("\n"), RangeRequest::default());
    assert_eq!(read::<RangeRequest>("{}"), RangeRequest::default());
    assert_eq!(read::<RangeRequest>("null"), RangeRequest::default());
}

#[test]
fn capitals_stay_capitals() {
    assert_eq!(read::<LeaseGrantRequest>(r#"{"ID":7,"TTL":"100"}"#), LeaseGrantRequest { id: 7, ttl: 100 });
    // As in etcd, other spellings are unknown fields, and ignored.
    assert_eq!(read::<LeaseGrantRequest>(r#"{"id":7,"ttl":100}"#), LeaseGrantRequest::default());
}

#[test]
fn nonsense_is_refused_with_a_reason() {
    for body in [
        "[]",
        "{",
        "x",
        r#"{"key":5}"#,
        r#"{"key":"*"}"#,
        r#"{"limit":"many"}"#,
        r#"{"limit":5.0}"#,
        r#"{"limit":1e1}"#,
        r#"{"sort_order":"BOGUS"}"#,
        r#"{"key":5,"revision":null}"#,
    ] {
        let refusal = json::decode::<RangeRequest>(body.as_bytes()).expect_err(body);
        assert_eq!(refusal.code(), Code::InvalidArgument, "{body}");
        assert!(!refusal.message().is_empty(), "{body}");
    }
}

/// Goal: the deviations that the module names are the true ones.
#[test]
fn a_little_more_is_taken_than_etcd_takes_and_a_doubled_field_is_not() {
    assert_eq!(read::<PutRequest>(r#"{"key":"_-8="}"#).key, &[0xff, 0xef][..]);
    assert_eq!(read::<PutRequest>(r#"{"key":"Zm8"}"#).key, "fo");
    assert!(json::decode::<PutRequest>(br#"{"key":"Zm9v","key":"Zm8="}"#).is_err());
    assert!(json::decode::<TxnRequest>(br#"{"success":[null]}"#).is_err());
}

/// Goal: base64 in lines, as base64(1) writes it, is what it is without them; nothing else between its letters is.
#[test]
fn base64_may_have_ends_of_lines_in_it_as_in_go() {
    for body in [r#"{"key":"YQ==\n"}"#, r#"{"key":"Y\r\nQ=\n=\n"}"#, r#"{"key":"\nYQ==","value":null}"#] {
        assert_eq!(read::<PutRequest>(body).key, "a", "{body}");
    }
    for body in [r#"{"key":"YQ== "}"#, r#"{"key":"YQ==\\n"}"#, r#"{"key":"Y\tQ=="}"#] {
        assert!(json::decode::<PutRequest>(body.as_bytes()).is_err(), "{body}");
    }
}

#[test]
fn a_nested_transaction_is_read() {
    let body = r#"{"compare":[{"target":"VERSION","key":"Zm9v","version":"0"}],
        "failure":[{"requestRange":{"key":"Zm9v"}},{"request_txn":{"success":[{"request_put":{"key":"YQ=="}}]}}]}"#;
    let txn: TxnRequest = read(body);
    // A guard's zero is a value, not an absence.
    assert_eq!(txn.compare[0].target_union, Some(compare::TargetUnion::Version(0)));
    assert!(matches!(txn.failure[0].request, Some(request_op::Request::RequestRange(_))));
    assert!(matches!(txn.failure[1].request, Some(request_op::Request::RequestTxn(_))));
}

#[test]
fn an_error_looks_like_etcds() {
    let status = Status::from(EtcdError::LeaseNotFound);
    assert_eq!(
        written(&GatewayError::from(&status)),
        r#"{"error":"etcdserver: requested lease not found","code":5,"message":"etcdserver: requested lease not found"}"#
    );
    assert_eq!(json::http_status(status.code()), 404);
    assert_eq!(json::http_status(EtcdError::FutureRevision.code()), 400);
    assert_eq!(json::http_status(EtcdError::ElectionNoLeader.code()), 500);
    assert_eq!(json::http_status(EtcdError::NoLeader.code()), 503);
}

fn some_bytes() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..30).prop_map(Bytes::from)
}

prop_compose! {
    fn key_value()(key in some_bytes(), value in some_bytes(), numbers in any::<[i64; 4]>()) -> KeyValue {
        let [create_revision, mod_revision, version, lease] = numbers;
        KeyValue { key, create_revision, mod_revision, version, value, lease }
    }
}

prop_compose! {
    fn range()(
        key in some_bytes(), range_end in some_bytes(), numbers in any::<[i64; 6]>(), flags in any::<[bool; 3]>(),
        sort_order in 0..3, sort_target in 0..5,
    ) -> RangeRequest {
        let [limit, revision, min_mod_revision, max_mod_revision, min_create_revision, max_create_revision] = numbers;
        let [serializable, keys_only, count_only] = flags;
        RangeRequest {
            key, range_end, limit, revision, sort_order, sort_target, serializable, keys_only, count_only,
            min_mod_revision, max_mod_revision, min_create_revision, max_create_revision,
        }
    }
}

prop_compose! {
    fn put()(key in some_bytes(), value in some_bytes(), lease in any::<i64>(), flags in any::<[bool; 3]>()) -> PutRequest {
        let [prev_kv, ignore_value, ignore_lease] = flags;
        PutRequest { key, value, lease, prev_kv, ignore_value, ignore_lease }
    }
}

fn guard() -> impl Strategy<Value = Compare> {
    use compare::TargetUnion;
    let union = prop_oneof![
        any::<i64>().prop_map(TargetUnion::Version),
        any::<i64>().prop_map(TargetUnion::CreateRevision),
        any::<i64>().prop_map(TargetUnion::ModRevision),
        some_bytes().prop_map(TargetUnion::Value),
        any::<i64>().prop_map(TargetUnion::Lease),
    ];
    (0..4, 0..5, some_bytes(), some_bytes(), proptest::option::of(union)).prop_map(
        |(result, target, key, range_end, target_union)| Compare { result, target, key, range_end, target_union },
    )
}

fn transaction() -> impl Strategy<Value = TxnRequest> {
    use request_op::Request;
    let leaf = Just(TxnRequest::default());
    leaf.prop_recursive(3, 12, 3, |inner| {
        let operation = prop_oneof![
            range().prop_map(Request::RequestRange),
            put().prop_map(Request::RequestPut),
            inner.prop_map(Request::RequestTxn),
        ]
        .prop_map(|request| RequestOp { request: Some(request) });
        let operations = proptest::collection::vec(operation, 0..3).boxed();
        (proptest::collection::vec(guard(), 0..3), operations.clone(), operations)
            .prop_map(|(compare, success, failure)| TxnRequest { compare, success, failure })
    })
}

fn watch_response() -> impl Strategy<Value = WatchResponse> {
    let event = (0..2, proptest::option::of(key_value()), proptest::option::of(key_value()))
        .prop_map(|(kind, kv, prev_kv)| Event { r#type: kind, kv, prev_kv });
    (any::<[i64; 2]>(), any::<[bool; 3]>(), any::<String>(), proptest::collection::vec(event, 0..4)).prop_map(
        |([watch_id, compact_revision], [created, canceled, fragment], cancel_reason, events)| WatchResponse {
            header: None,
            watch_id,
            created,
            canceled,
            compact_revision,
            cancel_reason,
            fragment,
            events,
        },
    )
}

fn survives<M: Serialize + DeserializeOwned + Default + PartialEq + std::fmt::Debug>(message: M) {
    assert_eq!(read::<M>(&written(&message)), message);
}

proptest! {
    #[test]
    fn a_message_survives_the_way_through_json(
        kv in key_value(), range in range(), put in put(), txn in transaction(), watch in watch_response(),
        ids in any::<[u64; 4]>(), name in any::<String>(), value in some_bytes(),
    ) {
        let [cluster_id, member_id, id, raft_term] = ids;
        let header = Some(ResponseHeader { cluster_id, member_id, revision: kv.version, raft_term });
        let member = Member { id, name: name.clone(), peer_urls: vec![name.clone()], client_urls: vec![], is_learner: true };
        survives(MemberListResponse { header, members: vec![member] });
        survives(RangeResponse { header, kvs: vec![kv.clone()], more: true, count: kv.lease });
        survives(CampaignRequest { name: name.into(), lease: kv.lease, value });
        survives(kv);
        survives(range);
        survives(put);
        survives(txn);
        survives(watch);
    }

    #[test]
    fn no_reader_panics_on_arbitrary_text(text in any::<String>(), bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = json::decode::<TxnRequest>(text.as_bytes());
        let _ = json::decode::<TxnRequest>(&bytes);
        let _ = json::decode::<TxnRequest>(format!("{{\"compare\":[{{\"key\":{text:?},\"target\":null}}]}}").as_bytes());
    }
}
