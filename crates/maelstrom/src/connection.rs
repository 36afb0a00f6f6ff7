//! Connections over a network that loses, repeats and reorders: [`Connections`].
//!
//! Some protocols need links on which nothing is lost or overtaken until the link itself is gone
//! (`Links::Session`). Maelstrom has only datagrams, so this is a small transport: numbered packets, cumulative
//! acknowledgements, repetition, and an end that both sides notice. Protocols that take any link never meet it.
//!
//! Each end of a connection has a number that grows whenever a connection ends there, across restarts too. A packet
//! names both; it counts only where both are the present ones:
//!
//! ```text
//!    n1 (7)                                     n2 (4)
//!      │── from 7, to 4: number 12 ──────────────►│   delivered in order, repeated until acknowledged
//!      │        (n1 gives up: 8, link down)       │
//!      │── from 8, to 4 ─────────────────────────►│   a later n1: link down here too, and now 5
//!      │◄─────────────────────────── from 5, to 8 │   link up at n1
//!      │── from 8, to 5 ─────────────────────────►│   link up at n2
//! ```
//!
//! Packets behind a lost one wait for it, so a repetition must not be late: a peer that speaks without acknowledging what
//! it must have had by now did not get it, and gets it again at once. Where nobody speaks, a packet is repeated after a time
//! that grows with the round trips measured (mean and four deviations, as in TCP; those of repeated packets count for nothing,
//! as nobody knows which of the two was acknowledged), and doubles each time. Sources: RFC 6298; Karn and Partridge 1987.

use hustings_core::NodeId;
use std::collections::{BTreeMap, VecDeque};

/// Microseconds between two looks at what is overdue; an acknowledgement that no message carries waits at most so long.
pub const TICK: u64 = 25_000;
/// Microseconds between two requests for a connection that is missing.
const ASK_AFTER: u64 = 100_000;
/// A packet that is unacknowledged for so long is sent again: at first, at least and at most.
const REPEAT_AFTER: u64 = 400_000;
const REPEAT_AFTER_MIN: u64 = 2 * TICK;
const REPEAT_AFTER_MAX: u64 = 1_000_000;
/// A connection on which something is unacknowledged and nothing was acknowledged for so long has ended.
const GIVE_UP_AFTER: u64 = 3_000_000;
/// Packets that are repeated at once.
const REPEATED_MAX: usize = 32;
/// Packets that wait for an acknowledgement; one more ends the connection, so that memory is bounded.
const UNACKNOWLEDGED_MAX: usize = 10_000;
/// Packets that are kept until the ones before them arrive; others are sent again anyway.
const EARLY_MAX: usize = 1_000;

/// The unit that travels between two nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Number of the sender's end of the connection; it grows whenever a connection ends there.
    pub from: u64,
    /// The receiver's, as the sender knows it; 0 when it does not.
    pub to: u64,
    /// Whether the connection stands at the sender; if not, it wants to hear that it may.
    pub is_up: bool,
    /// All packets up to this number have arrived at the sender.
    pub acknowledged: u64,
    /// The message and its number, from 1 on; a packet without one only acknowledges.
    pub message: Option<(u64, String)>,
}

/// The outcome of a packet, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// The connection to the peer stands.
    Up,
    /// The connection has ended: nothing sent on it will arrive any more, at either end.
    Down,
    /// The peer's next message.
    Message(String),
}

/// The connection to one peer.
#[derive(Clone, Debug)]
struct Connection {
    mine: u64,
    theirs: u64,
    is_up: bool,
    /// Numbered messages in flight, with the time of their last sending and of their first.
    unacknowledged: VecDeque<(u64, String, u64, u64)>,
    next: u64,
    arrived: u64,
    early: BTreeMap<u64, String>,
    owes_acknowledgement: bool,
    /// Time of the last acknowledgement that was news.
    progressed_at: u64,
    /// While there is no connection: when to ask for one.
    ask_at: u64,
    /// Mean and deviation of the round trips; outlives a connection, as the network does.
    round_trip: Option<(u64, u64)>,
    /// Number of repetitions because of silence, since something was acknowledged.
    repetitions: u32,
}

/// A node's connections to all its peers.
#[derive(Clone, Debug)]
pub struct Connections {
    peers: BTreeMap<NodeId, Connection>,
    next_tick: u64,
}

impl Connections {
    /// Connections of which none stands yet; this is the node's life of this number, and no earlier one had it.
    pub fn new(life: u64, peers: impl IntoIterator<Item = NodeId>) -> Connections {
        let fresh = || Connection {
            mine: (life << 32) + 1,
            theirs: 0,
            is_up: false,
            unacknowledged: VecDeque::new(),
            next: 1,
            arrived: 0,
            early: BTreeMap::new(),
            owes_acknowledgement: false,
            progressed_at: 0,
            ask_at: 0,
            round_trip: None,
            repetitions: 0,
        };
        Connections { peers: peers.into_iter().map(|peer| (peer, fresh())).collect(), next_tick: 0 }
    }

    /// Time at which [`Connections::on_tick`] is due.
    pub fn next_tick(&self) -> u64 {
        self.next_tick
    }

    /// Sends a message; without a connection it is lost, as the peer's link is known to be down. `None` when it leaves
    /// nothing to send.
    pub fn send(&mut self, now: u64, to: NodeId, message: String) -> Option<Packet> {
        let connection = self.peers.get_mut(&to).filter(|connection| connection.is_up)?;
        let number = connection.next;
        connection.next += 1;
        connection.unacknowledged.push_back((number, message.clone(), now, now));
        connection.owes_acknowledgement = false;
        Some(connection.packet(Some((number, message))))
    }

    /// Takes a packet; gives its outcome, and perhaps an answer for the peer. Packets of strangers come to nothing.
    pub fn on_packet(&mut self, now: u64, peer: NodeId, packet: Packet) -> (Vec<News>, Option<Packet>) {
        let mut news = Vec::new();
        let Some(connection) = self.peers.get_mut(&peer) else { return (news, None) };
        if packet.from < connection.theirs {
            return (news, None);
        }
        if packet.from > connection.theirs {
            if connection.end() {
                news.push(News::Down);
            }
            connection.theirs = packet.from;
        }
        if packet.to != connection.mine {
            return (news, Some(connection.packet(None)));
        }
        if !std::mem::replace(&mut connection.is_up, true) {
            news.push(News::Up);
        }
        connection.on_acknowledged(now, packet.acknowledged);
        let mut has_gap = false;
        if let Some((number, message)) = packet.message {
            has_gap = number != connection.arrived + 1;
            connection.owes_acknowledgement = true;
            let is_wanted = number > connection.arrived && connection.early.len() < EARLY_MAX;
            if is_wanted || number == connection.arrived + 1 {
                connection.early.insert(number, message);
            }
            while let Some(message) = connection.early.remove(&(connection.arrived + 1)) {
                connection.arrived += 1;
                news.push(News::Message(message));
            }
        }
        let answer = connection.repeat_what_was_missed(now);
        (news, answer.or_else(|| (!packet.is_up || has_gap).then(|| connection.packet(None))))
    }

    /// Repeats what is overdue, acknowledges what is owed, asks for connections that are missing, and ends those on which
    /// nothing arrives any more.
    pub fn on_tick(&mut self, now: u64) -> (Vec<NodeId>, Vec<(NodeId, Packet)>) {
        let (mut down, mut packets) = (Vec::new(), Vec::new());
        self.next_tick = now + TICK;
        for (peer, connection) in &mut self.peers {
            let is_hopeless = connection.unacknowledged.len() > UNACKNOWLEDGED_MAX
                || connection
                    .unacknowledged
                    .front()
                    .is_some_and(|(.., first)| connection.progressed_at.max(*first) + GIVE_UP_AFTER <= now);
            if is_hopeless && connection.end() {
                down.push(*peer);
            }
            let asks = !connection.is_up && connection.ask_at <= now;
            if asks {
                connection.ask_at = now + ASK_AFTER;
            }
            if asks || std::mem::take(&mut connection.owes_acknowledgement) {
                packets.push((*peer, connection.packet(None)));
            }
            let repeat_after = connection.repeat_after();
            let is_silent = connection.unacknowledged.front().is_some_and(|(.., last, _)| last + repeat_after <= now);
            connection.repetitions += u32::from(is_silent);
            let head = Packet { message: None, ..connection.packet(None) };
            for (number, message, last, _) in connection.unacknowledged.iter_mut().take(REPEATED_MAX) {
                if *last + repeat_after <= now {
                    *last = now;
                    packets.push((*peer, Packet { message: Some((*number, message.clone())), ..head.clone() }));
                }
            }
        }
        (down, packets)
    }
}

impl Connection {
    fn packet(&self, message: Option<(u64, String)>) -> Packet {
        Packet { from: self.mine, to: self.theirs, is_up: self.is_up, acknowledged: self.arrived, message }
    }

    /// Everything up to this number has arrived at the peer.
    fn on_acknowledged(&mut self, now: u64, through: u64) {
        let (mut measured, mut is_doubtful) = (None, false);
        while let Some((_, _, last, first)) = self.unacknowledged.front().filter(|(number, ..)| *number <= through) {
            is_doubtful |= last != first;
            measured = Some(now - first);
            (self.progressed_at, self.repetitions) = (now, 0);
            self.unacknowledged.pop_front();
        }
        // A packet behind a repeated one waited for it, and says nothing about the network either.
        if let Some(sample) = measured.filter(|_| !is_doubtful) {
            self.round_trip = Some(match self.round_trip {
                None => (sample, sample / 2),
                Some((mean, deviation)) => ((7 * mean + sample) / 8, (3 * deviation + mean.abs_diff(sample)) / 4),
            });
        }
    }

    fn repeat_after(&self) -> u64 {
        let Some((mean, deviation)) = self.round_trip else { return REPEAT_AFTER };
        let once = (mean + (4 * deviation).max(TICK)).max(REPEAT_AFTER_MIN);
        // Twice as long each time: through a cut nothing arrives, however often it is said.
        (once << self.repetitions.min(10)).min(REPEAT_AFTER_MAX)
    }

    /// The peer has just spoken: the oldest packet, if the peer had the time to acknowledge it and did not.
    fn repeat_what_was_missed(&mut self, now: u64) -> Option<Packet> {
        let patience = self.round_trip.map_or(REPEAT_AFTER, |(mean, deviation)| mean + deviation);
        let (number, message, last, _) = self.unacknowledged.front_mut()?;
        if *last + patience > now {
            return None;
        }
        *last = now;
        let message = (*number, message.clone());
        self.owes_acknowledgement = false;
        Some(self.packet(Some(message)))
    }

    /// Ends the connection, if it stands; says whether it did. The next one has another number.
    fn end(&mut self) -> bool {
        if !std::mem::take(&mut self.is_up) {
            return false;
        }
        self.mine += 1;
        self.unacknowledged.clear();
        self.early.clear();
        self.repetitions = 0;
        (self.next, self.arrived, self.owes_acknowledgement) = (1, 0, false);
        true
    }
}
