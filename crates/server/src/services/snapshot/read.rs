//! The buckets of a snapshot as a store.
//!
//! The file is walked twice: once for the digest of its buckets, by which it is ours or etcd's, and once for its contents.

use bytes::{Bytes, BytesMut};
use hustings_api::{etcdserverpb as pb, mvccpb};
use hustings_bolt::{Database, Source};
use hustings_kv::{Alarm, AlarmKind, ForeignUsers, KeyValue, KvStore, Restoration};
use prost::Message;
use sha2::{Digest, Sha256};

use super::schema::{self, BucketDigest, Head, Lease, Place, Role, User};
use super::{Origin, SnapshotFileError};

/// Said before the digest that the key of tokens is made of.
const TOKEN_PURPOSE: &[u8] = b"hustings: tokens of a cluster restored from etcd\0";

/// The contents of a database.
pub(super) struct Loaded {
    pub(super) origin: Origin,
    pub(super) term: u64,
    pub(super) index: u64,
    pub(super) store: KvStore,
    pub(super) notes: Vec<String>,
}

/// An entry that is wrong.
fn refuse(bucket: &'static str, key: &[u8], what: impl ToString) -> SnapshotFileError {
    SnapshotFileError::Entry { bucket, key: format!("\"{}\"", key.escape_ascii()), what: what.to_string() }
}

fn decode<M: Message + Default>(bucket: &'static str, key: &[u8], value: Bytes) -> Result<M, SnapshotFileError> {
    M::decode(value).map_err(|error| refuse(bucket, key, error))
}

fn number(bucket: &'static str, key: &[u8], value: &[u8]) -> Result<u64, SnapshotFileError> {
    let bytes = value.try_into().map_err(|_| refuse(bucket, key, "it is no number of eight bytes"))?;
    Ok(u64::from_be_bytes(bytes))
}

/// Reads the whole state.
pub(super) fn load<S: Source>(database: &Database<S>) -> Result<Loaded, SnapshotFileError> {
    if !database.buckets().any(|bucket| bucket == schema::KEY) {
        return Err(SnapshotFileError::NotASnapshot);
    }
    let survey = Survey::take(database)?;
    let Some(head) = our_head(database)? else { return load_etcd(database, survey, Vec::new()) };
    if head.digest == survey.digest {
        return load_ours(database, &head);
    }
    if head.members_digest == survey.members_digest {
        // etcd begins with other members: nothing else can have changed it.
        return Err(SnapshotFileError::Digest);
    }
    let note = "an etcd went on from a snapshot of Hustings: what Hustings had written beside it no longer counts";
    load_etcd(database, survey, vec![note.to_owned()])
}

/// The results of the first walk through the file.
struct Survey {
    digest: Bytes,
    members_digest: Bytes,
    /// The last revision of the history; 1 where it is empty.
    revision: i64,
}

impl Survey {
    fn take<S: Source>(database: &Database<S>) -> Result<Survey, SnapshotFileError> {
        let (mut digest, mut members) = (BucketDigest::new(), BucketDigest::new());
        let mut revision = 1;
        for bucket in schema::OF_ETCD {
            digest.bucket(bucket);
            for entry in database.entries(bucket.as_bytes()) {
                let (key, value) = entry?;
                digest.entry(&key, &value);
                match bucket {
                    schema::MEMBERS => members.entry(&key, &value),
                    schema::KEY => revision = place(&key)?.main,
                    _ => {}
                }
            }
        }
        Ok(Survey { digest: digest.finish(), members_digest: members.finish(), revision })
    }
}

fn place(key: &[u8]) -> Result<Place, SnapshotFileError> {
    Place::decode(key).ok_or_else(|| refuse(schema::KEY, key, "it is no place in a history"))
}

fn our_head<S: Source>(database: &Database<S>) -> Result<Option<Head>, SnapshotFileError> {
    let Some((key, value)) = database.entries(schema::OURS.as_bytes()).next().transpose()? else { return Ok(None) };
    if key != schema::HEAD {
        return Err(refuse(schema::OURS, &key, "it stands where the head should"));
    }
    let head: Head = decode(schema::OURS, &key, value)?;
    if head.format != schema::FORMAT {
        return Err(SnapshotFileError::NewerFormat { found: head.format, known: schema::FORMAT });
    }
    Ok(Some(head))
}

fn load_ours<S: Source>(database: &Database<S>, head: &Head) -> Result<Loaded, SnapshotFileError> {
    let mut rest = BytesMut::new();
    for entry in database.entries(schema::OURS.as_bytes()).skip(1) {
        let (key, value) = entry?;
        if !key.starts_with(schema::STORE) {
            return Err(refuse(schema::OURS, &key, "it is no piece of a store"));
        }
        rest.extend_from_slice(&value);
    }
    let mut restoration = Restoration::resume(&mut rest.freeze())?;
    load_history(database, &mut restoration)?;
    let (store, _) = restoration.finish()?;
    let origin = Origin::Hustings { cluster_id: head.cluster_id, member_id: head.member_id };
    Ok(Loaded { origin, term: head.term, index: head.index, store, notes: Vec::new() })
}

fn load_history<S: Source>(database: &Database<S>, restoration: &mut Restoration) -> Result<(), SnapshotFileError> {
    for entry in database.entries(schema::KEY.as_bytes()) {
        let (place_key, value) = entry?;
        let Place { main, sub, is_tombstone } = place(&place_key)?;
        let record: mvccpb::KeyValue = decode(schema::KEY, &place_key, value)?;
        let mvccpb::KeyValue { key, value, create_revision, mod_revision, version, lease } = record;
        let kv = match is_tombstone {
            // It only says how far the revision was.
            true if key.is_empty() => continue,
            true => KeyValue { key, mod_revision: main, ..KeyValue::default() },
            false if mod_revision != main || version < 1 => {
                return Err(refuse(schema::KEY, &place_key, "its value is of another revision"));
            }
            false => KeyValue { key, value, create_revision, mod_revision, version, lease },
        };
        restoration.version(sub, kv)?;
    }
    Ok(())
}

fn load_etcd<S: Source>(
    database: &Database<S>,
    survey: Survey,
    mut notes: Vec<String>,
) -> Result<Loaded, SnapshotFileError> {
    let meta = Meta::read(database)?;
    let revision = survey.revision.max(meta.compact_revision);
    let mut restoration = Restoration::of_foreign(revision, meta.compact_revision)?;
    for entry in database.entries(schema::LEASE.as_bytes()) {
        let (key, value) = entry?;
        let lease: Lease = decode(schema::LEASE, &key, value)?;
        restoration.lease(lease.id, lease.ttl).map_err(|error| refuse(schema::LEASE, &key, error))?;
    }
    load_users(database, &survey, &mut restoration)?;
    for entry in database.entries(schema::ALARM.as_bytes()) {
        let (key, _) = entry?;
        let alarm: pb::AlarmMember = decode(schema::ALARM, &key, key.clone())?;
        let kind = AlarmKind::try_from(alarm.alarm).map_err(|error| refuse(schema::ALARM, &key, error))?;
        if kind != AlarmKind::None {
            notes.push(format!("the alarm {kind:?} stands: see to it, then `etcdctl alarm disarm`"));
            restoration.alarm(Alarm { member: alarm.member_id, kind })?;
        }
    }
    load_history(database, &mut restoration)?;
    let (store, orphans) = restoration.finish()?;
    if orphans > 0 {
        notes.push(format!("{orphans} keys named leases that do not exist: they have none now"));
    }
    let origin = Origin::Etcd { version: meta.cluster_version };
    Ok(Loaded { origin, term: meta.term, index: meta.index, store, notes })
}

/// The contents of the buckets `meta` and `cluster`.
#[derive(Default)]
struct Meta {
    term: u64,
    index: u64,
    compact_revision: i64,
    cluster_version: String,
}

impl Meta {
    fn read<S: Source>(database: &Database<S>) -> Result<Meta, SnapshotFileError> {
        let mut meta = Meta { compact_revision: -1, ..Meta::default() };
        for entry in database.entries(schema::META.as_bytes()) {
            let (key, value) = entry?;
            match &key[..] {
                schema::TERM => meta.term = number(schema::META, &key, &value)?,
                schema::CONSISTENT_INDEX => meta.index = number(schema::META, &key, &value)?,
                // One that was under way when the snapshot was made is taken to its end.
                schema::FINISHED_COMPACTION | schema::SCHEDULED_COMPACTION => {
                    let place = Place::decode(&value)
                        .ok_or_else(|| refuse(schema::META, &key, "it is no place in a history"))?;
                    meta.compact_revision = meta.compact_revision.max(place.main);
                }
                schema::STORAGE_VERSION => {
                    let version = String::from_utf8_lossy(&value).into_owned();
                    if !["3.5.", "3.6.", "3.7."].iter().any(|known| version.starts_with(known)) {
                        return Err(SnapshotFileError::StorageVersion(version));
                    }
                }
                _ => {}
            }
        }
        for entry in database.entries(schema::CLUSTER.as_bytes()) {
            let (key, value) = entry?;
            if key == schema::CLUSTER_VERSION {
                meta.cluster_version = String::from_utf8_lossy(&value).into_owned();
            }
        }
        Ok(meta)
    }
}

fn load_users<S: Source>(
    database: &Database<S>,
    survey: &Survey,
    restoration: &mut Restoration,
) -> Result<(), SnapshotFileError> {
    let mut users = ForeignUsers { revision: 1, ..ForeignUsers::default() };
    for entry in database.entries(schema::AUTH.as_bytes()) {
        let (key, value) = entry?;
        match &key[..] {
            schema::AUTH_ENABLED => users.is_enabled = value == [1][..],
            schema::AUTH_REVISION => users.revision = number(schema::AUTH, &key, &value)?.max(1),
            _ => {}
        }
    }
    if users.is_enabled {
        // The same on all members, which restore by themselves, and known to nobody who has not the hashes of the passwords.
        let key = Sha256::new().chain_update(TOKEN_PURPOSE).chain_update(&survey.digest).finalize();
        users.token_key = Bytes::copy_from_slice(&key);
    }
    let has_any = |bucket: &str| database.entries(bucket.as_bytes()).next().is_some();
    if users == (ForeignUsers { revision: 1, ..ForeignUsers::default() })
        && !has_any(schema::AUTH_USERS)
        && !has_any(schema::AUTH_ROLES)
    {
        // A store that never had users says nothing of them.
        return Ok(());
    }
    restoration.users(users)?;
    for entry in database.entries(schema::AUTH_USERS.as_bytes()) {
        let (key, value) = entry?;
        let User { name, password, roles, .. } = decode(schema::AUTH_USERS, &key, value)?;
        if name.as_bytes() != key {
            return Err(refuse(schema::AUTH_USERS, &key, "it is another user's"));
        }
        restoration.user(name, password, roles)?;
    }
    for entry in database.entries(schema::AUTH_ROLES.as_bytes()) {
        let (key, value) = entry?;
        let Role { name, mut permissions } = decode(schema::AUTH_ROLES, &key, value)?;
        if name.as_bytes() != key {
            return Err(refuse(schema::AUTH_ROLES, &key, "it is another role's"));
        }
        // At etcd one that begins with the empty key permits nothing; here it would permit all keys up to its end.
        permissions.retain(|permission| !permission.key.is_empty());
        restoration.role(name, permissions)?;
    }
    Ok(())
}
