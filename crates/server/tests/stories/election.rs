//! Elections and locks, through a real port and the client.

// Helpers of tests fail as tests do.

use std::time::Duration;

use crate::support::Served;
use hustings_api::EtcdError;
use hustings_api::etcdserverpb::{LeaseGrantRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest};
use hustings_api::v3electionpb::{CampaignRequest, LeaderKey, LeaderRequest, ProclaimRequest, ResignRequest};
use hustings_api::v3lockpb::{LockRequest, UnlockRequest};
use hustings_kv::View;

fn campaign(lease: i64, value: &str) -> CampaignRequest {
    CampaignRequest { name: "post".into(), lease, value: value.to_owned().into() }
}

async fn grant(served: &Served, id: i64) {
    served.client().await.lease().lease_grant(LeaseGrantRequest { ttl: 60, id }).await.unwrap();
}

async fn revoke(served: &Served, id: i64) {
    served.client().await.lease().lease_revoke(LeaseRevokeRequest { id }).await.unwrap();
}

/// Waits until the store is so.
async fn until(served: &Served, is_so: impl Fn(&View) -> bool) {
    let mut applied = hustings_server::Backend::applied_changes(&served.double);
    while !is_so(&served.double.view()) {
        applied.changed().await.unwrap();
    }
}

/// Goal: candidates lead one after the other, each with a greater token; an observer hears all of it in order.
#[tokio::test]
async fn candidates_lead_in_turn_and_observers_hear_it() {
    let served = Served::start().await;
    grant(&served, 0xa).await;
    grant(&served, 0xb).await;
    let mut election = served.client().await.election();
    let nobody = election.leader(LeaderRequest { name: "post".into() }).await.unwrap_err();
    assert_eq!(EtcdError::of(&nobody), Some(EtcdError::ElectionNoLeader));
    let mut observed = election.observe(LeaderRequest { name: "post".into() }).await.unwrap().into_inner();

    let first = election.campaign(campaign(0xa, "ann")).await.unwrap().into_inner().leader.unwrap();
    assert_eq!((&first.key[..], first.lease), (&b"post/a"[..], 0xa));
    let second = {
        let mut election = served.client().await.election();
        tokio::spawn(async move { election.campaign(campaign(0xb, "bob")).await })
    };
    until(&served, |view| view.key_count() == 2).await;
    let proclaim = ProclaimRequest { leader: Some(first.clone()), value: "ann again".into() };
    election.proclaim(proclaim.clone()).await.unwrap();
    assert!(!second.is_finished(), "one leads at a time");
    election.resign(ResignRequest { leader: Some(first.clone()) }).await.unwrap();
    let second = second.await.unwrap().unwrap().into_inner().leader.unwrap();
    assert!(second.rev > first.rev, "the fencing token grows");
    let lost = election.proclaim(proclaim).await.unwrap_err();
    assert_eq!(EtcdError::of(&lost), Some(EtcdError::ElectionNotLeader));
    let leader = election.leader(LeaderRequest { name: "post".into() }).await.unwrap().into_inner().kv.unwrap();
    assert_eq!(&leader.value[..], b"bob");

    let mut heard = Vec::new();
    while heard.len() < 3 {
        heard.push(observed.message().await.unwrap().unwrap().kv.unwrap().value);
    }
    assert_eq!(heard, ["ann", "ann again", "bob"]);
}

/// Goal: nobody is told to lead whose lease has ended, however it ended.
#[tokio::test]
async fn a_candidate_without_a_lease_never_leads() {
    let served = Served::start().await;
    let mut election = served.client().await.election();
    let unknown = election.campaign(campaign(0x5, "x")).await.unwrap_err();
    assert_eq!(EtcdError::of(&unknown), Some(EtcdError::LeaseNotFound));

    grant(&served, 0xa).await;
    grant(&served, 0xb).await;
    election.campaign(campaign(0xa, "ann")).await.unwrap();
    let waiting = {
        let mut election = served.client().await.election();
        tokio::spawn(async move { election.campaign(campaign(0xb, "bob")).await })
    };
    until(&served, |view| view.key_count() == 2).await;
    revoke(&served, 0xb).await;
    let refused = waiting.await.unwrap().unwrap_err();
    assert_eq!(EtcdError::of(&refused), Some(EtcdError::LeaseNotFound));
}

/// Goal: a candidate that gives up leaves the queue by itself, and takes its implicit lease with it.
#[tokio::test]
async fn a_candidate_that_gives_up_leaves_the_queue() {
    let served = Served::start().await;
    grant(&served, 0xa).await;
    let mut election = served.client().await.election();
    election.campaign(campaign(0xa, "ann")).await.unwrap();
    for lease in [0, 0xb] {
        if lease != 0 {
            grant(&served, lease).await;
        }
        let mut rival = served.client().await.election();
        let waiting = tokio::spawn(async move { rival.campaign(campaign(lease, "bob")).await });
        until(&served, |view| view.key_count() == 2).await;
        waiting.abort();
        let _ = waiting.await;
        until(&served, |view| view.key_count() == 1).await;
    }
    until(&served, |view| view.leases().len() == 2).await;
}

/// Goal: a lease is renewed while its candidate waits, as etcd's sessions do; afterwards it is the client's.
#[tokio::test(start_paused = true)]
async fn waiting_renews_the_lease() {
    let served = Served::start().await;
    grant(&served, 0xa).await;
    grant(&served, 0xb).await;
    let mut election = served.client().await.election();
    let ann = election.campaign(campaign(0xa, "ann")).await.unwrap().into_inner().leader;
    let mut rival = served.client().await.election();
    let waiting = tokio::spawn(async move { rival.campaign(campaign(0xb, "bob")).await });
    until(&served, |view| view.key_count() == 2).await;
    served.double.pass(Duration::from_secs(30));
    until(&served, |view| {
        let lease = view.lease_time_to_live(0xb, hustings_kv::LeaseKeys::Omit).unwrap();
        lease.remaining == Duration::from_secs(60)
    })
    .await;
    election.resign(ResignRequest { leader: ann }).await.unwrap();
    waiting.await.unwrap().unwrap();
    let left = LeaseTimeToLiveRequest { id: 0xa, keys: true };
    let left = served.client().await.lease().lease_time_to_live(left).await.unwrap().into_inner();
    assert_eq!((left.ttl, left.keys.len()), (30, 0), "who leads is not renewed by the server");
}

/// Goal: requests without a leadership are refused as etcd does.
#[tokio::test]
async fn a_missing_leadership_is_named() {
    let served = Served::start().await;
    let mut election = served.client().await.election();
    let missing = election.proclaim(ProclaimRequest::default()).await.unwrap_err();
    assert_eq!(EtcdError::of(&missing), Some(EtcdError::ElectionMissingLeader));
    let lost = LeaderKey { name: "post".into(), key: "post/1".into(), rev: 9, lease: 1 };
    assert!(election.resign(ResignRequest { leader: Some(lost) }).await.is_ok(), "what is lost is given up, too");
}

/// Goal: a lock has one holder; its holder may ask again; who waits gets it next; who lost its lease gets an error.
#[tokio::test]
async fn a_lock_has_one_holder() {
    let served = Served::start().await;
    for lease in [0xa, 0xb, 0xc] {
        grant(&served, lease).await;
    }
    let mut lock = served.client().await.lock();
    let ask = |lease| LockRequest { name: "door".into(), lease };
    let key = lock.lock(ask(0xa)).await.unwrap().into_inner().key;
    assert_eq!(&key[..], b"door/a");
    assert_eq!(lock.lock(ask(0xa)).await.unwrap().into_inner().key, key, "one lease is one ownership");
    let wait = |lease| {
        let client = served.client();
        async move {
            let mut lock = client.await.lock();
            lock.lock(LockRequest { name: "door".into(), lease }).await
        }
    };
    let (second, third) = (wait(0xb), wait(0xc));
    let checks = async {
        until(&served, |view| view.key_count() == 3).await;
        revoke(&served, 0xc).await;
        lock.unlock(UnlockRequest { key }).await.unwrap();
    };
    let (second, third, ()) = tokio::join!(second, third, checks);
    assert_eq!(&second.unwrap().into_inner().key[..], b"door/b");
    assert_eq!(EtcdError::of(&third.unwrap_err()), Some(EtcdError::LockSessionExpired));
}
