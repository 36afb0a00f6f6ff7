//! Goal: what a connection promises holds over a network that loses, repeats and reorders: each message once, in order,
//! without a gap, until both ends hear that it is down. Method: two ends, one bag of packets, a dice.

use hustings_core::NodeId;
use hustings_maelstrom::connection::{Connections, News, Packet, TICK};

const ENDS: [NodeId; 2] = [NodeId(1), NodeId(2)];

struct Pair {
    ends: [Connections; 2],
    bag: Vec<(usize, Packet)>,
    /// What each end heard since its connection came up.
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

    /// So many ticks, with whatever travels meanwhile; a fifth is lost, a fifth is repeated, order is chance.
    fn live(&mut self, ticks: u64) {
        for _ in 0..ticks {
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
