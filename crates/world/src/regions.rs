//! Members on five continents: how far they are from each other, and what a protocol makes of that.
//!
//! Source of the round trips: averages between AWS regions, in milliseconds, as collected in "AWS Regions"
//! (acomputerscientistlearnsaws.blogspot.com, April 2017, from "Latency Between AWS Global Regions"); where the two directions were
//! measured apart, their mean. They have become a little shorter since; which of them is long has not changed.

use crate::command::{Command, Target};
use crate::digested::Service;
use crate::settings::{LoadSettings, Settings};
use crate::world::World;
use hustings_core::{NodeId, Priority, Protocol, Term, Timing};
use hustings_properties::{Act, Violation};
use std::time::Duration;

/// Their names, as scripts and tables have them.
pub const REGIONS: [&str; 5] = ["virginia", "oregon", "ireland", "tokyo", "sao-paulo"];

/// Round trips in microseconds.
const ROUND_TRIPS: [[u64; 5]; 5] = [
    [0, 87_800, 80_500, 145_300, 119_500],
    [87_800, 0, 137_000, 89_100, 182_700],
    [80_500, 137_000, 0, 212_400, 191_300],
    [145_300, 89_100, 212_400, 0, 256_800],
    [119_500, 182_700, 191_300, 256_800, 0],
];

/// The round trip between two regions, by their places in [`REGIONS`], in microseconds.
///
/// # Panics
/// When there is no such region.
pub fn round_trip(one: usize, other: usize) -> u64 {
    ROUND_TRIPS[one][other]
}

/// The longest round trip between any two.
pub fn longest_round_trip() -> u64 {
    ROUND_TRIPS.iter().flatten().copied().max().unwrap_or_default()
}

/// The shortest time in which a leader in this region hears a majority of the five, in microseconds: the round trip to the
/// second nearest other region.
pub fn majority_round_trip(leader: usize) -> u64 {
    let mut others: Vec<u64> = (0..REGIONS.len()).filter(|at| *at != leader).map(|at| round_trip(leader, at)).collect();
    others.sort_unstable();
    others[REGIONS.len() / 2 - 1]
}

/// Five members, one in each region, one client beside each; the leader should stand at `preferred`.
pub fn settings(timing: Timing, preferred: usize, seed: u64) -> Settings {
    let mut settings = Settings::new(REGIONS.len() as u64, seed);
    settings.timing = timing;
    settings.regions = (0..REGIONS.len()).collect();
    settings.priorities = vec![Priority::Normal; REGIONS.len()];
    settings.priorities[preferred] = Priority::Preferred;
    settings.load = LoadSettings { clients: 5, keys: 5, pause: 50_000, watchers: 0, stays: true, ..settings.load };
    settings
}

/// The timing that `--timing auto` comes to for the longest round trip and a flush of a millisecond, when the election timeout may
/// be as short as `least`. Heartbeats come five times in that, so `least` should be more than five round trips.
pub fn fitting(least: Duration) -> Timing {
    let bounds = least..=Duration::from_secs(30);
    Timing::fitting(Duration::from_micros(longest_round_trip()), Duration::from_millis(1), &bounds)
}

/// The timing that `--timing auto` comes to in each region, which hears no peer farther away than its own longest round trip.
pub fn fitting_each(least: Duration) -> Vec<Timing> {
    let bounds = least..=Duration::from_secs(30);
    let longest = |row: &[u64; 5]| row.iter().copied().max().unwrap_or_default();
    let fitting = |row| Timing::fitting(Duration::from_micros(longest(row)), Duration::from_millis(1), &bounds);
    ROUND_TRIPS.iter().map(fitting).collect()
}

/// Latencies of one region's clients while nothing was wrong, in microseconds, each in the order of the run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Writes, from the question to the answer.
    pub writes: Vec<u64>,
    /// Linearizable reads, from the question to the answer.
    pub reads: Vec<u64>,
}

/// A minute of service with the leader in one region.
///
/// # Errors
/// A property fell, or the leader did not come to that region within five minutes.
pub fn serve<P: Protocol, S: Service>(
    settings: Settings,
    options: P::Options,
    leader: usize,
) -> Result<[Seen; 5], Violation> {
    let mut world = led_from::<P, S>(settings, options, leader)?;
    let begun = world.now();
    world.apply(&Command::Wait(60_000_000))?;
    let history = world.history();
    hustings_properties::check(&history).map_err(|story| Violation::of("linearizable", story.to_string()))?;
    let mut seen: [Seen; 5] = Default::default();
    for operation in history.iter().filter(|operation| operation.invoked >= begun) {
        let Some(returned) = operation.returned else { continue };
        let of_region = &mut seen[operation.client as usize % REGIONS.len()];
        let took = returned - operation.invoked;
        match operation.act {
            Act::Read(_) => of_region.reads.push(took),
            _ => of_region.writes.push(took),
        }
    }
    Ok(seen)
}

/// The way in which a region is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The leader's process ends, and its machine says so to the others.
    LeaderCrashes,
    /// The leader's region loses its power: nobody is told.
    LeaderDark,
    /// The leader's region is cut off, and its members run on.
    LeaderCutOff,
    /// The region that is farthest from the leader's is cut off.
    FollowerCutOff,
}

/// The cost of a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Time without a leader that could serve, in microseconds.
    pub leaderless: u64,
    /// The region that led afterwards, by its place.
    pub leader: usize,
    /// Changes of leadership within the minute after it.
    pub changes: u64,
}

/// Lets a region be lost while the leader stands at `leader`, and watches for a minute.
///
/// # Errors
/// A property fell, or nobody led at the end.
pub fn lose<P: Protocol, S: Service>(
    settings: Settings,
    options: P::Options,
    leader: usize,
    loss: Loss,
) -> Result<Cost, Violation> {
    let mut world = led_from::<P, S>(settings, options, leader)?;
    let node = |at: usize| Target::Node(at as u64 + 1);
    let farthest = (0..REGIONS.len()).max_by_key(|at| round_trip(leader, *at)).unwrap_or_default();
    let before = world.reign();
    let (since, until) = (world.now(), world.now() + 60_000_000);
    world.apply(&match loss {
        Loss::LeaderCrashes => Command::Crash(node(leader)),
        Loss::LeaderDark => Command::PowerOff(node(leader)),
        Loss::LeaderCutOff => Command::Isolate(node(leader)),
        Loss::FollowerCutOff => Command::Isolate(node(farthest)),
    })?;
    let (mut reign, mut changes, mut leaderless, mut last_seen) = (before, 0, 0, since);
    while world.now() < until {
        let now = (world.now() + 1_000).min(until);
        world.run_until(now)?;
        match world.reign() {
            None => {}
            Some(present) => {
                leaderless += now - last_seen - 1_000.min(now - last_seen);
                last_seen = now;
                if reign != Some(present) {
                    changes += 1;
                    reign = Some(present);
                }
            }
        }
    }
    let history = world.history();
    hustings_properties::check(&history).map_err(|story| Violation::of("linearizable", story.to_string()))?;
    match world.reign() {
        Some((NodeId(id), _)) => Ok(Cost { leaderless, leader: id as usize - 1, changes }),
        None => Err(Violation::of("liveness", format!("nobody leads a minute after {loss:?}"))),
    }
}

/// Plays ten minutes with these times and nothing wrong, from half a minute after the first leader on, hand-overs to a preferred
/// member included: reigns that ended, and the share of the time without a leader.
///
/// # Errors
/// A property fell.
pub fn unrest<P: Protocol, S: Service>(settings: Settings, options: P::Options) -> Result<(u64, f64), Violation> {
    let mut world = World::<P, S>::new(settings, options)?;
    while world.reign().is_none() && world.now() < 300_000_000 {
        world.run_until(world.now() + 100_000)?;
    }
    world.run_until(world.now() + 30_000_000)?;
    let (mut reign, mut ended, mut leaderless) = (None::<(NodeId, Term)>, 0, 0_u64);
    const MINUTES: u64 = 10;
    for _ in 1..=MINUTES * 60_000 {
        world.run_until(world.now() + 1_000)?;
        let present = world.reign();
        leaderless += u64::from(present.is_none());
        ended += u64::from(reign.is_some() && present != reign && present.is_some());
        reign = present.or(reign);
    }
    Ok((ended, leaderless as f64 / (MINUTES * 60_000) as f64))
}

/// A world in which the leader stands where its operator wants it.
fn led_from<P: Protocol, S: Service>(
    settings: Settings,
    options: P::Options,
    leader: usize,
) -> Result<World<P, S>, Violation> {
    let mut world = World::new(settings, options)?;
    let wanted = NodeId(leader as u64 + 1);
    let leads = |world: &World<P, S>| world.reign().is_some_and(|(id, _)| id == wanted);
    while !leads(&world) {
        if world.now() > 300_000_000 {
            return Err(Violation::of("priority", format!("{} does not lead after five minutes", REGIONS[leader])));
        }
        world.apply(&Command::Wait(1_000_000))?;
    }
    // A new leader has followers that lag.
    world.apply(&Command::Wait(5_000_000))?;
    match leads(&world) {
        true => Ok(world),
        false => Err(Violation::of("priority", format!("{} led for a moment only", REGIONS[leader]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_same_from_both_ends() {
        for (one, row) in ROUND_TRIPS.iter().enumerate() {
            assert_eq!(row[one], 0);
            assert!((0..REGIONS.len()).all(|other| row[other] == round_trip(other, one)));
        }
        assert_eq!((longest_round_trip(), majority_round_trip(0)), (256_800, 87_800));
    }
}
