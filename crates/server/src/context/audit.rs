//! A line for each call while users count: caller, method, range of keys, code, revision. Never a value, never a password.
//!
//! The lines are log lines with the target `hustings::audit`: `--log-level` and a collector of logs tell them apart. A stream
//! has a line when it begins, and each watcher on it one of its own, and so has each lease that it may not renew.

use std::fmt::Write;
use std::sync::Mutex;

use hustings_kv::{Accounts, AccountsChange, Command, Need, Operation, Request, Txn};

/// The longest range that is told, in characters.
const RANGE_MAX: usize = 400;

/// Leases of one call that are told.
const LEASES_MAX: usize = 16;

/// The facts about a call so far, for its line in the audit log.
#[derive(Default, Debug)]
pub(crate) struct Trail(Mutex<Known>);

#[derive(Default, Debug)]
struct Known {
    caller: String,
    range: String,
    revision: i64,
}

impl Trail {
    fn with(&self, change: impl FnOnce(&mut Known)) {
        // Held for an assignment only; none panics.
        change(&mut self.0.lock().expect("nothing panics while the lock is held"));
    }

    pub(crate) fn on_caller(&self, caller: &str) {
        self.with(|known| known.caller = caller.to_owned());
    }

    /// Somebody says to be this user, and has not proven it yet.
    pub(crate) fn on_user(&self, name: &str) {
        let mut range = String::new();
        push_name(&mut range, "user", name);
        self.with(|known| known.range = range);
    }

    /// The call is about this member.
    pub(crate) fn on_member(&self, id: u64) {
        self.with(|known| known.range = format!("member {id:x}"));
    }

    /// The store is read, or is about to be.
    pub(crate) fn on_need(&self, need: Need<'_>) {
        let mut range = String::new();
        match need {
            Need::Nothing | Need::User | Need::Root => return,
            Need::SameUser(name) | Need::Role(name) => push(&mut range, name.as_bytes(), b""),
            Need::Read(key, end) | Need::Write(key, end) => push(&mut range, key, end),
            Need::Txn(txn) => push_txn(&mut range, txn),
            Need::ReadLease(lease) | Need::WriteLease(lease) => push_lease(&mut range, lease),
        }
        self.with(|known| known.range = range);
    }

    /// A command is about to be proposed.
    pub(crate) fn on_command(&self, command: &Command) {
        let mut range = String::new();
        match command {
            Command::Put(put) => push(&mut range, &put.key, b""),
            Command::DeleteRange(delete) => push(&mut range, &delete.key, &delete.range_end),
            Command::Txn(txn) => push_txn(&mut range, txn),
            Command::LeaseRevoke(revoke) => push_lease(&mut range, revoke.id),
            Command::LeaseGrant(grant) => push_lease(&mut range, grant.id),
            Command::ShortLeaseGrant(grant) => push_lease(&mut range, grant.id),
            Command::LeaseKeepAlive(renewed) => {
                renewed.ids.iter().take(LEASES_MAX).for_each(|id| push_lease(&mut range, *id))
            }
            Command::Alarm(change) => {
                let _ = write!(range, "member {:x}", change.member);
            }
            Command::Compact(compact) => {
                let _ = write!(range, "up to revision {}", compact.revision);
            }
            Command::Accounts(Accounts { change: Some(change) }) => push_change(&mut range, change),
            _ => return,
        }
        self.with(|known| known.range = range);
    }

    pub(crate) fn on_revision(&self, revision: i64) {
        self.with(|known| known.revision = revision);
    }

    /// Writes the call's line.
    pub(crate) fn tell(&self, method: &str, code: i32) {
        self.with(|known| {
            let Known { caller, range, revision } = &*known;
            tracing::info!(target: "hustings::audit", caller, method, range, code, revision, "audit");
        });
    }
}

fn push_lease(range: &mut String, id: i64) {
    let _ = write!(range, "{}lease {id:x}", if range.is_empty() { "" } else { " " });
}

fn push(range: &mut String, key: &[u8], end: &[u8]) {
    if range.len() > RANGE_MAX {
        return;
    }
    if !range.is_empty() {
        range.push(' ');
    }
    let _ = match end {
        [] => write!(range, "{}", key.escape_ascii()),
        [0] => write!(range, "[{},...)", key.escape_ascii()),
        end => write!(range, "[{},{})", key.escape_ascii(), end.escape_ascii()),
    };
    if let Some((place, _)) = range.char_indices().nth(RANGE_MAX) {
        range.truncate(place);
        range.push_str("...");
    }
}

/// Appends the names of a change of users and roles, and the range of a permission.
fn push_change(range: &mut String, change: &AccountsChange) {
    match change {
        AccountsChange::Enable(_) | AccountsChange::Disable(_) => {}
        AccountsChange::UserAdd(user) | AccountsChange::UserChangePassword(user) => {
            push_name(range, "user", &user.name)
        }
        AccountsChange::UserDelete(user) => push_name(range, "user", &user.name),
        AccountsChange::UserGrantRole(given) | AccountsChange::UserRevokeRole(given) => {
            push_name(range, "user", &given.user);
            push_name(range, "role", &given.role);
        }
        AccountsChange::RoleAdd(role) | AccountsChange::RoleDelete(role) => push_name(range, "role", &role.name),
        AccountsChange::RoleGrant(given) | AccountsChange::RoleRevoke(given) => {
            push_name(range, "role", &given.role);
            if let Some(permission) = &given.permission {
                push(range, &permission.key, &permission.range_end);
            }
        }
    }
}

fn push_name(range: &mut String, what: &str, name: &str) {
    if !range.is_empty() {
        range.push(' ');
    }
    range.push_str(what);
    push(range, name.as_bytes(), b"");
}

fn push_txn(range: &mut String, txn: &Txn) {
    for compare in &txn.compare {
        push(range, &compare.key, &compare.range_end);
    }
    for Operation { request } in txn.success.iter().chain(&txn.failure) {
        match request {
            Some(Request::Range(read)) => push(range, &read.key, &read.range_end),
            Some(Request::Put(put)) => push(range, &put.key, b""),
            Some(Request::DeleteRange(delete)) => push(range, &delete.key, &delete.range_end),
            Some(Request::Txn(inner)) => push_txn(range, inner),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_kv::{AlarmChange, LeaseKeepAlive, Permission, Put, RolePermission, UserPassword, UserRole};

    /// The range that is told of a command.
    fn told(command: Command) -> String {
        let trail = Trail::default();
        trail.on_command(&command);
        let Known { range, .. } = trail.0.into_inner().expect("nobody panicked");
        range
    }

    #[test]
    fn a_line_names_keys_and_no_values() {
        let put = |key: &'static str| Put { key: key.into(), value: "hidden".into(), ..Put::default() };
        let inner = Txn { success: vec![Request::Put(put("b")).into()], ..Txn::default() };
        let txn = Txn { success: vec![Request::Put(put("a")).into(), Request::Txn(inner).into()], ..Txn::default() };
        assert_eq!(told(Command::Txn(txn)), "a b");
    }

    #[test]
    fn a_line_names_whose_rights_were_changed_and_no_password() {
        let told = |change| told(Command::Accounts(Accounts { change: Some(change) }));
        let permission = Permission { kind: 2, key: "a".into(), range_end: "b".into() };
        let granted = RolePermission { role: "billing".into(), permission: Some(permission) };
        assert_eq!(told(AccountsChange::RoleGrant(granted)), "role billing [a,b)");
        let given = UserRole { user: "ann\nbob".into(), role: "root".into() };
        assert_eq!(told(AccountsChange::UserGrantRole(given)), "user ann\\nbob role root");
        let added = UserPassword { name: "ann".into(), hash: "hidden".into(), no_password: false };
        assert_eq!(told(AccountsChange::UserAdd(added)), "user ann");
    }

    #[test]
    fn a_line_names_leases_and_members() {
        assert_eq!(told(Command::LeaseKeepAlive(LeaseKeepAlive { ids: vec![10, 11] })), "lease a lease b");
        let crowd = LeaseKeepAlive { ids: (0..1_000).collect() };
        assert!(told(Command::LeaseKeepAlive(crowd)).len() < RANGE_MAX);
        let alarm = AlarmChange { raise: true, member: 31, kind: 1 };
        assert_eq!(told(Command::Alarm(alarm)), "member 1f");
    }

    #[test]
    fn a_long_range_is_cut() {
        let trail = Trail::default();
        trail.on_need(Need::Read(&[b'k'; 5_000], b"\0"));
        trail.with(|known| assert!(known.range.len() < RANGE_MAX + 10, "{}", known.range));
    }
}
