//! The order in which transactions must come, and whether it has a circle: [`Graph`].

use super::transactions::Transaction;
use hustings_properties::Violation;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The reason why one transaction comes before another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Edge {
    /// It wrote a version, the other the next one.
    WriteWrite,
    /// It wrote what the other read.
    WriteRead,
    /// It read the version that the other replaced.
    ReadWrite,
    /// It had ended before the other began.
    RealTime,
}

impl Edge {
    /// The name of the edge in a story.
    pub fn name(self) -> &'static str {
        match self {
            Edge::WriteWrite => "ww",
            Edge::WriteRead => "wr",
            Edge::ReadWrite => "rw",
            Edge::RealTime => "realtime",
        }
    }
}

/// The order of transactions, by their positions.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    edges: BTreeMap<usize, BTreeSet<(usize, Edge)>>,
}

impl Graph {
    /// Adds an edge; none from a transaction to itself.
    pub fn add(&mut self, from: usize, edge: Edge, to: usize) {
        if from != to {
            self.edges.entry(from).or_default().insert((to, edge));
        }
    }

    /// Adds what real time says, from (began, ended) of each transaction; one that never ended comes before nothing.
    ///
    /// Only edges that no others imply are added: of a transaction that had ended, none to those that began after a later one
    /// had both begun after it and ended.
    pub fn add_real_time(&mut self, spans: &[(u64, Option<u64>)]) {
        let mut moments: Vec<(u64, bool, usize)> = Vec::new();
        for (position, (began, ended)) in spans.iter().enumerate() {
            moments.push((*began, false, position));
            moments.extend(ended.map(|ended| (ended, true, position)));
        }
        moments.sort_unstable();
        let mut ended_last: BTreeSet<usize> = BTreeSet::new();
        let mut before: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (_, is_end, position) in moments {
            if is_end {
                for implied in before.remove(&position).unwrap_or_default() {
                    ended_last.remove(&implied);
                }
                ended_last.insert(position);
            } else {
                ended_last.iter().for_each(|earlier| self.add(*earlier, Edge::RealTime, position));
                before.insert(position, ended_last.clone());
            }
        }
    }

    /// A shortest circle of the allowed edges.
    pub fn circle(&self, allowed: &[Edge]) -> Option<Vec<(usize, Edge)>> {
        let circular = self.circular(allowed);
        circular.iter().filter_map(|start| self.circle_from(*start, allowed, &circular)).min_by_key(Vec::len)
    }

    /// A shortest way from `start` back to it.
    fn circle_from(&self, start: usize, allowed: &[Edge], within: &BTreeSet<usize>) -> Option<Vec<(usize, Edge)>> {
        let mut came: BTreeMap<usize, (usize, Edge)> = BTreeMap::new();
        let mut waiting = VecDeque::from([start]);
        while let Some(at) = waiting.pop_front() {
            for (to, edge) in self.out(at, allowed).filter(|(to, _)| within.contains(to)) {
                if to == start {
                    let mut way = vec![(at, edge)];
                    let mut back = at;
                    while back != start {
                        way.push(came[&back]);
                        back = came[&back].0;
                    }
                    way.reverse();
                    return Some(way);
                }
                if to != start && !came.contains_key(&to) {
                    came.insert(to, (at, edge));
                    waiting.push_back(to);
                }
            }
        }
        None
    }

    fn out<'a>(&'a self, from: usize, allowed: &'a [Edge]) -> impl Iterator<Item = (usize, Edge)> + 'a {
        self.edges.get(&from).into_iter().flatten().copied().filter(|(_, edge)| allowed.contains(edge))
    }

    /// The transactions that are left when all that have nothing before them, or nothing after them, are taken away
    /// again and again: every circle is among them, and there are none left if and only if there is no circle.
    fn circular(&self, allowed: &[Edge]) -> BTreeSet<usize> {
        let mut into: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut out: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for from in self.edges.keys() {
            for (to, _) in self.out(*from, allowed) {
                out.entry(*from).or_default().push(to);
                into.entry(to).or_default().push(*from);
            }
        }
        let mut left: BTreeSet<usize> = into.keys().chain(out.keys()).copied().collect();
        for (behind, ahead) in [(&into, &out), (&out, &into)] {
            let mut degrees: BTreeMap<usize, usize> = left
                .iter()
                .map(|at| (*at, behind.get(at).into_iter().flatten().filter(|other| left.contains(other)).count()))
                .collect();
            let mut free: Vec<usize> = degrees.iter().filter(|(_, count)| **count == 0).map(|(at, _)| *at).collect();
            while let Some(at) = free.pop() {
                left.remove(&at);
                for next in ahead.get(&at).into_iter().flatten() {
                    let Some(count) = degrees.get_mut(next).filter(|count| **count > 0) else { continue };
                    *count -= 1;
                    if *count == 0 {
                        free.push(*next);
                    }
                }
            }
        }
        left
    }
}

/// The smallest sets of edges first, so that a circle is called by the worst name that it deserves.
pub(super) fn judge_circles(transactions: &[Transaction], graph: &Graph) -> Option<Violation> {
    use Edge::{ReadWrite, RealTime, WriteRead, WriteWrite};
    let sets: [(&[Edge], &'static str); 6] = [
        (&[WriteWrite], "G0"),
        (&[WriteWrite, WriteRead], "G1c"),
        (&[WriteWrite, RealTime], "G0-realtime"),
        (&[WriteWrite, WriteRead, RealTime], "G1c-realtime"),
        (&[WriteWrite, WriteRead, ReadWrite], "G2"),
        (&[WriteWrite, WriteRead, ReadWrite, RealTime], "G2-realtime"),
    ];
    sets.into_iter().find_map(|(allowed, name)| {
        let circle = graph.circle(allowed)?;
        let anti = circle.iter().filter(|(_, edge)| *edge == ReadWrite).count();
        let property = match (name, anti) {
            ("G2", 1) => "G-single",
            ("G2-realtime", 1) => "G-single-realtime",
            (name, _) => name,
        };
        let story: Vec<String> =
            circle.iter().map(|(at, edge)| format!("{} ─{}→ ", transactions[*at], edge.name())).collect();
        Some(Violation { property, what: format!("{}the first again", story.concat()) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_adds_what_no_other_edge_implies() {
        let mut graph = Graph::default();
        graph.add_real_time(&[(1, Some(2)), (3, Some(4)), (5, Some(6)), (1, None)]);
        let edges: Vec<_> = graph.edges.iter().flat_map(|(from, to)| to.iter().map(|to| (*from, to.0))).collect();
        assert_eq!(edges, [(0, 1), (1, 2)]);
    }

    #[test]
    fn a_circle_is_found_however_long_the_tails_are() {
        let mut graph = Graph::default();
        for step in 0..100 {
            graph.add(step, Edge::RealTime, step + 1);
        }
        assert_eq!(graph.circle(&[Edge::RealTime]), None);
        graph.add(60, Edge::ReadWrite, 58);
        assert_eq!(graph.circle(&[Edge::RealTime]), None);
        let circle = graph.circle(&[Edge::RealTime, Edge::ReadWrite]).unwrap();
        assert_eq!(circle.len(), 3);
    }
}
