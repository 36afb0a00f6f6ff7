//! Leases, through a real port and the client.

// Helpers of tests fail as tests do.

use crate::support::Served;
use hustings_api::EtcdError;
use hustings_api::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseLeasesRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest,
    PutRequest, RangeRequest,
};
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
