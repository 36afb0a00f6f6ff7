//! The buckets of a snapshot and their contents.
//!
//! Source: etcd 3.5, `server/mvcc/buckets/bucket.go` and `revision.go`, `lease/leasepb`, `auth`, `etcdserver/cindex` and
//! `api/membership`. A place in history is a key of 17 bytes, `main` `_` `sub` with big-endian numbers; a tombstone's has a
//! `t` behind it.

use bytes::Bytes;
use hustings_kv::Permission;
use sha2::{Digest, Sha256};

pub(super) const ALARM: &str = "alarm";
pub(super) const AUTH: &str = "auth";
pub(super) const AUTH_ROLES: &str = "authRoles";
pub(super) const AUTH_USERS: &str = "authUsers";
pub(super) const CLUSTER: &str = "cluster";
pub(super) const KEY: &str = "key";
pub(super) const LEASE: &str = "lease";
pub(super) const MEMBERS: &str = "members";
pub(super) const MEMBERS_REMOVED: &str = "members_removed";
pub(super) const META: &str = "meta";

/// etcd's buckets, in their order: that in which they are written, and in which their digest is taken.
pub(super) const OF_ETCD: [&str; 10] =
    [ALARM, AUTH, AUTH_ROLES, AUTH_USERS, CLUSTER, KEY, LEASE, MEMBERS, MEMBERS_REMOVED, META];

/// Our own bucket, and what is in it: a [`Head`], and the store without its history in pieces.
pub(super) const OURS: &str = "hustings";
pub(super) const HEAD: &[u8] = b"head";
pub(super) const STORE: &[u8] = b"store/";

/// The format of our bucket; the first one was no database.
pub(super) const FORMAT: u32 = 2;

pub(super) const AUTH_ENABLED: &[u8] = b"authEnabled";
pub(super) const AUTH_REVISION: &[u8] = b"authRevision";
pub(super) const CLUSTER_VERSION: &[u8] = b"clusterVersion";
pub(super) const CONF_STATE: &[u8] = b"confState";
pub(super) const CONSISTENT_INDEX: &[u8] = b"consistent_index";
pub(super) const FINISHED_COMPACTION: &[u8] = b"finishedCompactRev";
pub(super) const SCHEDULED_COMPACTION: &[u8] = b"scheduledCompactRev";
pub(super) const STORAGE_VERSION: &[u8] = b"storageVersion";
pub(super) const TERM: &[u8] = b"term";

/// A lease, as etcd's `leasepb.Lease`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Lease {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
    #[prost(int64, tag = "2")]
    pub(super) ttl: i64,
}

/// A user, as etcd's `authpb.User`.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub(super) struct User {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) password: Bytes,
    #[prost(string, repeated, tag = "3")]
    pub(super) roles: Vec<String>,
    #[prost(message, optional, tag = "4")]
    pub(super) options: Option<hustings_api::authpb::UserAddOptions>,
}

/// etcd's `authpb.Role`; its permissions are on the wire as the store's own.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Role {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) permissions: Vec<Permission>,
}

/// The facts about the file in our own bucket.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Head {
    #[prost(uint32, tag = "1")]
    pub(super) format: u32,
    #[prost(uint64, tag = "2")]
    pub(super) cluster_id: u64,
    #[prost(uint64, tag = "3")]
    pub(super) member_id: u64,
    #[prost(uint64, tag = "4")]
    pub(super) term: u64,
    #[prost(uint64, tag = "5")]
    pub(super) index: u64,
    /// Digest of all buckets of etcd's.
    #[prost(bytes = "bytes", tag = "6")]
    pub(super) digest: Bytes,
    /// Digest of the bucket of the members alone, which no etcd leaves as it is.
    #[prost(bytes = "bytes", tag = "7")]
    pub(super) members_digest: Bytes,
}

/// A place in history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) main: i64,
    pub(super) sub: i64,
    pub(super) is_tombstone: bool,
}

impl Place {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(18);
        key.extend_from_slice(&self.main.to_be_bytes());
        key.push(b'_');
        key.extend_from_slice(&self.sub.to_be_bytes());
        if self.is_tombstone {
            key.push(b't');
        }
        key
    }

    /// `None` when the key is no place.
    pub(super) fn decode(key: &[u8]) -> Option<Place> {
        let (main, rest) = key.split_first_chunk()?;
        let (sub, mark) = rest.strip_prefix(b"_")?.split_first_chunk()?;
        let is_tombstone = match mark {
            b"" => false,
            b"t" => true,
            _ => return None,
        };
        let place = Place { main: i64::from_be_bytes(*main), sub: i64::from_be_bytes(*sub), is_tombstone };
        (place.main >= 0 && place.sub >= 0).then_some(place)
    }
}

/// A digest of buckets, in the order of [`OF_ETCD`].
#[derive(Clone)]
pub(super) struct BucketDigest(Sha256);

impl BucketDigest {
    pub(super) fn new() -> BucketDigest {
        BucketDigest(Sha256::new())
    }

    pub(super) fn bucket(&mut self, name: &str) {
        self.piece(name.as_bytes());
    }

    pub(super) fn entry(&mut self, key: &[u8], value: &[u8]) {
        self.piece(key);
        self.piece(value);
    }

    fn piece(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> Bytes {
        Bytes::copy_from_slice(&self.0.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_etcds() {
        let place = Place { main: 5, sub: 0, is_tombstone: true };
        assert_eq!(place.encode(), b"\0\0\0\0\0\0\0\x05_\0\0\0\0\0\0\0\0t");
        assert_eq!(Place::decode(&place.encode()), Some(place));
        for key in
            [&b""[..], &[0; 17], b"\0\0\0\0\0\0\0\x05_\0\0\0\0\0\0\0\0x", b"\xff\0\0\0\0\0\0\x05_\0\0\0\0\0\0\0\0"]
        {
            assert_eq!(Place::decode(key), None, "{key:?}");
        }
    }
}
