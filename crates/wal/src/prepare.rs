//! Segments made ahead of need, on a thread of their own, and old ones put to use again: [`Preparer`].
//!
//! Zeroing a segment takes tens of milliseconds. The thread does it while the segment before fills up, so that the hot
//! path finds the next one ready. With [`Preparation::Inline`] there is no thread, and everything happens at the moment of
//! need: a simulated world stays deterministic.

use crate::disk::Disk;
use crate::error::WalError;
use crate::segment::{self, Header, Segment};
use crate::wal::Preparation;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const SPARE: &str = "wal-spare.tmp";
/// Pause of the thread before it tries again to open a file while too many are open, or to make one while there is no room.
const PAUSE: Duration = Duration::from_millis(20);

enum Job {
    /// Make a segment ahead of need: a lack of room is reported while the segment before has some left.
    Make(Header),
    /// Make a segment for which the log waits.
    MakeNow(Header),
    Retire {
        name: String,
        bytes: u64,
    },
}

/// Makes and retires segments.
pub(crate) struct Preparer {
    mode: Mode,
    /// Whether a segment was asked for and has not been taken yet.
    is_underway: bool,
    /// A finished segment that is ready to be taken.
    adopted: Option<Segment>,
    failure: Option<WalError>,
    wait: Wait,
}

enum Mode {
    Inline(Worker),
    Thread {
        jobs: Option<Sender<Job>>,
        made: Receiver<Result<Segment, WalError>>,
        is_cancelled: Arc<AtomicBool>,
        thread: Option<JoinHandle<()>>,
    },
}

/// Why the log waits for its next segment, for a thread that does not wait with it.
#[derive(Clone, Default, Debug)]
pub struct Wait(Arc<Mutex<Option<String>>>);

impl Wait {
    /// The reason; `None` while it does not wait.
    pub fn why(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, why: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }
}

/// Does the work, on whichever thread.
struct Worker {
    disk: Arc<dyn Disk>,
    wait: Wait,
    /// Length of the spare file, when there is one.
    spare_bytes: Option<u64>,
    is_cancelled: Arc<AtomicBool>,
}

impl Worker {
    /// One that cannot be made for want of room leaves none taken; the spare stays a spare.
    fn make(&mut self, header: &Header) -> Result<Segment, WalError> {
        let spare_bytes = self.spare_bytes;
        let spare = self.spare_bytes.take_if(|bytes| *bytes == header.bytes).map(|_| SPARE);
        let made = Segment::make(&*self.disk, header, spare, &|| self.is_cancelled.load(Ordering::Relaxed));
        if made.as_ref().is_err_and(WalError::is_shortage) {
            self.spare_bytes = spare_bytes;
            // Found again, and gone through again, at the next try.
            let _ = self.disk.remove(segment::UNFINISHED);
        }
        made
    }

    /// As [`Worker::make`], but waits as long as `is_worth_waiting` says so of the error: nothing of the log was written then, and the log
    /// would have to end for want of the segment, though clients that leave give descriptors back, and operators make room.
    fn make_patiently(
        &mut self,
        header: &Header,
        is_worth_waiting: fn(&WalError) -> bool,
    ) -> Result<Segment, WalError> {
        loop {
            match self.make(header) {
                Err(error) if is_worth_waiting(&error) && !self.is_cancelled.load(Ordering::Relaxed) => {
                    self.wait.set(Some(error.cause()));
                    std::thread::sleep(PAUSE);
                }
                result => {
                    self.wait.set(None);
                    return result;
                }
            }
        }
    }

    /// Keeps an old segment as the spare, or removes it. An error is none of the log's: the file is found again, and gone
    /// through again, at the next start.
    fn retire(&mut self, name: &str, bytes: u64) {
        if self.spare_bytes.is_some_and(|spare| spare >= bytes) {
            let _ = self.disk.remove(name);
            return;
        }
        // The rename must be durable before the file is overwritten, or a crash could bring the old name back with it.
        let renamed = self.disk.rename(name, SPARE).and_then(|()| self.disk.sync_directory());
        self.spare_bytes = renamed.is_ok().then_some(bytes);
    }
}

impl Preparer {
    pub(crate) fn new(disk: Arc<dyn Disk>, preparation: Preparation) -> Result<Preparer, WalError> {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let location = disk.location("");
        let wait = Wait::default();
        let mut worker = Worker { disk, wait: wait.clone(), spare_bytes: None, is_cancelled: is_cancelled.clone() };
        let mode = match preparation {
            Preparation::Inline => Mode::Inline(worker),
            Preparation::Background => {
                let (jobs, todo) = channel();
                let (done, made) = channel();
                let work = move || {
                    while let Ok(job) = todo.recv() {
                        match job {
                            Job::Make(header) => {
                                let made = worker.make_patiently(&header, WalError::is_for_want_of_descriptors);
                                if done.send(made).is_err() {
                                    break;
                                }
                            }
                            Job::MakeNow(header) => {
                                if done.send(worker.make_patiently(&header, WalError::is_shortage)).is_err() {
                                    break;
                                }
                            }
                            Job::Retire { name, bytes } => worker.retire(&name, bytes),
                        }
                    }
                };
                let thread = std::thread::Builder::new().name("wal-prepare".into()).spawn(work);
                let thread = thread.map_err(|source| WalError::io("starting a thread for", location, None, source))?;
                Mode::Thread { jobs: Some(jobs), made, is_cancelled, thread: Some(thread) }
            }
        };
        Ok(Preparer { mode, is_underway: false, adopted: None, failure: None, wait })
    }

    /// Why the log waits for a segment.
    pub(crate) fn wait(&self) -> Wait {
        self.wait.clone()
    }

    /// Asks for a segment ahead of need.
    pub(crate) fn ask(&mut self, header: Header) {
        self.failure = None;
        if let Mode::Thread { jobs: Some(jobs), .. } = &self.mode {
            // A thread that is gone shows when the segment is taken.
            self.is_underway = jobs.send(Job::Make(header)).is_ok();
        }
    }

    /// The reason why the last segment that was asked for could not be made, until the next is asked for. Does not wait.
    pub(crate) fn failure(&mut self) -> Option<&WalError> {
        if let (true, Mode::Thread { made, .. }) = (self.is_underway, &self.mode) {
            match made.try_recv() {
                Ok(Ok(segment)) => self.adopted = Some(segment),
                Ok(Err(error)) => self.failure = Some(error),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return self.failure.as_ref(),
            }
            self.is_underway = false;
        }
        self.failure.as_ref()
    }

    /// Takes over a segment that was made before the last restart and never written to, instead of asking for one.
    pub(crate) fn adopt(&mut self, segment: Segment) {
        self.adopted = Some(segment);
    }

    /// Whether the segment that was asked for is ready to be taken.
    pub(crate) fn is_ready(&self) -> bool {
        self.adopted.is_some()
    }

    /// The segment that was asked for, when that was this one and it could be made; else it is made now. Waits, with a thread also
    /// for room on the disk and for descriptors: what the log holds is whole meanwhile, and what waits was not acknowledged.
    pub(crate) fn take(&mut self, header: &Header) -> Result<Segment, WalError> {
        if let Some(segment) = self.adopted.take().filter(|segment| segment.header == *header) {
            return Ok(segment);
        }
        match &mut self.mode {
            Mode::Inline(worker) => worker.make(header),
            Mode::Thread { jobs, made, .. } => {
                let gone = || WalError::Io {
                    action: "preparing",
                    file: crate::segment::name(header.sequence),
                    offset: None,
                    error: std::io::Error::other("the thread that prepares segments is gone"),
                };
                if std::mem::take(&mut self.is_underway) {
                    // Not made, or too small: made anew below, from a new file and not by trying the old one again.
                    if let Ok(segment) = made.recv().map_err(|_| gone())?
                        && segment.header == *header
                    {
                        return Ok(segment);
                    }
                }
                let jobs = jobs.as_ref().ok_or_else(gone)?;
                jobs.send(Job::MakeNow(header.clone())).map_err(|_| gone())?;
                made.recv().map_err(|_| gone())?
            }
        }
    }

    /// Puts a segment that is not needed any more to use again.
    pub(crate) fn retire(&mut self, name: String, bytes: u64) {
        match &mut self.mode {
            Mode::Inline(worker) => worker.retire(&name, bytes),
            Mode::Thread { jobs: Some(jobs), .. } => {
                // A thread that is gone shows when a segment is taken; an old file in the way is harmless.
                let _ = jobs.send(Job::Retire { name, bytes });
            }
            Mode::Thread { jobs: None, .. } => {}
        }
    }
}

impl Drop for Preparer {
    /// Waits for the thread, so that nobody writes to the directory after the log is gone and its lock may be taken.
    fn drop(&mut self) {
        if let Mode::Thread { jobs, is_cancelled, thread, .. } = &mut self.mode {
            is_cancelled.store(true, Ordering::Relaxed);
            drop(jobs.take());
            if let Some(thread) = thread.take() {
                // A panic there has been reported by the panic hook already.
                let _ = thread.join();
            }
        }
    }
}
