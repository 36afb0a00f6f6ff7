//! Users, roles and what they may do: part of the replicated state.
//!
//! Source: etcd 3.5, `server/auth/store.go`: names, rules and refusals are its. Every change but switching on takes one auth
//! revision, beginning at 1. A password arrives here as a hash; the store never sees one in the clear.
//!
//! Deviation: tokens are signed with a key that is part of this state, so that each member can check what another has given
//! out. So the store remembers for each user the auth revision from which on its tokens count, instead of a list of tokens.
//!
//! Read next: [`crate::permission`], which decides by this state.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use imbl::{OrdMap, OrdSet};
use prost::{Enumeration, Message, Oneof};

use crate::permission::Coverage;
use crate::{KvError, Outcome, Response, View};

/// The user and the role that may do everything.
pub const ROOT: &str = "root";

/// Users, and roles, that a store has at most.
const NAMES_MAX: usize = 10_000;
/// How far the revision of users is raised in a cluster that goes on from a saved state: above all that the old one may come to.
const REVISIONS_RAISED: u64 = 1_000_000_000;
/// Permissions of one role.
const PERMISSIONS_MAX: usize = 1_000;
/// Memory that a name or a permission takes beside its own bytes.
const ENTRY_BYTES: usize = 64;
/// Roles of one user.
const ROLES_MAX: usize = 64;

/// Bytes that no log line may show.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Secret(pub Bytes);

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "<{} secret bytes>", self.0.len())
    }
}

/// A change of users, roles, or whether they count.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Accounts {
    /// The change; a command without one is refused.
    #[prost(oneof = "AccountsChange", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11")]
    pub change: Option<AccountsChange>,
}

/// A change of users, roles, or whether they count.
#[derive(Clone, PartialEq, Eq, Hash, Oneof)]
pub enum AccountsChange {
    /// From now on each command needs a caller who may do it.
    #[prost(message, tag = "1")]
    Enable(AuthEnable),
    /// From now on anybody may do anything.
    #[prost(message, tag = "2")]
    Disable(AuthDisable),
    /// Makes a user with a password.
    #[prost(message, tag = "3")]
    UserAdd(UserPassword),
    /// Removes a user of this name.
    #[prost(message, tag = "4")]
    UserDelete(Named),
    /// Replaces a password; the user's tokens end.
    #[prost(message, tag = "5")]
    UserChangePassword(UserPassword),
    /// Gives a role to a user.
    #[prost(message, tag = "6")]
    UserGrantRole(UserRole),
    /// Takes a role from a user.
    #[prost(message, tag = "7")]
    UserRevokeRole(UserRole),
    /// Makes a role of this name.
    #[prost(message, tag = "8")]
    RoleAdd(Named),
    /// Removes a role, also from the users that have it.
    #[prost(message, tag = "9")]
    RoleDelete(Named),
    /// Gives a permission to a role.
    #[prost(message, tag = "10")]
    RoleGrant(RolePermission),
    /// Takes a permission from a role.
    #[prost(message, tag = "11")]
    RoleRevoke(RolePermission),
}

/// Switches the checks on.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
#[prost(skip_debug)]
pub struct AuthEnable {
    /// Key that tokens are signed with from now on: random bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub token_key: Bytes,
}

impl fmt::Debug for AuthEnable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token_key = Secret(self.token_key.clone());
        out.debug_struct("AuthEnable").field("token_key", &token_key).finish()
    }
}

/// Switches the checks off.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct AuthDisable {}

/// A user's name and password.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
#[prost(skip_debug)]
pub struct UserPassword {
    /// Name of the user.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The hash of the password (bcrypt, as text); empty for a user that has none.
    #[prost(bytes = "bytes", tag = "2")]
    pub hash: Bytes,
    /// The user has no password: only a certificate proves it.
    #[prost(bool, tag = "3")]
    pub no_password: bool,
}

impl fmt::Debug for UserPassword {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = Secret(self.hash.clone());
        let mut shown = out.debug_struct("UserPassword");
        shown.field("name", &self.name).field("hash", &hash).field("no_password", &self.no_password).finish()
    }
}

/// The name of a user or a role.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Named {
    /// Name of the user or role.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A user and a role.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct UserRole {
    /// Name of the user.
    #[prost(string, tag = "1")]
    pub user: String,
    /// Name of the role.
    #[prost(string, tag = "2")]
    pub role: String,
}

/// A role and a permission.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct RolePermission {
    /// Name of the role.
    #[prost(string, tag = "1")]
    pub role: String,
    /// The permission; to take one away only its keys count.
    #[prost(message, optional, tag = "2")]
    pub permission: Option<Permission>,
}

/// The access of a role to a range of keys.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Permission {
    /// Reading, writing or both.
    #[prost(enumeration = "PermissionKind", tag = "1")]
    pub kind: i32,
    /// First key of the range.
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
    /// Empty for one key, `"\0"` for all keys from `key` on, else the first key that is out.
    #[prost(bytes = "bytes", tag = "3")]
    pub range_end: Bytes,
}

/// Reading, writing or both; the numbers are etcd's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Enumeration)]
#[repr(i32)]
pub enum PermissionKind {
    /// The role may read.
    Read = 0,
    /// The role may write.
    Write = 1,
    /// The role may read and write.
    ReadWrite = 2,
}

/// The reason why a caller, or a change of users, was refused. The texts are etcd's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum AccountsError {
    /// `etcdserver: user name is empty`: nobody has said who they are.
    #[error("user name is empty")]
    UserEmpty,
    /// The caller may not; etcd says `etcdserver: permission denied`.
    #[error("permission denied")]
    PermissionDenied,
    /// `etcdserver: revision of auth store is old`: the user has changed since the caller was recognised.
    #[error("revision of auth store is old")]
    OldRevision,
    /// `etcdserver: root user does not exist`.
    #[error("root user does not exist")]
    RootUserNotExist,
    /// `etcdserver: root user does not have root role`.
    #[error("root user does not have root role")]
    RootRoleNotExist,
    /// `etcdserver: user name already exists`.
    #[error("user name already exists")]
    UserAlreadyExist,
    /// `etcdserver: user name not found`.
    #[error("user name not found")]
    UserNotFound,
    /// `etcdserver: role name already exists`.
    #[error("role name already exists")]
    RoleAlreadyExist,
    /// `etcdserver: role name not found`.
    #[error("role name not found")]
    RoleNotFound,
    /// `etcdserver: role name is empty`.
    #[error("role name is empty")]
    RoleEmpty,
    /// `etcdserver: permission not given`.
    #[error("permission not given")]
    PermissionNotGiven,
    /// `etcdserver: role is not granted to the user`.
    #[error("role is not granted to the user")]
    RoleNotGranted,
    /// `etcdserver: permission is not granted to the role`.
    #[error("permission is not granted to the role")]
    PermissionNotGranted,
    /// `etcdserver: invalid auth management`: root would lose what makes it root.
    #[error("invalid auth management")]
    InvalidManagement,
    /// There are as many users, roles or permissions as there may be. etcd has no such bound.
    #[error("there are as many users, roles or permissions as there may be: remove some first")]
    TooMany,
    /// The request touches so much that telling whether its caller may have it would take too long. etcd has no such bound.
    #[error("it takes too many steps to tell whether this caller may do all of it: ask for less at once")]
    TooManySteps,
}

/// A user and its roles.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct User {
    /// The hash of the password; empty without one.
    pub hash: Secret,
    /// The user has no password.
    pub no_password: bool,
    /// The roles, by name.
    pub roles: OrdSet<String>,
    /// The auth revision from which on the user's tokens count.
    pub since: u64,
}

/// A role and what it covers.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Role {
    /// The permissions, by key and end.
    pub permissions: OrdMap<(Bytes, Bytes), PermissionKind>,
    /// Follows from the permissions.
    pub(crate) coverage: Arc<Coverage>,
}

/// All users and roles, and whether they count.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Users {
    /// Whether callers are checked.
    pub is_enabled: bool,
    /// Number of changes of users and roles; 1 in a new store.
    pub revision: u64,
    /// The auth revision at which the checks were switched on last; older tokens do not count.
    pub enabled_at: u64,
    /// Key that tokens are signed with; empty until the checks are switched on first.
    pub token_key: Secret,
    /// All users by name.
    pub users: OrdMap<String, User>,
    /// All roles by name.
    pub roles: OrdMap<String, Role>,
}

impl Default for Users {
    fn default() -> Users {
        Users {
            is_enabled: false,
            revision: 1,
            enabled_at: 0,
            token_key: Secret::default(),
            users: OrdMap::new(),
            roles: OrdMap::new(),
        }
    }
}

impl Users {
    /// Whether a user may do everything.
    pub fn is_root(&self, user: &str) -> bool {
        self.users.get(user).is_some_and(|user| user.roles.contains(ROOT))
    }

    /// Memory that all users and roles take, in bytes, about; it looks at each of them.
    pub fn bytes(&self) -> usize {
        let user = |(name, user): (&String, &User)| {
            name.len()
                + user.hash.0.len()
                + ENTRY_BYTES
                + user.roles.iter().map(|role| role.len() + ENTRY_BYTES).sum::<usize>()
        };
        let permission = |(key, end): &(Bytes, Bytes)| key.len() + 2 * end.len() + 2 * ENTRY_BYTES;
        let role = |(name, role): (&String, &Role)| {
            name.len() + ENTRY_BYTES + role.permissions.keys().map(permission).sum::<usize>()
        };
        self.users.iter().map(user).sum::<usize>() + self.roles.iter().map(role).sum::<usize>()
    }

    /// No token that was given out before, or will be by the cluster that this state is of, counts from now on. A store without users stays
    /// as it is.
    pub(crate) fn outlive_tokens(&mut self) -> Result<(), &'static str> {
        if *self == Users::default() {
            return Ok(());
        }
        let raised = self.revision.checked_add(REVISIONS_RAISED).filter(|raised| *raised <= u64::MAX / 4);
        self.revision = raised.ok_or("the revision of the users cannot be raised any more")?;
        self.enabled_at = self.revision;
        Ok(())
    }

    fn user(&mut self, name: &str) -> Result<&mut User, AccountsError> {
        self.users.get_mut(name).ok_or(AccountsError::UserNotFound)
    }

    fn role(&mut self, name: &str) -> Result<&mut Role, AccountsError> {
        self.roles.get_mut(name).ok_or(AccountsError::RoleNotFound)
    }

    fn change(&mut self, change: AccountsChange) -> Result<(), AccountsError> {
        match change {
            AccountsChange::Enable(enable) => return self.enable(enable),
            AccountsChange::Disable(_) if !self.is_enabled => return Ok(()),
            AccountsChange::Disable(_) => {
                self.is_enabled = false;
                self.token_key = Secret::default();
            }
            AccountsChange::UserAdd(added) => {
                check(!added.name.is_empty(), AccountsError::UserEmpty)?;
                check(!self.users.contains_key(&added.name), AccountsError::UserAlreadyExist)?;
                check(self.users.len() < NAMES_MAX, AccountsError::TooMany)?;
                let UserPassword { name, hash, no_password } = added;
                let hash = Secret(if no_password { Bytes::new() } else { hash });
                let since = self.revision + 1;
                self.users.insert(name, User { hash, no_password, roles: OrdSet::new(), since });
            }
            AccountsChange::UserDelete(Named { name }) => {
                check(!self.is_enabled || name != ROOT, AccountsError::InvalidManagement)?;
                self.users.remove(&name).ok_or(AccountsError::UserNotFound)?;
            }
            AccountsChange::UserChangePassword(UserPassword { name, hash, .. }) => {
                let since = self.revision + 1;
                let user = self.user(&name)?;
                (user.hash, user.since) = (Secret(hash), since);
            }
            AccountsChange::UserGrantRole(UserRole { user, role }) => {
                check(self.users.contains_key(&user), AccountsError::UserNotFound)?;
                check(role == ROOT || self.roles.contains_key(&role), AccountsError::RoleNotFound)?;
                let user = self.user(&user)?;
                if user.roles.contains(&role) {
                    return Ok(());
                }
                check(user.roles.len() < ROLES_MAX, AccountsError::TooMany)?;
                user.roles.insert(role);
            }
            AccountsChange::UserRevokeRole(UserRole { user, role }) => {
                let is_last_root = self.is_enabled && user == ROOT && role == ROOT;
                check(!is_last_root, AccountsError::InvalidManagement)?;
                self.user(&user)?.roles.remove(&role).ok_or(AccountsError::RoleNotGranted)?;
            }
            AccountsChange::RoleAdd(Named { name }) => {
                check(!name.is_empty(), AccountsError::RoleEmpty)?;
                check(!self.roles.contains_key(&name), AccountsError::RoleAlreadyExist)?;
                check(self.roles.len() < NAMES_MAX, AccountsError::TooMany)?;
                self.roles.insert(name, Role::default());
            }
            AccountsChange::RoleDelete(Named { name }) => {
                check(!self.is_enabled || name != ROOT, AccountsError::InvalidManagement)?;
                self.roles.remove(&name).ok_or(AccountsError::RoleNotFound)?;
                let holds = |(user, held): (&String, &User)| held.roles.contains(&name).then(|| user.clone());
                let holders: Vec<String> = self.users.iter().filter_map(holds).collect();
                for holder in holders {
                    self.user(&holder)?.roles.remove(&name);
                }
            }
            AccountsChange::RoleGrant(RolePermission { role, permission }) => {
                let permission = permission.ok_or(AccountsError::PermissionNotGiven)?;
                let kind = PermissionKind::try_from(permission.kind).map_err(|_| AccountsError::PermissionNotGiven)?;
                let role = self.role(&role)?;
                let keys = (owned(&permission.key), owned(&permission.range_end));
                let is_known = role.permissions.contains_key(&keys);
                check(is_known || role.permissions.len() < PERMISSIONS_MAX, AccountsError::TooMany)?;
                role.permissions.insert(keys, kind);
                role.coverage = Arc::new(Coverage::of(&role.permissions));
            }
            AccountsChange::RoleRevoke(RolePermission { role, permission }) => {
                let Permission { key, range_end, .. } = permission.unwrap_or_default();
                let role = self.role(&role)?;
                role.permissions.remove(&(key, range_end)).ok_or(AccountsError::PermissionNotGranted)?;
                role.coverage = Arc::new(Coverage::of(&role.permissions));
            }
        }
        self.revision += 1;
        Ok(())
    }

    fn enable(&mut self, enable: AuthEnable) -> Result<(), AccountsError> {
        if self.is_enabled {
            return Ok(());
        }
        check(self.users.contains_key(ROOT), AccountsError::RootUserNotExist)?;
        check(self.is_root(ROOT), AccountsError::RootRoleNotExist)?;
        self.is_enabled = true;
        self.enabled_at = self.revision;
        self.token_key = Secret(owned(&enable.token_key));
        Ok(())
    }
}

/// A copy: a slice would keep the entry that it came with in memory.
fn owned(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

fn check(is_true: bool, refusal: AccountsError) -> Result<(), AccountsError> {
    if is_true { Ok(()) } else { Err(refusal) }
}

impl View {
    /// All users and roles.
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// Changes users or roles.
    pub(crate) fn change_accounts(&mut self, accounts: Accounts) -> Outcome {
        let change = accounts.change.ok_or(KvError::Malformed)?;
        // A change that is refused may have gone halfway.
        let mut users = self.users.clone();
        users.change(change)?;
        self.users = users;
        Ok(Response::Accounts { revision: self.revision, auth_revision: self.users.revision })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(name: &str) -> AccountsChange {
        AccountsChange::UserAdd(UserPassword {
            name: name.into(),
            hash: Bytes::from_static(b"$2b$hash"),
            ..Default::default()
        })
    }

    fn granted(user: &str, role: &str) -> AccountsChange {
        AccountsChange::UserGrantRole(UserRole { user: user.into(), role: role.into() })
    }

    /// Goal: the checks can be switched on only where root exists and is root, and root stays so.
    #[test]
    fn nobody_locks_everybody_out() {
        let mut users = Users::default();
        let enable = || AccountsChange::Enable(AuthEnable { token_key: Bytes::from_static(b"key") });
        assert_eq!(users.change(enable()), Err(AccountsError::RootUserNotExist));
        users.change(password(ROOT)).unwrap();
        assert_eq!(users.change(enable()), Err(AccountsError::RootRoleNotExist));
        users.change(granted(ROOT, ROOT)).unwrap();
        users.change(enable()).unwrap();
        let root = || Named { name: ROOT.into() };
        let both = || UserRole { user: ROOT.into(), role: ROOT.into() };
        for change in [
            AccountsChange::UserDelete(root()),
            AccountsChange::RoleDelete(root()),
            AccountsChange::UserRevokeRole(both()),
        ] {
            assert_eq!(users.change(change), Err(AccountsError::InvalidManagement));
        }
        assert!(users.is_enabled && users.is_root(ROOT));
    }

    #[test]
    fn a_deleted_role_leaves_nobody_with_it() {
        let mut users = Users::default();
        users.change(password("ann")).unwrap();
        users.change(AccountsChange::RoleAdd(Named { name: "r".into() })).unwrap();
        users.change(granted("ann", "r")).unwrap();
        users.change(AccountsChange::RoleDelete(Named { name: "r".into() })).unwrap();
        users.change(AccountsChange::RoleAdd(Named { name: "r".into() })).unwrap();
        assert!(users.users["ann"].roles.is_empty());
        assert_eq!(users.revision, 6);
    }

    /// Goal: what is logged of a command or a state shows no hash and no key.
    #[test]
    fn secrets_are_not_shown() {
        let mut users = Users::default();
        users.change(password(ROOT)).unwrap();
        users.change(granted(ROOT, ROOT)).unwrap();
        let enable = AccountsChange::Enable(AuthEnable { token_key: Bytes::from_static(b"sesame") });
        let shown = format!("{:?} {:?}", password("ann"), enable);
        users.change(enable).unwrap();
        let shown = format!("{shown} {users:?}");
        assert!(!shown.contains("2b$hash") && !shown.contains("sesame"), "{shown}");
    }
}
