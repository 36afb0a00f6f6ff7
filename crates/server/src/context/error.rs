//! Translates errors of the store and of the node into etcd's.
//!
//! *Definitely not done* and *perhaps done* stay apart: the first become errors that say so (no leader, too many
//! requests), the second those whose text clients know to mean "look before you repeat".

use hustings_api::EtcdError;
use hustings_core::{MembershipRefusal, Refusal};
use hustings_kv::{AccountsError, CheckError, KvError};
use hustings_node::RequestError;
use tonic::Status;

/// Translates a node's refusal of a request.
pub(crate) fn of_request(error: RequestError) -> Status {
    match error {
        RequestError::QueueFull | RequestError::Refused(Refusal::Overloaded) => EtcdError::TooManyRequests.into(),
        RequestError::TooLarge { .. } => EtcdError::RequestTooLarge.into(),
        RequestError::Unknown => EtcdError::LeaderChanged.into(),
        RequestError::Stopped => EtcdError::Stopped.into(),
        RequestError::Refused(refusal) => match refusal {
            Refusal::NotLeader(None) | Refusal::NotReady => EtcdError::NoLeader.into(),
            Refusal::NotLeader(Some(_)) | Refusal::Transferring => EtcdError::LeaderChanged.into(),
            Refusal::BadTransferee(_) => EtcdError::BadLeaderTransferee.into(),
            Refusal::TransferTimedOut => EtcdError::Timeout.into(),
            Refusal::MembershipPending => EtcdError::Unhealthy.into(),
            Refusal::Membership(MembershipRefusal::Witness, what) => {
                Status::failed_precondition(format!("etcdserver: {what}"))
            }
            Refusal::IsWitness => is_witness(),
            Refusal::Membership(MembershipRefusal::TooLarge, what) => {
                Status::invalid_argument(format!("etcdserver: {what}"))
            }
            Refusal::Membership(kind, _) => of_membership(kind).into(),
            Refusal::Overloaded => EtcdError::TooManyRequests.into(),
        },
    }
}

/// The refusal of what a witness cannot do, with the code of what a learner cannot: clients then ask another member.
pub(crate) fn is_witness() -> Status {
    Status::unavailable("etcdserver: this member is a witness, which votes and holds no data: ask another member")
}

/// Translates a refused change of membership.
fn of_membership(kind: MembershipRefusal) -> EtcdError {
    match kind {
        MembershipRefusal::NoVoters => EtcdError::MemberNotEnoughStarted,
        MembershipRefusal::NotSimple | MembershipRefusal::AlreadyJoint | MembershipRefusal::NotJoint => {
            EtcdError::Unhealthy
        }
        MembershipRefusal::NotFound => EtcdError::MemberNotFound,
        MembershipRefusal::Taken => EtcdError::MemberExists,
        MembershipRefusal::NotLearner => EtcdError::MemberNotLearner,
        MembershipRefusal::NotReady => EtcdError::LearnerNotReady,
        // Said in words above.
        MembershipRefusal::TooLarge | MembershipRefusal::Witness => EtcdError::RequestTooLarge,
    }
}

/// Translates a refusal of the store.
pub(crate) fn of_store(error: KvError) -> Status {
    match error {
        KvError::Malformed => Status::internal("etcdserver: the proposed command is malformed"),
        KvError::EmptyKey => EtcdError::EmptyKey.into(),
        KvError::KeyNotFound => EtcdError::KeyNotFound.into(),
        KvError::Compacted { .. } => EtcdError::Compacted.into(),
        KvError::FutureRevision { .. } => EtcdError::FutureRevision.into(),
        KvError::LeaseNotFound => EtcdError::LeaseNotFound.into(),
        KvError::LeaseExists => EtcdError::LeaseExists.into(),
        KvError::LeaseTtlTooLarge => EtcdError::LeaseTtlTooLarge.into(),
        KvError::NoSpace => EtcdError::NoSpace.into(),
        KvError::TooCostly => Status::resource_exhausted(format!("etcdserver: {error}")),
        KvError::TooManyAlarms => EtcdError::TooManyRequests.into(),
        KvError::Corrupt => EtcdError::Corrupt.into(),
        KvError::Accounts(refusal) => of_accounts(refusal),
    }
}

/// Translates a refusal of a caller, or of a change of users.
pub(crate) fn of_accounts(refusal: AccountsError) -> Status {
    let error = match refusal {
        AccountsError::UserEmpty => EtcdError::UserEmpty,
        AccountsError::PermissionDenied => EtcdError::PermissionDenied,
        AccountsError::OldRevision => EtcdError::AuthOldRevision,
        AccountsError::RootUserNotExist => EtcdError::RootUserNotExist,
        AccountsError::RootRoleNotExist => EtcdError::RootRoleNotExist,
        AccountsError::UserAlreadyExist => EtcdError::UserAlreadyExist,
        AccountsError::UserNotFound => EtcdError::UserNotFound,
        AccountsError::RoleAlreadyExist => EtcdError::RoleAlreadyExist,
        AccountsError::RoleNotFound => EtcdError::RoleNotFound,
        AccountsError::RoleEmpty => EtcdError::RoleEmpty,
        AccountsError::PermissionNotGiven => EtcdError::PermissionNotGiven,
        AccountsError::RoleNotGranted => EtcdError::RoleNotGranted,
        AccountsError::PermissionNotGranted => EtcdError::PermissionNotGranted,
        AccountsError::InvalidManagement => EtcdError::InvalidAuthMgmt,
        AccountsError::TooMany | AccountsError::TooManySteps => {
            return Status::resource_exhausted(format!("etcdserver: {refusal}"));
        }
    };
    error.into()
}

/// A refusal of a caller as etcd's locks and elections tell it: there they are clients of the store themselves, and hand on its
/// words without its code.
pub(crate) fn of_concurrency(status: Status) -> Status {
    match EtcdError::of(&status) {
        Some(
            EtcdError::UserEmpty
            | EtcdError::PermissionDenied
            | EtcdError::InvalidAuthToken
            | EtcdError::AuthOldRevision,
        ) => Status::unknown(status.message()),
        _ => status,
    }
}

/// Translates a failed check.
pub(crate) fn of_check(error: CheckError) -> Status {
    let error = match error {
        CheckError::EmptyKey => EtcdError::EmptyKey,
        CheckError::TooManyOperations => EtcdError::TooManyOps,
        CheckError::DuplicateKey => EtcdError::DuplicateKey,
        CheckError::ValueProvided => EtcdError::ValueProvided,
        CheckError::LeaseProvided => EtcdError::LeaseProvided,
        CheckError::EmptyOperation => EtcdError::KeyNotFound,
    };
    error.into()
}

/// An answer of another kind than was asked for: our own mistake, told instead of hidden.
pub(crate) fn mismatch() -> Status {
    Status::internal("etcdserver: the store answered another question")
}
