//! A view as a snapshot, a part at a time.
//!
//! The file is never in memory: a first run counts its pages, a second one sends them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};
use hustings_api::authpb::UserAddOptions;
use hustings_api::{etcdserverpb as pb, mvccpb};
use hustings_bolt::{Layout, Writer};
use hustings_core::Membership;
use hustings_kv::{Permission, View};
use prost::Message;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::schema::{self, BucketDigest, Head, Lease, Place, Role, User};
use super::{DIGEST_BYTES, PART_BYTES};
use crate::context::version::CLUSTER_VERSION;
use crate::services::maintenance::alarm_type;

/// The contents of a snapshot to be written.
pub(crate) struct Contents {
    pub(crate) cluster_id: u64,
    pub(crate) member_id: u64,
    /// The term of the last entry in the view.
    pub(crate) term: u64,
    /// The index of the last entry in the view.
    pub(crate) index: u64,
    pub(crate) membership: Membership,
    pub(crate) view: View,
}

impl Contents {
    /// Counts the pages: the first run. `None` once nobody wants the file any more.
    pub(crate) fn measure(&self, is_wanted: &dyn Fn() -> bool) -> Option<Layout> {
        let mut writer = Writer::measure();
        Sheet::new(&mut writer, is_wanted).fill(self)?;
        Some(writer.finish())
    }

    /// Sends the file: the second run. `None` once nobody wants it any more: it has no end then.
    pub(crate) fn send(&self, layout: Layout, is_wanted: &dyn Fn() -> bool, sink: &mut dyn FnMut(Bytes)) -> Option<()> {
        let mut digest = Sha256::new();
        let mut part = BytesMut::with_capacity(PART_BYTES as usize);
        let mut collect = |page: Bytes| {
            digest.update(&page);
            part.put_slice(&page);
            // A page may be as long as the longest value; no part is longer than clients expect.
            while part.len() >= PART_BYTES as usize {
                sink(part.split_to(PART_BYTES as usize).freeze());
            }
        };
        let mut writer = Writer::begin(layout, &mut collect);
        Sheet::new(&mut writer, is_wanted).fill(self)?;
        writer.finish();
        part.put_slice(&digest.finalize());
        sink(part.freeze());
        Some(())
    }
}

/// The length of the whole file, bytes.
pub(crate) fn file_bytes(layout: Layout) -> u64 {
    layout.bytes() + DIGEST_BYTES
}

/// One run over all buckets.
struct Sheet<'w, 's> {
    writer: &'w mut Writer<'s>,
    digest: BucketDigest,
    members: BucketDigest,
    is_members: bool,
    is_wanted: &'w dyn Fn() -> bool,
}

impl<'w, 's> Sheet<'w, 's> {
    fn new(writer: &'w mut Writer<'s>, is_wanted: &'w dyn Fn() -> bool) -> Sheet<'w, 's> {
        Sheet { writer, digest: BucketDigest::new(), members: BucketDigest::new(), is_members: false, is_wanted }
    }

    fn bucket(&mut self, name: &'static str) {
        self.is_members = name == schema::MEMBERS;
        self.digest.bucket(name);
        self.writer.bucket(name.as_bytes());
    }

    fn entry(&mut self, key: &[u8], value: &[u8]) {
        self.digest.entry(key, value);
        if self.is_members {
            self.members.entry(key, value);
        }
        self.writer.entry(key, value);
    }

    fn fill(mut self, contents: &Contents) -> Option<()> {
        let view = &contents.view;
        let mut versions = 0;
        for bucket in schema::OF_ETCD {
            self.bucket(bucket);
            match bucket {
                schema::ALARM => self.alarms(view),
                schema::AUTH => self.auth(view),
                schema::AUTH_ROLES => self.roles(view),
                schema::AUTH_USERS => self.users(view),
                schema::CLUSTER => self.entry(schema::CLUSTER_VERSION, CLUSTER_VERSION.as_bytes()),
                schema::KEY => versions = self.keys(view)?,
                schema::LEASE => self.leases(view),
                schema::MEMBERS => self.members(&contents.membership),
                schema::META => self.meta(contents),
                // Ids are given out once: nobody asks which of them were removed.
                _ => {}
            }
        }
        self.ours(contents, versions);
        Some(())
    }

    fn alarms(&mut self, view: &View) {
        let key = |alarm: &hustings_kv::Alarm| {
            pb::AlarmMember { member_id: alarm.member, alarm: alarm_type(alarm.kind) as i32 }.encode_to_vec()
        };
        let keys: BTreeSet<Vec<u8>> = view.alarms().iter().map(key).collect();
        keys.iter().for_each(|key| self.entry(key, b""));
    }

    fn auth(&mut self, view: &View) {
        let users = view.users();
        self.entry(schema::AUTH_ENABLED, &[u8::from(users.is_enabled)]);
        self.entry(schema::AUTH_REVISION, &users.revision.to_be_bytes());
    }

    fn roles(&mut self, view: &View) {
        for (name, role) in &view.users().roles {
            let permission = |((key, range_end), kind): (&(Bytes, Bytes), &hustings_kv::PermissionKind)| Permission {
                kind: *kind as i32,
                key: key.clone(),
                range_end: range_end.clone(),
            };
            let permissions = role.permissions.iter().map(permission).collect();
            self.entry(name.as_bytes(), &Role { name: name.clone(), permissions }.encode_to_vec());
        }
    }

    fn users(&mut self, view: &View) {
        for (name, user) in &view.users().users {
            let record = User {
                name: name.clone(),
                password: user.hash.0.clone(),
                roles: user.roles.iter().cloned().collect(),
                options: Some(UserAddOptions { no_password: user.no_password }),
            };
            self.entry(name.as_bytes(), &record.encode_to_vec());
        }
    }

    /// The history, which may be gigabytes; answers how many versions and tombstones it has.
    fn keys(&mut self, view: &View) -> Option<u64> {
        let (mut versions, mut last) = (0, 1);
        let mut value = Vec::new();
        for (sub, kv) in view.retained() {
            if !(self.is_wanted)() {
                return None;
            }
            let place = Place { main: kv.mod_revision, sub, is_tombstone: kv.is_tombstone() };
            let record = mvccpb::KeyValue {
                key: kv.key.clone(),
                create_revision: kv.create_revision,
                // etcd's tombstones have a key and nothing else.
                mod_revision: if place.is_tombstone { 0 } else { kv.mod_revision },
                version: kv.version,
                value: kv.value.clone(),
                lease: kv.lease,
            };
            value.clear();
            record.encode(&mut value).expect("a vector has room");
            self.entry(&place.encode(), &value);
            versions += 1;
            last = kv.mod_revision;
        }
        // etcd's revision is that of its last entry, or of its compaction. Where ours was raised beyond both, a tombstone of no key
        // says so: etcd passes over the tombstone of a key that it does not have.
        if view.revision() > last.max(view.compact_revision()) {
            self.entry(&Place { main: view.revision(), sub: 0, is_tombstone: true }.encode(), b"");
        }
        Some(versions)
    }

    fn leases(&mut self, view: &View) {
        // In the order of their bytes: negative ids come last.
        for is_negative in [false, true] {
            for (id, ttl) in view.lease_terms().filter(|(id, _)| (*id < 0) == is_negative) {
                self.entry(&id.to_be_bytes(), &Lease { id, ttl }.encode_to_vec());
            }
        }
    }

    fn members(&mut self, membership: &Membership) {
        let mut members = BTreeMap::new();
        for (id, member) in &membership.members {
            let mut record = json!({
                "id": id.0, "peerURLs": member.peer_urls, "name": member.name, "clientURLs": member.client_urls,
            });
            if membership.is_learner(*id) {
                record["isLearner"] = true.into();
            }
            members.insert(format!("{:x}", id.0), record.to_string());
        }
        members.iter().for_each(|(id, member)| self.entry(id.as_bytes(), member.as_bytes()));
    }

    fn meta(&mut self, contents: &Contents) {
        let membership = &contents.membership;
        let (learners, voters): (Vec<u64>, Vec<u64>) =
            membership.everyone().map(|id| id.0).partition(|id| membership.is_learner(hustings_core::NodeId(*id)));
        let mut state = json!({ "voters": voters, "auto_leave": false });
        if !learners.is_empty() {
            state["learners"] = learners.into();
        }
        self.entry(schema::CONF_STATE, state.to_string().as_bytes());
        self.entry(schema::CONSISTENT_INDEX, &contents.index.to_be_bytes());
        let compacted = contents.view.compact_revision();
        if compacted >= 0 {
            // The rest of a compaction is not in the file: the compaction is finished.
            let place = Place { main: compacted, sub: 0, is_tombstone: false }.encode();
            self.entry(schema::FINISHED_COMPACTION, &place);
            self.entry(schema::SCHEDULED_COMPACTION, &place);
        }
        self.entry(schema::TERM, &contents.term.to_be_bytes());
    }

    fn ours(self, contents: &Contents, versions: u64) {
        let Contents { cluster_id, member_id, term, index, .. } = *contents;
        let Sheet { writer, digest, members, .. } = self;
        writer.bucket(schema::OURS.as_bytes());
        let (digest, members_digest) = (digest.finish(), members.finish());
        let head = Head { format: schema::FORMAT, cluster_id, member_id, term, index, digest, members_digest };
        writer.entry(schema::HEAD, &head.encode_to_vec());
        let mut number = 0_u32;
        contents.view.encode_rest(versions, &mut |piece| {
            writer.entry(&[schema::STORE, &number.to_be_bytes()].concat(), &piece);
            number += 1;
        });
    }
}
