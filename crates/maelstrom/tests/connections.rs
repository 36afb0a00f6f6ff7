//! Goal: the promise of a connection holds over a network that loses, repeats and reorders: each message once, in
//! order, without a gap, until both ends hear that it is down. Method: two ends, one bag of packets, a dice.

use hustings_core::NodeId;
use hustings_maelstrom::connection::{Connections, News, Packet, TICK};

const ENDS: [NodeId; 2] = [NodeId(1), NodeId(2)];

struct Pair {
    ends: [Connections; 2],
    bag: Vec<(usize, Packet)>,
    /// Messages that each end heard since its connection came up.
    heard: [Vec<String>; 2],
    ups: [usize; 2],
    downs: [usize; 2],
    now: u64,
    draw: u64,
    is_cut: bool,
}

impl Pair {
    fn new() -> Pair {
        let end = |at: usize| Connections::new(1, [ENDS[1 - at]]);
        let nothing = || [Vec::new(), Vec::new()];
        let mut pair = Pair {
            ends: [end(0), end(1)],
            bag: Vec::new(),
            heard: nothing(),
            ups: [0; 2],
            downs: [0; 2],
            now: 0,
            draw: 11,
            is_cut: false,
        };
        pair.live(5);
        pair
    }

    fn dice(&mut self, sides: u64) -> u64 {
        self.draw = self.draw * 48_271 % 2_147_483_647;
        self.draw % sides
    }

    fn say(&mut self, at: usize, text: &str) {
        let packet = self.ends[at].send(self.now, ENDS[1 - at], text.into());
        self.bag.extend(packet.map(|packet| (at, packet)));
    }

    /// Lets this many tenths of a second pass, and packets travel; a fifth is lost, a fifth is repeated, order is chance.
    fn live(&mut self, tenths: u64) {
        for _ in 0..tenths * 100_000 / TICK {
            self.now += TICK;
            for at in 0..2 {
                let (down, packets) = self.ends[at].on_tick(self.now);
                self.downs[at] += down.len();
                self.bag.extend(packets.into_iter().map(|(_, packet)| (at, packet)));
            }
            for _ in 0..50 {
                if self.bag.is_empty() {
                    break;
                }
                let place = self.dice(self.bag.len() as u64) as usize;
                let (from, packet) = self.bag.swap_remove(place);
                match self.dice(5) {
                    _ if self.is_cut => continue,
                    0 => continue,
                    1 => self.bag.push((from, packet.clone())),
                    _ => {}
                }
                self.arrive(1 - from, packet);
            }
        }
    }

    fn arrive(&mut self, at: usize, packet: Packet) {
        let (news, answer) = self.ends[at].on_packet(self.now, ENDS[1 - at], packet);
        self.bag.extend(answer.map(|answer| (at, answer)));
        for piece in news {
            match piece {
                News::Up => {
                    self.ups[at] += 1;
                    self.heard[at].clear();
                }
                News::Down => self.downs[at] += 1,
                News::Message(text) => self.heard[at].push(text),
            }
        }
    }
}

fn numbers(through: u32) -> Vec<String> {
    (1..=through).map(|number| number.to_string()).collect()
}

#[test]
fn every_message_arrives_once_and_in_order() {
    let mut pair = Pair::new();
    assert_eq!(pair.ups, [1, 1]);
    for text in numbers(200) {
        pair.say(0, &text);
        pair.say(1, &text);
    }
    pair.live(60);
    assert_eq!(pair.heard, [numbers(200), numbers(200)]);
    assert_eq!((pair.ups, pair.downs), ([1, 1], [0, 0]), "loss alone ends no connection");
}

#[test]
fn a_cut_ends_it_at_both_ends_and_nothing_of_the_old_one_arrives_in_the_new_one() {
    let mut pair = Pair::new();
    pair.is_cut = true;
    pair.say(0, "lost");
    pair.live(40);
    assert_eq!(pair.downs, [1, 0], "who waits for an answer notices");
    pair.is_cut = false;
    pair.live(10);
    assert_eq!((pair.downs, pair.ups), ([1, 1], [2, 2]), "and the other end hears of it before it hears anything new");
    pair.say(0, "new");
    pair.live(10);
    assert_eq!(pair.heard[1], ["new"]);
}

#[test]
fn a_peer_that_was_reborn_is_a_new_connection() {
    let mut pair = Pair::new();
    pair.say(0, "before");
    pair.live(10);
    pair.ends[1] = Connections::new(2, [ENDS[0]]);
    pair.live(10);
    assert_eq!((pair.downs[0], pair.ups[0]), (1, 2));
    pair.say(1, "reborn");
    pair.live(10);
    assert_eq!(pair.heard[0], ["reborn"]);
}

#[test]
fn a_message_without_a_connection_is_lost_and_strangers_come_to_nothing() {
    let mut alone = Connections::new(1, [ENDS[1]]);
    assert_eq!(alone.send(0, ENDS[1], "early".into()), None);
    assert_eq!(alone.send(0, NodeId(9), "to nobody".into()), None);
    let stranger = Packet { from: 1, to: 1, is_up: false, acknowledged: 0, message: None };
    assert_eq!(alone.on_packet(0, NodeId(9), stranger), (Vec::new(), None));
}

/// Two ends that know that a round trip takes 20 ms; gives the time.
fn acquainted(one: &mut Connections, other: &mut Connections) -> u64 {
    let mut now = 0;
    let mut trip = |message: &str| {
        let there = one.send(now, ENDS[1], message.into());
        now += 10_000;
        let back = match there {
            Some(packet) => {
                other.on_packet(now, ENDS[0], packet);
                other.send(now, ENDS[0], "heard".into())
            }
            // No connection stands yet: both introduce themselves, and then it does.
            None => {
                let (_, mut asks) = one.on_tick(now);
                let answer = asks.pop().and_then(|(_, packet)| other.on_packet(now, ENDS[0], packet).1);
                answer
                    .and_then(|packet| one.on_packet(now, ENDS[1], packet).1)
                    .and_then(|packet| other.on_packet(now, ENDS[0], packet).1)
            }
        };
        now += 10_000;
        back.map(|packet| one.on_packet(now, ENDS[1], packet));
    };
    (0..50).for_each(|number| trip(&number.to_string()));
    now
}

fn two_ends() -> (Connections, Connections) {
    (Connections::new(1, [ENDS[1]]), Connections::new(1, [ENDS[0]]))
}

#[test]
fn what_stands_behind_a_lost_message_waits_for_little_more_than_a_round_trip() {
    let (mut one, mut other) = two_ends();
    let now = acquainted(&mut one, &mut other);
    one.send(now, ENDS[1], "lost".into()).expect("a connection stands");
    let behind = one.send(now + 20_000, ENDS[1], "behind it".into()).expect("a connection stands");
    let (news, gap) = other.on_packet(now + 30_000, ENDS[0], behind);
    assert_eq!(news, [], "nothing is delivered out of order");
    let (_, again) = one.on_packet(now + 40_000, ENDS[1], gap.expect("a gap is told at once"));
    let (news, _) = other.on_packet(now + 50_000, ENDS[0], again.expect("and filled at once"));
    assert_eq!(news, ["lost", "behind it"].map(|text| News::Message(text.into())));
}

#[test]
fn what_a_cut_swallowed_is_repeated_as_soon_as_the_peer_is_heard_again() {
    let (mut one, mut other) = two_ends();
    let now = acquainted(&mut one, &mut other);
    one.send(now, ENDS[1], "swallowed".into()).expect("a connection stands");
    // Repeated in vain a moment ago: by the clock alone it is not due.
    let healed = now + 900_000;
    assert_eq!(one.on_tick(healed - 30_000).1.len(), 1);
    let heard = other.send(healed - 10_000, ENDS[0], "hello".into()).expect("a connection stands");
    let (_, again) = one.on_packet(healed, ENDS[1], heard);
    let (news, _) = other.on_packet(healed + 10_000, ENDS[0], again.expect("who speaks is told what it missed"));
    assert_eq!(news, [News::Message("swallowed".into())]);
}
