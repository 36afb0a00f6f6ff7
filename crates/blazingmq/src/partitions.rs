//! The leader's duties: to judge the health of nodes, and to name the primaries of partitions. §3.1, §3.3 and §3.5 of
//! `docs/protocols/rules`.
//!
//! ```text
//!    a term starts ─┐                                               applied, on every node alike
//!    a link drops  ─┤   a primary is not available,                 ┌───────────────────────────────────┐
//!    a disk stalls ─┼─► or a partition has none ──► the leader ─────┤ named again: the lease stays      │
//!    a node is     ─┘                               names them all  │ another node: the lease grows     │
//!    silent                                                         └───────────────────────────────────┘
//! ```
//!
//! Primaries are named by records of the ledger, so a lease id is as safe as any committed write: (partition, lease)
//! names one node for ever (P1, C5) and leases only grow (P2). They live in the replicated membership, and so in every
//! snapshot (`docs/adr/0007`). An application's use of its partitions, and how it heals their storage (PT-2 to
//! PT-4), is its own.
//!
//! `[OURS]` A node does not end itself when it is replaced (rule 6, PT-6): it learns it from the ledger like everybody
//! else, and until then its old lease is what others refuse. `least-assigned` does what its name says (published, it
//! falls back to the other).

use crate::blazingmq::{BlazingMq, RoleState};
use crate::healing::Stage;
use crate::laboratory::Defect;
use crate::peer::Pace;
use bytes::{Bytes, BytesMut};
use hustings_core::leading::{Adopting, InOrder, Replicating};
use hustings_core::wire::encode_shape;
use hustings_core::{Effects, Entry, EntryKind, Lsn, Membership, NodeId, Origin, Stamp, Wire, WireError};
use prost::Message as _;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

/// The most partitions that a leader assigns.
pub const PARTITIONS_MAX: u32 = 4096;

/// The choice of a primary for a partition that needs one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Placement {
    /// The leader takes it (leaderIsMasterAll, the only algorithm that is in use).
    #[default]
    Leader,
    /// The available voter with the fewest, the smallest id among equals (leastAssigned).
    LeastAssigned,
}

impl FromStr for Placement {
    type Err = ();

    fn from_str(text: &str) -> Result<Placement, ()> {
        match text {
            "leader" => Ok(Placement::Leader),
            "least-assigned" => Ok(Placement::LeastAssigned),
            _ => Err(()),
        }
    }
}

/// A node's health in the eyes of another (§3.5). A node that ends is seen by its links, so there is no STOPPING.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NodeHealth {
    /// Connected, as far as is known, and nothing was heard of it in this reign.
    Unknown,
    /// It fetches a snapshot, and does not know its duties yet.
    Starting,
    /// It is connected and takes part.
    Available,
    /// Its link is down, it was silent for an election timeout, or its disk stalls.
    Unavailable,
}

/// A partition as this node sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Partition {
    /// The one node that may write. `None` for an orphan: its primary is not available, or is this node, and no leader
    /// confirms it (§3.1, rule 5).
    pub primary: Option<NodeId>,
    /// The lease of the last primary that was named.
    pub lease: u64,
}

/// The record that names the primaries: all of them each time (§3.1, rule 3).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Advisory {
    /// The primary of each partition, by number.
    pub primaries: BTreeMap<u32, NodeId>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AdvisoryShape {
    #[prost(btree_map = "uint32, uint64", tag = "1")]
    primaries: BTreeMap<u32, u64>,
}

impl Wire for Advisory {
    fn encode(&self, out: &mut BytesMut) {
        let primaries = self.primaries.iter().map(|(partition, node)| (*partition, node.0)).collect();
        encode_shape(&AdvisoryShape { primaries }, out);
    }

    fn decode(bytes: Bytes) -> Result<Advisory, WireError> {
        let AdvisoryShape { primaries } = AdvisoryShape::decode(bytes)?;
        match primaries.keys().find(|partition| **partition >= PARTITIONS_MAX) {
            Some(partition) => Err(WireError(format!("{partition} cannot be a partition's number"))),
            None => Ok(Advisory { primaries: primaries.into_iter().map(|(at, node)| (at, NodeId(node))).collect() }),
        }
    }
}

impl BlazingMq {
    // --- Node health. --------------------------------------------------------------------------------------------

    /// The health of `id` in the eyes of this node: a leader judges everybody, others only by the links and statuses that they see.
    pub fn health_of(&self, id: NodeId) -> NodeHealth {
        if id == self.node.me {
            return if self.node.is_disk_stalled { NodeHealth::Unavailable } else { NodeHealth::Available };
        }
        if self.node.links_down.contains(&id) || self.unavailable.contains(&id) {
            return NodeHealth::Unavailable;
        }
        match self.peer(id) {
            None if self.active_leader() == Some(id) => NodeHealth::Available,
            None => NodeHealth::Unknown,
            Some(peer) if peer.is_silent() => NodeHealth::Unavailable,
            Some(peer) => match peer.pace {
                Pace::Absent => NodeHealth::Unknown,
                Pace::Fetch { .. } => NodeHealth::Starting,
                Pace::Probe | Pace::Flow(_) => NodeHealth::Available,
            },
        }
    }

    /// Whether this node leads, and finds every voter and every partition's primary available (§3.5, the monitor).
    pub fn is_healthy(&self) -> bool {
        let is_available = |id: NodeId| self.health_of(id) == NodeHealth::Available;
        self.is_active_leader()
            && self.node.membership.all_voters().all(is_available)
            && self.partitions().values().all(|partition| partition.primary.is_some())
    }

    fn is_active_leader(&self) -> bool {
        matches!(&self.role_state, RoleState::Leader(leader) if leader.stage == Stage::Active)
    }

    // --- Primaries, as everybody sees them. ----------------------------------------------------------------------

    /// The partitions, with orphans as such (§3.1, rule 5): every node sees at once that a primary is gone.
    pub fn partitions(&self) -> BTreeMap<u32, Partition> {
        let is_lost = |id: NodeId| match id == self.node.me {
            true if self.is_leading() => !self.is_active_leader(),
            true => self.active_leader().is_none(),
            false => self.health_of(id) == NodeHealth::Unavailable,
        };
        let assignments = self.node.membership.assignments.iter();
        assignments
            .map(|(at, assignment)| {
                let primary = Some(assignment.primary).filter(|id| !is_lost(*id));
                (*at, Partition { primary, lease: assignment.lease })
            })
            .collect()
    }

    /// A committed advisory takes effect; one that names a stranger has none, on every node alike (§2.7, rule 7).
    pub(crate) fn apply_primaries(&mut self, entry: &Entry, out: &mut Effects<BlazingMq>) {
        let Ok(Advisory { primaries }) = Advisory::decode(entry.payload.clone()) else { return };
        if !is_valid(&self.node.membership, &primaries) {
            return;
        }
        let mut next = self.node.membership.with_primaries(&primaries);
        if self.has(Defect::KeepsLeases) {
            for (at, assignment) in &mut next.assignments {
                assignment.lease = self.node.membership.assignments.get(at).map_or(1, |before| before.lease);
            }
        }
        if next != *self.node.membership {
            self.adopt(Arc::new(next), entry.lsn.index, out);
        }
    }

    // --- Primaries, as the leader names them. --------------------------------------------------------------------

    /// The record that starts a term (§2.8, rule 5): it names the primaries, where there are partitions.
    pub(crate) fn start_of_term(&self, lsn: Lsn) -> Entry {
        match self.wanted_primaries(&self.named_primaries()) {
            primaries if primaries.is_empty() => Entry::blank(lsn),
            primaries => advisory(lsn, primaries),
        }
    }

    /// Names the primaries anew, if one of them is not available or a partition has none (§3.1, rule 3).
    pub(crate) fn tend_partitions(&mut self, out: &mut Effects<BlazingMq>) {
        let RoleState::Leader(leader) = &self.role_state else { return };
        let has_none = self.options.partitions == 0 && self.node.membership.assignments.is_empty();
        if has_none
            || !self.is_active_leader()
            || leader.office.transfer.is_some()
            || leader.pending_primaries > self.node.commit
        {
            return;
        }
        let known = self.named_primaries();
        let wanted = self.wanted_primaries(&known);
        if wanted != known {
            let lsn = self.node.next_lsn();
            self.append_own(advisory(lsn, wanted), out);
            self.spread(out);
        }
    }

    /// The primaries by the end of the ledger: what is not committed yet may be soon.
    fn named_primaries(&self) -> BTreeMap<u32, NodeId> {
        let assignments = self.node.membership.assignments.iter();
        let mut named: BTreeMap<u32, NodeId> = assignments.map(|(at, assignment)| (*at, assignment.primary)).collect();
        for index in self.node.commit + 1..=self.node.log.last().index {
            let Some(entry) = self.node.log.entry(index).filter(|entry| entry.kind == EntryKind::Protocol) else {
                continue;
            };
            if let Ok(Advisory { primaries }) = Advisory::decode(entry.payload.clone())
                && is_valid(&self.node.membership, &primaries)
            {
                named.extend(primaries);
            }
        }
        named
    }

    /// §3.1, rules 1 and 2. `[OURS]` A primary of which nothing was heard yet keeps its partitions: one that registers
    /// a moment after the others has lost nothing. It is found silent by the next quorum check.
    fn wanted_primaries(&self, known: &BTreeMap<u32, NodeId>) -> BTreeMap<u32, NodeId> {
        let voters: Vec<NodeId> = self.node.membership.all_voters().collect();
        let may_keep = |id: &NodeId| {
            voters.contains(id) && matches!(self.health_of(*id), NodeHealth::Available | NodeHealth::Unknown)
        };
        let mut wanted: BTreeMap<u32, NodeId> =
            known.iter().filter(|(_, primary)| may_keep(primary)).map(|(at, primary)| (*at, *primary)).collect();
        let available = voters.iter().filter(|id| self.health_of(**id) == NodeHealth::Available);
        let mut loads: BTreeMap<NodeId, usize> = available.map(|id| (*id, 0)).collect();
        for primary in wanted.values() {
            loads.entry(*primary).and_modify(|load| *load += 1);
        }
        // Before everybody was heard or found silent, a first placement would go to the quickest node.
        let is_early = voters.iter().any(|id| self.health_of(*id) == NodeHealth::Unknown);
        let all = (0..self.options.partitions).chain(known.keys().copied());
        for at in all {
            let waits = is_early && self.options.placement == Placement::LeastAssigned && !known.contains_key(&at);
            if waits || wanted.contains_key(&at) {
                continue;
            }
            let primary = match self.options.placement {
                Placement::Leader => Some(self.node.me).filter(|me| voters.contains(me)),
                Placement::LeastAssigned => loads.iter().min_by_key(|(id, load)| (**load, **id)).map(|(id, _)| *id),
            };
            if let Some(primary) = primary {
                loads.entry(primary).and_modify(|load| *load += 1);
                wanted.insert(at, primary);
            }
        }
        // Nobody can be named instead: it stays, as an orphan.
        for (at, primary) in known {
            wanted.entry(*at).or_insert(*primary);
        }
        wanted
    }
}

fn is_valid(membership: &Membership, primaries: &BTreeMap<u32, NodeId>) -> bool {
    primaries.values().all(|id| id.0 > 0 && id.0 < membership.next_id)
}

fn advisory(lsn: Lsn, primaries: BTreeMap<u32, NodeId>) -> Entry {
    let payload = Advisory { primaries }.to_bytes();
    Entry { lsn, kind: EntryKind::Protocol, origin: Origin::NOBODY, stamp: Stamp::NONE, payload }
}
