//! Events in a story.

use crate::{Direction, End, Loss, Message, Theatre, Timer};
use bytes::Bytes;
use hustings_core::leading::Leads as _;
use hustings_core::protocol::LinkState;
use hustings_core::{
    Admin, Effects, EntryKind, Input, Lsn, MembershipChange, NodeId, Origin, Proposal, Protocol as _,
    SnapshotReference, Stamp, Ticket, Wire,
};
use std::collections::BTreeSet;

impl<D: Direction> Theatre<D> {
    /// Steps a node, unless its disk ended its life.
    pub fn input(&mut self, id: u64, input: Input<D::Protocol>) {
        self.step(id, input);
        self.hear_own(id);
    }

    pub(crate) fn step(&mut self, id: u64, input: Input<D::Protocol>) {
        let actor = self.actor_mut(id);
        if actor.is_dead {
            return;
        }
        let mut out = Effects::new();
        actor.value.step(input, &mut out);
        actor.value.assert_invariants();
        self.carry_out(id, out);
    }

    /// Delivers a node's messages to itself last in a step, where the direction says so.
    pub fn hear_own(&mut self, id: u64) {
        while let Some(message) = self.actors.get_mut(&id).and_then(|actor| actor.own.pop_front()) {
            self.step(id, Input::Message { from: NodeId(id), message });
        }
    }

    /// Fires a timer, which must be armed.
    pub fn fire(&mut self, id: u64, timer: Timer<D>) {
        assert!(self.actor_mut(id).armed.remove(&timer), "{timer:?} is not armed at n{id}");
        self.input(id, Input::Timer(timer));
    }

    /// It fires if it is set.
    pub fn fire_if_armed(&mut self, id: u64, timer: Timer<D>) {
        if self.is_armed(id, timer) {
            self.fire(id, timer);
        }
    }

    /// The leader speaks, and everything that comes of it is delivered.
    pub fn heartbeat(&mut self, id: u64) {
        self.fire(id, D::HEARTBEAT);
        self.settle();
    }

    fn put(&mut self, id: u64, kind: EntryKind, payload: Bytes) -> Origin {
        self.sequence += 1;
        let origin = Origin { node: NodeId(id), incarnation: 1, sequence: self.sequence };
        self.input(id, Input::Propose(vec![Proposal { origin, kind, stamp: Stamp::NONE, payload }]));
        origin
    }

    /// A client proposes; nothing is delivered yet.
    pub fn propose_quietly(&mut self, id: u64, text: &str) -> Origin {
        self.put(id, EntryKind::Command, Bytes::copy_from_slice(text.as_bytes()))
    }

    /// A client proposes, and everything that comes of it is delivered.
    pub fn propose(&mut self, id: u64, text: &str) -> Origin {
        let origin = self.propose_quietly(id, text);
        self.settle();
        origin
    }

    /// An operator proposes a change of membership; nothing is delivered yet.
    pub fn change_quietly(&mut self, id: u64, change: &MembershipChange) -> Origin {
        self.put(id, EntryKind::Membership, change.to_bytes())
    }

    /// The same, and everything that comes of it is delivered.
    pub fn change(&mut self, id: u64, change: &MembershipChange) -> Origin {
        let origin = self.change_quietly(id, change);
        self.settle();
        origin
    }

    /// A client asks for a linearizable read.
    pub fn read(&mut self, id: u64, number: u64) -> Ticket {
        let ticket = Ticket::Read { node: NodeId(id), number };
        self.input(id, Input::Read { ticket });
        ticket
    }

    /// Passes on an administrator's request, under a new ticket.
    pub fn admin(&mut self, id: u64, request: Admin) -> Ticket {
        self.sequence += 1;
        let ticket = Ticket::Admin(self.sequence);
        self.input(id, Input::Admin { ticket, request });
        ticket
    }

    /// Asks a leader to hand over to another node.
    pub fn transfer(&mut self, from: u64, to: u64) -> Ticket {
        self.admin(from, Admin::Transfer(NodeId(to)))
    }

    /// Loses all messages from one node to the other from now on.
    pub fn cut_one_way(&mut self, from: u64, to: u64) {
        self.cut.insert((from, to));
    }

    /// Loses all messages between two nodes, and tells nobody. They never arrive, so [`Theatre::heal`] begins new sessions.
    pub fn cut(&mut self, a: u64, b: u64) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// The link drops, and both ends are told.
    pub fn sever(&mut self, a: u64, b: u64) {
        self.cut(a, b);
        self.drop_session(a, b);
    }

    /// The link is back, in a new session.
    pub fn join(&mut self, a: u64, b: u64) {
        self.cut.remove(&(a, b));
        self.cut.remove(&(b, a));
        for (at, peer) in [(a, b), (b, a)] {
            if self.actors.contains_key(&at) && self.actors.contains_key(&peer) {
                self.link_up(at, peer);
            }
        }
    }

    fn drop_session(&mut self, a: u64, b: u64) {
        self.table.retain(|(from, to, _)| (*from, *to) != (a, b) && (*from, *to) != (b, a));
        for (at, peer) in [(a, b), (b, a)] {
            if self.actors.contains_key(&at) {
                self.link_down(at, peer);
            }
        }
    }

    /// A node is cut off from all others.
    pub fn isolate(&mut self, id: u64) {
        for other in self.ids().into_iter().filter(|other| *other != id) {
            self.cut(id, other);
        }
    }

    /// All cuts end; where links are sessions and something may have been lost, the session ends first.
    pub fn heal(&mut self) {
        let cut = std::mem::take(&mut self.cut);
        if D::CUTS_END_SESSIONS {
            let pairs: BTreeSet<(u64, u64)> = cut.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
            for (a, b) in pairs {
                self.drop_session(a, b);
                self.join(a, b);
            }
        }
    }

    /// Takes the messages off the table of which this is true.
    pub fn lose(&mut self, is_it: impl Fn(u64, u64, &Message<D>) -> bool) {
        self.table.retain(|(from, to, message)| !is_it(*from, *to, message));
    }

    /// Loses from now on every message of which this is true, instead of those of an earlier call.
    pub fn keep_losing(&mut self, is_it: Loss<D>) {
        self.loss = Some(is_it);
    }

    /// Ends what [`Theatre::keep_losing`] began; cuts stay.
    pub fn lose_nothing(&mut self) {
        self.loss = None;
    }

    fn is_lost(&self, from: u64, to: u64, message: &Message<D>) -> bool {
        self.cut.contains(&(from, to)) || self.loss.is_some_and(|is_it| is_it(from, to, message))
    }

    /// Takes all messages off the table, to be delivered by hand.
    pub fn take_messages(&mut self) -> Vec<(u64, u64, Message<D>)> {
        self.table.drain(..).collect()
    }

    /// A node is told that a link dropped.
    pub fn link_down(&mut self, at: u64, peer: u64) {
        self.input(at, Input::Link { peer: NodeId(peer), state: LinkState::Down });
    }

    /// A node is told that a link is back.
    pub fn link_up(&mut self, at: u64, peer: u64) {
        self.input(at, Input::Link { peer: NodeId(peer), state: LinkState::Up });
    }

    /// Records wait from now on.
    pub fn hold_disk(&mut self, id: u64) {
        self.actor_mut(id).is_disk_held = true;
    }

    /// Makes the records that waited durable.
    pub fn release_disk(&mut self, id: u64) {
        self.actor_mut(id).is_disk_held = false;
        self.sync(id);
    }

    /// The oldest record of a held disk becomes durable, alone.
    pub fn sync_one(&mut self, id: u64) {
        self.sync_up_to(id, 1);
    }

    /// The disk takes this many more records, and no more.
    pub fn end_disk_after(&mut self, id: u64, records: usize, end: End) {
        let actor = self.actor_mut(id);
        actor.end = Some((actor.written + records, end));
    }

    /// Delivers a message, if its receiver is alive.
    pub fn deliver(&mut self, from: u64, to: u64, message: Message<D>) {
        if self.actors.contains_key(&to) {
            // As on the wire: what cannot be decoded never arrives.
            let message = Message::<D>::decode(message.to_bytes()).expect("what was said can be read");
            self.deliver_undecoded(from, to, message);
        }
    }

    /// Delivers a message that no wire has carried, so also one that cannot be decoded.
    pub fn deliver_undecoded(&mut self, from: u64, to: u64, message: Message<D>) {
        self.input(to, Input::Message { from: NodeId(from), message });
    }

    /// Delivers what is on the table, and what that leads to, until nothing moves.
    pub fn settle(&mut self) {
        let mut steps = 0;
        while let Some((from, to, message)) = self.table.pop_front() {
            steps += 1;
            assert!(steps < 100_000, "messages never stop");
            if !self.is_lost(from, to, &message) {
                self.deliver(from, to, message);
            }
        }
    }

    /// Delivers until a message of this kind from this node stands on the table.
    pub fn settle_until(&mut self, from: u64, is_it: impl Fn(&Message<D>) -> bool) {
        while !self.table.iter().any(|(who, _, message)| *who == from && is_it(message)) {
            let (from, to, message) = self.table.pop_front().expect("it is said before all is settled");
            if !self.is_lost(from, to, &message) {
                self.deliver(from, to, message);
            }
        }
    }

    /// Delivers the first message on the table from one to the other that this is true of.
    pub fn pick(&mut self, from: u64, to: u64, is_it: impl Fn(&Message<D>) -> bool) {
        let at = self.table.iter().position(|(a, b, message)| (*a, *b) == (from, to) && is_it(message));
        let at = at.unwrap_or_else(|| panic!("nothing like it from n{from} to n{to}: {:#?}", self.table));
        let (from, to, message) = self.table.remove(at).expect("it was found there");
        self.deliver(from, to, message);
    }

    /// The snapshot that this node fetches arrives whole, and is installed.
    pub fn finish_fetch(&mut self, id: u64) {
        let reference = self.actor_mut(id).fetching.take().expect("a fetch is under way");
        let lsn = reference.lsn;
        self.input(id, Input::SnapshotReady(reference));
        self.input(id, Input::SnapshotInstalled(lsn));
        self.settle();
    }

    /// In the place of the snapshot that this node fetches one comes that ends earlier, which it had begun before.
    pub fn finish_earlier_fetch(&mut self, id: u64, lsn: Lsn) {
        let reference = self.actor_mut(id).fetching.take().expect("a fetch is under way");
        assert!(lsn.index < reference.lsn.index, "it ends earlier");
        self.input(id, Input::SnapshotReady(SnapshotReference { lsn, ..reference }));
        if self.actor(id).restored.as_ref().is_some_and(|restored| restored.lsn == lsn) {
            self.input(id, Input::SnapshotInstalled(lsn));
        }
        self.settle();
    }

    /// The node cuts a snapshot of what it has applied.
    pub fn compact(&mut self, id: u64) {
        let status = self.value(id).status();
        let lsn = self.value(id).node().committed();
        let reference = SnapshotReference { lsn, membership: status.membership, bytes: 1, digest: 1 };
        self.input(id, Input::Compact(reference));
    }
}
