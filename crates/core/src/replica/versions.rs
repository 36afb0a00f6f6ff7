//! Versions of the rules by which `apply` computes: [`ApplyVersion`], a number in the replicated state.
//!
//! Members must compute the same from the same entries. So whatever decides what an entry does (a command's budget, the window
//! in which copies are recognised, how many leases end in one step) is looked up by a number that stands in the log itself, and
//! not by what a build happens to contain. Builds of two versions can then run side by side: the newer one computes by the old
//! rules until all can compute by the new ones.
//!
//! ```text
//!    greetings: n1 can 2, n2 can 2, n3 can 1                     version 1, by which all compute
//!    n3 is upgraded: n3 can 2        leader ──► entry "raise to 2, and n1 n2 n3 can"
//!    applied: every member computes by 2 from the next entry on; a build that can only 1 is refused
//! ```
//!
//! - The entry names the members that can. Where it is applied and somebody else is a member, it is void: a member that was
//!   added meanwhile is not known to be able.
//! - A member that meets a version it cannot apply stops before it applies anything ([`super::Action::Stop`]). Its durable state
//!   stays: a newer build goes on from there.
//! - It never falls: there is no way back but a snapshot that was saved before.
//!
//! Source: etcd's cluster version (`server/etcdserver/cluster_util.go`), CockroachDB's cluster versions; here inside the log,
//! so that the change has a place in history.

use super::{Action, Replica};
use crate::{Entry, EntryKind, Lsn, Membership, NodeId, Origin, Protocol, Role, StateMachine};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A version of the rules by which entries are applied. Counted up from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplyVersion(pub u32);

impl ApplyVersion {
    /// The version that every cluster begins with.
    pub const FIRST: ApplyVersion = ApplyVersion(1);
}

impl Default for ApplyVersion {
    fn default() -> ApplyVersion {
        ApplyVersion::FIRST
    }
}

impl fmt::Display for ApplyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ApplyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// First bytes of the payload of an entry that raises the version. Such an entry is a blank of nobody's: no client and
/// no forward can make one.
const RAISE: &[u8; 16] = b"raise-version-1\0";

/// The payload of an entry from which on `version` applies, if none but those in `able` are members.
fn raise(version: ApplyVersion, able: &BTreeSet<NodeId>) -> Bytes {
    let mut payload = BytesMut::from(&RAISE[..]);
    payload.put_u32_le(version.0);
    able.iter().for_each(|id| payload.put_u64_le(id.0));
    payload.freeze()
}

/// The version in such a payload, and the members that can apply it; `None` for every other payload.
fn raised(payload: &[u8]) -> Option<(ApplyVersion, BTreeSet<NodeId>)> {
    let mut rest = payload.strip_prefix(RAISE)?;
    let version = ApplyVersion(rest.try_get_u32_le().ok()?);
    let mut able = BTreeSet::new();
    while rest.has_remaining() {
        able.insert(NodeId(rest.try_get_u64_le().ok()?));
    }
    Some((version, able))
}

/// The version that this entry asks for, committed or not: a log that holds it may need a build that can apply it.
pub fn version_wanted_by(entry: &Entry) -> Option<ApplyVersion> {
    let is_raise = entry.kind == EntryKind::Blank && entry.origin == Origin::NOBODY;
    is_raise.then(|| raised(&entry.payload)).flatten().map(|(version, _)| version)
}

impl<P: Protocol, S: StateMachine> Replica<P, S> {
    /// The version by which this member applies entries now.
    pub fn version(&self) -> ApplyVersion {
        self.version
    }

    /// The host says which members are connected, and the highest version that each can apply. A leader raises the version to
    /// what all members can, itself included: voters and learners, and none of them missing.
    pub(super) fn on_able(&mut self, able: &BTreeMap<NodeId, ApplyVersion>, out: &mut Vec<Action<P, S>>) {
        if self.role != Role::Leader {
            return;
        }
        let me = self.me;
        let of = |id: NodeId| if id == me { Some(self.can) } else { able.get(&id).copied() };
        let members: BTreeSet<NodeId> = self.membership.everyone().collect();
        // A member that is missing counts as able to do nothing: it may come back as any build.
        let all_can = members.iter().map(|id| of(*id).unwrap_or_default()).min();
        let Some(version) = all_can.filter(|version| *version > self.version) else { return };
        let entry = self.stamp(Origin::NOBODY, EntryKind::Blank, raise(version, &members));
        self.propose(vec![entry], out);
    }

    /// A blank of nobody's is applied: perhaps it raises the version.
    ///
    /// Total and the same on all members: it follows from the entry and from the membership in force at its place.
    pub(super) fn on_raise(&mut self, payload: &[u8], out: &mut Vec<Action<P, S>>) {
        if let Some(version) = self.raised_here(payload) {
            self.version = version;
            self.machine.adopt(version);
            out.push(Action::Version(version));
        }
    }

    /// The version that takes effect with such an entry, if one does.
    /// Before a snapshot replaces the state: one that was computed by rules beyond this build ends it.
    pub(super) fn stops_at_snapshot(&mut self, lsn: Lsn, version: ApplyVersion, out: &mut Vec<Action<P, S>>) -> bool {
        if version > self.can {
            self.has_stopped = true;
            out.push(Action::Stop { why: cannot_apply(self.me, lsn, version, self.can) });
        }
        self.has_stopped
    }

    fn raised_here(&self, payload: &[u8]) -> Option<ApplyVersion> {
        let (version, able) = raised(payload)?;
        (version > self.version && is_all_of(&self.membership, &able)).then_some(version)
    }

    /// Before an entry is applied: one that raises the version beyond what this build can apply ends it.
    pub(super) fn stops_at(&mut self, entry: &Entry, out: &mut Vec<Action<P, S>>) -> bool {
        if self.has_stopped {
            return true;
        }
        let Entry { lsn, kind, origin, payload, .. } = entry;
        let is_raise = *kind == EntryKind::Blank && *origin == Origin::NOBODY;
        let raised = is_raise.then(|| self.raised_here(payload)).flatten();
        if let Some(version) = raised.filter(|version| *version > self.can) {
            self.has_stopped = true;
            out.push(Action::Stop { why: cannot_apply(self.me, *lsn, version, self.can) });
        }
        self.has_stopped
    }
}

fn is_all_of(membership: &Membership, able: &BTreeSet<NodeId>) -> bool {
    membership.everyone().all(|id| able.contains(&id))
}

/// Says that a build is too old for the log, and what to do.
fn cannot_apply(me: NodeId, lsn: Lsn, version: ApplyVersion, can: ApplyVersion) -> String {
    format!(
        "{me} cannot go on at {lsn}: from there on the cluster computes by apply version {version}, and this build can {can} at most. Nothing of it was applied; start {me} again with the build that the other members run"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stamp;

    fn entry(kind: EntryKind, origin: Origin, payload: Bytes) -> Entry {
        Entry { lsn: Lsn::new(1, 1), kind, origin, stamp: Stamp::NONE, payload }
    }

    #[test]
    fn only_a_blank_of_nobodys_asks_for_a_version() {
        // Goal: no client and no forward can raise it. Method: the same payload under each kind and origin.
        let payload = raise(ApplyVersion(2), &[NodeId(1), NodeId(3)].into());
        let somebody = Origin { node: NodeId(1), incarnation: 1, sequence: 0 };
        let wanted = |kind, origin| version_wanted_by(&entry(kind, origin, payload.clone()));
        assert_eq!(wanted(EntryKind::Blank, Origin::NOBODY), Some(ApplyVersion(2)));
        assert_eq!(wanted(EntryKind::Blank, somebody), None);
        for kind in [EntryKind::Command, EntryKind::Membership, EntryKind::Protocol] {
            assert_eq!(wanted(kind, Origin::NOBODY), None, "{kind:?}");
        }
    }

    #[test]
    fn a_payload_says_what_was_written_and_nothing_else_does() {
        // As every build from the first on writes it: it stands in logs.
        let stored = b"raise-version-1\0\x02\0\0\0\x01\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0";
        assert_eq!(raise(ApplyVersion(2), &[NodeId(1), NodeId(3)].into()), stored[..]);
        let able = BTreeSet::from([NodeId(1), NodeId(u64::MAX)]);
        let payload = raise(ApplyVersion(7), &able);
        assert_eq!(raised(&payload), Some((ApplyVersion(7), able)));
        for length in 0..payload.len() {
            let is_whole = length >= RAISE.len() + 4 && (length - RAISE.len() - 4).is_multiple_of(8);
            assert_eq!(raised(&payload[..length]).is_some(), is_whole, "{length} bytes of it");
        }
    }
}
