//! The store in parts: its history, and everything else.
//!
//! For files that keep the history in a form of their own (etcd's snapshots do): [`View::retained`] gives it, [`View::encode_rest`]
//! the rest, and a [`Restoration`] takes both. A file that etcd itself wrote has no rest of ours, but leases, users and revisions.

use bytes::{Buf, Bytes};
use hustings_core::SnapshotError;

use crate::{
    Alarm, KeyValue, KvStore, Permission, View,
    restored::Restored,
    snapshot::{self, AlarmRecord, BEGINNING_MAX, LeaseRecord, MetaRecord, RecordKind},
    users_record::{RoleRecord, UserRecord, UsersRecord},
    version::Version,
};

impl View {
    /// The history from the compact revision on, in its order: versions and tombstones, each with its place inside its
    /// main revision, which is the version's `mod_revision`.
    pub fn retained(&self) -> impl Iterator<Item = (i64, KeyValue)> {
        let is_retained = |version: &&Version| !self.is_cleaning() || self.is_retained(version);
        self.history.iter().filter(is_retained).map(|version| (version.revision().sub, version.kv()))
    }

    /// All leases with their times to live in seconds, those included that are due and not ended yet.
    pub fn lease_terms(&self) -> impl Iterator<Item = (i64, i64)> {
        self.leases.iter().map(|(id, lease)| (*id, lease.ttl))
    }

    /// Encodes all but the history; `versions` is how many of them [`View::retained`] gives.
    pub fn encode_rest(&self, versions: u64, sink: &mut dyn FnMut(Bytes)) {
        snapshot::encode_rest(self, versions, sink);
    }
}

/// The state of users as a whole, from a store that another program wrote.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ForeignUsers {
    /// Whether callers are checked.
    pub is_enabled: bool,
    /// The revision of users and roles.
    pub revision: u64,
    /// Key that tokens are signed with from now on.
    pub token_key: Bytes,
}

impl std::fmt::Debug for ForeignUsers {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ForeignUsers")
            .field("is_enabled", &self.is_enabled)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

/// A store that is put together from parts.
pub struct Restoration {
    restored: Restored,
    /// Whether nobody counted the parts beforehand.
    is_foreign: bool,
}

impl std::fmt::Debug for Restoration {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "a store with {} versions so far", self.restored.view.history.len())
    }
}

fn refuse(what: &str) -> SnapshotError {
    SnapshotError { what: what.to_owned() }
}

/// Refuses a counter that a store would count on from until no member can read it.
fn begins_low(counter: i64) -> Result<(), SnapshotError> {
    match counter <= BEGINNING_MAX {
        true => Ok(()),
        false => Err(refuse("a revision or a count is too high to go on from")),
    }
}

impl Restoration {
    /// Begins with what [`View::encode_rest`] wrote; the history is still to come.
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn resume(rest: &mut dyn Buf) -> Result<Restoration, SnapshotError> {
        let (restored, _) = snapshot::decode_records(rest, None)?;
        Ok(Restoration { restored, is_foreign: false })
    }

    /// Begins a store that another program wrote. The new store removes what its compactions have left.
    ///
    /// # Errors
    /// When the revisions are out of range.
    pub fn of_foreign(revision: i64, compact_revision: i64) -> Result<Restoration, SnapshotError> {
        begins_low(revision)?;
        let mut restored = Restored::default();
        let is_cleaning = compact_revision > 0;
        let meta = MetaRecord { revision, compact_revision, is_cleaning, ..MetaRecord::default() };
        restored.add(RecordKind::Meta(meta).into()).map_err(refuse)?;
        Ok(Restoration { restored, is_foreign: true })
    }

    /// Adds a lease, whose time to live in seconds begins now.
    ///
    /// # Errors
    /// When its numbers are out of range, or it is there twice.
    pub fn lease(&mut self, id: i64, ttl: i64) -> Result<(), SnapshotError> {
        if self.restored.view.leases.contains_key(&id) {
            return Err(refuse("a lease is there twice"));
        }
        let deadline_seconds = ttl.unsigned_abs();
        let lease = LeaseRecord { id, ttl, deadline_seconds, deadline_nanos: 0, ttl_millis: 0 };
        self.restored.add(RecordKind::Lease(lease).into()).map_err(refuse)
    }

    /// Adds an alarm to the store.
    ///
    /// # Errors
    /// None that a known kind can have.
    pub fn alarm(&mut self, alarm: Alarm) -> Result<(), SnapshotError> {
        let record = AlarmRecord { member: alarm.member, kind: alarm.kind as i32 };
        self.restored.add(RecordKind::Alarm(record).into()).map_err(refuse)
    }

    /// Says of users and roles what concerns them all; before the first of them.
    ///
    /// # Errors
    /// When the revision is out of range.
    pub fn users(&mut self, users: ForeignUsers) -> Result<(), SnapshotError> {
        begins_low(i64::try_from(users.revision).unwrap_or(i64::MAX))?;
        let record = UsersRecord::of_foreign(users.is_enabled, users.revision, users.token_key);
        self.restored.add(RecordKind::Users(record).into()).map_err(refuse)
    }

    /// Adds a user, with the hash of a password or none.
    ///
    /// # Errors
    /// When it has no name.
    pub fn user(&mut self, name: String, hash: Bytes, roles: Vec<String>) -> Result<(), SnapshotError> {
        let record = UserRecord::of_foreign(name, hash, roles, self.restored.view.users.revision);
        self.restored.add(RecordKind::User(record).into()).map_err(refuse)
    }

    /// Adds a role and its permissions.
    ///
    /// # Errors
    /// When a permission is of an unknown kind.
    pub fn role(&mut self, name: String, permissions: Vec<Permission>) -> Result<(), SnapshotError> {
        let record = RoleRecord::of_foreign(name, permissions);
        self.restored.add(RecordKind::Role(record).into()).map_err(refuse)
    }

    /// Adds the next version or tombstone of the history, with its place inside its main revision. Key and value are copied.
    ///
    /// # Errors
    /// When it is out of order, or contradicts itself.
    pub fn version(&mut self, sub: i64, kv: KeyValue) -> Result<(), SnapshotError> {
        let main = kv.mod_revision;
        begins_low(kv.version)?;
        self.restored.add_kv(kv, sub).map_err(|what| refuse(&format!("{what}, at revision {main}.{sub}")))
    }

    /// The store, and how many keys named a lease that does not exist (of a foreign store only: they have none now).
    ///
    /// # Errors
    /// When parts are missing.
    pub fn finish(mut self) -> Result<(KvStore, usize), SnapshotError> {
        let orphans = if self.is_foreign { self.restored.detach_orphans() } else { 0 };
        if self.is_foreign {
            self.restored.count();
        }
        Ok((KvStore::of(self.restored.finish().map_err(refuse)?), orphans))
    }
}
