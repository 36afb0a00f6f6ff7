//! Users and roles as records of a snapshot. A store that never had any has none of these records, so that builds which do
//! not know them read its snapshots.

use std::sync::Arc;

use bytes::Bytes;
use imbl::{OrdMap, OrdSet};
use prost::Message;

use crate::permission::Coverage;
use crate::users::{Permission, PermissionKind, Role, Secret, User, Users};

/// The record of users as a whole.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UsersRecord {
    #[prost(bool, tag = "1")]
    is_enabled: bool,
    #[prost(uint64, tag = "2")]
    revision: u64,
    #[prost(uint64, tag = "3")]
    enabled_at: u64,
    #[prost(bytes = "bytes", tag = "4")]
    token_key: Bytes,
    #[prost(uint64, tag = "5")]
    users: u64,
    #[prost(uint64, tag = "6")]
    roles: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UserRecord {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bytes = "bytes", tag = "2")]
    hash: Bytes,
    #[prost(bool, tag = "3")]
    no_password: bool,
    #[prost(string, repeated, tag = "4")]
    roles: Vec<String>,
    #[prost(uint64, tag = "5")]
    since: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RoleRecord {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    permissions: Vec<Permission>,
}

impl UsersRecord {
    pub(crate) fn of(users: &Users) -> UsersRecord {
        UsersRecord {
            is_enabled: users.is_enabled,
            revision: users.revision,
            enabled_at: users.enabled_at,
            token_key: users.token_key.0.clone(),
            users: users.users.len() as u64,
            roles: users.roles.len() as u64,
        }
    }

    /// The record of users that another program counted; how many there are is not known yet.
    pub(crate) fn of_foreign(is_enabled: bool, revision: u64, token_key: Bytes) -> UsersRecord {
        let enabled_at = if is_enabled { revision } else { 0 };
        UsersRecord { is_enabled, revision, enabled_at, token_key, users: 0, roles: 0 }
    }

    pub(crate) fn restore(&self, users: &mut Users) -> Result<(), &'static str> {
        if *users != Users::default() {
            return Err("users are described twice");
        }
        if !(1..=u64::MAX / 2).contains(&self.revision) || self.enabled_at > self.revision {
            return Err("the revision of the users is out of range");
        }
        users.is_enabled = self.is_enabled;
        users.revision = self.revision;
        users.enabled_at = self.enabled_at;
        users.token_key = Secret(Bytes::copy_from_slice(&self.token_key));
        Ok(())
    }

    pub(crate) fn is_complete(&self, users: &Users) -> bool {
        self.users == users.users.len() as u64 && self.roles == users.roles.len() as u64
    }
}

impl UserRecord {
    pub(crate) fn of(name: &str, user: &User) -> UserRecord {
        UserRecord {
            name: name.to_owned(),
            hash: user.hash.0.clone(),
            no_password: user.no_password,
            roles: user.roles.iter().cloned().collect(),
            since: user.since,
        }
    }

    pub(crate) fn of_foreign(name: String, hash: Bytes, roles: Vec<String>, since: u64) -> UserRecord {
        let no_password = hash.is_empty();
        UserRecord { name, hash, no_password, roles, since }
    }

    pub(crate) fn restore(self, users: &mut Users) -> Result<(), &'static str> {
        if self.name.is_empty() || self.since > users.revision {
            return Err("a user without a name, or of a later revision");
        }
        let roles: OrdSet<String> = self.roles.into_iter().collect();
        let hash = Secret(Bytes::copy_from_slice(&self.hash));
        users.users.insert(self.name, User { hash, no_password: self.no_password, roles, since: self.since });
        Ok(())
    }
}

impl RoleRecord {
    pub(crate) fn of(name: &str, role: &Role) -> RoleRecord {
        let permission = |((key, range_end), kind): (&(Bytes, Bytes), &PermissionKind)| Permission {
            kind: *kind as i32,
            key: key.clone(),
            range_end: range_end.clone(),
        };
        RoleRecord { name: name.to_owned(), permissions: role.permissions.iter().map(permission).collect() }
    }

    pub(crate) fn of_foreign(name: String, permissions: Vec<Permission>) -> RoleRecord {
        RoleRecord { name, permissions }
    }

    pub(crate) fn restore(self, users: &mut Users) -> Result<(), &'static str> {
        let mut permissions = OrdMap::new();
        for permission in self.permissions {
            let kind = PermissionKind::try_from(permission.kind).map_err(|_| "a permission of an unknown kind")?;
            let owned = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
            permissions.insert((owned(&permission.key), owned(&permission.range_end)), kind);
        }
        let coverage = Arc::new(Coverage::of(&permissions));
        users.roles.insert(self.name, Role { permissions, coverage });
        Ok(())
    }
}
