//! The permission that each method needs, in one table: [`TABLE`].
//!
//! A request passes here before it reaches its service: a method without a row is not served, and while users count nobody
//! gets further without what its row says. Only its service knows which keys a request touches: that is judged where the
//! store is read and where commands are applied ([`hustings_kv::permission`]).
//!
//! Source: etcd 3.5.30, that is with CVE-2026-33413 closed. Deviation: `Compact` and `Status`, which differ from one patch
//! release to the next: root alone compacts, every user sees the status.
//!
//! Read next: [`crate::context::caller`].

use hustings_api::EtcdError;
use hustings_kv::Need;
use hyper::http::request::Parts;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::context::Context;
use crate::context::backend::Backend;

/// The permission that a method needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Permission {
    /// No permission: it is how callers find out whether this member lives, or prove who they are.
    Open,
    /// A user; what it may see or change of keys and leases is judged with the request.
    Keys,
    /// Any user that has proved who it is.
    User,
    /// The user or role in question, or root.
    Own,
    /// A user that has the role root.
    Root,
}

/// A method of the protos.
pub(crate) struct Row {
    pub(crate) method: &'static str,
    pub(crate) permission: Permission,
    /// Its paths behind `/v3/`; none: JSON does not reach it.
    pub(crate) paths: &'static [&'static str],
}

const fn row(method: &'static str, permission: Permission, paths: &'static [&'static str]) -> Row {
    Row { method, permission, paths }
}

/// Every method of the protos.
pub(crate) const TABLE: [Row; 50] = {
    use Permission::{Keys, Open, Own, Root, User};
    [
        row("/etcdserverpb.Auth/AuthDisable", Root, &["auth/disable"]),
        row("/etcdserverpb.Auth/AuthEnable", Root, &["auth/enable"]),
        row("/etcdserverpb.Auth/AuthStatus", Root, &["auth/status"]),
        row("/etcdserverpb.Auth/Authenticate", Open, &["auth/authenticate"]),
        row("/etcdserverpb.Auth/RoleAdd", Root, &["auth/role/add"]),
        row("/etcdserverpb.Auth/RoleDelete", Root, &["auth/role/delete"]),
        row("/etcdserverpb.Auth/RoleGet", Own, &["auth/role/get"]),
        row("/etcdserverpb.Auth/RoleGrantPermission", Root, &["auth/role/grant"]),
        row("/etcdserverpb.Auth/RoleList", Root, &["auth/role/list"]),
        row("/etcdserverpb.Auth/RoleRevokePermission", Root, &["auth/role/revoke"]),
        row("/etcdserverpb.Auth/UserAdd", Root, &["auth/user/add"]),
        row("/etcdserverpb.Auth/UserChangePassword", Root, &["auth/user/changepw"]),
        row("/etcdserverpb.Auth/UserDelete", Root, &["auth/user/delete"]),
        row("/etcdserverpb.Auth/UserGet", Own, &["auth/user/get"]),
        row("/etcdserverpb.Auth/UserGrantRole", Root, &["auth/user/grant"]),
        row("/etcdserverpb.Auth/UserList", Root, &["auth/user/list"]),
        row("/etcdserverpb.Auth/UserRevokeRole", Root, &["auth/user/revoke"]),
        row("/etcdserverpb.Cluster/MemberAdd", Root, &["cluster/member/add"]),
        row("/etcdserverpb.Cluster/MemberList", User, &["cluster/member/list"]),
        row("/etcdserverpb.Cluster/MemberPromote", Root, &["cluster/member/promote"]),
        row("/etcdserverpb.Cluster/MemberRemove", Root, &["cluster/member/remove"]),
        row("/etcdserverpb.Cluster/MemberUpdate", Root, &["cluster/member/update"]),
        row("/etcdserverpb.KV/Compact", Root, &["kv/compaction"]),
        row("/etcdserverpb.KV/DeleteRange", Keys, &["kv/deleterange"]),
        row("/etcdserverpb.KV/Put", Keys, &["kv/put"]),
        row("/etcdserverpb.KV/Range", Keys, &["kv/range"]),
        row("/etcdserverpb.KV/Txn", Keys, &["kv/txn"]),
        row("/etcdserverpb.Lease/LeaseGrant", User, &["lease/grant"]),
        row("/etcdserverpb.Lease/LeaseKeepAlive", Keys, &["lease/keepalive"]),
        row("/etcdserverpb.Lease/LeaseLeases", User, &["lease/leases", "kv/lease/leases"]),
        row("/etcdserverpb.Lease/LeaseRevoke", Keys, &["lease/revoke", "kv/lease/revoke"]),
        row("/etcdserverpb.Lease/LeaseTimeToLive", Keys, &["lease/timetolive", "kv/lease/timetolive"]),
        // Looking at the alarms is every user's, as etcd has it since 3.5.29.
        row("/etcdserverpb.Maintenance/Alarm", User, &["maintenance/alarm"]),
        row("/etcdserverpb.Maintenance/Defragment", Root, &["maintenance/defragment"]),
        row("/etcdserverpb.Maintenance/Downgrade", Root, &["maintenance/downgrade"]),
        row("/etcdserverpb.Maintenance/Hash", Root, &[]),
        row("/etcdserverpb.Maintenance/HashKV", Root, &["maintenance/hash", "maintenance/hashkv"]),
        row("/etcdserverpb.Maintenance/MoveLeader", Root, &["maintenance/transfer-leadership"]),
        row("/etcdserverpb.Maintenance/Snapshot", Root, &["maintenance/snapshot"]),
        row("/etcdserverpb.Maintenance/Status", User, &["maintenance/status"]),
        row("/etcdserverpb.Watch/Watch", Keys, &["watch"]),
        row("/grpc.health.v1.Health/Check", Open, &[]),
        row("/grpc.health.v1.Health/Watch", Open, &[]),
        row("/v3electionpb.Election/Campaign", Keys, &["election/campaign"]),
        row("/v3electionpb.Election/Leader", Keys, &["election/leader"]),
        row("/v3electionpb.Election/Observe", Keys, &["election/observe"]),
        row("/v3electionpb.Election/Proclaim", Keys, &["election/proclaim"]),
        row("/v3electionpb.Election/Resign", Keys, &["election/resign"]),
        row("/v3lockpb.Lock/Lock", Keys, &["lock/lock"]),
        row("/v3lockpb.Lock/Unlock", Keys, &["lock/unlock"]),
    ]
};

/// The row of a method, by its path in gRPC.
pub(crate) fn of_method(method: &str) -> Option<&'static Row> {
    TABLE.binary_search_by(|row| row.method.cmp(method)).ok().map(|place| &TABLE[place])
}

/// The row of a method, by its path behind `/v3/`.
pub(crate) fn of_path(path: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.paths.contains(&path))
}

impl<B: Backend> Context<B> {
    /// Finds out who calls, and refuses a caller that lacks what the row says. The caller stands among the request's extensions then.
    ///
    /// Nothing happens while users do not count: the store itself would refuse where this member does not know it yet.
    pub(crate) async fn pass(&self, row: &Row, head: &mut Parts, metadata: &MetadataMap) -> Result<(), Status> {
        if !self.users_count() || row.permission == Permission::Open {
            return Ok(());
        }
        let caller = self.caller(metadata, &head.extensions).await?;
        let need = match row.permission {
            Permission::Root => Need::Root,
            _ => Need::User,
        };
        // A request for keys is judged again where the store is read, and where a command is applied.
        let is_known = || self.recent.decide(|users| users.knows(caller.proof()).ok()).is_some();
        if row.permission != Permission::Keys || !is_known() {
            self.require(&caller, need).await.map_err(|refusal| match row.permission {
                // Of what is its own or root's, a caller that is no user is told so, as by etcd.
                Permission::Own if EtcdError::of(&refusal) == Some(EtcdError::PermissionDenied) => {
                    EtcdError::UserNotFound.into()
                }
                _ => refusal,
            })?;
        }
        head.extensions.insert(caller);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Goal: no method of the protos lacks a row, and no row a method. Method: the declarations themselves are read.
    #[test]
    fn every_method_of_the_protos_has_a_row() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/proto");
        let mut declared = BTreeSet::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let (mut package, mut service) = ("", "");
            for line in text.lines().map(str::trim) {
                if let Some(name) = line.strip_prefix("package ") {
                    package = name.trim_end_matches(';');
                } else if let Some(name) = line.strip_prefix("service ") {
                    service = name.trim_end_matches([' ', '{']);
                } else if let Some(method) = line.strip_prefix("rpc ") {
                    let method = method.split_once('(').unwrap().0;
                    declared.insert(format!("/{package}.{service}/{method}"));
                }
            }
        }
        let rows: Vec<String> = TABLE.iter().map(|row| row.method.to_owned()).collect();
        assert!(rows.is_sorted(), "rows are found by halving");
        assert_eq!(rows.into_iter().collect::<BTreeSet<_>>(), declared);
    }

    #[test]
    fn every_path_leads_to_one_row() {
        let paths: Vec<&str> = TABLE.iter().flat_map(|row| row.paths).copied().collect();
        assert_eq!(paths.iter().collect::<BTreeSet<_>>().len(), paths.len());
        assert_eq!(of_path("kv/put").map(|row| row.method), Some("/etcdserverpb.KV/Put"));
        assert!(of_path("kv/steal").is_none() && of_method("/etcdserverpb.KV/Steal").is_none());
    }
}
