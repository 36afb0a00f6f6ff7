//! The store, through a real port and the client.

// Helpers of tests fail as tests do.

use crate::support::{Behaviour, Served};
use hustings_api::EtcdError;
use hustings_api::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, compare,
    request_op, response_op,
};
use hustings_node::RequestError;
use hustings_server::ServerOptions;

fn put(key: &str, value: &str) -> PutRequest {
    PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), ..PutRequest::default() }
}

fn range(key: &str) -> RangeRequest {
    RangeRequest { key: key.to_owned().into(), ..RangeRequest::default() }
}

fn op(request: request_op::Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

/// Goal: what is put can be read, and headers say exactly where and when.
#[tokio::test]
async fn a_put_is_read_back_with_exact_headers() {
    let served = Served::start().await;
    let mut kv = served.client().await.kv();
    let header = kv.put(put("a", "1")).await.unwrap().into_inner().header.unwrap();
    assert_eq!((header.cluster_id, header.member_id, header.revision, header.raft_term), (0xc1, 1, 2, 7));
    let previous = kv.put(PutRequest { prev_kv: true, ..put("a", "2") }).await.unwrap().into_inner().prev_kv.unwrap();
    assert_eq!((&previous.value[..], previous.mod_revision), (&b"1"[..], 2));
    for serializable in [false, true] {
        let answer = kv.range(RangeRequest { serializable, ..range("a") }).await.unwrap().into_inner();
        assert_eq!((answer.count, answer.kvs[0].version, answer.header.unwrap().revision), (1, 2, 3));
    }
    let deleted = kv.delete_range(DeleteRangeRequest { prev_kv: true, key: "a".into(), ..Default::default() }).await;
    let deleted = deleted.unwrap().into_inner();
    assert_eq!((deleted.deleted, &deleted.prev_kvs[0].value[..], deleted.header.unwrap().revision), (1, &b"2"[..], 4));
    served.stop().await;
}

/// Goal: a transaction compares, runs the right branch, and a read-only one writes nothing into the log.
#[tokio::test]
async fn a_transaction_runs_one_branch_in_one_revision() {
    let served = Served::start().await;
    let mut kv = served.client().await.kv();
    let absent = Compare {
        key: "a".into(),
        target: compare::CompareTarget::Create as i32,
        target_union: Some(compare::TargetUnion::CreateRevision(0)),
        ..Compare::default()
    };
    let txn = TxnRequest {
        compare: vec![absent],
        success: vec![
            op(request_op::Request::RequestPut(put("a", "1"))),
            op(request_op::Request::RequestPut(put("b", "2"))),
        ],
        failure: vec![op(request_op::Request::RequestRange(range("a")))],
    };
    let first = kv.txn(txn.clone()).await.unwrap().into_inner();
    assert_eq!((first.succeeded, first.responses.len(), first.header.unwrap().revision), (true, 2, 2));
    let second = kv.txn(txn).await.unwrap().into_inner();
    assert_eq!((second.succeeded, second.header.unwrap().revision), (false, 2));
    let index = served.double.view();
    let reading =
        TxnRequest { success: vec![op(request_op::Request::RequestRange(range("a")))], ..TxnRequest::default() };
    assert!(kv.txn(reading).await.unwrap().into_inner().succeeded);
    assert_eq!(served.double.view(), index, "a read-only transaction is a read");
}

/// Goal: each refusal has etcd's code and text, letter for letter.
#[tokio::test]
async fn refusals_are_etcds() {
    let served = Served::start().await;
    let mut kv = served.client().await.kv();
    kv.put(put("a", "1")).await.unwrap();
    let refused = |status: tonic::Status| EtcdError::of(&status).map(|error| (error, error.code() == status.code()));

    assert_eq!(refused(kv.put(put("", "")).await.unwrap_err()), Some((EtcdError::EmptyKey, true)));
    assert_eq!(refused(kv.range(range("")).await.unwrap_err()), Some((EtcdError::EmptyKey, true)));
    let future = RangeRequest { revision: 99, ..range("a") };
    assert_eq!(refused(kv.range(future).await.unwrap_err()), Some((EtcdError::FutureRevision, true)));
    let lease = PutRequest { lease: 5, ..put("a", "") };
    assert_eq!(refused(kv.put(lease).await.unwrap_err()), Some((EtcdError::LeaseNotFound, true)));
    let ignore = PutRequest { ignore_value: true, ..put("none", "") };
    assert_eq!(refused(kv.put(ignore).await.unwrap_err()), Some((EtcdError::KeyNotFound, true)));

    let twice =
        vec![op(request_op::Request::RequestPut(put("k", "1"))), op(request_op::Request::RequestPut(put("k", "2")))];
    let twice = TxnRequest { success: twice, ..TxnRequest::default() };
    assert_eq!(refused(kv.txn(twice).await.unwrap_err()), Some((EtcdError::DuplicateKey, true)));
    let many = (0..129).map(|n| op(request_op::Request::RequestPut(put(&n.to_string(), "")))).collect();
    let many = TxnRequest { success: many, ..TxnRequest::default() };
    assert_eq!(refused(kv.txn(many).await.unwrap_err()), Some((EtcdError::TooManyOps, true)));
    let large = put("a", &"x".repeat(3 * 512 * 1024));
    assert_eq!(refused(kv.put(large).await.unwrap_err()), Some((EtcdError::RequestTooLarge, true)));

    kv.compact(CompactionRequest { revision: 2, physical: true }).await.unwrap();
    let old = RangeRequest { revision: 1, ..range("a") };
    assert_eq!(refused(kv.range(old).await.unwrap_err()), Some((EtcdError::Compacted, true)));

    served.double.be(Behaviour::Refusing(Some(RequestError::QueueFull)));
    assert_eq!(refused(kv.put(put("a", "")).await.unwrap_err()), Some((EtcdError::TooManyRequests, true)));
    served.double.be(Behaviour::Refusing(Some(RequestError::Unknown)));
    assert_eq!(refused(kv.put(put("a", "")).await.unwrap_err()), Some((EtcdError::LeaderChanged, true)));
}

/// Goal: a client that insists on a leader is refused at once when there is none; one that does not may read stale data.
#[tokio::test]
async fn without_a_leader_only_who_insists_is_refused_at_once() {
    let served = Served::start().await;
    let mut kv = served.client().await.kv();
    served.double.declare(|status| status.leader = None);
    let mut request = tonic::Request::new(RangeRequest { serializable: true, ..range("a") });
    assert!(kv.range(RangeRequest { serializable: true, ..range("a") }).await.is_ok());
    request.metadata_mut().insert("hasleader", "true".parse().unwrap());
    assert_eq!(EtcdError::of(&kv.range(request).await.unwrap_err()), Some(EtcdError::NoLeader));
}

/// Goal: "am I still the owner?", a comparison without operations, is asked of the cluster and not of what one member knows;
/// so is a transaction with a transaction inside it that reads nothing.
#[tokio::test]
async fn a_comparison_alone_is_answered_by_the_cluster() {
    let served = Served::start().await;
    let mut kv = served.client().await.kv();
    let compare = Compare { key: "a".into(), ..Compare::default() };
    let compares = TxnRequest { compare: vec![compare], ..TxnRequest::default() };
    let stale = op(request_op::Request::RequestRange(RangeRequest { serializable: true, ..range("a") }));
    let inner = op(request_op::Request::RequestTxn(compares.clone()));
    let reads = TxnRequest { success: vec![stale.clone()], ..compares.clone() };
    let both = TxnRequest { success: vec![stale, inner], ..compares.clone() };
    served.double.be(Behaviour::Refusing(Some(RequestError::QueueFull)));
    for asked in [compares.clone(), both] {
        assert_eq!(EtcdError::of(&kv.txn(asked).await.unwrap_err()), Some(EtcdError::TooManyRequests));
    }
    assert!(kv.txn(reads).await.is_ok(), "what says that it may be old is answered here");
    served.double.be(Behaviour::Willing);
    assert!(kv.txn(compares).await.unwrap().into_inner().succeeded);
}

/// Goal: a request whose outcome stays away ends within its bound, with the error that says so.
#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_times_out() {
    let served = Served::start().await;
    let mut kv = served.client().await.kv();
    served.double.be(Behaviour::Silent);
    assert_eq!(EtcdError::of(&kv.put(put("a", "")).await.unwrap_err()), Some(EtcdError::Timeout));
    // As in etcd: that nobody leads is not said to be the last leader's fault.
    served.double.declare(|status| status.leader = None);
    let refused = kv.put(put("a", "")).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (tonic::Code::DeadlineExceeded, "context deadline exceeded"));
}

/// Goal: puts that come to nothing fill no store: no alarm, and room for the next.
#[tokio::test]
async fn puts_that_fail_fill_no_store() {
    let served = Served::start_with(ServerOptions { quota_backend_bytes: 64 << 10, ..ServerOptions::default() }).await;
    let mut kv = served.client().await.kv();
    served.double.be(Behaviour::Refusing(Some(RequestError::Unknown)));
    for _ in 0..20 {
        let refused = kv.put(put("a", &"x".repeat(10_000))).await.unwrap_err();
        assert_eq!(EtcdError::of(&refused), Some(EtcdError::LeaderChanged));
    }
    served.double.be(Behaviour::Willing);
    kv.put(put("a", &"x".repeat(10_000))).await.unwrap();
    assert_eq!(served.double.view().alarms(), []);
}

/// Goal: space that was freed is there at once, and nobody is refused, or alarmed, for what was.
#[tokio::test]
async fn space_that_was_freed_is_there_at_once() {
    let served = Served::start_with(ServerOptions { quota_backend_bytes: 64 << 10, ..ServerOptions::default() }).await;
    let mut kv = served.client().await.kv();
    for round in 0..20 {
        let revision = kv.put(put("a", &"x".repeat(40_000))).await.unwrap().into_inner().header.unwrap().revision;
        kv.delete_range(DeleteRangeRequest { key: "a".into(), ..Default::default() }).await.unwrap();
        kv.compact(CompactionRequest { revision: revision + 1, physical: true }).await.unwrap();
        assert_eq!(served.double.view().alarms(), [], "round {round}");
    }
}

/// Goal: a store that outgrew its quota refuses puts, still reads, deletes and compacts.
#[tokio::test]
async fn a_full_store_refuses_puts_and_nothing_else() {
    let served = Served::start_with(ServerOptions { quota_backend_bytes: 64 << 10, ..ServerOptions::default() }).await;
    let mut kv = served.client().await.kv();
    let refusal = loop {
        if let Err(status) = kv.put(put("a", &"x".repeat(10_000))).await {
            break status;
        }
    };
    assert_eq!(EtcdError::of(&refusal), Some(EtcdError::NoSpace));
    assert_eq!(kv.range(range("a")).await.unwrap().into_inner().count, 1);
    kv.delete_range(DeleteRangeRequest { key: "a".into(), ..Default::default() }).await.unwrap();
    let mut applied = hustings_server::Backend::applied_changes(&served.double);
    while served.double.view().alarms().is_empty() {
        applied.changed().await.unwrap();
    }
}

/// Goal: the alarm goes up although the store could not be looked at for a while. Method: a look comes to nothing
/// before the store is full.
#[tokio::test]
async fn looks_in_vain_end_no_watch_over_the_quota() {
    let served = Served::start_with(ServerOptions { quota_backend_bytes: 64 << 10, ..ServerOptions::default() }).await;
    let mut kv = served.client().await.kv();
    kv.put(put("a", "b")).await.unwrap();
    served.double.fail_looks(1);
    // Whatever is applied has the store looked at, and nobody else looks.
    while served.double.fails_looks() {
        served.double.pass_at_once(std::time::Duration::ZERO);
        tokio::task::yield_now().await;
    }
    while kv.put(put("a", &"x".repeat(10_000))).await.is_ok() {}
    let mut applied = hustings_server::Backend::applied_changes(&served.double);
    while served.double.view().alarms().is_empty() {
        applied.changed().await.unwrap();
    }
}

/// Goal: a member whose log has no room to grow refuses what needs room at once: what is left would be full before an alarm is
/// applied. Reads and deletes go on.
#[tokio::test]
async fn a_member_whose_disk_is_full_refuses_before_the_alarm_is_up() {
    let served = Served::start().await;
    let counters = std::sync::Arc::new(hustings_node::Counters::default());
    served.metrics.tell_of_peers(counters.clone());
    let mut kv = served.client().await.kv();
    kv.put(put("a", "b")).await.unwrap();
    counters.is_log_short.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(EtcdError::of(&kv.put(put("a", "c")).await.unwrap_err()), Some(EtcdError::NoSpace));
    assert_eq!(kv.range(range("a")).await.unwrap().into_inner().count, 1);
    kv.delete_range(DeleteRangeRequest { key: "a".into(), ..Default::default() }).await.unwrap();
    let mut applied = hustings_server::Backend::applied_changes(&served.double);
    while served.double.view().alarms().is_empty() {
        applied.changed().await.unwrap();
    }
}

fn key_number(number: u64) -> String {
    format!("k{number:06}")
}

/// Goal: a request that touches too much is told so, with what to do, and leaves nothing in the log; in parts it works.
#[tokio::test]
async fn a_request_that_costs_too_much_is_refused_before_it_is_proposed() {
    let served = Served::start().await;
    for number in 0..=hustings_kv::DELETIONS_MAX {
        let put = hustings_kv::Put { key: key_number(number).into(), ..hustings_kv::Put::default() };
        served.double.apply_now(&hustings_kv::Command::Put(put));
    }
    let mut kv = served.client().await.kv();
    let delete = |end: String| DeleteRangeRequest { key: "k".into(), range_end: end.into(), ..Default::default() };
    let proposals = served.double.proposals();
    let refused = kv.delete_range(delete("l".into())).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    assert!(refused.message().contains("10000 keys"), "{}", refused.message());
    let compare = Compare { key: "k".into(), range_end: "l".into(), target: 2, result: 1, ..Compare::default() };
    let compares = TxnRequest { compare: vec![compare; 128], ..TxnRequest::default() };
    let writes = TxnRequest { success: vec![op(request_op::Request::RequestPut(put("a", "b")))], ..compares };
    assert_eq!(kv.txn(writes).await.unwrap_err().code(), tonic::Code::ResourceExhausted);
    assert_eq!(served.double.proposals(), proposals, "nobody else was asked");
    for end in [key_number(5_000), "l".into()] {
        assert!(kv.delete_range(delete(end)).await.unwrap().into_inner().deleted > 0);
    }
    assert_eq!(served.double.view().key_count(), 0);
}

/// Goal: a range in a writing transaction is answered with what it saw there.
#[tokio::test]
async fn a_range_in_a_transaction_is_answered() {
    let served = Served::start().await;
    let mut kv = served.client().await.kv();
    for key in ["a", "b"] {
        kv.put(put(key, "1")).await.unwrap();
    }
    let all = || op(request_op::Request::RequestRange(RangeRequest { range_end: "z".into(), ..range("a") }));
    let success = vec![all(), op(request_op::Request::RequestPut(put("c", "2"))), all()];
    let txn = kv.txn(TxnRequest { success, ..TxnRequest::default() }).await.unwrap().into_inner();
    let counts: Vec<i64> = txn
        .responses
        .into_iter()
        .filter_map(|response| match response.response {
            Some(response_op::Response::ResponseRange(range)) => Some(range.count),
            _ => None,
        })
        .collect();
    assert_eq!(counts, [2, 3]);
}
