//! The disk thread: group commit. Records that arrive while one sync runs are written by the next.
//!
//! The loop never waits for it: it hands records over and hears which are durable. Any error is fatal to the node: a sync is
//! never tried again, since what it did not write may be gone from the kernel's cache (ADR 31).

use crate::config::OnSync;
use crate::counters::Counters;
use crate::remedies::NO_SPACE;
use crate::timers::{boot_micros, prefer_this_thread};
use hustings_core::replica::RecordNumber;
use hustings_core::{ApplyVersion, Record};
use hustings_wal::{Wait, Wal, WalError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// Pause between two probes of an idle disk, which show whether it still answers.
const PROBE_EVERY: Duration = Duration::from_secs(2);

/// Pause between two looks of an idle disk while there is no room for the log's next segment: somebody may have made some, and waits.
const LOOK_IDLE_EVERY: Duration = Duration::from_millis(500);

/// Pause between two looks at whether there is room for the log's next segment.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whether there is room for the log to grow: the next segment is made while the one before fills up, so a full disk shows while
/// a whole segment is left to write in (ST-10).
struct Room {
    is_short: bool,
    next_look: Instant,
}

impl Room {
    /// Looks now and then, and says what has changed.
    fn look(&mut self, wal: &mut Wal, counters: &Counters) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        match wal.shortage() {
            Some(why) if !self.is_short => {
                self.is_short = true;
                let left = wal.room();
                tracing::error!(
                    left,
                    "no room for the log's next segment: {why}; delete no file of the data directory; the alarm NOSPACE is raised while there are bytes left; {NO_SPACE}"
                );
            }
            None if self.is_short && wal.is_next_ready() => {
                self.is_short = false;
                tracing::info!("there is room for the log again: `hustings alarm disarm` lets clients write");
            }
            _ => return,
        }
        counters.is_log_short.store(self.is_short, Ordering::Relaxed);
    }
}

/// Records in the order of their emission.
pub(crate) type Batch = Vec<(RecordNumber, Record)>;

/// A job for the disk thread.
enum Job {
    /// Write this batch of records.
    Write(Batch),
    /// The directory needs builds that can apply this version.
    NeedVersion(ApplyVersion),
}

/// News from the disk thread.
#[derive(Debug)]
pub(crate) enum DiskNews {
    /// All records up to `number` are durable; `batches` counts the durable batches of the log.
    Durable { number: RecordNumber, batches: u64 },
    /// The disk failed; nothing after the last durable record is.
    Failed(WalError),
}

/// Start of the disk's present operation, in microseconds of the boot clock; 0 while it is idle.
#[derive(Clone, Default)]
pub(crate) struct BusySince(Arc<AtomicU64>);

impl BusySince {
    fn start(&self) {
        self.0.store(boot_micros(), Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Duration of the present operation so far.
    pub(crate) fn busy_for(&self) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_micros(boot_micros().saturating_sub(since)),
        }
    }
}

/// The loop's end of the disk thread.
pub(crate) struct DiskThread {
    jobs: Sender<Job>,
    pub(crate) busy: BusySince,
    /// Why a write waits for room.
    pub(crate) wait: Wait,
}

impl DiskThread {
    pub(crate) fn spawn(
        wal: Wal,
        news: UnboundedSender<DiskNews>,
        counters: Arc<Counters>,
        on_sync: OnSync,
    ) -> std::io::Result<(DiskThread, std::thread::JoinHandle<()>)> {
        let (jobs, arrivals) = std::sync::mpsc::channel();
        let busy = BusySince::default();
        let (own_busy, wait) = (busy.clone(), wal.wait());
        let thread = std::thread::Builder::new().name("hustings-disk".into()).spawn(move || {
            prefer_this_thread(-5);
            if let Err(error) = run(wal, &arrivals, &news, &own_busy, &counters, &on_sync) {
                // The loop is gone when nobody hears this, and then it no longer matters.
                let _ = news.send(DiskNews::Failed(error));
            }
        })?;
        Ok((DiskThread { jobs, busy, wait }, thread))
    }

    /// Hands records over; when the thread is gone the loop hears of it by [`DiskNews::Failed`].
    pub(crate) fn write(&self, batch: Batch) {
        let _ = self.jobs.send(Job::Write(batch));
    }

    /// The directory is from now on for builds that can apply this version.
    pub(crate) fn need_version(&self, version: ApplyVersion) {
        let _ = self.jobs.send(Job::NeedVersion(version));
    }
}

fn run(
    mut wal: Wal,
    arrivals: &Receiver<Job>,
    news: &UnboundedSender<DiskNews>,
    busy: &BusySince,
    counters: &Counters,
    on_sync: &OnSync,
) -> Result<(), WalError> {
    let mut room = Room { is_short: false, next_look: Instant::now() };
    let mut next_probe = Instant::now() + PROBE_EVERY;
    loop {
        room.look(&mut wal, counters);
        let until_probe = next_probe.saturating_duration_since(Instant::now());
        let pause = if room.is_short { until_probe.min(LOOK_IDLE_EVERY) } else { until_probe };
        let first = match arrivals.recv_timeout(pause) {
            Ok(job) => job,
            Err(RecvTimeoutError::Timeout) if Instant::now() < next_probe => continue,
            Err(RecvTimeoutError::Timeout) => {
                busy.start();
                wal.probe()?;
                busy.end();
                next_probe = Instant::now() + PROBE_EVERY;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => {
                wal.sync()?;
                // The log's last word, so that the next start knows how far it was durable.
                return wal.probe();
            }
        };
        busy.start();
        let (mut last, mut wants_sync) = (0, false);
        let mut take = |wal: &mut Wal, job: Job| -> Result<(), WalError> {
            let batch = match job {
                Job::Write(batch) => batch,
                Job::NeedVersion(version) => return wal.need_version(version),
            };
            for (number, record) in &batch {
                wal.append(record)?;
                wants_sync |= record.wants_sync();
                last = *number;
            }
            Ok(())
        };
        take(&mut wal, first)?;
        while let Ok(more) = arrivals.try_recv() {
            take(&mut wal, more)?;
        }
        if wants_sync {
            let start = Instant::now();
            wal.sync()?;
            let took = start.elapsed();
            counters.on_sync(took);
            on_sync(took);
            if news.send(DiskNews::Durable { number: last, batches: wal.durable_batches() }).is_err() {
                return Ok(());
            }
        } else {
            wal.write()?;
        }
        busy.end();
        next_probe = Instant::now() + PROBE_EVERY;
    }
}
