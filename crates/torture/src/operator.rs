//! The operator's work while members break: compaction, and the replacement of a member.
//!
//! Both may come to nothing, because nobody serves at the moment. A half-done replacement is taken up again when all is whole.

use crate::rig::Rig;
use crate::verdict::{self, Events};
use anyhow::{Context, Result, bail};
use hustings_api::Client;
use hustings_api::etcdserverpb::{
    CompactionRequest, MemberAddRequest, MemberListRequest, MemberRemoveRequest, RangeRequest,
};
use hustings_properties::Violation;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Faults of that history: once it is forgotten, nobody sees them again.
    pub(crate) violations: Vec<Violation>,
}

impl Past {
    /// Reads a member's history after `told`; gives the client and the member's newest revision.
    async fn read_on(&mut self, endpoint: &str) -> Result<(Client, i64)> {
        let client = Client::connect(&[endpoint]).await?;
        let request = RangeRequest { key: "x".into(), ..RangeRequest::default() };
        let header = client.kv().range(request).await?.into_inner().header.context("answers have headers")?;
        let (events, violations) = verdict::events_of(endpoint, self.told, header.revision).await?;
        let reached = events.last_key_value().map_or(self.told, |(last, _)| *last);
        if reached < header.revision {
            bail!("{endpoint} told its history up to {reached} of {}", header.revision);
        }
        self.events.extend(events);
        self.violations.extend(violations);
        self.told = reached;
        Ok((client, reached))
    }
}

impl Rig {
    /// Whether a member's process may end by itself: something excuses it, or it has been replaced and has not served since. Until it
    /// joins it may find nobody who takes it in.
    pub(crate) fn may_end(&self, position: usize) -> bool {
        self.is_excused[position] || !self.has_joined(position)
    }

    /// Whether a member that was replaced has served since; true of founders.
    pub fn has_joined(&self, position: usize) -> bool {
        self.has_joined[position].load(Ordering::Relaxed)
    }

    /// Starts the process of a member that was replaced, which is excused until it serves for the first time.
    fn start_replaced(&mut self, position: usize) -> Result<()> {
        self.is_replaced[position] = true;
        let joined = Arc::new(AtomicBool::new(false));
        self.has_joined[position] = joined.clone();
        let endpoint = self.cluster.nodes[position].client.clone();
        tokio::spawn(async move {
            // For as long as it takes: faults go on meanwhile.
            while !matches!(timeout(ANSWER_TIMEOUT, serves(&endpoint)).await, Ok(true)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            joined.store(true, Ordering::Relaxed);
        });
        self.start_process(position)?;
        self.is_excused[position] = false;
        Ok(())
    }

    /// Compacts all but the newest revisions, at a member that serves; its history is read first.
    pub(crate) async fn compact(&mut self) -> Result<String> {
        for endpoint in self.cluster.live_endpoints() {
            let read = timeout(ANSWER_TIMEOUT * 2, self.history.read_on(&endpoint)).await;
            let Ok(Ok((client, revision))) = read else { continue };
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

    /// Copies what a member has recorded to where it stays: its lives count to the end.
    fn keep_recording(&mut self, position: usize) -> Result<()> {
        let node = &self.cluster.nodes[position];
        let recording = node.data_dir.join("recording");
        if recording.exists() {
            let kept = self.cluster.directory().join(format!("{}-before-{}", node.name, self.kept.len() + 1));
            copy_files(&recording, &kept.join("recording"))?;
            self.kept.push(kept);
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
                self.start_replaced(position)?;
            }
            None => {
                // One whose file system waits cannot be emptied; the next fault thaws it.
                if let Some(disk) = self.disks.get_mut(position) {
                    disk.thaw()?;
                }
                self.end(position).await?;
                if data_dir.exists() {
                    self.keep_recording(position)?;
                    std::fs::remove_dir_all(&data_dir)?;
                }
                let request = MemberAddRequest { peer_urls: vec![url], is_learner: false };
                client.cluster().member_add(request).await?;
            }
        }
        Ok(())
    }
}

/// Copies a directory, and those within it.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_files(&entry.path(), &to)?,
            false => drop(std::fs::copy(entry.path(), to)?),
        }
    }
    Ok(())
}

/// Whether a member answers a linearizable read.
async fn serves(endpoint: &str) -> bool {
    let Ok(client) = Client::connect(&[endpoint]).await else { return false };
    client.kv().range(RangeRequest { key: "x".into(), ..RangeRequest::default() }).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_api::etcdserverpb::LeaseRevokeRequest;
    use hustings_testbed::FakeEtcd;

    /// Goal: a revision that is missing from what is then compacted is told: afterwards no member and no watcher can show it. Method: a
    /// store that gives a revision to the end of a lease without keys, and tells no change for it.
    #[tokio::test]
    async fn a_gap_in_a_history_that_is_then_compacted_is_kept() {
        let store = FakeEtcd::start(1).expect("there is a port");
        let endpoint = store.endpoint(0);
        store.put("a", "1");
        let client = Client::connect(&[&endpoint]).await.expect("it serves");
        client.lease().lease_revoke(LeaseRevokeRequest { id: 7 }).await.expect("it is a lease like any other");
        store.put("b", "2");
        let mut past = Past::default();
        let (_, revision) = past.read_on(&endpoint).await.expect("it tells its history");
        assert_eq!((revision, past.told), (3, 3));
        assert_eq!(past.events.keys().copied().collect::<Vec<_>>(), [1, 3]);
        let told: Vec<&str> = past.violations.iter().map(|violation| violation.what.as_str()).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("revision 3 came after 1"), "{told:?}");
        past.read_on(&endpoint).await.expect("there is nothing new");
        assert_eq!(past.violations.len(), 1, "what was read is not read again");
    }
}
