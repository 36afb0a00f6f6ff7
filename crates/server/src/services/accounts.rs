//! Users and roles: the service `Auth`.
//!
//! Source: etcd 3.5, `server/etcdserver/api/v3rpc/auth.go` and `server/auth/store.go`. Changes are commands, answers are read
//! from a view that a quorum has confirmed; a password is hashed before it goes any further ([`crate::context::password`]).
//!
//! Read next: [`crate::context::token`].

use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use hustings_api::EtcdError;
use hustings_api::authpb;
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::auth_server::Auth;
use hustings_core::ApplyVersion;
use hustings_kv::{
    Accounts, AccountsChange, AuthDisable, AuthEnable, Command, Named, Need, Permission, PermissionKind, ROOT,
    Response as Applied, RolePermission, UserPassword, UserRole, Users,
};
use tonic::{Request, Response, Status};

use crate::context::audit::Trail;
use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::error;
use crate::context::password::Source;
use crate::context::{Context, Learner, Services};

/// First apply version in which there are users.
const USERS_FROM: ApplyVersion = ApplyVersion(3);

/// Bytes of the key that tokens are signed with.
const KEY_BYTES: usize = 32;

/// The longest name of a user or a role, in bytes. etcd has no bound but that of a request; such a name stands in every listing,
/// in the audit, and in the memory of all members.
const NAME_BYTES_MAX: usize = 1_024;

/// The longest key and end of a permission together, in bytes. All permissions of a role are one record of a snapshot, and a change of one
/// looks at all of them.
const PERMISSION_BYTES_MAX: usize = 16 << 10;

/// The memory that users and roles may take, in bytes: no quota counts them. So many requests as are under way may still come on top.
const ACCOUNTS_BYTES_MAX: usize = 32 << 20;

/// Most characters of a user's name that are told in the log: anybody may say any.
const USER_TOLD_MAX: usize = 64;

/// The other end of a connection, among a request's extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The hash with which a password is compared for nothing where there is no user of this name: that of the next user by name. Hashes
/// differ in what a comparison costs, and so names that there are none of differ as those that there are.
fn decoy(users: &Users, name: &str) -> Option<Bytes> {
    let has_password = |(_, user): &(&String, &hustings_kv::users::User)| !user.no_password;
    let after = users.users.range::<_, str>((Bound::Excluded(name), Bound::Unbounded));
    let next = after.chain(users.users.iter()).find(has_password);
    next.map(|(_, user)| user.hash.0.clone())
}

/// Methods that change something and answer nothing but a header.
macro_rules! change {
    ($self:ident, $request:ident, $answer:ident, $change:expr) => {{
        let caller = $self.admit(&$request, Learner::Refuses).await?;
        let message = $request.into_inner();
        let revision = $self.change_accounts(&caller, $change(message)?).await?;
        Ok(Response::new(pb::$answer { header: $self.header(revision) }))
    }};
}

#[tonic::async_trait]
impl<B: Backend> Auth for Services<B> {
    async fn auth_enable(
        &self,
        request: Request<pb::AuthEnableRequest>,
    ) -> Result<Response<pb::AuthEnableResponse>, Status> {
        change!(self, request, AuthEnableResponse, |_| {
            let token_key: [u8; KEY_BYTES] = rand::random();
            Ok::<_, Status>(AccountsChange::Enable(AuthEnable { token_key: Bytes::copy_from_slice(&token_key) }))
        })
    }

    async fn auth_disable(
        &self,
        request: Request<pb::AuthDisableRequest>,
    ) -> Result<Response<pb::AuthDisableResponse>, Status> {
        change!(self, request, AuthDisableResponse, |_| Ok::<_, Status>(AccountsChange::Disable(AuthDisable {})))
    }

    async fn auth_status(
        &self,
        request: Request<pb::AuthStatusRequest>,
    ) -> Result<Response<pb::AuthStatusResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let view = self.read(&caller, Need::Root).await?;
        let users = view.users();
        Ok(Response::new(pb::AuthStatusResponse {
            header: self.header(view.revision()),
            enabled: users.is_enabled,
            auth_revision: users.revision,
        }))
    }

    async fn authenticate(
        &self,
        request: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        self.check(request.metadata(), Learner::Refuses)?;
        let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
        let trail = request.extensions().get::<Arc<Trail>>().cloned();
        let pb::AuthenticateRequest { name, password } = request.into_inner();
        let view = self.read(&Caller::anybody(), Need::Nothing).await?;
        if !view.users().is_enabled {
            return Err(EtcdError::AuthNotEnabled.into());
        }
        if let Some(trail) = &trail {
            trail.on_user(&name);
        }
        let user = view.users().users.get(&name);
        // As etcd: there is no password to compare, nor one to guess.
        if user.is_some_and(|user| user.no_password) {
            return Err(EtcdError::NoPasswordUser.into());
        }
        let hash = user.map(|user| user.hash.0.clone());
        let decoy = decoy(view.users(), &name);
        drop(view);
        if !self.passwords.is_right(Source::new(peer, &name), password, hash.clone(), decoy).await? {
            let user: String = name.chars().take(USER_TOLD_MAX).collect();
            tracing::warn!(user, peer = peer.map(|peer| peer.to_string()), "a wrong user or password");
            return Err(EtcdError::AuthFailed.into());
        }
        // The password may have changed while the old one was compared.
        let view = self.read(&Caller::anybody(), Need::Nothing).await?;
        let is_same = view.users().users.get(&name).map(|user| &user.hash.0) == hash.as_ref();
        if !view.users().is_enabled || !is_same {
            return Err(EtcdError::AuthFailed.into());
        }
        let token = self.tokens.give(view.users(), &name)?;
        if let Some(trail) = &trail {
            trail.on_caller(&name);
        }
        Ok(Response::new(pb::AuthenticateResponse { header: self.header(view.revision()), token }))
    }

    async fn user_add(
        &self,
        request: Request<pb::AuthUserAddRequest>,
    ) -> Result<Response<pb::AuthUserAddResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        // Hash only for a user that may.
        self.require(&caller, Need::Root).await?;
        let pb::AuthUserAddRequest { name, password, options, hashed_password: _ } = request.into_inner();
        let no_password = options.is_some_and(|options| options.no_password);
        if name.is_empty() {
            return Err(EtcdError::UserEmpty.into());
        }
        check_length("user", &name)?;
        let hash = if no_password { Bytes::new() } else { self.passwords.hash(password).await? };
        let change = AccountsChange::UserAdd(UserPassword { name, hash, no_password });
        let revision = self.change_accounts(&caller, change).await?;
        Ok(Response::new(pb::AuthUserAddResponse { header: self.header(revision) }))
    }

    async fn user_get(
        &self,
        request: Request<pb::AuthUserGetRequest>,
    ) -> Result<Response<pb::AuthUserGetResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let name = request.into_inner().name;
        let view = self.read(&caller, Need::SameUser(&name)).await?;
        let user = view.users().users.get(&name).ok_or_else(|| Status::from(EtcdError::UserNotFound))?;
        let roles = user.roles.iter().cloned().collect();
        Ok(Response::new(pb::AuthUserGetResponse { header: self.header(view.revision()), roles }))
    }

    async fn user_list(
        &self,
        request: Request<pb::AuthUserListRequest>,
    ) -> Result<Response<pb::AuthUserListResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let view = self.read(&caller, Need::Root).await?;
        let users = view.users().users.keys().cloned().collect();
        Ok(Response::new(pb::AuthUserListResponse { header: self.header(view.revision()), users }))
    }

    async fn user_delete(
        &self,
        request: Request<pb::AuthUserDeleteRequest>,
    ) -> Result<Response<pb::AuthUserDeleteResponse>, Status> {
        change!(self, request, AuthUserDeleteResponse, |message: pb::AuthUserDeleteRequest| Ok::<_, Status>(
            AccountsChange::UserDelete(Named { name: message.name })
        ))
    }

    async fn user_change_password(
        &self,
        request: Request<pb::AuthUserChangePasswordRequest>,
    ) -> Result<Response<pb::AuthUserChangePasswordResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let pb::AuthUserChangePasswordRequest { name, password, hashed_password: _ } = request.into_inner();
        let view = self.read(&caller, Need::Root).await?;
        if !view.users().users.contains_key(&name) {
            return Err(EtcdError::UserNotFound.into());
        }
        drop(view);
        let hash = self.passwords.hash(password).await?;
        let change = AccountsChange::UserChangePassword(UserPassword { name, hash, no_password: false });
        let revision = self.change_accounts(&caller, change).await?;
        Ok(Response::new(pb::AuthUserChangePasswordResponse { header: self.header(revision) }))
    }

    async fn user_grant_role(
        &self,
        request: Request<pb::AuthUserGrantRoleRequest>,
    ) -> Result<Response<pb::AuthUserGrantRoleResponse>, Status> {
        change!(self, request, AuthUserGrantRoleResponse, |message: pb::AuthUserGrantRoleRequest| Ok::<_, Status>(
            AccountsChange::UserGrantRole(UserRole { user: message.user, role: message.role })
        ))
    }

    async fn user_revoke_role(
        &self,
        request: Request<pb::AuthUserRevokeRoleRequest>,
    ) -> Result<Response<pb::AuthUserRevokeRoleResponse>, Status> {
        change!(self, request, AuthUserRevokeRoleResponse, |message: pb::AuthUserRevokeRoleRequest| Ok::<_, Status>(
            AccountsChange::UserRevokeRole(UserRole { user: message.name, role: message.role })
        ))
    }

    async fn role_add(
        &self,
        request: Request<pb::AuthRoleAddRequest>,
    ) -> Result<Response<pb::AuthRoleAddResponse>, Status> {
        change!(self, request, AuthRoleAddResponse, |message: pb::AuthRoleAddRequest| {
            check_length("role", &message.name)?;
            Ok::<_, Status>(AccountsChange::RoleAdd(Named { name: message.name }))
        })
    }

    async fn role_get(
        &self,
        request: Request<pb::AuthRoleGetRequest>,
    ) -> Result<Response<pb::AuthRoleGetResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let name = request.into_inner().role;
        let view = self.read(&caller, Need::Role(&name)).await?;
        let perm = match view.users().roles.get(&name) {
            // Everybody knows this of root, whether the role was made or not.
            _ if name == ROOT => vec![authpb::Permission {
                perm_type: authpb::permission::Type::Readwrite as i32,
                key: Bytes::new(),
                range_end: Bytes::from_static(b"\0"),
            }],
            None => return Err(EtcdError::RoleNotFound.into()),
            Some(role) => role
                .permissions
                .iter()
                .map(|((key, range_end), kind)| authpb::Permission {
                    perm_type: *kind as i32,
                    key: key.clone(),
                    range_end: range_end.clone(),
                })
                .collect(),
        };
        Ok(Response::new(pb::AuthRoleGetResponse { header: self.header(view.revision()), perm }))
    }

    async fn role_list(
        &self,
        request: Request<pb::AuthRoleListRequest>,
    ) -> Result<Response<pb::AuthRoleListResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let view = self.read(&caller, Need::Root).await?;
        let roles = view.users().roles.keys().cloned().collect();
        Ok(Response::new(pb::AuthRoleListResponse { header: self.header(view.revision()), roles }))
    }

    async fn role_delete(
        &self,
        request: Request<pb::AuthRoleDeleteRequest>,
    ) -> Result<Response<pb::AuthRoleDeleteResponse>, Status> {
        change!(self, request, AuthRoleDeleteResponse, |message: pb::AuthRoleDeleteRequest| Ok::<_, Status>(
            AccountsChange::RoleDelete(Named { name: message.role })
        ))
    }

    async fn role_grant_permission(
        &self,
        request: Request<pb::AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<pb::AuthRoleGrantPermissionResponse>, Status> {
        change!(self, request, AuthRoleGrantPermissionResponse, |message: pb::AuthRoleGrantPermissionRequest| {
            let given = message.perm.ok_or_else(|| Status::from(EtcdError::PermissionNotGiven))?;
            let authpb::Permission { perm_type, key, range_end } = given;
            PermissionKind::try_from(perm_type).map_err(|_| Status::from(EtcdError::PermissionNotGiven))?;
            if is_empty_range(&key, &range_end) {
                let (key, end) = (key.escape_ascii(), range_end.escape_ascii());
                let text = format!(
                    "etcdserver: the range [{key}, {end}) holds no key: its end must come after its key, and all keys begin with \\0"
                );
                return Err(Status::invalid_argument(text));
            }
            check_permission_length(key.len() + range_end.len())?;
            let permission = Some(Permission { kind: perm_type, key, range_end });
            Ok::<_, Status>(AccountsChange::RoleGrant(RolePermission { role: message.name, permission }))
        })
    }

    async fn role_revoke_permission(
        &self,
        request: Request<pb::AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<pb::AuthRoleRevokePermissionResponse>, Status> {
        change!(self, request, AuthRoleRevokePermissionResponse, |message: pb::AuthRoleRevokePermissionRequest| {
            let pb::AuthRoleRevokePermissionRequest { role, key, range_end } = message;
            let permission = Some(Permission { kind: 0, key, range_end });
            Ok::<_, Status>(AccountsChange::RoleRevoke(RolePermission { role, permission }))
        })
    }
}

/// Refuses a name that is made now and is too long; those that a snapshot of etcd brings along are kept.
fn check_length(what: &str, name: &str) -> Result<(), Status> {
    match name.len() {
        0..=NAME_BYTES_MAX => Ok(()),
        bytes => Err(Status::invalid_argument(format!(
            "etcdserver: {what} name is too long: {bytes} bytes, {NAME_BYTES_MAX} at most"
        ))),
    }
}

/// Refuses a permission whose keys are too long; those that a snapshot of etcd brings along are kept.
fn check_permission_length(bytes: usize) -> Result<(), Status> {
    match bytes {
        0..=PERMISSION_BYTES_MAX => Ok(()),
        _ => Err(Status::invalid_argument(format!(
            "etcdserver: the key and the end of a permission are too long: {bytes} bytes, {PERMISSION_BYTES_MAX} at most"
        ))),
    }
}

/// Whether a change makes users and roles grow.
fn grows(change: &AccountsChange) -> bool {
    use AccountsChange::{RoleAdd, RoleGrant, UserAdd, UserGrantRole};
    matches!(change, UserAdd(_) | UserGrantRole(_) | RoleAdd(_) | RoleGrant(_))
}

/// Whether a range, in etcd's notation, ends before it begins, or begins with the empty key, which is no key. etcd keeps a permission for
/// it, and it permits nothing.
fn is_empty_range(key: &[u8], range_end: &[u8]) -> bool {
    key.is_empty() || (!range_end.is_empty() && range_end != [0] && range_end <= key)
}

impl<B: Backend> Context<B> {
    /// Changes users or roles; answers the store's revision.
    async fn change_accounts(&self, caller: &Caller, change: AccountsChange) -> Result<i64, Status> {
        self.await_version(USERS_FROM).await?;
        if grows(&change) && self.read_local(caller, Need::Root).await?.users().bytes() > ACCOUNTS_BYTES_MAX {
            return Err(Status::resource_exhausted(format!(
                "etcdserver: users and roles take more than {ACCOUNTS_BYTES_MAX} bytes: remove some first"
            )));
        }
        match self.propose(caller, Command::Accounts(Accounts { change: Some(change) })).await? {
            Applied::Accounts { revision, .. } => {
                // So that this member judges by it at once.
                self.recent.see(&self.read_local(&Caller::member(), Need::Nothing).await?);
                Ok(revision)
            }
            _ => Err(error::mismatch()),
        }
    }
}
