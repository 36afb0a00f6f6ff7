//! One connection to one member: [`Connection`]. It opens a session, or takes one over, and asks.
//!
//! Requests leave in the order in which they are asked, and are answered in that order. A connection that breaks is never
//! repaired: the caller is told that nobody knows the outcome. So each answer belongs to the connection that it was asked
//! on, which is what counting relayed renewals needs.

use super::wire::{self, Ask, Code, FRAME_MAX, Malformed, Reading, SessionId, Stat, XID_EVENT, XID_PING};
use crate::wire::{Stream, Wire};
use hustings_tls::Obstacle;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

/// The reason why there is no answer, or none that was hoped for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The server says no.
    Refused(Code),
    /// The request was perhaps done: the connection ended before its answer.
    Lost,
}

/// A connection, shared by all that ask over it; it is closed, and its session with it, when [`Connection::close`] is called.
#[derive(Clone)]
pub(super) struct Connection {
    shared: Arc<Shared>,
}

struct Shared {
    session: SessionId,
    granted: Duration,
    is_owned: bool,
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    state: Mutex<State>,
    last_zxid: AtomicI64,
    is_over: watch::Sender<bool>,
    tasks: OnceLock<[AbortHandle; 2]>,
}

#[derive(Default)]
struct State {
    next_xid: i32,
    /// Requests that wait for an answer, in the order in which they left.
    waiting: VecDeque<Waiting>,
    /// Departure of the ping that has no answer yet.
    pinged: Option<Instant>,
    /// The hearers of a change of a node's data, or of its children; its end is told to both.
    watches: HashMap<(String, Watch), Vec<oneshot::Sender<()>>>,
}

struct Waiting {
    xid: i32,
    since: Instant,
    answer: oneshot::Sender<Result<Vec<u8>, Failure>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Watch {
    Data,
    Children,
}

/// Rings once, when what was read may have changed, or the connection is over.
pub(super) struct Bell(oneshot::Receiver<()>);

impl Bell {
    /// False when the connection is over.
    pub(super) async fn rings(&mut self) -> bool {
        (&mut self.0).await.is_ok()
    }
}

/// The way to a member, and the user that asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dial<'a> {
    pub(super) wire: &'a Wire,
    pub(super) endpoint: &'a str,
    /// Name and password, as `USER:PASSWORD`.
    pub(super) user: Option<&'a str>,
    /// The session to take over; `None`: a new one.
    pub(super) session: Option<&'a SessionId>,
    /// The last transaction that was seen: a member that is behind it is of no use.
    pub(super) last_zxid: i64,
    pub(super) ttl: Duration,
    /// Time that a member may be silent.
    pub(super) patience: Duration,
}

/// The reason why a member cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unusable {
    /// The session to take over has expired.
    Expired,
    /// Another reason, in words.
    Because(String),
    /// It will be the same next time.
    ForGood(String),
    /// The user is not admitted.
    Denied(String),
}

impl Connection {
    /// Connects, and opens or takes over a session.
    pub(super) async fn open(dial: Dial<'_>) -> Result<Connection, Unusable> {
        let because = |why: &str| Unusable::Because(format!("{}: {why}", dial.endpoint));
        let opening = async {
            let stream = dial.wire.dial(dial.endpoint).await.map_err(|error| because(&error.to_string()))?;
            let (read, mut write) = tokio::io::split(stream);
            let mut read = BufReader::new(read);
            let milliseconds = i32::try_from(dial.ttl.as_millis()).unwrap_or(i32::MAX);
            let hello = wire::connect(dial.session, dial.last_zxid, milliseconds);
            send(&mut write, &hello).await.map_err(|error| because(&error.to_string()))?;
            let answer = frame(&mut read).await.map_err(|error| because(&closed(dial.wire, &error)))?;
            Ok((read, write, answer))
        };
        let opened = timeout(dial.patience, opening).await;
        let (read, write, answer) = opened.map_err(|_| because("it accepts, and does not answer"))??;
        let (session, granted) = welcome(&answer).ok_or_else(|| because("what answers there is no ZooKeeper"))?;
        if session.id == 0 || granted.is_zero() {
            return Err(Unusable::Expired);
        }
        let connection = Connection::start(dial, session, granted, read, write);
        if let Some(user) = dial.user {
            match timeout(dial.patience, connection.ask(Ask::Auth { user })).await {
                Ok(Ok(_)) => {}
                Ok(Err(Failure::Refused(code))) => {
                    let why = format!("{}: {code}; see USER:PASSWORD@ in the store's URL", dial.endpoint);
                    return Err(Unusable::Denied(why));
                }
                _ => return Err(because("it did not answer to the user and password")),
            }
        }
        Ok(connection)
    }

    fn start(
        dial: Dial<'_>,
        session: SessionId,
        granted: Duration,
        read: BufReader<ReadHalf<Stream>>,
        write: WriteHalf<Stream>,
    ) -> Connection {
        let (outgoing, frames) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            session,
            granted,
            is_owned: dial.user.is_some(),
            outgoing,
            state: Mutex::default(),
            last_zxid: AtomicI64::new(dial.last_zxid),
            is_over: watch::Sender::new(false),
            tasks: OnceLock::new(),
        });
        // They end with the connection: they do not hold it.
        let (reader, writer) = (Arc::downgrade(&shared), Arc::downgrade(&shared));
        let (patience, pause) = (dial.patience, granted / 10);
        let reading = tokio::spawn(async move {
            listen(read, &reader).await;
            reader.upgrade().inspect(|shared| shared.end());
        });
        let writing = tokio::spawn(async move {
            speak(write, frames, pause, patience, &writer).await;
            writer.upgrade().inspect(|shared| shared.end());
        });
        let _ = shared.tasks.set([reading.abort_handle(), writing.abort_handle()]);
        Connection { shared }
    }

    /// Whether both are the same connection.
    pub(super) fn is(&self, other: &Connection) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(super) fn session(&self) -> &SessionId {
        &self.shared.session
    }

    /// The time to live of the session, as the server granted it.
    pub(super) fn granted(&self) -> Duration {
        self.shared.granted
    }

    /// The last transaction that this connection has seen.
    pub(super) fn last_zxid(&self) -> i64 {
        self.shared.last_zxid.load(Ordering::Relaxed)
    }

    /// Waits until the connection is over.
    pub(super) async fn over(&self) {
        // It is not dropped: this holds it.
        let _ = self.shared.is_over.subscribe().wait_for(|is_over| *is_over).await;
    }

    /// Ends the connection; the session lives on until it expires.
    pub(super) fn abandon(&self) {
        self.shared.end();
    }

    /// Ends the session, and with it all its entries.
    pub(super) async fn close(&self) {
        let _ = self.ask(Ask::Close).await;
        self.shared.end();
    }

    /// Asks at once; the returned future gives the answer.
    pub(super) fn ask(&self, ask: Ask<'_>) -> impl Future<Output = Result<Vec<u8>, Failure>> + Send + use<> {
        let answer = self.shared.send(&ask);
        async move { answer.await.unwrap_or(Err(Failure::Lost)) }
    }

    /// Asks as [`Self::ask`], with a bell that rings when what was read has changed; for reads with a watch.
    fn ask_and_watch(
        &self,
        ask: Ask<'_>,
        key: (String, Watch),
    ) -> impl Future<Output = (Result<Vec<u8>, Failure>, Bell)> + Send + use<> {
        let (ringer, bell) = oneshot::channel();
        {
            // Before the request leaves: the event may come right behind the answer.
            let mut state = self.shared.state();
            let ringers = state.watches.entry(key).or_default();
            ringers.retain(|other| !other.is_closed());
            ringers.push(ringer);
        }
        let answer = self.ask(ask);
        async move { (answer.await, Bell(bell)) }
    }

    /// The data of a node, if it is there.
    pub(super) fn data(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Option<(Vec<u8>, Stat)>, Failure>> + Send + use<> {
        let answer = self.ask(Ask::Data { path, watch: false });
        async move { if_there(answer.await, data_of) }
    }

    /// The facts about a node, if it is there.
    pub(super) fn stat(&self, path: &str) -> impl Future<Output = Result<Option<Stat>, Failure>> + Send + use<> {
        let answer = self.ask(Ask::Exists { path, watch: false });
        async move { if_there(answer.await, |reading| reading.stat()) }
    }

    /// Whether a node is there; rings when it comes, goes, or is written.
    pub(super) fn watch_stat(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<(Option<Stat>, Bell), Failure>> + Send + use<> {
        let asked = self.ask_and_watch(Ask::Exists { path, watch: true }, (path.to_owned(), Watch::Data));
        async move {
            let (answer, bell) = asked.await;
            Ok((if_there(answer, |reading| reading.stat())?, bell))
        }
    }

    /// The names of a node's children, if it is there.
    pub(super) fn children(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Option<Vec<String>>, Failure>> + Send + use<> {
        let answer = self.ask(Ask::Children { path, watch: false });
        async move { if_there(answer.await, |reading| reading.texts()) }
    }

    /// Reads as [`Self::children`]; rings when a child comes or goes, or the node goes. It does not ring if the node is not there.
    pub(super) fn watch_children(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Option<(Vec<String>, Bell)>, Failure>> + Send + use<> {
        let asked = self.ask_and_watch(Ask::Children { path, watch: true }, (path.to_owned(), Watch::Children));
        async move {
            let (answer, bell) = asked.await;
            Ok(if_there(answer, |reading| reading.texts())?.map(|names| (names, bell)))
        }
    }

    /// All of these, or none; on refusal, which one it was.
    pub(super) fn multi(
        &self,
        asks: Vec<Ask<'_>>,
    ) -> impl Future<Output = Result<Result<(), (usize, Code)>, Failure>> + Send + use<> {
        let answer = self.ask(Ask::Multi(asks));
        async move { Reading(&answer.await?).multi().map_err(|Malformed| Failure::Lost) }
    }
}

fn if_there<T>(
    answer: Result<Vec<u8>, Failure>,
    read: impl FnOnce(&mut Reading<'_>) -> Result<T, Malformed>,
) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => read(&mut Reading(&answer)).map(Some).map_err(|Malformed| Failure::Lost),
        Err(Failure::Refused(Code::NO_NODE)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn data_of(reading: &mut Reading<'_>) -> Result<(Vec<u8>, Stat), Malformed> {
    Ok((reading.bytes()?.to_vec(), reading.stat()?))
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, ask: &Ask<'_>) -> oneshot::Receiver<Result<Vec<u8>, Failure>> {
        let (answer, receiver) = oneshot::channel();
        // Numbered and sent under one lock: the order of both is one.
        let mut state = self.state();
        if *self.is_over.borrow() {
            return receiver;
        }
        state.next_xid = state.next_xid.wrapping_add(1) & i32::MAX;
        let xid = state.next_xid;
        state.waiting.push_back(Waiting { xid, since: Instant::now(), answer });
        // A writer that has ended has told so.
        let _ = self.outgoing.send(ask.frame(xid, self.is_owned));
        receiver
    }

    /// Tells all requests that wait that their outcome is unknown.
    fn end(&self) {
        let mut state = self.state();
        self.is_over.send_replace(true);
        state.waiting.clear();
        state.watches.clear();
        self.tasks.get().into_iter().flatten().for_each(AbortHandle::abort);
    }

    fn on_ping(&self) {
        self.state().pinged.get_or_insert_with(Instant::now);
    }

    /// Whether the oldest question has waited for its answer for longer than this.
    fn is_silent(&self, patience: Duration) -> bool {
        let state = self.state();
        let oldest = state.waiting.front().map(|waiting| waiting.since);
        oldest.into_iter().chain(state.pinged).any(|since| since.elapsed() > patience)
    }

    fn take_in(&self, frame: &[u8]) -> Result<(), Malformed> {
        let mut reading = Reading(frame);
        let (xid, zxid, code) = (reading.i32()?, reading.i64()?, reading.i32()?);
        self.last_zxid.fetch_max(zxid, Ordering::Relaxed);
        match xid {
            XID_PING => self.state().pinged = None,
            XID_EVENT => {
                let (kind, _, path) = (reading.i32()?, reading.i32()?, reading.text()?);
                self.ring(kind, path);
            }
            xid => {
                let waiting = self.state().waiting.pop_front().filter(|waiting| waiting.xid == xid).ok_or(Malformed)?;
                let answer = match code {
                    0 => Ok(reading.0.to_vec()),
                    code => Err(Failure::Refused(Code(code))),
                };
                // The caller may wait no longer.
                let _ = waiting.answer.send(answer);
            }
        }
        Ok(())
    }

    fn ring(&self, kind: i32, path: &str) {
        let told: &[Watch] = match kind {
            1 | 3 => &[Watch::Data],
            2 => &[Watch::Data, Watch::Children],
            4 => &[Watch::Children],
            _ => &[],
        };
        let mut state = self.state();
        for watch in told {
            for ringer in state.watches.remove(&(path.to_owned(), *watch)).unwrap_or_default() {
                let _ = ringer.send(());
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.tasks.get().into_iter().flatten().for_each(AbortHandle::abort);
    }
}

/// Reads until the connection breaks, or what comes is no ZooKeeper's.
async fn listen(mut read: BufReader<ReadHalf<Stream>>, shared: &Weak<Shared>) {
    while let Ok(frame) = frame(&mut read).await {
        let Some(shared) = shared.upgrade() else { return };
        if shared.take_in(&frame).is_err() {
            tracing::warn!("a ZooKeeper answered what cannot be read: the connection is given up");
            return;
        }
    }
}

/// Writes what is asked, and a ping when nothing is; until the connection breaks, or an answer does not come in time.
async fn speak(
    mut write: WriteHalf<Stream>,
    mut frames: mpsc::UnboundedReceiver<Vec<u8>>,
    pause: Duration,
    patience: Duration,
    shared: &Weak<Shared>,
) {
    loop {
        let asked = timeout(pause, frames.recv()).await;
        let Some(shared) = shared.upgrade() else { return };
        let frame = match asked {
            Ok(Some(frame)) => frame,
            Ok(None) => return,
            Err(_) => {
                shared.on_ping();
                wire::ping()
            }
        };
        let is_written = matches!(timeout(patience, send(&mut write, &frame)).await, Ok(Ok(())));
        if !is_written || shared.is_silent(patience) {
            return;
        }
    }
}

/// Writes a frame, and sees it off: in TLS it may stand in a buffer.
async fn send(write: &mut WriteHalf<Stream>, frame: &[u8]) -> std::io::Result<()> {
    write.write_all(frame).await?;
    write.flush().await
}

/// The reason why a member ended the connection instead of answering, as far as can be told.
fn closed(wire: &Wire, error: &std::io::Error) -> String {
    let why = "it closed the connection: it does not serve, or is behind, or is no ZooKeeper";
    match wire.security().tls() {
        // A port in TLS answers plain text with an alert, or with nothing.
        None => format!("{why}, or its port speaks TLS: then say so, `?cacert=FILE` behind the store's URL"),
        // A certificate that is not good enough is told only after the handshake.
        Some(_) if Obstacle::behind(error) == Some(Obstacle::OurCertificate) => {
            "it asks for a certificate that it knows: give cert=FILE and key=FILE behind the `?` of the store's URL"
                .to_owned()
        }
        Some(_) => format!("{why}: {error}"),
    }
}

/// One frame without its length.
async fn frame(read: &mut (impl AsyncReadExt + Unpin)) -> std::io::Result<Vec<u8>> {
    let length = usize::try_from(read.read_i32().await?).unwrap_or(usize::MAX);
    if length > FRAME_MAX {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let mut frame = vec![0; length];
    read.read_exact(&mut frame).await?;
    Ok(frame)
}

/// The session and its time to live, as a server answers.
fn welcome(answer: &[u8]) -> Option<(SessionId, Duration)> {
    let mut reading = Reading(answer);
    let version = reading.i32().ok()?;
    let timeout = reading.i32().ok()?;
    let id = reading.i64().ok()?;
    let password = reading.bytes().ok()?.to_vec();
    let granted = Duration::from_millis(u64::try_from(timeout).ok()?);
    (version == 0 && password.len() == 16).then_some((SessionId { id, password }, granted))
}
