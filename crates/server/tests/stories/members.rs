//! Members, maintenance and health, through a real port and the client.

// Helpers of tests fail as tests do.

use crate::support::Served;
use bytes::BytesMut;
use hustings_api::EtcdError;
use hustings_api::etcdserverpb::{
    AlarmRequest, AlarmType, DefragmentRequest, DowngradeRequest, HashKvRequest, HashRequest, MemberAddRequest,
    MemberListRequest, MemberPromoteRequest, MemberRemoveRequest, MemberUpdateRequest, MoveLeaderRequest, PutRequest,
    RangeRequest, SnapshotRequest, StatusRequest, alarm_request::AlarmAction,
};
use hustings_api::health::{HealthCheckRequest, health_check_response::ServingStatus};
use hustings_core::{Admin, NodeId};
use hustings_server::{Backend, DigestCheck, Origin, ServerOptions};

fn refused<T>(answer: Result<T, tonic::Status>) -> EtcdError {
    EtcdError::of(&answer.map(|_| ()).unwrap_err()).expect("an error that etcd's clients know")
}

/// Goal: members come, change and go, each with an id of its own; refusals are etcd's.
#[tokio::test]
async fn members_come_and_go() {
    let served = Served::start().await;
    let mut cluster = served.client().await.cluster();
    let url = |port: u16| vec![format!("http://127.0.0.1:{port}")];
    let add = |peer_urls, is_learner| MemberAddRequest { peer_urls, is_learner };
    let added = cluster.member_add(add(url(9), true)).await.unwrap().into_inner();
    let member = added.member.unwrap();
    assert_eq!((member.id, member.is_learner, added.members.len()), (4, true, 4));
    assert_eq!(refused(cluster.member_add(add(url(9), false)).await), EtcdError::PeerUrlExists);
    for bad in ["", "127.0.0.1:1", "http://h", "http://h:1/path", "ftp://h:1"] {
        assert_eq!(
            refused(cluster.member_add(add(vec![bad.to_owned()], false)).await),
            EtcdError::MemberBadUrls,
            "{bad}"
        );
    }
    assert_eq!(refused(cluster.member_add(add(Vec::new(), false)).await), EtcdError::MemberBadUrls);
    let voter = cluster.member_add(add(url(10), false)).await.unwrap().into_inner().member.unwrap();
    assert!(voter.id == 5 && voter.is_learner, "a voter begins as a learner");
    assert!(served.double.wants_vote(5) && !served.double.wants_vote(4));

    let update = |id, port| MemberUpdateRequest { id, peer_urls: url(port) };
    let updated = cluster.member_update(update(4, 11)).await.unwrap().into_inner();
    assert_eq!(updated.members[3].peer_urls, url(11));
    assert_eq!(refused(cluster.member_update(update(99, 12)).await), EtcdError::MemberNotFound);
    assert_eq!(refused(cluster.member_update(update(4, 10)).await), EtcdError::PeerUrlExists);

    let promote = |id| MemberPromoteRequest { id };
    assert!(!cluster.member_promote(promote(4)).await.unwrap().into_inner().members[3].is_learner);
    assert_eq!(refused(cluster.member_promote(promote(4)).await), EtcdError::MemberNotLearner);
    assert_eq!(refused(cluster.member_promote(promote(99)).await), EtcdError::MemberNotFound);

    assert_eq!(cluster.member_remove(MemberRemoveRequest { id: 4 }).await.unwrap().into_inner().members.len(), 4);
    assert_eq!(refused(cluster.member_remove(MemberRemoveRequest { id: 4 }).await), EtcdError::MemberNotFound);
    let list = cluster.member_list(MemberListRequest { linearizable: true }).await.unwrap().into_inner();
    assert_eq!(list.members.iter().map(|member| member.id).collect::<Vec<_>>(), [1, 2, 3, 5]);
    let next = cluster.member_add(add(url(13), true)).await.unwrap().into_inner().member.unwrap();
    assert_eq!(next.id, 6, "no id is given twice");
}

/// Goal: a member that has started tells its name and where clients reach it.
#[tokio::test]
async fn a_member_announces_itself() {
    let client_urls = vec!["http://127.0.0.1:2379".to_owned()];
    let options =
        ServerOptions { name: "ann".to_owned(), client_urls: client_urls.clone(), ..ServerOptions::default() };
    let served = Served::start_with(options).await;
    let mut status = hustings_server::Backend::status_changes(&served.double);
    let announced = status.wait_for(|status| status.membership.name_of(NodeId(1)) == "ann").await.unwrap();
    assert_eq!(announced.membership.members[&NodeId(1)].client_urls, client_urls);
    assert!(!announced.membership.members[&NodeId(1)].peer_urls.is_empty(), "what was known stays known");
}

/// Goal: the member says how it is; alarms go up and down; there is nothing to defragment or to downgrade to.
#[tokio::test]
async fn a_member_tells_its_state() {
    let served = Served::start().await;
    let mut maintenance = served.client().await.maintenance();
    served.client().await.kv().put(PutRequest { key: "a".into(), ..PutRequest::default() }).await.unwrap();
    let status = maintenance.status(StatusRequest {}).await.unwrap().into_inner();
    assert_eq!(
        (status.version.as_str(), status.leader, status.raft_term, status.raft_applied_index),
        ("3.5.21", 1, 7, 1)
    );
    assert!(status.db_size > 0 && status.errors.is_empty() && !status.is_learner);

    let alarm =
        |action: AlarmAction| AlarmRequest { action: action as i32, member_id: 2, alarm: AlarmType::Corrupt as i32 };
    assert_eq!(maintenance.alarm(alarm(AlarmAction::Activate)).await.unwrap().into_inner().alarms[0].member_id, 2);
    let corrupt = served.client().await.kv().put(PutRequest { key: "a".into(), ..PutRequest::default() }).await;
    assert_eq!(refused(corrupt), EtcdError::Corrupt);
    assert_eq!(maintenance.status(StatusRequest {}).await.unwrap().into_inner().errors, ["memberID:2 alarm:CORRUPT "]);
    assert_eq!(maintenance.alarm(alarm(AlarmAction::Get)).await.unwrap().into_inner().alarms.len(), 1);
    maintenance.alarm(alarm(AlarmAction::Deactivate)).await.unwrap();
    assert!(maintenance.alarm(alarm(AlarmAction::Get)).await.unwrap().into_inner().alarms.is_empty());

    maintenance.defragment(DefragmentRequest {}).await.unwrap();
    let downgrade = |version: &str| DowngradeRequest { action: 0, version: version.to_owned() };
    assert_eq!(refused(maintenance.downgrade(downgrade("3.3.0")).await), EtcdError::InvalidDowngradeTargetVersion);
    assert_eq!(refused(maintenance.downgrade(downgrade("x")).await), EtcdError::WrongDowngradeVersionFormat);
}

/// Goal: a digest depends on what is stored alone, and may be of an older revision.
#[tokio::test]
async fn digests_are_of_what_is_stored() {
    let (one, other) = (Served::start().await, Served::start().await);
    let mut hashes = Vec::new();
    for served in [&one, &other] {
        let client = served.client().await;
        for value in ["1", "2"] {
            client
                .kv()
                .put(PutRequest { key: "a".into(), value: value.into(), ..PutRequest::default() })
                .await
                .unwrap();
        }
        let whole = client.maintenance().hash(HashRequest {}).await.unwrap().into_inner().hash;
        let now = client.maintenance().hash_kv(HashKvRequest { revision: 0 }).await.unwrap().into_inner();
        let then = client.maintenance().hash_kv(HashKvRequest { revision: 2 }).await.unwrap().into_inner();
        assert_eq!((now.compact_revision, now.header.unwrap().revision), (-1, 3));
        assert_ne!(now.hash, then.hash);
        hashes.push((whole, now.hash, then.hash));
    }
    assert_eq!(hashes[0], hashes[1]);
    let future = one.client().await.maintenance().hash_kv(HashKvRequest { revision: 9 }).await;
    assert_eq!(refused(future), EtcdError::FutureRevision);
}

/// Goal: a snapshot is streamed whole, has the length that etcdctl looks for, and holds the store.
#[tokio::test]
async fn a_snapshot_holds_the_store() {
    let served = Served::start().await;
    for n in 0..500 {
        let put =
            hustings_kv::Put { key: format!("k{n}").into(), value: vec![b'x'; 5_000].into(), ..Default::default() };
        served.double.apply_now(&hustings_kv::Command::Put(put));
    }
    let mut parts = served.client().await.maintenance().snapshot(SnapshotRequest {}).await.unwrap().into_inner();
    let mut file = BytesMut::new();
    let mut remaining = u64::MAX;
    while let Some(part) = parts.message().await.unwrap() {
        assert!(part.remaining_bytes < remaining);
        remaining = part.remaining_bytes;
        file.extend_from_slice(&part.blob);
    }
    assert_eq!((remaining, file.len() % 512), (0, 32));
    let length = file.len() as u64;
    let snapshot = hustings_server::read_snapshot(&file.freeze(), length, DigestCheck::Required).unwrap();
    assert_eq!(snapshot.origin, Origin::Hustings { cluster_id: 0xc1, member_id: 1 });
    assert_eq!((snapshot.index, snapshot.store.view().revision()), (500, 501));
    assert_eq!(snapshot.store.view(), &served.double.view());
}

/// Goal: the lead is handed over by the leader alone, to a voter alone.
#[tokio::test]
async fn the_lead_is_handed_over() {
    let served = Served::start().await;
    let mut maintenance = served.client().await.maintenance();
    maintenance.move_leader(MoveLeaderRequest { target_id: 2 }).await.unwrap();
    assert_eq!(served.double.admins(), [Admin::Transfer(NodeId(2))]);
    let stranger = maintenance.move_leader(MoveLeaderRequest { target_id: 9 }).await;
    assert_eq!(refused(stranger), EtcdError::BadLeaderTransferee);
    served.double.declare(|status| status.leader = Some(NodeId(2)));
    assert_eq!(refused(maintenance.move_leader(MoveLeaderRequest { target_id: 1 }).await), EtcdError::NotLeader);
}

/// Goal: a learner serves what may be stale and what concerns itself, and refuses the rest.
#[tokio::test]
async fn a_learner_refuses_what_it_cannot_know() {
    let served = Served::start().await;
    served.double.declare(|status| {
        let mut membership = (*status.membership).clone();
        membership.voters.remove(&NodeId(1));
        membership.learners.insert(NodeId(1));
        (status.membership, status.leader) = (membership.into(), Some(NodeId(2)));
    });
    let client = served.client().await;
    let put = client.kv().put(PutRequest { key: "a".into(), ..PutRequest::default() }).await;
    assert_eq!(refused(put), EtcdError::NotSupportedForLearner);
    assert!(client.maintenance().status(StatusRequest {}).await.unwrap().into_inner().is_learner);
    let list = client.cluster().member_list(MemberListRequest { linearizable: false }).await.unwrap().into_inner();
    assert!(list.members[0].is_learner);
}

/// Goal: the health protocol says whether there is a leader, and each change of that.
#[tokio::test]
async fn health_follows_the_leader() {
    let served = Served::start().await;
    let mut health = served.client().await.health();
    let ask = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let serving = ServingStatus::Serving as i32;
    assert_eq!(health.check(ask("")).await.unwrap().into_inner().status, serving);
    assert_eq!(health.check(ask("nobody")).await.unwrap_err().code(), tonic::Code::NotFound);
    let mut changes = health.watch(ask("etcdserverpb.KV")).await.unwrap().into_inner();
    assert_eq!(changes.message().await.unwrap().unwrap().status, serving);
    served.double.declare(|status| status.leader = None);
    assert_eq!(changes.message().await.unwrap().unwrap().status, ServingStatus::NotServing as i32);
}

/// Goal: members that differ do not go on as if nothing were. Method: the node says that n2 differs, then that nobody knows who
/// does; writes are refused, reads are served as etcd 3.5.1 was seen to.
#[tokio::test]
async fn members_that_differ_raise_the_alarm_corrupt() {
    let served = Served::start().await;
    let client = served.client().await;
    let put = || PutRequest { key: "a".into(), value: "b".into(), ..PutRequest::default() };
    client.kv().put(put()).await.expect("all is well");
    let mut applied = served.double.applied_changes();
    for (member, index) in [(2, 2), (0, 3)] {
        served.double.declare(|status| status.differing = [NodeId(member)].into());
        applied.wait_for(|applied| *applied >= index).await.expect("it runs");
    }
    let all = AlarmRequest { action: AlarmAction::Get as i32, ..AlarmRequest::default() };
    let alarms = client.maintenance().alarm(all).await.expect("asked for").into_inner().alarms;
    assert!(alarms.iter().all(|alarm| alarm.alarm == AlarmType::Corrupt as i32));
    assert_eq!(alarms.iter().map(|alarm| alarm.member_id).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(refused(client.kv().put(put()).await), EtcdError::Corrupt);
    let range = RangeRequest { key: "a".into(), ..RangeRequest::default() };
    assert_eq!(client.kv().range(range).await.expect("served").into_inner().count, 1);
}
