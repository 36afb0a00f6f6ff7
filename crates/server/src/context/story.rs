//! The story of this member: its transitions, each with its reason; also those of earlier processes in the same directory.
//!
//! They are kept in memory, and a line of JSON each in the file `story` of the data directory, so that a member that was killed
//! tells what it did until then. Nothing is decided by that file: it is written without a sync, and a line that is none is
//! left out.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use hustings_core::{Membership, Reason, Role, Transition};
use hustings_node::Happening;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use crate::context::Context;
use crate::context::backend::Backend;

/// Number of transitions that are told.
const KEPT_MAX: usize = 200;

/// A file that is longer begins anew, and the one before it stays beside it.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Bytes of the end of the files that are read at the start.
const READ_BYTES_MAX: u64 = 256 << 10;

/// The last transitions, the oldest first.
#[derive(Default)]
pub(crate) struct Story {
    kept: Mutex<VecDeque<Value>>,
    path: Option<PathBuf>,
}

impl Story {
    /// Begins with the transitions of the directory's earlier processes; with none if there is no directory.
    pub(crate) fn in_directory(directory: Option<&Path>) -> Story {
        let path = directory.map(|directory| directory.join("story"));
        let mut kept = VecDeque::new();
        for path in path.iter().flat_map(|path| [older(path), path.clone()]) {
            // There is none yet, or it cannot be read: the story begins now.
            let lines = end_of(&path).unwrap_or_default();
            kept.extend(lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()));
        }
        let surplus = kept.len().saturating_sub(KEPT_MAX);
        kept.drain(..surplus);
        Story { kept: Mutex::new(kept), path }
    }

    /// The transitions as JSON, the oldest first.
    pub(crate) fn told(&self) -> Vec<Value> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Adds a transition; one that repeats the last, as those of a member that nobody hears, is counted there.
    fn add(&self, told: Value) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = kept.back_mut().filter(|last| is_repeated(last, &told)) {
            last["times"] = (last["times"].as_u64().unwrap_or(1) + 1).into();
            return;
        }
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(told.clone());
        drop(kept);
        // A disk that is full or gone is told elsewhere.
        let _ = self.path.as_deref().map(|path| write(path, &told));
    }
}

/// Whether nothing has changed but the time and the term.
fn is_repeated(last: &Value, now: &Value) -> bool {
    let is_same = |field: &&str| last[*field] == now[*field];
    ["member", "from", "to", "leader", "lsn", "because"].iter().all(is_same)
}

/// Path of the file before this one.
fn older(path: &Path) -> PathBuf {
    path.with_extension("old")
}

/// The last lines of a file, the first of which may be cut.
fn end_of(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(READ_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write(path: &Path, told: &Value) -> std::io::Result<()> {
    if fs::metadata(path).is_ok_and(|file| file.len() > FILE_BYTES_MAX) {
        fs::rename(path, older(path))?;
    }
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.write_all(format!("{told}\n").as_bytes())
}

/// Milliseconds since 1970, by this machine's clock: for people.
pub(crate) fn unix_millis(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Keeps the story until the node stops.
pub(crate) async fn keep<B: Backend>(context: Arc<Context<B>>) {
    let mut happenings = context.happenings();
    let mut followed = None;
    loop {
        match happenings.recv().await {
            Ok(happening) => {
                let mut told = told(&happening, &context.node_status().membership);
                let lost = followed.filter(|_| happening.transition.because == Reason::ElectionTimeout);
                if let (Some(leader), Some(counters)) = (lost, context.metrics.node.get()) {
                    let (_, silence) = counters.reach_of(leader);
                    told["silent_millis"] = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX).into();
                }
                followed = happening.transition.leader;
                context.story.add(told);
            }
            // A storm of transitions, of which some are left out.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// A transition in JSON, with members by name.
fn told(Happening { at, transition }: &Happening, membership: &Membership) -> Value {
    let text = transition.by_name(membership);
    let because = text.split_once("  because ").map_or("", |(_, because)| because);
    let Transition { node, from, to, term, leader, lsn, .. } = transition;
    json!({
        "at_unix_millis": unix_millis(*at),
        "member": membership.name_of(*node),
        "from": word(*from),
        "to": word(*to),
        "term": term.0,
        "leader": leader.map(|leader| membership.name_of(leader)),
        "lsn": lsn.to_string(),
        "because": because,
        "times": 1,
    })
}

/// A role in one word.
fn word(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Synchronizing => "synchronizing",
        Role::Candidate => "candidate",
        Role::PreCandidate => "pre-candidate",
        Role::Follower => "follower",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(term: u64, because: &str) -> Value {
        json!({ "member": "n1", "from": "follower", "to": "candidate", "term": term, "leader": null, "lsn": "1:4", "because": because, "times": 1 })
    }

    /// Goal: the transitions of a member that was killed are told afterwards, in any state of the file. Method: two stories
    /// in one directory, a torn line between them.
    #[test]
    fn what_a_killed_process_went_through_is_told_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        Story::in_directory(Some(directory.path())).add(event(1, "silence"));
        let path = directory.path().join("story");
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"torn\n\xff\n").unwrap();
        let next = Story::in_directory(Some(directory.path()));
        next.add(event(2, "a broken link"));
        assert_eq!(next.told(), [event(1, "silence"), event(2, "a broken link")]);
        assert_eq!(Story::in_directory(Some(directory.path())).told(), next.told());
        assert!(Story::in_directory(None).told().is_empty());
    }

    #[test]
    fn a_story_is_bounded_in_memory_and_on_disk() {
        let directory = tempfile::tempdir().unwrap();
        let story = Story::in_directory(Some(directory.path()));
        for term in 0..1_000 {
            story.add(event(term, &format!("{term} {}", "x".repeat(10_000))));
        }
        let told = story.told();
        assert_eq!((told.len(), told[0]["term"].clone()), (KEPT_MAX, json!(800)));
        let length = |path: PathBuf| fs::metadata(path).map_or(0, |file| file.len());
        let path = directory.path().join("story");
        assert!(length(older(&path)) > 0 && length(path.clone()) + length(older(&path)) < 3 * FILE_BYTES_MAX);
    }

    #[test]
    fn what_repeats_itself_is_counted() {
        let story = Story::default();
        for term in 1..=9 {
            story.add(event(term, "silence"));
        }
        story.add(event(10, "vote won"));
        assert_eq!(story.told().iter().map(|one| one["times"].as_u64()).collect::<Vec<_>>(), [Some(9), Some(1)]);
    }
}
