//! A view that is put together from records, in their order, with every fact checked that `apply` relies on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::{
    Alarm, AlarmKind, KeyValue, View,
    large::Large,
    lease::{LEASE_TTL_SECONDS_MAX, Lease, rounded_up_seconds, ttl_duration},
    rules::RULES,
    snapshot::{COUNTER_MAX, LeaseRecord, MetaRecord, Record, RecordKind, VersionRecord},
    store::{Key, Revision},
    users_record::UsersRecord,
    version::{Numbers, Version},
};

/// A view under reconstruction.
pub(crate) struct Restored {
    pub(crate) view: View,
    meta: Option<MetaRecord>,
    users: Option<UsersRecord>,
    last: Revision,
}

impl Default for Restored {
    fn default() -> Restored {
        Restored { view: View::empty(&RULES[0]), meta: None, users: None, last: Revision::first(0) }
    }
}

/// Turns a broken fact into an error.
fn check(is_true: bool, what: &'static str) -> Result<(), &'static str> {
    if is_true { Ok(()) } else { Err(what) }
}

impl Restored {
    /// Adds what comes next.
    pub(crate) fn add(&mut self, record: Record) -> Result<(), &'static str> {
        self.add_placed(record, |_| None)
    }

    /// As [`Restored::add`]; `place` says where a large value may stay.
    pub(crate) fn add_placed(
        &mut self,
        record: Record,
        place: impl FnOnce(&Bytes) -> Option<Arc<Large>>,
    ) -> Result<(), &'static str> {
        match record.kind.ok_or("a record of an unknown kind")? {
            RecordKind::Meta(meta) => self.add_meta(meta),
            _ if self.meta.is_none() => Err("a record before the one that describes the store"),
            RecordKind::Lease(lease) => self.add_lease(lease),
            RecordKind::Alarm(alarm) => {
                let kind = AlarmKind::try_from(alarm.kind).map_err(|_| "an alarm of an unknown kind")?;
                self.view.alarms.insert(Alarm { member: alarm.member, kind });
                Ok(())
            }
            RecordKind::Version(version) => self.add_version(version, place),
            RecordKind::Users(users) => {
                users.restore(&mut self.view.users)?;
                self.users = Some(users);
                Ok(())
            }
            _ if self.users.is_none() => Err("a user or role before the record that describes them all"),
            RecordKind::User(user) => user.restore(&mut self.view.users),
            RecordKind::Role(role) => role.restore(&mut self.view.users),
        }
    }

    fn add_meta(&mut self, meta: MetaRecord) -> Result<(), &'static str> {
        check(self.meta.is_none(), "the store is described twice")?;
        check((1..=COUNTER_MAX).contains(&meta.revision), "the revision is out of range")?;
        check((-1..=meta.revision).contains(&meta.compact_revision), "the compact revision is out of range")?;
        check(meta.cleaning_main >= -1, "the clean-up's revision is out of range")?;
        check((0..=COUNTER_MAX).contains(&meta.cleaning_sub), "the clean-up's sub revision is out of range")?;
        self.view.revision = meta.revision;
        self.view.compact_revision = meta.compact_revision;
        self.view.cleaning = meta.is_cleaning.then_some(Revision { main: meta.cleaning_main, sub: meta.cleaning_sub });
        self.view.clock = duration(meta.clock_seconds, meta.clock_nanos)?;
        self.meta = Some(meta);
        Ok(())
    }

    fn add_lease(&mut self, lease: LeaseRecord) -> Result<(), &'static str> {
        check(lease.id != 0, "a lease without an id")?;
        check((1..=LEASE_TTL_SECONDS_MAX).contains(&lease.ttl), "a lease's time to live is out of range")?;
        let deadline = duration(lease.deadline_seconds, lease.deadline_nanos)?;
        let length = match lease.ttl_millis {
            0 => ttl_duration(lease.ttl),
            millis => Duration::from_millis(millis),
        };
        check(rounded_up_seconds(length) == lease.ttl, "a lease's time to live in milliseconds is another one")?;
        self.view.leases.insert(lease.id, Lease { ttl: lease.ttl, length, deadline });
        Ok(())
    }

    fn add_version(
        &mut self,
        record: VersionRecord,
        place: impl FnOnce(&Bytes) -> Option<Arc<Large>>,
    ) -> Result<(), &'static str> {
        let VersionRecord { key, value, create_revision, mod_revision, sub, version, lease } = record;
        let large = place(&value);
        self.add_with(KeyValue { key, value, create_revision, mod_revision, version, lease }, sub, large)
    }

    /// Adds a version, whose key and value are copied.
    pub(crate) fn add_kv(&mut self, kv: KeyValue, sub: i64) -> Result<(), &'static str> {
        self.add_with(kv, sub, None)
    }

    /// Adds a version; a value that is kept elsewhere is not copied.
    fn add_with(&mut self, kv: KeyValue, sub: i64, large: Option<Arc<Large>>) -> Result<(), &'static str> {
        let KeyValue { ref key, ref value, create_revision, mod_revision, version, lease } = kv;
        let place = Revision { main: mod_revision, sub };
        check(!key.is_empty(), "a version without a key")?;
        check(place > self.last, "a version out of order")?;
        check((2..=self.view.revision).contains(&mod_revision), "a version's revision is out of range")?;
        check((0..=COUNTER_MAX).contains(&sub), "a version's sub revision is out of range")?;
        check((0..=COUNTER_MAX).contains(&version), "a version's count is out of range")?;
        let is_tombstone = version == 0;
        check(!is_tombstone || (create_revision == 0 && lease == 0 && value.is_empty()), "a tombstone with contents")?;
        check(is_tombstone || (2..=mod_revision).contains(&create_revision), "a version created after it was written")?;
        self.last = place;
        self.view.restore(Version::of(&kv, sub, large));
        Ok(())
    }

    /// Takes the present number of records as the expected one: for a store that was not counted beforehand.
    pub(crate) fn count(&mut self) {
        if let Some(meta) = &mut self.meta {
            meta.versions = self.view.history.len() as u64;
            meta.leases = self.view.leases.len() as u64;
            meta.alarms = self.view.alarms.len() as u64;
        }
        if let Some(users) = &mut self.users {
            *users = UsersRecord::of(&self.view.users);
        }
    }

    /// Takes keys from leases that do not exist; answers how many.
    pub(crate) fn detach_orphans(&mut self) -> usize {
        let is_orphan = |version: &&Version| version.lease() != 0 && !self.view.leases.contains_key(&version.lease());
        let orphans: Vec<Version> = self.view.live.iter().filter(is_orphan).cloned().collect();
        for orphan in &orphans {
            let version = orphan.with_numbers(Numbers { lease: 0, ..orphan.numbers() });
            self.view.live.insert(version.clone());
            self.view.history.insert(version);
        }
        orphans.len()
    }

    pub(crate) fn finish(mut self) -> Result<View, &'static str> {
        let meta = self.meta.ok_or("nothing describes the store")?;
        check(meta.versions == self.view.history.len() as u64, "versions are missing")?;
        check(meta.leases == self.view.leases.len() as u64, "leases are missing")?;
        check(meta.alarms == self.view.alarms.len() as u64, "alarms are missing")?;
        let is_complete = |users: &UsersRecord| users.is_complete(&self.view.users);
        check(self.users.as_ref().is_none_or(is_complete), "users or roles are missing")?;
        let with_lease = |version: &&Version| version.lease() != 0;
        let attached: Vec<_> = self.view.live.iter().filter(with_lease).cloned().collect();
        for version in attached {
            check(self.view.leases.contains_key(&version.lease()), "a key attached to a lease that does not exist")?;
            self.view.attached.insert((version.lease(), Key::new(version.key())));
        }
        Ok(self.view)
    }
}

fn duration(seconds: u64, nanos: u32) -> Result<Duration, &'static str> {
    check(nanos < 1_000_000_000, "a second has fewer nanoseconds")?;
    Ok(Duration::new(seconds, nanos))
}
