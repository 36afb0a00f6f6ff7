//! Reads a line of a script: [`Command::parse`]. A typo is named, with the nearest word that would have been right.

use crate::command::{Command, DiskFault, Expectation, Target, shown};
use crate::grammar::{GRAMMAR, HEADERS, beginnings, fixed, options};

/// Longest time in a script, in microseconds: a year. Sums of such times are far from what a counter holds.
pub const TIME_MAX: u64 = 365 * 24 * 3_600_000_000;
/// Most bytes that a disk in a script may have left, and most operations that may pass before its fault.
const BYTES_MAX: u64 = 1 << 40;
const OPERATIONS_MAX: u64 = 1 << 40;
/// Fastest clock, in millionths of the proper speed.
const SPEED_MAX: u64 = 1_000_000_000;
const WHO: [&str; 6] = ["leader", "follower.1", "others", "wiped", "all", "n1"];

/// How far two words are from each other: changes of one letter, and neighbours that changed places.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<_>>()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let changed = rows[i][j] + usize::from(a != b);
            let is_swap = i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b;
            let swapped = if is_swap { rows[i - 1][j - 1] + 1 } else { changed };
            row.push(changed.min(swapped).min(rows[i][j + 1] + 1).min(row[j] + 1));
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

/// The known word nearest to one that is not known.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> &'a str {
    known.iter().min_by_key(|known| distance(word, known)).copied().unwrap_or("")
}

fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    format!("`{word}` is no {what}; did you mean `{}`?", nearest(word, known))
}

/// The words of one line, taken one after the other.
struct Words<'a> {
    words: std::slice::Iter<'a, &'a str>,
    line: &'a str,
}

impl<'a> Words<'a> {
    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        self.words.next().copied().ok_or_else(|| format!("`{}` ends where {what} is missing", self.line.trim()))
    }

    fn peek(&self) -> Option<&'a str> {
        self.words.as_slice().first().copied()
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.next(what)?;
        word.parse().map_err(|_| format!("`{word}` is no number; {what} is wanted"))
    }

    /// A number of at most so many.
    fn at_most(&mut self, what: &str, most: u64) -> Result<u64, String> {
        let number = self.number(what)?;
        if number > most { Err(format!("{what} is {most} at most, not {number}")) } else { Ok(number) }
    }

    fn per_million(&mut self, what: &str) -> Result<u32, String> {
        self.at_most(what, PER_MILLION).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    fn delays(&mut self) -> Result<(u64, u64), String> {
        let delays = (self.time("the shortest delay")?, self.time("the longest delay")?);
        in_order(delays)
    }

    fn time(&mut self, what: &str) -> Result<u64, String> {
        micros(self.next(what)?)
    }

    fn who(&mut self) -> Result<Target, String> {
        who(self.next("a member")?)
    }

    /// The next word, which is one of these; `kind` names such a word in a refusal.
    fn one_of(&mut self, what: &str, kind: &str, known: &[&str]) -> Result<&'a str, String> {
        let word = self.next(what)?;
        if known.contains(&word) { Ok(word) } else { Err(unknown(kind, word, known)) }
    }

    /// Takes a word that lines of this statement may have here, if it comes next.
    fn takes(&mut self, statement: &str, word: &str) -> bool {
        let comes = self.peek() == Some(word) && options(statement).contains(&word);
        comes && self.words.next().is_some()
    }

    /// `at n1`, or nothing.
    fn at(&mut self, statement: &str) -> Result<Option<Target>, String> {
        if self.takes(statement, "at") { self.who().map(Some) } else { Ok(None) }
    }

    fn all_who(&mut self) -> Result<Vec<Target>, String> {
        self.words.by_ref().map(|word| who(word)).collect()
    }

    fn end(mut self, command: Command) -> Result<Command, String> {
        match self.words.next() {
            None => Ok(command),
            Some(more) => Err(format!("`{more}` is more than `{command}` takes")),
        }
    }
}

/// A time such as `250ms`, `3s` or `800us`, in microseconds.
pub fn micros(word: &str) -> Result<u64, String> {
    let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().map_err(|_| format!("`{word}` is no time; write 250ms, 3s or 1m"))?;
    let unit = match &word[digits.len()..] {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "" => {
            return Err(format!("`{word}` has no unit of time; write {word}us, {word}ms, {word}s, {word}m or {word}h"));
        }
        other => return Err(format!("`{other}` is no unit of time; write us, ms, s, m or h")),
    };
    let micros = number.checked_mul(unit).filter(|micros| *micros <= TIME_MAX);
    micros.ok_or_else(|| format!("`{word}` is too long a time; {}h is the longest", TIME_MAX / 3_600_000_000))
}

/// The whole of which chances are told, see [`crate::Quality`].
pub(crate) const PER_MILLION: u64 = 1_000_000;

/// A range of times whose shortest is told first.
pub(crate) fn in_order((shortest, longest): (u64, u64)) -> Result<(u64, u64), String> {
    match shortest <= longest {
        true => Ok((shortest, longest)),
        false => Err(format!("the shortest comes first: write {} {}", shown(longest), shown(shortest))),
    }
}

/// A member such as `n1`, `leader`, `follower.2`, `others`, `wiped` or `all`.
pub fn who(word: &str) -> Result<Target, String> {
    let wrong = || unknown("member", word, &WHO);
    Ok(match word {
        "leader" => Target::Leader,
        "others" => Target::Others,
        "wiped" => Target::Wiped,
        "all" => Target::All,
        _ => match (word.strip_prefix("follower."), word.strip_prefix('n')) {
            (Some(number), _) => Target::Follower(number.parse().map_err(|_| wrong())?),
            (None, Some("0")) => return Err("there is no member `n0`; the first one is `n1`".into()),
            (None, Some(id)) => Target::Node(id.parse().map_err(|_| wrong())?),
            (None, None) => return Err(wrong()),
        },
    })
}

/// A refusal of a line's first word.
fn no_command(word: &str) -> String {
    match HEADERS.iter().find(|header| header.beginning() == word) {
        Some(header) => format!("`{word}` says how the world is made, as `{}`, and is no command", header.form),
        None => unknown("command", word, &beginnings()),
    }
}

/// Reads the commands of `peace`, which have `;` between them.
fn peace(sick: &str) -> Result<Command, String> {
    let commands = sick.split(';').map(str::trim).filter(|command| !command.is_empty()).map(Command::parse);
    let commands = commands.collect::<Result<Vec<_>, _>>()?;
    match commands.iter().find(|command| matches!(command, Command::Peace(_))) {
        Some(_) => Err("there is no `peace` within `peace`".into()),
        None => Ok(Command::Peace(commands)),
    }
}

impl Command {
    /// Reads one line. A word that [`GRAMMAR`] does not have is refused before it comes to the arm that would read it.
    ///
    /// # Errors
    /// In words: the word that is wrong, and the nearest right one.
    pub fn parse(line: &str) -> Result<Command, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut words = Words { words: words.iter(), line };
        let statement = words.next("a command")?;
        if GRAMMAR.iter().all(|row| row.beginning() != statement) {
            return Err(no_command(statement));
        }
        let command = match statement {
            "wait" => Command::Wait(words.time("a time")?),
            "settle" => Command::Settle(words.time("a time")?),
            "peace" => peace(&words.words.by_ref().copied().collect::<Vec<_>>().join(" "))?,
            "crash" => Command::Crash(words.who()?),
            "power-off" => Command::PowerOff(words.who()?),
            "restart" => Command::Restart(words.who()?),
            "pause" => Command::Pause(words.who()?),
            "resume" => Command::Resume(words.who()?),
            "mute" => Command::Mute(words.who()?, words.who()?),
            "cut" => Command::Cut(words.who()?, words.who()?),
            "isolate" => Command::Isolate(words.who()?),
            "partition" => {
                let mut groups = vec![Vec::new()];
                for word in words.words.by_ref() {
                    match *word {
                        "|" => groups.push(Vec::new()),
                        // The list is never empty: it begins with one group.
                        word => {
                            groups.last_mut().into_iter().try_for_each(|group| who(word).map(|who| group.push(who)))?
                        }
                    }
                }
                if groups.iter().all(Vec::is_empty) {
                    return Err("`partition` names no member; write `partition n1 n2 | n3`".into());
                }
                Command::Partition(groups)
            }
            "slow" => {
                let (from, to) = (words.who()?, words.who()?);
                let (min, max) = words.delays()?;
                Command::Slow(from, to, min, max)
            }
            "delay" => {
                let (from, to, micros) = (words.who()?, words.who()?, words.time("how much longer")?);
                let which = if words.peek().is_some() { words.number("the place of a message, from 1,")? } else { 1 };
                Command::Delay(from, to, which, micros)
            }
            "heal" => Command::Heal,
            "mend" => Command::Mend(words.who()?, words.who()?),
            "reset" => Command::Reset(words.who()?, words.who()?),
            "links" => {
                let (delay_min, delay_max) = words.delays()?;
                let (mut loss, mut duplicates) = (0, 0);
                while words.peek().is_some() {
                    match words.one_of("a word", "quality of links", &options(statement))? {
                        "loss" => loss = words.per_million("the number of messages lost in a million")?,
                        "duplicates" => {
                            duplicates = words.per_million("the number of messages in a million that arrive twice")?
                        }
                        other => return Err(unknown("quality of links", other, &options(statement))),
                    }
                }
                Command::Links { delay_min, delay_max, loss, duplicates }
            }
            "disk" => {
                let who = words.who()?;
                let fault = match words.one_of("what goes wrong", "fault of a disk", &fixed(statement))? {
                    "stall" => DiskFault::Stall,
                    "recover" => DiskFault::Recover,
                    "lie" => DiskFault::Lie,
                    "slow" => DiskFault::Slow(words.time("the time of a sync")?),
                    "full" => DiskFault::Full(words.at_most("the number of bytes that are left", BYTES_MAX)?),
                    "roomy" => DiskFault::Roomy,
                    "fail" => DiskFault::Fail(words.at_most("the number of an operation", OPERATIONS_MAX)?),
                    "crash-at" => DiskFault::CrashAt(words.at_most("the number of an operation", OPERATIONS_MAX)?),
                    "misdirect" => DiskFault::Misdirect(words.at_most("the number of an operation", OPERATIONS_MAX)?),
                    "rot" => DiskFault::Rot(words.at_most("the number of a read", OPERATIONS_MAX)?),
                    other => return Err(unknown("fault of a disk", other, &fixed(statement))),
                };
                Command::Disk(who, fault)
            }
            "wipe" => Command::Wipe(words.who()?),
            "clock" => Command::Clock(words.who()?, words.at_most("a speed in millionths", SPEED_MAX)?),
            "suspend" => Command::Suspend(words.who()?, words.time("a time")?),
            "transfer" => Command::Transfer(words.who()?),
            "resign" => Command::Resign(words.who()?),
            "campaign" => Command::Campaign(words.who()?),
            "forget-leader" => Command::ForgetLeader(words.who()?),
            "retime" => {
                let (who, percent) = (words.who()?, words.number("hundredths of the first timing")?);
                if !(1..=1_000).contains(&percent) {
                    return Err(format!("a timing is 1 to 1000 hundredths of the first one, not {percent}"));
                }
                Command::Retime(who, percent)
            }
            "operator" => Command::Operator(words.who()?),
            "pace" => Command::Pace(words.time("a pause")?),
            "damage" => Command::Damage(words.who()?, words.who()?, words.number("a number of messages")?),
            "remove" => Command::Remove(words.who()?),
            "join" => Command::Join,
            "voters" => Command::Voters(words.all_who()?),
            "put" => {
                let (key, value) = (words.next("a key")?.to_string(), words.next("a value")?.to_string());
                Command::Put(key, value, words.at(statement)?)
            }
            "get" => Command::Get(words.next("a key")?.to_string(), words.at(statement)?),
            "lease" => {
                let id = words.number("the number of a lease")?;
                Command::Lease(id, words.time("a time to live")? / 1_000_000)
            }
            "expect" => Command::Expect(match words.one_of("what is expected", "expectation", &fixed(statement))? {
                "leader" => Expectation::Leader(words.who()?),
                "no-leader" => Expectation::NoLeader,
                "changes" => {
                    let least = words.number("a number of changes")?;
                    let has_most = words.takes(statement, "to");
                    let most = if has_most { words.number("a number of changes")? } else { least };
                    if least > most {
                        return Err(format!("the least comes first: write `expect changes {most} to {least}`"));
                    }
                    Expectation::Changes(least, most)
                }
                "outage" => Expectation::Outage(words.time("a time")?),
                "lease" => Expectation::Lease(words.number("the number of a lease")?),
                "no-lease" => Expectation::NoLease(words.number("the number of a lease")?),
                "same" => Expectation::Same,
                "refused" => Expectation::Refused(words.who()?),
                other => return Err(unknown("expectation", other, &fixed(statement))),
            }),
            "mark" => Command::Mark,
            other => return Err(no_command(other)),
        };
        words.end(command)
    }
}
