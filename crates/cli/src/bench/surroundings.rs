//! The surroundings of a run: the target, as far as it tells, and this machine.

use crate::credentials::asked;
use crate::http;
use crate::output::unavailable;
use anyhow::Result;
use hustings_api::Client;
use hustings_api::client::Options;
use hustings_api::etcdserverpb::{MemberListRequest, StatusRequest};
use hustings_console::usage::listening_at;
use hustings_tls::Connector;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// Time that the target may take to say what it is.
const PATIENCE: Duration = Duration::from_secs(1);

/// The target of the measurement, and the machine it was made from.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// `hustings 0.1.0`, or `etcd 3.5.1` for any other server of etcd's API.
    pub(super) server: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) members: Option<u64>,
    /// Processors of this machine that this process may use.
    pub(super) cores: u64,
    /// The members that run on this machine, as processes.
    pub(super) local: BTreeSet<u32>,
    /// Name of the processor, as the kernel calls it.
    pub(super) processor: Option<String>,
}

impl Surroundings {
    /// Asks the member that is connected.
    pub(super) async fn of(client: &Client, tls: Option<&Connector>) -> Surroundings {
        let version = async { client.maintenance().status(asked(StatusRequest {})).await.ok() };
        let version = tokio::time::timeout(PATIENCE, version).await.ok().flatten();
        let version = version.map(|answer| answer.into_inner().version);
        let members =
            async { client.cluster().member_list(asked(MemberListRequest { linearizable: false })).await.ok() };
        let members = tokio::time::timeout(PATIENCE, members).await.ok().flatten();
        let endpoint = client.endpoint();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let endpoint = if endpoint.contains("://") { endpoint.to_owned() } else { format!("{scheme}://{endpoint}") };
        // Only ours has it.
        let own = tokio::time::timeout(PATIENCE, http::get(&endpoint, "/v1/status", tls)).await;
        let own: Option<Value> = own.ok().and_then(Result::ok).and_then(|body| serde_json::from_slice(&body).ok());
        let said = |field: &str| own.as_ref().and_then(|own| own[field].as_str()).map(str::to_owned);
        let members = members.map(|answer| answer.into_inner().members);
        let urls = members.iter().flatten().flat_map(|member| &member.client_urls).map(String::as_str);
        let endpoints = client.endpoints().iter().map(String::as_str);
        let local = listening_at(urls.chain(endpoints));
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Surroundings {
            server: said("version")
                .map(|version| format!("hustings {version}"))
                .or_else(|| version.map(|version| format!("etcd {version}"))),
            protocol: said("protocol"),
            members: members.map(|members| members.len() as u64),
            local,
            cores: cores as u64,
            processor: processor(),
        }
    }
}

/// The endpoint whose member says that it leads.
///
/// # Errors
/// None does.
pub(super) async fn leader(endpoints: &[String], options: &Options, timeout: Duration) -> Result<String> {
    for endpoint in endpoints {
        let asking = async {
            let client = Client::connect_with(&[endpoint], options.clone()).await.ok()?;
            Some(client.maintenance().status(asked(StatusRequest {})).await.ok()?.into_inner())
        };
        let answer = tokio::time::timeout(timeout, asking).await.ok().flatten();
        if answer.is_some_and(|told| told.leader != 0 && told.header.is_some_and(|own| own.member_id == told.leader)) {
            return Ok(endpoint.clone());
        }
    }
    Err(unavailable("--target-leader: no member at these --endpoints leads; name all members"))
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
