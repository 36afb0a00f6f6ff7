//! Proxies between peers: [`Proxies`]. One listener per member; who dials is read from the first frame of a connection.
//!
//! ```text
//!    n1 ──hello, from n1──► [proxy of n2] ──► n2        one line per direction: (1, 2) and (2, 1)
//!                           reader ──► queue ──► writer
//!                             │ half-open: stops      │ held: waits, and what waits arrives late
//!                             │ bandwidth: sleeps     │ delayed: waits for each chunk's time
//! ```
//!
//! A cut tells nobody: bytes and even the end of a connection wait until the line is healed. A connection that has waited
//! as long as the kernel would have tried (`TCP_USER_TIMEOUT` of the peer links) is then reset instead of delivered. A
//! dialler that is cut off does not reach anybody.

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use hustings_world::dice::Dice;
use prost::Message as _;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// A dialler has this long to say who it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest first frame, with what stands before it.
const HELLO_BYTES_MAX: usize = 80 << 10;
/// Bytes before the payload of the first frame: the magic, a length, a checksum.
const HELLO_HEAD: usize = 16;
/// Bytes per read, and chunks that may wait on a line that is held.
const CHUNK_BYTES: usize = 16 << 10;
const CHUNKS_MAX: usize = 4_096;
/// The kernel gives a peer link up when what was sent is not acknowledged for so long.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);

/// A direction between two members, by their places from 1 on; 0 is a member that has no id yet.
pub type Direction = (u64, u64);

/// The place of each id: a member that is replaced comes back with another.
type Places = Arc<Mutex<BTreeMap<u64, u64>>>;

/// The state of one direction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Line {
    /// Moment since which nothing arrives; `None` while it passes.
    held_since: Option<Instant>,
    /// Whether nothing is read any more.
    is_half_open: bool,
    /// Bytes that pass per second.
    bytes_per_second: Option<u64>,
    /// The shortest and the longest time on the way.
    delay: (Duration, Duration),
    /// Connections of an earlier number are broken.
    resets: u64,
}

type Board = BTreeMap<Direction, Line>;

/// Counts of what passed and what was hindered, so that nobody believes in faults that did nothing.
#[derive(Debug, Default)]
pub struct Passed {
    /// Connections that peers opened.
    pub connections: AtomicU64,
    /// Bytes that arrived at the other end.
    pub bytes: AtomicU64,
    /// Chunks that waited for a line to heal, for their time, or for the bandwidth.
    pub hindered: AtomicU64,
    /// Connections that were reset.
    pub resets: AtomicU64,
}

/// All proxies of a cluster.
pub struct Proxies {
    board: watch::Sender<Board>,
    places: Places,
    /// Counts of what passed.
    pub passed: Arc<Passed>,
}

impl Proxies {
    /// A proxy in front of each member's peer address, in the order of ids; gives their own addresses.
    pub async fn start(seed: u64, targets: &[SocketAddr]) -> Result<(Proxies, Vec<SocketAddr>)> {
        let all = 0..=targets.len() as u64;
        let directions = all.clone().flat_map(|from| all.clone().map(move |to| (from, to)));
        let board: Board = directions.map(|direction| (direction, Line::default())).collect();
        let places = Arc::new(Mutex::new(all.clone().map(|id| (id, id)).collect()));
        let proxies = Proxies { board: watch::Sender::new(board), places, passed: Arc::default() };
        let mut addresses = Vec::new();
        for (place, target) in all.skip(1).zip(targets) {
            let listener = hustings_testbed::free_listener().context("no port for a proxy")?;
            listener.set_nonblocking(true)?;
            let listener = TcpListener::from_std(listener)?;
            addresses.push(listener.local_addr()?);
            let (board, places) = (proxies.board.subscribe(), proxies.places.clone());
            let way = Way { place, target: *target, seed, board, places, passed: proxies.passed.clone() };
            tokio::spawn(accept(listener, way));
        }
        Ok((proxies, addresses))
    }

    /// The member at this place has this id from now on.
    pub fn know(&self, id: u64, place: u64) {
        self.places.lock().expect("nobody panics with it").insert(id, place);
    }

    /// Changes the state of some directions.
    pub fn set(&self, directions: &[Direction], change: impl Fn(&mut Line)) {
        self.board.send_modify(|board| {
            for direction in directions {
                // A direction between members that do not exist is nobody's.
                if let Some(line) = board.get_mut(direction) {
                    change(line);
                }
            }
        });
    }

    /// Changes the state of all directions.
    pub fn set_all(&self, change: impl Fn(&mut Line)) {
        self.board.send_modify(|board| board.values_mut().for_each(&change));
    }
}

impl Line {
    /// Holds the line: nothing arrives from now on.
    pub fn hold(&mut self) {
        self.held_since = self.held_since.or(Some(Instant::now()));
    }

    /// Stops reading: nothing is read from now on.
    pub fn half_open(&mut self) {
        self.is_half_open = true;
    }

    /// Limits the line to so many bytes per second.
    pub fn narrow(&mut self, bytes_per_second: u64) {
        self.bytes_per_second = Some(bytes_per_second.max(1));
    }

    /// Everything takes between these times.
    pub fn delay(&mut self, least: Duration, most: Duration) {
        self.delay = (least, most);
    }

    /// Breaks the connections that are open.
    pub fn reset(&mut self) {
        self.resets += 1;
    }

    /// Everything but the delay is as it was; what was held for too long breaks.
    pub fn heal(&mut self) {
        if self.held_since.take().is_some_and(|since| since.elapsed() >= UNACKNOWLEDGED_MAX) {
            self.reset();
        }
        self.is_half_open = false;
        self.bytes_per_second = None;
    }
}

/// The way to one member.
#[derive(Clone)]
struct Way {
    place: u64,
    target: SocketAddr,
    seed: u64,
    board: watch::Receiver<Board>,
    places: Places,
    passed: Arc<Passed>,
}

/// One direction of one connection.
struct Carrier {
    direction: Direction,
    board: watch::Receiver<Board>,
    passed: Arc<Passed>,
    dice: Dice,
}

/// The part of the handshake that tells who speaks (`hustings-node`, `frame.rs`).
#[derive(Clone, PartialEq, prost::Message)]
struct Introduction {
    #[prost(uint64, tag = "4")]
    from: u64,
}

async fn accept(listener: TcpListener, way: Way) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(carry_both_ways(stream, way.clone()))),
            // Out of descriptors, most likely: the diallers try again.
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Reads the first frame; gives it and who speaks.
async fn introduction(stream: &mut TcpStream) -> Option<(BytesMut, u64)> {
    let mut buffer = BytesMut::new();
    loop {
        if let Some(head) = buffer.get(..HELLO_HEAD) {
            let length = u32::from_le_bytes(head[8..12].try_into().ok()?) as usize;
            if HELLO_HEAD + length > HELLO_BYTES_MAX {
                return None;
            }
            if let Some(payload) = buffer.get(HELLO_HEAD..HELLO_HEAD + length) {
                let from = Introduction::decode(payload).ok()?.from;
                return Some((buffer, from));
            }
        }
        if stream.read_buf(&mut buffer).await.ok()? == 0 {
            return None;
        }
    }
}

async fn carry_both_ways(mut stream: TcpStream, mut way: Way) -> Option<()> {
    let (hello, from) = timeout(HELLO_TIMEOUT, introduction(&mut stream)).await.ok()??;
    let from = way.places.lock().expect("nobody panics with it").get(&from).copied().unwrap_or(0);
    let (there, back) = ((from, way.place), (way.place, from));
    // A dialler that is cut off reaches nobody; one that gives up meanwhile never called.
    let is_open = |board: &Board| board.get(&there).is_some_and(|line| line.held_since.is_none());
    let mut nothing = [0; 1];
    tokio::select! {
        open = way.board.wait_for(is_open) => drop(open.ok()?),
        _ = stream.peek(&mut nothing) => return None,
    }
    let resets = way.board.borrow().get(&there)?.resets;
    let target = TcpStream::connect(way.target).await.ok()?;
    for end in [&stream, &target] {
        end.set_nodelay(true).ok()?;
    }
    let number = way.passed.connections.fetch_add(1, Ordering::Relaxed);
    let sockets =
        [socket2::SockRef::from(&stream).try_clone().ok()?, socket2::SockRef::from(&target).try_clone().ok()?];
    let carrier = |direction, salt| Carrier {
        direction,
        board: way.board.clone(),
        passed: way.passed.clone(),
        dice: Dice::new(way.seed, number, salt),
    };
    let (from_dialler, to_dialler) = stream.into_split();
    let (from_target, to_target) = target.into_split();
    let is_reset = |board: &Board| board.get(&there).is_none_or(|line| line.resets != resets);
    let mut board = way.board.clone();
    tokio::select! {
        () = carrier(there, 1).carry(hello.freeze(), from_dialler, to_target) => {}
        () = carrier(back, 2).carry(Bytes::new(), from_target, to_dialler) => {}
        _ = board.wait_for(is_reset) => {
            way.passed.resets.fetch_add(1, Ordering::Relaxed);
            for socket in &sockets {
                // Else it would end politely.
                let _ = socket.set_linger(Some(Duration::ZERO));
            }
        }
    }
    Some(())
}

impl Carrier {
    /// Carries until the end of the sender has been delivered. A receiver that is gone is not told to the sender: that is the
    /// other direction's business.
    async fn carry(self, first: Bytes, reading: OwnedReadHalf, writing: OwnedWriteHalf) {
        let (queue, arrivals) = mpsc::channel(CHUNKS_MAX);
        let Carrier { direction, board, passed, dice } = self;
        let reader = read(direction, board.clone(), passed.clone(), dice, first, reading, queue);
        tokio::join!(reader, write(direction, board, passed, arrivals, writing));
    }
}

async fn read(
    direction: Direction,
    mut board: watch::Receiver<Board>,
    passed: Arc<Passed>,
    mut dice: Dice,
    first: Bytes,
    mut reading: OwnedReadHalf,
    queue: mpsc::Sender<(Instant, Bytes)>,
) {
    if !first.is_empty() && queue.send((Instant::now(), first)).await.is_err() {
        return;
    }
    loop {
        let line = board.borrow_and_update().get(&direction).cloned().unwrap_or_default();
        // On a narrow line, twenty small chunks a second instead of a large one every few seconds.
        let bytes_max = line.bytes_per_second.map_or(CHUNK_BYTES, |rate| (rate as usize / 20).clamp(64, CHUNK_BYTES));
        let mut buffer = BytesMut::with_capacity(bytes_max);
        let read = tokio::select! {
            read = reading.read_buf(&mut buffer), if !line.is_half_open => read,
            changed = board.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        // An end and an error are the same to the receiver, which hears of it when all before it has arrived.
        let Ok(read @ 1..) = read else { return };
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let way = Duration::from_micros(dice.between(micros(line.delay.0), micros(line.delay.1)));
        if !way.is_zero() || line.bytes_per_second.is_some() {
            passed.hindered.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(rate) = line.bytes_per_second {
            sleep(Duration::from_secs_f64(read as f64 / rate as f64)).await;
        }
        if queue.send((Instant::now() + way, buffer.freeze())).await.is_err() {
            return;
        }
    }
}

async fn write(
    direction: Direction,
    mut board: watch::Receiver<Board>,
    passed: Arc<Passed>,
    mut arrivals: mpsc::Receiver<(Instant, Bytes)>,
    mut writing: OwnedWriteHalf,
) {
    let is_open = |board: &Board| board.get(&direction).is_none_or(|line| line.held_since.is_none());
    let mut is_receiver_gone = false;
    while let Some((due, bytes)) = arrivals.recv().await {
        sleep_until(due).await;
        if !is_open(&board.borrow()) {
            passed.hindered.fetch_add(1, Ordering::Relaxed);
        }
        if board.wait_for(is_open).await.is_err() {
            return;
        }
        is_receiver_gone = is_receiver_gone || writing.write_all(&bytes).await.is_err();
        passed.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
    // The end, too, arrives only on a line that is open.
    let _ = board.wait_for(is_open).await;
}
