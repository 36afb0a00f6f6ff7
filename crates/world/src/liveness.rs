//! The properties that a run must show once its faults are over: [`live`].
//!
//! ```text
//!    faults ──► all is healed: serve ──► one is sick: the others serve, the lock is had, leases end ──► all is well: serve ──► alike, leases end
//! ```
//!
//! Safety is judged after every step and needs no phase of its own. Read next: [`crate::sickness`].

use crate::command::{Command, DiskFault, Target};
use crate::digested::{Digested, Service};
use crate::rivals::HandsOver;
use crate::settings::Settings;
use crate::world::World;
use hustings_core::{Priority, Protocol, Replica};
use hustings_properties::Violation;
use std::collections::BTreeSet;

/// Longest election timeouts within which a healed cluster must serve.
pub const LIVENESS_TIMEOUTS: u64 = 10;

/// Ways of messages without which nobody is elected and commits: those of an asking, a vote and an entry, there and back.
const WAYS: u64 = 6;
/// The least chance, in a million, that is reckoned with.
const CHANCE_MIN: u64 = 20_000;

/// Times that clients are waited for anew while a voter is catching up.
const WINDOWS_MAX: u64 = 20;

/// Longest election timeouts in which leadership is watched while nothing goes wrong anew, and how often it may move: waits that
/// double from four checks of a quorum leave room for fewer, with any of these checks that a protocol has. Each leader counts for itself what
/// was in vain, and of two that take turns each may try as often.
const CALM_TIMEOUTS: u64 = 45;
const MOVES_MAX: u64 = 6;
const MOVES_OF_ANOTHER_MAX: u64 = 4;
/// Longest election timeouts without a move after which it stays where it is: four checks and an election take less.
const REST_TIMEOUTS: u64 = 12;
/// Time for which rivals may be without the lock, in microseconds: each of their steps is lost where it goes to the sick one, four of them
/// make a holder, and a lease of three seconds may have to end first, at a leader that leaves six of log time unwritten.
const LOCK_PATIENCE: u64 = 60_000_000;
/// Longest time of an operation, in microseconds, with which rivals can hold a lock.
const BRISK: u64 = 1_000_000;
/// Longest pause of clients, in microseconds, while it is judged whether they are served.
const PACE: u64 = 500_000;

/// The liveness phase, and what is judged at the end.
pub(crate) fn live<P: Protocol, S: Service>(world: &mut World<P, S>, sick: &[Command]) -> Result<(), Violation> {
    mend().iter().try_for_each(|command| world.apply(command))?;
    world.hasten();
    world.load.begin_peace();
    if !world.has_quorum() {
        // Wiped and refused disks are gone for good, and a majority may be among them: then there is nothing to expect.
        return linearizable(world);
    }
    world.calm_candidates();
    serve(world, "serves-when-healed", "all is healed", World::has_quorum)?;
    world.expect_a_candidate_leads(World::has_quorum)?;
    if !sick.is_empty() {
        beside_the_sick(world, sick)?;
    }
    world.end_load();
    become_alike(world)?;
    // A removal that was under way when all was healed may have left a wiped disk in the majority.
    if world.has_quorum() {
        world.expect_same()?;
        // In half of all runs leadership is handed on all the while: that loses no more than messages take.
        let hands_over = if world.settings.seed % 2 == 1 { HandsOver::Yes } else { HandsOver::No };
        world.expect_leases_end(hands_over)?;
    }
    linearizable(world)
}

/// Lets members catch up: those that have far to go, over links that take a little at a time, for as long as they get on.
fn become_alike<P: Protocol, S: Service>(world: &mut World<P, S>) -> Result<(), Violation> {
    let timeouts = world.settings.election_max() * LIVENESS_TIMEOUTS;
    let mut deadline = world.now() + world.settings.load.patience + timeouts;
    let mut before = world.reached();
    while !(world.is_load_settled() && world.expect_same().is_ok()) {
        if world.now() >= deadline {
            // The member that is furthest behind, perhaps since it joined, must have got on.
            let Some((at, reached)) = world.lowest_applied() else { break };
            if !reached.has_got_on_since(before.get(at).copied().unwrap_or_default()) {
                break;
            }
            (before, deadline) = (world.reached(), world.now() + timeouts);
        }
        world.run_until(world.now() + 50_000)?;
    }
    Ok(())
}

/// Somebody must be served within so many of the longest election timeouts, if that is possible at their end too: a change of
/// membership may have come into force meanwhile.
fn serve<P: Protocol, S: Service>(
    world: &mut World<P, S>,
    property: &'static str,
    state: &str,
    is_possible: fn(&World<P, S>) -> bool,
) -> Result<(), Violation> {
    // Clients that rest for long see nothing of it.
    world.set_pace(world.settings.load.pause.min(PACE));
    let (since, completed) = (world.now(), world.counts.completed);
    let (done, elections) = (world.committed_by_most(), world.counts.elections);
    let timeouts = timeouts_to_serve(world.settings.quality.loss, world.machines.len());
    let allowed = world.settings.election_max() * timeouts;
    // Clients may have asked one that stands still, and wait for it as long as they like.
    let mut deadline = since + world.settings.load.patience + allowed;
    let has_load = world.settings.load.clients > 0;
    let (mut windows, mut voters) = (1, world.voters());
    while has_load && world.counts.completed == completed || world.leader().is_none() {
        if world.now() >= deadline {
            // A voter that the others need may have far to go, over links that take a little at a time.
            let now = world.voters();
            if windows >= WINDOWS_MAX || !voters.are_left_behind_and_got_on(&now) {
                break;
            }
            (windows, voters, deadline) = (windows + 1, now, world.now() + allowed);
        }
        if voters.leader == 0 {
            voters = world.voters();
        }
        world.leave_strangers();
        world.run_until(world.now() + 20_000)?;
    }
    // Where the leader's words take as long as an election, and overtake each other, little is done at a time, and clients may give up
    // before it is their turn. Then nothing stands still if something is committed in each of these timeouts, beside each leader's blank.
    let is_busy =
        world.committed_by_most().saturating_sub(done) >= world.counts.elections - elections + LIVENESS_TIMEOUTS;
    let is_served = world.counts.completed > completed || is_busy && world.has_slow_leader();
    // Where nobody writes it is enough that somebody leads.
    let is_unserved = if has_load { !is_served } else { world.leader().is_none() };
    if is_unserved && is_possible(world) {
        let in_vain = if has_load { "no client got an answer" } else { "nobody led" };
        let what =
            format!("{state} since {} s, and for {timeouts} longest election timeouts {in_vain}", since / 1_000_000,);
        return Err(Violation::of(property, what));
    }
    Ok(())
}

/// Longest election timeouts within which somebody must be served, where so many in a million of all messages are lost: as many times
/// [`LIVENESS_TIMEOUTS`] as elections are called until all messages of one arrive whom a quorum of so many members needs.
fn timeouts_to_serve(loss: u32, members: usize) -> u64 {
    let arrives = 1_000_000 - u64::from(loss).min(1_000_000);
    let ways = (0..members / 2).flat_map(|_| 0..WAYS);
    let chance = ways.fold(1_000_000, |chance, _| chance * arrives / 1_000_000);
    LIVENESS_TIMEOUTS * 1_000_000 / chance.max(CHANCE_MIN)
}

/// The logs of the voters at some moment: last indexes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Voters {
    /// The index at which the shortest log ends.
    pub(crate) lowest: u64,
    /// The index at which the leader's log ends.
    pub(crate) leader: u64,
}

impl Voters {
    /// Whether one that lacked entries lacks some of them still, and got on: it is waited for as long as it does so.
    fn are_left_behind_and_got_on(self, now: &Voters) -> bool {
        now.lowest < self.leader && now.lowest >= self.lowest + LIVENESS_TIMEOUTS
    }
}

/// How far a member has got; zeros for one that does not run.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Reached {
    /// The last index that it has applied.
    pub(crate) applied: u64,
    /// The last index of the snapshot that it fetches, and the bytes that have come.
    fetched: (u64, u64),
}

impl Reached {
    pub(crate) fn of<P: Protocol, S: Service>(replica: &Replica<P, Digested<S>>) -> Reached {
        Reached { applied: replica.applied().index, fetched: replica.fetched() }
    }

    /// Whether it is getting on. A snapshot comes a chunk at a time, and each that is lost costs an election timeout; the same one from its
    /// beginning again is no progress.
    fn has_got_on_since(self, before: Reached) -> bool {
        self.applied >= before.applied + LIVENESS_TIMEOUTS || self.fetched > before.fetched
    }
}

/// Somebody falls sick and stays so; the others are a connected majority, and serve.
fn beside_the_sick<P: Protocol, S: Service>(world: &mut World<P, S>, sick: &[Command]) -> Result<(), Violation> {
    sick.iter().try_for_each(|command| world.apply(command))?;
    let names: Vec<String> = sick.iter().map(Command::to_string).collect();
    if world.has_quorum_beside_the_sick() {
        // Requests under way with the sick one are done or given up first; then it is the others' turn.
        world.run_until(world.now() + world.settings.election_max() * 2)?;
        let state = format!("`{}` holds", names.join("; "));
        serve(world, "serves-beside-the-sick", &state, World::has_quorum_beside_the_sick)?;
        stay_calm(world, &state)?;
        lock_is_had(world, &state)?;
        leases_end_beside_the_sick(world)?;
    }
    mend().iter().try_for_each(|command| world.apply(command))?;
    world.hasten();
    serve(world, "serves-when-healed", "the last one is well", World::has_quorum)
}

/// Somebody must come to hold the lock, or hold it on: also where its last holder is gone, and only the end of its lease frees it.
fn lock_is_had<P: Protocol, S: Service>(world: &mut World<P, S>, state: &str) -> Result<(), Violation> {
    if world.settings.load.rivals == 0 {
        return Ok(());
    }
    let since = world.now();
    let (completed, before) = (world.counts.completed, world.rivals_requests());
    let timeouts = timeouts_to_serve(world.settings.quality.loss, world.machines.len());
    let deadline = since + LOCK_PATIENCE + world.settings.election_max() * timeouts;
    while !world.is_lock_held_since(since) && world.now() < deadline {
        world.run_until(world.now() + 100_000)?;
    }
    // A holder needs four answers within its trust in a lease of three seconds: none comes to be where clients wait for longer.
    let (passed, done) = (world.now() - since, world.counts.completed - completed);
    let is_brisk = passed * world.settings.load.clients <= done * (2 * PACE + BRISK);
    // Rivals take no late answer, and a lock needs four in time, one after the other: where each message takes one entry and messages
    // overtake each other, members take one snapshot after the other, or leaders refuse what they have no room for, more than one of
    // four comes late or never. Where none comes at all, something is amiss.
    let now = world.rivals_requests();
    let (asked, in_time) = (now.asked - before.asked, now.in_time - before.in_time);
    let are_late = now.late - before.late > in_time || (in_time > 0 && in_time * 4 < asked * 3);
    let is_brisk = is_brisk && !are_late;
    let is_possible =
        is_brisk && world.has_quorum_beside_the_sick() && !world.has_slow_leader() && world.has_few_strangers();
    if is_possible && !world.is_lock_held_since(since) {
        let what = format!(
            "{state}, {done} operations of others are done, and for {} s no rival got the lock, of whose {asked} requests {in_time} were answered in time",
            passed / 1_000_000
        );
        return Err(Violation::of("serves-beside-the-sick", what));
    }
    Ok(())
}

/// Leases must end, too; in one of four runs, for it takes as long as all else that is judged there.
fn leases_end_beside_the_sick<P: Protocol, S: Service>(world: &mut World<P, S>) -> Result<(), Violation> {
    if world.settings.seed % 4 != 1 {
        return Ok(());
    }
    let told = world.expect_leases_end(HandsOver::No);
    // A leader whose words take a second and more writes down late how much time has passed.
    let is_possible = world.has_quorum_beside_the_sick() && !world.has_slow_leader();
    match told {
        Err(violation) if violation.property == "leases-end" && !is_possible => Ok(()),
        told => told,
    }
}

/// While nothing goes wrong anew, a preference moves leadership ever more rarely: each hand-over costs clients a moment.
fn stay_calm<P: Protocol, S: Service>(world: &mut World<P, S>, state: &str) -> Result<(), Violation> {
    let Settings { priorities, quality, .. } = &world.settings;
    // Loss of messages is something that goes wrong, and may end a reign.
    if !priorities.contains(&Priority::Preferred) || quality.loss > 0 {
        return Ok(());
    }
    let (begun, election) = (world.now(), world.settings.election_max());
    let elections = world.counts.elections;
    let (mut moved, mut moved_at) = (0, begun);
    let mut leaders = BTreeSet::new();
    let moves_max = |leaders: &BTreeSet<_>| {
        MOVES_MAX + MOVES_OF_ANOTHER_MAX * u64::try_from(leaders.len()).unwrap_or(1).saturating_sub(1)
    };
    while moved <= moves_max(&leaders) && world.now() < begun + election * CALM_TIMEOUTS {
        world.run_until(world.now() + election / 4)?;
        leaders.extend(world.leader());
        if world.counts.elections - elections > moved {
            (moved, moved_at) = (world.counts.elections - elections, world.now());
        }
        if world.now() > moved_at + election * REST_TIMEOUTS {
            return Ok(());
        }
    }
    if moved > moves_max(&leaders) && world.has_quorum_beside_the_sick() {
        let what = format!(
            "{state}, nothing else happens, and within {} s {moved} came to lead, one after the other",
            (world.now() - begun) / 1_000_000,
        );
        return Err(Violation::of("leadership-stays", what));
    }
    Ok(())
}

pub(crate) fn linearizable<P: Protocol, S: Service>(world: &World<P, S>) -> Result<(), Violation> {
    hustings_properties::check(&world.history()).map_err(|story| Violation::of("linearizable", story.to_string()))
}

/// The commands that make everything good again.
fn mend() -> [Command; 10] {
    [
        Command::Heal,
        Command::Disk(Target::All, DiskFault::Recover),
        Command::Disk(Target::All, DiskFault::Roomy),
        Command::Clock(Target::All, 1_000_000),
        Command::Retime(Target::All, 100),
        Command::Operator(Target::Leader),
        Command::Pace(0),
        Command::Resume(Target::All),
        Command::Restart(Target::All),
        Command::Mark,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_given_time_and_none_without_them() {
        assert_eq!([3, 5, 7].map(|members| timeouts_to_serve(0, members)), [10, 10, 10]);
        assert_eq!([3, 5, 7].map(|members| timeouts_to_serve(20_000, members)), [11, 12, 14]);
        assert_eq!([3, 6].map(|members| timeouts_to_serve(93_110, members)), [17, 58]);
        assert_eq!(timeouts_to_serve(1_000_000, 3), 500, "a bound, where nothing arrives");
    }
}
