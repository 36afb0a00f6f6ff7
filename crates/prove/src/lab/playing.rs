//! A script played for a page: [`Order`], what a page asks for, and [`play`].
//!
//! A run is a pure function of its script, so a laboratory remembers nothing: to go back, or to do something else at an earlier
//! moment, the beginning is played again.

use crate::picture::{Run, Time};
use hustings_core::{Protocol, Slots};
use hustings_kv::KvStore;
use hustings_properties::Violation;
use hustings_protocols::{self as protocols, Subject, Visit};
use hustings_world::panics::caught;
use hustings_world::world::Guard;
use hustings_world::{Command, Plants, Script, World};
use serde::Deserialize;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Virtual time that a script may take, in microseconds.
const LONGEST: u64 = 3_600_000_000;
/// Real time that playing may take.
const BUDGET: Duration = Duration::from_secs(20);
/// The name under which a run ends that takes too much. It is no property.
const TOO_MUCH: &str = "too-much";
/// A page can show so many members; more clients than this only cost time.
const NODES_MAX: u64 = 9;
const CLIENTS_MAX: u64 = 50;
/// Bytes of a value that the page takes, and bytes that all disks of a world may hold: a run remembers all of them.
const VALUES_MAX: u64 = 8 << 10;
const DISKS_MAX: u64 = 256 << 20;
/// Longest election timeouts of virtual time that `peace` may take.
const PEACE_TIMEOUTS: u64 = 100;

/// The form of a protocol that is not a defect's name: with all repairs, or as it was published.
pub(crate) const REPAIRED: &str = "repaired";
/// Name of the published form; see [`REPAIRED`].
pub(crate) const PUBLISHED: &str = "as-published";

/// A page's request to play a script.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// A protocol by name.
    pub(crate) protocol: String,
    /// `repaired`, `as-published`, or the name of a planted defect.
    pub(crate) form: String,
    /// The text of the script.
    pub(crate) script: String,
    /// Moment up to which to play after its last command, in microseconds from the beginning.
    pub(crate) until: u64,
    /// Moment from which the page wants to know what happened, in microseconds.
    #[serde(default)]
    pub(crate) from: u64,
}

impl Order {
    fn subject(&self) -> Result<Subject, String> {
        protocols::check(&self.protocol).map_err(|error| error.to_string())?;
        let mut subject = Subject::named(&self.protocol);
        match self.form.as_str() {
            REPAIRED => {}
            PUBLISHED => subject.is_published = true,
            plant => subject.plant = Some(plant.to_owned()),
        }
        crate::check_plant(&subject).map_err(|error| error.to_string())?;
        Ok(subject)
    }
}

struct Playing<'a> {
    order: &'a Order,
    subject: &'a Subject,
    script: Script,
}

/// Plays what is asked for.
///
/// # Errors
/// In words: what cannot be read, or is too much.
pub(crate) fn play(order: &Order) -> Result<Value, String> {
    let subject = order.subject()?;
    let script = script_of(order, &subject)?;
    let playing = Playing { order, subject: &subject, script };
    protocols::visit(&subject, playing).map_err(|error| error.to_string())
}

fn script_of(order: &Order, subject: &Subject) -> Result<Script, String> {
    let mut script = Script::parse(&order.script).map_err(|error| error.to_string())?;
    let settings = &mut script.settings;
    if settings.nodes > NODES_MAX {
        return Err(format!("the page shows up to {NODES_MAX} members, not {}", settings.nodes));
    }
    if settings.load.clients > CLIENTS_MAX {
        return Err(format!("the page plays up to {CLIENTS_MAX} clients, not {}", settings.load.clients));
    }
    let others = [
        ("watchers", settings.load.watchers),
        ("rivals", settings.load.rivals),
        ("candidates", settings.load.candidates),
    ];
    if let Some((name, count)) = others.iter().find(|(_, count)| *count > CLIENTS_MAX) {
        return Err(format!("the page plays up to {CLIENTS_MAX} {name}, not {count}"));
    }
    if settings.load.value_bytes > VALUES_MAX {
        let bytes = settings.load.value_bytes;
        return Err(format!("the page plays values of up to {VALUES_MAX} bytes, not {bytes}; use `hustings play`"));
    }
    let peace = settings.election_max().saturating_mul(PEACE_TIMEOUTS);
    // As `simulate` and `play` have it.
    settings.rules.votes_are_promises = !subject.is_published;
    let takes = |command: &Command| match command {
        Command::Wait(micros) | Command::Settle(micros) => *micros,
        Command::Peace(_) => peace,
        _ => 0,
    };
    let takes = script.commands.iter().map(takes).fold(order.until, u64::saturating_add);
    if takes > LONGEST {
        return Err(format!("the page plays an hour at most; use `hustings play` for {} s", takes / 1_000_000));
    }
    Ok(script)
}

impl Visit for Playing<'_> {
    type Out = Value;

    fn visit<P>(self, options: P::Options) -> Value
    where
        P: Protocol + Sync,
        P::Options: Sync,
        P::Message: Sync,
        P::Timer: Sync,
    {
        self.work::<P>(options)
    }
}

/// Ends a run for which there is too little time or room, also in the middle of a command.
fn guard(begun: Instant) -> Guard {
    Box::new(move |disk_bytes| {
        let too_much = if begun.elapsed() > BUDGET {
            format!("playing took longer than {} s", BUDGET.as_secs())
        } else if disk_bytes > DISKS_MAX {
            format!("the disks of its members hold more than {} MiB", DISKS_MAX >> 20)
        } else {
            return Ok(());
        };
        Err(Violation::of(TOO_MUCH, too_much))
    })
}

impl Playing<'_> {
    fn work<P: Protocol>(self, options: P::Options) -> Value {
        let Playing { order, subject, script } = self;
        let plants = subject.plant.as_deref().and_then(Plants::named).unwrap_or_default();
        let mut world: Option<World<P, KvStore>> = None;
        let mut steps = Vec::new();
        let begun = Instant::now();
        let verdict = caught(|| -> Result<(), Violation> {
            let world = world.insert(World::planted(script.settings.clone(), options, plants)?);
            world.guard = Some(guard(begun));
            world.start_recording();
            for command in &script.commands {
                steps.push((world.now(), command.to_string()));
                world.apply(command)?;
            }
            world.run_until(order.until)?;
            if script.settings.load.clients > 0 {
                let judged = hustings_properties::check(&world.history());
                judged.map_err(|story| Violation::of("linearizable", story.to_string()))?;
            }
            Ok(())
        });
        let ended = verdict.unwrap_or_else(|words| Err(Violation::of("assertions", words))).err();
        let (stopped, violation) = match ended {
            Some(ended) if ended.property == TOO_MUCH => (Some(ended.what), None),
            violation => (None, violation),
        };
        let journal = world.as_mut().map(|world| std::mem::take(&mut world.journal)).unwrap_or_default();
        let end = world.as_ref().map_or(0, World::now);
        let run = Run {
            subject: format!("{} {}", order.protocol, order.form),
            packs_terms: P::SLOTS == Slots::Independent,
            nodes: script.settings.nodes,
            end,
            journal: &journal,
            recording: world.as_ref().and_then(|world| world.recording.as_deref()),
            violation: violation.map(|violation| (end, violation)),
            steps,
            stopped,
            time: Time::Virtual,
        };
        run.json(order.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(script: &str) -> Order {
        let (protocol, form) = ("raft".to_owned(), REPAIRED.to_owned());
        Order { protocol, form, script: script.to_owned(), until: 5_000_000, from: 0 }
    }

    #[test]
    fn what_happened_from_a_moment_on_is_the_end_of_what_happened() {
        let whole = play(&order("cluster 3 seed 2\nload clients 2\nwait 2s\ncrash leader")).expect("it is played");
        let from = 3_000_000;
        let part = play(&Order { from, ..order("cluster 3 seed 2\nload clients 2\nwait 2s\ncrash leader") });
        let part = part.expect("it is played");
        for list in ["members", "lines"] {
            let all = whole[list].as_array().expect("a list");
            let late: Vec<&Value> = all.iter().filter(|row| row[0].as_u64() >= Some(from)).collect();
            assert!(late.len() < all.len() && !late.is_empty() || list == "lines", "{list}");
            assert!(late.into_iter().eq(part[list].as_array().expect("a list")), "{list}");
        }
        assert!(part["messages"].as_array().expect("a list").iter().all(|row| row[3].as_u64() >= Some(from)));
        assert_eq!(whole["steps"][1], serde_json::json!([2_000_000, "crash leader"]));
    }

    /// Plays a script that takes too much, which is nobody's fault.
    fn is_stopped(script: &str) {
        let run = play(&order(script)).expect("it is played");
        let is_bounded = |why: &str| why.contains("MiB") || why.contains("took longer");
        assert!(run["stopped"].as_str().is_some_and(is_bounded), "{}", run["stopped"]);
        assert_eq!(run["violation"], Value::Null);
    }

    /// Goal: no script ends the laboratory by memory. Method: many clients write all the time what the page just takes.
    #[test]
    fn a_run_ends_before_its_disks_are_larger_than_this_machine() {
        is_stopped("cluster 3\nload clients 50 values 8000 pause 1ms\nwait 50m");
    }

    /// Goal: found by a hostile reader: bounds hold within a command, too. Method: the same while it is judged whether nine members come to
    /// rest, which took minutes and many gigabytes.
    #[test]
    fn a_run_ends_while_peace_is_judged() {
        is_stopped("cluster 9\ntiming 1s 20s 35s\nload clients 50 values 8192 pause 1ms\npeace disk n9 slow 300ms");
    }

    #[test]
    fn what_cannot_be_played_is_said() {
        let refused = |order: Order| play(&order).expect_err("it is refused");
        assert!(refused(order("crush n1")).contains("did you mean `crash`?"));
        assert!(refused(order("cluster 40")).contains("up to 9 members"));
        assert!(refused(order("load clients 9 values 300000000 pause 100ms")).contains("at most"));
        assert!(refused(order("load clients 9 values 1000000 pause 100ms")).contains("values of up to 8192 bytes"));
        assert!(refused(order("load rivals 900")).contains("up to 50 rivals"));
        assert!(refused(order("timing 1s 1h 2h\npeace")).contains("an hour at most"));
        assert!(refused(order("wait 2h")).contains("an hour at most"));
        assert!(refused(Order { protocol: "rafd".into(), ..order("") }).contains("there is no protocol `rafd`"));
        assert!(refused(Order { form: "votes-for-all".into(), ..order("") }).contains("there is no defect"));
    }
}
