//! The cluster that a directory holds already: [`Founded`], read from what its first member wrote when it was founded.

use anyhow::{Context, Result, bail};
use clap::ArgMatches;
use clap::parser::ValueSource;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::path::Path;

/// The facts of a cluster that are fixed when it is founded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Founded {
    pub(super) nodes: u16,
    pub(super) base_port: u16,
    /// Protocol and its options, as `--protocol` and `--protocol-options` have them.
    pub(super) protocol: (String, String),
    pub(super) is_tls: bool,
}

impl Founded {
    /// The cluster in this directory; `None` where there is none yet.
    ///
    /// # Errors
    /// Its members' directories cannot be read, or were not made by `hustings up`.
    pub(super) fn read(directory: &Path) -> Result<Option<Founded>> {
        let is_node = |name: &str| name.strip_prefix('n').is_some_and(|number| number.parse::<u16>().is_ok());
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.retain(|name| is_node(name));
        names.sort();
        for name in names {
            let path = directory.join(&name);
            let peek = hustings_wal::peek(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let Some(peek) = peek else { continue };
            let is_foreign =
                || format!("{} was not founded by `hustings up`: serve it with `hustings serve`", path.display());
            let first = peek.founding.members.values().next().with_context(is_foreign)?;
            let (scheme, address) =
                first.peer_urls.first().and_then(|url| url.split_once("://")).with_context(is_foreign)?;
            let peer_port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            let (protocol, options) = match peek.identity.protocol.split_once(' ') {
                Some((protocol, options)) => (protocol.to_owned(), options.replace(' ', ",")),
                None => (peek.identity.protocol.clone(), String::new()),
            };
            return Ok(Some(Founded {
                nodes: u16::try_from(peek.founding.members.len()).ok().with_context(is_foreign)?,
                base_port: peer_port.and_then(|port| port.checked_sub(1)).with_context(is_foreign)?,
                protocol: (protocol, options),
                is_tls: scheme == "https",
            }));
        }
        Ok(None)
    }

    /// Checks that the cluster that is asked for is the one that is there: members know each other by what they were founded with.
    pub(super) fn check(&self, asked: &Founded, matches: &ArgMatches, directory: &Path) -> Result<()> {
        let is_given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        let directory = directory.display();
        if is_given("nodes") && asked.nodes != self.nodes {
            bail!(
                "{directory} holds a cluster of another size: {} nodes; leave --nodes out, or give another --data-dir",
                self.nodes
            );
        }
        if is_given("base-port") && asked.base_port != self.base_port {
            bail!(
                "{directory} holds a cluster whose members know each other by ports from {} on; leave --base-port out, or give another --data-dir",
                self.base_port
            );
        }
        if is_given("protocol") || is_given("protocol-options") {
            // Options alone are those of the protocol that is there, and a protocol alone means the options that it has there.
            let protocol = if is_given("protocol") { &asked.protocol.0 } else { &self.protocol.0 };
            let is_other = *protocol != self.protocol.0;
            let options = if is_given("protocol-options") || is_other { &asked.protocol.1 } else { &self.protocol.1 };
            let wanted = crate::protocols::identity(protocol, options)?;
            let held = crate::protocols::identity(&self.protocol.0, &self.protocol.1)?;
            if wanted != held {
                let moving = if is_other {
                    "; a snapshot takes the data to another protocol (hustings snapshot --help)"
                } else {
                    ""
                };
                bail!(
                    "{directory} holds a cluster of {held}, and {wanted} is asked for; leave --protocol and --protocol-options out, or give another --data-dir{moving}"
                );
            }
        }
        if is_given("tls") && asked.is_tls && !self.is_tls {
            bail!("{directory} holds a cluster that speaks plain text; leave --tls out, or give another --data-dir");
        }
        Ok(())
    }
}

/// Held while `hustings up` runs on a directory.
pub(super) struct Held(#[expect(dead_code, reason = "the lock lasts as long as the file is open")] File);

impl Held {
    /// Makes the directory where it is missing, and takes it for this process.
    ///
    /// # Errors
    /// It cannot be made, or another process has it.
    pub(super) fn take(directory: &Path) -> Result<Held> {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let path = directory.join("lock");
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Held(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                bail!("another `hustings up` runs on {}: stop it, or give another --data-dir", directory.display())
            }
            Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
    }
}
