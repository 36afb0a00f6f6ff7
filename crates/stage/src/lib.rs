//! A cluster of protocol values in memory, for stories: messages on a table, timers fired by hand, disks as records.
//!
//! A disk is instant unless a story holds it or ends it; effects that rest on a record then wait behind it, as at a
//! host. Whatever a story does, the annals see to it that no invariant is ever violated. One stage serves the tests of
//! all protocols; the parts that are a protocol's own (the timers that make an election, the records that must be
//! durable before a message leaves) are in its [`Direction`], in its `tests/support`.
//!
//! Beside it, for property tests of what protocols say: [`mod@arbitrary`] values, and [`wire`]'s properties of every message.
//!
//! Deliberately absent: time, chance and faults of the network other than cuts; those are the world's.

pub mod arbitrary;
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

/// The protocol of a story, and its own part of the stage.
pub trait Direction: Sized {
    /// The protocol whose values play.
    type Protocol: Leads;

    /// The timer by which a leader speaks.
    const HEARTBEAT: Timer<Self>;
    /// The roles in which a node reigns: one node for each term.
    const REIGNS: &'static [Role] = &[Role::Leader];
    /// Whether a node hears what it says to itself only when the step is over, as at a host with a slow loop.
    const HEARS_ITSELF_LAST: bool = false;
    /// Whether everybody sees the links of a node that restarts drop and come back.
    const RESTARTS_ARE_SEEN: bool = false;
    /// Whether a cut that heals was a session that ended: both ends are told.
    const CUTS_END_SESSIONS: bool = false;

    /// Whether these options take away a safeguard, so that the annals may be contradicted.
    fn is_published(options: &Options<Self>) -> bool;

    /// Whether a slot that was applied twice holds one value.
    fn is_same(known: &Entry, entry: &Entry) -> bool {
        known == entry
    }

    /// Checks that the records on which this message rests are durable at `id`.
    fn on_said(_: &mut Theatre<Self>, _id: u64, _to: NodeId, _: &Message<Self>) {}
}

/// The messages of a direction's protocol.
pub type Message<D> = <<D as Direction>::Protocol as Protocol>::Message;
/// The timers of a direction's protocol.
pub type Timer<D> = <<D as Direction>::Protocol as Protocol>::Timer;
/// The options of a direction's protocol.
pub type Options<D> = <<D as Direction>::Protocol as Protocol>::Options;

/// Facts that must not change over all lives of all nodes.
#[derive(Default)]
pub struct Annals {
    /// Nodes that led each term.
    pub reigns: BTreeMap<u64, BTreeSet<u64>>,
    /// One history: the entry that was applied at each index, wherever.
    pub committed: BTreeMap<u64, Entry>,
    /// The vote of each (node, term), where the protocol has votes.
    pub votes: BTreeMap<(u64, u64), u64>,
}

/// Says of a message from one node to the other whether the network loses it.
pub type Loss<D> = fn(u64, u64, &Message<D>) -> bool;

/// The end of a node whose disk takes no more records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It dies at once: nothing is sent that it would have said after the last durable record.
    AtOnce,
    /// It runs on, with a disk that never answers.
    Lingering,
}

/// One node: its value, its disk, and its effects.
pub struct Actor<D: Direction> {
    /// The protocol as a value: the code under test.
    pub value: D::Protocol,
    /// The state on its disk.
    pub durable: Durable,
    /// Entries that it applied in this life.
    pub applied: Vec<Entry>,
    /// Answers to proposals and administrators.
    pub replies: Vec<(Ticket, Outcome)>,
    /// Reads that it confirmed, with the index at which each may be served.
    pub reads: Vec<(Ticket, u64)>,
    /// Its changes of role, term or leader.
    pub transitions: Vec<Transition>,
    /// The timers that are set.
    pub armed: BTreeSet<Timer<D>>,
    /// The snapshot that it fetches; `None` when it fetches none.
    pub fetching: Option<SnapshotReference>,
    /// The snapshot that its state machine was replaced by.
    pub restored: Option<SnapshotReference>,
    /// Every record that it emitted in this life, durable or not.
    pub records: Vec<Record>,
    /// Records that became durable in this life.
    pub written: usize,
    /// Whether its life ended with its disk.
    pub is_dead: bool,
    gate: Gate<D::Protocol>,
    unsynced: VecDeque<(u64, Record)>,
    own: VecDeque<Message<D>>,
    is_disk_held: bool,
    end: Option<(usize, End)>,
}

/// A cluster in memory, and the messages between its nodes.
pub struct Theatre<D: Direction> {
    /// The nodes that are alive, by id.
    pub actors: BTreeMap<u64, Actor<D>>,
    /// (from, to, what), in the order in which it was said.
    pub table: VecDeque<(u64, u64, Message<D>)>,
    /// Everything that ever reached the table.
    pub said: Vec<(u64, u64, Message<D>)>,
    /// The facts that must never be contradicted.
    pub annals: Annals,
    cut: BTreeSet<(u64, u64)>,
    loss: Option<Loss<D>>,
    /// Nodes that were killed and not restarted.
    pub graveyard: BTreeSet<u64>,
    /// The settings that every node is born with; `me` is set for each.
    pub cluster: Cluster,
    /// The protocol options of all nodes.
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
            loss: None,
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
            records: Vec::new(),
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
