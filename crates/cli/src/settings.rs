//! Settings of a node: flags, over `HUSTINGS_*` variables, over etcd's `ETCD_*` variables, over a file, over defaults; each
//! value knows where it came from.
//!
//! Flag names are etcd's where etcd has them, so that units and scripts work with the name of the binary changed. Unlike
//! etcd, a file does not disable flags and variables: it stands below them. The treatment of each of etcd's flags stands
//! in `docs/coming-from-etcd.md`.

mod table;
mod tls;

mod etcd;

mod value;

mod resolve;

mod file;

mod plan;

pub(crate) mod advertised;

mod given_files;

use crate::logging::Wanted;
use crate::output::{Format, format_of, output_argument};
use crate::url_users::may_name_user;
use anyhow::{Result, bail};
use clap::{ArgMatches, Command};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

pub(crate) use plan::{Plan, check_member_name, founders_in};
pub(crate) use resolve::OfProcess;
use std::time::Duration;
pub(crate) use table::with_settings;
pub(crate) use tls::TlsPlan;
pub(crate) use value::duration;

/// The origin of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Flag,
    Variable(String),
    File(PathBuf),
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag => f.write_str("flag"),
            Source::Variable(name) => write!(f, "variable {name}"),
            Source::File(path) => write!(f, "file {}", path.display()),
            Source::Default => f.write_str("default"),
        }
    }
}

/// Every setting's value and source; of etcd's flags that are no settings, those that were given.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, (String, Source)>,
    /// Notes for the operator about variables that were passed over.
    notes: Vec<String>,
}

/// Settings whose values let somebody in, or name what does; the secrets of other settings are in files that they name.
const SECRETS: [&str; 3] = ["join-token", "initial-cluster-token", "auth-token"];

impl Settings {
    /// The value of a setting, as text.
    pub(crate) fn text(&self, name: &str) -> &str {
        &self.values.get(name).expect("every name asked for is in the table").0
    }

    fn bad<T>(&self, name: &str, remedy: impl fmt::Display) -> Result<T> {
        let (value, source) = &self.values[name];
        match may_name_user(value) {
            true => bail!("{name} (from {source}; left out, since a URL in it names a user): {remedy}"),
            false => bail!("{name} = {value:?} (from {source}): {remedy}"),
        }
    }

    /// Whether somebody gave it, anywhere.
    fn is_given(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|(_, source)| *source != Source::Default)
    }

    fn number(&self, name: &str) -> Result<u64> {
        value::number(self.text(name)).or_else(|remedy| self.bad(name, remedy))
    }

    fn duration(&self, name: &str) -> Result<Duration> {
        value::duration(self.text(name)).or_else(|remedy| self.bad(name, remedy))
    }

    /// The logging that is wanted: `--logger zap` asks for etcd's lines, unless `--log-format` asks for others.
    pub(crate) fn logging(&self) -> Result<Wanted<'_>> {
        let format = match self.text("logger") {
            "" => self.text("log-format"),
            "zap" if self.is_given("log-format") => self.text("log-format"),
            "zap" => "zap",
            _ => return self.bad("logger", "give zap, or leave it out"),
        };
        Ok(Wanted { level: self.text("log-level"), format, outputs: self.list("log-outputs") })
    }

    fn switch(&self, name: &str) -> Result<bool> {
        value::switch(self.text(name)).or_else(|remedy| self.bad(name, remedy))
    }

    /// The settings that somebody gave, one a line as `config explain` shows them; the values of secrets are left out.
    pub(crate) fn without_secrets(&self) -> Vec<String> {
        let given = resolve::names().filter_map(|name| Some((name, self.values.get(name)?)));
        let given = given.filter(|(_, (_, source))| *source != Source::Default);
        let line = |(name, (value, source)): (&str, &(String, Source))| match SECRETS.contains(&name)
            || may_name_user(value)
        {
            true => format!("{name} = (left out)  ({source})"),
            false => format!("{name} = {value:?}  ({source})"),
        };
        given.map(line).collect()
    }

    /// The parts of a list with commas.
    fn list(&self, name: &str) -> Vec<String> {
        self.text(name).split(',').map(|part| part.trim().to_string()).filter(|part| !part.is_empty()).collect()
    }
}

/// The command line of `hustings config explain|validate`.
pub(crate) fn config_command() -> Command {
    let explain = Command::new("explain").about("Show each setting's value and where it came from");
    let validate = Command::new("validate")
        .about("Check all settings and the files that they name, and say nothing when they are right");
    let etcd = Command::new("etcd").about("Show every flag of etcd's and what becomes of it, as a table in Markdown");
    Command::new("config")
        .about("Explain or check the settings of `serve`")
        .subcommand(etcd)
        .subcommand_required(true)
        .subcommand(with_settings(explain).arg(output_argument()))
        .subcommand(with_settings(validate).arg(output_argument()))
}

/// Runs `hustings config explain|validate`.
pub(crate) fn run_config(matches: &ArgMatches) -> Result<()> {
    let (verb, matches) = matches.subcommand().expect("clap requires one");
    if verb == "etcd" {
        print!("{}", etcd::as_markdown());
        return Ok(());
    }
    let settings = Settings::resolve(matches, &OfProcess)?;
    if verb == "explain" {
        let values = resolve::names().filter_map(|name| Some((name, settings.values.get(name)?)));
        match format_of(matches) {
            Format::Table => {
                let width = settings.values.keys().map(|name| name.len()).max().unwrap_or(0);
                values.for_each(|(name, (value, source))| println!("{name:width$}  {value:?}  ({source})"));
            }
            Format::Json => {
                let row = |(name, (value, source)): (&str, &(String, Source))| serde_json::json!({ "name": name, "value": value, "source": source.to_string() });
                let rows: Vec<_> = values.map(row).collect();
                println!("{}", serde_json::json!({ "apiVersion": "v1", "kind": "Settings", "settings": rows }));
            }
        }
    }
    settings.logging()?.check()?;
    for note in settings.check()? {
        crate::logging::say(format_args!("{note}"));
    }
    let plan = settings.to_plan();
    if verb == "validate" {
        for note in settings.check_files()? {
            crate::logging::say(format_args!("{note}"));
        }
    }
    plan.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Variables<'v>(&'v [(&'v str, &'v str)]);

    impl resolve::Environment for Variables<'_> {
        fn variable(&self, name: &str) -> Option<String> {
            self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_string())
        }

        fn names(&self) -> Vec<String> {
            self.0.iter().map(|(name, _)| (*name).to_string()).collect()
        }

        fn unreadable(&self) -> Vec<String> {
            let is_no_text = |value: &str| value.contains(char::REPLACEMENT_CHARACTER);
            self.0.iter().filter(|(_, value)| is_no_text(value)).map(|(name, _)| (*name).to_string()).collect()
        }
    }

    /// Goal: a misspelt variable leaves no door open in silence. Method: names that are nearly settings, among those that others read and
    /// that Kubernetes sets; a value that is no text.
    #[test]
    fn a_variable_that_is_no_setting_is_told() {
        let told = |name: &str| !resolve(&[], &[(name, "x")]).unwrap().check().unwrap().is_empty();
        for misspelt in ["HUSTINGS_TRUSTED_CA_FLIE", "HUSTINGS_CLIENT_CERT_ATUH", "HUSTINGS_DATADIR", "HUSTINGS_"] {
            assert!(told(misspelt), "{misspelt}");
        }
        for right in
            ["HUSTINGS_NAME", "HUSTINGS_USER", "HUSTINGS_SOCKET", "HUSTINGS_SERVICE_PORT_CLIENT", "HUSTINGS_PORT"]
        {
            assert!(!told(right), "{right}");
        }
        assert!(!told("HUSTINGS_CLIENT_PORT_2379_TCP_ADDR"), "of Kubernetes, for the service hustings-client");
        let refused = resolve(&[], &[("HUSTINGS_DATA_DIR", "/srv/d\u{fffd}ta")]).map(drop).expect_err("it is no text");
        assert!(refused.to_string().contains("HUSTINGS_DATA_DIR has a value that is no UTF-8"), "{refused}");
    }

    /// Every variable that a command reads is known to be no misspelt setting.
    #[test]
    fn variables_of_other_commands_are_no_misspelt_settings() {
        let mut commands = vec![crate::command()];
        let mut seen = 0;
        while let Some(command) = commands.pop() {
            for variable in command.get_arguments().filter_map(|argument| argument.get_env()?.to_str()) {
                if variable.starts_with("HUSTINGS_") {
                    seen += 1;
                    let notes = resolve(&[], &[(variable, "x")]).unwrap().notes;
                    assert!(notes.is_empty(), "{notes:?}");
                }
            }
            commands.extend(command.get_subcommands().cloned());
        }
        assert!(seen > 20, "commands have variables: {seen}");
    }

    fn resolve(flags: &[&str], variables: &[(&str, &str)]) -> Result<Settings> {
        let command = with_settings(Command::new("serve"));
        let matches = command.get_matches_from(std::iter::once(&"serve").chain(flags));
        Settings::resolve(&matches, &Variables(variables))
    }

    fn refusal(flags: &[&str]) -> String {
        let settings = resolve(flags, &[]).unwrap();
        let refused = settings.check().map(drop).and_then(|()| settings.to_plan().map(drop));
        refused.expect_err("the plan is to be refused").to_string()
    }

    #[test]
    fn flags_stand_above_variables_above_files_above_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hustings.toml");
        std::fs::write(&file, "name = 'file'\nheartbeat_interval = 20\nelection-timeout = 100\n").unwrap();
        let flags = ["--config", file.to_str().unwrap(), "--name", "flag"];
        let settings =
            resolve(&flags, &[("HUSTINGS_HEARTBEAT_INTERVAL", "30"), ("HUSTINGS_NAME", "variable")]).unwrap();
        assert_eq!(settings.values["name"], ("flag".into(), Source::Flag));
        let variable = Source::Variable("HUSTINGS_HEARTBEAT_INTERVAL".into());
        assert_eq!(settings.values["heartbeat-interval"], ("30".into(), variable));
        assert_eq!(settings.values["election-timeout"], ("100".into(), Source::File(file)));
        assert_eq!(settings.values["protocol"], ("raft".into(), Source::Default));
    }

    #[test]
    fn settings_are_told_without_their_secrets() {
        let flags = ["--join-token", "5b0c6f1e0d9a7344", "--initial-cluster-state", "existing", "--log-level", "debug"];
        let variables = [
            ("HUSTINGS_AUTH_TOKEN", "jwt,sign-method=HS256,priv-key=hidden"),
            ("HUSTINGS_ADVERTISE_CLIENT_URLS", "http://ann:s3cret@10.0.0.1:2379"),
        ];
        let told = resolve(&flags, &variables).unwrap().without_secrets();
        assert!(told.contains(&r#"log-level = "debug"  (flag)"#.to_owned()), "{told:?}");
        assert!(told.contains(&"join-token = (left out)  (flag)".to_owned()), "{told:?}");
        assert_eq!(told.len(), 5, "what is by default is not told: {told:?}");
        let text = told.concat();
        assert!(!["5b0c6f", "hidden", "s3cret"].iter().any(|secret| text.contains(secret)), "{text}");
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let refused = resolve(&["--config-file", "/dev/zero"], &[]).map(drop).expect_err("it is no file of settings");
        assert!(refused.to_string().contains("is longer than 1048576 bytes"), "{refused}");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value_its_source_and_a_remedy() {
        let rows: [(&[&str], &str); 22] = [
            (&["--initial-cluster", "default=ann:s@h:1"], "a peer URL of \"default\" names a user"),
            (&["--initial-cluster", "default=http://ann:s,cret@h:1"], ": a part of it is not of the form name=url"),
            (
                &["--listen-client-urls", "http://ann:s@h"],
                ": a URL is not of the form http://HOST:PORT or https://HOST:PORT",
            ),
            (&["--initial-cluster", "default=http://ann:s@h:1"], "a peer URL of \"default\" names a user"),
            (&["--initial-advertise-peer-urls", "http://ann:s@h:1"], "left out, since a URL in it names a user"),
            (&["--memory-limit", "1000"], "give at least 16777216"),
            (&["--protocol", "craft"], "there is no protocol `craft`; choose one of: raft"),
            (&["--election-timeout", "100", "--heartbeat-interval", "50"], "below three heartbeat intervals"),
            (&["--heartbeat-interval", "-5"], "not negative"),
            (&["--initial-cluster", "a=http://h:1"], "this member's name, \"default\", is not among them"),
            (&["--initial-cluster", "default=http://h:1,default=http://h:1"], "stands twice"),
            (&["--initial-cluster", "default=http://h:1,b=http://h:1"], "have the same peer URL"),
            (&["--listen-client-urls", "localhost"], "is not of the form http://HOST:PORT or https://HOST:PORT"),
            (&["--initial-cluster-state", "old"], "give new or existing"),
            (&["--name", ""], "a name is not empty"),
            (&["--listen-metrics-urls", "https://127.0.0.1:1"], "there is no certificate: give --cert-file"),
            (&["--join-token", "5b0c6f1e0d9a7344"], "give --initial-cluster-state existing, too"),
            (&["--auth-token-ttl", "0"], "give at least 1 second"),
            (&["--auto-tls", "--self-signed-cert-validity", "0"], "give 1 to 100 years"),
            (&["--auth-token", "jwt,sign-method=HS256,priv-key=/dev/null"], "a secret of 0 bytes can be guessed"),
            (&["--auth-token", "jwt,sign-method=HS256,pub-key=/dev/null"], "give it as priv-key alone"),
            (&["--name", &"n".repeat(256)], "has 256 bytes: give one of at most 255"),
        ];
        for (flags, expected) in rows {
            let said = refusal(flags);
            assert!(said.contains(expected), "{flags:?} said: {said}");
        }
    }

    #[test]
    fn what_peers_must_show_is_asked_of_those_that_are_dialled_too() {
        let flags = ["--initial-cluster", "default=https://h:1", "--initial-advertise-peer-urls", "https://h:1"];
        let tls = ["--listen-peer-urls", "https://127.0.0.1:1", "--peer-cert-file", "c", "--peer-key-file", "k"];
        let asked = ["--peer-trusted-ca-file", "ca", "--peer-cert-allowed-cn", "peer"];
        let plan = resolve(&[&flags[..], &tls, &asked].concat(), &[]).unwrap().to_plan().unwrap();
        let allowed = Some(hustings_tls::Allowed::CommonName("peer".into()));
        assert_eq!((plan.tls.peer.unwrap().allowed, plan.tls.dial.unwrap().allowed), (allowed.clone(), allowed));
    }

    #[test]
    fn clients_may_hold_a_quarter_of_the_memory_unless_told_otherwise() {
        assert_eq!(plan::total_in("MemTotal:       24684084 kB\nMemFree:  1 kB\n"), Some(24_684_084 << 10));
        assert_eq!(plan::total_in("no such line"), None);
        let plan = |flags: &[&str]| resolve(flags, &[]).unwrap().to_plan().unwrap().memory_limit_bytes;
        assert_eq!(plan(&[]), plan::memory_bytes() / 4);
        assert_eq!(plan(&["--memory-limit", "20000000"]), 20_000_000);
    }

    #[test]
    fn an_unknown_key_in_a_file_is_named_beside_the_known_ones() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hustings.toml");
        std::fs::write(&file, "nmae = 'x'").unwrap();
        let error = resolve(&["--config", file.to_str().unwrap()], &[]).unwrap_err().to_string();
        assert!(error.contains("`nmae`") && error.contains("initial-cluster"), "{error}");
    }
}
