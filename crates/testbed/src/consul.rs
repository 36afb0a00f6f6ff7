//! A real Consul, one server that keeps everything in memory: [`Consul`].

use crate::process::Process;
use crate::{free_port, wait_for};
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An agent on this machine.
#[derive(Debug)]
pub struct Consul {
    port: u16,
    process: Process,
    directory: TempDir,
}

impl Consul {
    /// Starts one, with further configuration in Consul's language, and waits until it leads itself.
    ///
    /// # Errors
    /// There is no Consul; it does not start.
    pub async fn start(further: &str) -> Result<Consul> {
        let directory = tempfile::Builder::new().prefix("hustings-consul-").tempdir()?;
        let port = free_port()?;
        let mut command = Command::new(Consul::program());
        command.args(["agent", "-dev", "-client", "127.0.0.1", "-bind", "127.0.0.1", "-node", "c1"]);
        command.args(["-dns-port", "-1", "-grpc-port", "-1", "-log-level", "err", "-http-port", &port.to_string()]);
        for option in ["-server-port", "-serf-lan-port", "-serf-wan-port"] {
            command.args([option, &free_port()?.to_string()]);
        }
        if !further.is_empty() {
            command.args(["-hcl", further]);
        }
        let process = Process::start(&mut command, &directory.path().join("log")).context(
            "there is no Consul: unpack Debian bullseye's package (see xtask/ci.sh), or name a binary in \
             HUSTINGS_TEST_CONSUL",
        )?;
        let consul = Consul { port, process, directory };
        wait_for(&format!("Consul to lead (its log: {})", consul.process.log().display()), async || {
            let leader = consul.http("GET", "status/leader", "").await.ok()?;
            leader.trim().trim_matches('"').contains(':').then_some(())
        })
        .await?;
        Ok(consul)
    }

    /// Consul's program: `HUSTINGS_TEST_CONSUL`, or `consul` of the search path.
    pub fn program() -> PathBuf {
        std::env::var_os("HUSTINGS_TEST_CONSUL").map_or_else(|| PathBuf::from("consul"), PathBuf::from)
    }

    /// Address of the agent, as `host:port`.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its directory, for tests that leave something there.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Asks its API; gives the body of the answer.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn http(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.host()).await?;
        let request = format!(
            "{method} /v1/{path} HTTP/1.0\r\nHost: {}\r\nContent-Length: {}\r\n\r\n{body}",
            self.host(),
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        Ok(answer.split_once("\r\n\r\n").context("an answer has a body")?.1.to_owned())
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }
}
