//! Breadth first, by as many threads as there are: [`explore`].
//!
//! Worlds of one depth are expanded before any of the next, so the first violation found has a shortest trace. Of a visited world
//! its fingerprint and its parent's are kept (24 bytes, and the table's slack); the trace is found again by walking the
//! parents from the beginning. Two worlds with the same 128-bit fingerprint would be taken for one; among 10^9 worlds the
//! chance of that is below 2^-68.

use super::Bounds;
use super::state::{Explorer, Space, WorldState};
use super::table::FastMap;
use hustings_core::Protocol;
use hustings_properties::Violation;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const SHARDS: usize = 256;
/// Worlds that a thread expands at a time.
const CHUNK: usize = 2_048;
/// Bytes of an entry of the visited set, with the table's slack.
const VISITED_BYTES: u64 = 48;

/// The search so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Steps from the beginning.
    pub depth: u64,
    /// Worlds visited so far.
    pub states: u64,
    /// Worlds of this depth.
    pub frontier: u64,
    /// Bytes of the visited set and the frontier, about.
    pub bytes: u64,
}

/// A way from the beginning to a world.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// Inputs, in order, as text.
    pub steps: Vec<String>,
    /// One line for each member's state at the end.
    pub end: Vec<String>,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Found {
    /// Number of different worlds that were visited.
    pub states: u64,
    /// Number of steps that were taken from world to world.
    pub transitions: u64,
    /// The longest way from the beginning to a world, in steps.
    pub depth: u64,
    /// The property that does not hold, with a shortest trace to it.
    pub violation: Option<(Violation, Trace)>,
    /// The bound that ended the search before all was seen; `None` if it is complete.
    pub incomplete: Option<String>,
    /// Names of things that should happen somewhere, and in how many worlds they do.
    pub sometimes: Vec<(&'static str, u64)>,
    /// Worlds that were continued fairly, and served in the end.
    pub eventually: u64,
    /// Duration of the search.
    pub took: Duration,
    /// Member states and in-flight messages stored.
    pub stored: (usize, usize),
    /// Bytes per world of visited set and frontier at the largest.
    pub bytes_max: u64,
}

type Shard = Mutex<FastMap<u128, u64>>;

struct Search<'a, P: Protocol> {
    space: &'a Space<P>,
    visited: Vec<Shard>,
    states: AtomicU64,
    transitions: AtomicU64,
    is_over: AtomicBool,
    violation: Mutex<Option<(Violation, u128, String)>>,
    eventually: AtomicU64,
    counts: [AtomicU64; 6],
}

/// The last one is told where there are witnesses.
const SIGHTS: [&str; 6] = [
    "somebody leads",
    "the last term has a leader",
    "an entry is committed",
    "two terms had leaders",
    "somebody is down while somebody leads",
    "a witness leads",
];

impl<P: Protocol> Search<'_, P> {
    /// Notes a world; says whether it is new.
    fn visit(&self, fingerprint: u128, parent: u128) -> bool {
        let shard = &self.visited[(fingerprint >> 120) as usize % SHARDS];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        match shard.entry(fingerprint) {
            std::collections::hash_map::Entry::Occupied(_) => false,
            std::collections::hash_map::Entry::Vacant(vacant) => {
                vacant.insert(parent as u64);
                self.states.fetch_add(1, Ordering::Relaxed);
                true
            }
        }
    }

    fn see(&self, explorer: &mut Explorer<'_, P>, row: &WorldState) {
        let sights = explorer.sights(row);
        let truths = [
            sights.leads,
            sights.leads_last_term,
            sights.committed > 0,
            sights.leaders > 1,
            sights.is_down && sights.leads,
            sights.witness_leads,
        ];
        for (count, is_true) in self.counts.iter().zip(truths) {
            if is_true {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Expands these worlds; gives back the new ones.
    fn expand(&self, explorer: &mut Explorer<'_, P>, rows: &[WorldState]) -> Vec<WorldState> {
        let mut fresh = Vec::new();
        for row in rows {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let parent = row.fingerprint();
            let mut transitions = 0;
            let result = explorer.successors(row, |successor| {
                transitions += 1;
                if self.visit(successor.row.fingerprint(), parent) {
                    fresh.push(successor.row);
                }
            });
            self.transitions.fetch_add(transitions, Ordering::Relaxed);
            if let Err(wrong) = result {
                let (violation, at, input, way) = *wrong;
                let last = explorer.text(row, at, input, way);
                let mut found = self.violation.lock().unwrap_or_else(PoisonError::into_inner);
                found.get_or_insert((violation, parent, last));
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
        for row in &fresh {
            self.see(explorer, row);
            self.go_on_fairly(row);
        }
        fresh
    }

    /// One world in so many is asked what comes of it when nothing more goes wrong.
    fn go_on_fairly(&self, row: &WorldState) {
        let (fingerprint, every) = (row.fingerprint(), self.space.bounds.fair_every);
        if every == 0 || !((fingerprint >> 64) as u64).is_multiple_of(every) {
            return;
        }
        let space = self.space;
        let members = row.members.iter().map(|member| (*space.members.value(*member)).clone()).collect();
        let in_flight = row.in_flight.iter().map(|message| (*space.in_flight.value(*message)).clone()).collect();
        match super::fair::serves(members, in_flight, &space.bounds, &space.options) {
            Ok(()) => drop(self.eventually.fetch_add(1, Ordering::Relaxed)),
            Err(violation) => {
                let last = "# from here on nothing goes wrong".to_string();
                let mut found = self.violation.lock().unwrap_or_else(PoisonError::into_inner);
                found.get_or_insert((violation, fingerprint, last));
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The way to a world, by its fingerprint.
    fn trace(&self, to: u128) -> Vec<u64> {
        let mut way = vec![to as u64];
        let parents: FastMap<u64, u64> = self
            .visited
            .iter()
            .flat_map(|shard| {
                let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
                shard.iter().map(|(world, parent)| (*world as u64, *parent)).collect::<Vec<_>>()
            })
            .collect();
        while let Some(parent) = way.last().and_then(|world| parents.get(world)).filter(|parent| **parent != 0) {
            way.push(*parent);
        }
        way.reverse();
        way
    }

    fn tell(&self, explorer: &mut Explorer<'_, P>, first: WorldState, to: u128, last: String) -> Trace {
        let way = self.trace(to);
        let mut row = first;
        let mut steps = Vec::new();
        for world in way.into_iter().skip(1) {
            let mut next = None;
            // A violation further on does not matter here.
            let _ = explorer.successors(&row, |successor| {
                if next.is_none() && successor.row.fingerprint() as u64 == world {
                    next = Some(successor);
                }
            });
            let Some(successor) = next else { break };
            steps.push(explorer.text(&row, successor.at, successor.input, successor.way));
            row = successor.row;
        }
        steps.push(last);
        let end = explorer.describe(&row);
        Trace { steps, end }
    }
}

/// Time between two reports of progress within a depth.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Explores everything within the bounds, `threads` at a time; `goes_on` is told of its progress now and then, and says whether it goes on.
pub fn explore<P: Protocol + Sync>(
    bounds: &Bounds,
    options: &P::Options,
    threads: usize,
    mut goes_on: impl FnMut(Progress) -> bool,
) -> Found
where
    P::Options: Sync,
    P::Message: Sync,
    P::Timer: Sync,
{
    let start = Instant::now();
    let space: Space<P> = Space::new(bounds.clone(), options.clone());
    let search = Search {
        space: &space,
        visited: (0..SHARDS).map(|_| Mutex::default()).collect(),
        states: AtomicU64::new(0),
        transitions: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        violation: Mutex::new(None),
        eventually: AtomicU64::new(0),
        counts: Default::default(),
    };
    let mut found = Found {
        states: 0,
        transitions: 0,
        depth: 0,
        violation: None,
        incomplete: None,
        sometimes: Vec::new(),
        eventually: 0,
        took: Duration::ZERO,
        stored: (0, 0),
        bytes_max: 0,
    };
    let mut explorer = Explorer::new(search.space);
    let first = match explorer.first() {
        Ok(first) => first,
        Err(violation) => {
            found.violation = Some((violation, Trace { steps: Vec::new(), end: Vec::new() }));
            return found;
        }
    };
    search.visit(first.fingerprint(), 0);
    std::thread::scope(|scope| {
        let (jobs, waiting) = std::sync::mpsc::channel::<Vec<WorldState>>();
        let (results, arrivals) = std::sync::mpsc::channel::<Vec<WorldState>>();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..threads.max(1) {
            let (waiting, results, search) = (waiting.clone(), results.clone(), &search);
            scope.spawn(move || {
                // A thread keeps what it has looked up for all of the search.
                let mut explorer = Explorer::new(search.space);
                loop {
                    let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(rows) = job else { return };
                    if results.send(search.expand(&mut explorer, &rows)).is_err() {
                        return;
                    }
                }
            });
        }
        let mut frontier = vec![first.clone()];
        let mut told = Instant::now();
        while !frontier.is_empty() && !search.is_over.load(Ordering::Relaxed) {
            let mut chunks = 0;
            while !frontier.is_empty() {
                let chunk = frontier.split_off(frontier.len().saturating_sub(CHUNK));
                chunks += 1;
                // The workers live as long as this scope does.
                let _ = jobs.send(chunk);
            }
            let progress = |depth: u64, frontier: &[WorldState]| {
                let states = search.states.load(Ordering::Relaxed);
                let waiting = frontier.first().map_or(0, |row| row.bytes() as u64) * frontier.len() as u64;
                Progress { depth, states, frontier: frontier.len() as u64, bytes: states * VISITED_BYTES + waiting }
            };
            let mut is_wanted = true;
            for fresh in arrivals.iter().take(chunks) {
                frontier.extend(fresh);
                // A depth may take minutes.
                if told.elapsed() >= TELL_EVERY && is_wanted {
                    told = Instant::now();
                    is_wanted = goes_on(progress(found.depth, &frontier));
                    // The rest of its jobs come back undone.
                    search.is_over.fetch_or(!is_wanted, Ordering::Relaxed);
                }
            }
            found.depth += u64::from(!frontier.is_empty());
            let so_far = progress(found.depth, &frontier);
            let (states, bytes) = (so_far.states, so_far.bytes);
            found.bytes_max = found.bytes_max.max(bytes);
            found.incomplete = match is_wanted && goes_on(so_far) {
                true => beyond(bounds, states, frontier.len(), bytes),
                false => Some(format!("interrupted: {states} worlds were seen, and {} wait at least", frontier.len())),
            };
            if found.incomplete.is_some() {
                break;
            }
        }
        drop(jobs);
    });
    found.states = search.states.load(Ordering::Relaxed);
    found.transitions = search.transitions.load(Ordering::Relaxed);
    let told = if bounds.witnesses == 0 { &SIGHTS[..SIGHTS.len() - 1] } else { &SIGHTS };
    found.sometimes =
        told.iter().zip(&search.counts).map(|(name, count)| (*name, count.load(Ordering::Relaxed))).collect();
    found.eventually = search.eventually.load(Ordering::Relaxed);
    found.stored = space.stored();
    let violation = search.violation.lock().unwrap_or_else(PoisonError::into_inner).take();
    found.violation = violation.map(|(violation, at, last)| {
        let trace = search.tell(&mut explorer, first, at, last);
        (violation, trace)
    });
    found.took = start.elapsed();
    found
}

/// The bound that ends the search here, in words; `None` if there is none.
fn beyond(bounds: &Bounds, states: u64, waiting: usize, bytes: u64) -> Option<String> {
    if waiting == 0 {
        return None;
    }
    if bounds.states_max > 0 && states >= bounds.states_max {
        return Some(format!("{states} worlds were seen, and no more were wanted; {waiting} wait"));
    }
    (bytes > bounds.bytes_max).then(|| {
        format!(
            "{states} worlds and {waiting} that wait take {} MiB, and {} are allowed; lower --terms, --crashes, --proposals \
             or --fires, or raise --memory",
            bytes >> 20,
            bounds.bytes_max >> 20
        )
    })
}
