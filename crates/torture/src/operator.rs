//! The operator's work while members break: compaction, and the replacement of a member.
//!
//! Both may come to nothing, because nobody serves at the moment. A half-done replacement is taken up again when all is whole.

use crate::rig::Rig;
use crate::verdict::{self, Events};
use anyhow::{Context, Result};
use hustings_api::Client;
use hustings_api::etcdserverpb::{
    CompactionRequest, MemberAddRequest, MemberListRequest, MemberRemoveRequest, RangeRequest,
};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Time that a member may take for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of the newest revisions that stay.
const KEPT_REVISIONS: i64 = 20;

/// The history that was compacted away.
#[derive(Default)]
pub(crate) struct Past {
    /// The history up to `told`, as members told it before they forgot it.
    pub(crate) events: Events,
    /// The last revision in `events`; 0: it begins with the first one.
    pub(crate) told: i64,
    /// The revision up to which members were told to forget.
    pub(crate) compacted: i64,
}

impl Rig {
    /// Compacts all but the newest revisions, at a member that serves; its history is read first.
    pub(crate) async fn compact(&mut self) -> Result<String> {
        for endpoint in self.cluster.live_endpoints() {
            let read = timeout(ANSWER_TIMEOUT * 2, read_on(&endpoint, self.history.told)).await;
            let Ok(Ok((client, revision, events))) = read else { continue };
            self.history.events.extend(events);
            self.history.told = revision;
            let compacted = revision - KEPT_REVISIONS;
            if compacted <= self.history.compacted.max(1) {
                return Ok(format!("nothing yet, revision {revision}"));
            }
            // Also when no answer comes it may be done.
            self.history.compacted = compacted;
            let request = CompactionRequest { revision: compacted, physical: false };
            if let Ok(Ok(_)) = timeout(ANSWER_TIMEOUT, client.kv().compact(request)).await {
                return Ok(format!("up to {compacted} at {endpoint}"));
            }
        }
        Ok("nobody served".to_owned())
    }

    /// Removes a member, takes its data away, adds it and starts it: as far as `patience` reaches.
    pub(crate) async fn replace(&mut self, position: usize, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        // A member that hears of its removal ends.
        self.is_excused[position] = true;
        while Instant::now() < deadline && self.replacing.contains(&position) {
            for endpoint in self.cluster.live_endpoints() {
                // The result does not matter: the membership is asked again.
                let _ = timeout(ANSWER_TIMEOUT, self.replace_at(&endpoint, position)).await;
                if !self.replacing.contains(&position) {
                    return Ok(());
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Takes the next step of a replacement; the membership tells which one it is.
    async fn replace_at(&mut self, endpoint: &str, position: usize) -> Result<()> {
        let url = self.cluster.nodes[position].advertised.clone();
        let place = u64::try_from(position)? + 1;
        let client = Client::connect(&[endpoint]).await?;
        let list = client.cluster().member_list(MemberListRequest { linearizable: true }).await?.into_inner();
        let member = list.members.iter().find(|member| member.peer_urls.contains(&url));
        let data_dir = self.cluster.nodes[position].data_dir.clone();
        match member {
            // A member that was added after the removal has no name before it has joined.
            Some(member) if !member.name.is_empty() || data_dir.exists() => {
                client.cluster().member_remove(MemberRemoveRequest { id: member.id }).await?;
            }
            Some(member) => {
                self.proxies.know(member.id, place);
                self.replacing.remove(&position);
                self.is_replaced[position] = true;
                self.start_process(position)?;
            }
            None => {
                // One whose file system waits cannot be emptied; the next fault thaws it.
                if let Some(disk) = self.disks.get_mut(position) {
                    disk.thaw()?;
                }
                self.end(position).await?;
                if data_dir.exists() {
                    std::fs::remove_dir_all(&data_dir)?;
                }
                let request = MemberAddRequest { peer_urls: vec![url], is_learner: false };
                client.cluster().member_add(request).await?;
            }
        }
        Ok(())
    }
}

/// Reads a member's history after `told`: gives the client, its newest revision, the changes.
async fn read_on(endpoint: &str, told: i64) -> Result<(Client, i64, Events)> {
    let client = Client::connect(&[endpoint]).await?;
    let request = RangeRequest { key: "x".into(), ..RangeRequest::default() };
    let header = client.kv().range(request).await?.into_inner().header.context("answers have headers")?;
    // A violation in it is seen again at the end, when it is compared with what clients and watchers saw.
    let (events, _) = verdict::events_of(endpoint, told, header.revision).await?;
    Ok((client, header.revision.max(told), events))
}
