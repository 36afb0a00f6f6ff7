//! One storm under one protocol, in figures: [`measure`]. So protocols can be laid side by side.
//!
//! A *reign* is a time in which one member leads, runs, and reaches a quorum both ways. An election is the gap between two
//! reigns, however it came about: from the moment when the cluster could no longer have a leader's service to the moment when
//! it could again, with the messages that crossed the network meanwhile.
//!
//! It deliberately judges no headline: what a storm expects of a protocol is the business of its transcript. Safety is judged
//! here as everywhere.

use crate::command::Command;
use crate::digested::Service;
use crate::panics::caught;
use crate::script::Script;
use crate::world::World;
use hustings_core::quorum::Verdict;
use hustings_core::{NodeId, Protocol, Role, Term};
use hustings_properties::Violation;

/// A gap between two reigns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// Duration of the gap, in microseconds.
    pub micros: u64,
    /// Messages sent in the gap.
    pub messages: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Whether somebody else leads afterwards, or the same member anew.
    pub is_change: bool,
}

/// A storm under a protocol.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Gaps that ended, in order; the one before the first reign is the first.
    pub gaps: Vec<Gap>,
    /// Microseconds of a gap that had not ended when the storm had.
    pub unended: u64,
    /// Virtual microseconds simulated altogether.
    pub simulated: u64,
    /// Microseconds without any reign, after the first had begun.
    pub leaderless: u64,
    /// All messages, and their bytes on the wire.
    pub messages: u64,
    /// Bytes of all messages.
    pub bytes: u64,
    /// Syncs of all disks.
    pub syncs: u64,
    /// Entries applied by the member that has applied the most.
    pub committed: u64,
    /// Operations of clients that ended well.
    pub completed: u64,
    /// The property that was violated, if one was.
    pub violation: Option<Violation>,
}

impl Figures {
    /// Times that leadership passed from one member, or one term of it, to another.
    pub fn leader_changes(&self) -> u64 {
        self.gaps.iter().skip(1).filter(|gap| gap.is_change).count() as u64
    }
}

/// The state of the watch while a storm goes by.
struct Watch {
    figures: Figures,
    reign: Option<(NodeId, Term)>,
    /// The last reign that ended.
    before: Option<(NodeId, Term)>,
    /// Time, messages and bytes at which the present gap began.
    since: (u64, u64, u64),
}

impl Watch {
    fn look<P: Protocol, S: Service>(&mut self, world: &World<P, S>) {
        let reign = world.reign();
        if reign == self.reign {
            return;
        }
        let now = (world.now(), world.counts.messages, world.counts.bytes);
        if self.reign.is_some() {
            self.before = self.reign;
            self.since = now;
        }
        if reign.is_some() {
            let (micros, messages, bytes) = (now.0 - self.since.0, now.1 - self.since.1, now.2 - self.since.2);
            // Before the first reign there was nothing to lose: that gap is told, and not counted as time without a leader.
            if !self.figures.gaps.is_empty() {
                self.figures.leaderless += micros;
            }
            self.figures.gaps.push(Gap { micros, messages, bytes, is_change: reign != self.before });
        }
        self.reign = reign;
    }
}

/// Plays a storm under a protocol. Its expectations are left out: they are what one seed and one protocol promised.
pub fn measure<P: Protocol, S: Service>(script: &Script, options: &P::Options) -> Figures {
    let mut watch = Watch { figures: Figures::default(), reign: None, before: None, since: (0, 0, 0) };
    let mut world: Option<World<P, S>> = None;
    let verdict = caught(|| -> Result<(), Violation> {
        let world = world.insert(World::new(script.settings.clone(), options.clone())?);
        world.weighs_messages = true;
        for command in &script.commands {
            match command {
                Command::Expect(_) => {}
                Command::Wait(micros) => pass(world, world.now() + micros, &mut watch)?,
                Command::Settle(micros) => {
                    let deadline = world.now() + micros;
                    while world.now() < deadline && !world.is_settled() {
                        pass(world, world.now() + 10_000, &mut watch)?;
                    }
                }
                command => {
                    world.apply(command)?;
                    watch.look(world);
                }
            }
        }
        hustings_properties::check(&world.history()).map_err(|story| Violation::of("linearizable", story.to_string()))
    });
    let mut figures = watch.figures;
    figures.violation = verdict.unwrap_or_else(|words| Err(Violation::of("assertions", words))).err();
    let Some(world) = world else { return figures };
    if watch.reign.is_none() {
        figures.unended = world.now() - watch.since.0;
        figures.leaderless += figures.unended;
    }
    figures.simulated = world.now();
    figures.messages = world.counts.messages;
    figures.bytes = world.counts.bytes;
    figures.syncs = world.counts.syncs;
    figures.completed = world.counts.completed;
    figures.committed = world.highest_applied();
    figures
}

fn pass<P: Protocol, S: Service>(world: &mut World<P, S>, until: u64, watch: &mut Watch) -> Result<(), Violation> {
    while world.is_due(until) {
        world.run_one()?;
        watch.look(world);
    }
    world.run_until(until)
}

impl<P: Protocol, S: Service> World<P, S> {
    /// The reign that can serve: the leader of the highest term, running, and within reach of a quorum both ways.
    pub fn reign(&self) -> Option<(NodeId, Term)> {
        let mut best: Option<(NodeId, Term)> = None;
        for (at, machine) in self.machines.iter().enumerate() {
            let Some(replica) = machine.replica.as_ref().filter(|replica| replica.role() == Role::Leader) else {
                continue;
            };
            let term = replica.status().term;
            if machine.is_paused || best.is_some_and(|(_, other)| other >= term) {
                continue;
            }
            let is_reached = |id: NodeId| {
                let Some(peer) = self.position(id) else { return Some(false) };
                let machine = &self.machines[peer];
                let is_mute = self.network.is_cut(at, peer) || self.network.is_cut(peer, at);
                Some(peer == at || (machine.is_up() && !machine.is_paused && !is_mute))
            };
            if replica.membership().verdict(is_reached) == Verdict::Won {
                best = Some((machine.id, term));
            }
        }
        best
    }

    /// The highest index that any member applied in its present life.
    pub fn highest_applied(&self) -> u64 {
        let applied = self.machines.iter().filter_map(|machine| machine.replica.as_ref());
        applied.map(|replica| replica.applied().index).max().unwrap_or_default()
    }
}
