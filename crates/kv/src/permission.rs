//! Whether a caller may do what it asks: decided by the state alone, so that all members decide the same.
//!
//! Source: etcd 3.5, `server/auth/range_perm_cache.go`, `server/etcdserver/apply_auth.go`, with the holes closed that were
//! published since: CVE-2023-32082 (a lease's keys), CVE-2026-33343 (transactions inside transactions), CVE-2026-44283
//! (`prev_kv` and leases of puts in transactions), CVE-2026-33413 (alarms, leases, compaction, members), GHSA-xg4h-6gfc-h4m8
//! (open-ended ranges by one key). A raised alarm changes nothing here.
//!
//! Commands are judged where they are applied ([`View::judge`]), reads on the view that they read ([`View::permit`]). While
//! the checks are off, everything is permitted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use imbl::OrdMap;
use prost::Message;

use crate::store::Key;
use crate::users::{AccountsError, PermissionKind, User, Users};
use crate::{Command, Put, Request, Txn, View};

/// Looks at a role that may be taken to tell whether a request is permitted, where it is not an entry yet.
const STEPS_MAX: u64 = 100_000;

/// Cost of such a look, in visits of a key.
pub(crate) const RIGHTS_STEP: u64 = 2;

/// The caller of a command, as its member recognised it.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Caller {
    /// The user; empty: nobody, or the member.
    #[prost(string, tag = "1")]
    pub user: String,
    /// The auth revision at which the user proved who it is. [`Caller::ALWAYS`]: by a certificate, which no change outdates.
    #[prost(uint64, tag = "2")]
    pub proven_at: u64,
    /// A member does it for itself.
    #[prost(bool, tag = "3")]
    pub is_member: bool,
}

impl Caller {
    /// Later than every auth revision.
    pub const ALWAYS: u64 = u64::MAX;

    /// The member as its own caller.
    pub fn member() -> Caller {
        Caller { is_member: true, ..Caller::default() }
    }
}

/// The permission that a read, or a call that is no command, needs.
#[derive(Clone, Copy, Debug)]
pub enum Need<'a> {
    /// No permission: anybody may ask.
    Nothing,
    /// The caller must be some user.
    User,
    /// The caller must be root.
    Root,
    /// The caller must be this user, or root.
    SameUser(&'a str),
    /// The caller must have this role, or be root.
    Role(&'a str),
    /// The caller must be allowed to read a range, in etcd's notation.
    Read(&'a [u8], &'a [u8]),
    /// The caller must be allowed to write a range, in etcd's notation.
    Write(&'a [u8], &'a [u8]),
    /// The caller must be allowed all that a transaction does on either branch.
    Txn(&'a Txn),
    /// The caller must be allowed to read each key that hangs on a lease.
    ReadLease(i64),
    /// The caller must be allowed to write each key that hangs on a lease.
    WriteLease(i64),
}

/// The end of a range: a key that is out, or `None` for none.
type End = Option<Bytes>;

/// The keys that a role covers: for reading and for writing, ranges that do not touch, in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Coverage {
    read: Vec<(Bytes, End)>,
    write: Vec<(Bytes, End)>,
}

/// The kind of access to a range of keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Access {
    Read,
    Write,
}

impl Coverage {
    pub(crate) fn of(permissions: &OrdMap<(Bytes, Bytes), PermissionKind>) -> Coverage {
        let merged = |access: Access| {
            let mut ranges: Vec<(Bytes, End)> = Vec::new();
            for ((key, range_end), kind) in permissions {
                let counts = match kind {
                    PermissionKind::ReadWrite => true,
                    PermissionKind::Read => access == Access::Read,
                    PermissionKind::Write => access == Access::Write,
                };
                let end = end_of(key, range_end);
                if !counts || end.as_ref().is_some_and(|end| end <= key) {
                    continue;
                }
                match ranges.last_mut() {
                    // They come by key, so only the last can reach this one.
                    Some((_, last)) if last.as_ref().is_none_or(|last| last >= key) => {
                        let is_further = match (&last, &end) {
                            (None, _) => false,
                            (Some(_), None) => true,
                            (Some(last), Some(end)) => end > last,
                        };
                        if is_further {
                            *last = end;
                        }
                    }
                    _ => ranges.push((key.clone(), end)),
                }
            }
            ranges
        };
        Coverage { read: merged(Access::Read), write: merged(Access::Write) }
    }

    /// End of the range in which a key lies; `None`: it lies in none.
    fn reach(&self, access: Access, key: &[u8]) -> Option<&End> {
        let ranges = match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
        };
        let place = ranges.partition_point(|(begin, _)| begin[..] <= *key);
        let (_, end) = ranges.get(place.checked_sub(1)?)?;
        end.as_ref().is_none_or(|end| end[..] > *key).then_some(end)
    }
}

fn end_of(key: &[u8], range_end: &[u8]) -> End {
    match range_end {
        [] => {
            let mut next = key.to_vec();
            next.push(0);
            Some(next.into())
        }
        [0] => None,
        end => Some(Bytes::copy_from_slice(end)),
    }
}

/// A user with all its roles, while one request is judged.
struct Rights<'v> {
    users: &'v Users,
    user: &'v User,
    /// Looks at a role so far, and how many there may be.
    steps: Cell<u64>,
    steps_max: u64,
    /// Leases whose keys were looked at: a transaction may name one of them many thousand times.
    leases: RefCell<BTreeMap<(Access, i64), bool>>,
}

impl<'v> Rights<'v> {
    /// The farthest end to which all roles together reach from a key on, in one step. No end where there were too many steps.
    fn reach(&self, access: Access, key: &[u8]) -> Option<&'v End> {
        self.steps.set(self.steps.get() + self.user.roles.len() as u64);
        if self.steps.get() > self.steps_max {
            return None;
        }
        let roles = self.user.roles.iter().filter_map(|role| self.users.roles.get(role));
        let reaches = roles.filter_map(|role| role.coverage.reach(access, key));
        reaches.max_by(|one, other| match (one, other) {
            (None, None) => std::cmp::Ordering::Equal,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(_), None) => std::cmp::Ordering::Less,
            (Some(one), Some(other)) => one.cmp(other),
        })
    }

    /// The verdict, where it was reached in time.
    fn verdict(&self, is_permitted: bool) -> Result<(), AccountsError> {
        match is_permitted {
            _ if self.steps.get() > self.steps_max => Err(AccountsError::TooManySteps),
            true => Ok(()),
            false => Err(AccountsError::PermissionDenied),
        }
    }

    /// Whether all roles together cover a range.
    fn covers(&self, access: Access, key: &[u8], range_end: &[u8]) -> bool {
        let wanted = end_of(key, range_end);
        let mut at = key;
        loop {
            match self.reach(access, at) {
                None => return false,
                Some(None) => return true,
                Some(Some(end)) if wanted.as_ref().is_some_and(|wanted| wanted <= end) => return true,
                Some(Some(end)) => at = end,
            }
        }
    }
}

/// Whether all keys on a lease are covered; `false` where that is not known.
trait CoversLease: Fn(&Rights<'_>, Access, i64) -> bool {}

impl<F: Fn(&Rights<'_>, Access, i64) -> bool> CoversLease for F {}

impl Users {
    /// Whether a caller may read a range, in etcd's notation.
    ///
    /// # Errors
    /// As [`View::permit`].
    pub fn permit_read(&self, caller: Option<&Caller>, key: &[u8], range_end: &[u8]) -> Result<(), AccountsError> {
        match self.rights(caller, Need::Read(key, range_end))? {
            Some(rights) => rights.verdict(rights.covers(Access::Read, key, range_end)),
            None => Ok(()),
        }
    }

    /// Whether these users have this caller among them, or may be asked by anybody.
    ///
    /// # Errors
    /// As [`View::permit`].
    pub fn knows(&self, caller: Option<&Caller>) -> Result<(), AccountsError> {
        self.rights(caller, Need::User).map(drop)
    }

    /// Whether a caller may have this command applied, as far as that can be said without looking at a lease's keys: `false`
    /// may mean that the store itself must be asked, with [`View::judge`].
    pub fn surely_permits(&self, caller: Option<&Caller>, command: &Command) -> bool {
        self.judge(caller, command, STEPS_MAX, |_, _, _| false).0.is_ok()
    }

    /// The verdict, and the steps that it took.
    fn judge(
        &self,
        caller: Option<&Caller>,
        command: &Command,
        steps_max: u64,
        covers_lease: impl CoversLease,
    ) -> (Result<(), AccountsError>, u64) {
        let needs_nothing = matches!(command, Command::Advance(_));
        let rights = match self.rights(caller, if needs_nothing { Need::Nothing } else { Need::User }) {
            Ok(Some(rights)) => Rights { steps_max, ..rights },
            Ok(None) => return (Ok(()), 0),
            Err(refusal) => return (Err(refusal), 0),
        };
        let is_permitted = match command {
            Command::Advance(_) => true,
            Command::Put(put) => may_put(&rights, put, &covers_lease),
            Command::DeleteRange(delete) => {
                let covers = |access| rights.covers(access, &delete.key, &delete.range_end);
                covers(Access::Write) && (!delete.prev_kv || covers(Access::Read))
            }
            Command::Txn(txn) => may_run(&rights, txn, &covers_lease),
            Command::LeaseGrant(_) | Command::ShortLeaseGrant(_) => true,
            Command::LeaseRevoke(revoke) => covers_lease(&rights, Access::Write, revoke.id),
            Command::LeaseKeepAlive(renewal) => renewal.ids.iter().all(|id| covers_lease(&rights, Access::Write, *id)),
            // Only root may do these.
            Command::Compact(_) | Command::Alarm(_) | Command::Accounts(_) | Command::RaiseRevision(_) => false,
        };
        (rights.verdict(is_permitted), rights.steps.get())
    }

    /// The rights that are left to check of a caller: `None` when it may do everything.
    fn rights(&self, caller: Option<&Caller>, need: Need<'_>) -> Result<Option<Rights<'_>>, AccountsError> {
        if !self.is_enabled || matches!(need, Need::Nothing) || caller.is_some_and(|caller| caller.is_member) {
            return Ok(None);
        }
        let caller = caller.filter(|caller| !caller.user.is_empty()).ok_or(AccountsError::UserEmpty)?;
        let user = self.users.get(&caller.user).ok_or(AccountsError::PermissionDenied)?;
        if caller.proven_at < user.since.max(self.enabled_at) {
            return Err(AccountsError::OldRevision);
        }
        let (steps, leases) = (Cell::new(0), RefCell::default());
        let rights = Rights { users: self, user, steps, steps_max: STEPS_MAX, leases };
        Ok((!self.is_root(&caller.user)).then_some(rights))
    }

    /// A refusal of what only root may, in the words of an answer. etcd says of a caller who is no user that there is no such user: the name
    /// in a certificate need not be one. (The result of an entry keeps its words: members of all builds must come to the same.)
    fn told(&self, caller: Option<&Caller>, refusal: AccountsError) -> AccountsError {
        let is_nobody = caller.is_some_and(|caller| !self.users.contains_key(&caller.user));
        match refusal {
            AccountsError::PermissionDenied if is_nobody => AccountsError::UserNotFound,
            refusal => refusal,
        }
    }
}

impl View {
    /// Whether a caller may read this, or be answered that.
    ///
    /// # Errors
    /// As etcd: nobody has no name, a user without the right is denied, one that changed since it was recognised is told so.
    pub fn permit(&self, caller: Option<&Caller>, need: Need<'_>) -> Result<(), AccountsError> {
        let rights = match (need, self.users.rights(caller, need)) {
            (Need::Root | Need::SameUser(_) | Need::Role(_), Err(refusal)) => Err(self.users.told(caller, refusal)),
            (_, rights) => rights,
        };
        let Some(rights) = rights? else { return Ok(()) };
        let is_permitted = match need {
            Need::Nothing | Need::User => true,
            Need::Root => false,
            Need::SameUser(name) => caller.is_some_and(|caller| caller.user == name),
            Need::Role(role) => rights.user.roles.contains(role),
            Need::Read(key, range_end) => rights.covers(Access::Read, key, range_end),
            Need::Write(key, range_end) => rights.covers(Access::Write, key, range_end),
            Need::Txn(txn) => {
                may_run(&rights, txn, &|rights: &Rights<'_>, access, lease| self.covers_lease(rights, access, lease))
            }
            Need::ReadLease(lease) => self.covers_lease(&rights, Access::Read, lease),
            Need::WriteLease(lease) => self.covers_lease(&rights, Access::Write, lease),
        };
        rights.verdict(is_permitted)
    }

    /// Whether a caller may have this command applied: for proposers, who refuse what takes too many steps to tell.
    ///
    /// # Errors
    /// As [`View::permit`].
    pub fn judge(&self, caller: Option<&Caller>, command: &Command) -> Result<(), AccountsError> {
        self.judge_within(STEPS_MAX, caller, command).0
    }

    /// As [`View::judge`], however many steps it takes: an entry has one outcome, whoever bounds what. Answers the number of steps too.
    pub(crate) fn judge_to_the_end(
        &self,
        caller: Option<&Caller>,
        command: &Command,
    ) -> (Result<(), AccountsError>, u64) {
        self.judge_within(u64::MAX, caller, command)
    }

    fn judge_within(
        &self,
        steps_max: u64,
        caller: Option<&Caller>,
        command: &Command,
    ) -> (Result<(), AccountsError>, u64) {
        self.users.judge(caller, command, steps_max, |rights, access, lease| self.covers_lease(rights, access, lease))
    }

    /// Whether to propose this command for a caller: as [`View::judge`], in the words of an answer.
    ///
    /// # Errors
    /// As [`View::permit`].
    pub fn permit_command(&self, caller: Option<&Caller>, command: &Command) -> Result<(), AccountsError> {
        self.judge(caller, command).map_err(|refusal| match command {
            Command::Compact(_) | Command::Alarm(_) | Command::Accounts(_) | Command::RaiseRevision(_) => {
                self.users.told(caller, refusal)
            }
            _ => refusal,
        })
    }

    /// Whether each key on a lease is covered; it is looked at once for each lease.
    fn covers_lease(&self, rights: &Rights<'_>, access: Access, lease: i64) -> bool {
        let known = rights.leases.borrow().get(&(access, lease)).copied();
        known.unwrap_or_else(|| {
            let covers = self.covers_keys_of(rights, access, lease);
            rights.leases.borrow_mut().insert((access, lease), covers);
            covers
        })
    }

    /// Steps from one gap in the coverage to the next, so that the number of keys does not matter.
    fn covers_keys_of(&self, rights: &Rights<'_>, access: Access, lease: i64) -> bool {
        let mut from = Key::new(b"");
        loop {
            let bounds = (Bound::Included((lease, from)), Bound::Unbounded);
            let next = self.attached.range(bounds).next().filter(|(attached, _)| *attached == lease);
            let Some((_, key)) = next else { return true };
            match rights.reach(access, key.as_slice()) {
                None => return false,
                Some(None) => return true,
                Some(Some(end)) => from = Key::new(end),
            }
        }
    }
}

fn may_put(rights: &Rights<'_>, put: &Put, covers_lease: &impl CoversLease) -> bool {
    rights.covers(Access::Write, &put.key, b"")
        // The previous value is read, and so is one that stays.
        && (!put.prev_kv || rights.covers(Access::Read, &put.key, b""))
        // A key that joins a lease may end it, and its other keys with it.
        && (put.lease == 0 || covers_lease(rights, Access::Write, put.lease))
}

/// Compares, both branches, and all that is inside them.
fn may_run(rights: &Rights<'_>, txn: &Txn, covers_lease: &impl CoversLease) -> bool {
    let may_compare = txn.compare.iter().all(|compare| rights.covers(Access::Read, &compare.key, &compare.range_end));
    may_compare
        && txn.success.iter().chain(&txn.failure).all(|operation| match &operation.request {
            Some(Request::Range(range)) => rights.covers(Access::Read, &range.key, &range.range_end),
            Some(Request::Put(put)) => may_put(rights, put, covers_lease),
            Some(Request::DeleteRange(delete)) => {
                let covers = |access| rights.covers(access, &delete.key, &delete.range_end);
                covers(Access::Write) && (!delete.prev_kv || covers(Access::Read))
            }
            Some(Request::Txn(inner)) => may_run(rights, inner, covers_lease),
            // Refused as malformed.
            None => true,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KvStore;
    use crate::users::{Role, Secret};
    use imbl::OrdSet;
    use proptest::prelude::*;

    fn with(roles: &[&[(PermissionKind, &str, &str)]]) -> Users {
        let mut users = Users { is_enabled: true, ..Users::default() };
        let mut names = OrdSet::new();
        for (place, permissions) in roles.iter().enumerate() {
            let entry = |(kind, key, end): &(PermissionKind, &str, &str)| {
                ((Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(end.as_bytes())), *kind)
            };
            let permissions: OrdMap<_, _> = permissions.iter().map(entry).collect();
            let coverage = Coverage::of(&permissions).into();
            users.roles.insert(format!("r{place}"), Role { permissions, coverage });
            names.insert(format!("r{place}"));
        }
        users.users.insert("ann".into(), User { hash: Secret::default(), no_password: false, roles: names, since: 1 });
        users
    }

    fn may_read(users: &Users, key: &str, end: &str) -> bool {
        let mut view = KvStore::new().view().clone();
        view.users = users.clone();
        let ann = Caller { user: "ann".into(), proven_at: 1, is_member: false };
        view.permit(Some(&ann), Need::Read(key.as_bytes(), end.as_bytes())).is_ok()
    }

    #[test]
    fn ranges_of_several_roles_cover_together() {
        use PermissionKind::{Read, Write};
        let users = with(&[&[(Read, "a", "c"), (Read, "x", "")], &[(Read, "b", "e"), (Write, "e", "z")]]);
        assert!(may_read(&users, "a", "e"));
        assert!(may_read(&users, "b", "d"));
        assert!(may_read(&users, "x", ""));
        assert!(!may_read(&users, "a", "f"), "f may only be written");
        assert!(!may_read(&users, "x", "y"));
        assert!(!may_read(&users, "a", "\0"));
    }

    /// GHSA-xg4h-6gfc-h4m8: one key does not open all that follow it.
    #[test]
    fn one_key_is_no_open_end() {
        let users = with(&[&[(PermissionKind::Read, "a", "")]]);
        assert!(may_read(&users, "a", ""));
        assert!(!may_read(&users, "a", "\0"));
        assert!(!may_read(&users, "\0", "\0"));
        let users = with(&[&[(PermissionKind::Read, "a", "\0")]]);
        assert!(may_read(&users, "b", "\0"));
        assert!(!may_read(&users, "A", "\0"));
    }

    /// A view in which ann may write each of a hundred keys by itself, and so many leases have all of them.
    fn with_leases(leases: i64) -> View {
        let keys: Vec<String> = (0..100).map(|number| format!("k{number:02}")).collect();
        let permissions: Vec<_> = keys.iter().map(|key| (PermissionKind::ReadWrite, key.as_str(), "")).collect();
        let mut view = KvStore::new().view().clone();
        view.users = with(&[&permissions]);
        for lease in 1..=leases {
            keys.iter().for_each(|key| drop(view.attached.insert((lease, Key::new(key.as_bytes())))));
        }
        view
    }

    /// Goal: a transaction that names a lease many times looks at its keys once. Method: 2,000 puts on either branch, a lease of a hundred
    /// keys that no one range covers.
    #[test]
    fn the_keys_of_a_lease_are_looked_at_once() {
        let ann = Caller { user: "ann".into(), proven_at: 1, is_member: false };
        let puts = |count| vec![Request::Put(Put { key: "k07".into(), lease: 1, ..Put::default() }).into(); count];
        let command = Command::Txn(Txn { success: puts(2_000), failure: puts(2_000), ..Txn::default() });
        let (verdict, steps) = with_leases(1).judge_to_the_end(Some(&ann), &command);
        assert_eq!((verdict, steps), (Ok(()), 4_000 + 100));
    }

    /// Goal: what takes very long to judge is refused before it is an entry, and judged to the end where it is one. Method: 1,001 leases of
    /// a hundred keys are renewed together.
    #[test]
    fn what_takes_very_long_to_judge_is_not_proposed() {
        let ann = Caller { user: "ann".into(), proven_at: 1, is_member: false };
        let view = with_leases(1_001);
        let renew = |leases| Command::LeaseKeepAlive(crate::LeaseKeepAlive { ids: (1..=leases).collect() });
        assert_eq!(view.judge(Some(&ann), &renew(1_000)), Ok(()));
        assert_eq!(view.judge(Some(&ann), &renew(1_001)), Err(AccountsError::TooManySteps));
        assert_eq!(view.judge_to_the_end(Some(&ann), &renew(1_001)), (Ok(()), 100_100));
        assert!(!view.users().surely_permits(Some(&ann), &renew(1_001)));
    }

    fn short_key() -> impl Strategy<Value = String> {
        proptest::collection::vec(prop::sample::select(vec!['a', 'b', 'c']), 1..3).prop_map(String::from_iter)
    }

    proptest! {
        /// Goal: a range is permitted if and only if each key in it is. Method: all keys of up to three letters, one by one.
        #[test]
        fn a_range_is_permitted_if_each_key_is(
            permissions in proptest::collection::vec((short_key(), short_key(), 0..3), 0..6),
            key in short_key(),
            end in short_key(),
        ) {
            prop_assume!(key < end);
            let permissions: Vec<_> = permissions
                .iter()
                .map(|(key, end, form)| {
                    let end = match form { 0 => "", 1 => "\0", _ => end.as_str() };
                    (PermissionKind::ReadWrite, key.as_str(), end)
                })
                .collect();
            let users = with(&[&permissions]);
            let letters = ["\0", "a", "b", "c"];
            let mut keys = vec![key.clone()];
            for one in letters { for two in letters { for three in letters {
                keys.extend([one.to_string(), format!("{one}{two}"), format!("{one}{two}{three}")]);
            } } }
            let each = keys.iter().filter(|inside| **inside >= key && **inside < end).all(|inside| may_read(&users, inside, ""));
            prop_assert_eq!(may_read(&users, &key, &end), each);
        }
    }
}
