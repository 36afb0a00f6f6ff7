//! Finds each setting's value: flags, over `HUSTINGS_*`, over `ETCD_*`, over a file, over defaults.
//!
//! Read next: [`super::file`], [`super::plan`].

use super::etcd::{self, Answer};
use super::table::{SETTINGS, variable_of};
use super::{Settings, Source, file, value};
use anyhow::{Result, bail};
use clap::ArgMatches;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The environment, as far as it is asked.
pub(crate) trait Environment {
    /// The value of a variable.
    fn variable(&self, name: &str) -> Option<String>;
    /// The names of all variables.
    fn names(&self) -> Vec<String>;
    /// The names of those whose values are no text.
    fn unreadable(&self) -> Vec<String>;
}

/// The environment of this process.
pub(crate) struct OfProcess;

impl Environment for OfProcess {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn names(&self) -> Vec<String> {
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
    }

    fn unreadable(&self) -> Vec<String> {
        let unreadable = std::env::vars_os().filter(|(_, value)| value.to_str().is_none());
        unreadable.filter_map(|(name, _)| name.into_string().ok()).collect()
    }
}

/// Variables that etcd itself reads and that are no flags, or that only name other programs.
const NO_FLAGS: [&str; 2] = ["ETCD_UNSUPPORTED_ARCH", "ETCD_CONFIG_FILE"];

/// Variables that are no settings of a member: those of clients and sidecars, what sidecars tell their command, and the tests'.
const OF_OTHERS: [&str; 23] = [
    "HUSTINGS_CACERT",
    "HUSTINGS_CERT",
    "HUSTINGS_CONFIG",
    "HUSTINGS_ELECTION",
    "HUSTINGS_ENDPOINTS",
    "HUSTINGS_ETCD_CACERT",
    "HUSTINGS_ETCD_CERT",
    "HUSTINGS_ETCD_KEY",
    "HUSTINGS_ETCD_PASSWORD",
    "HUSTINGS_ETCD_PASSWORD_FILE",
    "HUSTINGS_ETCD_USER",
    "HUSTINGS_FENCE_GENERATION",
    "HUSTINGS_FENCE_NUMBER",
    "HUSTINGS_ID",
    "HUSTINGS_KEY",
    "HUSTINGS_LEADS",
    "HUSTINGS_LOG_LEVEL",
    "HUSTINGS_PASSWORD",
    "HUSTINGS_PASSWORD_FILE",
    "HUSTINGS_SOCKET",
    "HUSTINGS_STORE",
    "HUSTINGS_USER",
    "HUSTINGS_WORKBENCH",
];

/// Whether a variable that begins with `HUSTINGS_` is one that somebody else reads: one of the above, one for the tests, or one with which
/// Kubernetes tells where a service named `hustings` or `hustings-...` is.
fn is_of_others(variable: &str) -> bool {
    let is_of_kubernetes = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"].iter().any(|part| variable.contains(part))
        || variable.ends_with("_PORT");
    OF_OTHERS.contains(&variable) || variable.starts_with("HUSTINGS_TEST_") || is_of_kubernetes
}

impl Settings {
    /// Resolves every setting: its value and where it came from.
    ///
    /// # Errors
    /// The file cannot be read, or holds what is no setting; a variable's value is no text.
    pub(crate) fn resolve(matches: &ArgMatches, environment: &impl Environment) -> Result<Settings> {
        // As in etcd, a variable without text is one that is not set.
        let of_etcd = |name: &str| environment.variable(&variable_of("ETCD", name)).filter(|value| !value.is_empty());
        let is_setting = |prefix: &str, variable: &str| names().any(|name| variable_of(prefix, name) == variable);
        let unreadable = environment.unreadable();
        let unreadable = unreadable.iter().find(|name| is_setting("HUSTINGS", name) || is_setting("ETCD", name));
        if let Some(variable) = unreadable {
            bail!("{variable} has a value that is no UTF-8, and would be passed over: give one that is");
        }
        let path = matches
            .get_one::<String>("config")
            .cloned()
            .or_else(|| environment.variable("HUSTINGS_CONFIG"))
            .or_else(|| of_etcd("config-file"))
            .map(PathBuf::from);
        let file = path.as_ref().map(|path| file::read(path)).transpose()?.unwrap_or_default();
        let mut notes = Vec::new();
        let mut resolve = |name: &'static str| {
            let flag = matches.get_one::<String>(name).cloned();
            let own = variable_of("HUSTINGS", name);
            let (own, theirs) = (environment.variable(&own).map(|value| (value, own)), of_etcd(name));
            if theirs.is_some() && (flag.is_some() || own.is_some()) {
                let above = if flag.is_some() { format!("--{name}") } else { variable_of("HUSTINGS", name) };
                notes.push(format!("{} is not used: {above} stands above it", variable_of("ETCD", name)));
            }
            if let Some(value) = flag {
                return Some((value, Source::Flag));
            }
            if let Some((value, name)) = own {
                return Some((value, Source::Variable(name)));
            }
            if let Some(value) = theirs {
                return Some((value, Source::Variable(variable_of("ETCD", name))));
            }
            let path = path.clone()?;
            file.get(name).map(|value| (value.clone(), Source::File(path)))
        };
        let mut values = BTreeMap::new();
        for setting in SETTINGS {
            let found = resolve(setting.name).unwrap_or_else(|| (setting.default.to_string(), Source::Default));
            values.insert(setting.name, found);
        }
        for other in etcd::others() {
            if let Some(found) = resolve(other.name) {
                values.insert(other.name, found);
            }
        }
        for variable in environment.names() {
            if variable.starts_with("ETCD_") && !NO_FLAGS.contains(&&*variable) && !is_setting("ETCD", &variable) {
                notes.push(format!("{variable} is no flag of etcd's and is not used"));
            }
            if variable.starts_with("HUSTINGS_") && !is_setting("HUSTINGS", &variable) && !is_of_others(&variable) {
                notes
                    .push(format!("{variable} is no setting and is not used: `hustings serve --help` has their names"));
            }
        }
        Ok(Settings { values, notes })
    }

    /// Checks the form of every value, and etcd's flags that are no settings here; adds what is to be said of them.
    ///
    /// # Errors
    /// A value that its kind does not allow, or that asks for what cannot be had.
    pub(crate) fn check(&self) -> Result<Vec<String>> {
        for setting in SETTINGS.iter().filter(|setting| !self.text(setting.name).is_empty()) {
            value::check(setting.kind, self.text(setting.name)).or_else(|remedy| self.bad(setting.name, remedy))?;
        }
        let mut notes = self.notes.clone();
        for other in etcd::others() {
            let Some((text, source)) = self.values.get(other.name) else { continue };
            if text.is_empty() || text == other.default {
                continue;
            }
            value::check(other.kind, text).or_else(|remedy| self.bad(other.name, remedy))?;
            match other.answer {
                Answer::NotNeeded(why) => {
                    notes.push(format!("{} = {text:?} (from {source}) changes nothing: {why}", other.name));
                }
                Answer::Refused(why) => bail!("{} = {text:?} (from {source}): {why}", other.name),
            }
        }
        if self.list("cors").iter().any(|origin| origin == "*") {
            notes
                .push("cors = \"*\": whatever page a browser shows that reaches this member may read and write".into());
        }
        if let Ok(timing) = self.timing()
            && self.is_given("heartbeat-interval") != self.is_given("election-timeout")
        {
            let (heartbeat, election) = (timing.heartbeat.as_millis(), timing.election_min.as_millis());
            let (given, derived) = match self.is_given("heartbeat-interval") {
                true => (format!("heartbeat-interval = {heartbeat}"), format!("election-timeout is {election}")),
                false => (format!("election-timeout = {election}"), format!("heartbeat-interval is {heartbeat}")),
            };
            notes.push(format!("{given} was given alone: {derived}, in milliseconds"));
        }
        Ok(notes)
    }
}

/// All names that a flag, a variable or a file may have.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|setting| setting.name).chain(etcd::others().map(|other| other.name))
}
