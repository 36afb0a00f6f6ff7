//! Links between members: delay, loss, duplicates, cuts, connections that break: [`Network`].
//!
//! Two things are kept apart, as on a real network. A *cut* loses what is sent one way, and nobody is told. A *connection* goes
//! down when a process ends or somebody resets it, and both ends are told, unless a cut keeps the news from them. For protocols
//! with session links a message is lost only together with its connection: a gap is link-down. Most losses of packets are made good
//! by the transport, and what comes behind waits for them; what is lost one way by a cut ends the session.

use crate::dice::Dice;
use hustings_core::Links;

/// Losses, in a million, that end a session; the others are made good by its transport.
const BREAKS: u32 = 60_000;
/// Pause of a transport before it sends again, in microseconds.
const RESENT_AFTER: u64 = 50_000;

/// Treatment of messages by a link. Delays in microseconds, chances in a million.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Quality {
    /// The shortest delay of a message.
    pub delay_min: u64,
    /// The longest delay. Messages overtake each other when it differs from the shortest (never on session links).
    pub delay_max: u64,
    /// Chance that a message is lost.
    pub loss: u32,
    /// Messages that arrive twice.
    pub duplicates: u32,
}

impl Default for Quality {
    fn default() -> Quality {
        Quality { delay_min: 200, delay_max: 800, loss: 0, duplicates: 0 }
    }
}

/// A message on its way.
pub(crate) struct Flight<M> {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) session: u32,
    pub(crate) message: M,
    /// Moment of its arrival, if nobody delays it.
    pub(crate) arrives_at: u64,
    /// The number of its arrow, where arrows are drawn.
    pub(crate) arrow: Option<usize>,
}

/// The outcome of sending a message.
pub(crate) enum Delivery {
    /// It arrives at this moment, and perhaps again at another.
    Arrives(u64, Option<u64>),
    Lost,
    /// It is lost, and the connection breaks at this moment: what was sent before it arrives.
    Breaks(u64),
}

#[derive(Clone, Default)]
struct Direction {
    is_cut: bool,
    /// Delays of its own, in microseconds, instead of those that all links have.
    slow: Option<(u64, u64)>,
    /// Delay of its length, in microseconds, on top of any other.
    distance: u64,
    /// Arrival of the last message: on session links nothing overtakes it.
    last_arrival: u64,
    /// Number of the next messages that arrive damaged.
    damaged: u64,
    /// The session in which a message was lost: nothing that is sent behind it arrives.
    broken_in: u32,
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
        if self.links == Links::Session {
            // A new connection waits for nothing that an old one was slow to carry.
            self.direction_mut(one, other).last_arrival = 0;
            self.direction_mut(other, one).last_arrival = 0;
        }
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

    /// Whether what goes one way takes longer than elsewhere.
    pub(crate) fn is_slow(&self, from: usize, to: usize) -> bool {
        self.direction(from, to).slow.is_some()
    }

    pub(crate) fn set_cut(&mut self, from: usize, to: usize, is_cut: bool) {
        self.direction_mut(from, to).is_cut = is_cut;
    }

    /// Sets the delays of this direction, shortest and longest, from now on; `None` for those of everything else.
    pub(crate) fn set_slow(&mut self, from: usize, to: usize, slow: Option<(u64, u64)>) {
        self.direction_mut(from, to).slow = slow;
    }

    /// All cuts end, and no link is slower than the others.
    pub(crate) fn heal(&mut self) {
        for direction in &mut self.directions {
            direction.is_cut = false;
            direction.slow = None;
            direction.damaged = 0;
        }
    }

    /// Damages the next `count` messages: they arrive with other bytes than were sent.
    pub(crate) fn damage(&mut self, from: usize, to: usize, count: u64) {
        self.direction_mut(from, to).damaged = count;
    }

    /// Whether the next message arrives damaged.
    pub(crate) fn take_damage(&mut self, from: usize, to: usize) -> bool {
        let direction = self.direction_mut(from, to);
        let is_damaged = direction.damaged > 0;
        direction.damaged = direction.damaged.saturating_sub(1);
        is_damaged
    }

    /// Whether something keeps these two from reaching each other in time.
    pub(crate) fn is_hampered(&self, one: usize, other: usize) -> bool {
        [(one, other), (other, one)].into_iter().any(|(from, to)| {
            let direction = self.direction(from, to);
            direction.is_cut || direction.slow.is_some()
        })
    }

    /// Sets the microseconds that messages take in this direction because of where the two members stand.
    pub(crate) fn set_distance(&mut self, from: usize, to: usize, micros: u64) {
        self.direction_mut(from, to).distance = micros;
    }

    /// Microseconds that messages take because of where the two stand; see [`Network::set_distance`].
    pub(crate) fn distance(&self, from: usize, to: usize) -> u64 {
        self.direction(from, to).distance
    }

    /// A delay, as a message could have it.
    pub(crate) fn delay(&mut self, from: usize, to: usize) -> u64 {
        let quality = self.quality;
        self.distance(from, to) + self.dice.between(quality.delay_min, quality.delay_max)
    }

    /// Draws the outcome of sending a message now.
    pub(crate) fn delivery(&mut self, from: usize, to: usize, now: u64) -> Delivery {
        let mut quality = self.quality;
        if let Some((delay_min, delay_max)) = self.direction(from, to).slow {
            quality = Quality { delay_min, delay_max, ..quality };
        }
        if !self.is_connected(from, to) {
            return Delivery::Lost;
        }
        let is_session = self.links == Links::Session;
        let is_lost = self.is_cut(from, to) || self.dice.chance(quality.loss);
        if is_lost && !is_session {
            return Delivery::Lost;
        }
        let now = now + self.distance(from, to);
        let mut arrival = now + self.dice.between(quality.delay_min, quality.delay_max);
        // A transport with sessions sends a lost packet again: mostly it is late and not lost.
        let is_late = is_session && is_lost && !self.is_cut(from, to) && !self.dice.chance(BREAKS);
        if is_late {
            arrival += RESENT_AFTER + quality.delay_max;
        }
        if is_session {
            let session = self.session(from, to);
            let direction = self.direction_mut(from, to);
            if direction.broken_in == session {
                return Delivery::Lost;
            }
            arrival = arrival.max(direction.last_arrival + 1);
            direction.last_arrival = arrival;
            if is_lost && !is_late {
                direction.broken_in = session;
                return Delivery::Breaks(arrival);
            }
            return Delivery::Arrives(arrival, None);
        }
        let again = self.dice.chance(quality.duplicates);
        let again = again.then(|| now + self.dice.between(quality.delay_min, quality.delay_max * 4));
        Delivery::Arrives(arrival, again)
    }

    /// A message of this session was lost on its way: nothing behind it arrives.
    pub(crate) fn lose_in_session(&mut self, from: usize, to: usize) {
        let session = self.session(from, to);
        self.direction_mut(from, to).broken_in = session;
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

    /// Later arrival of a message that was to arrive by now, if somebody delayed it; `None` otherwise.
    pub(crate) fn arrives_later(&self, slot: u32, now: u64) -> Option<u64> {
        self.flights[slot as usize].as_ref().map(|flight| flight.arrives_at).filter(|later| *later > now)
    }

    /// Lets a message take so many microseconds longer: of those under way from one member to another the `which`-th to arrive,
    /// counted from 1. On session links nothing overtakes it. Gives the arrows of those that arrive later, and when they do.
    pub(crate) fn delay_flight(
        &mut self,
        from: usize,
        to: usize,
        which: u64,
        micros: u64,
    ) -> Vec<(Option<usize>, u64)> {
        let under_way = self.flights.iter().zip(0..).filter_map(|(flight, slot)| {
            let flight = flight.as_ref().filter(|flight| (flight.from, flight.to) == (from, to))?;
            Some((flight.arrives_at, slot))
        });
        let mut under_way: Vec<(u64, usize)> = under_way.collect();
        under_way.sort_unstable();
        let behind = match self.links {
            Links::Any => 1,
            Links::Session => under_way.len(),
        };
        let skipped = usize::try_from(which.saturating_sub(1)).unwrap_or(usize::MAX);
        let mut earliest = 0;
        let mut delayed = Vec::new();
        for (place, (arrives_at, slot)) in under_way.into_iter().skip(skipped).take(behind).enumerate() {
            let later = if place == 0 { arrives_at.saturating_add(micros) } else { arrives_at.max(earliest) };
            earliest = later + 1;
            if let Some(flight) = &mut self.flights[slot] {
                flight.arrives_at = later;
                delayed.push((flight.arrow, later));
            }
        }
        if self.links == Links::Session {
            let direction = self.direction_mut(from, to);
            direction.last_arrival = direction.last_arrival.max(earliest);
        }
        delayed
    }

    /// Lets messages that would arrive later than any on a healthy link arrive as soon as the slowest there, in their order. Gives
    /// their new slots, moments and arrows; the old slots are free when their events are due.
    pub(crate) fn hasten(&mut self, now: u64) -> Vec<(u32, u64, Option<usize>)> {
        let mut late: Vec<(usize, usize, u64, usize)> = Vec::new();
        for (slot, flight) in self.flights.iter().enumerate() {
            late.extend(flight.as_ref().map(|flight| (flight.from, flight.to, flight.arrives_at, slot)));
        }
        late.retain(|(from, to, arrives_at, _)| *arrives_at > self.latest(*from, *to, now));
        late.sort_unstable();
        let mut hastened = Vec::new();
        for (behind, (from, to, _, slot)) in (0..).zip(late) {
            let arrives_at = self.latest(from, to, now) + behind;
            if self.links == Links::Session {
                self.direction_mut(from, to).last_arrival = arrives_at;
            }
            if let Some(flight) = self.flights[slot].take() {
                let arrow = flight.arrow;
                hastened.push((self.take_off(Flight { arrives_at, ..flight }), arrives_at, arrow));
            }
        }
        // Also where nothing is under way any more, what was lost or delivered holds up nobody.
        for from in 0..self.size {
            for to in 0..self.size {
                let latest = self.latest(from, to, now) + hastened.len() as u64;
                let direction = self.direction_mut(from, to);
                direction.last_arrival = direction.last_arrival.min(latest);
            }
        }
        hastened
    }

    /// Moment by which a message that is sent now arrives on a healthy link, sent again or twice.
    fn latest(&self, from: usize, to: usize, now: u64) -> u64 {
        now + self.distance(from, to) + RESENT_AFTER + 4 * self.quality.delay_max
    }

    /// Connections that are to break because of a loss, and when at the latest on a healthy link.
    pub(crate) fn hasten_breaks(&self, now: u64) -> Vec<(usize, usize, u64)> {
        let pairs = (0..self.size).flat_map(|from| (0..self.size).map(move |to| (from, to)));
        let broken = pairs.filter(|(from, to)| {
            from != to
                && self.links == Links::Session
                && self.is_connected(*from, *to)
                && self.direction(*from, *to).broken_in == self.session(*from, *to)
        });
        broken.map(|(from, to)| (from, to, self.direction(from, to).last_arrival.max(now))).collect()
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
