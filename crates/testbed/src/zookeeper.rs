//! A real ZooKeeper, alone or an ensemble: [`Zookeeper`].

use crate::process::Process;
use crate::{Cable, free_port, wait_for};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Beginnings of the names of the files that a server needs from Debian's package and its dependencies.
const JARS: [&str; 13] = [
    "zookeeper-3",
    "zookeeper-jute",
    "metrics-core",
    "netty-all",
    "netty-codec.",
    "snappy-java",
    "jetty9-",
    "servlet-api",
    "slf4j-api",
    "slf4j-simple",
    "commons-cli",
    "commons-io",
    "jackson-",
];

/// Servers on this machine.
#[derive(Debug)]
pub struct Zookeeper {
    members: Vec<Member>,
    class_path: String,
    purpose: Purpose,
    directory: TempDir,
}

/// The use of the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// They start soon and take little: no sync of the disk, and the quick compiler alone.
    Tests,
    /// They run as in production: synced, compiled well, with memory.
    Measurements,
}

impl Purpose {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Purpose::Tests => &["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"],
            Purpose::Measurements => &["-Xmx1g"],
        }
    }
}

#[derive(Debug)]
struct Member {
    client_port: u16,
    directory: PathBuf,
    process: Option<Process>,
}

impl Zookeeper {
    /// Starts so many servers with this tick, and waits until all serve. With further lines in their configuration.
    ///
    /// # Errors
    /// Java or ZooKeeper are missing; they do not start.
    pub async fn start(count: usize, tick: Duration, further: &str) -> Result<Zookeeper> {
        let ports = Zookeeper::quorum_ports(count)?;
        let mut started = Zookeeper::prepare(count)?;
        for position in 0..count {
            started.configure(position, tick, further, &ports)?;
        }
        started.start_all().await?;
        Ok(started)
    }

    /// Starts so many servers as in production, with all defaults of Java and ZooKeeper but the memory, which is a gigabyte.
    ///
    /// # Errors
    /// As for [`Zookeeper::start`].
    pub async fn start_to_be_measured(count: usize) -> Result<Zookeeper> {
        let ports = Zookeeper::quorum_ports(count)?;
        let mut started = Zookeeper { purpose: Purpose::Measurements, ..Zookeeper::prepare(count)? };
        for position in 0..count {
            started.configure(position, Duration::from_secs(2), "maxClientCnxns=0", &ports)?;
        }
        started.start_all().await?;
        Ok(started)
    }

    /// Starts three servers, of which the first follows its leader through cables, which may be any of the others. It has
    /// the lowest number, and so does not lead at first.
    ///
    /// # Errors
    /// As for [`Zookeeper::start`].
    pub async fn start_with_a_cable(tick: Duration, further: &str) -> Result<(Zookeeper, Vec<Cable>)> {
        let ports = Zookeeper::quorum_ports(3)?;
        let mut started = Zookeeper::prepare(3)?;
        let (mut through, mut cables) = (ports.clone(), Vec::new());
        for (quorum, _) in &mut through[1..] {
            let cable = Cable::to(&format!("127.0.0.1:{quorum}"))?;
            *quorum = cable.port();
            cables.push(cable);
        }
        started.configure(0, tick, further, &through)?;
        started.configure(1, tick, further, &ports)?;
        started.configure(2, tick, further, &ports)?;
        started.start_all().await?;
        Ok((started, cables))
    }

    /// Ports of each server for its followers and for elections; none for one alone, which is no ensemble.
    fn quorum_ports(count: usize) -> Result<Vec<(u16, u16)>> {
        (0..count).filter(|_| count > 1).map(|_| Ok((free_port()?, free_port()?))).collect()
    }

    fn prepare(count: usize) -> Result<Zookeeper> {
        let class_path = class_path()?;
        let directory = tempfile::Builder::new().prefix("hustings-zookeeper-").tempdir()?;
        let mut members = Vec::new();
        for number in 1..=count {
            let own = directory.path().join(number.to_string());
            members.push(Member { client_port: free_port()?, directory: own, process: None });
        }
        Ok(Zookeeper { members, class_path, purpose: Purpose::Tests, directory })
    }

    fn configure(&self, position: usize, tick: Duration, further: &str, ports: &[(u16, u16)]) -> Result<()> {
        let Member { client_port, directory, .. } = &self.members[position];
        let data = directory.join("data");
        std::fs::create_dir_all(&data)?;
        std::fs::write(data.join("myid"), (position + 1).to_string())?;
        let servers: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(other, (quorum, election))| format!("server.{}=127.0.0.1:{quorum}:{election}", other + 1))
            .collect();
        let configuration = format!(
            "tickTime={}\ninitLimit=25\nsyncLimit=10\ndataDir={}\nclientPort={client_port}\n\
             clientPortAddress=127.0.0.1\nadmin.enableServer=false\n{further}\n{}\n",
            tick.as_millis(),
            data.display(),
            servers.join("\n")
        );
        Ok(std::fs::write(directory.join("zoo.cfg"), configuration)?)
    }

    async fn start_all(&mut self) -> Result<()> {
        for position in 0..self.members.len() {
            self.start_member(position)?;
        }
        for position in 0..self.members.len() {
            self.wait_until_serving(position).await?;
        }
        Ok(())
    }

    /// Addresses of the servers, as `host:port,host:port`.
    pub fn hosts(&self) -> String {
        let hosts: Vec<String> = (0..self.members.len()).map(|position| self.host(position)).collect();
        hosts.join(",")
    }

    /// Address of one server.
    pub fn host(&self, position: usize) -> String {
        format!("127.0.0.1:{}", self.members[position].client_port)
    }

    /// Starts a server on the data that it left.
    ///
    /// # Errors
    /// Java cannot be run.
    pub fn start_member(&mut self, position: usize) -> Result<()> {
        let member = &mut self.members[position];
        let mut command = Command::new("java");
        command
            .args(self.purpose.flags())
            .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", &self.class_path])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(member.directory.join("zoo.cfg"))
            .current_dir(self.directory.path());
        member.process = Some(Process::start(&mut command, &member.directory.join("log"))?);
        Ok(())
    }

    /// Waits until a server says in which mode it serves.
    ///
    /// # Errors
    /// It does not, within patience; names its log.
    pub async fn wait_until_serving(&self, position: usize) -> Result<()> {
        let log = self.members[position].directory.join("log");
        wait_for(&format!("ZooKeeper to serve (its log: {})", log.display()), async || self.mode(position).await)
            .await
            .map(drop)
    }

    /// `leader`, `follower`, or `standalone`.
    async fn mode(&self, position: usize) -> Option<String> {
        let mut stream = tokio::net::TcpStream::connect(self.host(position)).await.ok()?;
        stream.write_all(b"srvr").await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer.lines().find_map(|line| line.strip_prefix("Mode: "))?.to_owned())
    }

    /// The position of the ensemble's leader, once there is one.
    ///
    /// # Errors
    /// There is none, within patience.
    pub async fn leader(&self) -> Result<usize> {
        wait_for("a leader of the ensemble", async || {
            for position in 0..self.members.len() {
                if self.mode(position).await.as_deref() == Some("leader") {
                    return Some(position);
                }
            }
            None
        })
        .await
    }

    /// Ends a server with `kill -9`.
    pub fn kill(&mut self, position: usize) {
        self.members[position].process = None;
    }

    /// Sends a signal to a server.
    ///
    /// # Errors
    /// It does not run.
    pub fn signal(&self, position: usize, signal: Signal) -> Result<()> {
        self.members[position].process.as_ref().context("it does not run")?.signal(signal)
    }
}

/// The jars of Debian's `zookeeper`, or those in the directory that `HUSTINGS_TEST_ZOOKEEPER` names.
fn class_path() -> Result<String> {
    let directory = std::env::var("HUSTINGS_TEST_ZOOKEEPER").unwrap_or_else(|_| "/usr/share/java".to_owned());
    let jars: Vec<PathBuf> = std::fs::read_dir(&directory)
        .with_context(|| format!("no directory {directory}"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| is_needed(path))
        .collect();
    if !jars.iter().any(|path| path.to_string_lossy().contains("zookeeper-3")) {
        bail!(
            "there is no ZooKeeper in {directory}: apt-get install zookeeper, or name the directory of its jars in \
             HUSTINGS_TEST_ZOOKEEPER"
        );
    }
    Ok(jars.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(":"))
}

fn is_needed(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".jar") && JARS.iter().any(|jar| name.starts_with(jar))
}
