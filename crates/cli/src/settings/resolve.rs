//! Finds each setting's value: flags, over variables, over a file, over defaults.
//!
//! Read next: [`super::plan`].

use super::table::{ACCEPTED, SETTINGS, Setting, variable_of};
use super::{Settings, Source};
use anyhow::{Context, Result, bail};
use clap::ArgMatches;
use std::collections::BTreeMap;
use std::path::PathBuf;

impl Settings {
    /// Resolves every setting.
    pub(crate) fn resolve(matches: &ArgMatches, variable: impl Fn(&str) -> Option<String>) -> Result<Settings> {
        for name in ACCEPTED {
            if matches.contains_id(name) && matches.value_source(name).is_some() {
                crate::logging::say(format_args!("--{name} is etcd's and means nothing here: ignored"));
            }
        }
        let path =
            matches.get_one::<String>("config").cloned().or_else(|| variable("HUSTINGS_CONFIG")).map(PathBuf::from);
        let file = match &path {
            Some(path) => read_file(path)?,
            None => BTreeMap::new(),
        };
        let resolve = |setting: &Setting| {
            if let Some(value) = matches.get_one::<String>(setting.name) {
                return (value.clone(), Source::Flag);
            }
            let name = variable_of(setting.name);
            if let Some(value) = variable(&name) {
                return (value, Source::Variable(name));
            }
            match (file.get(setting.name), &path) {
                (Some(value), Some(path)) => (value.clone(), Source::File(path.clone())),
                _ => (setting.default.to_string(), Source::Default),
            }
        };
        Ok(Settings(SETTINGS.iter().map(|setting| (setting.name, resolve(setting))).collect()))
    }
}

fn read_file(path: &PathBuf) -> Result<BTreeMap<String, String>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the settings in {}", path.display()))?;
    let table: toml::Table = text.parse().with_context(|| format!("{} is not TOML", path.display()))?;
    let mut values = BTreeMap::new();
    for (key, value) in table {
        let name = key.replace('_', "-");
        if !SETTINGS.iter().any(|setting| setting.name == name) {
            let known: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
            bail!("{}: there is no setting `{key}`; settings are: {}", path.display(), known.join(", "));
        }
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(flag) => flag.to_string(),
            toml::Value::Array(items) => {
                let texts: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
                let texts = texts.with_context(|| format!("{}: `{key}` must be a list of strings", path.display()))?;
                texts.join(",")
            }
            other => bail!("{}: `{key}` cannot be a {}", path.display(), other.type_str()),
        };
        values.insert(name, value);
    }
    Ok(values)
}
