//! Elections of applications on the command line: `run`, `elect`, `observe`, `lock`, `why`.

mod bounded_listener;
mod caller;
mod health;
mod notify;
mod own;
pub(crate) mod run;
mod sidecar;
mod signals;
mod telling;
pub(crate) mod verbs;
mod warden;
mod watchman;

use crate::credentials;
use crate::output::OURS;
use anyhow::{Context, Result};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches};
use hustings_election::{Election, OpenError, Scheme, StoreAddress};
use std::time::Duration;

/// An option that takes a time.
pub(crate) fn duration_argument(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("DURATION")
        .default_value(default)
        .value_parser(crate::settings::duration)
        .help(help)
}

/// `--store URL` and what the election needs beside it.
pub(crate) fn store_arguments() -> Vec<Arg> {
    vec![
        Arg::new("store")
            .long("store")
            .value_name("URL")
            .env("HUSTINGS_STORE")
            .hide_env_values(true)
            .default_value("hustings://127.0.0.1:2379")
            .help(
                "The store that arbitrates: hustings://HOST:PORT,HOST:PORT, etcd://..., zookeeper://..., consul://..., \
                 postgres://USER@HOST/DATABASE, kubernetes:///NAMESPACE",
            ),
        duration_argument("ttl", "10s", "The lease's time to live: what a successor waits when a leader vanishes"),
    ]
}

/// The flags of all other commands for a store of Hustings or etcd: TLS and the user. The URL wins over them.
pub(crate) fn caller_arguments() -> Vec<Arg> {
    OURS.arguments().into_iter().chain(credentials::arguments()).collect()
}

/// The election that the command line names.
pub(crate) fn election_of(matches: &ArgMatches, name: &str) -> Result<Election> {
    let url = matches.get_one::<String>("store").expect("it has a default");
    if url.is_empty() {
        let (from, remedy) = match matches.value_source("store") {
            Some(ValueSource::EnvVariable) => ("HUSTINGS_STORE", "unset it, or set it to"),
            _ => ("--store", "give"),
        };
        anyhow::bail!("{from} is empty: {remedy} the address of a store, as hustings://127.0.0.1:2379");
    }
    let from =
        if matches.value_source("store") == Some(ValueSource::EnvVariable) { "HUSTINGS_STORE" } else { "--store" };
    let (mut store, in_url) = StoreAddress::parse(url).context(from)?;
    if matches!(store.scheme, Scheme::Hustings | Scheme::Etcd) {
        let is_unsaid = matches.value_source("store") == Some(ValueSource::DefaultValue);
        caller::fill_in(&mut store, matches, is_unsaid)?;
    }
    if let Some(in_url) = in_url.filter(|in_url| in_url != name) {
        anyhow::bail!("--store names the election {in_url:?}, and the command line {name:?}: leave one of them out");
    }
    let election = Election::of(store, name).map_err(|error| match error {
        OpenError::User(why) => anyhow::anyhow!(why),
        other => anyhow::Error::new(other).context("the election's name"),
    })?;
    Ok(election.ttl(duration_of(matches, "ttl")))
}

pub(crate) fn duration_of(matches: &ArgMatches, name: &str) -> Duration {
    *matches.get_one(name).expect("it has a default")
}

/// A name for this process, unique in its life: what others see of it.
pub(crate) fn own_id() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "host".to_owned());
    format!("{}-{}", host.trim(), std::process::id())
}

/// Shows what goes on between this process and its store, when it is worth a warning.
pub(crate) fn start_logging() -> Result<()> {
    let level = std::env::var("HUSTINGS_LOG_LEVEL").unwrap_or_else(|_| "warn".to_owned());
    crate::logging::start(&crate::logging::Wanted { level: &level, format: "human", outputs: Vec::new() })
}
