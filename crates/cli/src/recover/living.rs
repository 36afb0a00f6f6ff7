//! Asks, before a new cluster is founded, whether a member of the old one still serves: [`ask`], [`refuse`].
//!
//! `--lost` is what an operator believes, and a directory that was given may be a copy. So every member that the directories know
//! is asked at the addresses that it had. A member of this cluster that knows a leader ends the recovery, and so does a process that
//! answers and does not let itself be asked: two clusters that both serve are worse than none. `--even-if-alive` goes on all the same.
//!
//! It asks the members' client ports over HTTP, [`crate::http`]. It cannot see a member behind a network that is cut.

use super::gather::Gathered;
use crate::credentials;
use crate::exit::{Code, Exit};
use crate::http::{self, Refused};
use crate::output::options_of;
use anyhow::Result;
use clap::ArgMatches;
use hustings_api::Client;
use hustings_api::client::{self, Options};
use hustings_api::dial::authority_of;
use hustings_core::ClusterId;
use hustings_tls::{Connector, Trust};
use hyper::StatusCode;
use serde_json::Value;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time that a member may take to accept a connection, and then to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A member that was asked whether it serves, and its answer.
pub(super) struct Asked {
    pub(super) name: String,
    /// Address that was asked.
    pub(super) url: String,
    pub(super) found: Found,
}

/// The finding at a member's address.
pub(super) enum Found {
    /// Nobody is there; why.
    Silent(String),
    /// Somebody answers and does not serve this cluster: what it is.
    Other(String),
    /// A member of this cluster answers, and follows this leader.
    Serves(String),
    /// Somebody answers, and whether it serves cannot be seen; why.
    Unclear(String),
}

impl Asked {
    /// The finding in words; `None` where nobody is there.
    pub(super) fn told(&self) -> Option<String> {
        let Asked { name, url, found } = self;
        match found {
            Found::Silent(_) => None,
            Found::Other(what) => Some(format!("{name}: at {url} {what}")),
            Found::Serves(leader) => {
                Some(format!("{name} answers at {url} and serves the old cluster: {leader} leads"))
            }
            Found::Unclear(why) => {
                Some(format!("{name}: somebody answers at {url}, and whether it serves cannot be seen ({why})"))
            }
        }
    }

    /// The finding in words, also where nobody is there.
    pub(super) fn why(&self) -> String {
        match &self.found {
            Found::Silent(why) => why.clone(),
            _ => self.told().unwrap_or_default(),
        }
    }

    /// The finding in a word.
    pub(super) fn word(&self) -> &'static str {
        match self.found {
            Found::Silent(_) => "silent",
            Found::Other(_) => "other",
            Found::Serves(_) => "serves",
            Found::Unclear(_) => "unclear",
        }
    }
}

/// Asks every member that the directories know, all at once.
///
/// # Errors
/// The files of TLS cannot be read.
pub(super) fn ask(matches: &ArgMatches, gathered: &Gathered, cluster: ClusterId) -> Result<Vec<Asked>> {
    // It is asked whether it lives, and told nothing: whose certificate it shows does not matter unless somebody says so.
    let tls = match options_of(matches)?.tls {
        Some(tls) => tls,
        None => client::tls(Trust::Anybody, None)?,
    };
    let mut places = Vec::new();
    for (id, member) in &gathered.membership.members {
        let name = gathered.membership.name_of(*id);
        // One that never said where clients reach it has a peer port.
        let (urls, is_for_clients) = match member.client_urls.is_empty() {
            false => (&member.client_urls, true),
            true => (&member.peer_urls, false),
        };
        places.extend(urls.iter().map(|url| (name.clone(), url.clone(), is_for_clients)));
    }
    let asking = places.clone().into_iter().map(async |(name, url, is_for_clients)| {
        let found = look(&url, is_for_clients, &tls, cluster).await;
        Asked { name, url, found }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(log_in(matches, &places, &tls))?;
    Ok(runtime.block_on(futures::future::join_all(asking)))
}

/// Logs in at the first member that answers, if a user is given: with users, members tell nothing to strangers. Their proof is
/// good at all of them, and one that nobody can check, for want of a quorum, is not needed.
///
/// # Errors
/// The user is not admitted.
async fn log_in(matches: &ArgMatches, places: &[(String, String, bool)], tls: &Connector) -> Result<()> {
    for (_, url, _) in places.iter().filter(|(_, _, is_for_clients)| *is_for_clients) {
        let options = Options { tls: Some(tls.clone()), ..Options::default() };
        let Ok(Ok(client)) = timeout(PATIENCE, Client::connect_with(&[url], options)).await else { continue };
        match timeout(PATIENCE, credentials::authenticate(matches, &client)).await {
            Ok(Err(error)) if !http::is_not_allowed(&error) && !is_refusal(&error) => {}
            Ok(proven) => return proven,
            Err(_) => {}
        }
    }
    Ok(())
}

fn is_refusal(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Exit>().is_none_or(|exit| exit.code == Code::NotAllowed)
}

/// Refuses while one of them serves, or may.
pub(super) fn refuse(asked: &[Asked]) -> Result<()> {
    let serving = asked.iter().find(|asked| matches!(asked.found, Found::Serves(_)));
    let unclear = asked.iter().find(|asked| matches!(asked.found, Found::Unclear(_)));
    let (found, remedy) = match (serving, unclear) {
        (Some(found), _) => (found, "add members to it instead (`hustings member add`), or stop it for good"),
        (None, Some(found)) => {
            (found, "stop it, or let it be asked: --cacert, --cert, --key, and --user where users count")
        }
        (None, None) => return Ok(()),
    };
    let what = format!(
        "{}. A second cluster beside it would split the data: {remedy}. To make a new cluster all the same, say --even-if-alive",
        found.told().unwrap_or_default()
    );
    Err(Exit::with(Code::Failed, what))
}

/// Finds out which process listens at an address.
async fn look(url: &str, is_for_clients: bool, tls: &Connector, cluster: ClusterId) -> Found {
    match timeout(PATIENCE, TcpStream::connect(authority_of(url))).await {
        Err(_) => return Found::Silent("no answer".to_owned()),
        Ok(Err(why)) if why.kind() == ErrorKind::InvalidInput => return Found::Unclear(why.to_string()),
        Ok(Err(why)) => return Found::Silent(why.to_string()),
        Ok(Ok(_)) if !is_for_clients => return Found::Unclear("it has not said where clients reach it".to_owned()),
        Ok(Ok(_)) => {}
    }
    let error = match timeout(PATIENCE, http::get(url, "/v1/status", Some(tls))).await {
        Err(_) => {
            return Found::Unclear("it accepts connections and says nothing: does its process stand still?".to_owned());
        }
        Ok(Ok(status)) => return of_status(&serde_json::from_slice(&status).unwrap_or_default(), cluster),
        Ok(Err(error)) => error,
    };
    let Some(refused) = error.downcast_ref::<Refused>() else { return Found::Unclear(format!("{error:#}")) };
    if !refused.why.as_ref().is_some_and(|why| why.contains("etcdserver: ")) {
        return Found::Other("another program answers".to_owned());
    }
    // With users it tells nothing to strangers, and its health to everybody.
    let health = timeout(PATIENCE, http::get(url, "/health", Some(tls))).await;
    let is_ill = |error: &anyhow::Error| {
        error.downcast_ref::<Refused>().is_some_and(|refused| refused.status == StatusCode::SERVICE_UNAVAILABLE)
    };
    match health {
        Ok(Err(error)) if is_ill(&error) => Found::Other("a member answers that serves nothing: stop it".to_owned()),
        _ => Found::Unclear(refused.to_string()),
    }
}

/// Reads what a member says of itself.
fn of_status(status: &Value, cluster: ClusterId) -> Found {
    match (status["cluster_id"].as_str(), status["leader"].as_str()) {
        (None, _) => Found::Other("another program answers".to_owned()),
        (Some(id), _) if id != cluster.to_string() => Found::Other(format!("a member of the cluster {id} answers")),
        (Some(_), None) => Found::Other("it answers, and nobody leads: stop it".to_owned()),
        (Some(_), Some(leader)) => Found::Serves(leader.to_owned()),
    }
}
