//! The acts that break a cluster and their moments, as a value and as lines of text: [`Script`].
//!
//! ```text
//!    at 1500ms pause leader
//!    at 2800ms resume all
//!    at 3s half-open n1 n2
//! ```
//!
//! The words are the world's ([`hustings_world::Command`]), as far as real processes can be broken in that way; those that only
//! make sense on real sockets, `half-open` and `bandwidth`, or in real processes, `descriptors` and `upgrade`; what operators do,
//! `compact` and `replace`; and one that nobody survives, `lie`: it proves that the torturer can convict. `heal` ends everything
//! that is wrong with links, `disk all recover` a lie, `descriptors all any` their shortage.

use anyhow::{Context, Result, bail};
use hustings_world::{Command, DiskFault, Target, parse};
use std::fmt;
use std::time::Duration;

/// One thing that is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// A word of the world.
    Shared(Command),
    /// Bytes from the first to the second are not read any more: the sender's buffers fill.
    HalfOpen(Target, Target),
    /// Bytes from the first to the second pass at so many per second.
    Bandwidth(Target, Target, u64),
    /// Its disk says that it has synced and has not. No plan contains it: after a power cut, what was acknowledged is lost.
    Lie(Target),
    /// It can open so many more files and connections than it has open; `None`: as many as the system allows.
    Descriptors(Target, Option<u64>),
    /// All but the newest revisions are compacted.
    Compact,
    /// It is removed from the membership, loses its data, and is added and joins again.
    Replace(Target),
    /// It is killed and starts as the newer build.
    Upgrade(Target),
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Shared(command) => command.fmt(f),
            Act::HalfOpen(from, to) => write!(f, "half-open {from} {to}"),
            Act::Bandwidth(from, to, bytes) => write!(f, "bandwidth {from} {to} {bytes}"),
            Act::Lie(who) => write!(f, "lie {who}"),
            Act::Descriptors(who, Some(left)) => write!(f, "descriptors {who} {left}"),
            Act::Descriptors(who, None) => write!(f, "descriptors {who} any"),
            Act::Compact => f.write_str("compact"),
            Act::Replace(who) => write!(f, "replace {who}"),
            Act::Upgrade(who) => write!(f, "upgrade {who}"),
        }
    }
}

impl Act {
    /// Reads an act from a line.
    ///
    /// # Errors
    /// In words: the word that is wrong, and the nearest right one; or that real processes cannot be broken like this.
    pub fn parse(line: &str) -> Result<Act, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["half-open", from, to] => return Ok(Act::HalfOpen(parse::who(from)?, parse::who(to)?)),
            ["bandwidth", from, to, bytes] => {
                let number = bytes.parse().ok().filter(|bytes| *bytes > 0);
                let number = number.ok_or_else(|| format!("`{bytes}` is no number of bytes per second above 0"))?;
                return Ok(Act::Bandwidth(parse::who(from)?, parse::who(to)?, number));
            }
            ["lie", who] => return Ok(Act::Lie(parse::who(who)?)),
            ["compact"] => return Ok(Act::Compact),
            ["replace", who] => return Ok(Act::Replace(parse::who(who)?)),
            ["upgrade", who] => return Ok(Act::Upgrade(parse::who(who)?)),
            ["descriptors", who, "any"] => return Ok(Act::Descriptors(parse::who(who)?, None)),
            ["descriptors", who, left] => {
                let left = left.parse().map_err(|_| format!("`{left}` is no number of descriptors, nor `any`"))?;
                return Ok(Act::Descriptors(parse::who(who)?, Some(left)));
            }
            [word @ ("half-open" | "bandwidth"), ..] => {
                return Err(format!("`{word}` takes two members, and `bandwidth` bytes per second"));
            }
            [word @ ("descriptors" | "compact" | "replace" | "upgrade" | "lie"), ..] => {
                return Err(format!("`{word}` takes a member, `descriptors` a number or `any`, and `compact` nothing"));
            }
            _ => {}
        }
        let command = Command::parse(line)?;
        match &command {
            Command::Links { loss: 0, duplicates: 0, .. } => {}
            Command::Links { .. } => return Err("TCP loses and repeats nothing: `links` takes only delays here".into()),
            Command::Crash(_)
            | Command::PowerOff(_)
            | Command::Restart(_)
            | Command::Pause(_)
            | Command::Resume(_)
            | Command::Mute(..)
            | Command::Cut(..)
            | Command::Isolate(_)
            | Command::Partition(_)
            | Command::Heal
            | Command::Mend(..)
            | Command::Reset(..)
            | Command::Disk(
                _,
                DiskFault::Stall
                | DiskFault::Recover
                | DiskFault::Slow(_)
                | DiskFault::Full(_)
                | DiskFault::Roomy
                | DiskFault::Fail(_)
                | DiskFault::CrashAt(_),
            ) => {}
            other => return Err(format!("`{other}` can be done to a simulated world only, not to real processes")),
        }
        Ok(Act::Shared(command))
    }

    /// Whether it needs a disk of its own under every node.
    pub fn needs_disks(&self) -> bool {
        match self {
            Act::Shared(Command::PowerOff(_)) => true,
            Act::Shared(Command::Disk(_, fault)) => {
                matches!(fault, DiskFault::Stall | DiskFault::Full(_) | DiskFault::Roomy)
            }
            _ => false,
        }
    }
}

/// An act and its time, from the moment when the cluster first served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Moment of the act, since the cluster first served.
    pub at: Duration,
    /// The act that breaks or mends something.
    pub act: Act,
}

/// Steps in the order of their times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    /// Steps, in the order of their moments.
    pub steps: Vec<Step>,
}

impl Script {
    /// Reads lines of the form `at TIME ACT`; blank ones and what follows a `#` are skipped.
    ///
    /// # Errors
    /// Names the line, the word and the nearest right one.
    pub fn parse(text: &str) -> Result<Script> {
        let mut steps: Vec<Step> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let step = Script::parse_line(line).map_err(anyhow::Error::msg);
            let step = step.with_context(|| format!("line {number}, `{line}`"))?;
            if steps.last().is_some_and(|last| last.at > step.at) {
                bail!("line {number}, `{line}`: this is earlier than the line before");
            }
            steps.push(step);
        }
        Ok(Script { steps })
    }

    /// Adds an upgrade of each member, one after the other, spread over the length of a run.
    pub fn upgrade(&mut self, nodes: u64, length: Duration) {
        for node in 1..=nodes {
            let at = length * u32::try_from(node).unwrap_or(u32::MAX) / u32::try_from(nodes + 1).unwrap_or(u32::MAX);
            self.steps.push(Step { at, act: Act::Upgrade(Target::Node(node)) });
        }
        self.steps.sort_by_key(|step| step.at);
    }

    fn parse_line(line: &str) -> Result<Step, String> {
        let rest = line.strip_prefix("at ").ok_or("a line begins with `at` and a time, like `at 1500ms`")?;
        let (time, act) = rest.trim().split_once(' ').ok_or("after the time, something is to be done")?;
        Ok(Step { at: Duration::from_micros(parse::micros(time)?), act: Act::parse(act)? })
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "at {}ms {}", step.at.as_millis(), step.act))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_reads_as_it_is_written() {
        let text = "at 5ms pause leader\nat 7ms bandwidth n1 n2 9000\nat 9ms disk n3 fail 4\nat 9ms half-open n2 leader\nat 11ms descriptors n2 4\nat 12ms descriptors all any\nat 12ms compact\nat 13ms replace follower.1\nat 14ms upgrade n1\nat 15ms disk n2 slow 20ms\n";
        assert_eq!(Script::parse(text).expect("it is right").to_string(), text);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_a_remedy() {
        let refusal = |text: &str| format!("{:#}", Script::parse(text).expect_err("it is wrong"));
        assert!(
            refusal("at 1s puase n1")
                .contains("line 1, `at 1s puase n1`: `puase` is no command; did you mean `pause`?")
        );
        assert!(refusal("# fine\nat 1s clock n1 3").contains("line 2"), "{}", refusal("# fine\nat 1s clock n1 3"));
        assert!(refusal("at 2s heal\nat 1s heal").contains("earlier"));
        assert!(refusal("at 1s links 1ms 2ms loss 5").contains("TCP loses"));
        assert!(refusal("pause n1").contains("begins with `at`"));
        assert!(refusal("at 1s descriptors n1 few").contains("no number of descriptors"));
        assert!(refusal("at 1s compact n1").contains("`compact` nothing"));
    }
}
