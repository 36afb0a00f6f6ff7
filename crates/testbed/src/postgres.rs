//! A real PostgreSQL of one server, and standbys of it: [`Postgres`].

use crate::{PATIENCE, free_port, spawn};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;

/// Directory in which Debian keeps the programs, with one for each version.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// PostgreSQL refuses to run as root; this user has nothing else.
const USER: &str = "postgres";

/// A server that is killed when it is dropped.
pub struct Postgres {
    /// Port on which it listens, at 127.0.0.1.
    pub port: u16,
    directory: TempDir,
    process: Option<Child>,
    settings: Vec<String>,
}

impl Postgres {
    /// A new and empty server, with settings like `fsync=off`. Everybody from this machine may log in as `postgres`.
    ///
    /// # Errors
    /// PostgreSQL is not installed, or does not start; with its log.
    pub fn start(settings: &[&str]) -> Result<Postgres> {
        let mut server = Postgres::prepare(settings)?;
        server.make()?;
        server.go()?;
        Ok(server)
    }

    /// A server that speaks TLS with this certificate and key, knows clients by certificates of this CA, and admits those whom
    /// these lines of `pg_hba.conf` admit; `postgres` among them, with `hostssl` or without.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn start_in_tls(certificate: &Path, key: &Path, ca: &Path, rules: &str) -> Result<Postgres> {
        let mut server = Postgres::prepare(&["ssl=on", "ssl_ca_file=root.crt"])?;
        server.make()?;
        for (from, name) in [(certificate, "server.crt"), (key, "server.key"), (ca, "root.crt")] {
            let copy = server.data().join(name);
            std::fs::copy(from, &copy).with_context(|| from.display().to_string())?;
            std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600))?;
            if rustix::process::getuid().is_root() {
                let (user, group) = unprivileged()?;
                chown(&copy, Some(user), Some(group))?;
            }
        }
        std::fs::write(server.data().join("pg_hba.conf"), rules)?;
        server.go()?;
        Ok(server)
    }

    /// A standby that follows this server.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn standby(&self) -> Result<Postgres> {
        let settings: Vec<&str> = self.settings.iter().map(String::as_str).collect();
        let mut server = Postgres::prepare(&settings)?;
        let mut command = server.command("pg_basebackup")?;
        command.args(["-h", "127.0.0.1", "-U", "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync", "-p"]);
        let made = command.arg(self.port.to_string()).arg("-D").arg(server.data()).output()?;
        if !made.status.success() {
            bail!("pg_basebackup failed: {}", String::from_utf8_lossy(&made.stderr));
        }
        server.go()?;
        Ok(server)
    }

    fn prepare(settings: &[&str]) -> Result<Postgres> {
        let directory = tempfile::Builder::new().prefix("hustings-postgres-").tempdir()?;
        if rustix::process::getuid().is_root() {
            let (user, group) = unprivileged()?;
            chown(directory.path(), Some(user), Some(group))?;
        }
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Ok(Postgres { port: free_port()?, directory, process: None, settings })
    }

    /// Makes an empty database.
    fn make(&self) -> Result<()> {
        let mut command = self.command("initdb")?;
        let made = command.args(["-A", "trust", "-N", "-U", "postgres", "-D"]).arg(self.data()).output()?;
        if !made.status.success() {
            bail!("initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        }
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// One of PostgreSQL's programs, as a user that it accepts.
    fn command(&self, program: &str) -> Result<Command> {
        let mut command = Command::new(programs()?.join(program));
        // It looks for certificates in its home, and gives up where it may not look.
        command.current_dir(self.directory.path()).env("HOME", self.directory.path()).stdin(Stdio::null());
        if rustix::process::getuid().is_root() {
            let (user, group) = unprivileged()?;
            command.uid(user).gid(group);
        }
        Ok(command)
    }

    /// Starts the server on what its directory holds, and waits until it answers.
    ///
    /// # Errors
    /// It ends instead; with its log.
    pub fn go(&mut self) -> Result<()> {
        let mut command = self.command("postgres")?;
        command.arg("-D").arg(self.data()).arg("-k").arg(self.directory.path()).args(["-p", &self.port.to_string()]);
        command.args(["-c", "listen_addresses=127.0.0.1"]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log())?;
        command.stdout(log.try_clone()?).stderr(log);
        self.process = Some(spawn(&mut command).context("cannot run postgres")?);
        let deadline = Instant::now() + PATIENCE;
        while self.sql("SELECT 1").is_err() {
            let has_ended = self.process.as_mut().is_some_and(|process| matches!(process.try_wait(), Ok(Some(_))));
            if has_ended || Instant::now() > deadline {
                bail!("postgres does not answer: {}", std::fs::read_to_string(self.log()).unwrap_or_default());
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Ok(())
    }

    /// Executes statements as `postgres`; gives what they say, a row a line.
    ///
    /// # Errors
    /// The server's error.
    pub fn sql(&self, statements: &str) -> Result<String> {
        let mut command = self.command("psql")?;
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres", "-p"]);
        let said = command.arg(self.port.to_string()).args(["-c", statements]).output()?;
        if !said.status.success() {
            bail!("{statements}: {}", String::from_utf8_lossy(&said.stderr));
        }
        Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
    }

    /// From now on nobody but `postgres` logs in without a password.
    ///
    /// # Errors
    /// Its file cannot be written, or is not read.
    pub fn demand_passwords(&self) -> Result<()> {
        let rules = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        std::fs::write(self.data().join("pg_hba.conf"), rules)?;
        self.sql("SELECT pg_reload_conf()").map(drop)
    }

    /// Makes a standby a primary; returns once it is one.
    ///
    /// # Errors
    /// It is none.
    pub fn promote(&self) -> Result<()> {
        let said = self.command("pg_ctl")?.args(["promote", "-w", "-D"]).arg(self.data()).output()?;
        if !said.status.success() {
            bail!("pg_ctl promote failed: {}", String::from_utf8_lossy(&said.stderr));
        }
        Ok(())
    }

    /// Ends it as a crash would: nothing is written any more.
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        // SIGKILL would leave the server's children behind for a moment, and its shared memory.
        signal(process.id(), Signal::CONT);
        for child in children(process.id()) {
            signal(child, Signal::CONT);
        }
        signal(process.id(), Signal::QUIT);
        let _ = process.wait();
    }

    /// All its processes stand still when this returns.
    ///
    /// # Errors
    /// They do not.
    pub fn pause(&self) -> Result<()> {
        self.wait_for_processes(Signal::STOP, |state| matches!(state, 'T' | 'Z'))
    }

    /// All its processes may run again when this returns.
    ///
    /// # Errors
    /// They do not.
    pub fn resume(&self) -> Result<()> {
        self.wait_for_processes(Signal::CONT, |state| state != 'T')
    }

    fn wait_for_processes(&self, signalled: Signal, is_so: impl Fn(char) -> bool) -> Result<()> {
        let server = self.process.as_ref().context("the server does not run")?.id();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let all: Vec<u32> = std::iter::once(server).chain(children(server)).collect();
            all.iter().for_each(|pid| signal(*pid, signalled));
            if all.iter().filter_map(|pid| state_of(*pid)).all(|(state, _)| is_so(state)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("waited {PATIENCE:?} in vain for the server's processes");
            }
        }
    }

    /// The URL of an election in its database `postgres`.
    pub fn url(&self, election: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres/{election}", self.port)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Directory of PostgreSQL's programs, in the newest version.
fn programs() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("HUSTINGS_TEST_POSTGRES_DIR") {
        return Ok(named.into());
    }
    let versions = std::fs::read_dir(PROGRAMS).into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let newest = versions.filter(|path| path.join("postgres").exists()).max();
    newest.with_context(|| {
        format!(
            "no PostgreSQL in {PROGRAMS}: apt-get install postgresql, or name its bin in HUSTINGS_TEST_POSTGRES_DIR"
        )
    })
}

/// The user and group as which servers run where the tests run as root.
fn unprivileged() -> Result<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd")?;
    let line = users.lines().find(|line| line.starts_with(&format!("{USER}:")));
    let mut fields = line.with_context(|| format!("no user {USER}: apt-get install postgresql"))?.split(':').skip(2);
    let mut next = || fields.next().and_then(|field| field.parse().ok()).context("a line of /etc/passwd is too short");
    Ok((next()?, next()?))
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // A process that has ended meanwhile needs none.
        let _ = kill_process(pid, signal);
    }
}

/// The state of a process, and its parent.
fn state_of(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn children(parent: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter(|entry| entry.metadata().is_ok_and(|about| about.mode() & 0o040_000 != 0));
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| state_of(*pid).is_some_and(|(_, of)| of == parent)).collect()
}
