//! `hustings bench`: how many requests a cluster answers, and how soon.
//!
//! Works against any etcd v3 server, so that two systems can be measured by the same driver in the same minute. The share of
//! the processors that other processes took meanwhile is printed beside each figure: a figure from a busy machine says so.
//!
//! In order: [`settings`] (the command line), [`choice`] (what each request asks for), [`load`] (who asks, and when), [`asker`]
//! (one client), [`watch`] and [`lease`] (what is not a request and its answer), [`recorder`] (delays, without coordinated
//! omission), [`report`]. `docs/bench.md` is for those who read the figures. Deliberately absent: several machines that drive one
//! target together; and cleaning up, so that a second run finds the keys of the first.

mod asker;
mod choice;
mod lease;
mod load;
mod recorder;
mod report;
mod settings;
mod surroundings;
mod watch;

use crate::client::connect;
use crate::credentials::{self, asked};
use crate::exit::{Code, Exit};
use crate::output::{Format, format_of, from_status, options_of, unavailable};
use anyhow::Result;
use asker::{Asker, Store};
use choice::{Values, dice};
use clap::ArgMatches;
use hustings_api::Client;
use hustings_api::client::{Options, transport};
use hustings_api::etcdserverpb::PutRequest;
use hustings_api::etcdserverpb::kv_client::KvClient;
use hustings_api::etcdserverpb::lease_client::LeaseClient;
use hustings_console::usage::Usage;
use load::{Reporting, Run};
use recorder::Recorder;
use report::Report;
pub(crate) use settings::command;
use settings::{LeaseWork, Settings, StoreWork, Work};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use surroundings::Surroundings;
use tonic::transport::Channel;
use watch::Audience;

/// Time after which the driver proves anew who asks: a token counts for 300 s, unless members were told otherwise.
const TOKEN_EVERY: Duration = Duration::from_secs(100);

/// Puts in flight while keys are put that later requests need.
const FILLERS: usize = 64;

/// Number of threads that drive the clients. Few clients on many threads measure how long threads take to wake each other.
pub(crate) fn threads(matches: &ArgMatches) -> usize {
    let clients = matches.subcommand().and_then(|(_, matches)| matches.get_one::<u64>("clients")).copied().unwrap_or(1);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    usize::try_from(clients.div_ceil(64)).unwrap_or(cores).clamp(1, cores)
}

/// Runs `hustings bench` and prints its report.
pub(crate) async fn run(matches: &ArgMatches) -> Result<()> {
    let (verb, matches) = matches.subcommand().expect("clap requires one");
    let mut settings = Settings::of(verb, matches)?;
    let (format, is_quiet) = (format_of(matches), matches.get_flag("quiet") || format_of(matches) == Format::Json);
    let options = options_of(matches)?;
    // Says who asks, once.
    let client = connect(matches).await?;
    if matches.get_flag("target-leader") {
        settings.endpoints = vec![surroundings::leader(&settings.endpoints, &options, settings.timeout).await?];
    }
    let around = Surroundings::of(&client, options.tls.as_ref()).await;
    let channels = connected(&mut settings, &options).await?;
    if format == Format::Table {
        println!("{}", report::setting_in_words(&settings, &around));
    }
    let told = Reporting { servers: &around.local, is_quiet };
    let (recorder, usage) = tokio::select! {
        measured = measure(&settings, &channels, told) => measured?,
        refused = keep_token(matches, client, settings.timeout) => return Err(refused.context("the run was ended")),
    };
    if !recorder.has_answers {
        return Err(match recorder.first_error {
            Some(status) => from_status(&status).context("nothing was answered"),
            None if recorder.is_interrupted => unavailable("interrupted before anything was answered"),
            None => unavailable("nothing was answered: no request ended in time"),
        });
    }
    let measured = measured(&settings, &recorder);
    let report = Report { settings: &settings, around: &around, recorder: &recorder, usage, measured };
    match format {
        Format::Json => println!("{}", report.as_json()),
        Format::Table => println!("{}", report.in_words()),
    }
    match recorder.is_unanswered {
        true => Err(unavailable("nobody answered any more at the end: the figures are of what was answered before")),
        false => Ok(()),
    }
}

/// Proves again and again who asks, before a token has run out, or as soon as a request was refused for its token. Ends where the user is
/// refused.
async fn keep_token(matches: &ArgMatches, mut client: Client, timeout: Duration) -> anyhow::Error {
    if credentials::named(matches).is_none() {
        return std::future::pending().await;
    }
    loop {
        tokio::select! {
            () = tokio::time::sleep(TOKEN_EVERY) => {}
            () = credentials::token_refused() => {}
        }
        match tokio::time::timeout(timeout, credentials::renew_token(matches, &client)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.downcast_ref::<Exit>().is_some_and(|exit| exit.code == Code::NotAllowed) => {
                return error;
            }
            // The old connection stays where none answers; a request that is refused wakes this again.
            _ => drop(client.move_on().await),
        }
    }
}

/// Connections, in turn to each endpoint that answers. The others are named and left out: the load goes to those that remain, as it would
/// with a client that has them all.
async fn connected(settings: &mut Settings, options: &Options) -> Result<Vec<Channel>> {
    let (mut channels, mut unanswered) = (Vec::new(), Vec::new());
    for endpoint in std::mem::take(&mut settings.endpoints) {
        match channel_to(&endpoint, options).await {
            Ok(channel) => {
                channels.push(channel);
                settings.endpoints.push(endpoint);
            }
            Err(why) => unanswered.push(why),
        }
    }
    let unanswered = unanswered.join("; ");
    if channels.is_empty() {
        return Err(unavailable(format!("no connection to {unanswered}")));
    }
    if !unanswered.is_empty() {
        eprintln!("hustings: the load goes to {} alone: no connection to {unanswered}", settings.endpoints.join(","));
    }
    let connections = usize::try_from(settings.connections)?;
    channels.truncate(connections);
    for endpoint in settings.endpoints.iter().cycle().skip(channels.len()).take(connections - channels.len()) {
        let channel = channel_to(endpoint, options).await;
        channels.push(channel.map_err(|why| unavailable(format!("no connection to {why}")))?);
    }
    Ok(channels)
}

/// A connection, or the endpoint with why there is none.
async fn channel_to(endpoint: &str, options: &Options) -> Result<Channel, String> {
    let transport = transport(endpoint, options).map_err(|error| error.to_string())?;
    transport.connect().await.map_err(|error| {
        let why = format!("{:#}", anyhow::Error::new(error));
        match why.contains("(os error 24)") {
            true => format!(
                "{endpoint}: this process may open no more files: give fewer --connections, or raise `ulimit -n`"
            ),
            false => format!("{endpoint}: {why}"),
        }
    })
}

/// Duration of the part that counts: up to the last answer where a number of them was asked for, else the whole window.
fn measured(settings: &Settings, recorder: &Recorder) -> Duration {
    let is_counted_out = settings.total.is_some() || settings.run.is_none();
    match settings.work {
        Work::Lease { what: LeaseWork::Expiry { .. }, .. } => recorder.last,
        _ if is_counted_out && !recorder.is_interrupted => recorder.last.saturating_sub(settings.warm_up),
        _ => recorder.length(),
    }
}

async fn measure(settings: &Settings, channels: &[Channel], told: Reporting<'_>) -> Result<(Recorder, Usage)> {
    let each = |make: &dyn Fn(Channel) -> Asker| -> Vec<Asker> {
        (0..settings.clients).zip(channels.iter().cycle()).map(|(_, channel)| make(channel.clone())).collect()
    };
    let kv = |channel: Channel| KvClient::new(channel).max_decoding_message_size(usize::MAX);
    match &settings.work {
        Work::Store(work) => {
            let values = Values::new(work.sizes.clone(), settings.seed);
            if work.mix.needs_keys() {
                fill(channels, work, &values, settings.seed, told.is_quiet).await?;
            }
            let store = Arc::new(Store { work: work.clone(), values, seed: settings.seed });
            let askers = each(&|channel| Asker::Store { kv: kv(channel), store: store.clone() });
            let run = Run::begin(settings);
            let usage = load::drive(&run, settings, askers, told).await?;
            Ok((run.recorded(), usage))
        }
        Work::Watch { watchers, keys, sizes } => {
            let values = Values::new(sizes.clone(), settings.seed);
            let audience = Audience::new(*watchers, keys.clone(), values, settings.seed);
            let streams = audience.open(channels).await?;
            let run = Run::begin(settings);
            audience.listen(&run, streams);
            let askers = each(&|channel| Asker::Teller { kv: kv(channel), audience: audience.clone() });
            let usage = load::drive(&run, settings, askers, told).await?;
            audience.settle(&run, settings.timeout).await;
            Ok((run.recorded(), usage))
        }
        Work::Lease { what: LeaseWork::Expiry { leases }, ttl_seconds } => {
            lease::expiry(settings, channels, *leases, *ttl_seconds, told).await
        }
        Work::Lease { what, ttl_seconds } => {
            let askers = match what {
                LeaseWork::Grant => {
                    each(&|channel| Asker::Grant { lease: LeaseClient::new(channel), ttl_seconds: *ttl_seconds })
                }
                _ => lease::keepers(channels, settings.clients, *ttl_seconds).await?,
            };
            let run = Run::begin(settings);
            let usage = load::drive(&run, settings, askers, told).await?;
            Ok((run.recorded(), usage))
        }
    }
}

/// Puts every key once: reads, transactions and deletes need something that is there.
async fn fill(channels: &[Channel], work: &StoreWork, values: &Values, seed: u64, is_quiet: bool) -> Result<()> {
    let keys = &work.keys;
    let next = AtomicU64::new(0);
    let bar = load::bar(keys.count, "{bar:30} {human_pos} of {human_len} keys", is_quiet);
    let filling = channels.iter().cycle().take(FILLERS).map(async |channel| {
        let mut kv = KvClient::new(channel.clone());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= keys.count {
                return Ok::<_, tonic::Status>(());
            }
            let value = values.pick(&mut dice(seed, number));
            kv.put(asked(PutRequest { key: keys.named(number), value, ..PutRequest::default() })).await?;
            bar.inc(1);
        }
    });
    let filled = futures::future::try_join_all(filling).await;
    bar.finish_and_clear();
    filled.map(drop).map_err(|status| from_status(&status).context("the keys could not be put"))
}
