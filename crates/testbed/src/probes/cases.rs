//! The calls that are tried: each method, each field that names a key, a lease, a user or a role, for ranges in and around
//! what callers may do; and their results, by rules that are written down here once more and independently of the server's.

use bytes::Bytes;
use hustings_api::authpb;
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::request_op::Request as Op;
use hustings_api::v3electionpb as ep;
use hustings_api::v3lockpb as lp;
use prost::Message;
use serde::Serialize;

/// The access to a range of keys that a call needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// To see values, or whether keys are there.
    Read,
    /// To change or delete.
    Write,
}

/// The permission that a call needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Permission {
    /// Anybody may make it.
    Nothing,
    /// Any user may make it.
    User,
    /// Only root may make it.
    Root,
    /// The user of this name may make it, and root.
    SameUser(&'static str),
    /// A user with this role may make it, and root.
    Role(&'static str),
    /// A user may make it who has all of these accesses, each from a key to an end.
    Keys(Vec<(Access, Bytes, Bytes)>),
}

/// One call of a method, and what it needs.
#[derive(Clone, Debug)]
pub struct Case {
    /// Path of the method in gRPC.
    pub method: &'static str,
    /// Path behind `/v3/`; empty: not for JSON.
    pub path: &'static str,
    /// A name for it in a report.
    pub label: String,
    /// The request in protobuf.
    pub bytes: Bytes,
    /// The request in JSON.
    pub json: String,
    /// The permission that it needs.
    pub want: Permission,
    /// Whether a caller who may must not make it: it would change what the others find.
    pub is_fatal: bool,
}

/// A caller, with what it may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// A name for it in a report.
    pub label: &'static str,
    /// Name of the user; empty for a caller without one.
    pub user: &'static str,
    /// Proof that it gives of itself.
    pub proof: Proof,
}

/// The way in which a caller proves who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// It says nothing of itself.
    None,
    /// A token that nobody issued.
    Wrong,
    /// A token for its name and password.
    Token,
    /// A certificate with its name.
    Certificate,
}

/// Weak callers first: what a strong one does to the store must not open it to a weak one.
pub const CALLERS: [Caller; 11] = [
    Caller { label: "nobody", user: "", proof: Proof::None },
    Caller { label: "wrong", user: "", proof: Proof::Wrong },
    Caller { label: "stranger by certificate", user: "stranger", proof: Proof::Certificate },
    Caller { label: "no role", user: "norole", proof: Proof::Token },
    Caller { label: "other range", user: "other", proof: Proof::Token },
    Caller { label: "reader", user: "reader", proof: Proof::Token },
    Caller { label: "writer", user: "writer", proof: Proof::Token },
    Caller { label: "both", user: "both", proof: Proof::Token },
    Caller { label: "reader by certificate", user: "reader", proof: Proof::Certificate },
    Caller { label: "root", user: "root", proof: Proof::Token },
    Caller { label: "root by certificate", user: "root", proof: Proof::Certificate },
];

/// Role, what it may do, from, to: each user has the role of its name.
pub const PERMISSIONS: [(&str, authpb::permission::Type, &str, &str); 5] = [
    ("other", authpb::permission::Type::Readwrite, "x/", "x0"),
    ("reader", authpb::permission::Type::Read, "r/", "r0"),
    ("writer", authpb::permission::Type::Write, "r/", "r0"),
    ("both", authpb::permission::Type::Readwrite, "r/", "r0"),
    ("both", authpb::permission::Type::Read, "s", ""),
];

/// Ranges in and around what the callers may do.
const RANGES: [(&str, &str); 16] = [
    ("r/a", ""),
    ("r/", ""),
    ("r0", ""),
    ("x/a", ""),
    ("s", ""),
    ("r/a", "r/b"),
    ("r/", "r0"),
    ("r/", "r1"),
    ("q", "r/b"),
    ("r/a", "\0"),
    ("\0", "\0"),
    ("x/", "x0"),
    ("s", "\0"),
    ("s", "t"),
    ("s", "s\0"),
    ("a", "z"),
];

/// Leases that the probes name, and the keys that hang on each.
pub const LEASES: [(i64, &[&str]); 4] = [(101, &["r/l"]), (102, &["x/l"]), (104, &[]), (105, &["zz/l"])];

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Whether a role's range covers another; ends as etcd writes them.
fn covers(from: &str, to: &str, key: &[u8], end: &[u8]) -> bool {
    let is_single = to.is_empty();
    match end {
        [] if is_single => key == from.as_bytes(),
        [] => key >= from.as_bytes() && key < to.as_bytes(),
        [0] => false,
        // One key and its end right behind it.
        end if is_single => key == from.as_bytes() && end == [from.as_bytes(), b"\0"].concat(),
        end => key >= from.as_bytes() && end <= to.as_bytes(),
    }
}

impl Case {
    /// The refusal that this caller must get, as code and text; `None`: it must not be refused.
    pub fn refusal_of(&self, who: &Caller) -> Option<(i32, &'static str)> {
        let (code, text) = match who.user {
            // Alarms may be listed by every user, so that one is asked for first.
            "stranger" if self.method.ends_with("/Alarm") => (7, "etcdserver: permission denied"),
            _ => who.refusal(&self.want)?,
        };
        // etcd's locks and elections hand on the store's words, and not its code.
        Some((if self.method.starts_with("/v3") { 2 } else { code }, text))
    }
}

impl Caller {
    fn may(&self, access: Access, key: &[u8], end: &[u8]) -> bool {
        use authpb::permission::Type::{Read, Readwrite, Write};
        PERMISSIONS.iter().any(|(role, kind, from, to)| {
            let counts = match kind {
                Readwrite => true,
                Read => access == Access::Read,
                Write => access == Access::Write,
            };
            *role == self.user && counts && covers(from, to, key, end)
        })
    }

    /// The refusal that the call must get, as code and text; `None`: it must not be refused.
    pub fn refusal(&self, want: &Permission) -> Option<(i32, &'static str)> {
        if *want == Permission::Nothing {
            return None;
        }
        match self.proof {
            Proof::None => return Some((3, "etcdserver: user name is empty")),
            Proof::Wrong => return Some((16, "etcdserver: invalid auth token")),
            _ if self.user == "root" => return None,
            _ => {}
        }
        if self.user == "stranger" {
            // A name in a certificate need not be a user's, and etcd says so where only root may.
            return Some(match want {
                Permission::Root | Permission::SameUser(_) | Permission::Role(_) => {
                    (9, "etcdserver: user name not found")
                }
                _ => (7, "etcdserver: permission denied"),
            });
        }
        let is_permitted = match want {
            Permission::Nothing | Permission::User => true,
            Permission::Root => false,
            Permission::SameUser(name) | Permission::Role(name) => *name == self.user && self.user != "norole",
            Permission::Keys(keys) => keys.iter().all(|(access, key, end)| self.may(*access, key, end)),
        };
        (!is_permitted).then_some((7, "etcdserver: permission denied"))
    }
}

fn case(
    method: &'static str,
    path: &'static str,
    label: String,
    message: &(impl Message + Serialize),
    want: Permission,
) -> Case {
    let json = serde_json::to_string(message).expect("a message has a form in JSON");
    Case { method, path, label, bytes: message.encode_to_vec().into(), json, want, is_fatal: false }
}

fn keys(wanted: &[(Access, &str, &str)]) -> Permission {
    Permission::Keys(wanted.iter().map(|(access, key, end)| (*access, bytes(key), bytes(end))).collect())
}

/// An operation with what it needs.
type Needing = (String, Op, Vec<(Access, Bytes, Bytes)>);

/// The operations of a transaction on a range.
fn operations(key: &str, end: &str) -> Vec<Needing> {
    use Access::{Read, Write};
    let (key, end) = (bytes(key), bytes(end));
    let need = |access| (access, key.clone(), end.clone());
    let mut all = vec![(
        "range".to_owned(),
        Op::RequestRange(pb::RangeRequest { key: key.clone(), range_end: end.clone(), ..Default::default() }),
        vec![need(Read)],
    )];
    for prev_kv in [false, true] {
        let delete = pb::DeleteRangeRequest { key: key.clone(), range_end: end.clone(), prev_kv };
        let needs = if prev_kv { vec![need(Write), need(Read)] } else { vec![need(Write)] };
        all.push((format!("delete prev_kv={prev_kv}"), Op::RequestDeleteRange(delete), needs));
    }
    if end.is_empty() {
        let put = pb::PutRequest { key: key.clone(), value: "v".into(), ..Default::default() };
        all.push(("put".to_owned(), Op::RequestPut(put.clone()), vec![need(Write)]));
        let with_prev = pb::PutRequest { prev_kv: true, ..put.clone() };
        all.push(("put prev_kv".to_owned(), Op::RequestPut(with_prev), vec![need(Write), need(Read)]));
        for (lease, hanging) in [(101, "r/l"), (105, "zz/l")] {
            let with_lease = pb::PutRequest { lease, ..put.clone() };
            let needs = vec![need(Write), (Write, bytes(hanging), Bytes::new())];
            all.push((format!("put lease={lease}"), Op::RequestPut(with_lease), needs));
        }
    }
    all
}

/// A transaction inside so many others.
fn nested(mut txn: pb::TxnRequest, depth: usize) -> pb::TxnRequest {
    for _ in 0..depth {
        let inner = pb::RequestOp { request: Some(Op::RequestTxn(txn)) };
        txn = pb::TxnRequest { success: vec![inner], ..Default::default() };
    }
    txn
}

fn store_cases(all: &mut Vec<Case>) {
    const TXN: (&str, &str) = ("/etcdserverpb.KV/Txn", "kv/txn");
    for (key, end) in RANGES {
        let at = format!("[{key:?},{end:?})");
        let read = || keys(&[(Access::Read, key, end)]);
        let range = pb::RangeRequest { key: bytes(key), range_end: bytes(end), ..Default::default() };
        for (form, range) in [
            ("", range.clone()),
            ("count", pb::RangeRequest { count_only: true, ..range.clone() }),
            ("keys", pb::RangeRequest { keys_only: true, ..range.clone() }),
            ("serializable", pb::RangeRequest { serializable: true, ..range.clone() }),
        ] {
            all.push(case("/etcdserverpb.KV/Range", "kv/range", format!("range {form} {at}"), &range, read()));
        }
        for prev_kv in [false, true] {
            let create =
                pb::WatchCreateRequest { key: bytes(key), range_end: bytes(end), prev_kv, ..Default::default() };
            let request_union = Some(pb::watch_request::RequestUnion::CreateRequest(create));
            let watch = pb::WatchRequest { request_union };
            all.push(case("/etcdserverpb.Watch/Watch", "watch", format!("watch {at} {prev_kv}"), &watch, read()));
        }
        for depth in 0..3 {
            let compare = pb::Compare { key: bytes(key), range_end: bytes(end), ..Default::default() };
            let txn = nested(pb::TxnRequest { compare: vec![compare], ..Default::default() }, depth);
            all.push(case(TXN.0, TXN.1, format!("txn depth {depth} compare {at}"), &txn, read()));
        }
        // A lease that is only compared with is not touched: the key is read, and nothing else.
        for lease in [101, 105] {
            let target_union = Some(pb::compare::TargetUnion::Lease(lease));
            let target = pb::compare::CompareTarget::Lease as i32;
            let compare =
                pb::Compare { key: bytes(key), range_end: bytes(end), target, target_union, ..Default::default() };
            let txn = pb::TxnRequest { compare: vec![compare], ..Default::default() };
            all.push(case(TXN.0, TXN.1, format!("txn compare lease={lease} {at}"), &txn, read()));
        }
        for (label, operation, needs) in operations(key, end) {
            let want = Permission::Keys(needs);
            match &operation {
                Op::RequestPut(put) => {
                    all.push(case("/etcdserverpb.KV/Put", "kv/put", format!("{label} {at}"), put, want.clone()))
                }
                Op::RequestDeleteRange(delete) => all.push(case(
                    "/etcdserverpb.KV/DeleteRange",
                    "kv/deleterange",
                    format!("{label} {at}"),
                    delete,
                    want.clone(),
                )),
                _ => {}
            }
            for depth in 0..3 {
                for is_success in [true, false] {
                    let operations = vec![pb::RequestOp { request: Some(operation.clone()) }];
                    let txn = match is_success {
                        true => pb::TxnRequest { success: operations, ..Default::default() },
                        false => pb::TxnRequest { failure: operations, ..Default::default() },
                    };
                    let txn = nested(txn, depth);
                    let label = format!("txn depth {depth} success {is_success} {label} {at}");
                    all.push(case(TXN.0, TXN.1, label, &txn, want.clone()));
                }
            }
        }
    }
}

fn lease_cases(all: &mut Vec<Case>) {
    for (id, hanging) in LEASES {
        let each = |access| keys(&hanging.iter().map(|key| (access, *key, "")).collect::<Vec<_>>());
        let keep = pb::LeaseKeepAliveRequest { id };
        let label = format!("lease {id}");
        all.push(case(
            "/etcdserverpb.Lease/LeaseKeepAlive",
            "lease/keepalive",
            label.clone(),
            &keep,
            each(Access::Write),
        ));
        for keys in [false, true] {
            let ask = pb::LeaseTimeToLiveRequest { id, keys };
            let want = if keys { each(Access::Read) } else { Permission::User };
            let label = format!("{label} keys {keys}");
            for path in ["lease/timetolive", "kv/lease/timetolive"] {
                all.push(case("/etcdserverpb.Lease/LeaseTimeToLive", path, label.clone(), &ask, want.clone()));
            }
        }
        let revoke = pb::LeaseRevokeRequest { id };
        for path in ["lease/revoke", "kv/lease/revoke"] {
            let revoke = case("/etcdserverpb.Lease/LeaseRevoke", path, label.clone(), &revoke, each(Access::Write));
            all.push(Case { is_fatal: true, ..revoke });
        }
    }
    // A lease that stands already, with anybody's keys on it, is not granted again.
    for id in [0, 105] {
        let grant = pb::LeaseGrantRequest { ttl: 60, id };
        all.push(case(
            "/etcdserverpb.Lease/LeaseGrant",
            "lease/grant",
            format!("grant {id}"),
            &grant,
            Permission::User,
        ));
    }
    for path in ["lease/leases", "kv/lease/leases"] {
        let leases = pb::LeaseLeasesRequest {};
        let hanging = LEASES.iter().flat_map(|(_, hanging)| hanging.iter().map(|key| (Access::Read, *key, "")));
        let want = keys(&hanging.collect::<Vec<_>>());
        all.push(case("/etcdserverpb.Lease/LeaseLeases", path, "leases".into(), &leases, want));
    }
}

/// `number` makes names that no other probe has, so that nobody waits in a queue.
fn queue_cases(all: &mut Vec<Case>, number: usize) {
    use Access::{Read, Write};
    for base in ["r/q", "x/q", "s", "zz/q", "r", "r0"] {
        let name = format!("{base}{number}");
        let (from, to) = (format!("{name}/"), format!("{name}0"));
        let label = format!("name {base}");
        // A candidate that stands in a queue on a lease hangs a key on it, and may so only if the lease's other keys are its own to write.
        for (lease, hanging) in [(0, None), (101, Some("r/l")), (105, Some("zz/l"))] {
            let name = if lease == 0 { name.clone() } else { format!("{name}-{lease}") };
            let (from, to) = (format!("{name}/"), format!("{name}0"));
            let mut needs = vec![(Read, from.as_str(), to.as_str()), (Write, from.as_str(), to.as_str())];
            needs.extend(hanging.map(|key| (Write, key, "")));
            let label = format!("{label} lease={lease}");
            let lock = lp::LockRequest { name: bytes(&name), lease };
            all.push(case("/v3lockpb.Lock/Lock", "lock/lock", label.clone(), &lock, keys(&needs)));
            let campaign = ep::CampaignRequest { name: bytes(&name), lease, value: "v".into() };
            let campaign = case("/v3electionpb.Election/Campaign", "election/campaign", label, &campaign, keys(&needs));
            // The lock stands in the same queue.
            all.push(Case { is_fatal: true, ..campaign });
        }
        let leader = ep::LeaderRequest { name: bytes(&name) };
        let read = keys(&[(Read, &from, &to)]);
        all.push(case("/v3electionpb.Election/Leader", "election/leader", label.clone(), &leader, read.clone()));
        let observe = case("/v3electionpb.Election/Observe", "election/observe", label.clone(), &leader, read);
        all.push(observe);
        let key = bytes(&format!("{base}/key"));
        let at_key = |access| (access, key.clone(), Bytes::new());
        let unlock = lp::UnlockRequest { key: key.clone() };
        let want = Permission::Keys(vec![at_key(Write)]);
        all.push(case("/v3lockpb.Lock/Unlock", "lock/unlock", label.clone(), &unlock, want));
        let leader = Some(ep::LeaderKey { name: bytes(&name), key: key.clone(), rev: 7, lease: 7 });
        let want = Permission::Keys(vec![at_key(Read), at_key(Write)]);
        let proclaim = ep::ProclaimRequest { leader: leader.clone(), value: "v".into() };
        all.push(case("/v3electionpb.Election/Proclaim", "election/proclaim", label.clone(), &proclaim, want.clone()));
        let resign = ep::ResignRequest { leader };
        all.push(case("/v3electionpb.Election/Resign", "election/resign", label, &resign, want));
    }
}

fn member_cases(all: &mut Vec<Case>) {
    let root = |method, path, message: &dyn Fn() -> (Bytes, String)| {
        let (bytes, json) = message();
        Case { method, path, label: String::new(), bytes, json, want: Permission::Root, is_fatal: true }
    };
    fn form(message: impl Message + Serialize) -> (Bytes, String) {
        (message.encode_to_vec().into(), serde_json::to_string(&message).expect("it has a form in JSON"))
    }
    let urls = || vec!["http://127.0.0.1:9".to_owned()];
    all.extend([
        root("/etcdserverpb.Cluster/MemberAdd", "cluster/member/add", &|| {
            form(pb::MemberAddRequest { peer_urls: urls(), is_learner: true })
        }),
        root("/etcdserverpb.Cluster/MemberRemove", "cluster/member/remove", &|| {
            form(pb::MemberRemoveRequest { id: 77 })
        }),
        root("/etcdserverpb.Cluster/MemberUpdate", "cluster/member/update", &|| {
            form(pb::MemberUpdateRequest { id: 77, peer_urls: urls() })
        }),
        root("/etcdserverpb.Cluster/MemberPromote", "cluster/member/promote", &|| {
            form(pb::MemberPromoteRequest { id: 77 })
        }),
        root("/etcdserverpb.KV/Compact", "kv/compaction", &|| {
            form(pb::CompactionRequest { revision: 1, physical: false })
        }),
        root("/etcdserverpb.Maintenance/Alarm", "maintenance/alarm", &|| {
            form(pb::AlarmRequest { action: 1, member_id: 7, alarm: 1 })
        }),
        root("/etcdserverpb.Maintenance/Defragment", "maintenance/defragment", &|| form(pb::DefragmentRequest {})),
        root("/etcdserverpb.Maintenance/Hash", "", &|| form(pb::HashRequest {})),
        root("/etcdserverpb.Maintenance/HashKV", "maintenance/hash", &|| form(pb::HashKvRequest { revision: 0 })),
        root("/etcdserverpb.Maintenance/Snapshot", "maintenance/snapshot", &|| form(pb::SnapshotRequest {})),
        root("/etcdserverpb.Maintenance/MoveLeader", "maintenance/transfer-leadership", &|| {
            form(pb::MoveLeaderRequest { target_id: 77 })
        }),
        root("/etcdserverpb.Maintenance/Downgrade", "maintenance/downgrade", &|| {
            form(pb::DowngradeRequest { action: 0, version: "3.4.0".into() })
        }),
        root("/etcdserverpb.Auth/AuthEnable", "auth/enable", &|| form(pb::AuthEnableRequest {})),
        root("/etcdserverpb.Auth/AuthDisable", "auth/disable", &|| form(pb::AuthDisableRequest {})),
        root("/etcdserverpb.Auth/AuthStatus", "auth/status", &|| form(pb::AuthStatusRequest {})),
        root("/etcdserverpb.Auth/UserList", "auth/user/list", &|| form(pb::AuthUserListRequest {})),
        root("/etcdserverpb.Auth/RoleList", "auth/role/list", &|| form(pb::AuthRoleListRequest {})),
        root("/etcdserverpb.Auth/RoleAdd", "auth/role/add", &|| form(pb::AuthRoleAddRequest { name: "new".into() })),
    ]);
    for name in ["reader", "writer", "nosuch"] {
        let name = || name.to_owned();
        let perm = || Some(authpb::Permission { perm_type: 2, key: "a".into(), range_end: "z".into() });
        all.extend([
            root("/etcdserverpb.Auth/UserAdd", "auth/user/add", &|| {
                form(pb::AuthUserAddRequest { name: name(), password: "p".into(), ..Default::default() })
            }),
            root("/etcdserverpb.Auth/UserDelete", "auth/user/delete", &|| {
                form(pb::AuthUserDeleteRequest { name: name() })
            }),
            root("/etcdserverpb.Auth/UserChangePassword", "auth/user/changepw", &|| {
                form(pb::AuthUserChangePasswordRequest { name: name(), password: "p".into(), ..Default::default() })
            }),
            root("/etcdserverpb.Auth/UserGrantRole", "auth/user/grant", &|| {
                form(pb::AuthUserGrantRoleRequest { user: name(), role: "root".into() })
            }),
            root("/etcdserverpb.Auth/UserRevokeRole", "auth/user/revoke", &|| {
                form(pb::AuthUserRevokeRoleRequest { name: name(), role: name() })
            }),
            root("/etcdserverpb.Auth/RoleDelete", "auth/role/delete", &|| {
                form(pb::AuthRoleDeleteRequest { role: name() })
            }),
            root("/etcdserverpb.Auth/RoleGrantPermission", "auth/role/grant", &|| {
                form(pb::AuthRoleGrantPermissionRequest { name: name(), perm: perm() })
            }),
            root("/etcdserverpb.Auth/RoleRevokePermission", "auth/role/revoke", &|| {
                form(pb::AuthRoleRevokePermissionRequest { role: name(), key: "r/".into(), range_end: "r0".into() })
            }),
        ]);
    }
    for name in ["reader", "writer"] {
        let get = pb::AuthUserGetRequest { name: name.into() };
        all.push(case("/etcdserverpb.Auth/UserGet", "auth/user/get", name.into(), &get, Permission::SameUser(name)));
        let get = pb::AuthRoleGetRequest { role: name.into() };
        all.push(case("/etcdserverpb.Auth/RoleGet", "auth/role/get", name.into(), &get, Permission::Role(name)));
    }
    let list = pb::MemberListRequest { linearizable: false };
    all.push(case("/etcdserverpb.Cluster/MemberList", "cluster/member/list", "local".into(), &list, Permission::User));
    let list = pb::MemberListRequest { linearizable: true };
    all.push(case("/etcdserverpb.Cluster/MemberList", "cluster/member/list", "read".into(), &list, Permission::User));
    let alarms = pb::AlarmRequest::default();
    all.push(case("/etcdserverpb.Maintenance/Alarm", "maintenance/alarm", "list".into(), &alarms, Permission::User));
    let status = pb::StatusRequest {};
    all.push(case("/etcdserverpb.Maintenance/Status", "maintenance/status", String::new(), &status, Permission::User));
    let authenticate = pb::AuthenticateRequest { name: "reader".into(), password: "reader".into() };
    let path = "auth/authenticate";
    let authenticate = case("/etcdserverpb.Auth/Authenticate", path, String::new(), &authenticate, Permission::Nothing);
    // Each compares a password, which takes its time.
    all.push(Case { is_fatal: true, ..authenticate });
}

/// All calls for one caller; what finds leases comes before what writes.
pub fn cases(number: usize) -> Vec<Case> {
    let mut all = Vec::new();
    lease_cases(&mut all);
    queue_cases(&mut all, number);
    member_cases(&mut all);
    store_cases(&mut all);
    all
}
