//! The network between nodes and clients: [`Network`].
//!
//! One queue per recipient, ordered by the time of delivery. Its head is taken as soon as the message before it is delivered;
//! partitions are looked at when a message is *taken*, not when it is sent or delivered. Messages from and to clients take no
//! time and are never cut off.
//!
//! Source: `docs/protocols/rules/maelstrom.md`, §3.6. Beyond it: loss and duplication between nodes (MB-2).

use super::settings::{Distribution, Nemesis};
use crate::dice::Dice;
use std::collections::{BTreeMap, BTreeSet};

/// A message on its way.
#[derive(Clone, PartialEq, Debug)]
pub struct Flight {
    /// The node that sent it; `None` for a client.
    pub from: Option<usize>,
    /// The line as the recipient will read it.
    pub line: String,
}

#[derive(Clone, Debug, Default)]
struct Inbox {
    queue: BTreeMap<(u64, u64), Flight>,
    taken: Option<(u64, Flight)>,
    /// Nodes whose messages this one refuses, by who cut them off: cuts that overlap end one by one.
    refused: BTreeMap<Nemesis, BTreeSet<usize>>,
}

/// Counts of messages and their fates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Messages that nodes sent to each other.
    pub sent: u64,
    /// Messages that a partition or a loss swallowed.
    pub lost: u64,
    /// Messages that arrived twice.
    pub doubled: u64,
}

/// The queues of all nodes and clients.
#[derive(Clone, Debug)]
pub struct Network {
    inboxes: Vec<Inbox>,
    latency: u64,
    distribution: Distribution,
    dice: Dice,
    sequence: u64,
    /// Part of the messages between nodes that is lost.
    pub loss: f64,
    /// Part of the messages between nodes that arrives twice.
    pub duplication: f64,
    /// Counts of messages so far.
    pub traffic: Traffic,
}

impl Network {
    /// A network without faults.
    pub fn new(nodes: usize, latency: u64, distribution: Distribution, dice: Dice) -> Network {
        Network {
            inboxes: vec![Inbox::default(); nodes],
            latency,
            distribution,
            dice,
            sequence: 0,
            loss: 0.0,
            duplication: 0.0,
            traffic: Traffic::default(),
        }
    }

    /// The nodes that `to` refuses from now on because of `by`.
    pub fn refuse(&mut self, by: Nemesis, to: usize, from: BTreeSet<usize>) {
        self.inboxes[to].refused.insert(by, from);
    }

    /// Nobody refuses anybody because of `by`.
    pub fn heal(&mut self, by: Nemesis) {
        for inbox in &mut self.inboxes {
            inbox.refused.remove(&by);
        }
    }

    fn draw(&mut self) -> u64 {
        match self.distribution {
            Distribution::Constant => self.latency,
            Distribution::Uniform => self.dice.between(0, 2 * self.latency),
            Distribution::Exponential => {
                let micros = -(1.0 - self.dice.fraction()).ln() * self.latency as f64;
                micros as u64
            }
        }
    }

    /// Sends a line to a node.
    pub fn send(&mut self, now: u64, to: usize, flight: Flight) {
        let mut copies = 1;
        if flight.from.is_some() {
            self.traffic.sent += 1;
            if self.dice.chance(self.loss) {
                self.traffic.lost += 1;
                return;
            }
            if self.dice.chance(self.duplication) {
                self.traffic.doubled += 1;
                copies = 2;
            }
        }
        for _ in 0..copies {
            let latency = if flight.from.is_some() { self.draw() } else { 0 };
            self.sequence += 1;
            self.inboxes[to].queue.insert((now + latency, self.sequence), flight.clone());
        }
        self.take(to);
    }

    /// Takes the next message that is not refused.
    fn take(&mut self, to: usize) {
        let inbox = &mut self.inboxes[to];
        while inbox.taken.is_none() {
            let Some(((deadline, _), flight)) = inbox.queue.pop_first() else { return };
            if flight.from.is_some_and(|from| inbox.refused.values().any(|refused| refused.contains(&from))) {
                self.traffic.lost += 1;
            } else {
                inbox.taken = Some((deadline, flight));
            }
        }
    }

    /// Time at which the next message arrives anywhere; `None` if none is under way.
    pub fn next(&self) -> Option<u64> {
        self.inboxes.iter().filter_map(|inbox| inbox.taken.as_ref().map(|(deadline, _)| *deadline)).min()
    }

    /// A message that has arrived, and where.
    pub fn arrived(&mut self, now: u64) -> Option<(usize, Flight)> {
        let to = self.inboxes.iter().position(|inbox| inbox.taken.as_ref().is_some_and(|(at, _)| *at <= now))?;
        let (_, flight) = self.inboxes[to].taken.take()?;
        self.take(to);
        Some((to, flight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(from: usize, line: &str) -> Flight {
        Flight { from: Some(from), line: line.into() }
    }

    fn network(latency: u64) -> Network {
        Network::new(2, latency, Distribution::Constant, Dice::new(1, 1))
    }

    fn lines(network: &mut Network, now: u64) -> Vec<String> {
        std::iter::from_fn(|| network.arrived(now)).map(|(_, flight)| flight.line).collect()
    }

    #[test]
    fn what_was_taken_before_a_partition_still_arrives_and_the_rest_does_not() {
        let mut network = network(10);
        network.send(0, 1, flight(0, "taken"));
        network.send(1, 1, flight(0, "queued"));
        network.refuse(Nemesis::Partition, 1, BTreeSet::from([0]));
        assert_eq!(network.next(), Some(10));
        assert_eq!(lines(&mut network, 20), ["taken"]);
        network.heal(Nemesis::OneWay);
        network.send(20, 1, flight(0, "still cut"));
        network.heal(Nemesis::Partition);
        network.send(21, 1, flight(0, "healed"));
        assert_eq!(lines(&mut network, 31), ["healed"]);
        assert_eq!(network.traffic, Traffic { sent: 4, lost: 2, doubled: 0 });
    }

    #[test]
    fn clients_are_never_cut_off_and_take_no_time() {
        let mut network = network(10);
        network.refuse(Nemesis::Partition, 1, BTreeSet::from([0]));
        network.send(5, 1, Flight { from: None, line: "client".into() });
        assert_eq!(lines(&mut network, 5), ["client"]);
    }

    #[test]
    fn a_doubled_message_arrives_twice_and_a_lost_one_never() {
        let mut network = network(0);
        network.duplication = 1.0;
        network.send(0, 0, flight(1, "twin"));
        assert_eq!(lines(&mut network, 0), ["twin", "twin"]);
        network.loss = 1.0;
        network.send(0, 0, flight(1, "gone"));
        assert_eq!(network.next(), None);
    }
}
