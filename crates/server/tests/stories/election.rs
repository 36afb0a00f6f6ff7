//! Elections and locks, through a real port and the client.

// Helpers of tests fail as tests do.

use std::time::Duration;

use crate::support::{Behaviour, Served, creations, grant, until};
use hustings_api::EtcdError;
use hustings_api::etcdserverpb::{LeaseGrantRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest};
use hustings_api::v3electionpb::{
    CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, ProclaimRequest, ResignRequest,
};
use hustings_api::v3lockpb::{LockRequest, LockResponse, UnlockRequest};
use tokio::task::JoinHandle;
use tonic::{Response, Status};

fn campaign(lease: i64, value: &str) -> CampaignRequest {
    CampaignRequest { name: "post".into(), lease, value: value.to_owned().into() }
}

async fn revoke(served: &Served, id: i64) {
    served.client().await.lease().lease_revoke(LeaseRevokeRequest { id }).await.unwrap();
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

/// Goal: a candidate leaves the queue also where its member has too much to do in that moment: its client may keep the lease alive for ever.
#[tokio::test]
async fn a_candidate_that_gives_up_leaves_the_queue_of_a_busy_member() {
    let served = held_door().await;
    let waiting = begin_lock(&served, 0xb).await;
    until(&served, |view| view.key_count() == 2).await;
    served.double.be(Behaviour::Refusing(None));
    waiting.abort();
    until_refused(&served).await;
    served.double.be(Behaviour::Willing);
    until(&served, |view| view.key_count() == 1).await;
}

/// Goal: a call of which nobody knows whether it wrote its key takes the place, or gives it up. Method: the first try is written, and its
/// outcome unknown; the next one is refused, by a member that has too much to do.
#[tokio::test]
async fn a_place_that_may_have_been_written_is_somebodys() {
    let served = held_door().await;
    served.double.be(Behaviour::Unsure);
    let waiting = begin_lock(&served, 0xb).await;
    until(&served, |view| view.key_count() == 2).await;
    served.double.be(Behaviour::Refusing(None));
    until_refused(&served).await;
    let revision = served.double.view().revision();
    served.double.be(Behaviour::Willing);
    until(&served, |view| view.revision() > revision).await;
    assert!(!waiting.is_finished(), "it waits for its turn");
    waiting.abort();
    until(&served, |view| view.key_count() == 1).await;
}

/// Goal: a member that stops takes the places along of those who wait at it. Method: its store is slow in that moment.
#[tokio::test]
async fn a_member_that_stops_gives_up_the_places_of_those_who_wait_at_it() {
    let served = held_door().await;
    let waiting = begin_lock(&served, 0xb).await;
    until(&served, |view| view.key_count() == 2).await;
    let double = served.double.clone();
    double.be(Behaviour::Frozen);
    let stopping = tokio::spawn(served.stop());
    while double.frozen() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(waiting.await.unwrap().is_err(), "it is told so");
    settle().await;
    assert!(!stopping.is_finished(), "it waits for what it gives up");
    double.be(Behaviour::Willing);
    stopping.await.unwrap();
    assert_eq!(double.view().key_count(), 1);
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

/// Goal: a lock has one holder; its holder may ask again; the first waiter gets it next; a waiter that lost its lease gets an error.
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

/// Lets everything that can go on without the outside go on.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Waits until so many requests wait for a frozen member.
async fn until_frozen(served: &Served, requests: usize) {
    while served.double.frozen() < requests {
        tokio::task::yield_now().await;
    }
}

/// Waits until the member has refused a request.
async fn until_refused(served: &Served) {
    while served.double.refusals() == 0 {
        tokio::task::yield_now().await;
    }
}

/// A member at which one of two leases holds the door.
async fn held_door() -> Served {
    let served = Served::start().await;
    for lease in [0xa, 0xb] {
        grant(&served, lease).await;
    }
    lock(&served, 0xa).await.unwrap();
    served
}

async fn lock(served: &Served, lease: i64) -> Result<LockResponse, Status> {
    let mut lock = served.client().await.lock();
    lock.lock(LockRequest { name: "door".into(), lease }).await.map(Response::into_inner)
}

async fn begin_lock(served: &Served, lease: i64) -> JoinHandle<Result<Response<LockResponse>, Status>> {
    let mut lock = served.client().await.lock();
    tokio::spawn(async move { lock.lock(LockRequest { name: "door".into(), lease }).await })
}

async fn begin_campaign(
    served: &Served,
    lease: i64,
    value: &'static str,
) -> JoinHandle<Result<Response<CampaignResponse>, Status>> {
    let mut election = served.client().await.election();
    tokio::spawn(async move { election.campaign(campaign(lease, value)).await })
}

async fn unlock(served: &Served, key: &str) {
    served.client().await.lock().unlock(UnlockRequest { key: key.to_owned().into() }).await.unwrap();
}

/// Goal: a client may cancel and ask again elsewhere with the same lease: it is in, and stays in.
/// Method: ann holds; bob waits at m1, which freezes; he cancels, asks at m2, and ann leaves. Then m1 goes on, with all that
/// bob's first call left behind, while cid waits.
#[tokio::test]
async fn a_call_that_was_cancelled_takes_nothing_from_the_call_that_followed_it() {
    let m1 = Served::start().await;
    let m2 = Served::beside(&m1).await;
    for lease in [0xa, 0xb, 0xc] {
        grant(&m2, lease).await;
    }
    let ann = lock(&m2, 0xa).await.unwrap().key;
    assert_eq!(&ann[..], b"door/a");

    let mut lock_at_m1 = m1.client().await.lock();
    let first = tokio::spawn(async move { lock_at_m1.lock(LockRequest { name: "door".into(), lease: 0xb }).await });
    until(&m2, |view| view.key_count() == 2).await;
    let place = creations(&m2.double.view(), "door/b");
    m1.double.be(Behaviour::Frozen);
    first.abort();
    let _ = first.await;
    // The cancelled call's removal of its key is on its way.
    until_frozen(&m1, 1).await;

    let (bob, ()) = tokio::join!(lock(&m2, 0xb), async {
        settle().await;
        unlock(&m2, "door/a").await;
    });
    assert_eq!(&bob.unwrap().key[..], b"door/b");

    let cid = lock(&m2, 0xc);
    let rest = async {
        until(&m2, |view| creations(view, "door/c") > 0).await;
        m1.double.be(Behaviour::Willing);
        settle().await;
        assert_eq!(creations(&m2.double.view(), "door/b"), place, "bob still stands where he stood");
        unlock(&m2, "door/b").await;
    };
    let (cid, ()) = tokio::join!(cid, rest);
    assert_eq!(&cid.unwrap().key[..], b"door/c");
}

/// Goal: an Unlock that was late on its way to the log ends no later holding of the same lease.
#[tokio::test]
async fn a_delayed_unlock_ends_no_later_holding() {
    let m1 = Served::start().await;
    let m2 = Served::beside(&m1).await;
    grant(&m2, 0xa).await;
    lock(&m2, 0xa).await.unwrap();
    m1.double.be(Behaviour::Hesitant);
    let mut late = m1.client().await.lock();
    let late = tokio::spawn(async move { late.unlock(UnlockRequest { key: "door/a".into() }).await });
    until_frozen(&m1, 1).await;
    // Its client does not wait for it, and goes on elsewhere.
    unlock(&m2, "door/a").await;
    lock(&m2, 0xa).await.unwrap();
    m1.double.be(Behaviour::Willing);
    late.await.unwrap().unwrap();
    assert!(creations(&m2.double.view(), "door/a") > 0, "the later holding stands");
}

/// Goal: the call that follows a cancelled one keeps the place even when it, too, is cancelled only after it was told that it
/// is in; and leaves the queue when it is cancelled before.
#[tokio::test]
async fn the_last_call_that_is_cancelled_leaves_the_queue() {
    let served = Served::start().await;
    for lease in [0xa, 0xb] {
        grant(&served, lease).await;
    }
    lock(&served, 0xa).await.unwrap();
    let first = begin_lock(&served, 0xb).await;
    until(&served, |view| view.key_count() == 2).await;
    let revision = served.double.view().revision();
    let second = begin_lock(&served, 0xb).await;
    until(&served, |view| view.revision() > revision).await;
    first.abort();
    let _ = first.await;
    second.abort();
    let _ = second.await;
    until(&served, |view| view.key_count() == 1).await;
    // A holder that asks again and cancels that is the holder still.
    let again = begin_lock(&served, 0xa).await;
    assert!(again.await.unwrap().is_ok());
    let again = begin_lock(&served, 0xa).await;
    again.abort();
    let _ = again.await;
    settle().await;
    assert!(creations(&served.double.view(), "door/a") > 0);
}

/// Goal: a campaign that is repeated by its leader keeps place and token, and says its new value.
#[tokio::test]
async fn a_repeated_campaign_says_its_new_value() {
    let served = Served::start().await;
    grant(&served, 0xa).await;
    let mut election = served.client().await.election();
    let first = election.campaign(campaign(0xa, "ann")).await.unwrap().into_inner().leader;
    let again = election.campaign(campaign(0xa, "ann again")).await.unwrap().into_inner().leader;
    assert_eq!(first, again);
    let leader = election.leader(LeaderRequest { name: "post".into() }).await.unwrap().into_inner().kv.unwrap();
    assert_eq!((&leader.value[..], leader.lease), (&b"ann again"[..], 0xa));
}

/// Goal: a candidate that waits and whose key somebody deletes is told nothing false: it stands again, at the end.
#[tokio::test]
async fn a_candidate_whose_key_was_deleted_stands_again() {
    let served = Served::start().await;
    for lease in [0xa, 0xb] {
        grant(&served, lease).await;
    }
    lock(&served, 0xa).await.unwrap();
    let (bob, place) = tokio::join!(lock(&served, 0xb), async {
        until(&served, |view| creations(view, "door/b") > 0).await;
        let place = creations(&served.double.view(), "door/b");
        unlock(&served, "door/b").await;
        until(&served, |view| creations(view, "door/b") > place).await;
        unlock(&served, "door/a").await;
        place
    });
    assert_eq!(&bob.unwrap().key[..], b"door/b");
    assert!(creations(&served.double.view(), "door/b") > place);
}

/// Goal: a call that was answered with an error leaves no key behind, once its member goes on.
#[tokio::test(start_paused = true)]
async fn a_call_that_ran_out_of_time_leaves_the_queue() {
    let m1 = Served::start().await;
    let m2 = Served::beside(&m1).await;
    grant(&m1, 0xa).await;
    m1.double.be(Behaviour::Frozen);
    let refused = lock(&m1, 0xa).await.unwrap_err();
    assert_eq!(EtcdError::of(&refused), Some(EtcdError::Timeout));
    let revision = m2.double.view().revision();
    m1.double.be(Behaviour::Willing);
    until(&m2, |view| view.revision() >= revision + 2).await;
    assert_eq!(m2.double.view().key_count(), 0, "it was made late, and removed");

    // Unless the client has asked again meanwhile, and was let in.
    m1.double.be(Behaviour::Frozen);
    lock(&m1, 0xa).await.unwrap_err();
    let holding = lock(&m2, 0xa).await.unwrap();
    m1.double.be(Behaviour::Willing);
    settle().await;
    let view = m2.double.view();
    assert_eq!((&holding.key[..], view.key_count()), (&b"door/a"[..], 1), "who was let in is in");
}

/// Goal: the loss of the leader ends no wait: not at once, and not after any time.
#[tokio::test(start_paused = true)]
async fn a_wait_outlasts_the_loss_of_the_leader() {
    let served = Served::start().await;
    for lease in [0xa, 0xb] {
        grant(&served, lease).await;
    }
    lock(&served, 0xa).await.unwrap();
    let mut rival = served.client().await.lock();
    let mut request = tonic::Request::new(LockRequest { name: "door".into(), lease: 0xb });
    request.metadata_mut().insert("hasleader", "true".parse().unwrap());
    let waiting = tokio::spawn(async move { rival.lock(request).await });
    until(&served, |view| view.key_count() == 2).await;
    served.double.be(Behaviour::Frozen);
    served.double.declare(|status| status.leader = None);
    settle().await;
    tokio::time::advance(Duration::from_secs(20)).await;
    settle().await;
    assert!(!waiting.is_finished());
    served.double.declare(|status| status.leader = Some(hustings_core::NodeId(1)));
    served.double.be(Behaviour::Willing);
    unlock(&served, "door/a").await;
    assert_eq!(&waiting.await.unwrap().unwrap().into_inner().key[..], b"door/b");
}

/// Goal: a candidate that waits on a lease whose time is up is not let in, although its key may stand for some steps more.
#[tokio::test]
async fn a_lease_that_is_due_leads_nowhere() {
    let served = Served::start().await;
    grant(&served, 0xa).await;
    lock(&served, 0xa).await.unwrap();
    // Let so many end together that the waiting one's turn to be removed comes later.
    let mut lease = served.client().await.lease();
    for id in 0..1_000 {
        lease.lease_grant(LeaseGrantRequest { ttl: 60, id: 0x1000 + id }).await.unwrap();
    }
    grant(&served, 0x9000).await;
    let bob = lock(&served, 0x9000);
    let checks = async {
        until(&served, |view| creations(view, "door/9000") > 0).await;
        served.double.pass_at_once(Duration::from_secs(61));
        assert!(creations(&served.double.view(), "door/a") == 0 && creations(&served.double.view(), "door/9000") > 0);
    };
    let (bob, ()) = tokio::join!(bob, checks);
    assert_eq!(EtcdError::of(&bob.unwrap_err()), Some(EtcdError::LockSessionExpired));
}

/// Goal: a proclamation changes what a leader says, never how long it leads, and makes no leader.
#[tokio::test]
async fn a_proclamation_keeps_the_lease_and_makes_no_leader() {
    let served = Served::start().await;
    let mut election = served.client().await.election();
    let nobody = LeaderKey { name: "post".into(), key: "post/a".into(), rev: 0, lease: 0 };
    for rev in [0, -1] {
        let leader = Some(LeaderKey { rev, ..nobody.clone() });
        let refused = election.proclaim(ProclaimRequest { leader, value: "me".into() }).await.unwrap_err();
        assert_eq!(EtcdError::of(&refused), Some(EtcdError::ElectionNotLeader));
    }
    assert_eq!(served.double.view().key_count(), 0);

    grant(&served, 0xa).await;
    let leader = election.campaign(campaign(0xa, "ann")).await.unwrap().into_inner().leader.unwrap();
    let leader = Some(LeaderKey { lease: 0, ..leader });
    election.proclaim(ProclaimRequest { leader, value: "ann again".into() }).await.unwrap();
    revoke(&served, 0xa).await;
    assert_eq!(served.double.view().key_count(), 0, "the leadership ends with its lease");
}

/// Goal: an observer that stood still over a compaction is told who leads, and never a mere candidate.
/// Method: values so large that the stream is full before the leader changes.
#[tokio::test]
async fn an_observer_behind_a_compaction_is_told_who_leads() {
    let served = Served::start().await;
    for lease in [0xa, 0xb, 0xc] {
        grant(&served, lease).await;
    }
    let mut election = served.client().await.election();
    let leader = election.campaign(campaign(0xa, "ann")).await.unwrap().into_inner().leader.unwrap();
    let mut observed = served.client().await.election();
    let mut observed = observed.observe(LeaderRequest { name: "post".into() }).await.unwrap().into_inner();
    assert_eq!(observed.message().await.unwrap().unwrap().kv.unwrap().value, "ann");
    for _ in 0..5 {
        let value = vec![b'a'; 1 << 20].into();
        election.proclaim(ProclaimRequest { leader: Some(leader.clone()), value }).await.unwrap();
    }
    let bob = begin_campaign(&served, 0xb, "bob").await;
    until(&served, |view| view.key_count() == 2).await;
    election.resign(ResignRequest { leader: Some(leader) }).await.unwrap();
    bob.await.unwrap().unwrap();
    let cid = begin_campaign(&served, 0xc, "cid").await;
    until(&served, |view| view.key_count() == 2).await;
    let revision = served.double.view().revision();
    served.double.apply_now(&hustings_kv::Command::Compact(hustings_kv::Compact { revision }));

    let mut last = bytes::Bytes::new();
    while last != "bob" {
        last = observed.message().await.unwrap().unwrap().kv.unwrap().value;
        assert_ne!(last, "cid", "who waits does not lead");
    }
    cid.abort();
}
