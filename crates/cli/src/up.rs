//! `hustings up`: a local cluster of real processes, with nothing to configure.

/// Says something; whether anybody reads it is no reason to stop a cluster.
macro_rules! tell {
    ($($word:tt)*) => {{ let _ = std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{}\n", format_args!($($word)*))); }};
}

mod certificates;
mod founded;
mod workbench;

use anyhow::{Context, Result, bail};
use certificates::{Certificates, Clients};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use founded::{Founded, Held};
use std::collections::HashSet;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Child;
use tokio::sync::mpsc;
use workbench::{Order, Workbench};

/// The pause before a node that died is started again.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// A node that ends by itself sooner than this has never served.
const SHORT_LIFE: Duration = Duration::from_secs(5);
/// Short lives in a row after which a node is not started again: what ends it does not pass.
const SHORT_LIVES_MAX: u32 = 3;
/// Message of the log lines that tell of calls.
const AUDIT: &str = "audit";

/// The same as it stands in a line.
const AUDIT_FIELD: &str = r#""message":"audit""#;
/// Warnings that are remembered as shown.
const TOLD_MAX: usize = 10_000;

/// The command line of `up`.
pub(crate) fn command() -> Command {
    Command::new("up")
        .about("Run a local cluster of real processes")
        .arg(
            Arg::new("nodes")
                .long("nodes")
                .default_value("3")
                .value_parser(value_parser!(u16).range(1..=15))
                .help("How many nodes"),
        )
        .arg(
            Arg::new("data-dir")
                .long("data-dir")
                .default_value("hustings-data")
                .help("Where their data lives; started again on the same directory the cluster resumes"),
        )
        .arg(
            Arg::new("base-port")
                .long("base-port")
                .default_value("2379")
                .value_parser(value_parser!(u16))
                .help("The first client port; node i takes base + 2(i-1) for clients and the next for peers"),
        )
        .arg(Arg::new("protocol").long("protocol").default_value("raft").help("Election and replication protocol"))
        .arg(
            Arg::new("protocol-options")
                .long("protocol-options")
                .value_name("NAME=VALUE,...")
                .default_value("")
                .help("Options of the protocol alone; on a directory that was founded with others, those that cannot change are refused"),
        )
        .arg(
            Arg::new("tls")
                .long("tls")
                .action(ArgAction::SetTrue)
                .help("Both ports in TLS, with certificates of a CA made for this cluster"),
        )
        .arg(
            Arg::new("client-cert-auth")
                .long("client-cert-auth")
                .action(ArgAction::SetTrue)
                .help("With TLS: clients must show a certificate; DATA/tls/root.crt is one, of the user root"),
        )
        .arg(
            Arg::new("audit")
                .long("audit")
                .action(ArgAction::SetTrue)
                .help("Show who did what: a line for each call, while users count"),
        )
        .arg(Arg::new("no-restart").long("no-restart").action(ArgAction::SetTrue).help("Leave a node that died dead"))
}

/// One node of the local cluster.
#[derive(Clone)]
struct Seat {
    name: String,
    client: String,
    peer: String,
    data_dir: PathBuf,
}

/// News of a node.
enum News {
    Line(usize, String),
    /// The exit of a node: its end in words, and whether it ended itself.
    Exited(usize, String, bool),
    /// The wait before its restart is over.
    Due(usize),
    /// Somebody at a dashboard wants something.
    Ordered(Order),
}

/// Runs the cluster until Ctrl-C.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let dir = PathBuf::from(matches.get_one::<String>("data-dir").expect("it has a default"));
    let text = |name: &str| matches.get_one::<String>(name).expect("it has a default").clone();
    let asked = Founded {
        nodes: *matches.get_one::<u16>("nodes").expect("it has a default"),
        base_port: *matches.get_one::<u16>("base-port").expect("it has a default"),
        protocol: (text("protocol"), text("protocol-options")),
        is_tls: matches.get_flag("tls"),
    };
    let _held = Held::take(&dir)?;
    let mut form = match Founded::read(&dir)? {
        Some(founded) => {
            founded.check(&asked, matches, &dir)?;
            founded
        }
        None => {
            crate::protocols::identity(&asked.protocol.0, &asked.protocol.1)?;
            asked.clone()
        }
    };
    if matches.value_source("protocol-options") == Some(ValueSource::CommandLine) {
        // Options that a directory does not know may be others each time.
        form.protocol.1 = asked.protocol.1;
    }
    let Founded { nodes: count, base_port: base, protocol: (protocol, options), is_tls } = form;
    if base == 0 {
        bail!("--base-port 0 is no port: choose the first of {} free ones", 2 * u32::from(count));
    }
    if u32::from(base) + 2 * u32::from(count) > 65_536 {
        bail!("--base-port {base} leaves no room for {count} nodes: choose a smaller one");
    }
    let clients = if matches.get_flag("client-cert-auth") { Clients::ShowCertificates } else { Clients::ShowNothing };
    if clients == Clients::ShowCertificates && !is_tls {
        bail!("--client-cert-auth asks clients for a certificate, which is part of TLS: give --tls, too");
    }
    let scheme = if is_tls { "https" } else { "http" };
    let seats: Vec<Seat> = (1..=count).map(|number| seat(number, count, base, &dir, scheme)).collect();
    let certificates = match is_tls {
        true => Some(Certificates::make(&dir, seats.iter().map(|seat| seat.name.as_str()), clients)?),
        false => None,
    };
    let form =
        Form { protocol, options, secret: secret_file(&dir)?, certificates, shows_audit: matches.get_flag("audit") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_seats(&seats, &form, !matches.get_flag("no-restart")))
}

fn seat(number: u16, count: u16, base: u16, dir: &Path, scheme: &str) -> Seat {
    let client = base + 2 * (number - 1);
    // Zero-padded from ten nodes on: ids are given in the order of names.
    let name = if count < 10 { format!("n{number}") } else { format!("n{number:02}") };
    Seat {
        client: format!("{scheme}://127.0.0.1:{client}"),
        peer: format!("{scheme}://127.0.0.1:{}", client + 1),
        data_dir: dir.join(&name),
        name,
    }
}

/// The secret of the cluster in this directory, made when there is none.
fn secret_file(dir: &Path) -> Result<PathBuf> {
    let path = dir.join("cluster-secret");
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    match made {
        Ok(mut file) => {
            let secret: String = rand::random::<[u8; 32]>().iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(file, "{secret}").and_then(|()| file.sync_all())
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
    .with_context(|| format!("cannot make the cluster secret {}", path.display()))?;
    Ok(path)
}

/// The settings that all members share.
struct Form {
    protocol: String,
    options: String,
    secret: PathBuf,
    certificates: Option<Certificates>,
    shows_audit: bool,
}

async fn run_seats(seats: &[Seat], form: &Form, restarts: bool) -> Result<()> {
    for seat in seats {
        for url in [&seat.client, &seat.peer] {
            let address = url.split_once("://").map_or(url.as_str(), |(_, address)| address);
            std::net::TcpListener::bind(address).with_context(|| {
                format!("port of {address} is in use: choose another --base-port, or stop what runs there")
            })?;
        }
    }
    let (news, mut queue) = mpsc::channel(1_024);
    let workbench = Workbench::open(seats[0].data_dir.parent().unwrap_or(Path::new(".")), news.downgrade());
    let workbench = workbench.as_ref().map(|workbench| workbench.socket.as_path());
    let (mut pids, mut voices) = (Vec::new(), Vec::new());
    let mut lives = vec![Life { began: Instant::now(), short_ones: 0, last_words: String::new() }; seats.len()];
    let mut told = Shown { shows_audit: form.shows_audit, ..Shown::default() };
    for (position, seat) in seats.iter().enumerate() {
        let started = spawn(seats, position, form, workbench, news.clone());
        let (pid, voice) = started.with_context(|| format!("cannot start {}", seat.name))?;
        pids.push(pid);
        voices.push(voice);
    }
    tell!(
        "cluster of {} ({}), data in {}",
        seats.len(),
        form.protocol,
        seats[0].data_dir.parent().unwrap_or(Path::new(".")).display()
    );
    for (seat, pid) in seats.iter().zip(&pids) {
        tell!("  {}  {}  pid {pid}", seat.name, seat.client);
    }
    let endpoints: Vec<&str> = seats.iter().map(|seat| seat.client.trim_start_matches("http://")).collect();
    let tls = form.certificates.as_ref().map(|tls| format!(" {}", tls.of_client())).unwrap_or_default();
    // The variable and not the flag: etcdctl refuses the two together, and its pages export it.
    tell!("try   ETCDCTL_ENDPOINTS={} etcdctl{tls} put greeting hello", endpoints.join(","));
    tell!("look  {}", seats[0].client);
    tell!("stop  Ctrl-C\n");
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    loop {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => break,
            _ = terminate.recv() => break,
            Some(happened) = queue.recv() => match happened {
                News::Line(position, line) => {
                    told.show(&seats[position].name, &line);
                    lives[position].last_words = line;
                }
                News::Exited(position, how, ended_itself) => {
                    let (name, life) = (&seats[position].name, &mut lives[position]);
                    tell!("{}  {name} ended: {how}", clock());
                    pids[position] = 0;
                    life.short_ones = if ended_itself && life.began.elapsed() < SHORT_LIFE { life.short_ones + 1 } else { 0 };
                    if restarts && life.short_ones >= SHORT_LIVES_MAX {
                        tell!("{}  {name} is not started again: it ended {SHORT_LIVES_MAX} times at once; {}", clock(), life.last_words);
                        if lives.iter().all(|life| life.short_ones >= SHORT_LIVES_MAX) {
                            bail!("no node can run: {}", lives[position].last_words.trim_start_matches("hustings: "));
                        }
                    } else if restarts {
                        restart_later(position, news.clone());
                    }
                }
                News::Due(position) => match spawn(seats, position, form, workbench, news.clone()) {
                    Ok(started) => {
                        (pids[position], voices[position]) = started;
                        lives[position].began = Instant::now();
                        tell!("{}  {} started again, pid {}", clock(), seats[position].name, pids[position]);
                    }
                    // The machine has no process or descriptor left for it now. The others serve.
                    Err(error) => {
                        tell!("{}  {} cannot be started again yet: {error:#}", clock(), seats[position].name);
                        restart_later(position, news.clone());
                    }
                },
                News::Ordered(order) => {
                    let named = seats.iter().position(|seat| seat.name == order.member);
                    let obeyed = match named.map(|position| (pids[position], &voices[position])) {
                        None => Err(format!("there is no member {:?} here", order.member)),
                        Some((0, _)) => Err(format!("{} does not run now", order.member)),
                        Some((pid, voice)) => order.obey(pid, voice),
                    };
                    if obeyed.is_ok() {
                        tell!("{}  {}: {}, asked for at a dashboard", clock(), order.member, order.verb);
                    }
                    order.answer(obeyed);
                }
            },
        }
    }
    tell!("\nstopping");
    for pid in pids.into_iter().filter(|pid| *pid != 0) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
            // One that has ended meanwhile needs no signal; one that stands still hears none before it goes on.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
        }
    }
    drop(news);
    while queue.recv().await.is_some() {}
    Ok(())
}

/// Says when a node is due to be started again. Lines of the others are shown meanwhile, and not after this wait.
fn restart_later(position: usize, news: mpsc::Sender<News>) {
    tokio::spawn(async move {
        tokio::time::sleep(RESTART_AFTER).await;
        // Nobody hears it when the cluster is being stopped.
        let _ = news.send(News::Due(position)).await;
    });
}

/// Starts a node; its lines and its end arrive as news.
fn spawn(
    seats: &[Seat],
    position: usize,
    form: &Form,
    workbench: Option<&Path>,
    news: mpsc::Sender<News>,
) -> Result<(u32, Voice)> {
    let seat = &seats[position];
    let cluster: Vec<String> = seats.iter().map(|seat| format!("{}={}", seat.name, seat.peer)).collect();
    let mut command = tokio::process::Command::from(hustings_election::supervisor::this_program());
    command
        .args(["serve", "--exit-with-parent", "--log-format", "json"])
        .args(["--name", &seat.name, "--protocol", &form.protocol, "--protocol-options", &form.options])
        .arg("--data-dir")
        .arg(&seat.data_dir)
        .arg("--cluster-secret-file")
        .arg(&form.secret)
        .args(["--listen-client-urls", &seat.client, "--advertise-client-urls", &seat.client])
        .args(["--listen-peer-urls", &seat.peer, "--initial-advertise-peer-urls", &seat.peer])
        .args(["--initial-cluster", &cluster.join(",")])
        .args(form.certificates.iter().flat_map(|tls| tls.of_member(&seat.name)))
        .envs(workbench.map(|socket| (crate::serve::WORKBENCH, socket)))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Ctrl-C is for this process alone; it stops the nodes in good order.
        .process_group(0);
    let mut child: Child = command.spawn()?;
    let pid = child.id().context("the node ended at once")?;
    let (voice, mut words) = mpsc::unbounded_channel::<&'static str>();
    let stdin = child.stdin.take();
    // Held open until it ends: a node whose parent is gone ends too.
    tokio::spawn(async move {
        let Some(mut stdin) = stdin else { return };
        while let Some(word) = words.recv().await {
            // One that has ended hears nothing.
            let _ = stdin.write_all(format!("{word}\n").as_bytes()).await;
        }
    });
    let held = voice.clone();
    tokio::spawn(async move {
        if let Some(stderr) = child.stderr.take() {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = news.send(News::Line(position, line)).await;
            }
        }
        let (how, ended_itself) = match child.wait().await {
            Ok(status) => (status.to_string(), status.code().is_some()),
            Err(error) => (error.to_string(), false),
        };
        drop(held);
        let _ = news.send(News::Exited(position, how, ended_itself)).await;
    });
    Ok((pid, voice))
}

/// Sends words to a node while it runs: `cut`, `heal`.
type Voice = mpsc::UnboundedSender<&'static str>;

/// The facts about a node's lives.
#[derive(Clone)]
struct Life {
    began: Instant,
    /// Number of lives in a row that ended at once.
    short_ones: u32,
    /// The last line that it said.
    last_words: String,
}

/// The warnings that were shown already, and whether lines of the audit are shown as well.
#[derive(Default)]
struct Shown {
    /// Warnings and errors: each is shown once.
    warnings: HashSet<(String, String)>,
    shows_audit: bool,
}

impl Shown {
    /// Shows what a person wants to see: transitions, warnings and errors.
    fn show(&mut self, name: &str, line: &str) {
        // There may be thousands of them a second, and within a text these quotes would have a backslash before them.
        if !self.shows_audit && line.contains(AUDIT_FIELD) {
            return;
        }
        if self.warnings.len() >= TOLD_MAX {
            self.warnings.clear();
        }
        let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else {
            if self.warnings.insert((name.to_owned(), line.to_owned())) {
                tell!("{}  {name}: {line}", clock());
            }
            return;
        };
        let message = event["message"].as_str().unwrap_or_default();
        // Log lines have no target here; no other line has these two.
        if event["message"] == AUDIT && event["method"].is_string() {
            tell!("{}  {name}: {}", clock(), audit_line(&event));
            return;
        }
        match event["level"].as_str() {
            Some("INFO") if message.contains("because") => tell!("{}  {message}", clock()),
            Some("WARN" | "ERROR") if self.warnings.insert((name.to_owned(), message.to_owned())) => {
                tell!("{}  {name}: {message}", clock());
            }
            _ => {}
        }
    }
}

/// A call in one line: who did what, where, with which code and at which revision.
fn audit_line(event: &serde_json::Value) -> String {
    let field = |name: &str| match &event[name] {
        serde_json::Value::String(text) => format!(" {name} {text:?}"),
        serde_json::Value::Null => String::new(),
        value => format!(" {name} {value}"),
    };
    format!("audit{}", ["caller", "method", "range", "code", "revision"].map(field).concat())
}

/// The time of day, in UTC, to the millisecond.
fn clock() -> String {
    let now = humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string();
    now.split('T').nth(1).unwrap_or(&now).trim_end_matches('Z').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_one_line_whatever_its_keys_are() {
        let event = serde_json::json!({
            "level": "INFO", "message": AUDIT, "caller": "ann", "method": "/etcdserverpb.KV/Put",
            "range": "a\nb", "code": 7, "revision": 12,
        });
        let line = audit_line(&event);
        assert_eq!(line, r#"audit caller "ann" method "/etcdserverpb.KV/Put" range "a\nb" code 7 revision 12"#);
    }
}
