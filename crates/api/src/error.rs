//! The errors that etcd's clients match on: by code, and by text, letter for letter.
//!
//! Source: etcd 3.5, `api/v3rpc/rpctypes/error.go`; the last four are what its election and lock services answer.
//! Codes are those of 3.5: 3.6 moved [`EtcdError::NotCapable`], [`EtcdError::NotSupportedForLearner`] and
//! [`EtcdError::ClusterVersionUnavailable`] from `Unavailable` to `FailedPrecondition`, which tells old clients not to
//! retry.
//!
//! Read next: [`crate::json`] for how an error looks through the gateway.

use std::fmt;

use tonic::{Code, Status};

/// An answer that is an error, known to every etcd client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EtcdError {
    /// The key is empty.
    EmptyKey,
    /// `ignore_value` or `ignore_lease` on a key that does not exist.
    KeyNotFound,
    /// `ignore_value` beside a value.
    ValueProvided,
    /// `ignore_lease` beside a lease.
    LeaseProvided,
    /// A transaction has more operations than the server takes.
    TooManyOps,
    /// A transaction writes a key twice.
    DuplicateKey,
    /// The client says a version of the API that is not one.
    InvalidClientApiVersion,
    /// The order or target of sorting is not one.
    InvalidSortOption,
    /// The revision is forgotten.
    Compacted,
    /// The revision is yet to come.
    FutureRevision,
    /// The quota of storage is used up.
    NoSpace,
    /// No such lease, perhaps no longer.
    LeaseNotFound,
    /// The number of the lease is taken.
    LeaseExists,
    /// The lifetime is longer than a lease may have.
    LeaseTtlTooLarge,
    /// The client has cancelled its watch.
    WatchCanceled,
    /// The number of the member is taken.
    MemberExists,
    /// The peer URL is taken.
    PeerUrlExists,
    /// The change would leave fewer started members than a quorum.
    MemberNotEnoughStarted,
    /// The URLs of the member are not URLs.
    MemberBadUrls,
    /// There is no such member.
    MemberNotFound,
    /// The member to promote votes already.
    MemberNotLearner,
    /// The member to promote is too far behind.
    LearnerNotReady,
    /// There are as many learners as there may be.
    TooManyLearners,
    /// The request was meant for another cluster.
    ClusterIdMismatch,
    /// The request is larger than the server takes.
    RequestTooLarge,
    /// More requests are waiting than the server takes.
    TooManyRequests,
    /// There is no leader, and the client asked to be told.
    NoLeader,
    /// The member that was asked is not the leader, and only the leader may be asked.
    NotLeader,
    /// The leader changed while the request was under way; a write is perhaps done.
    LeaderChanged,
    /// The cluster's version does not know this request.
    NotCapable,
    /// The server is stopping.
    Stopped,
    /// No answer in time; a write is perhaps done.
    Timeout,
    /// No answer in time, for the leader was lost; a write is perhaps done.
    TimeoutDueToLeaderFail,
    /// No answer in time, for the member was cut off; a write is perhaps done.
    TimeoutDueToConnectionLost,
    /// The member did not catch up in time to read.
    TimeoutWaitAppliedIndex,
    /// A quorum of members is not connected, so the change is refused.
    Unhealthy,
    /// Members disagree about the store, so nothing is answered.
    Corrupt,
    /// A learner does not serve this.
    NotSupportedForLearner,
    /// The member cannot take the lead.
    BadLeaderTransferee,
    /// The version of the cluster is not known yet.
    ClusterVersionUnavailable,
    /// The version to go down to is not one.
    WrongDowngradeVersionFormat,
    /// The version to go down to is not one below.
    InvalidDowngradeTargetVersion,
    /// A downgrade is under way.
    DowngradeInProcess,
    /// No downgrade is under way.
    NoInflightDowngrade,
    /// The client gave up.
    Canceled,
    /// The client's deadline is over.
    DeadlineExceeded,
    /// Users cannot count without the user root.
    RootUserNotExist,
    /// Users cannot count while root does not have the role root.
    RootRoleNotExist,
    /// The name of the user is taken.
    UserAlreadyExist,
    /// The caller, or the request, names no user.
    UserEmpty,
    /// There is no such user.
    UserNotFound,
    /// The name of the role is taken.
    RoleAlreadyExist,
    /// There is no such role.
    RoleNotFound,
    /// The request names no role.
    RoleEmpty,
    /// No such user, or another password.
    AuthFailed,
    /// A user without a password cannot prove itself by one. The text is that of etcd's store, handed on as it stands.
    NoPasswordUser,
    /// The request names no permission.
    PermissionNotGiven,
    /// The caller may not do this.
    PermissionDenied,
    /// The user does not have the role.
    RoleNotGranted,
    /// The role does not have the permission.
    PermissionNotGranted,
    /// Users do not count here.
    AuthNotEnabled,
    /// The token is not one, or does not count any more.
    InvalidAuthToken,
    /// Root would lose what makes it root.
    InvalidAuthMgmt,
    /// Users have changed since the caller was recognised.
    AuthOldRevision,
    /// The election has no leader.
    ElectionNoLeader,
    /// The leadership is lost.
    ElectionNotLeader,
    /// The request to an election does not name the leadership.
    ElectionMissingLeader,
    /// The lease that should own the lock ended while the caller waited.
    LockSessionExpired,
}

/// All errors, in the order of their declaration: the place in the table is the variant's number.
const TABLE: [(EtcdError, Code, &str); 68] = {
    use EtcdError::*;
    [
        (EmptyKey, Code::InvalidArgument, "etcdserver: key is not provided"),
        (KeyNotFound, Code::InvalidArgument, "etcdserver: key not found"),
        (ValueProvided, Code::InvalidArgument, "etcdserver: value is provided"),
        (LeaseProvided, Code::InvalidArgument, "etcdserver: lease is provided"),
        (TooManyOps, Code::InvalidArgument, "etcdserver: too many operations in txn request"),
        (DuplicateKey, Code::InvalidArgument, "etcdserver: duplicate key given in txn request"),
        (InvalidClientApiVersion, Code::InvalidArgument, "etcdserver: invalid client api version"),
        (InvalidSortOption, Code::InvalidArgument, "etcdserver: invalid sort option"),
        (Compacted, Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted"),
        (FutureRevision, Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
        (NoSpace, Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
        (LeaseNotFound, Code::NotFound, "etcdserver: requested lease not found"),
        (LeaseExists, Code::FailedPrecondition, "etcdserver: lease already exists"),
        (LeaseTtlTooLarge, Code::OutOfRange, "etcdserver: too large lease TTL"),
        (WatchCanceled, Code::Cancelled, "etcdserver: watch canceled"),
        (MemberExists, Code::FailedPrecondition, "etcdserver: member ID already exist"),
        (PeerUrlExists, Code::FailedPrecondition, "etcdserver: Peer URLs already exists"),
        (
            MemberNotEnoughStarted,
            Code::FailedPrecondition,
            "etcdserver: re-configuration failed due to not enough started members",
        ),
        (MemberBadUrls, Code::InvalidArgument, "etcdserver: given member URLs are invalid"),
        (MemberNotFound, Code::NotFound, "etcdserver: member not found"),
        (MemberNotLearner, Code::FailedPrecondition, "etcdserver: can only promote a learner member"),
        (
            LearnerNotReady,
            Code::FailedPrecondition,
            "etcdserver: can only promote a learner member which is in sync with leader",
        ),
        (TooManyLearners, Code::FailedPrecondition, "etcdserver: too many learner members in cluster"),
        (ClusterIdMismatch, Code::FailedPrecondition, "etcdserver: cluster ID mismatch"),
        (RequestTooLarge, Code::InvalidArgument, "etcdserver: request is too large"),
        (TooManyRequests, Code::ResourceExhausted, "etcdserver: too many requests"),
        (NoLeader, Code::Unavailable, "etcdserver: no leader"),
        (NotLeader, Code::FailedPrecondition, "etcdserver: not leader"),
        (LeaderChanged, Code::Unavailable, "etcdserver: leader changed"),
        (NotCapable, Code::Unavailable, "etcdserver: not capable"),
        (Stopped, Code::Unavailable, "etcdserver: server stopped"),
        (Timeout, Code::Unavailable, "etcdserver: request timed out"),
        (
            TimeoutDueToLeaderFail,
            Code::Unavailable,
            "etcdserver: request timed out, possibly due to previous leader failure",
        ),
        (
            TimeoutDueToConnectionLost,
            Code::Unavailable,
            "etcdserver: request timed out, possibly due to connection lost",
        ),
        (
            TimeoutWaitAppliedIndex,
            Code::Unavailable,
            "etcdserver: request timed out, waiting for the applied index took too long",
        ),
        (Unhealthy, Code::Unavailable, "etcdserver: unhealthy cluster"),
        (Corrupt, Code::DataLoss, "etcdserver: corrupt cluster"),
        (NotSupportedForLearner, Code::Unavailable, "etcdserver: rpc not supported for learner"),
        (BadLeaderTransferee, Code::FailedPrecondition, "etcdserver: bad leader transferee"),
        (ClusterVersionUnavailable, Code::Unavailable, "etcdserver: cluster version not found during downgrade"),
        (WrongDowngradeVersionFormat, Code::InvalidArgument, "etcdserver: wrong downgrade target version format"),
        (InvalidDowngradeTargetVersion, Code::InvalidArgument, "etcdserver: invalid downgrade target version"),
        (DowngradeInProcess, Code::FailedPrecondition, "etcdserver: cluster has a downgrade job in progress"),
        (NoInflightDowngrade, Code::FailedPrecondition, "etcdserver: no inflight downgrade job"),
        (Canceled, Code::Cancelled, "etcdserver: request canceled"),
        (DeadlineExceeded, Code::DeadlineExceeded, "etcdserver: context deadline exceeded"),
        (RootUserNotExist, Code::FailedPrecondition, "etcdserver: root user does not exist"),
        (RootRoleNotExist, Code::FailedPrecondition, "etcdserver: root user does not have root role"),
        (UserAlreadyExist, Code::FailedPrecondition, "etcdserver: user name already exists"),
        (UserEmpty, Code::InvalidArgument, "etcdserver: user name is empty"),
        (UserNotFound, Code::FailedPrecondition, "etcdserver: user name not found"),
        (RoleAlreadyExist, Code::FailedPrecondition, "etcdserver: role name already exists"),
        (RoleNotFound, Code::FailedPrecondition, "etcdserver: role name not found"),
        (RoleEmpty, Code::InvalidArgument, "etcdserver: role name is empty"),
        (AuthFailed, Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password"),
        (NoPasswordUser, Code::Unknown, "auth: authentication failed, password was given for no password user"),
        (PermissionNotGiven, Code::InvalidArgument, "etcdserver: permission not given"),
        (PermissionDenied, Code::PermissionDenied, "etcdserver: permission denied"),
        (RoleNotGranted, Code::FailedPrecondition, "etcdserver: role is not granted to the user"),
        (PermissionNotGranted, Code::FailedPrecondition, "etcdserver: permission is not granted to the role"),
        (AuthNotEnabled, Code::FailedPrecondition, "etcdserver: authentication is not enabled"),
        (InvalidAuthToken, Code::Unauthenticated, "etcdserver: invalid auth token"),
        (InvalidAuthMgmt, Code::InvalidArgument, "etcdserver: invalid auth management"),
        (AuthOldRevision, Code::InvalidArgument, "etcdserver: revision of auth store is old"),
        (ElectionNoLeader, Code::Unknown, "election: no leader"),
        (ElectionNotLeader, Code::Unknown, "election: not leader"),
        (ElectionMissingLeader, Code::Unknown, "\"leader\" field must be provided"),
        (LockSessionExpired, Code::Unknown, "mutex: session is expired"),
    ]
};

impl EtcdError {
    /// All errors, in the order of their declaration.
    pub fn all() -> impl Iterator<Item = EtcdError> {
        TABLE.iter().map(|row| row.0)
    }

    /// The gRPC code of the error.
    pub fn code(self) -> Code {
        TABLE[self as usize].1
    }

    /// The text, letter for letter.
    pub fn message(self) -> &'static str {
        TABLE[self as usize].2
    }

    /// Whether a request may be admitted with another token: the one that was shown has ended or is older than the users are, or none was
    /// shown, as by a caller that has not heard that users count since.
    pub fn asks_for_a_token(self) -> bool {
        matches!(self, EtcdError::InvalidAuthToken | EtcdError::AuthOldRevision | EtcdError::UserEmpty)
    }

    /// The error that a status stands for; `None` if it is not one of etcd's. Only the text decides, as in etcd's own client.
    pub fn of(status: &Status) -> Option<EtcdError> {
        TABLE.iter().find(|row| row.2 == status.message()).map(|row| row.0)
    }
}

impl fmt::Display for EtcdError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.message())
    }
}

impl std::error::Error for EtcdError {}

impl From<EtcdError> for Status {
    fn from(error: EtcdError) -> Status {
        Status::new(error.code(), error.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_stands_at_its_place_and_is_recognised() {
        for (place, error) in EtcdError::all().enumerate() {
            assert_eq!(error as usize, place, "{error:?} stands elsewhere in the table");
            assert_eq!(EtcdError::of(&Status::from(error)), Some(error), "{error:?} shares its text with another");
        }
    }

    #[test]
    fn a_stranger_is_not_taken_for_one_of_ours() {
        assert_eq!(EtcdError::of(&Status::unavailable("connection refused")), None);
    }
}
