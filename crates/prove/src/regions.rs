//! `hustings regions`: the five protocols on five continents, in virtual time.
//!
//! Three questions, each asked of the production code: what a write and a read cost in every region, by where the leader stands;
//! what it costs to lose a region; and what the timing must be for that network. Equal commands print equal tables.

use crate::compare::quantile;
use crate::is_json;
use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use hustings_console::exit::{Code, Exit};
use hustings_core::{Protocol, Timing};
use hustings_kv::KvStore;
use hustings_properties::Violation;
use hustings_protocols::{self as protocols, Subject, Visit};
use hustings_world::regions::{self, Cost, Loss, REGIONS, Seen};
use hustings_world::settings::Settings;
use serde_json::{Value, json};
use std::time::Duration;

/// The least election timeout of `--timing auto` that goes with these distances: five of their longest round trips, and more.
const LEAST: Duration = Duration::from_millis(1_500);
/// Region of the leader, by its place, in the questions that are not about that.
const CAPITAL: usize = 0;
/// The losses, each with its key and its name in tables.
const LOSSES: [(&str, &str, Loss); 4] = [
    ("leader-crashes", "leader's process ends", Loss::LeaderCrashes),
    ("leader-dark", "leader's region dark", Loss::LeaderDark),
    ("leader-cut-off", "leader's region cut off", Loss::LeaderCutOff),
    ("follower-cut-off", "farthest region cut off", Loss::FollowerCutOff),
];

/// The command line of `regions`.
pub fn command() -> Command {
    Command::new("regions")
        .about("Members on five continents: what writes, reads and lost regions cost under each protocol")
        .after_help("Virtual time over measured round trips (docs/regions.md): the figures are exactly repeatable.")
        .arg(super::protocols_argument())
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_parser(value_parser!(u64))
                .default_value("1")
                .help("Where chances come from"),
        )
        .arg(hustings_console::output_argument())
}

/// The measurements of one protocol.
struct Answers {
    /// Latencies by the leader's region, then by the client's.
    service: Vec<[Seen; 5]>,
    /// The costs of each loss: with one timing for all, and where each member has its own.
    losses: Vec<[Cost; 2]>,
    /// Reigns that ended within ten minutes, and the share without a leader: with the usual timing, with what `--timing auto` makes of
    /// it, with one that fits, and with one that fits each member.
    unrest: [(u64, f64); 4],
}

struct Asking {
    seed: u64,
}

impl Visit for Asking {
    type Out = Result<Answers, Violation>;

    fn visit<P: Protocol>(self, options: P::Options) -> Result<Answers, Violation> {
        let settings = |timing, leader| regions::settings(timing, leader, self.seed);
        let (usual, fitting) = (Timing::default(), regions::fitting(LEAST));
        let place = 0..REGIONS.len();
        let serve = |leader| regions::serve::<P, KvStore>(settings(fitting, leader), options.clone(), leader);
        let service = place.map(serve).collect::<Result<_, _>>()?;
        let own = || Settings { timings: regions::fitting_each(LEAST), ..settings(fitting, CAPITAL) };
        let lose = |(_, _, loss): &(_, _, Loss)| {
            let lost = |settings| regions::lose::<P, KvStore>(settings, options.clone(), CAPITAL, *loss);
            Ok([lost(settings(fitting, CAPITAL))?, lost(own())?])
        };
        let losses = LOSSES.iter().map(lose).collect::<Result<_, _>>()?;
        let unrest = |settings| regions::unrest::<P, KvStore>(settings, options.clone());
        let quiet = |timing| unrest(settings(timing, CAPITAL));
        let automatic = regions::fitting(usual.election_min);
        let unrest = [quiet(usual)?, quiet(automatic)?, quiet(fitting)?, unrest(own())?];
        Ok(Answers { service, losses, unrest })
    }
}

/// Runs `hustings regions`: a cluster whose members stand on five continents.
pub fn run(matches: &ArgMatches) -> Result<()> {
    super::keep_quiet_about_findings();
    let names = super::protocols_of(matches);
    let seed = matches.get_one::<u64>("seed").copied().unwrap_or(1);
    let mut all = Vec::new();
    for name in names {
        let answers = protocols::visit(&Subject::named(&name), Asking { seed })?;
        let answers = answers.map_err(|violation| Exit::with(Code::Failed, format!("{name}: {violation}")))?;
        all.push((name, answers));
    }
    if is_json(matches) {
        let protocols = all.iter().map(|(name, answers)| (name.clone(), as_json(answers)));
        let protocols: serde_json::Map<String, Value> = protocols.collect();
        let kind =
            json!({ "apiVersion": "v1", "kind": "Regions", "seed": seed, "regions": REGIONS, "protocols": protocols });
        println!("{kind}");
        return Ok(());
    }
    print_tables(&all);
    Ok(())
}

fn median(values: &[u64]) -> f64 {
    let values: Vec<f64> = values.iter().map(|micros| *micros as f64).collect();
    quantile(&values, 0.5).unwrap_or_default() / 1_000.0
}

fn millis(micros: u64) -> f64 {
    micros as f64 / 1_000.0
}

fn as_json(answers: &Answers) -> Value {
    let service = REGIONS.iter().zip(&answers.service).map(|(leader, seen)| {
        let seen = REGIONS.iter().zip(seen).map(|(client, seen)| {
            let figures = json!({
                "write_p50_ms": median(&seen.writes), "writes": seen.writes.len(),
                "read_p50_ms": median(&seen.reads), "reads": seen.reads.len(),
            });
            ((*client).to_owned(), figures)
        });
        ((*leader).to_owned(), Value::Object(seen.collect()))
    });
    let losses = LOSSES.iter().zip(&answers.losses).map(|((key, ..), [cost, own])| {
        let figures = json!({
            "leaderless_ms": millis(cost.leaderless), "leader": REGIONS[cost.leader], "changes": cost.changes,
            "own_timing": {
                "leaderless_ms": millis(own.leaderless), "leader": REGIONS[own.leader], "changes": own.changes,
            },
        });
        ((*key).to_owned(), figures)
    });
    let [usual, automatic, fitting, own] = answers.unrest;
    let unrest = |(ended, leaderless): (u64, f64)| json!({ "reigns_ended": ended, "leaderless_share": leaderless });
    json!({
        "by_leader": Value::Object(service.collect()),
        "losses": Value::Object(losses.collect()),
        "timing": { "default": unrest(usual), "auto": unrest(automatic), "fitting": unrest(fitting), "own": unrest(own) },
    })
}

fn print_tables(all: &[(String, Answers)]) {
    let pad = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>10}")).collect();
        cells.join(" ")
    };
    let heads = pad(&REGIONS.map(str::to_owned));
    let timing = regions::fitting(LEAST);
    println!(
        "Five members, one in each region, a client beside each. Heartbeat {} ms, election timeout {} to {} ms.",
        timing.heartbeat.as_millis(),
        timing.election_min.as_millis(),
        timing.election_max.as_millis()
    );
    println!("\nA write, median in ms, by the client's region; the least is the leader's round trip to a majority.\n");
    println!("{:<10} {:<10} {heads}", "protocol", "leader");
    for (name, answers) in all {
        for (leader, seen) in answers.service.iter().enumerate() {
            let cells = seen.each_ref().map(|seen| format!("{:.1}", median(&seen.writes)));
            let least = millis(regions::majority_round_trip(leader));
            println!("{name:<10} {:<10} {}   least {least:.1}", REGIONS[leader], pad(&cells));
        }
    }
    println!("\nA linearizable read, the same.\n\n{:<10} {:<10} {heads}", "protocol", "leader");
    for (name, answers) in all {
        for (leader, seen) in answers.service.iter().enumerate() {
            let cells = seen.each_ref().map(|seen| format!("{:.1}", median(&seen.reads)));
            println!("{name:<10} {:<10} {}", REGIONS[leader], pad(&cells));
        }
    }
    println!(
        "\nWhat is lost while the leader stands in {}: ms without a leader, who led then; the same where each member has its own \
         timing, as `--timing auto` measures it.\n",
        REGIONS[CAPITAL]
    );
    for (name, answers) in all {
        for ((_, what, _), costs) in LOSSES.iter().zip(&answers.losses) {
            let told = costs.each_ref().map(|Cost { leaderless, changes, leader }| {
                format!("{:>6.0} ms, {changes} changes, then {:<9}", millis(*leaderless), REGIONS[*leader])
            });
            println!("{}", format!("{name:<10} {what:<24} {}", told.join("   own ")).trim_end());
        }
    }
    println!("\nThe election timeout of each member's own, in ms at least:\n");
    let own = regions::fitting_each(LEAST);
    let own: Vec<String> = own.iter().map(|timing| timing.election_min.as_millis().to_string()).collect();
    println!("{:<21} {heads}\n{:<21} {}", "", "", pad(&own));
    println!("\nTen minutes in which nothing fails.\n");
    for (name, answers) in all {
        let told =
            |(ended, share): (u64, f64)| format!("{ended} reigns ended, {:.1} % without a leader", share * 100.0);
        for (timing, unrest) in
            ["default", "auto from 250 ms", "auto from 1500 ms", "each its own"].iter().zip(answers.unrest)
        {
            println!("{name:<10} timing {timing:<18} {}", told(unrest));
        }
    }
}
