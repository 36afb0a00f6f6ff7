//! A whole run as text: [`Script`].
//!
//! ```text
//! # The leader dies, and somebody else leads.
//! cluster 3 seed 7
//! settle 5s
//! mark
//! crash leader
//! settle 5s
//! expect changes 1
//! ```
//!
//! The first lines say how the world is made, the others what is done to it; `#` begins a comment. A seed's plan and a
//! checker's trace print as the same text. Played, a script gives a transcript: after each command what the real code said.

use crate::command::{Command, shown};
use crate::digested::Service;
use crate::grammar::{HEADERS, Sentence, fixed, options};
use crate::network::Quality;
use crate::parse::{PER_MILLION, in_order, micros, nearest};
use crate::regions::REGIONS;
use crate::settings::{DiskPace, LoadSettings, Settings};
use crate::world::World;
use hustings_core::Limits;
use hustings_core::quorum::may_be_witnesses;
use hustings_core::replica::Policy;
use hustings_core::{Protocol, Timing};
use hustings_properties::Violation;
use std::fmt;
use std::time::Duration;

/// A run: how the world is made, and the commands that are done to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Script {
    /// The comment at its top: what the story is about.
    pub headline: Vec<String>,
    /// How the world is made.
    pub settings: Settings,
    /// The commands that are done to it, in order.
    pub commands: Vec<Command>,
}

/// A line that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptError {
    /// Line number, from 1.
    pub line: usize,
    /// The reason, in words, with the nearest word that would be right if one is unknown.
    pub what: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for ScriptError {}

/// Bytes of a value beyond which no server takes a request: etcd's bound, and ours.
pub const VALUE_MAX: u64 = 3 << 19;
/// Most clients, most members of any other kind that ask something, and most keys.
const CLIENTS_MAX: u64 = 10_000;
const OTHERS_MAX: u64 = 1_000;
const KEYS_MAX: u64 = 1_000_000;
/// Most entries and bytes of a limit of the members.
const SIZE_MAX: u64 = 1 << 40;
/// Bytes that clients may have under way together: each member, its disk and each message has a copy of them.
const UNDER_WAY_MAX: u64 = 16 << 20;

/// The options of a header line and their values, which come in pairs; an option that its row does not have is refused.
fn pairs<'a>(header: &str, words: &[&'a str]) -> Result<Vec<(&'a str, &'a str)>, String> {
    let mut pairs = Vec::new();
    for pair in words.chunks(2) {
        match pair {
            [name, _] if !options(header).contains(name) => return unknown(name, &options(header)),
            [name, value] => pairs.push((*name, *value)),
            [name] => return Err(format!("`{name}` has no value")),
            _ => {}
        }
    }
    Ok(pairs)
}

fn number<T: std::str::FromStr>(name: &str, word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("`{word}` is no number, and `{name}` wants one"))
}

fn at_most(name: &str, word: &str, most: u64) -> Result<u64, String> {
    let number: u64 = number(name, word)?;
    if number > most { Err(format!("`{name}` is {most} at most, not {number}")) } else { Ok(number) }
}

fn per_million(name: &str, word: &str) -> Result<u32, String> {
    at_most(name, word, PER_MILLION).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn unknown<T>(name: &str, known: &[&str]) -> Result<T, String> {
    Err(format!("`{name}` is not known here; did you mean `{}`?", nearest(name, known)))
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// The first line that is wrong, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Script, ScriptError> {
        let mut script = Script { headline: Vec::new(), settings: Settings::new(3, 1), commands: Vec::new() };
        let (mut has_cluster, mut priorities_at) = (false, 0);
        for (number, line) in (1..).zip(text.lines()) {
            let content = line.split('#').next().unwrap_or("").trim();
            if content.is_empty() {
                if script.commands.is_empty()
                    && let Some(comment) = line.trim().strip_prefix('#')
                {
                    script.headline.push(comment.trim().to_string());
                }
                continue;
            }
            let refused = |what: String| Err(ScriptError { line: number, what });
            match content.split_whitespace().next() {
                Some("cluster") if has_cluster => {
                    return refused("there is one `cluster` line, and it was before".into());
                }
                Some("cluster") if !script.commands.is_empty() => {
                    return refused("`cluster` says how the world is made: it comes before all commands".into());
                }
                Some("cluster") => has_cluster = true,
                Some("priorities") => priorities_at = number,
                _ => {}
            }
            let has_ended = script.commands.iter().any(|command| matches!(command, Command::Peace(_)));
            script.take(content).map_err(|what| ScriptError { line: number, what })?;
            if has_ended && matches!(script.commands.last(), Some(Command::Peace(_))) {
                let what = "there is one `peace` at most: behind it no client asks anything".into();
                return Err(ScriptError { line: number, what });
            }
        }
        let Settings { nodes, priorities, .. } = &script.settings;
        if !priorities.is_empty() && priorities.len() as u64 != *nodes {
            let what = format!("`priorities` has one word a member: {nodes}, not {}", priorities.len());
            return Err(ScriptError { line: priorities_at, what });
        }
        Ok(script)
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let settings = &mut self.settings;
        let header = HEADERS.iter().map(Sentence::beginning).find(|header| words.first() == Some(header));
        let Some(header) = header else { return self.take_command(line) };
        match words.as_slice() {
            ["cluster", nodes, rest @ ..] => {
                settings.nodes = number("cluster", nodes)?;
                if !(1..=99).contains(&settings.nodes) {
                    return Err(format!("a cluster has 1 to 99 members, not {nodes}"));
                }
                for (name, value) in pairs(header, rest)? {
                    match name {
                        "seed" => settings.seed = number(name, value)?,
                        "snapshots" => {
                            settings.policy = Policy { entries_max: at_most(name, value, SIZE_MAX)?, ..settings.policy }
                        }
                        "messages" => settings.limits.message_bytes_max = at_most(name, value, SIZE_MAX)? as usize,
                        "trailing" => settings.limits.trailing_entries = at_most(name, value, SIZE_MAX)?,
                        "restart" => settings.restart_after = micros(value)?,
                        "uncommitted" => {
                            settings.limits.uncommitted_bytes_max = (at_most(name, value, SIZE_MAX)? as usize).max(1)
                        }
                        "slice" => settings.policy.slice_cost = at_most(name, value, SIZE_MAX)?.max(1),
                        other => return unknown(other, &options(header)),
                    }
                }
            }
            ["timing", heartbeat, low, high, rest @ ..] => {
                let duration = |word| micros(word).map(Duration::from_micros);
                let (heartbeat, election_min, election_max) = (duration(heartbeat)?, duration(low)?, duration(high)?);
                let timing = Timing { heartbeat, election_min, election_max };
                timing.check().map_err(|misfit| misfit.to_string())?;
                settings.timing = timing;
                for (name, value) in pairs(header, rest)? {
                    match name {
                        "succession" => settings.has_succession = at_most(name, value, 1)? > 0,
                        other => return unknown(other, &options(header)),
                    }
                }
            }
            ["network", low, high, rest @ ..] => {
                let mut quality = {
                    let (delay_min, delay_max) = in_order((micros(low)?, micros(high)?))?;
                    Quality { delay_min, delay_max, ..Quality::default() }
                };
                for (name, value) in pairs(header, rest)? {
                    match name {
                        "loss" => quality.loss = per_million(name, value)?,
                        "duplicates" => quality.duplicates = per_million(name, value)?,
                        other => return unknown(other, &options(header)),
                    }
                }
                settings.quality = quality;
            }
            ["syncs", low, high] => {
                let (sync_min, sync_max) = in_order((micros(low)?, micros(high)?))?;
                settings.disk = DiskPace { sync_min, sync_max };
            }
            ["load", rest @ ..] => {
                let load = &mut settings.load;
                for (name, value) in pairs(header, rest)? {
                    match name {
                        "clients" => load.clients = at_most(name, value, CLIENTS_MAX)?,
                        "keys" => load.keys = at_most(name, value, KEYS_MAX)?.max(1),
                        "pause" => load.pause = micros(value)?,
                        "patience" => load.patience = micros(value)?,
                        "watchers" => load.watchers = at_most(name, value, OTHERS_MAX)?,
                        "rivals" => load.rivals = at_most(name, value, OTHERS_MAX)?,
                        "candidates" => load.candidates = at_most(name, value, OTHERS_MAX)?,
                        "values" => load.value_bytes = at_most(name, value, VALUE_MAX)?,
                        "stays" => load.stays = at_most(name, value, 1)? > 0,
                        other => return unknown(other, &options(header)),
                    }
                }
                let under_way = load.clients * load.value_bytes;
                if under_way > UNDER_WAY_MAX {
                    return Err(format!(
                        "{} clients with values of {} bytes have {under_way} bytes under way; {UNDER_WAY_MAX} is the most",
                        load.clients, load.value_bytes
                    ));
                }
            }
            ["priorities", rest @ ..] => {
                use hustings_core::Priority;
                if let Some(other) = rest.iter().find(|word| !fixed(header).contains(word)) {
                    return unknown(other, &fixed(header));
                }
                let priority = |word: &&str| match *word {
                    "never" | "witness" => Ok(Priority::Never),
                    "normal" => Ok(Priority::Normal),
                    "preferred" => Ok(Priority::Preferred),
                    other => unknown(other, &fixed(header)),
                };
                let witnesses = rest.iter().enumerate().filter(|(_, word)| **word == "witness");
                settings.witnesses = witnesses.map(|(at, _)| at).collect();
                if !may_be_witnesses(settings.witnesses.len(), settings.nodes as usize) {
                    return Err("witnesses hold no data: they must be fewer than half of the members".into());
                }
                settings.priorities = rest.iter().map(priority).collect::<Result<_, _>>()?;
            }
            ["regions", rest @ ..] => {
                let place = |word: &&str| REGIONS.iter().position(|region| region == word);
                let region = |word: &&str| place(word).map_or_else(|| unknown(word, &REGIONS), Ok);
                settings.regions = rest.iter().map(region).collect::<Result<_, _>>()?;
            }
            // It lacks what its row asks for.
            _ => return self.take_command(line),
        }
        Ok(())
    }

    fn take_command(&mut self, line: &str) -> Result<(), String> {
        let command = Command::parse(line)?;
        let members = self.members();
        if let Some(id) = command.stranger_above(members) {
            return Err(format!(
                "there is no member `n{id}` here: `cluster` and each `join` above make n1 to n{members}"
            ));
        }
        self.commands.push(command);
        Ok(())
    }

    /// Members that there are by now, if each `join` found a leader.
    fn members(&self) -> u64 {
        let joined = self.commands.iter().filter(|command| **command == Command::Join).count();
        self.settings.nodes + joined as u64
    }

    /// Makes the world and does everything to it; `each` hears of every command when it is done.
    ///
    /// # Errors
    /// The first property that does not hold, with the world as it was then.
    pub fn play<P: Protocol, S: Service>(
        &self,
        world: &mut World<P, S>,
        mut each: impl FnMut(&Command, &mut World<P, S>),
    ) -> Result<(), Violation> {
        for command in &self.commands {
            let result = world.apply(command);
            each(command, world);
            result?;
        }
        Ok(())
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { nodes, seed, timing, limits, policy, quality, disk, load, .. } = &self.settings;
        let Settings { priorities, witnesses, regions, has_succession, restart_after, .. } = &self.settings;
        let micros = |duration: Duration| shown(crate::settings::micros(duration));
        for line in &self.headline {
            writeln!(f, "# {line}")?;
        }
        write!(
            f,
            "cluster {nodes} seed {seed} snapshots {} messages {} trailing {} restart {}",
            policy.entries_max,
            limits.message_bytes_max,
            limits.trailing_entries,
            shown(*restart_after)
        )?;
        match limits.uncommitted_bytes_max {
            usual if usual == Limits::default().uncommitted_bytes_max => {}
            bytes => write!(f, " uncommitted {bytes}")?,
        }
        match policy.slice_cost {
            usual if usual == Policy::default().slice_cost => writeln!(f)?,
            cost => writeln!(f, " slice {cost}")?,
        }
        let (low, high) = (micros(timing.election_min), micros(timing.election_max));
        let succession = if *has_succession { " succession 1" } else { "" };
        writeln!(f, "timing {} {low} {high}{succession}", micros(timing.heartbeat))?;
        let Quality { delay_min, delay_max, loss, duplicates } = quality;
        let (low, high) = (shown(*delay_min), shown(*delay_max));
        writeln!(f, "network {low} {high} loss {loss} duplicates {duplicates}")?;
        writeln!(f, "syncs {} {}", shown(disk.sync_min), shown(disk.sync_max))?;
        if !priorities.is_empty() || !witnesses.is_empty() {
            let name = |at: usize| match priorities.get(at) {
                _ if witnesses.contains(&at) => "witness".to_owned(),
                Some(priority) => format!("{priority:?}").to_lowercase(),
                None => "normal".to_owned(),
            };
            let names: Vec<String> = (0..priorities.len().max(*nodes as usize)).map(name).collect();
            writeln!(f, "priorities {}", names.join(" "))?;
        }
        if !regions.is_empty() {
            let names: Vec<&str> = regions.iter().map(|region| REGIONS[*region]).collect();
            writeln!(f, "regions {}", names.join(" "))?;
        }
        let LoadSettings { clients, keys, pause, patience, watchers, rivals, candidates, value_bytes, stays } = load;
        write!(
            f,
            "load clients {clients} keys {keys} pause {} patience {} watchers {watchers} rivals {rivals}",
            shown(*pause),
            shown(*patience)
        )?;
        if *candidates > 0 {
            write!(f, " candidates {candidates}")?;
        }
        if *stays {
            write!(f, " stays 1")?;
        }
        match value_bytes {
            0 => writeln!(f)?,
            bytes => writeln!(f, " values {bytes}")?,
        }
        self.commands.iter().try_for_each(|command| writeln!(f, "{command}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_says_of_places_and_clients_is_printed_and_read_again() {
        let text = "cluster 5 seed 3\nregions tokyo virginia\nload clients 5 stays 1\nwait 1s\n";
        let script = Script::parse(text).expect("it can be read");
        assert_eq!((script.settings.regions.as_slice(), script.settings.load.stays), (&[3, 0][..], true));
        assert_eq!(Script::parse(&script.to_string()), Ok(script));
        let wrong = Script::parse("regions atlantis").expect_err("there is none");
        assert!(wrong.to_string().contains("atlantis"), "{wrong}");
    }
}
