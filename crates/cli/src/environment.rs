//! Time and form of a command, from etcdctl's variables: `ETCDCTL_COMMAND_TIMEOUT`, `ETCDCTL_DIAL_TIMEOUT`,
//! `ETCDCTL_WRITE_OUT`.
//!
//! They count for every command that asks a member. A flag wins over its variable, and an empty variable says nothing. A value that
//! cannot be read is refused before the command begins ([`check`]), with the variable's name and the remedy.

use crate::exit::{Code, Exit};
use crate::output::Format;
use crate::settings;
use anyhow::Result;
use clap::ArgMatches;
use clap::parser::ValueSource;
use std::time::Duration;

/// A flag's id, and etcdctl's variable for it.
type Named = (&'static str, &'static str);

const COMMAND_TIMEOUT: Named = ("timeout", "ETCDCTL_COMMAND_TIMEOUT");
const DIAL_TIMEOUT: Named = ("dial-timeout", "ETCDCTL_DIAL_TIMEOUT");
const WRITE_OUT: Named = ("output", "ETCDCTL_WRITE_OUT");

/// Refuses variables that cannot be read, for a command that they count for.
///
/// # Errors
/// The variable, its value and the remedy.
pub(crate) fn check(matches: &ArgMatches) -> Result<()> {
    let mut matches = matches;
    while let Some((_, inner)) = matches.subcommand() {
        matches = inner;
    }
    command_timeout(matches)?;
    dial_timeout(matches)?;
    format(matches)?;
    Ok(())
}

/// Time that a request may take, if the variable says it.
pub(crate) fn command_timeout(matches: &ArgMatches) -> Result<Option<Duration>> {
    said(matches, COMMAND_TIMEOUT, time)
}

/// Time that a connection may take to come about, if the variable says it.
pub(crate) fn dial_timeout(matches: &ArgMatches) -> Result<Option<Duration>> {
    said(matches, DIAL_TIMEOUT, time)
}

/// The form of the answer, if the variable says it.
pub(crate) fn format(matches: &ArgMatches) -> Result<Option<Format>> {
    said(matches, WRITE_OUT, |text| match text {
        "simple" | "table" => Ok(Format::Table),
        "json" => Ok(Format::Json),
        _ => Err("give simple, table or json"),
    })
}

/// A length of time above zero, as Go writes it or as people do.
pub(crate) fn time(text: &str) -> Result<Duration, &'static str> {
    match settings::duration(text)? {
        Duration::ZERO => Err("give a length of time above zero, like 5s"),
        time => Ok(time),
    }
}

fn said<T>(
    matches: &ArgMatches,
    (flag, variable): Named,
    read: impl Fn(&str) -> Result<T, &'static str>,
) -> Result<Option<T>> {
    // Commands that ask no member have no such flag.
    let is_client = matches.try_contains_id(DIAL_TIMEOUT.0).is_ok();
    if !is_client || matches.value_source(flag) != Some(ValueSource::DefaultValue) {
        return Ok(None);
    }
    let Some(text) = std::env::var_os(variable).filter(|text| !text.is_empty()) else { return Ok(None) };
    let text = text.to_string_lossy();
    match read(text.trim()) {
        Ok(value) => Ok(Some(value)),
        Err(remedy) => Err(Exit::with(Code::Usage, format!("{variable} = {text:?}: {remedy}, or unset it"))),
    }
}
