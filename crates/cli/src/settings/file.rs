//! Settings in a file: TOML by flag name, or etcd's YAML with its own keys.
//!
//! `.toml` is TOML, `.yml` and `.yaml` are YAML; any other file is TOML if it reads as TOML, and YAML otherwise. etcd passes
//! over keys that it does not know; here they are refused, for a misspelt `client-cert-auth` would leave a door open.

use super::etcd;
use super::resolve::names;
use super::table::{Kind, SETTINGS};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

/// The sections of etcd's YAML: the section, its key, the flag.
const SECTIONS: &[(&str, &str, &str)] = &[
    ("client-transport-security", "cert-file", "cert-file"),
    ("client-transport-security", "key-file", "key-file"),
    ("client-transport-security", "client-cert-file", "client-cert-file"),
    ("client-transport-security", "client-key-file", "client-key-file"),
    ("client-transport-security", "client-cert-auth", "client-cert-auth"),
    ("client-transport-security", "crl-file", "client-crl-file"),
    ("client-transport-security", "allowed-hostname", "client-cert-allowed-hostname"),
    ("client-transport-security", "trusted-ca-file", "trusted-ca-file"),
    ("client-transport-security", "auto-tls", "auto-tls"),
    ("peer-transport-security", "cert-file", "peer-cert-file"),
    ("peer-transport-security", "key-file", "peer-key-file"),
    ("peer-transport-security", "client-cert-file", "peer-client-cert-file"),
    ("peer-transport-security", "client-key-file", "peer-client-key-file"),
    ("peer-transport-security", "client-cert-auth", "peer-client-cert-auth"),
    ("peer-transport-security", "crl-file", "peer-crl-file"),
    ("peer-transport-security", "allowed-cn", "peer-cert-allowed-cn"),
    ("peer-transport-security", "allowed-hostname", "peer-cert-allowed-hostname"),
    ("peer-transport-security", "trusted-ca-file", "peer-trusted-ca-file"),
    ("peer-transport-security", "auto-tls", "peer-auto-tls"),
    ("peer-transport-security", "skip-client-san-verification", "experimental-peer-skip-client-san-verification"),
];

/// The longest file that is read, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The values in a file, by flag name.
///
/// # Errors
/// It cannot be read, is neither TOML nor YAML, or holds a key that is no setting.
pub(super) fn read(path: &Path) -> Result<BTreeMap<&'static str, String>> {
    let place = path.display();
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text))
        .with_context(|| format!("cannot read the settings in {place}: is it there, and may this user read it?"))?;
    if text.len() as u64 > BYTES_MAX {
        bail!("{place} is longer than {BYTES_MAX} bytes: are these the settings?");
    }
    let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or("");
    let as_toml = || -> Result<Value> { Ok(serde_json::to_value(text.parse::<toml::Table>()?)?) };
    let (table, is_yaml) = match suffix {
        "toml" => (as_toml().with_context(|| format!("{place} is not TOML"))?, false),
        "yml" | "yaml" => (yaml(&text).with_context(|| format!("{place} is not YAML"))?, true),
        _ => match as_toml() {
            Ok(table) => (table, false),
            Err(toml) => match yaml(&text) {
                Ok(table @ (Value::Object(_) | Value::Null)) => (table, true),
                _ => return Err(toml.context(format!("{place} is neither TOML nor YAML; as TOML"))),
            },
        },
    };
    let rows = match table {
        Value::Object(rows) => rows,
        Value::Null => return Ok(BTreeMap::new()),
        _ => bail!("{place} holds no keys: write `name: value` on each line"),
    };
    let mut values = BTreeMap::new();
    for (key, value) in rows {
        match value {
            Value::Object(section) if is_yaml => {
                for (inner, value) in section {
                    let row = SECTIONS.iter().find(|(section, name, _)| *section == key && *name == inner);
                    let Some((_, _, name)) = row else { bail!("{place}: {}", unknown_in(&key, &inner)) };
                    values.insert(*name, text_of(value, name, is_yaml).with_context(|| wrong(path, &key, &inner))?);
                }
            }
            // A section without a line is `null` in YAML.
            Value::Null if SECTIONS.iter().any(|(section, ..)| *section == key) => {}
            value => {
                let wanted = key.replace('_', "-");
                let Some(name) = names().find(|name| *name == wanted) else {
                    let known: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
                    bail!("{place}: there is no setting `{key}`; settings are: {}", known.join(", "));
                };
                values.insert(name, text_of(value, name, is_yaml).with_context(|| wrong(path, "", &key))?);
            }
        }
    }
    Ok(values)
}

fn yaml(text: &str) -> Result<Value> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Value::Null);
    }
    Ok(serde_saphyr::from_str(text)?)
}

fn unknown_in(section: &str, key: &str) -> String {
    let keys: Vec<&str> = SECTIONS.iter().filter(|(known, ..)| *known == section).map(|(_, key, _)| *key).collect();
    match keys.is_empty() {
        true => format!(
            "there is no section `{section}`; sections are client-transport-security and peer-transport-security"
        ),
        false => format!("there is no `{key}` in `{section}`; there are: {}", keys.join(", ")),
    }
}

fn wrong(path: &Path, section: &str, key: &str) -> String {
    let dot = if section.is_empty() { "" } else { "." };
    format!("{}: `{section}{dot}{key}`", path.display())
}

/// A value as a flag would have it.
fn text_of(value: Value, name: &str, is_yaml: bool) -> Result<String> {
    Ok(match value {
        Value::Null if is_yaml => String::new(),
        Value::String(text) => text,
        Value::Bool(switch) => switch.to_string(),
        // etcd's YAML has times in nanoseconds.
        Value::Number(number) if is_yaml && kind_of(name) == Kind::Duration && number.is_u64() => format!("{number}ns"),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => {
            let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            texts.context("must be a list of strings")?.join(",")
        }
        Value::Null | Value::Object(_) => bail!("must be a text, a number, a switch or a list of texts"),
    })
}

fn kind_of(name: &str) -> Kind {
    let of_settings = SETTINGS.iter().find(|setting| setting.name == name).map(|setting| setting.kind);
    let of_others = || etcd::others().find(|other| other.name == name).map(|other| other.kind);
    of_settings.or_else(of_others).unwrap_or(Kind::Text)
}
