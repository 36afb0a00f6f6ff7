//! The settings as a node understands them: [`Plan`].

use super::Settings;
use super::advertised;
use super::tls::{TlsPlan, is_https};
use crate::url_users::may_name_user;
use anyhow::Result;
use hustings_core::{ApplyVersion, Member, Priority, Timing};
use hustings_node::config::TimingMode;
use hustings_server::Compaction;
use hustings_server::Jwt;
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// The settings of a node, all values checked.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) member: Member,
    pub(crate) data_dir: PathBuf,
    pub(crate) secret_file: Option<PathBuf>,
    /// Addresses on which clients are accepted, each with whether it speaks TLS.
    pub(crate) client_listen: Vec<(SocketAddr, bool)>,
    pub(crate) peer_listen: Vec<SocketAddr>,
    pub(crate) tls: TlsPlan,
    pub(crate) founders: Vec<Member>,
    /// The peer URLs that it was given to tell, and not those that follow from other settings.
    pub(crate) advertised: Vec<String>,
    pub(crate) is_joining: bool,
    /// The members but this one are gone: it goes on as a new cluster.
    pub(crate) is_forced: bool,
    pub(crate) token: String,
    pub(crate) timing: Timing,
    pub(crate) timing_mode: TimingMode,
    pub(crate) snapshot_count: u64,
    pub(crate) compare_states_every: Option<Duration>,
    pub(crate) version_max: ApplyVersion,
    pub(crate) quota_bytes: u64,
    pub(crate) memory_limit_bytes: u64,
    /// Limit of the recording, in bytes; 0: there is none.
    pub(crate) ring_bytes: u64,
    /// The settings that were given, without secrets: they are recorded, too.
    pub(crate) settings: Vec<String>,
    pub(crate) request_bytes_max: usize,
    pub(crate) protocol: String,
    pub(crate) protocol_options: String,
    /// The protocol with its options, as directories and handshakes know it.
    pub(crate) identity: String,
    pub(crate) priority: Priority,
    pub(crate) grace: Duration,
    pub(crate) metrics_listen: Vec<(SocketAddr, bool)>,
    /// Zero: slow requests are not told.
    pub(crate) slow_after: Duration,
    pub(crate) has_histograms_of_calls: bool,
    pub(crate) txn_operations_max: usize,
    pub(crate) streams_max: u32,
    /// Zero: silent clients are not probed.
    pub(crate) probe_interval: Duration,
    pub(crate) probe_timeout: Duration,
    pub(crate) progress_interval: Duration,
    pub(crate) compaction: Compaction,
    /// Origins whose pages may call; "*" means all.
    pub(crate) origins: Vec<String>,
    /// Host names that requests may be addressed to; none or "*" means all.
    pub(crate) hosts: Vec<String>,
    pub(crate) auth_token_ttl: Duration,
    pub(crate) jwt: Option<Jwt>,
    pub(crate) bcrypt_cost: u32,
}

/// The longest name of a member: it is part of every greeting and every line.
const NAME_BYTES_MAX: usize = 255;

/// Checks the name of a member.
///
/// # Errors
/// In words.
pub(crate) fn check_member_name(name: &str) -> Result<(), String> {
    let is_plain = |character: char| !character.is_control() && character != ',' && character != '=';
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err("a name is not empty and has no control characters, commas or equal signs".to_owned());
    }
    if name.len() > NAME_BYTES_MAX {
        let shown: String = name.chars().take(20).collect();
        return Err(format!("the name {shown}... has {} bytes: give one of at most {NAME_BYTES_MAX}", name.len()));
    }
    Ok(())
}

impl Settings {
    /// The settings as a node understands them.
    pub(crate) fn to_plan(&self) -> Result<Plan> {
        let name = self.text("name").to_string();
        match check_member_name(&name) {
            // Its value would fill the screen.
            Err(why) if name.len() > NAME_BYTES_MAX => anyhow::bail!(why),
            Err(why) => return self.bad("name", why),
            Ok(()) => {}
        }
        let data_dir = match self.text("data-dir") {
            "" => PathBuf::from(format!("{name}.hustings")),
            dir => PathBuf::from(dir),
        };
        let peer_urls = self.peer_urls(&name)?;
        let client_urls = match self.urls("advertise-client-urls")? {
            urls if urls.is_empty() => advertised::with_host_of(self.urls("listen-client-urls")?, &peer_urls),
            urls => urls,
        };
        let storage_incarnation = match self.text("join-token") {
            "" => None,
            token => match u64::from_str_radix(token, 16) {
                Ok(token @ 1..) => Some(token),
                _ => return self.bad("join-token", "give what `hustings member add` printed: 16 digits in hex"),
            },
        };
        if storage_incarnation.is_some() && self.text("initial-cluster-state") != "existing" {
            let why = "it is for a member that joins a cluster: give --initial-cluster-state existing, too";
            return self.bad("join-token", why);
        }
        let member = Member { name, peer_urls, client_urls, storage_incarnation, ..Member::default() };
        let founders = self.founders(&member)?;
        let jwt = match self.text("auth-token").split_once(',') {
            None if self.text("auth-token") == "simple" => None,
            Some(("jwt", rest)) => Some(Jwt::of_setting(rest).or_else(|error| self.bad("auth-token", error))?),
            _ => return self.bad("auth-token", "give simple, or jwt,sign-method=...,pub-key=FILE,priv-key=FILE"),
        };
        let bcrypt_cost = match u32::try_from(self.number("bcrypt-cost")?) {
            Ok(cost @ 4..=31) => cost,
            _ => return self.bad("bcrypt-cost", "give 4 to 31"),
        };
        let is_joining = match self.text("initial-cluster-state") {
            "new" => false,
            "existing" => true,
            _ => return self.bad("initial-cluster-state", "give new or existing"),
        };
        let timing = self.timing()?;
        let timing_mode = self.timing_mode()?;
        let protocol = self.text("protocol").to_string();
        crate::protocols::check(&protocol).or_else(|error| self.bad("protocol", error))?;
        let protocol_options = self.text("protocol-options").to_string();
        let identity = crate::protocols::identity(&protocol, &protocol_options)
            .or_else(|error| self.bad("protocol-options", error))?;
        let (probe_interval, probe_timeout) = self.probes()?;
        let priority = match self.text("priority") {
            "normal" => Priority::Normal,
            "preferred" => Priority::Preferred,
            "never" => Priority::Never,
            _ => return self.bad("priority", "give normal, preferred or never"),
        };
        let quota = match self.text("quota-backend-bytes").trim() {
            // As at etcd: none.
            text if text.strip_prefix('-').is_some_and(|text| super::value::number(text).is_ok()) => i64::MAX as u64,
            _ => match self.number("quota-backend-bytes")? {
                0 => 2 << 30,
                quota => quota,
            },
        };
        let memory_limit = match self.text("memory-limit") {
            "" => memory_bytes() / 4,
            _ => self.number("memory-limit")?,
        };
        if memory_limit < MEMORY_LIMIT_MIN {
            return self.bad("memory-limit", format!("give at least {MEMORY_LIMIT_MIN}"));
        }
        let ring_bytes = match self.text("ring") {
            "off" => 0,
            _ => self.number("ring")?,
        };
        if (1..RING_BYTES_MIN).contains(&ring_bytes) {
            return self.bad("ring", format!("give off, or at least {RING_BYTES_MIN}"));
        }
        let request_bytes = usize::try_from(self.number("max-request-bytes")?).unwrap_or(usize::MAX);
        if !(1..=64 << 20).contains(&request_bytes) {
            return self.bad("max-request-bytes", "give 1 to 67108864");
        }
        let snapshot_count = self.number("snapshot-count")?;
        if snapshot_count == 0 {
            return self.bad("snapshot-count", "give at least 1");
        }
        let compare = self.duration("experimental-corrupt-check-time")?;
        let version_max = match self.text("apply-version-max") {
            "" => ApplyVersion(u32::MAX),
            _ => match self.number("apply-version-max").map(u32::try_from)? {
                Ok(version @ 1..) => ApplyVersion(version),
                _ => return self.bad("apply-version-max", "give at least 1"),
            },
        };
        Ok(Plan {
            member,
            data_dir,
            secret_file: Some(self.text("cluster-secret-file")).filter(|path| !path.is_empty()).map(PathBuf::from),
            tls: self.tls_of(&founders)?,
            client_listen: self.addresses("listen-client-urls")?,
            peer_listen: self.addresses("listen-peer-urls")?.into_iter().map(|(address, _)| address).collect(),
            founders,
            advertised: self.urls("initial-advertise-peer-urls")?,
            is_joining,
            is_forced: self.switch("force-new-cluster")?,
            token: self.text("initial-cluster-token").to_string(),
            timing,
            timing_mode,
            snapshot_count,
            compare_states_every: (compare > Duration::ZERO).then_some(compare),
            version_max,
            quota_bytes: quota,
            memory_limit_bytes: memory_limit,
            ring_bytes,
            settings: self.without_secrets(),
            request_bytes_max: request_bytes,
            protocol,
            protocol_options,
            identity,
            priority,
            grace: self.duration("shutdown-grace")?,
            metrics_listen: match self.text("listen-metrics-urls") {
                "" => Vec::new(),
                _ => self.addresses("listen-metrics-urls")?,
            },
            slow_after: self.duration("experimental-warning-unary-request-duration")?,
            has_histograms_of_calls: match self.text("metrics") {
                "extensive" => true,
                "basic" => false,
                _ => return self.bad("metrics", "give basic or extensive"),
            },
            txn_operations_max: self.at_least_one("max-txn-ops")?,
            streams_max: u32::try_from(self.at_least_one("max-concurrent-streams")?).unwrap_or(u32::MAX),
            probe_interval,
            probe_timeout,
            progress_interval: self.progress_interval()?,
            compaction: self.compaction()?,
            origins: self.origins()?,
            hosts: self.list("host-whitelist"),
            auth_token_ttl: match self.number("auth-token-ttl")? {
                0 => return self.bad("auth-token-ttl", "give at least 1 second"),
                seconds => Duration::from_secs(seconds),
            },
            jwt,
            bcrypt_cost,
        })
    }

    /// The TLS settings of this member's ports, and for dialling these founders.
    fn tls_of(&self, founders: &[Member]) -> Result<TlsPlan> {
        let peers: Vec<String> = founders.iter().flat_map(|founder| founder.peer_urls.clone()).collect();
        self.tls_plan(
            &self.urls("listen-client-urls")?,
            &self.list("listen-metrics-urls"),
            &self.urls("listen-peer-urls")?,
            &peers,
        )
    }

    /// The TLS settings, even if others are wrong.
    pub(super) fn tls_of_urls(&self) -> Result<TlsPlan> {
        let founders = founders_in(self.text("initial-cluster")).unwrap_or_default();
        self.tls_of(&founders.into_values().collect::<Vec<_>>())
    }

    /// Heartbeats and elections. If one of the two is given, as etcd's units often do, the other follows from it: ten
    /// heartbeats to an election, as etcd has it, or five where the timeout is short; never less time than by default.
    pub(super) fn timing(&self) -> Result<Timing> {
        let given = |name: &str| match self.text(name) {
            "" => Ok(None),
            _ => self.number(name).map(|millis| Some(Duration::from_millis(millis))),
        };
        let (heartbeat, election) = match (given("heartbeat-interval")?, given("election-timeout")?) {
            (Some(heartbeat), Some(election)) => (heartbeat, election),
            (Some(heartbeat), None) => (heartbeat, ELECTION.max(heartbeat.saturating_mul(10))),
            (None, Some(election)) => (HEARTBEAT.min(election / 5), election),
            (None, None) => (HEARTBEAT, ELECTION),
        };
        let timing = Timing::new(heartbeat, election);
        let named = if self.is_given("election-timeout") { "election-timeout" } else { "heartbeat-interval" };
        timing.check().or_else(|misfit| self.bad(named, misfit))?;
        Ok(timing)
    }

    fn at_least_one(&self, name: &str) -> Result<usize> {
        match self.number(name)? {
            0 => self.bad(name, "give at least 1"),
            number => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
        }
    }

    /// Times between probes of silent clients and for their answers; zero where either is zero, as in etcd.
    fn probes(&self) -> Result<(Duration, Duration)> {
        let (interval, timeout) = (self.duration("grpc-keepalive-interval")?, self.duration("grpc-keepalive-timeout")?);
        Ok(if timeout.is_zero() { (Duration::ZERO, timeout) } else { (interval, timeout) })
    }

    fn progress_interval(&self) -> Result<Duration> {
        let name = "experimental-watch-progress-notify-interval";
        let interval = self.duration(name)?;
        if interval < PROGRESS_MIN { self.bad(name, "give at least 100ms") } else { Ok(interval) }
    }

    /// Source: etcd 3.5, `parseCompactionRetention`: a bare number is hours, or revisions.
    fn compaction(&self) -> Result<Compaction> {
        let name = "auto-compaction-retention";
        let text = self.text(name);
        if text.trim().is_empty() {
            return Ok(Compaction::Never);
        }
        let hours = || Some(Duration::from_secs(text.trim().parse::<u32>().ok()?.checked_mul(3_600)?.into()));
        match self.text("auto-compaction-mode") {
            "revision" => match text.trim().parse::<u32>() {
                Ok(0) => Ok(Compaction::Never),
                Ok(revisions) => Ok(Compaction::Revisions(revisions.into())),
                Err(_) => self.bad(name, "with --auto-compaction-mode revision, give a number of revisions to keep"),
            },
            "periodic" => match hours().or_else(|| super::value::duration(text).ok()) {
                Some(time) if time.is_zero() => Ok(Compaction::Never),
                Some(time) if time >= RETENTION_MIN => Ok(Compaction::Periods(time)),
                _ => self.bad(name, "give a time of at least one second like 30m, a number of hours, or 0 for never"),
            },
            _ => self.bad("auto-compaction-mode", "give periodic or revision"),
        }
    }

    fn origins(&self) -> Result<Vec<String>> {
        let origins = self.list("cors");
        for origin in origins.iter().filter(|origin| *origin != "*") {
            let host = origin.split_once("://").map_or("", |(_, host)| host);
            if host.is_empty() || host.contains('/') {
                return self.bad("cors", format!("{origin:?} is no origin: give * or SCHEME://HOST[:PORT]"));
            }
        }
        Ok(origins.into_iter().map(|origin| origin.to_lowercase()).collect())
    }

    fn timing_mode(&self) -> Result<TimingMode> {
        if self.text("timing") == "fixed" {
            return Ok(TimingMode::Fixed);
        }
        if self.text("timing") != "auto" {
            return self.bad("timing", "give fixed or auto");
        }
        const DAY: Duration = Duration::from_secs(86_400);
        let millis = |text: &str| text.trim().parse().ok().map(Duration::from_millis);
        let bounds =
            self.text("timing-bounds").split_once(',').and_then(|(low, high)| Some((millis(low)?, millis(high)?)));
        match bounds {
            Some((low, high)) if low >= Duration::from_millis(5) && low <= high && high <= DAY => {
                Ok(TimingMode::Auto { election_min: low..=high })
            }
            _ => self.bad(
                "timing-bounds",
                "give two numbers of milliseconds, like 100,5000, the first at least 5, the second at most a day",
            ),
        }
    }

    /// The URLs by which peers reach this member: as given, or as `--initial-cluster` has them, or where it listens.
    fn peer_urls(&self, name: &str) -> Result<Vec<String>> {
        let given = self.urls("initial-advertise-peer-urls")?;
        if !given.is_empty() {
            return Ok(given);
        }
        // An error in it is told where the founders are read.
        let mut founders = founders_in(self.text("initial-cluster")).unwrap_or_default();
        match founders.remove(name) {
            Some(listed) => Ok(listed.peer_urls),
            None => self.urls("listen-peer-urls"),
        }
    }

    fn founders(&self, me: &Member) -> Result<Vec<Member>> {
        let text = self.text("initial-cluster");
        if text.is_empty() {
            return Ok(vec![me.clone()]);
        }
        let founders = founders_in(text).or_else(|remedy| self.bad("initial-cluster", remedy))?;
        if !founders.contains_key(&me.name) {
            return self.bad(
                "initial-cluster",
                format!("this member's name, {:?}, is not among them: give --name one of them, or add it", me.name),
            );
        }
        if let Some(why) = advertised::misfit(founders.values()).filter(|_| founders.len() > 1) {
            return self.bad("initial-cluster", why);
        }
        if let Some(why) = advertised::misfit([me]).filter(|_| founders.len() > 1) {
            return self.bad("initial-advertise-peer-urls", why);
        }
        Ok(founders.into_values().collect())
    }

    fn urls(&self, name: &str) -> Result<Vec<String>> {
        let urls: Vec<String> = self
            .text(name)
            .split(',')
            .map(|url| url.trim().trim_end_matches('/'))
            .filter(|url| !url.is_empty())
            .map(|url| match url.split_once("://") {
                Some((scheme, rest)) => format!("{}://{rest}", scheme.to_lowercase()),
                None => url.to_owned(),
            })
            .fold(Vec::new(), |mut all, url| {
                if !all.contains(&url) {
                    all.push(url);
                }
                all
            });
        let is_of_peers = name == "initial-advertise-peer-urls";
        for url in &urls {
            if is_of_peers && url.contains('@') {
                return self.bad(name, format!("it names a user: {NO_USER}"));
            }
            let address = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            if address.is_none_or(|address| address.rsplit(':').next().is_none_or(|port| port.parse::<u16>().is_err()))
            {
                let what = if url.contains('@') { "a URL".to_owned() } else { format!("{url:?}") };
                return self.bad(name, format!("{what} is not of the form http://HOST:PORT or https://HOST:PORT"));
            }
        }
        Ok(urls)
    }

    /// Each address, and whether its URL asks for TLS.
    fn addresses(&self, name: &str) -> Result<Vec<(SocketAddr, bool)>> {
        let mut addresses = Vec::new();
        for url in self.urls(name)? {
            let address = url.split_once("://").map_or(url.as_str(), |(_, address)| address);
            match address.to_socket_addrs().map(|mut found| found.next()) {
                Ok(Some(found)) => addresses.push((found, is_https(&url))),
                _ => return self.bad(name, format!("{address:?} cannot be resolved")),
            }
        }
        if addresses.is_empty() {
            return self.bad(name, "give at least one URL");
        }
        Ok(addresses)
    }
}

/// The members that `--initial-cluster` names, by name; or what is wrong with it.
pub(crate) fn founders_in(text: &str) -> Result<BTreeMap<String, Member>, String> {
    let mut founders: BTreeMap<String, Member> = BTreeMap::new();
    // A list may end in a comma, as at etcd.
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let Some((name, url)) = pair.trim().split_once('=') else {
            // A password may hold a comma.
            let what = if may_name_user(text) { "a part of it".to_owned() } else { format!("{pair:?}") };
            return Err(format!("{what} is not of the form name=url"));
        };
        let founder = founders.entry(name.to_string()).or_default();
        founder.name = name.to_string();
        let url = url.trim_end_matches('/').to_string();
        if url.contains('@') {
            return Err(format!("a peer URL of {name:?} names a user: {NO_USER}"));
        }
        if founder.peer_urls.contains(&url) {
            return Err(format!("{name:?} stands twice with the same URL"));
        }
        founder.peer_urls.push(url);
    }
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for founder in founders.values() {
        for url in &founder.peer_urls {
            if let Some(other) = seen.insert(url, &founder.name) {
                return Err(format!("{other:?} and {:?} have the same peer URL {url}", founder.name));
            }
        }
    }
    Ok(founders)
}

/// Members know each other by their secret or their certificates, and nothing would ever ask for a name and a password.
const NO_USER: &str = "peers ask for none; leave out what stands before the @";

/// The shortest retention: a tenth of it is the time between two looks.
const RETENTION_MIN: Duration = Duration::from_secs(1);

/// The shortest time between two progress notifications: they cost every watcher something.
const PROGRESS_MIN: Duration = Duration::from_millis(100);

/// Time between a leader's heartbeats, unless told otherwise.
const HEARTBEAT: Duration = Duration::from_millis(50);

/// Silence before an election, unless told otherwise: a quarter of etcd's.
const ELECTION: Duration = Duration::from_millis(250);

/// The least that clients may be allowed: a few of the largest requests.
const MEMORY_LIMIT_MIN: u64 = 16 << 20;
/// A ring of less would hold no more than seconds.
const RING_BYTES_MIN: u64 = 1 << 20;

/// Memory to count on where the system does not say how much there is, in bytes.
const MEMORY_UNKNOWN: u64 = 4 << 30;

/// The memory that this process may use, in bytes: the machine's, or what its control group leaves it.
pub(super) fn memory_bytes() -> u64 {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let machine = total_in(&read("/proc/meminfo")).unwrap_or(MEMORY_UNKNOWN);
    // "max", or no such file: no limit of its own.
    let groups = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let group = groups.iter().find_map(|path| read(path).trim().parse().ok()).unwrap_or(u64::MAX);
    machine.min(group).max(4 * MEMORY_LIMIT_MIN)
}

/// `MemTotal:       24684084 kB`, in bytes.
pub(super) fn total_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
