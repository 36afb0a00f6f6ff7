//! Snapshots: the time to cut one, and how a node that is too far behind fetches one.
//!
//! A protocol knows a snapshot only by reference. Its bytes are pulled, chunk by chunk, by the node that needs them:
//! the receiver sets the pace, so a slow one never floods, and the sender keeps no state. A disk that is slower than the link
//! sets it too: what has come and is not stored yet is in memory.
//!
//! ```text
//!    leader: "here is my snapshot's reference" ──► follower: Effect::FetchSnapshot
//!    leader ◄── AskChunk(offset) ── follower;  leader ── Chunk(bytes) ──► follower    (until complete)
//!           ◄── AskChunk(next) ──              (as many ahead as come back soon)
//!    follower: host verifies, syncs ──► Input::SnapshotReady ──► Persist(Snapshot), Restore
//! ```

use super::backlog::SLICE_COST;
use super::contents::{ReplicaState, SnapshotContents};
use super::{Action, Replica, ReplicaMessage, ReplicaTimer};
use crate::laboratory::Defect;
use crate::protocol::{Input, Protocol};
use crate::{Lsn, NodeId, SnapshotReference, StateMachine};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Bounds after which a snapshot is cut: the first that is reached counts. And what may be in memory of one that is fetched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Policy {
    /// Applied entries since the last cut.
    pub entries_max: u64,
    /// Applied payload bytes since the last cut; a snapshot larger than this raises it to its own size.
    pub bytes_max: u64,
    /// The most that such a size may raise it to: the log since the last cut is in memory, and the state need not be.
    pub log_bytes_max: u64,
    /// Bytes of a fetched snapshot that may be on their way or wait for the disk: one may be larger than memory, and the disk slower than
    /// the link. One chunk may always be.
    pub fetch_bytes_max: u64,
    /// Cost of the commands that are applied between two turns of everybody else, in units of [`StateMachine::last_cost`]; at least 1.
    pub slice_cost: u64,
}

impl Default for Policy {
    /// 100,000 entries or 64 MiB, or as many bytes as the last snapshot had, up to 512 MiB; and twice the widest window of a fetch.
    fn default() -> Policy {
        let (log_bytes_max, fetch_bytes_max) = (512 << 20, 2 * WINDOW_BYTES_MAX);
        Policy { entries_max: 100_000, bytes_max: 64 << 20, log_bytes_max, fetch_bytes_max, slice_cost: SLICE_COST }
    }
}

/// From this size on a snapshot is large, and cut only when the log since the last is at least this part of it.
const LARGE_STATE_BYTES: u64 = 16 << 20;
const STATE_BY_LOG_MAX: u64 = 4;
/// Bytes that an entry costs the log beside its payload.
const ENTRY_BYTES: u64 = 64;

/// A snapshot that is being fetched.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Fetch {
    from: NodeId,
    reference: SnapshotReference,
    offset: u64,
    /// Number of times that the next chunk was asked for in vain.
    asked: u32,
    /// Length of the source's chunks, in bytes; 0 until the first has come.
    chunk_bytes: u64,
    /// Bytes that may be on their way, in whole chunks.
    window_bytes: u64,
    /// Chunks that were asked for and have not come: their places, and when.
    ahead: VecDeque<(u64, u64)>,
    /// Microseconds that passed since the fetch began.
    elapsed_micros: u64,
    /// The shortest time that a chunk took: the way there and back, and nothing waited for.
    delay_min_micros: u64,
    /// End of the last chunk of this round, in bytes of the snapshot: the window grows once per round.
    round_end: u64,
    /// Chunks that overtook an earlier one: no more than were asked for.
    early: BTreeMap<u64, Bytes>,
}

impl Fetch {
    fn new(from: NodeId, reference: SnapshotReference, offset: u64) -> Fetch {
        let (chunk_bytes, window_bytes, ahead) = (0, 0, VecDeque::new());
        Fetch {
            from,
            reference,
            offset,
            asked: 0,
            chunk_bytes,
            window_bytes,
            ahead,
            elapsed_micros: 0,
            delay_min_micros: u64::MAX,
            round_end: 0,
            early: BTreeMap::new(),
        }
    }

    /// The next place to ask for, if one more chunk may be on its way, where there is room for so many bytes.
    fn next(&self, room_bytes: u64) -> Option<u64> {
        let next = match self.ahead.back() {
            None => self.offset,
            // The length of the chunks is not known yet.
            Some(_) if self.chunk_bytes == 0 => return None,
            Some((last, _)) => last + self.chunk_bytes,
        };
        let ahead_bytes = next - self.offset;
        let fits = self.ahead.is_empty() || ahead_bytes < self.window_bytes;
        (fits && ahead_bytes < room_bytes && next < self.reference.bytes).then_some(next)
    }

    /// The question for the chunk at this place.
    fn question<M>(&self, offset: u64) -> ReplicaMessage<M> {
        ReplicaMessage::AskChunk { lsn: self.reference.lsn, digest: self.reference.digest, offset }
    }

    /// Whether these bytes up to that place are a chunk of this snapshot: all are as long as the first, but for the last.
    fn has(&self, bytes: u64, end: u64) -> bool {
        let is_last = end == self.reference.bytes && bytes < self.chunk_bytes;
        let fits = bytes > 0 && end <= self.reference.bytes;
        fits && (self.chunk_bytes == 0 || bytes == self.chunk_bytes || is_last)
    }

    /// The chunk that was wanted next has come, after a delay: what waited for less than `wait_max_micros` on its way lets more be
    /// asked for ahead, what waited longer less.
    fn on_come(&mut self, bytes: u64, wait_max_micros: u64) {
        let asked_at = self.ahead.pop_front().map_or(self.elapsed_micros, |(_, asked_at)| asked_at);
        let delay_micros = self.elapsed_micros - asked_at;
        let waited_micros = delay_micros.checked_sub(self.delay_min_micros);
        self.delay_min_micros = self.delay_min_micros.min(delay_micros);
        (self.offset, self.asked) = (self.offset + bytes, 0);
        if self.chunk_bytes == 0 {
            // The first one is the measure of those that follow.
            (self.chunk_bytes, self.window_bytes) = (bytes, bytes);
        } else if waited_micros.is_some_and(|waited| waited > wait_max_micros) {
            self.window_bytes = (self.window_bytes / 2).max(self.chunk_bytes);
        } else if self.offset >= self.round_end {
            self.window_bytes = (self.window_bytes * 2).min(WINDOW_BYTES_MAX).max(self.chunk_bytes);
        } else {
            return;
        }
        self.round_end = self.offset + self.window_bytes;
    }
}

/// The most that may be on its way to a fetcher: a gigabit per second over 30 ms.
const WINDOW_BYTES_MAX: u64 = 4 << 20;

/// Number of later chunks after which the one that is wanted next is lost and not late, and asked for again at once.
/// Source: RFC 5681 §3.2, three duplicate acknowledgements.
const OVERTAKEN: usize = 3;

/// Number of times that a chunk is asked for before its source is given up: it may be connected and answer nothing,
/// because its disk hangs or its process stands still, and others may have a snapshot.
const ASKED_MAX: u32 = 3;

/// The replica's dealings with snapshots.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Snapshots {
    policy: Policy,
    entries: u64,
    bytes: u64,
    last_bytes: u64,
    pub(super) cutting: bool,
    /// Snapshot that was offered to this witness, and waits until the cut under way has ended.
    pub(super) offered: Option<SnapshotReference>,
    /// Offered snapshot in whose place a witness cuts one of its own.
    pub(super) standing_in: Option<SnapshotReference>,
    fetch: Option<Fetch>,
    /// A snapshot whose source is gone or was given up, and the bytes it had sent: the fetch goes on from there if any peer offers it,
    /// or a newer one.
    begun: Option<(SnapshotReference, u64)>,
    /// One that is fetched to its end, and the newer one that was offered when it had been begun.
    in_place_of: Option<(SnapshotReference, SnapshotReference)>,
    loading: Option<SnapshotReference>,
    /// Bytes of chunks that the host was given and has not stored yet, of this fetch and of earlier ones.
    unstored_bytes: u64,
}

impl Snapshots {
    pub(super) fn new(policy: Policy, last_bytes: u64) -> Snapshots {
        Snapshots {
            policy,
            entries: 0,
            bytes: 0,
            last_bytes,
            cutting: false,
            offered: None,
            standing_in: None,
            fetch: None,
            begun: None,
            in_place_of: None,
            loading: None,
            unstored_bytes: 0,
        }
    }

    pub(super) fn on_applied(&mut self, payload: usize) {
        self.entries += 1;
        self.bytes += payload as u64;
    }

    /// Time passed, which matters while something is fetched.
    pub(super) fn on_elapsed(&mut self, micros: u64) {
        if let Some(fetch) = &mut self.fetch {
            fetch.elapsed_micros = fetch.elapsed_micros.saturating_add(micros);
        }
    }

    pub(super) fn fetched(&self) -> (u64, u64) {
        let running = self.fetch.as_ref().map(|fetch| (fetch.reference.lsn.index, fetch.offset));
        let begun = self.begun.as_ref().map(|(reference, offset)| (reference.lsn.index, *offset));
        running.or(begun).unwrap_or_default()
    }

    pub(super) fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// Bytes of the snapshot that is fetched for which there is room.
    fn room_bytes(&self) -> u64 {
        self.policy.fetch_bytes_max.saturating_sub(self.unstored_bytes)
    }

    fn is_due(&self) -> bool {
        let quiet = !self.cutting && self.loading.is_none();
        let bytes_max = self.policy.bytes_max.max(self.last_bytes.min(self.policy.log_bytes_max));
        // A large state is not written again for a few entries: the log since then is at least a part of it.
        let log_bytes = self.bytes + self.entries * ENTRY_BYTES;
        let part = (self.last_bytes / STATE_BY_LOG_MAX).min(self.policy.log_bytes_max);
        let is_worth_it = self.last_bytes < LARGE_STATE_BYTES || log_bytes >= part;
        let are_many = self.entries >= self.policy.entries_max && is_worth_it;
        quiet && self.entries > 0 && (are_many || self.bytes >= bytes_max)
    }
}

impl<P: Protocol, S: StateMachine> Replica<P, S> {
    pub(super) fn cut_if_due(&mut self, out: &mut Vec<Action<P, S>>) {
        if !self.snapshots.is_due() {
            return;
        }
        self.snapshots.cutting = true;
        self.snapshots.entries = 0;
        self.snapshots.bytes = 0;
        out.push(Action::CutSnapshot(self.contents()));
    }

    /// The content of a snapshot of everything that is replicated, as it is now.
    pub(super) fn contents(&self) -> SnapshotContents<S> {
        SnapshotContents {
            lsn: self.applied,
            membership: self.membership.clone(),
            state: ReplicaState {
                applied_requests: self.applied_requests.clone(),
                clock: self.clock.applied(),
                version: self.version,
                is_witness: self.is_witness && self.defect != Some(Defect::WitnessGivesSnapshots),
            },
            view: self.machine.freeze(),
        }
    }

    pub(super) fn on_snapshot_cut(&mut self, reference: Option<SnapshotReference>, out: &mut Vec<Action<P, S>>) {
        self.snapshots.cutting = false;
        match (self.snapshots.standing_in.take(), reference) {
            (Some(offered), own) => self.on_stand_in_cut(offered, own, out),
            (None, Some(reference)) => {
                self.snapshots.last_bytes = reference.bytes;
                self.feed(Input::Compact(reference), out);
            }
            (None, None) => {}
        }
        self.cut_stand_in(out);
    }

    pub(super) fn fetch(&mut self, from: NodeId, reference: SnapshotReference, out: &mut Vec<Action<P, S>>) {
        if self.is_witness || reference.membership.is_witness(self.me) {
            return self.stand_in(reference, out);
        }
        // Equal references are equal bytes, from any source.
        let running = self.snapshots.fetch.take().map(|fetch| (fetch.reference, fetch.offset));
        let begun: Vec<_> = [running, self.snapshots.begun.take()].into_iter().flatten().collect();
        let same = begun.iter().find(|(begun, _)| *begun == reference);
        // Where newer ones are cut between two breaks of a link, none would ever come to its end if each began anew. But one that is shorter
        // than what is left of the older one comes sooner.
        let older = begun.iter().find(|(begun, offset)| {
            let is_between = begun.lsn.index > self.applied.index && begun.lsn.index < reference.lsn.index;
            is_between && *offset > 0 && begun.bytes - offset <= reference.bytes
        });
        let (taken, offset) = same.or(older).cloned().unwrap_or_else(|| (reference.clone(), 0));
        self.snapshots.in_place_of = (taken != reference).then(|| (taken.clone(), reference));
        self.snapshots.fetch = Some(Fetch::new(from, taken, offset));
        self.ask_chunks(out);
    }

    /// What was asked for, where this one was fetched.
    fn asked_for(&mut self, fetched: SnapshotReference) -> SnapshotReference {
        let in_place_of = self.snapshots.in_place_of.take_if(|(taken, _)| *taken == fetched);
        in_place_of.map_or(fetched, |(_, offered)| offered)
    }

    /// Asks for the next chunks, as far ahead as the last ones came back soon: so a fetch fills a long link, and heartbeats on a
    /// slow one wait behind little more than one chunk. The timer fires only when no chunk came for as long.
    fn ask_chunks(&mut self, out: &mut Vec<Action<P, S>>) {
        self.ask_ahead(out);
        if self.snapshots.fetch.is_some() {
            out.push(Action::SetTimer(ReplicaTimer::Chunk, self.timing.election()));
        }
    }

    fn ask_ahead(&mut self, out: &mut Vec<Action<P, S>>) {
        let room_bytes = self.snapshots.room_bytes();
        let Some(fetch) = &mut self.snapshots.fetch else { return };
        while let Some(offset) = fetch.next(room_bytes) {
            fetch.ahead.push_back((offset, fetch.elapsed_micros));
            out.push(Action::Send(fetch.from, fetch.question(offset)));
        }
    }

    pub(super) fn on_chunk_overdue(&mut self, out: &mut Vec<Action<P, S>>) {
        let Some(fetch) = &mut self.snapshots.fetch else { return };
        if fetch.ahead.is_empty() && self.snapshots.unstored_bytes > 0 {
            // The disk is waited for, and the source is not at fault. It keeps the snapshot for who asks for it, so it is asked; there is no
            // room for the answer.
            out.push(Action::Send(fetch.from, fetch.question(fetch.offset)));
            return self.ask_chunks(out);
        }
        fetch.asked += 1;
        if fetch.asked >= ASKED_MAX && self.defect != Some(Defect::PinsFetches) {
            return self.fail_fetch(out);
        }
        // The chunks on their way are lost: again from where it stands, one at a time. Those that came early are not asked for again.
        fetch.ahead.clear();
        fetch.window_bytes = fetch.chunk_bytes;
        self.ask_chunks(out);
    }

    pub(super) fn on_chunk(&mut self, from: NodeId, lsn: Lsn, offset: u64, bytes: Bytes, out: &mut Vec<Action<P, S>>) {
        let Some(fetch) = &mut self.snapshots.fetch else { return };
        let end = offset.saturating_add(bytes.len() as u64);
        // Duplicates, answers to earlier questions, bytes beyond the end and what there is no room for are ignored.
        let is_asked = fetch.from == from && fetch.reference.lsn == lsn && !fetch.ahead.is_empty();
        if !is_asked || !fetch.has(bytes.len() as u64, end) {
            return;
        }
        if fetch.ahead.iter().skip(1).any(|(asked, _)| *asked == offset) {
            let is_news = fetch.early.insert(offset, bytes).is_none();
            if is_news && fetch.early.len() == OVERTAKEN {
                out.push(Action::Send(from, fetch.question(fetch.offset)));
            }
            return;
        }
        if fetch.offset != offset {
            return;
        }
        let wait_max_micros = u64::try_from(self.timing.heartbeat.as_micros() / 2).expect("a heartbeat is short");
        let mut next = Some(bytes);
        while let Some(bytes) = next {
            let (offset, reference) = (fetch.offset, fetch.reference.clone());
            // A store holds a part of one: the first chunk of another takes its place.
            self.snapshots.begun = None;
            fetch.on_come(bytes.len() as u64, wait_max_micros);
            self.snapshots.unstored_bytes += bytes.len() as u64;
            out.push(Action::StoreChunk { reference, offset, bytes });
            next = fetch.early.remove(&fetch.offset);
        }
        if fetch.offset == fetch.reference.bytes {
            self.snapshots.fetch = None;
            out.push(Action::CancelTimer(ReplicaTimer::Chunk));
        } else {
            self.ask_chunks(out);
        }
    }

    pub(super) fn on_chunk_stored(&mut self, bytes: u64, out: &mut Vec<Action<P, S>>) {
        let left = self.snapshots.unstored_bytes.checked_sub(bytes);
        self.snapshots.unstored_bytes = left.expect("no more is stored than was given to be stored");
        let room_bytes = self.snapshots.room_bytes();
        let Some(fetch) = &self.snapshots.fetch else { return };
        if fetch.ahead.is_empty() && fetch.next(room_bytes).is_some() {
            // From here on it is the source again that is waited for.
            self.ask_chunks(out);
        } else {
            self.ask_ahead(out);
        }
    }

    pub(super) fn on_chunk_gone(&mut self, from: NodeId, lsn: Lsn, out: &mut Vec<Action<P, S>>) {
        let Some(fetch) = self.snapshots.fetch.take_if(|fetch| fetch.from == from && fetch.reference.lsn == lsn) else {
            return;
        };
        match self.snapshots.in_place_of.take() {
            // This source has the newer one that it offered. Until a part of that has come, what had come of the older one is there.
            Some((_, offered)) => {
                self.snapshots.begun = Some((fetch.reference, fetch.offset));
                self.snapshots.fetch = Some(Fetch::new(from, offered, 0));
                self.ask_chunks(out);
            }
            None => {
                self.snapshots.fetch = Some(fetch);
                self.fail_fetch(out);
            }
        }
    }

    pub(super) fn on_fetch_source_down(&mut self, peer: NodeId, out: &mut Vec<Action<P, S>>) {
        if self.snapshots.fetch.as_ref().is_some_and(|fetch| fetch.from == peer) {
            self.fail_fetch(out);
        }
    }

    fn fail_fetch(&mut self, out: &mut Vec<Action<P, S>>) {
        if let Some(Fetch { reference, offset, .. }) = self.snapshots.fetch.take() {
            out.push(Action::CancelTimer(ReplicaTimer::Chunk));
            if offset > 0 {
                self.snapshots.begun = Some((reference.clone(), offset));
            }
            let asked_for = self.asked_for(reference);
            self.feed(Input::SnapshotFailed(asked_for), out);
        }
    }

    pub(super) fn on_snapshot_stored(
        &mut self,
        stored: Result<SnapshotReference, SnapshotReference>,
        out: &mut Vec<Action<P, S>>,
    ) {
        match stored {
            Ok(reference) => {
                self.snapshots.in_place_of.take_if(|(taken, _)| *taken == reference);
                self.feed(Input::SnapshotReady(reference), out);
            }
            Err(reference) => {
                // The part of it that was stored is lost: the next source that offers it is asked from the beginning.
                if self.snapshots.fetch.take_if(|fetch| fetch.reference == reference).is_some() {
                    out.push(Action::CancelTimer(ReplicaTimer::Chunk));
                }
                self.snapshots.begun.take_if(|(begun, _)| *begun == reference);
                let asked_for = self.asked_for(reference);
                self.feed(Input::SnapshotFailed(asked_for), out);
            }
        }
    }

    pub(super) fn on_chunk_read(
        &mut self,
        to: NodeId,
        lsn: Lsn,
        offset: u64,
        bytes: Option<Bytes>,
        out: &mut Vec<Action<P, S>>,
    ) {
        let message = match bytes {
            Some(bytes) => ReplicaMessage::Chunk { lsn, offset, bytes },
            None => ReplicaMessage::ChunkGone { lsn },
        };
        out.push(Action::Send(to, message));
    }

    pub(super) fn load(&mut self, reference: SnapshotReference, out: &mut Vec<Action<P, S>>) {
        self.snapshots.loading = Some(reference.clone());
        out.push(Action::LoadSnapshot(reference));
    }

    pub(super) fn on_snapshot_loaded(
        &mut self,
        lsn: Lsn,
        mut machine: S,
        state: ReplicaState,
        out: &mut Vec<Action<P, S>>,
    ) {
        let reference = self.snapshots.loading.take().expect("a snapshot is loaded only when one was asked for");
        assert_eq!(reference.lsn, lsn, "the snapshot that was asked for is the one that was loaded");
        if self.stops_at_snapshot(lsn, state.version, out) || self.stops_at_witness(&reference, &state, out) {
            return;
        }
        let ReplicaState { applied_requests, clock, version, is_witness: _ } = state;
        machine.inherit(&self.machine);
        (self.machine, self.applied_requests, self.version) = (machine, applied_requests, version);
        self.machine.adopt(version);
        self.clock.on_restored(clock);
        out.push(Action::Version(version));
        self.applied = lsn;
        self.snapshots.last_bytes = reference.bytes;
        self.snapshots.entries = 0;
        self.snapshots.bytes = 0;
        self.end_those_in_snapshot(out);
        // Before the protocol hears of it: what it would apply then comes behind these.
        self.apply_waiting(out);
        self.feed(Input::SnapshotInstalled(lsn), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_grows_to_the_size_of_the_state_and_no_further_than_allowed() {
        let policy = Policy { entries_max: u64::MAX, bytes_max: 100, log_bytes_max: 1_000, ..Policy::default() };
        for (last_bytes, due_at) in [(0, 100), (500, 500), (1_000, 1_000), (1 << 40, 1_000)] {
            let mut snapshots = Snapshots::new(policy, last_bytes);
            (0..due_at - 1).for_each(|_| snapshots.on_applied(1));
            assert!(!snapshots.is_due(), "after a state of {last_bytes}");
            snapshots.on_applied(1);
            assert!(snapshots.is_due(), "after a state of {last_bytes}");
        }
        // Many small entries: a quarter of the state, or as much as is allowed.
        let policy = Policy { entries_max: 1, bytes_max: u64::MAX, log_bytes_max: 64 << 20, ..Policy::default() };
        for (last_bytes, due_at) in [(1 << 20, 1), (100 << 20, 25 << 20), (1 << 40, 64 << 20)] {
            let mut snapshots = Snapshots::new(policy, last_bytes);
            snapshots.on_applied(usize::try_from(due_at).unwrap_or(0).saturating_sub(ENTRY_BYTES as usize + 1));
            assert_eq!(snapshots.is_due(), due_at == 1, "after a state of {last_bytes}");
            snapshots.on_applied(1);
            assert!(snapshots.is_due(), "after a state of {last_bytes}");
        }
    }
}
