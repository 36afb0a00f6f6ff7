//! Every way in which members can be connected: [`Graph`], a directed graph in which an edge is a link that works one way.
//!
//! Up to isomorphism there are 16 of three nodes, 218 of four and 9,608 of five: few enough to try them all, which is how
//! partial partitions stop being a matter of luck. Chance only draws which member stands at which node.
//!
//! ```text
//!    n1 ⇄ n2 ⇄ n3     n2 is central: it reaches a majority, and a majority reaches it, in spite of n1 and n3.
//!    n1 → n2 → n3 → n1    nobody is: no leader can serve, whatever the protocol.
//! ```

use crate::command::{Command, Target};
use std::collections::BTreeSet;
use std::fmt;

/// Directed links between `size` nodes, numbered from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Graph {
    size: usize,
    /// The bit `from * size + to` says whether that link works.
    links: u32,
}

/// The consequence of a graph for any protocol with majority quorums.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Oracle {
    /// No node reaches a majority both ways: nothing may be committed.
    MustNot,
    /// Somebody does, and yet others can stand in its way.
    May,
    /// Somebody does, and nobody who is not isolated can stand in its way.
    Must,
}

/// Behaviour of a node that hears no leader while others do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strays {
    /// It asks first whether it could win, and disturbs nobody who is served: a pre-vote, scouting, a low-ball poll.
    AskFirst,
    /// It raises its term, and that of everybody whom it reaches: the leader must begin anew.
    Disturb,
}

impl Graph {
    /// All graphs of so many nodes, one of each shape, in order.
    ///
    /// # Panics
    /// With more than five nodes: there are 1,540,944 shapes of six.
    pub fn shapes(size: usize) -> Vec<Graph> {
        assert!((1..=5).contains(&size), "1 to 5 nodes, not {size}");
        let orders = orders(size);
        let pairs: Vec<(usize, usize)> =
            (0..size).flat_map(|from| (0..size).map(move |to| (from, to))).filter(|(from, to)| from != to).collect();
        let mut seen = vec![false; 1 << pairs.len()];
        let mut shapes = Vec::new();
        for number in 0..1_usize << pairs.len() {
            if seen[number] {
                continue;
            }
            let chosen = pairs.iter().enumerate().filter(|(bit, _)| number >> bit & 1 == 1);
            let links: Vec<(usize, usize)> = chosen.map(|(_, pair)| *pair).collect();
            shapes.push(Graph::of(size, &links));
            for order in &orders {
                let place = |pair: (usize, usize)| pairs.iter().position(|other| *other == pair).unwrap_or(0);
                let moved = links.iter().map(|(from, to)| 1 << place((order[*from], order[*to])));
                seen[moved.sum::<usize>()] = true;
            }
        }
        shapes
    }

    /// The graph with these links.
    pub fn of(size: usize, links: &[(usize, usize)]) -> Graph {
        Graph { size, links: links.iter().map(|(from, to)| 1 << (from * size + to)).sum() }
    }

    /// Whether the link from one to the other works; everybody reaches itself.
    pub fn has(&self, from: usize, to: usize) -> bool {
        from == to || self.links >> (from * self.size + to) & 1 == 1
    }

    /// The shape with its nodes in another order, drawn by this number.
    pub fn relabelled(&self, draw: u64) -> Graph {
        let orders = orders(self.size);
        let order = &orders[(draw % orders.len() as u64) as usize];
        let all = (0..self.size).flat_map(|from| (0..self.size).map(move |to| (from, to)));
        let links: Vec<(usize, usize)> =
            all.filter(|(from, to)| from != to && self.has(*from, *to)).map(|(a, b)| (order[a], order[b])).collect();
        Graph::of(self.size, &links)
    }

    /// The graph in which only links that work both ways remain: what connections are.
    pub fn both_ways(&self) -> Graph {
        let all = (0..self.size).flat_map(|from| (0..self.size).map(move |to| (from, to)));
        let links: Vec<(usize, usize)> = all.filter(|(a, b)| a != b && self.has(*a, *b) && self.has(*b, *a)).collect();
        Graph::of(self.size, &links)
    }

    /// Nodes that reach a majority, themselves included, both ways.
    pub fn central(&self) -> BTreeSet<usize> {
        self.reaching(self.size / 2 + 1)
    }

    /// Nodes that reach so many, themselves included, both ways.
    pub fn reaching(&self, count: usize) -> BTreeSet<usize> {
        let peers = |node: usize| (0..self.size).filter(move |peer| self.has(node, *peer) && self.has(*peer, node));
        (0..self.size).filter(|node| peers(*node).count() >= count).collect()
    }

    /// The consequence of the graph, given what nodes can do that hear no leader themselves.
    pub fn oracle(&self, strays: Strays) -> Oracle {
        let central = self.central();
        if central.is_empty() {
            return Oracle::MustNot;
        }
        let reachable: Vec<usize> = (0..self.size).filter(|node| !self.is_isolated(*node)).collect();
        let is_whole = |node: &usize| reachable.iter().all(|peer| self.has(*node, *peer) && self.has(*peer, *node));
        let must = match strays {
            Strays::AskFirst => central.iter().any(is_whole),
            Strays::Disturb => reachable.iter().all(is_whole),
        };
        if must { Oracle::Must } else { Oracle::May }
    }

    fn is_isolated(&self, node: usize) -> bool {
        (0..self.size).all(|other| other == node || !self.has(node, other) && !self.has(other, node))
    }

    /// The commands that bring a cluster of so many members into this state.
    pub fn commands(&self) -> Vec<Command> {
        let all = (0..self.size).flat_map(|from| (0..self.size).map(move |to| (from, to)));
        let broken = all.filter(|(from, to)| !self.has(*from, *to));
        broken.map(|(from, to)| Command::Mute(Target::Node(from as u64 + 1), Target::Node(to as u64 + 1))).collect()
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        for one in 0..self.size {
            for other in one + 1..self.size {
                let arrow = match (self.has(one, other), self.has(other, one)) {
                    (true, true) => "⇄",
                    (true, false) => "→",
                    (false, true) => "←",
                    (false, false) => continue,
                };
                words.push(format!("n{}{arrow}n{}", one + 1, other + 1));
            }
        }
        f.write_str(if words.is_empty() { "no links".into() } else { words.join(" ") }.as_str())
    }
}

/// All orders of so many nodes.
fn orders(size: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..size {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                let rest: Vec<usize> = (0..size).filter(|node| !order.contains(node)).collect();
                rest.into_iter().map(move |node| [order.clone(), vec![node]].concat())
            })
            .collect();
    }
    orders
}
