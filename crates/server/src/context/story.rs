//! The story of this member: its transitions, each with its reason; also those of earlier processes in the same directory.
//!
//! They are kept in memory, and a line of JSON each in the file `story` of the data directory, so that a member that was killed
//! tells what it did until then. Nothing is decided by that file: it is written without a sync, and a line that is none is
//! left out. A thread of its own writes it: where the disk hangs, that thread waits, and nobody else.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hustings_core::{Membership, Reason, Role, Transition};
use hustings_node::Happening;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;

use crate::context::Context;
use crate::context::backend::Backend;

/// Number of transitions that are told.
const KEPT_MAX: usize = 200;

/// A file that is longer begins anew, and the one before it stays beside it.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Bytes of the end of the files that are read at the start.
const READ_BYTES_MAX: u64 = 256 << 10;

/// Lines that wait for the disk; where more do, the newer ones are told from memory only.
const WAITING_MAX: usize = 256;

/// Time that the disk has for the last lines of a process that ends.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// The last transitions, the oldest first.
#[derive(Default)]
pub(crate) struct Story {
    kept: Mutex<VecDeque<Value>>,
    writer: Option<SyncSender<Work>>,
}

/// What the writing thread does, in order.
enum Work {
    Write(Value),
    /// All before it is in the file.
    Tell(oneshot::Sender<()>),
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
        Story { kept: Mutex::new(kept), writer: path.and_then(begin_to_write) }
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
        // Under the lock, so that lines stand in the file as in memory. A disk that does not come after is told elsewhere.
        let _ = self.writer.as_ref().map(|writer| writer.try_send(Work::Write(told)));
    }

    /// Waits until all that was added is in the file, for as long as a process that ends may.
    pub(crate) async fn settle(&self) {
        let (tell, told) = oneshot::channel();
        if let Some(writer) = &self.writer
            && writer.try_send(Work::Tell(tell)).is_ok()
        {
            // A disk that hangs keeps no process.
            let _ = tokio::time::timeout(END_PATIENCE, told).await;
        }
    }
}

/// Starts the thread that writes to this file until the story is dropped; a machine without one thread more writes none.
fn begin_to_write(path: PathBuf) -> Option<SyncSender<Work>> {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let thread = std::thread::Builder::new().name("hustings-story".to_owned());
    thread.spawn(move || write_all(&path, &receiver)).ok().map(|_| sender)
}

fn write_all(path: &Path, work: &Receiver<Work>) {
    for work in work {
        match work {
            // A disk that is full or gone is told elsewhere.
            Work::Write(told) => drop(write(path, &told)),
            // Who asked may have gone.
            Work::Tell(tell) => drop(tell.send(())),
        }
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
fn told(Happening { at, transition, .. }: &Happening, membership: &Membership) -> Value {
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
    #[tokio::test]
    async fn what_a_killed_process_went_through_is_told_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let first = Story::in_directory(Some(directory.path()));
        first.add(event(1, "silence"));
        first.settle().await;
        let path = directory.path().join("story");
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"torn\n\xff\n").unwrap();
        let next = Story::in_directory(Some(directory.path()));
        next.add(event(2, "a broken link"));
        next.settle().await;
        assert_eq!(next.told(), [event(1, "silence"), event(2, "a broken link")]);
        assert_eq!(Story::in_directory(Some(directory.path())).told(), next.told());
        assert!(Story::in_directory(None).told().is_empty());
    }

    /// Goal: a disk that hangs stops nobody who adds to the story or tells it. Method: the file is a pipe that nobody reads, as
    /// which each write waits; more lines than may wait.
    #[test]
    fn a_disk_that_hangs_keeps_nobody_but_the_writer() {
        let directory = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo").arg(directory.path().join("story")).status();
        assert!(made.unwrap().success());
        let writer = begin_to_write(directory.path().join("story"));
        let story = Story { kept: Mutex::default(), writer };
        for term in 0..2 * WAITING_MAX as u64 {
            story.add(event(term, &term.to_string()));
        }
        assert_eq!(story.told().len(), KEPT_MAX);
    }

    #[tokio::test]
    async fn a_story_is_bounded_in_memory_and_on_disk() {
        let directory = tempfile::tempdir().unwrap();
        let story = Story::in_directory(Some(directory.path()));
        for term in 0..1_000 {
            story.add(event(term, &format!("{term} {}", "x".repeat(10_000))));
            story.settle().await;
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
