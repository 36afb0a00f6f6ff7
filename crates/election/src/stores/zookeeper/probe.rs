//! The facts about an ensemble that a candidate must know before it stands: its version, and the length of its tick.
//!
//! No answer of ZooKeeper's protocol tells the tick. It is learnt in this order:
//!
//! 1. from the four-letter word `conf`, where the servers allow it (`4lw.commands.whitelist=srvr,conf`);
//! 2. else from the shortest session that is granted, which is two ticks unless `minSessionTimeout` is set; never taken for
//!    less than [`TICK`], for that setting may be lower.

use super::connection::{Connection, Dial, Unusable};
use crate::wire::Wire;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// The tick of the configuration that ZooKeeper ships with.
pub(super) const TICK: Duration = Duration::from_secs(2);
/// Limit of an answer in words, in bytes.
const WORDS_MAX: u64 = 16 << 10;

/// A tick's length, and the versions of the members that told theirs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Facts {
    pub(super) tick: Duration,
    pub(super) versions: Vec<String>,
}

/// Asks all members for their facts. The longest tick counts.
pub(super) async fn learn(wire: &Arc<Wire>, endpoints: &[String], patience: Duration) -> Result<Facts, Unusable> {
    let mut answers = ask_all(wire, endpoints, patience).await;
    if answers.iter().all(|(conf, _)| tick_of(conf).is_none()) {
        // The first question over TLS to a server that has just started takes longer than any later one.
        answers = ask_all(wire, endpoints, patience).await;
    }
    let ticks: Vec<Duration> = answers.iter().filter_map(|(conf, _)| tick_of(conf)).collect();
    let versions: Vec<String> = answers.iter().filter_map(|(_, srvr)| version_of(srvr)).collect();
    let tick = match ticks.into_iter().max() {
        Some(tick) => tick,
        None => {
            let tick = (least_session(wire, endpoints, patience).await? / 2).max(TICK);
            tracing::info!(
                ?tick,
                "no ZooKeeper tells its tick, so this is assumed: let them answer `conf`, see `4lw.commands.whitelist`"
            );
            tick
        }
    };
    Ok(Facts { tick, versions })
}

/// Asks all members for their configuration and their state; the answer of one that says nothing is empty.
async fn ask_all(wire: &Arc<Wire>, endpoints: &[String], patience: Duration) -> Vec<(String, String)> {
    let ask = |endpoint: &String| {
        let (wire, endpoint) = (wire.clone(), endpoint.clone());
        tokio::spawn(async move {
            (words(&wire, &endpoint, "conf", patience).await, words(&wire, &endpoint, "srvr", patience).await)
        })
    };
    let asked: Vec<_> = endpoints.iter().map(ask).collect();
    let mut answers = Vec::new();
    for task in asked {
        answers.push(task.await.unwrap_or_default());
    }
    answers
}

/// A server's answer to a four-letter word; empty if it gives none.
async fn words(wire: &Wire, endpoint: &str, word: &str, patience: Duration) -> String {
    let asking = async {
        let mut stream = wire.dial(endpoint).await?;
        stream.write_all(word.as_bytes()).await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        stream.take(WORDS_MAX).read_to_end(&mut answer).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    timeout(patience, asking).await.ok().and_then(Result::ok).unwrap_or_default()
}

fn tick_of(conf: &str) -> Option<Duration> {
    let value = conf.lines().find_map(|line| line.trim().strip_prefix("tickTime="))?;
    value.parse().ok().filter(|milliseconds| *milliseconds > 0).map(Duration::from_millis)
}

fn version_of(srvr: &str) -> Option<String> {
    let rest = srvr.lines().find_map(|line| line.strip_prefix("Zookeeper version: "))?;
    Some(rest.split(['-', ',', ' ']).next()?.to_owned()).filter(|version| !version.is_empty())
}

/// The shortest session that the first member grants that answers.
async fn least_session(wire: &Wire, endpoints: &[String], patience: Duration) -> Result<Duration, Unusable> {
    let mut last = Unusable::Because("no member is named".to_owned());
    for endpoint in endpoints {
        let ttl = Duration::from_millis(1);
        match Connection::open(Dial { wire, endpoint, user: None, session: None, last_zxid: 0, ttl, patience }).await {
            Ok(connection) => {
                let granted = connection.granted();
                connection.close().await;
                return Ok(granted);
            }
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// The known defect of a version, with the remedy; `None` for the others.
pub(super) fn fault_of(version: &str) -> Option<&'static str> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next()?, parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    match version {
        (3, 9, 3) => {
            Some("a member that fell behind can lose transactions for all (ZOOKEEPER-4925): upgrade to 3.9.4 or later")
        }
        (3, 9, 0..=1) => Some(
            "a follower that crashes while it catches up can lose committed transactions (ZOOKEEPER-4785), and an entry with \
             them: two may lead; upgrade to 3.9.4 or later",
        ),
        version if version < (3, 5, 0) => {
            Some("entries are created by a request that ZooKeeper knows since 3.5: upgrade to 3.8.4 or later")
        }
        version if version < (3, 8, 4) => Some(
            "a follower that crashes while it catches up can lose committed transactions (ZOOKEEPER-4785), and an entry with \
             them: two may lead; upgrade to 3.8.4 or later",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_learnt_from_what_a_server_says_of_itself() {
        assert_eq!(tick_of("clientPort=2181\ntickTime=200\nmaxClientCnxns=60\n"), Some(Duration::from_millis(200)));
        for nothing in ["", "conf is not executed because it is not in the whitelist.\n", "tickTime=0", "tickTime=x"] {
            assert_eq!(tick_of(nothing), None);
        }
    }

    #[test]
    fn versions_with_faults_are_known() {
        assert_eq!(version_of("Zookeeper version: 3.8.0-, built on 2022\nMode: standalone").as_deref(), Some("3.8.0"));
        assert_eq!(version_of("Zookeeper version: 3.9.3-c26634f34, built on").as_deref(), Some("3.9.3"));
        assert_eq!(version_of("HTTP/1.1 400 Bad Request"), None);
        for (version, fault) in
            [("3.8.0", "4785"), ("3.7.2", "4785"), ("3.9.1", "4785"), ("3.9.3", "4925"), ("3.4.14", "3.5")]
        {
            assert!(fault_of(version).is_some_and(|text| text.contains(fault)), "{version}");
        }
        assert!(["3.8.4", "3.8.5", "3.9.2", "3.9.4", "4.0.0"].iter().all(|version| fault_of(version).is_none()));
    }
}
