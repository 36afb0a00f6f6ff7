//! The command line of `bench`, and what it says: [`Settings`].

use super::choice::{Keys, Mix, Operation, Popularity, Sizes};
use super::recorder::Pace;
use crate::exit::{Code, Exit};
use crate::output::{common, endpoints_of, timeout_of};
use anyhow::Result;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::time::Duration;

/// etcd refuses more operations in one transaction, unless it is told otherwise.
const TXN_OPERATIONS_MAX: u64 = 128;

/// The command line of `bench`.
pub(crate) fn command() -> Command {
    let load = |name: &'static str, clients: &'static str, about: &'static str| {
        common(Command::new(name).about(about)).args(load_arguments(clients)).next_help_heading("What is asked")
    };
    Command::new("bench")
        .about("Measure a cluster (any etcd v3 server)")
        .long_about(
            "Measure a cluster (any etcd v3 server).\n\nWithout --rate the loop is closed: a client asks again once it has its answer, and a target that stands \
             still is asked less. With --rate requests are due at their times, and each counts from then on. docs/bench.md says how to read the figures.",
        )
        .subcommand_required(true)
        .subcommand(load("put", "64", "Puts per second").args(key_arguments("10000")).arg(value_argument()))
        .subcommand(
            load("get", "64", "Gets per second, linearizable ones or serializable ones")
                .args(key_arguments("10000"))
                .arg(value_argument())
                .args(read_arguments()),
        )
        .subcommand(
            load("mix", "64", "Gets and puts, or any operations, by their shares")
                .args(key_arguments("10000"))
                .arg(value_argument())
                .args(read_arguments())
                .args(mix_arguments())
                .args([txn_argument(), range_argument()]),
        )
        .subcommand(
            load("txn", "64", "Transactions per second: compare that a key is there, and put")
                .args(key_arguments("10000"))
                .arg(value_argument())
                .arg(txn_argument()),
        )
        .subcommand(
            load("range", "64", "Ranges of several keys per second")
                .args(key_arguments("10000"))
                .arg(value_argument())
                .args(read_arguments())
                .arg(range_argument()),
        )
        .subcommand(
            load("delete", "64", "Deletes per second, of keys that are put before")
                .args(key_arguments("10000"))
                .arg(value_argument()),
        )
        .subcommand(
            load("watch", "8", "The delay from a put to its event at each watcher")
                .arg(number("watchers", "100").help("Watchers; each watches one key"))
                .args(key_arguments("10"))
                .arg(value_argument()),
        )
        .subcommand(
            load("lease", "64", "Grants, keep-alives, or how late leases expire")
                .arg(
                    Arg::new("what")
                        .default_value("keep-alive")
                        .value_parser(["grant", "keep-alive", "expiry"])
                        .help("What is measured"),
                )
                .arg(number("ttl", "60").help("Seconds that a lease lives"))
                .arg(number("leases", "1000").help("Leases that expire, for expiry")),
        )
}

fn number(name: &'static str, default: &'static str) -> Arg {
    Arg::new(name).long(name).default_value(default).value_parser(value_parser!(u64).range(1..))
}

/// Whole seconds, or a duration with its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let time = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => humantime::parse_duration(text).map_err(|error| format!("{error}; write 10, 10s or 2m"))?,
    };
    if time > Duration::from_secs(30 * 86_400) { Err("30 days at most".into()) } else { Ok(time) }
}

fn some_time(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| if time.is_zero() { Err("it must be longer than nothing".into()) } else { Ok(time) })
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| *rate >= 0.01 && *rate <= 10_000_000.0);
    rate.ok_or_else(|| "requests per second, from 0.01 to 10000000".into())
}

fn load_arguments(clients: &'static str) -> [Arg; 9] {
    [
        Arg::new("clients")
            .long("clients")
            .default_value(clients)
            .value_parser(value_parser!(u64).range(1..=1_000_000))
            .help("Requests in flight, at most"),
        Arg::new("connections")
            .long("connections")
            .visible_alias("conns")
            .default_value("0")
            .value_parser(value_parser!(u64))
            .help("Connections, spread over the endpoints [0: one per 32 clients, at least one per endpoint]"),
        Arg::new("seconds")
            .long("seconds")
            .visible_alias("duration")
            .default_value("10")
            .value_parser(some_time)
            .help("How long, after warming up: seconds, or with a unit as 2m"),
        Arg::new("warm-up")
            .long("warm-up")
            .default_value("1s")
            .value_parser(duration)
            .help("How long it runs before anything counts"),
        Arg::new("rate")
            .long("rate")
            .short('R')
            .value_name("PER-SECOND")
            .value_parser(rate)
            .help("Open loop: so many requests are due per second, and each counts from when it was due"),
        Arg::new("total")
            .long("total")
            .value_name("REQUESTS")
            .value_parser(value_parser!(u64).range(1..))
            .help("End after so many; without --seconds, however long that takes"),
        Arg::new("seed")
            .long("seed")
            .value_parser(value_parser!(u64))
            .help("The same requests again: keys, sizes, operations [default: drawn, and printed]"),
        Arg::new("target-leader")
            .long("target-leader")
            .action(ArgAction::SetTrue)
            .help("Ask only that endpoint whose member leads as this begins"),
        Arg::new("quiet").long("quiet").action(ArgAction::SetTrue).help("No progress on a terminal"),
    ]
}

fn key_arguments(count: &'static str) -> [Arg; 4] {
    [
        number("keys", count).visible_alias("key-space-size").help("Different keys"),
        number("key-size", "16").help("Bytes of a key"),
        Arg::new("distribution")
            .long("distribution")
            .visible_alias("requestdistribution")
            .default_value("uniform")
            .value_parser(|text: &str| text.parse::<Popularity>().map_err(|error| error.to_string()))
            .help("Which keys: uniform, zipf (theta 0.99), zipf:THETA, sequential, hot (one key)"),
        Arg::new("sequential-keys")
            .long("sequential-keys")
            .action(ArgAction::SetTrue)
            .conflicts_with("distribution")
            .help("As --distribution sequential"),
    ]
}

fn value_argument() -> Arg {
    Arg::new("value-size")
        .long("value-size")
        .visible_aliases(["val-size", "sizes"])
        .default_value("256")
        .value_parser(|text: &str| text.parse::<Sizes>().map_err(|error| error.to_string()))
        .help("Bytes of a value: 256, a range as 100..4096, or sizes with shares as 256:90,16384:10")
}

fn read_arguments() -> [Arg; 2] {
    [
        Arg::new("consistency")
            .long("consistency")
            .default_value("linearizable")
            .value_parser(["linearizable", "serializable", "l", "s"])
            .hide_possible_values(true)
            .help("linearizable (l), or serializable (s): what the asked member has"),
        Arg::new("serializable")
            .long("serializable")
            .action(ArgAction::SetTrue)
            .conflicts_with("consistency")
            .help("As --consistency serializable"),
    ]
}

fn mix_arguments() -> [Arg; 2] {
    [
        Arg::new("reads")
            .long("reads")
            .value_name("PERCENT")
            .default_value("50")
            .value_parser(value_parser!(u32).range(0..=100))
            .help("Percent of gets; the rest are puts"),
        Arg::new("mix")
            .long("mix")
            .value_name("OPERATION:SHARE,...")
            .conflicts_with("reads")
            .value_parser(|text: &str| text.parse::<Mix>().map_err(|error| error.to_string()))
            .help("Shares of put, get, txn, range, delete, as get:80,put:15,txn:5"),
    ]
}

fn txn_argument() -> Arg {
    Arg::new("txn-ops")
        .long("txn-ops")
        .default_value("1")
        .value_parser(value_parser!(u64).range(1..=TXN_OPERATIONS_MAX))
        .help("Puts in a transaction, each of another key")
}

fn range_argument() -> Arg {
    number("range-keys", "100").help("Keys that a range asks for")
}

/// The load on the store.
#[derive(Clone, Debug)]
pub(super) struct StoreWork {
    pub(super) mix: Mix,
    pub(super) keys: Keys,
    pub(super) sizes: Sizes,
    pub(super) is_serializable: bool,
    pub(super) txn_operations: u64,
    pub(super) range_keys: u64,
}

/// The measurement of leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeaseWork {
    Grant,
    KeepAlive,
    /// The delay with which so many leases expire.
    Expiry {
        leases: u64,
    },
}

/// The measurement that a run makes.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Store(StoreWork),
    /// Puts, and their events at so many watchers.
    Watch {
        watchers: u64,
        keys: Keys,
        sizes: Sizes,
    },
    Lease {
        what: LeaseWork,
        ttl_seconds: i64,
    },
}

/// All that a run is told.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) verb: String,
    pub(super) work: Work,
    pub(super) endpoints: Vec<String>,
    pub(super) clients: u64,
    pub(super) connections: u64,
    pub(super) warm_up: Duration,
    /// `None`: until `total` requests are sent.
    pub(super) run: Option<Duration>,
    pub(super) total: Option<u64>,
    pub(super) pace: Pace,
    pub(super) seed: u64,
    /// Time that an answer may take.
    pub(super) timeout: Duration,
}

impl Settings {
    /// # Errors
    /// Flags that do not go together, each by its name.
    pub(super) fn of(verb: &str, matches: &ArgMatches) -> Result<Settings> {
        let number = |name: &str| *matches.get_one::<u64>(name).expect("it has a default");
        let time = |name: &str| *matches.get_one::<Duration>(name).expect("it has a default");
        let endpoints = endpoints_of(matches);
        let clients = number("clients");
        let connections = match number("connections") {
            0 => clients.div_ceil(32).max(endpoints.len() as u64).min(clients),
            given => given.min(clients),
        };
        let total = matches.get_one::<u64>("total").copied();
        let is_told = matches.value_source("seconds") != Some(ValueSource::DefaultValue);
        let run = (total.is_none() || is_told).then(|| time("seconds"));
        let pace = match matches.get_one::<f64>("rate") {
            Some(per_second) => Pace::Open { per_second: *per_second },
            None => Pace::Closed,
        };
        let work = match verb {
            "watch" => {
                let (keys, sizes) = (keys_of(matches)?, sizes_of(matches));
                Work::Watch { watchers: number("watchers"), keys, sizes }
            }
            "lease" => lease_work(matches)?,
            _ => Work::Store(store_work(verb, matches)?),
        };
        let verb = match &work {
            Work::Lease { .. } => format!("lease {}", text(matches, "what")),
            _ => verb.to_owned(),
        };
        if matches!(work, Work::Lease { what: LeaseWork::Expiry { .. }, .. })
            && (pace != Pace::Closed || total.is_some())
        {
            return Err(usage(
                "bench lease expiry grants its leases at once: --rate and --total mean nothing to it, --leases does",
            ));
        }
        let seed = matches.get_one::<u64>("seed").copied().unwrap_or_else(|| u64::from(rand::random::<u32>()));
        let (warm_up, timeout) = (time("warm-up"), timeout_of(matches));
        Ok(Settings { verb, work, endpoints, clients, connections, warm_up, run, total, pace, seed, timeout })
    }
}

fn usage(what: impl Into<String>) -> anyhow::Error {
    Exit::with(Code::Usage, what)
}

fn text<'a>(matches: &'a ArgMatches, name: &str) -> &'a str {
    matches.get_one::<String>(name).map_or("", String::as_str)
}

fn lease_work(matches: &ArgMatches) -> Result<Work> {
    let number = |name: &str| *matches.get_one::<u64>(name).expect("it has a default");
    let what = match text(matches, "what") {
        "grant" => LeaseWork::Grant,
        "expiry" => LeaseWork::Expiry { leases: number("leases") },
        _ => LeaseWork::KeepAlive,
    };
    // Nobody waits a minute for leases to expire unless told so.
    let is_told = matches.value_source("ttl") != Some(ValueSource::DefaultValue);
    let ttl = if matches!(what, LeaseWork::Expiry { .. }) && !is_told { 2 } else { number("ttl") };
    let ttl_seconds = i64::try_from(ttl).ok().filter(|ttl| *ttl <= 9_000_000_000);
    let ttl_seconds =
        ttl_seconds.ok_or_else(|| usage(format!("--ttl {ttl} is longer than any lease: 9000000000 at most")))?;
    Ok(Work::Lease { what, ttl_seconds })
}

fn sizes_of(matches: &ArgMatches) -> Sizes {
    matches.get_one::<Sizes>("value-size").cloned().expect("it has a default")
}

fn keys_of(matches: &ArgMatches) -> Result<Keys> {
    let number = |name: &str| *matches.get_one::<u64>(name).expect("it has a default");
    let told = *matches.get_one::<Popularity>("distribution").expect("it has a default");
    let popularity = if matches.get_flag("sequential-keys") { Popularity::Sequential } else { told };
    let bytes = usize::try_from(number("key-size")).ok().filter(|bytes| *bytes <= 1 << 20);
    let bytes = bytes.ok_or_else(|| usage("--key-size is 1048576 bytes at most"))?;
    Keys::new(number("keys"), bytes, popularity).map_err(|error| usage(error.to_string()))
}

fn store_work(verb: &str, matches: &ArgMatches) -> Result<StoreWork> {
    let given = |name: &str| matches.try_get_one::<u64>(name).ok().flatten().copied();
    let keys = keys_of(matches)?;
    let mix = match verb {
        "put" => Mix::only(Operation::Put),
        "get" => Mix::only(Operation::Get),
        "txn" => Mix::only(Operation::Txn),
        "range" => Mix::only(Operation::Range),
        "delete" => Mix::only(Operation::Delete),
        _ => match matches.get_one::<Mix>("mix") {
            Some(mix) => mix.clone(),
            None => Mix::of_reads(*matches.get_one::<u32>("reads").expect("it has a default")),
        },
    };
    let txn_operations = given("txn-ops").unwrap_or(1);
    if mix.has(Operation::Txn) && txn_operations > keys.count {
        return Err(usage(format!(
            "--txn-ops {txn_operations} puts need as many different keys, and --keys is {}: a server refuses a key twice in a transaction",
            keys.count
        )));
    }
    let said = |name: &str| matches.try_get_one::<String>(name).ok().flatten().cloned();
    let is_flagged = matches.try_get_one::<bool>("serializable").ok().flatten().copied().unwrap_or(false);
    let is_serializable = is_flagged || said("consistency").is_some_and(|told| told.starts_with('s'));
    let range_keys = given("range-keys").unwrap_or(1);
    Ok(StoreWork { mix, keys, sizes: sizes_of(matches), is_serializable, txn_operations, range_keys })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Settings, String> {
        let matches = command().try_get_matches_from(line.split(' ')).map_err(|error| error.to_string())?;
        let (verb, matches) = matches.subcommand().expect("clap requires one");
        Settings::of(verb, matches).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_wrong_is_told_with_its_flag() {
        for (line, flag, remedy) in [
            ("bench put --rate fast", "--rate", "from 0.01"),
            ("bench put --rate 0", "--rate", "from 0.01"),
            ("bench put --value-size 256:90,x:10", "--value-size", "no size"),
            ("bench get --distribution zipf:much", "--distribution", "zipf:0.99"),
            ("bench mix --mix get:95,putt:5", "--mix", "put, get, txn"),
            ("bench mix --reads 101", "--reads", "100"),
            ("bench put --seconds soon", "--seconds", "10s"),
            ("bench put --seconds 0", "--seconds", "longer than nothing"),
            ("bench put --key-size 8", "--key-size", "10 at least"),
            ("bench txn --txn-ops 20 --keys 10", "--txn-ops", "--keys is 10"),
            ("bench lease expiry --rate 10", "--rate", "--leases"),
            ("bench get --serializable --consistency l", "--serializable", "cannot be used with"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(flag) && error.contains(remedy), "{line}: {error}");
        }
    }

    #[test]
    fn words_of_other_benchmarks_are_understood() {
        let settings = parsed("bench put --conns=2 --clients=8 --val-size=512 --key-space-size=50 --total=100 -R 20");
        let settings = settings.expect("as etcd's benchmark and wrk2 say it");
        assert_eq!((settings.connections, settings.total, settings.run), (2, Some(100), None));
        assert_eq!(settings.pace, Pace::Open { per_second: 20.0 });
        let settings = parsed("bench mix --reads 95 --requestdistribution zipfian --duration 2m --consistency s");
        let settings = settings.expect("as YCSB says it");
        let Work::Store(work) = settings.work else { panic!("it asks the store") };
        assert_eq!((work.mix.to_string().as_str(), work.is_serializable), ("get 95 %, put 5 %", true));
        assert_eq!(
            (work.keys.popularity, settings.run),
            (Popularity::Zipf { theta: 0.99 }, Some(Duration::from_secs(120)))
        );
    }
}
