//! `measure`: how long a cluster is gone when its leader dies, is asked to stop, or falls silent; how much it answers; what it
//! costs at rest, and what many clients cost; whether it keeps its leader on a busy machine. Beside a real etcd, in the same run.
//!
//! ```text
//!   measure failover [--binary PATH] [--etcd PATH] [--times 50] [--rest 500] [--signal kill|term|stop|panic|silent]
//!                    [--keys 0] [--entries 0] [--watchers 0] [--leases 0] [--connections 0]
//!   measure compare  [--binary PATH] [--etcd PATH] [--zookeeper] [--rounds 5] [--seconds 5] [--loads put:64,get:256] [-o json]
//!   measure idle     [--binary PATH] [--etcd PATH]
//!   measure width    [--binary PATH] [--etcd PATH] [--leases 1000000] [--watches 100000] [--connections 10000]
//!                    [--prefix-keys 100000] [--prefix-watchers 1000]
//!   measure store    [--binary PATH] [--etcd PATH] [--keys 1000000] [--rounds 5]
//!   measure calm     [--binary PATH] [--etcd PATH] [--busy 20] [--minutes 30]
//!   measure page     [--etcd PATH] [--only WORD] docs/performance.md
//! ```

use anyhow::Result;
use clap::{Arg, Command, value_parser};
use compare::{Comparison, Load};
use crowd::{Crowd, Sizes};
use failover::End;
use hustings_testbed::{Cluster, Node, Program};
use resources::AtRest;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::path::PathBuf;
use std::time::Duration;
use width::Widths;

mod calm;
mod compare;
mod crowd;
mod drive_zookeeper;
mod failover;
mod namespaces;
mod page;
mod resources;
mod store;
mod width;

fn main() -> Result<()> {
    let common = |command: Command| {
        command
            .arg(
                Arg::new("binary")
                    .long("binary")
                    .help("The hustings to measure; by default the one beside this program"),
            )
            .arg(Arg::new("etcd").long("etcd").help("Measure this etcd too, in the same run"))
            .arg(
                Arg::new("protocol")
                    .long("protocol")
                    .value_delimiter(',')
                    .default_value("raft")
                    .help("One, or several to lay beside each other"),
            )
    };
    let number = |name: &'static str, default: &'static str| {
        Arg::new(name).long(name).default_value(default).value_parser(value_parser!(u32))
    };
    let matches = Command::new("measure")
        .subcommand_required(true)
        .subcommand(
            common(Command::new("failover").about("Time without service when the leader goes"))
                .arg(number("times", "50"))
                .arg(number("keys", "0").help("Keys that the store holds before, with values of 256 bytes"))
                .arg(
                    number("rest", "500")
                        .help("Milliseconds of peace before each signal: elections in a row wait for each other"),
                )
                .arg(
                    number("entries", "0")
                        .help("Writes since the last snapshot; with any, the members are told to take none"),
                )
                .arg(number("watchers", "0").help("Watchers of keys that nobody writes, over all members"))
                .arg(number("leases", "0").help("Leases of a day"))
                .arg(number("connections", "0").help("Connections that ask nothing, over all members"))
                .arg(Arg::new("signal").long("signal").default_value("kill").value_parser(End::WORDS).help(
                    "The leader's end; panic: SIGABRT, in which one ends; silent: its cable is pulled (takes root)",
                )),
        )
        .subcommand(compare::arguments(common(
            Command::new("compare").about("Requests per second beside others, alternating, medians"),
        )))
        .subcommand(common(Command::new("idle").about("Memory and processor time of a cluster that nobody uses")))
        .subcommand(
            common(Command::new("width").about("What many clients cost, each kind in a cluster of its own; 0: not"))
                .arg(number("leases", "1000000"))
                .arg(number("watches", "100000"))
                .arg(number("connections", "10000"))
                .arg(number("prefix-keys", "100000").help("Keys below one prefix, for its watchers"))
                .arg(number("prefix-watchers", "1000").help("Watchers of that whole prefix")),
        )
        .subcommand(
            common(Command::new("store").about("Memory, start and longest put of a store with many keys"))
                .arg(number("keys", "1000000"))
                .arg(number("rounds", "5")),
        )
        .subcommand(
            common(Command::new("calm").about("Elections without a fault on a busy machine, all systems at once"))
                .arg(number("busy", "20").help("Processes that take what processor time they get"))
                .arg(number("minutes", "30")),
        )
        .subcommand(drive_zookeeper::command())
        .subcommand(
            Command::new("page")
                .about(
                    "Runs the commands of a page of figures again, and writes what they print into it, with its charts",
                )
                .arg(Arg::new("page").required(true).value_name("FILE").value_parser(value_parser!(PathBuf)))
                .arg(Arg::new("only").long("only").help("The figures whose name contains this word"))
                .arg(Arg::new("etcd").long("etcd").help("What $ETCD is to the commands")),
        )
        .get_matches();
    let (verb, matches) = matches.subcommand().expect("clap requires one");
    if verb == drive_zookeeper::NAME {
        return drive_zookeeper::run(matches);
    }
    raise_limit()?;
    if verb == "page" {
        let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
        let page = matches.get_one::<PathBuf>("page").expect("clap requires it");
        return page::run(page, text("only"), text("etcd"));
    }
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let number = |name: &str| *matches.get_one::<u32>(name).expect("it has a default");
    let protocols: Vec<String> = matches.get_many("protocol").into_iter().flatten().cloned().collect();
    let beside = std::env::current_exe()?.with_file_name("hustings");
    let binary = text("binary").unwrap_or_else(|| beside.display().to_string());
    let title = |name: &'_ String| if protocols.len() > 1 { name.clone() } else { "hustings".into() };
    let titles: Vec<String> = protocols.iter().map(title).collect();
    let mut programs: Vec<(&str, Program)> = titles
        .iter()
        .zip(&protocols)
        .map(|(title, name)| (title.as_str(), Program::hustings(&binary).with(&["--protocol", name.as_str()])))
        .collect();
    programs.extend(text("etcd").map(|path| ("etcd", Program::etcd(path))));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match verb {
            "failover" => {
                let plan = failover::Plan {
                    binary: &binary,
                    times: number("times"),
                    rest: Duration::from_millis(number("rest").into()),
                    keys: number("keys"),
                    entries: number("entries"),
                    crowd: Sizes {
                        watchers: number("watchers"),
                        leases: number("leases"),
                        connections: number("connections"),
                    },
                    end: End::named(&text("signal").expect("it has a default")),
                };
                failover::run(programs, plan).await?;
            }
            "width" => {
                let widths = Widths {
                    leases: number("leases"),
                    watches: number("watches"),
                    connections: number("connections"),
                    prefix_keys: number("prefix-keys"),
                    prefix_watchers: number("prefix-watchers"),
                };
                width::run(programs, &binary, widths).await?;
            }
            "store" => store::run(programs, &binary, number("keys"), number("rounds")).await?,
            "calm" => calm::run(programs, number("busy"), number("minutes")).await?,
            "compare" => {
                let loads = matches.get_many::<Load>("loads").into_iter().flatten().cloned().collect();
                let comparison = Comparison {
                    binary: &binary,
                    programs,
                    with_zookeeper: matches.get_flag("zookeeper"),
                    loads,
                    rounds: number("rounds"),
                    seconds: number("seconds"),
                    value_size: number("value-size"),
                };
                compare::run(comparison, text("output").as_deref() == Some("json")).await?;
            }
            _ => {
                for (name, program) in programs {
                    idle(name, program).await?;
                }
            }
        }
        Ok(())
    })
}

/// A cluster at rest; then with 1,000 watches and 10,000 leases of a day.
async fn idle(name: &str, program: Program) -> Result<()> {
    let cluster = Cluster::start(program, 3).await?;
    let pids: Vec<u32> = cluster.nodes.iter().filter_map(Node::pid).collect();
    println!("{name:9} idle: {}", AtRest::of(&pids, SETTLE, REST).await);
    let sizes = Sizes { watchers: 1_000, leases: 10_000, connections: 0 };
    let crowd = Crowd::at(&cluster, sizes).await?;
    println!("{name:9} idle with 1,000 watches and 10,000 leases: {}", AtRest::of(&pids, SETTLE, REST).await);
    drop(crowd);
    Ok(())
}

/// Time after which a cluster that was just used is at rest.
const SETTLE: Duration = Duration::from_secs(15);
/// Time for which it is then looked at.
const REST: Duration = Duration::from_secs(30);

/// As many open files as this user may have, for this process and the nodes: each connection is one on both sides.
fn raise_limit() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
