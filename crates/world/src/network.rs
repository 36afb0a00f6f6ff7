//! Links between members: delay, loss, duplicates, cuts, connections that break: [`Network`].
//!
//! Two things are kept apart, as on a real network. A *cut* loses what is sent one way, and nobody is told. A *connection* goes
//! down when a process ends or somebody resets it, and both ends are told, unless a cut keeps the news from them. For protocols
//! with session links a cut breaks the connection at the first message: a gap is link-down. What is lost by chance the transport
//! sends again, later, and what follows waits behind it; one loss in sixteen it does not get over, and the connection breaks.

use crate::dice::Dice;
use hustings_core::Links;

/// How a link treats messages. Delays in microseconds, chances in a million.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Quality {
    /// The shortest delay.
    pub delay_min: u64,
    /// The longest. Messages overtake each other when it differs from the shortest (never on session links).
    pub delay_max: u64,
    /// Messages lost.
    pub loss: u32,
    /// Messages that arrive twice.
    pub duplicates: u32,
}

impl Default for Quality {
    fn default() -> Quality {
        Quality { delay_min: 200, delay_max: 800, loss: 0, duplicates: 0 }
    }
}

/// On session links: losses in a million that break the connection instead of delaying it. If every one did, no snapshot would
/// ever cross a bad network in one session.
const BREAKING_LOSSES: u32 = 62_500;

/// On session links: how much later a message arrives that the transport had to send again, in longest delays.
const SENT_AGAIN_AFTER: u64 = 3;

/// A message on its way.
pub(crate) struct Flight<M> {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) session: u32,
    pub(crate) message: M,
}

/// What becomes of a message that is sent.
pub(crate) enum Fate {
    /// It arrives at this moment, and perhaps again at another.
    Arrives(u64, Option<u64>),
    Lost,
    /// It is lost and the connection breaks with it.
    Breaks,
}

#[derive(Clone, Default)]
struct Direction {
    is_cut: bool,
    /// When the last message arrives: on session links nothing overtakes it.
    last_arrival: u64,
}

#[derive(Clone, Default)]
struct Connection {
    session: u32,
    is_up: bool,
    /// One end is gone, and the other does not know.
    is_half_open: bool,
}

/// All links of a world; members by position.
pub(crate) struct Network<M> {
    pub(crate) quality: Quality,
    size: usize,
    directions: Vec<Direction>,
    connections: Vec<Connection>,
    flights: Vec<Option<Flight<M>>>,
    free: Vec<u32>,
    dice: Dice,
    links: Links,
}

impl<M: Clone> Network<M> {
    pub(crate) fn new(size: usize, links: Links, quality: Quality, dice: Dice) -> Network<M> {
        let directions = vec![Direction::default(); size * size];
        let connections = vec![Connection::default(); size * size];
        Network { quality, size, directions, connections, flights: Vec::new(), free: Vec::new(), dice, links }
    }

    fn direction(&self, from: usize, to: usize) -> &Direction {
        &self.directions[from * self.size + to]
    }

    fn direction_mut(&mut self, from: usize, to: usize) -> &mut Direction {
        &mut self.directions[from * self.size + to]
    }

    fn connection_mut(&mut self, one: usize, other: usize) -> &mut Connection {
        &mut self.connections[one.min(other) * self.size + one.max(other)]
    }

    pub(crate) fn is_connected(&self, one: usize, other: usize) -> bool {
        self.connections[one.min(other) * self.size + one.max(other)].is_up
    }

    pub(crate) fn session(&self, one: usize, other: usize) -> u32 {
        self.connections[one.min(other) * self.size + one.max(other)].session
    }

    /// Opens a connection anew.
    pub(crate) fn connect(&mut self, one: usize, other: usize) {
        let connection = self.connection_mut(one, other);
        connection.is_up = true;
        connection.session += 1;
    }

    /// Ends a connection; says whether there was one.
    pub(crate) fn disconnect(&mut self, one: usize, other: usize) -> bool {
        std::mem::take(&mut self.connection_mut(one, other).is_up)
    }

    pub(crate) fn set_half_open(&mut self, one: usize, other: usize) {
        self.connection_mut(one, other).is_half_open = true;
    }

    pub(crate) fn take_half_open(&mut self, one: usize, other: usize) -> bool {
        std::mem::take(&mut self.connection_mut(one, other).is_half_open)
    }

    pub(crate) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.direction(from, to).is_cut
    }

    pub(crate) fn set_cut(&mut self, from: usize, to: usize, is_cut: bool) {
        self.direction_mut(from, to).is_cut = is_cut;
    }

    /// All cuts end.
    pub(crate) fn heal(&mut self) {
        for direction in &mut self.directions {
            direction.is_cut = false;
        }
    }

    /// A delay, as a message could have it.
    pub(crate) fn delay(&mut self) -> u64 {
        let quality = self.quality;
        self.dice.between(quality.delay_min, quality.delay_max)
    }

    /// What becomes of a message sent now.
    pub(crate) fn fate(&mut self, from: usize, to: usize, now: u64) -> Fate {
        let quality = self.quality;
        if !self.is_connected(from, to) {
            return Fate::Lost;
        }
        let is_session = self.links == Links::Session;
        let is_lost = self.is_cut(from, to) || self.dice.chance(quality.loss);
        if is_lost && !is_session {
            return Fate::Lost;
        }
        if is_lost && (self.is_cut(from, to) || self.dice.chance(BREAKING_LOSSES)) {
            return Fate::Breaks;
        }
        let mut arrival = now + self.dice.between(quality.delay_min, quality.delay_max);
        if is_session {
            if is_lost {
                arrival += quality.delay_max * SENT_AGAIN_AFTER;
            }
            let direction = self.direction_mut(from, to);
            arrival = arrival.max(direction.last_arrival + 1);
            direction.last_arrival = arrival;
            return Fate::Arrives(arrival, None);
        }
        let again = self.dice.chance(quality.duplicates);
        let again = again.then(|| now + self.dice.between(quality.delay_min, quality.delay_max * 4));
        Fate::Arrives(arrival, again)
    }

    pub(crate) fn take_off(&mut self, flight: Flight<M>) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.flights[slot as usize] = Some(flight);
                slot
            }
            None => {
                self.flights.push(Some(flight));
                (self.flights.len() - 1) as u32
            }
        }
    }

    pub(crate) fn land(&mut self, slot: u32) -> Option<Flight<M>> {
        let flight = self.flights[slot as usize].take();
        self.free.push(slot);
        flight
    }

    /// Makes room for one more member.
    pub(crate) fn grow(&mut self, size: usize) {
        let mut grown: Network<M> = Network::new(size, self.links, self.quality, self.dice.clone());
        for from in 0..self.size {
            for to in 0..self.size {
                grown.directions[from * size + to] = self.directions[from * self.size + to].clone();
                grown.connections[from * size + to] = self.connections[from * self.size + to].clone();
            }
        }
        self.size = size;
        self.directions = grown.directions;
        self.connections = grown.connections;
    }
}
