//! The answers that users see while users and roles change, and what a leak would look like.

use std::net::IpAddr;
use std::time::Duration;

use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::auth_client::AuthClient;
use hustings_api::etcdserverpb::kv_client::KvClient;
use hustings_api::etcdserverpb::lease_client::LeaseClient;
use hustings_api::etcdserverpb::watch_client::WatchClient;
use hustings_api::v3electionpb as ep;
use hustings_api::v3electionpb::election_client::ElectionClient;
use hustings_api::{EtcdError, authpb};
use hustings_core::ApplyVersion;
use hustings_kv::{Accounts, AccountsChange, Command, Permission, RolePermission};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic::transport::Channel;

use crate::gateway::speak;
use crate::probes::{channel_from, guarded, token_of};
use crate::support::Served;

/// A user at a served member.
struct By {
    channel: Channel,
    token: String,
}

impl By {
    async fn of(served: &Served, user: &str) -> By {
        let channel = channel_from(served, IpAddr::from([127, 0, 0, 1])).await;
        let token = token_of(&channel, user).await;
        By { channel, token }
    }

    fn ask<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("token", self.token.parse().unwrap());
        request
    }

    async fn put(&self, key: &str) -> Result<(), tonic::Status> {
        let put = pb::PutRequest { key: key.to_owned().into(), value: "v".into(), ..Default::default() };
        KvClient::new(self.channel.clone()).put(self.ask(put)).await.map(drop)
    }

    async fn revoke_role(&self, user: &str, role: &str) {
        let request = pb::AuthUserRevokeRoleRequest { name: user.into(), role: role.into() };
        AuthClient::new(self.channel.clone()).user_revoke_role(self.ask(request)).await.unwrap();
    }

    async fn change_password(&self, user: &str, password: &str) -> Result<(), tonic::Status> {
        let request =
            pb::AuthUserChangePasswordRequest { name: user.into(), password: password.into(), ..Default::default() };
        AuthClient::new(self.channel.clone()).user_change_password(self.ask(request)).await.map(drop)
    }
}

fn create(key: &str, range_end: &str) -> pb::WatchRequest {
    let create = pb::WatchCreateRequest {
        key: key.to_owned().into(),
        range_end: range_end.to_owned().into(),
        ..Default::default()
    };
    pb::WatchRequest { request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)) }
}

/// Goal: a watch is looked at again at each auth revision: what is written after the role has gone is not told.
/// Method: two watchers on one stream, of which one stays permitted.
#[tokio::test]
async fn a_watch_ends_when_its_reader_may_not_read_any_more() {
    let served = guarded().await;
    let (root, both) = (By::of(&served, "root").await, By::of(&served, "both").await);
    let (requests, stream) = mpsc::channel(8);
    let stream = both.ask(ReceiverStream::new(stream));
    requests.send(create("r/", "r0")).await.unwrap();
    let mut answers = WatchClient::new(both.channel.clone()).watch(stream).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().unwrap().created);
    root.put("r/1").await.unwrap();
    let told = answers.message().await.unwrap().unwrap();
    assert_eq!(told.events[0].kv.as_ref().unwrap().key, "r/1");
    root.revoke_role("both", "both").await;
    root.put("r/2").await.unwrap();
    let ended = answers.message().await.unwrap().unwrap();
    let reason = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
    assert!(ended.canceled && ended.events.is_empty(), "{ended:?}");
    assert_eq!(ended.cancel_reason, reason);
    requests.send(create("r/1", "")).await.unwrap();
    let refused = answers.message().await.unwrap().unwrap();
    assert_eq!((refused.created, refused.canceled, refused.cancel_reason.as_str()), (true, true, reason));
}

/// Goal: so does a stream that observes an election, which stands on a watch of its own.
#[tokio::test]
async fn an_observer_hears_no_leader_that_it_may_not_see() {
    let served = guarded().await;
    let (root, both) = (By::of(&served, "root").await, By::of(&served, "both").await);
    let campaign = ep::CampaignRequest { name: "r/e".into(), lease: 0, value: "one".into() };
    let won = ElectionClient::new(root.channel.clone()).campaign(root.ask(campaign)).await.unwrap().into_inner();
    let name = ep::LeaderRequest { name: "r/e".into() };
    let mut observed = ElectionClient::new(both.channel.clone()).observe(both.ask(name)).await.unwrap().into_inner();
    assert_eq!(observed.message().await.unwrap().unwrap().kv.unwrap().value, "one");
    root.revoke_role("both", "both").await;
    let proclaim = ep::ProclaimRequest { leader: won.leader, value: "two".into() };
    ElectionClient::new(root.channel.clone()).proclaim(root.ask(proclaim)).await.unwrap();
    let refused = observed.message().await.unwrap_err();
    assert_eq!(EtcdError::of(&refused), Some(EtcdError::PermissionDenied));
}

/// Goal: a permission for no key at all is an error that names it, and one to the end of all keys is none. The empty key is no key: at
/// etcd such a permission permits nothing, and here it opened the whole store.
#[tokio::test]
async fn a_permission_that_ends_before_it_begins_is_refused() {
    let served = guarded().await;
    let root = By::of(&served, "root").await;
    for (key, end, is_taken) in [
        ("z", "a", false),
        ("k", "k", false),
        ("k", "\0", true),
        ("k", "", true),
        ("\0", "\0", true),
        ("", "\0", false),
        ("", "z", false),
        ("", "", false),
        ("k", "l", true),
    ] {
        let perm = authpb::Permission { perm_type: 0, key: key.into(), range_end: end.into() };
        let request = root.ask(pb::AuthRoleGrantPermissionRequest { name: "writer".into(), perm: Some(perm) });
        let granted = AuthClient::new(root.channel.clone()).role_grant_permission(request).await;
        assert_eq!(granted.is_ok(), is_taken, "[{key}, {end:?})");
        if let Err(refused) = granted {
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            let end = end.as_bytes().escape_ascii();
            assert!(refused.message().contains(&format!("the range [{key}, {end}) holds no key")), "{refused}");
        }
    }
}

/// Goal: a name is no place to keep things: the longest is taken, a longer one refused with both lengths. Method: one byte apart, and
/// as long as a request can be.
#[tokio::test]
async fn names_of_users_and_roles_are_bounded() {
    let served = guarded().await;
    let root = By::of(&served, "root").await;
    for (length, is_taken) in [(1_024, true), (1_025, false), (1_400_000, false)] {
        let name = || "n".repeat(length);
        let role = root.ask(pb::AuthRoleAddRequest { name: name() });
        let role = AuthClient::new(root.channel.clone()).role_add(role).await.map(drop);
        let user = pb::AuthUserAddRequest { name: name(), password: "p".into(), ..Default::default() };
        let user = AuthClient::new(root.channel.clone()).user_add(root.ask(user)).await.map(drop);
        for (what, outcome) in [("role", role), ("user", user)] {
            assert_eq!(outcome.is_ok(), is_taken, "{what} of {length}");
            if let Err(refused) = outcome {
                let said = format!("etcdserver: {what} name is too long: {length} bytes, 1024 at most");
                assert_eq!((refused.code(), refused.message()), (tonic::Code::InvalidArgument, &*said));
            }
        }
    }
}

/// Goal: nobody fills the memory of all members with permissions, nor makes a role of which a snapshot could not be read. Method: a key
/// beyond the bound; then, behind the service, permissions of more than all of them may take; one is given back.
#[tokio::test]
async fn permissions_are_bounded_in_bytes() {
    let served = Served::start().await;
    served.double.adopt(ApplyVersion(3));
    let mut auth = AuthClient::new(channel_from(&served, IpAddr::from([127, 0, 0, 1])).await);
    auth.role_add(pb::AuthRoleAddRequest { name: "r".into() }).await.unwrap();
    let grant = |key: Vec<u8>| {
        let perm = authpb::Permission { perm_type: 0, key: key.into(), range_end: "z".into() };
        pb::AuthRoleGrantPermissionRequest { name: "r".into(), perm: Some(perm) }
    };
    auth.role_grant_permission(grant(vec![b'k'; (16 << 10) - 1])).await.unwrap();
    let refused = auth.role_grant_permission(grant(vec![b'k'; 16 << 10])).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    let key = |number: u8| bytes::Bytes::from([&[number][..], &[b'k'; 1_200_000]].concat());
    for number in 1..=28 {
        let permission = Some(Permission { kind: 2, key: key(number), range_end: Default::default() });
        let change = Some(AccountsChange::RoleGrant(RolePermission { role: "r".into(), permission }));
        served.double.apply_now(&Command::Accounts(Accounts { change }));
    }
    let refused = auth.role_grant_permission(grant(vec![b'l'])).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message().contains("remove some first")),
        (tonic::Code::ResourceExhausted, true)
    );
    let revoke = pb::AuthRoleRevokePermissionRequest { role: "r".into(), key: key(1), range_end: Default::default() };
    auth.role_revoke_permission(revoke).await.unwrap();
    auth.role_grant_permission(grant(vec![b'l'])).await.unwrap();
}

/// Goal: a new password ends the tokens of the old one, and of nobody else.
#[tokio::test]
async fn a_new_password_ends_the_users_tokens() {
    let served = guarded().await;
    let (root, writer, both) =
        (By::of(&served, "root").await, By::of(&served, "writer").await, By::of(&served, "both").await);
    writer.put("r/1").await.unwrap();
    root.change_password("writer", "another").await.unwrap();
    let refused = writer.put("r/1").await.unwrap_err();
    assert_eq!(EtcdError::of(&refused), Some(EtcdError::InvalidAuthToken));
    both.put("r/1").await.unwrap();
    let request = pb::AuthenticateRequest { name: "writer".into(), password: "writer".into() };
    let refused = AuthClient::new(writer.channel.clone()).authenticate(request).await.unwrap_err();
    assert_eq!(EtcdError::of(&refused), Some(EtcdError::AuthFailed));
    assert_eq!(
        EtcdError::of(&writer.change_password("root", "mine").await.unwrap_err()),
        Some(EtcdError::InvalidAuthToken)
    );
    assert_eq!(
        EtcdError::of(&both.change_password("root", "mine").await.unwrap_err()),
        Some(EtcdError::PermissionDenied)
    );
}

/// Goal: keep-alives that wait together are renewed by the right of each caller. Method: they wait behind one that hesitates.
#[tokio::test]
async fn merged_keep_alives_lend_nobody_a_right() {
    let served = guarded().await;
    let (writer, other) = (By::of(&served, "writer").await, By::of(&served, "other").await);
    let renew = async |by: &By, id: i64| {
        let request = by.ask(tokio_stream::iter([pb::LeaseKeepAliveRequest { id }]));
        let mut answers = LeaseClient::new(by.channel.clone()).lease_keep_alive(request).await?.into_inner();
        Ok::<_, tonic::Status>(answers.message().await?.map(|answer| answer.ttl))
    };
    let (mine, foreign, theirs, free) =
        tokio::join!(renew(&writer, 101), renew(&other, 101), renew(&other, 102), renew(&writer, 104));
    assert_eq!((mine.unwrap(), theirs.unwrap(), free.unwrap()), (Some(10_000), Some(10_000), Some(10_000)));
    assert_eq!(EtcdError::of(&foreign.unwrap_err()), Some(EtcdError::PermissionDenied));
}

/// Goal: a raised alarm opens nothing: neither a deletion nor switching the checks off (etcd's pull request 22386).
#[tokio::test]
async fn an_alarm_opens_nothing() {
    let served = guarded().await;
    let writer = By::of(&served, "writer").await;
    for kind in [1, 2] {
        let raised = hustings_kv::AlarmChange { raise: true, member: 1, kind };
        served.double.apply_now(&hustings_kv::Command::Alarm(raised));
        let delete = pb::DeleteRangeRequest { key: "x/l".into(), ..Default::default() };
        let refused = KvClient::new(writer.channel.clone()).delete_range(writer.ask(delete)).await.unwrap_err();
        assert_eq!(EtcdError::of(&refused), Some(EtcdError::PermissionDenied), "alarm {kind}");
        let disable = writer.ask(pb::AuthDisableRequest {});
        let refused = AuthClient::new(writer.channel.clone()).auth_disable(disable).await.unwrap_err();
        assert_eq!(EtcdError::of(&refused), Some(EtcdError::PermissionDenied), "alarm {kind}");
    }
    assert!(served.double.view().users().is_enabled);
}

/// Goal: our own paths want a user too, and health wants none.
#[tokio::test]
async fn our_own_paths_want_a_user() {
    let served = guarded().await;
    for (method, path, body) in [
        ("GET", "/v1/leader", ""),
        ("GET", "/v1/status", ""),
        ("GET", "/v1/elections", ""),
        ("POST", "/v1/leases", r#"{"ttl_millis": 300}"#),
        ("POST", "/v1/leases/keepalive", r#"{"ids": ["65"]}"#),
        ("POST", "/v1/revision", r#"{"at_least": 7}"#),
    ] {
        let (status, said) = speak(&served, method, path, body).await;
        assert!(status == 400 && said.contains("user name is empty"), "{path}: {status} {said}");
    }
    for path in ["/health", "/livez", "/readyz", "/version", "/metrics"] {
        assert_eq!(speak(&served, "GET", path, "").await.0, 200, "{path}");
    }
}

/// Goal: trying passwords takes longer and longer. Method: wrong ones in a row, on the wall clock.
#[tokio::test]
async fn guessing_passwords_is_slowed() {
    let served = guarded().await;
    let channel = channel_from(&served, IpAddr::from([127, 0, 0, 1])).await;
    let begun = std::time::Instant::now();
    for _ in 0..4 {
        let request = pb::AuthenticateRequest { name: "both".into(), password: "wrong".into() };
        let refused = AuthClient::new(channel.clone()).authenticate(request).await.unwrap_err();
        assert_eq!(EtcdError::of(&refused), Some(EtcdError::AuthFailed));
    }
    assert!(begun.elapsed() >= Duration::from_millis(100 + 200 + 400), "{:?}", begun.elapsed());
}
