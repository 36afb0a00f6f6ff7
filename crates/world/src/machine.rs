//! One member with its disk, its timers and its clock: [`Machine`]. The code inside is the production code: a
//! [`Replica`] above a [`Wal`] on a [`SimulatedDisk`].

use crate::dice::Dice;
use crate::digested::{Digested, Service, StoreDefect};
use crate::load::Asked;
use crate::settings::{DiskPace, Settings};
use crate::world::EventKind;
use hustings_core::laboratory::Defect;
use hustings_core::replica::ReplicaState;
use hustings_core::replica::applied_requests::AppliedRequests;
use hustings_core::replica::{Birth, RecordNumber, Replica, ReplicaTimer, SnapshotContents};
use hustings_core::{
    Cluster, ClusterId, Durable, Lsn, Membership, NodeId, Protocol, Record, SnapshotReference, StateMachine, Status,
    Succession,
};
use hustings_wal::{Identity, Options, Preparation, SimulatedDisk, SnapshotStore, Wal};
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Segments small enough that a run sees many of them.
const SEGMENT_BYTES: u64 = 64 << 10;
/// Every so many looks a planted defect has a member tell an old status.
const OLD_STATUS_EVERY: u64 = 40;
/// One entry in so many is written otherwise, one timer in so many is lost, where such a defect is planted.
const AMISS_EVERY: u64 = 40;

/// A timer that is armed.
pub(crate) struct Armed<T> {
    pub(crate) timer: ReplicaTimer<T>,
    pub(crate) deadline: u64,
    /// Moment at which the queue will ask about it: never after the deadline, perhaps before.
    pub(crate) queued: u64,
}

/// Work that is done off the loop.
pub(crate) enum Job<S: Service> {
    Cut(SnapshotContents<Digested<S>>),
    Store { reference: SnapshotReference, offset: u64, bytes: bytes::Bytes },
    Read { to: NodeId, lsn: Lsn, digest: u32, offset: u64 },
    Load(SnapshotReference),
}

/// Defects of a host, of its disk and of what all protocols share, for proofs that the judge convicts; all off.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Plants {
    /// Records count as durable before they are synced.
    pub answers_early: bool,
    /// A restarted member does not remember its vote (EL-01).
    pub forgets_vote: bool,
    /// A restarted member does not remember its promise at all.
    pub forgets_promise: bool,
    /// The disk says that it has synced, and has not (ST-04).
    pub lying_sync: bool,
    /// An error of a sync is swallowed, and the next one believed (ST-05).
    pub swallows_sync_errors: bool,
    /// The last entry of a log is lost at every restart, as by a reader that takes a whole tail for a torn one.
    pub drops_tail: bool,
    /// A life has the number of the one before: its proposals look like copies of older ones.
    pub reuses_incarnation: bool,
    /// The proposals that are already applied are forgotten at every restart.
    pub forgets_applied_requests: bool,
    /// A watcher whose start has been compacted goes on one revision later than it is told.
    pub drops_watch_event: bool,
    /// A watcher whose start has been compacted is told that one revision more was than anybody asked for.
    pub compacts_beyond: bool,
    /// A call that finds its client's key in a queue takes it over without writing it, and one that is given up removes the key
    /// that it made, although another call may stand on it by now.
    pub adopts_without_trace: bool,
    /// A lock's holder takes for its token how often its key was written, which begins again with each key.
    pub counts_versions: bool,
    /// A leader's clock runs at twice its speed, and leases end too soon.
    pub doubles_time: bool,
    /// Each entry that is written is followed by the one before it, as by a host that repeats a write which had succeeded.
    pub writes_entries_again: bool,
    /// Each promise that is written is followed by the one before it.
    pub writes_promises_again: bool,
    /// Every 40th entry that a member writes is another on its disk than in its memory, as by a bit that flips before the checksum is made.
    pub writes_other_entries: bool,
    /// The host says that one record more is durable than was written.
    pub counts_unwritten: bool,
    /// Every 40th timer that a member sets never goes off.
    pub loses_timers: bool,
    /// A member that comes to lead announces the term of the leader before it, as from a status that was read too soon.
    pub announces_old_term: bool,
    /// Every 40th time a member tells the status that it had 40 looks ago, as from a cache that nobody renews.
    pub tells_old_status: bool,
    /// A candidate's application is not told when a tenure ends.
    pub hides_ends: bool,
    /// A candidate's timers never go off.
    pub forgets_timers: bool,
    /// The application of a candidate that leads writes without asking whether its entry stands.
    pub writes_unfenced: bool,
    /// A defect of the state machine.
    pub store: Option<StoreDefect>,
    /// A defect of what all protocols share.
    pub defect: Option<Defect>,
    /// A defect of candidates at the members' store.
    pub candidate: Option<hustings_lease::Defect>,
}

impl Plants {
    /// Makes of a disk's contents what a defective reader would.
    fn spoil(&self, durable: &mut Durable) {
        if self.forgets_vote {
            durable.promise.vote = None;
        }
        if self.forgets_promise {
            durable.promise = hustings_core::Promise::default();
        }
        if self.drops_tail {
            durable.entries.pop_last();
        }
    }
}

/// Whether a member runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Life {
    /// The member's process runs.
    Up,
    /// The member's process has ended, and can be started again.
    Down,
    /// Its disk is refused, for this reason: it cannot run until it is wiped.
    Refused(String),
}

/// One member: its process, its disk and its clock.
pub(crate) struct Machine<P: Protocol, S: Service> {
    pub(crate) id: NodeId,
    pub(crate) disk: SimulatedDisk,
    pub(crate) wal: Option<Wal>,
    pub(crate) store: Option<SnapshotStore>,
    /// The snapshot that each peer last read from, and until when it is kept for it.
    pub(crate) pins: BTreeMap<NodeId, (Lsn, u32, u64)>,
    pub(crate) replica: Option<Replica<P, Digested<S>>>,
    pub(crate) life: Life,
    /// Counts lives: what was meant for an earlier one is dropped.
    pub(crate) lives: u32,
    pub(crate) founding: Arc<Membership>,
    /// Whether its disk is another one than the cluster knows: nobody speaks with it.
    pub(crate) is_stranger: bool,
    /// Whether its disk says of syncs that they are done, and does nothing; and whether it has done so.
    pub(crate) lies: bool,
    pub(crate) has_lied: bool,
    pub(crate) timers: Vec<Armed<P::Timer>>,
    pub(crate) unsynced: Vec<(RecordNumber, Record)>,
    /// The record that a planted defect writes again.
    again: Option<Record>,
    /// How often the member was looked at, and the status that a planted defect tells again.
    looks: (u64, Option<Status>),
    /// Number of entries written, and of timers set, where a planted defect counts them.
    entries_written: u64,
    timers_set: u64,
    /// The last record of the batch that is being synced.
    pub(crate) syncing: Option<RecordNumber>,
    /// Moment at which the sync that runs is done.
    pub(crate) sync_due: u64,
    pub(crate) pace: DiskPace,
    pub(crate) is_stalled: bool,
    pub(crate) told_stalled: bool,
    pub(crate) stalled_since: Option<u64>,
    pub(crate) jobs: VecDeque<Job<S>>,
    pub(crate) is_working: bool,
    /// The next slice of what is committed is about to be applied.
    pub(crate) is_slicing: bool,
    pub(crate) is_paused: bool,
    /// It knows that it was removed: its server is closed, and clients go elsewhere.
    pub(crate) is_removed: bool,
    /// The power went: what was not synced is lost.
    pub(crate) is_powered_off: bool,
    /// Events that came while it was paused.
    pub(crate) stash: VecDeque<EventKind<P::Timer>>,
    /// Speed of its clock, in millionths of true time.
    pub(crate) rate: u64,
    pub(crate) told_elapsed_at: u64,
    pub(crate) dice: Dice,
    /// The members in the order in which they ask once the leader falls silent.
    pub(crate) succession: Succession,
    pub(crate) next_proposal: u64,
    pub(crate) next_read: u64,
    pub(crate) incarnation: u64,
    pub(crate) proposals: BTreeMap<u64, Asked>,
    pub(crate) reads: BTreeMap<u64, Asked>,
    pub(crate) applied: u64,
    /// Defects planted in what stands around the replica.
    pub(crate) plants: Plants,
}

/// A member's state after it has read its disk.
pub(crate) struct Recovered<P: Protocol, S: Service> {
    pub(crate) birth: Birth<P, Digested<S>>,
    pub(crate) durable: Durable,
}

impl<P: Protocol, S: Service> Machine<P, S> {
    pub(crate) fn new(id: NodeId, seed: u64, founding: Arc<Membership>, pace: DiskPace) -> Machine<P, S> {
        Machine {
            id,
            disk: SimulatedDisk::new(Dice::new(seed, 1, id.0).throw()),
            wal: None,
            store: None,
            pins: BTreeMap::new(),
            replica: None,
            life: Life::Down,
            lives: 0,
            founding,
            is_stranger: false,
            lies: false,
            has_lied: false,
            timers: Vec::new(),
            unsynced: Vec::new(),
            again: None,
            looks: (0, None),
            entries_written: 0,
            timers_set: 0,
            syncing: None,
            sync_due: 0,
            pace,
            is_stalled: false,
            told_stalled: false,
            stalled_since: None,
            jobs: VecDeque::new(),
            is_working: false,
            is_slicing: false,
            is_paused: false,
            is_removed: false,
            is_powered_off: false,
            stash: VecDeque::new(),
            rate: 1_000_000,
            told_elapsed_at: 0,
            dice: Dice::new(seed, 2, id.0),
            succession: Succession::default(),
            next_proposal: 1,
            next_read: 1,
            incarnation: 0,
            proposals: BTreeMap::new(),
            reads: BTreeMap::new(),
            applied: 0,
            plants: Plants::default(),
        }
    }
    /// Whether clients can connect.
    pub(crate) fn is_open(&self) -> bool {
        self.is_up() && !self.is_removed && !self.founding.is_witness(self.id)
    }

    /// Whether it runs and goes on, and its disk is as quick as all are.
    pub(crate) fn is_fit(&self, settings: &Settings) -> bool {
        self.is_up() && !self.is_paused && self.pace == settings.disk && !self.is_stalled
    }

    /// Whether a peer is about to fetch this snapshot.
    pub(crate) fn is_pinned(&self, lsn: Lsn, digest: u32, now: u64) -> bool {
        self.pins.values().any(|(of, its, until)| (*of, *its) == (lsn, digest) && now < *until)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.replica.is_some()
    }

    /// Opens the disk as a process does at its start.
    ///
    /// # Errors
    /// In words, why the disk is refused.
    pub(crate) fn recover(
        &mut self,
        cluster: Cluster,
        options: P::Options,
        policy: hustings_core::replica::Policy,
    ) -> Result<Recovered<P, S>, String> {
        let disk: Arc<dyn hustings_wal::Disk> = Arc::new(self.disk.clone());
        let identity = Identity { cluster_id: ClusterId(1), node: self.id, protocol: P::NAME.into() };
        let layout = Options {
            segment_bytes: SEGMENT_BYTES,
            first_segment_bytes: SEGMENT_BYTES,
            preparation: Preparation::Inline,
            ..Options::default()
        };
        let words = |error: hustings_wal::WalError| error.to_string();
        let (wal, mut recovered) = Wal::open(disk.clone(), &identity, &self.founding, layout).map_err(words)?;
        self.plants.spoil(&mut recovered.durable);
        let store = SnapshotStore::open(disk).map_err(words)?;
        let empty = Digested::planted(self.plants.store);
        let (machine, mut state) = match &recovered.durable.snapshot {
            Some(reference) => {
                let (mut machine, state): (Digested<S>, ReplicaState) = load(&store, reference)?;
                machine.inherit(&empty);
                (machine, state)
            }
            None => (empty, ReplicaState::default()),
        };
        if self.plants.forgets_applied_requests {
            state.applied_requests = AppliedRequests::new();
        }
        self.wal = Some(wal);
        self.store = Some(store);
        self.succession = Succession::default();
        self.incarnation = if self.plants.reuses_incarnation { 1 } else { recovered.boots };
        let durable = recovered.durable.clone();
        let birth = Birth {
            cluster,
            options,
            recovered: recovered.durable,
            machine,
            blank: Digested::default(),
            is_witness: false,
            state,
            incarnation: self.incarnation,
            policy,
            can: hustings_core::ApplyVersion::FIRST,
        };
        Ok(Recovered { birth, durable })
    }

    /// A planted defect: the record that the host writes once more behind this one.
    pub(crate) fn written_again(&mut self, record: &Record) -> Option<Record> {
        let is_repeated = match record {
            Record::Put(_) => self.plants.writes_entries_again,
            Record::Promise(_) => self.plants.writes_promises_again,
            _ => false,
        };
        if is_repeated { self.again.replace(record.clone()) } else { None }
    }

    /// The record as it comes to the disk; a planted defect may make another entry of it.
    pub(crate) fn written(&mut self, record: Record) -> Record {
        let Record::Put(mut entry) = record else { return record };
        self.entries_written += 1;
        if self.plants.writes_other_entries && self.entries_written.is_multiple_of(AMISS_EVERY) {
            let mut payload = entry.payload.to_vec();
            if let Some(last) = payload.last_mut() {
                *last ^= 1;
            }
            entry.payload = payload.into();
        }
        Record::Put(entry)
    }

    /// Whether a planted defect loses the timer that is set now.
    pub(crate) fn is_timer_lost(&mut self) -> bool {
        self.timers_set += 1;
        self.plants.loses_timers && self.timers_set.is_multiple_of(AMISS_EVERY)
    }

    /// The member's status as it tells it; a planted defect may have it tell an earlier one.
    pub(crate) fn told(&mut self, status: Status) -> Status {
        let (looks, before) = &mut self.looks;
        *looks += 1;
        match self.plants.tells_old_status && looks.is_multiple_of(OLD_STATUS_EVERY) {
            true => before.replace(status.clone()).unwrap_or(status),
            false => status,
        }
    }

    /// The process ends: all that is not on disk is gone. Gives back whose requests had no answer.
    pub(crate) fn end(&mut self) -> Vec<Asked> {
        self.replica = None;
        self.wal = None;
        self.store = None;
        self.pins.clear();
        self.life = Life::Down;
        self.lives += 1;
        self.timers.clear();
        self.unsynced.clear();
        self.again = None;
        self.looks = (0, None);
        self.syncing = None;
        self.is_stalled = false;
        self.told_stalled = false;
        self.stalled_since = None;
        self.jobs.clear();
        self.is_working = false;
        self.is_slicing = false;
        self.is_paused = false;
        self.stash.clear();
        self.next_proposal = 1;
        self.next_read = 1;
        let proposals = std::mem::take(&mut self.proposals);
        let reads = std::mem::take(&mut self.reads);
        proposals.into_values().chain(reads.into_values()).collect()
    }

    /// The true time that a timer takes on this machine's clock.
    pub(crate) fn draw(&mut self, after: &RangeInclusive<Duration>) -> u64 {
        let micros = |duration: &Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 2);
        let drawn = self.dice.between(micros(after.start()), micros(after.end()));
        drawn.saturating_mul(1_000_000) / self.rate
    }

    /// Arms a timer; gives back when the queue must ask about it, if it does not already do so in time.
    pub(crate) fn arm(&mut self, timer: ReplicaTimer<P::Timer>, deadline: u64) -> Option<u64> {
        match self.timers.iter_mut().find(|armed| armed.timer == timer) {
            Some(armed) => {
                armed.deadline = deadline;
                (armed.queued > deadline).then(|| {
                    armed.queued = deadline;
                    deadline
                })
            }
            None => {
                self.timers.push(Armed { timer, deadline, queued: deadline });
                Some(deadline)
            }
        }
    }

    pub(crate) fn disarm(&mut self, timer: ReplicaTimer<P::Timer>) {
        self.timers.retain(|armed| armed.timer != timer);
    }
}

/// The state machine and the applied requests inside a stored snapshot.
pub(crate) fn load<S: Service>(
    store: &SnapshotStore,
    reference: &SnapshotReference,
) -> Result<(Digested<S>, ReplicaState), String> {
    let mut bytes = store.load(reference).map_err(|error| error.to_string())?;
    SnapshotContents::decode(&mut bytes).map_err(|error| error.to_string())
}
