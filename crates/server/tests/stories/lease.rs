//! Leases, through a real port and the client.

// Helpers of tests fail as tests do.

use crate::support::{Behaviour, Served};
use hustings_api::EtcdError;
use hustings_api::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseLeasesRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest,
    PutRequest, RangeRequest,
};
use hustings_server::ServerOptions;
use std::time::Duration;

/// Goal: a lease holds its keys while it lives, and takes them with it.
#[tokio::test]
async fn a_lease_takes_its_keys_with_it() {
    let served = Served::start().await;
    let client = served.client().await;
    let (mut kv, mut lease) = (client.kv(), client.lease());
    let granted = lease.lease_grant(LeaseGrantRequest { ttl: 10, id: 0 }).await.unwrap().into_inner();
    assert!(granted.id > 0 && granted.ttl == 10 && granted.error.is_empty());
    kv.put(PutRequest { key: "a".into(), lease: granted.id, ..PutRequest::default() }).await.unwrap();

    served.double.pass(Duration::from_millis(3_500));
    let ask = LeaseTimeToLiveRequest { id: granted.id, keys: true };
    let left = lease.lease_time_to_live(ask).await.unwrap().into_inner();
    assert_eq!((left.ttl, left.granted_ttl, &left.keys[0][..]), (6, 10, &b"a"[..]));
    let all = lease.lease_leases(LeaseLeasesRequest {}).await.unwrap().into_inner();
    assert_eq!(all.leases.iter().map(|lease| lease.id).collect::<Vec<_>>(), [granted.id]);

    let kept = [LeaseKeepAliveRequest { id: granted.id }, LeaseKeepAliveRequest { id: 99 }];
    let mut answers = lease.lease_keep_alive(tokio_stream::iter(kept)).await.unwrap().into_inner();
    let first = answers.message().await.unwrap().unwrap();
    assert_eq!((first.id, first.ttl), (granted.id, 10));
    let unknown = answers.message().await.unwrap().unwrap();
    assert_eq!((unknown.id, unknown.ttl), (99, 0), "a lease that does not exist has no time to live");
    assert!(answers.message().await.unwrap().is_none(), "the answers end with the requests");

    served.double.pass(Duration::from_secs(11));
    assert_eq!(
        kv.range(RangeRequest { key: "a".into(), ..RangeRequest::default() }).await.unwrap().into_inner().count,
        0
    );
    assert_eq!(lease.lease_time_to_live(ask).await.unwrap().into_inner().ttl, -1);
}

/// Goal: refusals of leases are etcd's, and a lifetime is never shorter than a failover.
#[tokio::test]
async fn refusals_of_leases_are_etcds() {
    let served = Served::start().await;
    let mut lease = served.client().await.lease();
    let refused = |status: tonic::Status| EtcdError::of(&status).unwrap();
    assert_eq!(lease.lease_grant(LeaseGrantRequest { ttl: 0, id: 7 }).await.unwrap().into_inner().ttl, 1);
    let again = lease.lease_grant(LeaseGrantRequest { ttl: 5, id: 7 }).await;
    assert_eq!(refused(again.unwrap_err()), EtcdError::LeaseExists);
    let huge = lease.lease_grant(LeaseGrantRequest { ttl: i64::MAX, id: 8 }).await;
    assert_eq!(refused(huge.unwrap_err()), EtcdError::LeaseTtlTooLarge);
    lease.lease_revoke(LeaseRevokeRequest { id: 7 }).await.unwrap();
    let gone = lease.lease_revoke(LeaseRevokeRequest { id: 7 }).await;
    assert_eq!(refused(gone.unwrap_err()), EtcdError::LeaseNotFound);
}

/// Goal: keep-alives of many streams share log entries.
#[tokio::test]
async fn many_keep_alives_are_few_commands() {
    let served = Served::start().await;
    let client = served.client().await;
    for id in 1..=50 {
        client.lease().lease_grant(LeaseGrantRequest { ttl: 60, id }).await.unwrap();
    }
    let streams = (1..=50).map(|id| {
        let mut lease = client.lease();
        async move {
            let request = tokio_stream::iter([LeaseKeepAliveRequest { id }]);
            let answer = lease.lease_keep_alive(request).await.unwrap().into_inner().message().await.unwrap().unwrap();
            assert_eq!((answer.id, answer.ttl), (id, 60));
        }
    });
    futures::future::join_all(streams).await;
}

/// Goal: a keep-alive that waits behind one that hangs does not fail with it: it is proposed for itself as soon as that one has ended, so
/// it is late by what is left of that one's time. Method: the member hesitates until the first has run out of time.
#[tokio::test(start_paused = true)]
async fn a_keep_alive_behind_one_that_hangs_is_late_and_does_not_fail_with_it() {
    let served = Served::start().await;
    let client = served.client().await;
    for id in [1, 2] {
        client.lease().lease_grant(LeaseGrantRequest { ttl: 60, id }).await.unwrap();
    }
    let renew = |id: i64| {
        let mut lease = client.lease();
        tokio::spawn(async move {
            let request = tokio_stream::iter([LeaseKeepAliveRequest { id }]);
            let answer = lease.lease_keep_alive(request).await?.into_inner().message().await?;
            Ok::<_, tonic::Status>(answer.map(|answer| answer.ttl))
        })
    };
    served.double.be(Behaviour::Hesitant);
    let first = renew(1);
    until(|| served.double.frozen() > 0).await;
    let second = renew(2);
    // It waits where nobody can look. The clock stands still meanwhile, because this task always has something to do.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    tokio::time::advance(ServerOptions::default().request_timeout() + Duration::from_millis(1)).await;
    until(|| first.is_finished()).await;
    assert_eq!(EtcdError::of(&first.await.unwrap().unwrap_err()), Some(EtcdError::Timeout));
    assert!(!second.is_finished(), "its own time has only begun");
    served.double.be(Behaviour::Willing);
    assert_eq!(second.await.unwrap().unwrap(), Some(60));
}

/// Gives way to others until this is true.
async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

/// Goal: a caller that is told that a lease is revoked finds none of its keys, however many there were.
#[tokio::test]
async fn a_revoked_lease_leaves_no_key() {
    let served = Served::start().await;
    let mut lease = served.client().await.lease();
    lease.lease_grant(LeaseGrantRequest { ttl: 60, id: 7 }).await.unwrap();
    for number in 0..2 * hustings_kv::KEYS_PER_STEP + 100 {
        let key = format!("k{number}").into();
        served.double.apply_now(&hustings_kv::Command::Put(hustings_kv::Put { key, lease: 7, ..Default::default() }));
    }
    lease.lease_revoke(LeaseRevokeRequest { id: 7 }).await.unwrap();
    assert_eq!(served.double.view().key_count(), 0);
}
