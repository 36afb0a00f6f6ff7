//! Faults and their times: [`Schedule`], [`Move`].
//!
//! Every nemesis alternates between starting its fault and ending it. The first starts at once, each further move follows
//! after a uniform draw from nothing to twice the interval. Source: `docs/protocols/rules/maelstrom.md`, §3.8.

use super::settings::{Nemesis, Settings, Targets};
use crate::dice::Dice;
use std::collections::BTreeSet;

/// Share of the messages that a lossy or a doubling network takes.
pub const MESSAGE_FAULTS: f64 = 0.2;

/// One thing that is done to the cluster.
#[derive(Clone, PartialEq, Debug)]
pub enum Move {
    /// For each node, the nodes whose messages it refuses; with the nemesis and the name of the pattern.
    Cut(Nemesis, &'static str, Vec<BTreeSet<usize>>),
    /// Nobody refuses anybody because of this nemesis.
    Heal(Nemesis),
    /// These processes are killed; the flag says whether with the power.
    Kill(Vec<usize>, bool),
    /// These processes start again.
    Restart(Vec<usize>),
    /// These processes are stopped.
    Pause(Vec<usize>),
    /// These processes go on.
    Resume(Vec<usize>),
    /// This part of the messages is lost.
    Lose(f64),
    /// This part of the messages arrives twice.
    Double(f64),
}

impl Move {
    /// The name under which a fault is counted; `None` for what ends one.
    pub fn kind(&self) -> Option<&'static str> {
        match self {
            Move::Cut(Nemesis::OneWay, ..) => Some("one-way"),
            Move::Cut(..) => Some("partition"),
            Move::Kill(_, false) => Some("kill"),
            Move::Kill(_, true) => Some("power"),
            Move::Pause(_) => Some("pause"),
            Move::Lose(part) if *part > 0.0 => Some("loss"),
            Move::Double(part) if *part > 0.0 => Some("duplicate"),
            Move::Heal(_) | Move::Restart(_) | Move::Resume(_) | Move::Lose(_) | Move::Double(_) => None,
        }
    }
}

impl std::fmt::Display for Move {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = |nodes: &[usize]| nodes.iter().map(|node| format!("n{node}")).collect::<Vec<_>>().join(" ");
        match self {
            Move::Cut(_, pattern, refused) => {
                write!(f, "cut {pattern}:")?;
                for (node, from) in refused.iter().enumerate().filter(|(_, from)| !from.is_empty()) {
                    write!(f, " n{node} refuses {{{}}}", names(&from.iter().copied().collect::<Vec<_>>()))?;
                }
                Ok(())
            }
            Move::Heal(nemesis) => write!(f, "heal {nemesis}"),
            Move::Kill(nodes, false) => write!(f, "kill {}", names(nodes)),
            Move::Kill(nodes, true) => write!(f, "cut the power of {}", names(nodes)),
            Move::Restart(nodes) => write!(f, "restart {}", names(nodes)),
            Move::Pause(nodes) => write!(f, "pause {}", names(nodes)),
            Move::Resume(nodes) => write!(f, "resume {}", names(nodes)),
            Move::Lose(part) => write!(f, "lose {:.0} % of messages", part * 100.0),
            Move::Double(part) => write!(f, "double {:.0} % of messages", part * 100.0),
        }
    }
}

#[derive(Clone, Debug)]
struct Turn {
    nemesis: Nemesis,
    at: u64,
    /// The move that ends the fault that is on.
    undo: Option<Move>,
}

/// The times at which each nemesis moves.
#[derive(Clone, Debug)]
pub struct Schedule {
    turns: Vec<Turn>,
    nodes: usize,
    interval: u64,
    targets: Targets,
    dice: Dice,
}

impl Schedule {
    /// All nemeses of a run that begins now.
    pub fn new(settings: &Settings, now: u64, dice: Dice) -> Schedule {
        let turns = settings.nemeses.iter().map(|nemesis| Turn { nemesis: *nemesis, at: now, undo: None }).collect();
        let Settings { nodes, nemesis_interval, targets, .. } = *settings;
        Schedule { turns, nodes, interval: nemesis_interval, targets, dice }
    }

    /// Time of the next move; `None` without nemeses.
    pub fn next(&self) -> Option<u64> {
        self.turns.iter().map(|turn| turn.at).min()
    }

    /// The move that is due.
    pub fn due(&mut self, now: u64) -> Option<Move> {
        let position = self.turns.iter().position(|turn| turn.at <= now)?;
        self.turns[position].at = now + self.dice.between(0, 2 * self.interval);
        if let Some(undo) = self.turns[position].undo.take() {
            return Some(undo);
        }
        let (begin, end) = self.draw(self.turns[position].nemesis);
        self.turns[position].undo = Some(end);
        Some(begin)
    }

    /// Ends all faults, for good.
    pub fn end(&mut self) -> Vec<Move> {
        std::mem::take(&mut self.turns).into_iter().filter_map(|turn| turn.undo).collect()
    }

    fn draw(&mut self, nemesis: Nemesis) -> (Move, Move) {
        match nemesis {
            Nemesis::Partition => (self.draw_partition(), Move::Heal(nemesis)),
            Nemesis::OneWay => {
                let pair = self.dice.shuffled((0..self.nodes).collect());
                let mut refused = vec![BTreeSet::new(); self.nodes];
                if let [deaf, mute, ..] = pair[..] {
                    refused[deaf].insert(mute);
                }
                (Move::Cut(nemesis, "one way", refused), Move::Heal(nemesis))
            }
            Nemesis::Kill | Nemesis::Power => {
                let nodes = self.draw_some();
                (Move::Kill(nodes.clone(), nemesis == Nemesis::Power), Move::Restart(nodes))
            }
            Nemesis::Pause => {
                let nodes = self.draw_some();
                (Move::Pause(nodes.clone()), Move::Resume(nodes))
            }
            Nemesis::Loss => (Move::Lose(MESSAGE_FAULTS), Move::Lose(0.0)),
            Nemesis::Duplicate => (Move::Double(MESSAGE_FAULTS), Move::Double(0.0)),
        }
    }

    /// One node, a minority or all.
    fn draw_some(&mut self) -> Vec<usize> {
        let count = match self.dice.below(4) {
            0 | 1 => 1,
            2 => (self.nodes - 1) / 2,
            _ => self.nodes,
        };
        let mut some = self.dice.shuffled((0..self.nodes).collect());
        some.truncate(count.max(1));
        some
    }

    fn draw_partition(&mut self) -> Move {
        let nodes = self.dice.shuffled((0..self.nodes).collect());
        let target = if self.targets == Targets::Rings { 3 } else { self.dice.below(4) };
        match target {
            0 => Move::Cut(Nemesis::Partition, "one", halves(&nodes, 1)),
            // Three nodes have an empty minority, as in the genuine tool.
            1 => Move::Cut(Nemesis::Partition, "minority-third", halves(&nodes, self.nodes.saturating_sub(1) / 3)),
            2 => Move::Cut(Nemesis::Partition, "majority", halves(&nodes, self.nodes / 2)),
            _ => Move::Cut(Nemesis::Partition, "majorities-ring", self.ring(&nodes)),
        }
    }

    /// Each node hears only a majority of its own: up to five of them stand on a ring, and the one in the middle of each
    /// window of a majority hears that window; with more, links are drawn until everyone has a majority.
    fn ring(&mut self, order: &[usize]) -> Vec<BTreeSet<usize>> {
        let count = order.len();
        let majority = count / 2 + 1;
        let everyone: BTreeSet<usize> = order.iter().copied().collect();
        let mut hears = vec![BTreeSet::new(); count];
        if count <= 5 {
            for start in 0..count {
                let window: Vec<usize> = (0..majority).map(|step| order[(start + step) % count]).collect();
                hears[window[majority / 2]].extend(window);
            }
        } else {
            for (node, heard) in hears.iter_mut().enumerate() {
                heard.insert(node);
            }
            while let Some(poor) = (0..count).find(|node| hears[*node].len() < majority) {
                let other = self.dice.index(count);
                hears[poor].insert(other);
                hears[other].insert(poor);
            }
        }
        hears.into_iter().map(|heard| everyone.difference(&heard).copied().collect()).collect()
    }
}

/// The first `count` of these nodes against the rest.
fn halves(nodes: &[usize], count: usize) -> Vec<BTreeSet<usize>> {
    let (few, rest): (BTreeSet<usize>, BTreeSet<usize>) =
        (nodes[..count].iter().copied().collect(), nodes[count..].iter().copied().collect());
    (0..nodes.len()).map(|node| if few.contains(&node) { rest.clone() } else { few.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::settings::Workload;

    fn schedule(nodes: usize) -> Schedule {
        Schedule::new(&Settings::new(Workload::LinKv, nodes, 1), 0, Dice::new(1, 1))
    }

    #[test]
    fn on_a_ring_of_three_every_pair_is_cut_in_exactly_one_direction() {
        let refused = schedule(3).ring(&[2, 0, 1]);
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            assert!(refused[one].contains(&other) != refused[other].contains(&one), "{refused:?}");
        }
    }

    #[test]
    fn on_rings_of_four_and_five_everyone_sees_a_majority_and_all_differ() {
        for nodes in [4, 5] {
            let refused = schedule(nodes).ring(&(0..nodes).collect::<Vec<_>>());
            assert!(refused.iter().all(|refused| nodes - refused.len() > nodes / 2));
            assert_eq!(refused.iter().collect::<BTreeSet<_>>().len(), nodes);
        }
        let refused = schedule(7).ring(&(0..7).collect::<Vec<_>>());
        assert!(refused.iter().all(|refused| refused.len() <= 3));
    }

    #[test]
    fn a_nemesis_alternates_and_ends() {
        let mut settings = Settings::new(Workload::LinKv, 5, 1);
        settings.nemeses.insert(Nemesis::Kill);
        let mut schedule = Schedule::new(&settings, 7, Dice::new(3, 1));
        assert_eq!(schedule.next(), Some(7));
        let Some(Move::Kill(killed, false)) = schedule.due(7) else { panic!("it kills first, and at once") };
        assert_eq!(schedule.due(u64::MAX / 2), Some(Move::Restart(killed)));
        assert!(matches!(schedule.due(u64::MAX / 2 + 30_000_000), Some(Move::Kill(..))));
        assert!(matches!(&schedule.end()[..], [Move::Restart(_)]));
        assert_eq!((schedule.next(), schedule.end()), (None, vec![]));
    }
}
