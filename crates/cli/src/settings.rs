//! Settings of a node: flags, over `HUSTINGS_*` variables, over a file, over defaults; each value knows where it came from.
//!
//! Flag names are etcd's where etcd has them, so that units and scripts work with the name of the binary changed. Unlike
//! etcd, a file does not disable flags and variables: it stands below them.

use anyhow::{Context, Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use hustings_core::{ApplyVersion, Member, Priority, Timing};
use hustings_node::config::TimingMode;
use hustings_server::Jwt;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// One setting.
struct Setting {
    name: &'static str,
    default: &'static str,
    help: &'static str,
}

const fn setting(name: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { name, default, help }
}

/// All settings of `serve`. An empty default means "derived from the others".
const SETTINGS: &[Setting] = &[
    setting("name", "default", "Name of this member"),
    setting("data-dir", "", "Directory of log and snapshots [default: NAME.hustings]"),
    setting("listen-client-urls", "http://127.0.0.1:2379", "URLs to serve clients on, comma-separated"),
    setting("advertise-client-urls", "", "URLs that clients reach this member by [default: where it listens]"),
    setting("listen-peer-urls", "http://127.0.0.1:2380", "URLs to hear peers on, comma-separated"),
    setting("initial-advertise-peer-urls", "", "URLs that peers reach this member by [default: where it listens]"),
    setting(
        "initial-cluster",
        "",
        "Founding members, name=url,...; read at the first start only [default: this member alone]",
    ),
    setting("initial-cluster-state", "new", "new: found a cluster; existing: join one that has added this member"),
    setting(
        "cluster-secret-file",
        "",
        "File with what all members know and strangers do not; without it whoever reaches the peer port may pretend to be a member",
    ),
    setting("initial-cluster-token", "hustings-cluster", "Tells clusters with equal member names apart"),
    setting("heartbeat-interval", "50", "Milliseconds between a leader's heartbeats"),
    setting("election-timeout", "250", "Milliseconds of silence before an election; drawn from this to twice this"),
    setting(
        "timing",
        "fixed",
        "fixed: as given; auto: follows round trips and flushes as measured, within --timing-bounds",
    ),
    setting(
        "timing-bounds",
        "100,5000",
        "With --timing auto, milliseconds between which the election timeout may move; equal on all members",
    ),
    setting(
        "experimental-corrupt-check-time",
        "5m",
        "How often members compare digests of what they hold; one that differs raises the alarm CORRUPT; 0s means never",
    ),
    setting(
        "apply-version-max",
        "",
        "Hold an upgrade back: the highest apply version this member says it can; empty means all that this build can",
    ),
    setting("snapshot-count", "100000", "Applied entries between snapshots"),
    setting(
        "quota-backend-bytes",
        "2147483648",
        "Bytes of keys and values before the NOSPACE alarm; 0 means the default",
    ),
    setting(
        "memory-limit",
        "",
        "Bytes that all clients together may make this member hold beside the store: bodies, proposals, answers, events [default: a quarter of the memory]",
    ),
    setting(
        "auth-token",
        "simple",
        "What proves a user's further calls: simple, or jwt,pub-key=FILE,... as etcd has it",
    ),
    setting("auth-token-ttl", "300", "Seconds for which a token counts"),
    setting("bcrypt-cost", "10", "How much hashing a password costs, 4 to 31: each step doubles the time"),
    setting("host-whitelist", "", "Names by which HTTP clients may call this member, comma-separated; empty: any name"),
    setting("max-request-bytes", "1572864", "Bytes of the largest client request"),
    setting("protocol", "raft", "Election and replication protocol; the same on all members"),
    setting("protocol-options", "", "Options of the protocol alone, as name=value,name=value; the same on all members"),
    setting("priority", "normal", "How much this member should lead: normal, preferred or never"),
    setting("shutdown-grace", "10s", "Time to hand leadership over and drain after SIGTERM"),
    setting("log-level", "info", "error, warn, info, debug or trace, or a tracing filter"),
    setting("log-format", "auto", "human, json, or auto: human on a terminal"),
];

/// etcd's flags that mean nothing here and are accepted with a warning, so that existing units start.
const ACCEPTED: &[&str] =
    &["logger", "log-outputs", "enable-v2", "enable-pprof", "strict-reconfig-check", "pre-vote", "metrics"];

/// Where a value came from.
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

/// Every setting's value and source.
#[derive(Clone, Debug)]
pub(crate) struct Settings(BTreeMap<&'static str, (String, Source)>);

/// Adds the settings to a command as flags.
pub(crate) fn with_settings(mut command: Command) -> Command {
    for setting in SETTINGS {
        let mut help = setting.help.to_string();
        if !setting.default.is_empty() {
            help.push_str(&format!(" [default: {}]", setting.default));
        }
        help.push_str(&format!(" [env: {}]", variable_of(setting.name)));
        command = command
            .arg(Arg::new(setting.name).long(setting.name).allow_negative_numbers(true).value_name("VALUE").help(help));
    }
    for name in ACCEPTED {
        command = command.arg(Arg::new(*name).long(*name).num_args(0..=1).action(ArgAction::Append).hide(true));
    }
    command.arg(
        Arg::new("config")
            .long("config")
            .visible_alias("config-file")
            .value_name("FILE")
            .help("Settings as TOML, by flag name"),
    )
}

fn variable_of(name: &str) -> String {
    format!("HUSTINGS_{}", name.replace('-', "_").to_uppercase())
}

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

    /// The value of a setting, as text.
    pub(crate) fn text(&self, name: &str) -> &str {
        &self.0.get(name).expect("every name asked for is in the table").0
    }

    fn bad<T>(&self, name: &str, remedy: impl fmt::Display) -> Result<T> {
        let (value, source) = &self.0[name];
        bail!("{name} = {value:?} (from {source}): {remedy}")
    }

    fn number(&self, name: &str) -> Result<u64> {
        self.text(name).trim().parse().or_else(|_| self.bad(name, "give a whole number that is not negative"))
    }

    fn urls(&self, name: &str) -> Result<Vec<String>> {
        let urls: Vec<String> = self
            .text(name)
            .split(',')
            .map(|url| url.trim().trim_end_matches('/').to_string())
            .filter(|url| !url.is_empty())
            .collect();
        for url in &urls {
            let is_https = url.starts_with("https://");
            let address = url.strip_prefix("http://");
            if is_https {
                return self.bad(name, "TLS is not available yet; use http://");
            }
            if address.is_none_or(|address| address.rsplit(':').next().is_none_or(|port| port.parse::<u16>().is_err()))
            {
                return self.bad(name, format!("{url:?} is not of the form http://HOST:PORT"));
            }
        }
        Ok(urls)
    }

    fn addresses(&self, name: &str) -> Result<Vec<SocketAddr>> {
        let mut addresses = Vec::new();
        for url in self.urls(name)? {
            let address = url.trim_start_matches("http://");
            match address.to_socket_addrs().map(|mut found| found.next()) {
                Ok(Some(found)) => addresses.push(found),
                _ => return self.bad(name, format!("{address:?} cannot be resolved")),
            }
        }
        if addresses.is_empty() {
            return self.bad(name, "give at least one URL");
        }
        Ok(addresses)
    }

    /// The settings as a node understands them.
    pub(crate) fn to_plan(&self) -> Result<Plan> {
        let name = self.text("name").to_string();
        let is_plain = |character: char| !character.is_control() && character != ',' && character != '=';
        if name.is_empty() || !name.chars().all(is_plain) {
            return self.bad("name", "a name is not empty and has no control characters, commas or equal signs");
        }
        let data_dir = match self.text("data-dir") {
            "" => PathBuf::from(format!("{name}.hustings")),
            dir => PathBuf::from(dir),
        };
        let or_listen = |advertised: &str, listened: &str| {
            let urls = self.urls(advertised)?;
            if urls.is_empty() { self.urls(listened) } else { Ok(urls) }
        };
        let peer_urls = or_listen("initial-advertise-peer-urls", "listen-peer-urls")?;
        let client_urls = or_listen("advertise-client-urls", "listen-client-urls")?;
        let member = Member { name, peer_urls, client_urls, ..Member::default() };
        let founders = self.founders(&member)?;
        let is_joining = match self.text("initial-cluster-state") {
            "new" => false,
            "existing" => true,
            _ => return self.bad("initial-cluster-state", "give new or existing"),
        };
        let timing = Timing::new(
            Duration::from_millis(self.number("heartbeat-interval")?),
            Duration::from_millis(self.number("election-timeout")?),
        );
        timing.check().or_else(|misfit| self.bad("election-timeout", misfit))?;
        let timing_mode = self.timing_mode()?;
        let protocol = self.text("protocol").to_string();
        crate::protocols::check(&protocol).or_else(|error| self.bad("protocol", error))?;
        let protocol_options = self.text("protocol-options").to_string();
        let identity = crate::protocols::identity(&protocol, &protocol_options)
            .or_else(|error| self.bad("protocol-options", error))?;
        let priority = match self.text("priority") {
            "normal" => Priority::Normal,
            "preferred" => Priority::Preferred,
            "never" => Priority::Never,
            _ => return self.bad("priority", "give normal, preferred or never"),
        };
        let grace = humantime::parse_duration(self.text("shutdown-grace"));
        let quota = match self.number("quota-backend-bytes")? {
            0 => 2 << 30,
            quota => quota,
        };
        let memory_limit = match self.text("memory-limit") {
            "" => memory_bytes() / 4,
            _ => self.number("memory-limit")?,
        };
        if memory_limit < MEMORY_LIMIT_MIN {
            return self.bad("memory-limit", format!("give at least {MEMORY_LIMIT_MIN}"));
        }
        let request_bytes = usize::try_from(self.number("max-request-bytes")?).unwrap_or(usize::MAX);
        if !(1..=64 << 20).contains(&request_bytes) {
            return self.bad("max-request-bytes", "give 1 to 67108864");
        }
        let snapshot_count = self.number("snapshot-count")?;
        if snapshot_count == 0 {
            return self.bad("snapshot-count", "give at least 1");
        }
        let compare = humantime::parse_duration(self.text("experimental-corrupt-check-time"));
        let compare: Duration = compare.or_else(|error| self.bad("experimental-corrupt-check-time", error))?;
        let version_max = match self.text("apply-version-max") {
            "" => ApplyVersion(u32::MAX),
            _ => match self.number("apply-version-max").map(u32::try_from)? {
                Ok(version @ 1..) => ApplyVersion(version),
                _ => return self.bad("apply-version-max", "give at least 1"),
            },
        };
        let jwt = match self.text("auth-token").split_once(',') {
            None if self.text("auth-token") == "simple" => None,
            Some(("jwt", rest)) => Some(Jwt::of_setting(rest).or_else(|error| self.bad("auth-token", error))?),
            _ => return self.bad("auth-token", "give simple, or jwt,sign-method=...,pub-key=FILE,priv-key=FILE"),
        };
        let bcrypt_cost = match u32::try_from(self.number("bcrypt-cost")?) {
            Ok(cost @ 4..=31) => cost,
            _ => return self.bad("bcrypt-cost", "give 4 to 31"),
        };
        let listed = self.text("host-whitelist").split(',').map(|name| name.trim().to_owned());
        Ok(Plan {
            auth_token_ttl: Duration::from_secs(self.number("auth-token-ttl")?),
            jwt,
            bcrypt_cost,
            host_whitelist: listed.filter(|name| !name.is_empty() && name != "*").collect(),
            member,
            data_dir,
            secret_file: Some(self.text("cluster-secret-file")).filter(|path| !path.is_empty()).map(PathBuf::from),
            client_listen: self.addresses("listen-client-urls")?,
            peer_listen: self.addresses("listen-peer-urls")?,
            founders,
            is_joining,
            token: self.text("initial-cluster-token").to_string(),
            timing,
            timing_mode,
            snapshot_count,
            compare_states_every: (compare > Duration::ZERO).then_some(compare),
            version_max,
            quota_bytes: quota,
            memory_limit_bytes: memory_limit,
            request_bytes_max: request_bytes,
            protocol,
            protocol_options,
            identity,
            priority,
            grace: grace.or_else(|error| self.bad("shutdown-grace", error))?,
        })
    }

    fn timing_mode(&self) -> Result<TimingMode> {
        if self.text("timing") == "fixed" {
            return Ok(TimingMode::Fixed);
        }
        if self.text("timing") != "auto" {
            return self.bad("timing", "give fixed or auto");
        }
        let millis = |text: &str| text.trim().parse().ok().map(Duration::from_millis);
        let bounds =
            self.text("timing-bounds").split_once(',').and_then(|(low, high)| Some((millis(low)?, millis(high)?)));
        match bounds {
            Some((low, high)) if low >= Duration::from_millis(5) && low <= high => {
                Ok(TimingMode::Auto { election_min: low..=high })
            }
            _ => self.bad("timing-bounds", "give two numbers of milliseconds, like 100,5000, the first at least 5"),
        }
    }

    fn founders(&self, me: &Member) -> Result<Vec<Member>> {
        let text = self.text("initial-cluster");
        if text.is_empty() {
            return Ok(vec![me.clone()]);
        }
        let mut founders: BTreeMap<String, Member> = BTreeMap::new();
        for pair in text.split(',') {
            let Some((name, url)) = pair.trim().split_once('=') else {
                return self.bad("initial-cluster", format!("{pair:?} is not of the form name=url"));
            };
            let founder = founders.entry(name.to_string()).or_default();
            founder.name = name.to_string();
            let url = url.trim_end_matches('/').to_string();
            if founder.peer_urls.contains(&url) {
                return self.bad("initial-cluster", format!("{name:?} stands twice with the same URL"));
            }
            founder.peer_urls.push(url);
        }
        let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
        for founder in founders.values() {
            for url in &founder.peer_urls {
                if let Some(other) = seen.insert(url, &founder.name) {
                    return self.bad(
                        "initial-cluster",
                        format!("{other:?} and {:?} have the same peer URL {url}", founder.name),
                    );
                }
            }
        }
        if !founders.contains_key(&me.name) {
            return self.bad("initial-cluster", format!("this member's name, {:?}, is not among them", me.name));
        }
        Ok(founders.into_values().collect())
    }
}

/// What a node shall do, all values checked.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) auth_token_ttl: Duration,
    pub(crate) jwt: Option<Jwt>,
    pub(crate) bcrypt_cost: u32,
    pub(crate) host_whitelist: Vec<String>,
    pub(crate) member: Member,
    pub(crate) data_dir: PathBuf,
    pub(crate) secret_file: Option<PathBuf>,
    pub(crate) client_listen: Vec<SocketAddr>,
    pub(crate) peer_listen: Vec<SocketAddr>,
    pub(crate) founders: Vec<Member>,
    pub(crate) is_joining: bool,
    pub(crate) token: String,
    pub(crate) timing: Timing,
    pub(crate) timing_mode: TimingMode,
    pub(crate) snapshot_count: u64,
    pub(crate) compare_states_every: Option<Duration>,
    pub(crate) version_max: ApplyVersion,
    pub(crate) quota_bytes: u64,
    pub(crate) memory_limit_bytes: u64,
    pub(crate) request_bytes_max: usize,
    pub(crate) protocol: String,
    pub(crate) protocol_options: String,
    /// The protocol with its options, as directories and handshakes know it.
    pub(crate) identity: String,
    pub(crate) priority: Priority,
    pub(crate) grace: Duration,
}

/// The least that clients may be allowed: a few of the largest requests.
const MEMORY_LIMIT_MIN: u64 = 16 << 20;

/// What to count on where the system does not say how much memory there is, in bytes.
const MEMORY_UNKNOWN: u64 = 4 << 30;

/// The memory that this process may use, in bytes: the machine's, or what its control group leaves it.
fn memory_bytes() -> u64 {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let machine = total_in(&read("/proc/meminfo")).unwrap_or(MEMORY_UNKNOWN);
    // "max", or no such file: no limit of its own.
    let groups = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let group = groups.iter().find_map(|path| read(path).trim().parse().ok()).unwrap_or(u64::MAX);
    machine.min(group).max(4 * MEMORY_LIMIT_MIN)
}

/// `MemTotal:       24684084 kB`, in bytes.
fn total_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
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

/// `hustings config explain|validate`.
pub(crate) fn config_command() -> Command {
    let explain = Command::new("explain").about("Show each setting's value and where it came from");
    let validate = Command::new("validate").about("Check all settings and say nothing when they are right");
    Command::new("config")
        .about("Explain or check the settings of `serve`")
        .subcommand_required(true)
        .subcommand(with_settings(explain))
        .subcommand(with_settings(validate))
}

/// Runs `hustings config`.
pub(crate) fn run_config(matches: &ArgMatches) -> Result<()> {
    let (verb, matches) = matches.subcommand().expect("clap requires one");
    let settings = Settings::resolve(matches, |name| std::env::var(name).ok())?;
    if verb == "explain" {
        let width = SETTINGS.iter().map(|setting| setting.name.len()).max().unwrap_or(0);
        for setting in SETTINGS {
            let (value, source) = &settings.0[setting.name];
            println!("{:width$}  {value:?}  ({source})", setting.name);
        }
    }
    settings.to_plan().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(flags: &[&str], variables: &[(&str, &str)]) -> Result<Settings> {
        let command = with_settings(Command::new("serve"));
        let matches = command.get_matches_from(std::iter::once(&"serve").chain(flags));
        Settings::resolve(&matches, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_string())
        })
    }

    fn refusal(flags: &[&str]) -> String {
        let settings = resolve(flags, &[]).unwrap();
        settings.to_plan().expect_err("the plan is to be refused").to_string()
    }

    #[test]
    fn flags_stand_above_variables_above_files_above_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hustings.toml");
        std::fs::write(&file, "name = 'file'\nheartbeat_interval = 20\nelection-timeout = 100\n").unwrap();
        let flags = ["--config", file.to_str().unwrap(), "--name", "flag"];
        let settings =
            resolve(&flags, &[("HUSTINGS_HEARTBEAT_INTERVAL", "30"), ("HUSTINGS_NAME", "variable")]).unwrap();
        assert_eq!(settings.0["name"], ("flag".into(), Source::Flag));
        let variable = Source::Variable("HUSTINGS_HEARTBEAT_INTERVAL".into());
        assert_eq!(settings.0["heartbeat-interval"], ("30".into(), variable));
        assert_eq!(settings.0["election-timeout"], ("100".into(), Source::File(file)));
        assert_eq!(settings.0["protocol"], ("raft".into(), Source::Default));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value_its_source_and_a_remedy() {
        let rows: [(&[&str], &str); 10] = [
            (&["--memory-limit", "1000"], "give at least 16777216"),
            (&["--protocol", "craft"], "there is no protocol `craft`; choose one of: raft"),
            (&["--election-timeout", "100"], "below three heartbeat intervals"),
            (&["--heartbeat-interval", "-5"], "not negative"),
            (&["--initial-cluster", "a=http://h:1"], "this member's name, \"default\", is not among them"),
            (&["--initial-cluster", "default=http://h:1,default=http://h:1"], "stands twice"),
            (&["--initial-cluster", "default=http://h:1,b=http://h:1"], "have the same peer URL"),
            (&["--listen-client-urls", "localhost"], "is not of the form http://HOST:PORT"),
            (&["--initial-cluster-state", "old"], "give new or existing"),
            (&["--name", ""], "a name is not empty"),
        ];
        for (flags, expected) in rows {
            let said = refusal(flags);
            assert!(said.contains(expected), "{flags:?} said: {said}");
        }
    }

    #[test]
    fn clients_may_hold_a_quarter_of_the_memory_unless_told_otherwise() {
        assert_eq!(total_in("MemTotal:       24684084 kB\nMemFree:  1 kB\n"), Some(24_684_084 << 10));
        assert_eq!(total_in("no such line"), None);
        let plan = |flags: &[&str]| resolve(flags, &[]).unwrap().to_plan().unwrap().memory_limit_bytes;
        assert_eq!(plan(&[]), memory_bytes() / 4);
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
