//! A cluster of protocol values in memory, for stories: messages on a table, alarms rung by hand, disks as records.
//!
//! A disk is instant unless a story holds it or ends it; what rests on a record then waits behind it, as at a host. Whatever a
//! story does, the annals see to it that nothing that must hold for ever is contradicted. One stage serves the tests of all
//! protocols; what is a protocol's own (which alarms make an election, what must be durable before a message leaves) its
//! [`Direction`] says, in its `tests/support`.
//!
//! Deliberately absent: time, chance and faults of the network other than cuts; those are the world's.

pub mod crashes;
pub mod golden;
pub mod wire;

mod host;
mod questions;
mod verbs;

use hustings_core::leading::Leads;
use hustings_core::replica::gate::Gate;
use hustings_core::{
    Change, Cluster, Durable, Effects, Entry, MembershipChange, NodeId, Outcome, Protocol, Record, Role,
    SnapshotReference, Ticket, Transition,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a story's protocol is, and what only it can say of a stage.
pub trait Direction: Sized {
    /// Whose values play.
    type Protocol: Leads;

    /// The alarm by which a leader speaks.
    const HEARTBEAT: Timer<Self>;
    /// The roles in which a node reigns: one node for each term.
    const REIGNS: &'static [Role] = &[Role::Leader];
    /// Whether a node hears what it says to itself only when the step is over, as at a host with a slow loop.
    const HEARS_ITSELF_LAST: bool = false;
    /// Whether everybody sees the links of a node that restarts drop and come back.
    const RESTARTS_ARE_SEEN: bool = false;
    /// Whether a cut that heals was a session that ended: both ends are told.
    const CUTS_END_SESSIONS: bool = false;

    /// Whether these options take away what keeps the annals from being contradicted.
    fn is_published(options: &Options<Self>) -> bool;

    /// Whether a slot that was applied twice holds one value.
    fn is_same(known: &Entry, entry: &Entry) -> bool {
        known == entry
    }

    /// What must be durable at `id` now that this leaves.
    fn on_said(_: &mut Theatre<Self>, _id: u64, _to: NodeId, _: &Message<Self>) {}
}

/// The messages of a direction's protocol.
pub type Message<D> = <<D as Direction>::Protocol as Protocol>::Message;
/// Its alarms.
pub type Timer<D> = <<D as Direction>::Protocol as Protocol>::Timer;
/// Its options.
pub type Options<D> = <<D as Direction>::Protocol as Protocol>::Options;

/// What must hold over all lives of all nodes.
#[derive(Default)]
pub struct Annals {
    /// Who led each term.
    pub reigns: BTreeMap<u64, BTreeSet<u64>>,
    /// One history: what was applied at each index, wherever.
    pub committed: BTreeMap<u64, Entry>,
    /// Whom each node voted for in each term, where the protocol has votes.
    pub votes: BTreeMap<(u64, u64), u64>,
}

/// What happens to a node whose disk takes no more records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Nothing that it would have said after the last durable record is ever said.
    AtOnce,
    /// It runs on, with a disk that never answers.
    Lingering,
}

/// One node: its value, its disk, and what it said to its host.
pub struct Actor<D: Direction> {
    /// The value.
    pub value: D::Protocol,
    /// What its disk holds.
    pub durable: Durable,
    /// What it applied in this life.
    pub applied: Vec<Entry>,
    /// What it answered.
    pub replies: Vec<(Ticket, Outcome)>,
    /// Which reads it confirmed, and from where on.
    pub reads: Vec<(Ticket, u64)>,
    /// What it became.
    pub transitions: Vec<Transition>,
    /// The alarms that are set.
    pub armed: BTreeSet<Timer<D>>,
    /// The snapshot that it fetches.
    pub fetching: Option<SnapshotReference>,
    /// The snapshot that its state machine was replaced by.
    pub restored: Option<SnapshotReference>,
    /// Records that became durable in this life.
    pub written: usize,
    /// Whether its disk ended its life.
    pub is_dead: bool,
    gate: Gate<D::Protocol>,
    unsynced: VecDeque<(u64, Record)>,
    own: VecDeque<Message<D>>,
    is_disk_held: bool,
    end: Option<(usize, End)>,
}

/// The stage.
pub struct Theatre<D: Direction> {
    /// The nodes that live.
    pub actors: BTreeMap<u64, Actor<D>>,
    /// (from, to, what), in the order in which it was said.
    pub table: VecDeque<(u64, u64, Message<D>)>,
    /// Everything that ever reached the table.
    pub said: Vec<(u64, u64, Message<D>)>,
    /// What must never be contradicted.
    pub annals: Annals,
    cut: BTreeSet<(u64, u64)>,
    /// Nodes that were killed.
    pub graveyard: BTreeSet<u64>,
    /// What a node is told at birth.
    pub cluster: Cluster,
    /// The switches of all.
    pub options: Options<D>,
    sequence: u64,
}

impl<D: Direction> Theatre<D> {
    // --- Who is there. -------------------------------------------------------------------------------------------

    /// This many voters, n1 to nN, as they are by default.
    pub fn cast(voters: u64) -> Theatre<D> {
        Theatre::new(Cluster::of(voters, 1), Options::<D>::default())
    }

    /// All members of this cluster, with these options.
    pub fn new(cluster: Cluster, options: Options<D>) -> Theatre<D> {
        let ids: Vec<u64> = cluster.membership.everyone().map(|id| id.0).collect();
        let mut theatre = Theatre {
            actors: BTreeMap::new(),
            table: VecDeque::new(),
            said: Vec::new(),
            annals: Annals::default(),
            cut: BTreeSet::new(),
            graveyard: BTreeSet::new(),
            cluster,
            options,
            sequence: 0,
        };
        for id in ids {
            theatre.enter(id, Durable::default());
        }
        theatre
    }

    /// A node is born, or reborn, with what its disk holds.
    pub fn enter(&mut self, id: u64, durable: Durable) {
        let cluster = Cluster { me: NodeId(id), ..self.cluster.clone() };
        self.enter_as(cluster, durable);
    }

    /// The same, told something else than the others.
    pub fn enter_as(&mut self, cluster: Cluster, durable: Durable) {
        let id = cluster.me.0;
        let mut out = Effects::new();
        let value = <D::Protocol as Protocol>::start(cluster, self.options.clone(), durable.clone(), &mut out);
        let actor = Actor {
            value,
            durable,
            applied: Vec::new(),
            replies: Vec::new(),
            reads: Vec::new(),
            transitions: Vec::new(),
            armed: BTreeSet::new(),
            fetching: None,
            restored: None,
            written: 0,
            is_dead: false,
            gate: Gate::new(),
            unsynced: VecDeque::new(),
            own: VecDeque::new(),
            is_disk_held: false,
            end: None,
        };
        self.actors.insert(id, actor);
        self.carry_out(id, out);
        self.hear_own(id);
    }

    /// A node dies at once and is reborn from its disk; what was on its way to it is lost.
    pub fn restart(&mut self, id: u64) {
        let durable = self.actors[&id].durable.clone();
        if !D::RESTARTS_ARE_SEEN {
            self.table.retain(|(_, to, _)| *to != id);
            return self.enter(id, durable);
        }
        self.kill(id);
        self.enter(id, durable);
        for other in self.ids().into_iter().filter(|other| *other != id) {
            if !self.cut.contains(&(id, other)) && !self.cut.contains(&(other, id)) {
                self.join(id, other);
            }
        }
    }

    /// The same, so fast or behind such cuts that nobody sees a link drop.
    pub fn restart_unseen(&mut self, id: u64) {
        let durable = self.actors[&id].durable.clone();
        self.table.retain(|(from, to, _)| *from != id && *to != id);
        self.enter(id, durable);
    }

    /// A process dies and everybody hears of it, as the kernel tells them.
    pub fn kill(&mut self, id: u64) {
        self.actors.remove(&id);
        self.graveyard.insert(id);
        self.table.retain(|(from, to, _)| *from != id && *to != id);
        for other in self.ids() {
            self.link_down(other, id);
        }
    }
}

/// A change of one step.
pub fn one(step: Change) -> MembershipChange {
    MembershipChange::of([step])
}
