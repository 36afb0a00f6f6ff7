//! A hash over the store's history, to compare members with (etcd's `HashKV`).
//!
//! Two members that answer with the same compact and hash revision must answer with the same hash, whenever they compacted
//! and however far the removal of compacted history is on each: history that a complete compaction would have removed is
//! left out (failure RP-10 is what this finds). The number is ours, not etcd's: members of one cluster compare with each other.

use std::ops::Bound;

use hustings_core::replica::digests::Digest;

use crate::{KvError, View, lease::ttl_duration, store::Revision, users::Users};

/// A digest of all that is replicated, to compare members with at one entry: unlike [`hash_kv`] it knows leases, alarms and how
/// far the removal of compacted history is. Its definition changes only with an apply version, never with an encoding.
pub(crate) fn digest(view: &View) -> u64 {
    let mut digest = Digest::new();
    let cleaning = view.cleaning.map_or([-1, -1], |place| [place.main, place.sub]);
    for number in [view.revision, view.compact_revision].into_iter().chain(cleaning) {
        digest.write_number(number as u64);
    }
    digest.write_number(view.clock.as_micros() as u64);
    for version in view.history.iter() {
        let numbers = version.numbers();
        for number in [numbers.main, numbers.sub, numbers.create_revision, numbers.count, numbers.lease] {
            digest.write_number(number as u64);
        }
        digest.write(version.key());
        digest.write(&version.value());
    }
    for (id, lease) in &view.leases {
        for number in [*id as u64, lease.ttl as u64, lease.deadline.as_micros() as u64] {
            digest.write_number(number);
        }
        if lease.length != ttl_duration(lease.ttl) {
            digest.write_number(lease.length.as_millis() as u64);
        }
    }
    for alarm in &view.alarms {
        digest.write_number(alarm.member);
        digest.write_number(alarm.kind as u64);
    }
    digest_users(&mut digest, &view.users);
    digest.write_number(view.live.len() as u64);
    digest.write_number(view.attached.len() as u64);
    digest.finish()
}

/// Adds users and roles; nothing for a store that never had a user, so that the digest is that of the apply versions before the third.
fn digest_users(digest: &mut Digest, users: &Users) {
    if *users == Users::default() {
        return;
    }
    for number in [users.revision, users.enabled_at, u64::from(users.is_enabled)] {
        digest.write_number(number);
    }
    digest.write(&users.token_key.0);
    for (name, user) in &users.users {
        digest.write(name.as_bytes());
        digest.write(&user.hash.0);
        for number in [u64::from(user.no_password), user.since, user.roles.len() as u64] {
            digest.write_number(number);
        }
        user.roles.iter().for_each(|role| digest.write(role.as_bytes()));
    }
    for (name, role) in &users.roles {
        digest.write(name.as_bytes());
        digest.write_number(role.permissions.len() as u64);
        for ((key, range_end), kind) in &role.permissions {
            digest.write(key);
            digest.write(range_end);
            digest.write_number(*kind as u64);
        }
    }
}

/// A hash of the history, with the revisions that it is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KvHash {
    /// CRC32C over every version and tombstone, in order.
    pub hash: u32,
    /// The compact revision; -1 before the first compaction.
    pub compact_revision: i64,
    /// The last revision that the hash covers.
    pub hash_revision: i64,
}

/// Hashes the history from the compact revision up to `revision`; 0 or less means the present.
///
/// Errors: [`KvError::Compacted`] below the compact revision, [`KvError::FutureRevision`] above the present.
pub fn hash_kv(view: &View, revision: i64) -> Result<KvHash, KvError> {
    if revision > view.revision {
        return Err(KvError::FutureRevision { revision: view.revision });
    }
    if revision > 0 && revision < view.compact_revision {
        return Err(KvError::Compacted { compact_revision: view.compact_revision });
    }
    let hash_revision = if revision > 0 { revision } else { view.revision };
    let mut hash = 0;
    let until = Bound::Included(Revision::last(hash_revision));
    for version in view.history.range((Bound::Unbounded, until)) {
        if !view.is_retained(version) {
            continue;
        }
        let told = version.numbers();
        let numbers = [
            told.main,
            told.sub,
            told.create_revision,
            told.count,
            told.lease,
            version.key().len() as i64,
            version.value_length() as i64,
        ];
        for number in numbers {
            hash = crc32c::crc32c_append(hash, &number.to_le_bytes());
        }
        hash = crc32c::crc32c_append(hash, version.key());
        hash = crc32c::crc32c_append(hash, &version.value());
    }
    Ok(KvHash { hash, compact_revision: view.compact_revision, hash_revision })
}
