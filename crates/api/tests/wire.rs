//! The wire: what travels is byte for byte what etcd 3.5 sends, and nothing that arrives can make a decoder panic.

#![allow(clippy::unwrap_used, reason = "a test may end where it fails")]

use std::collections::BTreeSet;
use std::fmt::Debug;

use bytes::Bytes;
use hustings_api::etcdserverpb::*;
use hustings_api::mvccpb::{Event, KeyValue};
use hustings_api::v3electionpb::*;
use hustings_api::v3lockpb::*;
use hustings_api::{etcdserverpb, health, v3electionpb, v3lockpb};
use proptest::prelude::*;
use prost::Message;

/// Goal: a renumbered or retyped field is convicted. Method: bytes computed by hand from etcd's numbers.
fn golden<M: Message + Default + PartialEq + Debug>(message: M, hexadecimal: &str) {
    let expected: Vec<u8> = hexadecimal.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let encoded = message.encode_to_vec();
    assert_eq!(encoded, expected, "{message:?} encodes to {encoded:02x?}");
    assert_eq!(M::decode(&expected[..]).unwrap(), message);
}

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// A header that takes two bytes: `08 01`.
fn header() -> Option<ResponseHeader> {
    Some(ResponseHeader { cluster_id: 1, ..Default::default() })
}

#[test]
fn records_have_etcds_numbers() {
    let kv = KeyValue { key: text("k"), create_revision: 1, mod_revision: 2, version: 3, value: text("v"), lease: 4 };
    golden(kv.clone(), "0a 01 6b 10 01 18 02 20 03 2a 01 76 30 04");
    golden(
        Event { r#type: 1, kv: Some(kv), prev_kv: Some(KeyValue { key: text("p"), ..Default::default() }) },
        "08 01 12 0e 0a 01 6b 10 01 18 02 20 03 2a 01 76 30 04 1a 03 0a 01 70",
    );
    golden(
        ResponseHeader { cluster_id: 1, member_id: 2, revision: -1, raft_term: 300 },
        "08 01 10 02 18 ff ff ff ff ff ff ff ff ff 01 20 ac 02",
    );
}

#[test]
fn reads_and_writes_have_etcds_numbers() {
    golden(
        RangeRequest {
            key: text("a"),
            range_end: text("b"),
            limit: 1,
            revision: 2,
            sort_order: range_request::SortOrder::Descend.into(),
            sort_target: range_request::SortTarget::Value.into(),
            serializable: true,
            keys_only: true,
            count_only: true,
            min_mod_revision: 3,
            max_mod_revision: 4,
            min_create_revision: 5,
            max_create_revision: 6,
        },
        "0a 01 61 12 01 62 18 01 20 02 28 02 30 04 38 01 40 01 48 01 50 03 58 04 60 05 68 06",
    );
    golden(
        RangeResponse { header: header(), kvs: vec![KeyValue::default()], more: true, count: 7 },
        "0a 02 08 01 12 00 18 01 20 07",
    );
    golden(
        PutRequest {
            key: text("k"),
            value: text("v"),
            lease: 5,
            prev_kv: true,
            ignore_value: true,
            ignore_lease: true,
        },
        "0a 01 6b 12 01 76 18 05 20 01 28 01 30 01",
    );
    golden(PutResponse { header: header(), prev_kv: Some(KeyValue::default()) }, "0a 02 08 01 12 00");
    golden(DeleteRangeRequest { key: text("a"), range_end: text("b"), prev_kv: true }, "0a 01 61 12 01 62 18 01");
    golden(
        DeleteRangeResponse { header: header(), deleted: 1, prev_kvs: vec![KeyValue::default()] },
        "0a 02 08 01 10 01 1a 00",
    );
    golden(CompactionRequest { revision: 9, physical: true }, "08 09 10 01");
}

#[test]
fn transactions_have_etcds_numbers() {
    use compare::{CompareResult, CompareTarget, TargetUnion};
    let guard = |target, union| Compare {
        result: CompareResult::NotEqual.into(),
        target: i32::from(target),
        key: text("k"),
        range_end: text("z"),
        target_union: Some(union),
    };
    golden(guard(CompareTarget::Version, TargetUnion::Version(0)), "08 03 1a 01 6b 20 00 82 04 01 7a");
    golden(guard(CompareTarget::Create, TargetUnion::CreateRevision(1)), "08 03 10 01 1a 01 6b 28 01 82 04 01 7a");
    golden(guard(CompareTarget::Mod, TargetUnion::ModRevision(2)), "08 03 10 02 1a 01 6b 30 02 82 04 01 7a");
    golden(guard(CompareTarget::Value, TargetUnion::Value(text("v"))), "08 03 10 03 1a 01 6b 3a 01 76 82 04 01 7a");
    golden(guard(CompareTarget::Lease, TargetUnion::Lease(5)), "08 03 10 04 1a 01 6b 40 05 82 04 01 7a");

    use request_op::Request;
    let operation = |request| RequestOp { request: Some(request) };
    golden(
        TxnRequest {
            compare: vec![Compare::default()],
            success: vec![
                operation(Request::RequestRange(RangeRequest::default())),
                operation(Request::RequestPut(PutRequest::default())),
            ],
            failure: vec![
                operation(Request::RequestDeleteRange(DeleteRangeRequest::default())),
                operation(Request::RequestTxn(TxnRequest::default())),
            ],
        },
        "0a 00 12 02 0a 00 12 02 12 00 1a 02 1a 00 1a 02 22 00",
    );
    use response_op::Response;
    let answer = |response| ResponseOp { response: Some(response) };
    golden(
        TxnResponse {
            header: header(),
            succeeded: true,
            responses: vec![
                answer(Response::ResponseRange(RangeResponse::default())),
                answer(Response::ResponsePut(PutResponse::default())),
                answer(Response::ResponseDeleteRange(DeleteRangeResponse::default())),
                answer(Response::ResponseTxn(TxnResponse::default())),
            ],
        },
        "0a 02 08 01 10 01 1a 02 0a 00 1a 02 12 00 1a 02 1a 00 1a 02 22 00",
    );
}

#[test]
fn watches_have_etcds_numbers() {
    use watch_request::RequestUnion;
    let word = |union| WatchRequest { request_union: Some(union) };
    golden(
        word(RequestUnion::CreateRequest(WatchCreateRequest {
            key: text("a"),
            range_end: text("b"),
            start_revision: 1,
            progress_notify: true,
            filters: vec![0, watch_create_request::FilterType::Nodelete.into()],
            prev_kv: true,
            watch_id: 2,
            fragment: true,
        })),
        "0a 14 0a 01 61 12 01 62 18 01 20 01 2a 02 00 01 30 01 38 02 40 01",
    );
    golden(word(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: 3 })), "12 02 08 03");
    golden(word(RequestUnion::ProgressRequest(WatchProgressRequest {})), "1a 00");
    golden(
        WatchResponse {
            header: header(),
            watch_id: 1,
            created: true,
            canceled: true,
            compact_revision: 2,
            cancel_reason: "r".into(),
            fragment: true,
            events: vec![Event::default()],
        },
        "0a 02 08 01 10 01 18 01 20 01 28 02 32 01 72 38 01 5a 00",
    );
}

#[test]
fn leases_have_etcds_numbers() {
    golden(LeaseGrantRequest { ttl: 1, id: 2 }, "08 01 10 02");
    golden(
        LeaseGrantResponse { header: header(), id: 1, ttl: 2, error: "e".into() },
        "0a 02 08 01 10 01 18 02 22 01 65",
    );
    golden(LeaseRevokeRequest { id: 1 }, "08 01");
    golden(LeaseKeepAliveRequest { id: 1 }, "08 01");
    golden(LeaseKeepAliveResponse { header: header(), id: 1, ttl: 2 }, "0a 02 08 01 10 01 18 02");
    golden(LeaseTimeToLiveRequest { id: 1, keys: true }, "08 01 10 01");
    golden(
        LeaseTimeToLiveResponse { header: header(), id: 1, ttl: 2, granted_ttl: 3, keys: vec![text("k")] },
        "0a 02 08 01 10 01 18 02 20 03 2a 01 6b",
    );
    golden(LeaseLeasesResponse { header: header(), leases: vec![LeaseStatus { id: 1 }] }, "0a 02 08 01 12 02 08 01");
}

#[test]
fn members_have_etcds_numbers() {
    let member = Member {
        id: 1,
        name: "n".into(),
        peer_urls: vec!["p".into()],
        client_urls: vec!["c".into()],
        is_learner: true,
    };
    golden(member.clone(), "08 01 12 01 6e 1a 01 70 22 01 63 28 01");
    golden(MemberAddRequest { peer_urls: vec!["p".into()], is_learner: true }, "0a 01 70 10 01");
    golden(
        MemberAddResponse { header: header(), member: Some(member), members: vec![Member::default()] },
        "0a 02 08 01 12 0d 08 01 12 01 6e 1a 01 70 22 01 63 28 01 1a 00",
    );
    golden(MemberRemoveRequest { id: 1 }, "08 01");
    golden(MemberUpdateRequest { id: 1, peer_urls: vec!["p".into()] }, "08 01 12 01 70");
    golden(MemberPromoteRequest { id: 1 }, "08 01");
    golden(MemberListRequest { linearizable: true }, "08 01");
    let members = vec![Member::default()];
    golden(MemberRemoveResponse { header: header(), members: members.clone() }, "0a 02 08 01 12 00");
    golden(MemberUpdateResponse { header: header(), members: members.clone() }, "0a 02 08 01 12 00");
    golden(MemberPromoteResponse { header: header(), members: members.clone() }, "0a 02 08 01 12 00");
    golden(MemberListResponse { header: header(), members }, "0a 02 08 01 12 00");
}

#[test]
fn maintenance_has_etcds_numbers() {
    golden(
        StatusResponse {
            header: header(),
            version: "v".into(),
            db_size: 1,
            leader: 2,
            raft_index: 3,
            raft_term: 4,
            raft_applied_index: 5,
            errors: vec!["e".into()],
            db_size_in_use: 6,
            is_learner: true,
        },
        "0a 02 08 01 12 01 76 18 01 20 02 28 03 30 04 38 05 42 01 65 48 06 50 01",
    );
    golden(
        AlarmRequest {
            action: alarm_request::AlarmAction::Deactivate.into(),
            member_id: 1,
            alarm: AlarmType::Corrupt.into(),
        },
        "08 02 10 01 18 02",
    );
    golden(
        AlarmResponse {
            header: header(),
            alarms: vec![AlarmMember { member_id: 1, alarm: AlarmType::Nospace.into() }],
        },
        "0a 02 08 01 12 04 08 01 10 01",
    );
    golden(HashResponse { header: header(), hash: 1 }, "0a 02 08 01 10 01");
    golden(HashKvRequest { revision: 1 }, "08 01");
    golden(HashKvResponse { header: header(), hash: 1, compact_revision: 2 }, "0a 02 08 01 10 01 18 02");
    golden(SnapshotResponse { header: header(), remaining_bytes: 1, blob: text("b") }, "0a 02 08 01 10 01 1a 01 62");
    golden(MoveLeaderRequest { target_id: 1 }, "08 01");
    golden(
        DowngradeRequest { action: downgrade_request::DowngradeAction::Cancel.into(), version: "v".into() },
        "08 02 12 01 76",
    );
    golden(DowngradeResponse { header: header(), version: "v".into() }, "0a 02 08 01 12 01 76");
}

#[test]
fn elections_and_locks_have_etcds_numbers() {
    let leader = LeaderKey { name: text("n"), key: text("k"), rev: 1, lease: 2 };
    golden(leader.clone(), "0a 01 6e 12 01 6b 18 01 20 02");
    golden(CampaignRequest { name: text("n"), lease: 1, value: text("v") }, "0a 01 6e 10 01 1a 01 76");
    golden(
        CampaignResponse { header: header(), leader: Some(leader) },
        "0a 02 08 01 12 0a 0a 01 6e 12 01 6b 18 01 20 02",
    );
    golden(ProclaimRequest { leader: Some(LeaderKey::default()), value: text("v") }, "0a 00 12 01 76");
    golden(LeaderRequest { name: text("n") }, "0a 01 6e");
    golden(LeaderResponse { header: header(), kv: Some(KeyValue::default()) }, "0a 02 08 01 12 00");
    golden(ResignRequest { leader: Some(LeaderKey::default()) }, "0a 00");
    golden(LockRequest { name: text("n"), lease: 1 }, "0a 01 6e 10 01");
    golden(LockResponse { header: header(), key: text("k") }, "0a 02 08 01 12 01 6b");
    golden(UnlockRequest { key: text("k") }, "0a 01 6b");
    golden(
        health::HealthCheckResponse { status: health::health_check_response::ServingStatus::NotServing.into() },
        "08 02",
    );
}

#[test]
fn enums_have_etcds_names_and_numbers() {
    assert_eq!(range_request::SortOrder::from_str_name("ASCEND"), Some(range_request::SortOrder::Ascend));
    for (number, name) in ["KEY", "VERSION", "CREATE", "MOD", "VALUE"].into_iter().enumerate() {
        assert_eq!(range_request::SortTarget::from_str_name(name).unwrap() as usize, number);
    }
    for (number, name) in ["EQUAL", "GREATER", "LESS", "NOT_EQUAL"].into_iter().enumerate() {
        assert_eq!(compare::CompareResult::from_str_name(name).unwrap() as usize, number);
    }
    for (number, name) in ["VERSION", "CREATE", "MOD", "VALUE", "LEASE"].into_iter().enumerate() {
        assert_eq!(compare::CompareTarget::from_str_name(name).unwrap() as usize, number);
    }
    for (number, name) in ["NOPUT", "NODELETE"].into_iter().enumerate() {
        assert_eq!(watch_create_request::FilterType::from_str_name(name).unwrap() as usize, number);
    }
    for (number, name) in ["NONE", "NOSPACE", "CORRUPT"].into_iter().enumerate() {
        assert_eq!(AlarmType::from_str_name(name).unwrap() as usize, number);
    }
    for (number, name) in ["GET", "ACTIVATE", "DEACTIVATE"].into_iter().enumerate() {
        assert_eq!(alarm_request::AlarmAction::from_str_name(name).unwrap() as usize, number);
    }
    for (number, name) in ["VALIDATE", "ENABLE", "CANCEL"].into_iter().enumerate() {
        assert_eq!(downgrade_request::DowngradeAction::from_str_name(name).unwrap() as usize, number);
    }
}

#[test]
fn services_have_etcds_names() {
    assert_eq!(kv_server::SERVICE_NAME, "etcdserverpb.KV");
    assert_eq!(watch_server::SERVICE_NAME, "etcdserverpb.Watch");
    assert_eq!(lease_server::SERVICE_NAME, "etcdserverpb.Lease");
    assert_eq!(cluster_server::SERVICE_NAME, "etcdserverpb.Cluster");
    assert_eq!(maintenance_server::SERVICE_NAME, "etcdserverpb.Maintenance");
    assert_eq!(v3electionpb::election_server::SERVICE_NAME, "v3electionpb.Election");
    assert_eq!(v3lockpb::lock_server::SERVICE_NAME, "v3lockpb.Lock");
    assert_eq!(health::health_server::SERVICE_NAME, "grpc.health.v1.Health");
}

/// A message by name, and what decoding it gives: only that it comes back matters.
type Decoder = (&'static str, fn(&[u8]) -> bool);

macro_rules! decoders {
    ($($message:ty),* $(,)?) => {
        [$((stringify!($message), (|bytes| <$message>::decode(bytes).is_ok()) as fn(&[u8]) -> bool)),*]
    };
}

/// All messages that we declare.
fn decoders() -> Vec<Decoder> {
    decoders![
        KeyValue,
        Event,
        ResponseHeader,
        RangeRequest,
        RangeResponse,
        PutRequest,
        PutResponse,
        DeleteRangeRequest,
        DeleteRangeResponse,
        RequestOp,
        ResponseOp,
        Compare,
        TxnRequest,
        TxnResponse,
        CompactionRequest,
        CompactionResponse,
        HashRequest,
        HashKvRequest,
        HashKvResponse,
        HashResponse,
        SnapshotRequest,
        SnapshotResponse,
        WatchRequest,
        WatchCreateRequest,
        WatchCancelRequest,
        WatchProgressRequest,
        WatchResponse,
        LeaseGrantRequest,
        LeaseGrantResponse,
        LeaseRevokeRequest,
        LeaseRevokeResponse,
        LeaseKeepAliveRequest,
        LeaseKeepAliveResponse,
        LeaseTimeToLiveRequest,
        LeaseTimeToLiveResponse,
        LeaseLeasesRequest,
        LeaseStatus,
        LeaseLeasesResponse,
        Member,
        MemberAddRequest,
        MemberAddResponse,
        MemberRemoveRequest,
        MemberRemoveResponse,
        MemberUpdateRequest,
        MemberUpdateResponse,
        MemberListRequest,
        MemberListResponse,
        MemberPromoteRequest,
        MemberPromoteResponse,
        DefragmentRequest,
        DefragmentResponse,
        MoveLeaderRequest,
        MoveLeaderResponse,
        AlarmRequest,
        AlarmMember,
        AlarmResponse,
        DowngradeRequest,
        DowngradeResponse,
        StatusRequest,
        StatusResponse,
        CampaignRequest,
        CampaignResponse,
        LeaderKey,
        LeaderRequest,
        LeaderResponse,
        ResignRequest,
        ResignResponse,
        ProclaimRequest,
        ProclaimResponse,
        LockRequest,
        LockResponse,
        UnlockRequest,
        UnlockResponse,
        health::HealthCheckRequest,
        health::HealthCheckResponse,
    ]
    .to_vec()
}

/// Goal: no message escapes the tests below. Method: read the declarations.
#[test]
fn the_list_of_decoders_is_complete() {
    let declared: BTreeSet<String> = [
        include_str!("../proto/kv.proto"),
        include_str!("../proto/rpc.proto"),
        include_str!("../proto/election.proto"),
        include_str!("../proto/lock.proto"),
        include_str!("../proto/health.proto"),
    ]
    .iter()
    .flat_map(|text| text.lines())
    .filter_map(|line| line.strip_prefix("message ")?.split_whitespace().next())
    .map(|name| name.replace("HashKV", "HashKv"))
    .collect();
    let listed: BTreeSet<String> = decoders().iter().map(|(name, _)| name.replace("health::", "")).collect();
    assert_eq!(declared, listed);
}

/// Goal: a peer cannot overflow our stack. Method: transactions in transactions, deeper than the decoder goes.
#[test]
fn a_transaction_nested_too_deep_is_refused() {
    let nested = |depth: usize| {
        (0..depth).fold(TxnRequest::default(), |inner, _| TxnRequest {
            success: vec![RequestOp { request: Some(request_op::Request::RequestTxn(inner)) }],
            ..Default::default()
        })
    };
    assert!(TxnRequest::decode(&nested(20).encode_to_vec()[..]).is_ok());
    assert!(TxnRequest::decode(&nested(200).encode_to_vec()[..]).is_err());
}

/// Goal: keys and values are not copied. Method: the decoded value lies inside the frame.
#[test]
fn a_decoded_value_is_a_slice_of_its_frame() {
    let request = PutRequest { key: text("key"), value: Bytes::from(vec![7; 1000]), ..Default::default() };
    let frame = Bytes::from(request.encode_to_vec());
    let decoded = etcdserverpb::PutRequest::decode(frame.clone()).unwrap();
    assert!(frame.as_ptr_range().contains(&decoded.value.as_ptr()));
}

proptest! {
    #[test]
    fn no_decoder_panics_on_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for (_, decode) in decoders() {
            decode(&bytes);
        }
    }

    #[test]
    fn no_decoder_panics_on_a_damaged_message(
        key in proptest::collection::vec(any::<u8>(), 0..20),
        revision in any::<i64>(),
        place in any::<prop::sample::Index>(),
        damage in any::<u8>(),
        length in any::<prop::sample::Index>(),
    ) {
        let put = PutRequest { key: key.clone().into(), value: key.clone().into(), lease: revision, ..Default::default() };
        let guard = Compare {
            key: key.into(),
            target_union: Some(compare::TargetUnion::ModRevision(revision)),
            ..Default::default()
        };
        let txn = TxnRequest {
            compare: vec![guard],
            success: vec![RequestOp { request: Some(request_op::Request::RequestPut(put)) }],
            failure: vec![],
        };
        let mut bytes = txn.encode_to_vec();
        let place = place.index(bytes.len());
        bytes[place] ^= damage;
        bytes.truncate(length.index(bytes.len()) + 1);
        for (_, decode) in decoders() {
            decode(&bytes);
        }
    }
}
