//! `hustings bench`: how many requests a cluster answers, and how soon.
//!
//! Works against any etcd v3 server, so that two systems can be measured by the same driver in the same minute. The share of
//! the processors that other processes took meanwhile is printed beside each figure: a figure from a busy machine says so.

use crate::client::connect;
use crate::credentials::asked;
use crate::output::{Format, common, endpoints_of, format_of, options_of};
use crate::usage::Usage;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::{Arg, ArgMatches, Command, value_parser};
use hdrhistogram::Histogram;
use hustings_api::client::transport;
use hustings_api::etcdserverpb::kv_client::KvClient;
use hustings_api::etcdserverpb::{PutRequest, RangeRequest};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tonic::transport::Channel;

/// The command line of `bench`.
pub(crate) fn command() -> Command {
    let load = |name: &'static str, about: &'static str| {
        common(Command::new(name).about(about))
            .arg(
                Arg::new("clients")
                    .long("clients")
                    .default_value("64")
                    .value_parser(value_parser!(u64).range(1..))
                    .help("Requests in flight"),
            )
            .arg(
                Arg::new("connections")
                    .long("connections")
                    .default_value("0")
                    .value_parser(value_parser!(u64))
                    .help("Connections, spread over the endpoints [0: one per 32 clients, at least one per endpoint]"),
            )
            .arg(
                Arg::new("value-size")
                    .long("value-size")
                    .default_value("256")
                    .value_parser(value_parser!(u64))
                    .help("Bytes of a value"),
            )
            .arg(
                Arg::new("keys")
                    .long("keys")
                    .default_value("10000")
                    .value_parser(value_parser!(u64).range(1..))
                    .help("Different keys"),
            )
            .arg(
                Arg::new("seconds")
                    .long("seconds")
                    .default_value("10")
                    .value_parser(value_parser!(u64).range(1..))
                    .help("How long, after one second of warming up"),
            )
    };
    Command::new("bench")
        .about("Measure a cluster (any etcd v3 server)")
        .subcommand_required(true)
        .subcommand(load("put", "Puts per second"))
        .subcommand(load("get", "Linearizable gets per second"))
}

#[derive(Clone, Copy, PartialEq)]
enum Verb {
    Put,
    Get,
}

/// How many threads drive so many clients. Few clients on many threads measure how long threads take to wake each other.
pub(crate) fn threads(matches: &ArgMatches) -> usize {
    let clients = matches.subcommand().and_then(|(_, matches)| matches.get_one::<u64>("clients")).copied().unwrap_or(1);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    usize::try_from(clients.div_ceil(64)).unwrap_or(cores).clamp(1, cores)
}

/// Runs `hustings bench`.
pub(crate) async fn run(matches: &ArgMatches) -> Result<()> {
    let (name, matches) = matches.subcommand().expect("clap requires one");
    let verb = if name == "put" { Verb::Put } else { Verb::Get };
    let number = |name: &str| *matches.get_one::<u64>(name).expect("it has a default");
    let endpoints = endpoints_of(matches);
    let (clients, keys, seconds) = (number("clients"), number("keys"), number("seconds"));
    let connections = match number("connections") {
        0 => (clients.div_ceil(32)).max(endpoints.len() as u64).min(clients),
        given => given.min(clients),
    };
    let options = options_of(matches)?;
    // Says who asks, once.
    connect(matches).await?;
    let mut channels = Vec::new();
    for position in 0..connections {
        let endpoint = &endpoints[usize::try_from(position).unwrap_or(0) % endpoints.len()];
        channels.push(
            transport(endpoint, &options)?.connect().await.with_context(|| format!("no connection to {endpoint}"))?,
        );
    }
    let value = Bytes::from(vec![b'x'; usize::try_from(number("value-size")).context("that value is too large")?]);
    if verb == Verb::Get {
        fill(&channels, keys, &value).await?;
    }
    let load = Load { verb, keys, value, warm_up: Duration::from_secs(1), run: Duration::from_secs(seconds) };
    let result = measure(&channels, clients, load).await?;
    result.print(name, clients, connections, format_of(matches));
    Ok(())
}

/// Gets need something to get.
async fn fill(channels: &[Channel], keys: u64, value: &Bytes) -> Result<()> {
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for position in 0..64 {
        let mut kv = KvClient::new(channels[position % channels.len()].clone());
        let (next, value) = (next.clone(), value.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= keys {
                    return anyhow::Ok(());
                }
                kv.put(asked(PutRequest { key: key(number), value: value.clone(), ..PutRequest::default() })).await?;
            }
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

fn key(number: u64) -> Bytes {
    Bytes::from(format!("bench/{number:010}"))
}

#[derive(Clone)]
struct Load {
    verb: Verb,
    keys: u64,
    value: Bytes,
    warm_up: Duration,
    run: Duration,
}

struct Figures {
    latencies: Histogram<u64>,
    errors: u64,
    first_error: Option<String>,
    seconds: f64,
    usage: Usage,
}

async fn measure(channels: &[Channel], clients: u64, load: Load) -> Result<Figures> {
    let start = Instant::now() + load.warm_up;
    let end = start + load.run;
    let mut tasks = Vec::new();
    for client in 0..clients {
        let kv = KvClient::new(channels[usize::try_from(client).unwrap_or(0) % channels.len()].clone());
        tasks.push(tokio::spawn(one_client(kv, load.clone(), client * 7_919, start, end)));
    }
    tokio::time::sleep_until(start.into()).await;
    let before = Usage::now();
    tokio::time::sleep_until(end.into()).await;
    let usage = Usage::now().since(&before);
    let mut latencies = Histogram::new_with_max(60_000_000, 3)?;
    let (mut errors, mut first_error) = (0, None);
    for task in tasks {
        let (own, own_errors, own_first) = task.await?;
        latencies.add(own)?;
        errors += own_errors;
        first_error = first_error.or(own_first);
    }
    if latencies.is_empty() {
        bail!("nothing was answered: {}", first_error.unwrap_or_else(|| "no request ended in time".into()));
    }
    Ok(Figures { latencies, errors, first_error, seconds: load.run.as_secs_f64(), usage })
}

async fn one_client(
    mut kv: KvClient<Channel>,
    load: Load,
    offset: u64,
    start: Instant,
    end: Instant,
) -> (Histogram<u64>, u64, Option<String>) {
    let mut latencies = Histogram::new_with_max(60_000_000, 3).expect("a minute in microseconds with three digits");
    let (mut errors, mut first_error, mut number) = (0, None, offset);
    loop {
        number += 1;
        let begun = Instant::now();
        if begun >= end {
            return (latencies, errors, first_error);
        }
        let key = key(number % load.keys);
        let result = match load.verb {
            Verb::Put => {
                let request = PutRequest { key, value: load.value.clone(), ..PutRequest::default() };
                kv.put(asked(request)).await.map(drop)
            }
            Verb::Get => kv.range(asked(RangeRequest { key, ..RangeRequest::default() })).await.map(drop),
        };
        match result {
            Ok(()) if begun >= start && Instant::now() <= end => {
                latencies.saturating_record(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
            }
            Ok(()) => {}
            Err(status) => {
                errors += 1;
                first_error.get_or_insert_with(|| status.message().to_string());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

impl Figures {
    /// Processor time of all servers on this machine per request; nothing when they run elsewhere.
    fn server_micros(&self) -> f64 {
        self.usage.servers.as_secs_f64() * 1e6 / self.latencies.len() as f64
    }

    fn print(&self, verb: &str, clients: u64, connections: u64, format: Format) {
        let rate = self.latencies.len() as f64 / self.seconds;
        let at = |quantile: f64| self.latencies.value_at_quantile(quantile) as f64 / 1_000.0;
        let figures = json!({
            "apiVersion": "v1", "kind": "Bench",
            "verb": verb,
            "clients": clients,
            "connections": connections,
            "seconds": self.seconds,
            "per_second": rate,
            "p50_ms": at(0.5),
            "p99_ms": at(0.99),
            "p99.9_ms": at(0.999),
            "max_ms": self.latencies.max() as f64 / 1_000.0,
            "errors": self.errors,
            "first_error": self.first_error,
            "server_cpu_micros_per_request": self.server_micros(),
            "cpu_idle_share": self.usage.idle_share(),
            "cpu_others_share": self.usage.others_share(),
        });
        if format == Format::Json {
            return println!("{figures}");
        }
        println!(
            "{verb} {clients:>4} clients {connections:>3} connections  {rate:>9.0}/s  p50 {:.2} ms  p99 {:.2} ms  p99.9 {:.2} ms  max {:.1} ms  errors {}  servers {:.1} µs/request  others took {:.0} % of the cpu",
            at(0.5),
            at(0.99),
            at(0.999),
            self.latencies.max() as f64 / 1_000.0,
            self.errors,
            self.server_micros(),
            self.usage.others_share() * 100.0
        );
        if let Some(error) = &self.first_error {
            println!("  first error: {error}");
        }
    }
}
