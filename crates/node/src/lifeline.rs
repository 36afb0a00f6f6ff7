//! Lifelines: connections that say nothing but their end, by which a peer hears at once that this process has died.
//!
//! ```text
//!    this process                                     a peer
//!    hustings-loop    link, messages ◄──────────────► hustings-loop
//!    hustings-life    lifeline, no message ─────────► the same link's task: at its end, the link ends
//! ```
//!
//! A process that is killed frees its memory before the kernel closes its descriptors: a link ends milliseconds after the death, and
//! tens of milliseconds where there is much to free or many clients stand before it. But a thread that has a table of descriptors for
//! itself takes it along when it ends, and at a kill all threads end at once. So one thread holds nothing but lifelines, in a table
//! of its own ([`Holder`]).
//!
//! Each hello offers a token. The other end dials back, shows the token, and keeps the connection open ([`Lifelines`]). Before it
//! closes the connection while its process lives, it says good-bye with a byte. An end after a byte, a reset or a timeout means
//! nothing. Nor does the end of a lifeline whose process was seen alive afterwards, for as long as that process runs ([`Outlived`]).
//! Where a lifeline cannot be had, the end of the link tells, later.
//!
//! Read next: [`crate::link`], whose tasks wait for the end of a lifeline.

use crate::cut::Cut;
use crate::frame::LinkError;
use crate::secret;
use bytes::Bytes;
use hustings_core::NodeId;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::future::pending;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;

/// Begins a lifeline, where a link begins with [`crate::frame::MAGIC`].
pub(crate) const MAGIC: &[u8; 8] = b"lifeline";

/// A dial of a lifeline, and each word on it, may take this long; other lifelines wait meanwhile.
const DIAL_MAX: Duration = Duration::from_secs(1);
/// Longest time that a stopping node waits for the lifelines' thread, which may be dialling.
const GOOD_BYE_MAX: Duration = Duration::from_millis(200);
/// The kernel probes an idle lifeline this often: otherwise a firewall may drop it, and one to a vanished machine would stay.
const KEEPALIVE: socket2::TcpKeepalive =
    socket2::TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
/// Pause before a lifeline that nobody took, or that did not last, is tried again, and how often it is tried beside one link.
const DIAL_AGAIN_AFTER: Duration = Duration::from_secs(5);
const DIALS_MAX: u8 = 5;
/// Niceness of the thread, as of the loop's: it does next to nothing, and its end is waited for.
const NICE: i32 = -5;

/// Lifelines that peers may hold here, by the tokens that were offered to them.
#[derive(Default)]
pub(crate) struct Lifelines(Mutex<HashMap<Bytes, oneshot::Sender<std::net::TcpStream>>>);

/// A lifeline that the other end of a link may hold. Dropping this withdraws the offer.
pub(crate) struct Expected {
    token: Bytes,
    lifelines: Arc<Lifelines>,
    line: Option<oneshot::Receiver<std::net::TcpStream>>,
}

impl Lifelines {
    /// Offers a token to the peer, and expects it back with the peer's lifeline.
    pub(crate) fn expect(self: &Arc<Self>) -> Expected {
        let (sender, line) = oneshot::channel();
        let token = secret::nonce();
        self.expected().insert(token.clone(), sender);
        Expected { token, lifelines: self.clone(), line: Some(line) }
    }

    /// Reads the token of a caller that has begun a lifeline, and gives the connection to the link's task.
    pub(crate) async fn receive(&self, mut stream: tokio::net::TcpStream) -> Result<(), LinkError> {
        let mut magic = [0; MAGIC.len()];
        stream.read_exact(&mut magic).await?;
        if magic != *MAGIC {
            return Err(LinkError::Stranger(format!("it began with {:?}", Bytes::copy_from_slice(&magic))));
        }
        let mut token = [0; secret::NONCE];
        stream.read_exact(&mut token).await?;
        let expecting = self.expected().remove(&token[..]);
        match expecting {
            Some(expecting) => drop(expecting.send(stream.into_std()?)),
            None => tracing::debug!("a lifeline to a link that is not here, or no more"),
        }
        Ok(())
    }

    fn expected(&self) -> MutexGuard<'_, HashMap<Bytes, oneshot::Sender<std::net::TcpStream>>> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.lifelines.expected().remove(&self.token);
    }
}

impl Expected {
    /// The token that the other end is to show.
    pub(crate) fn token(&self) -> Bytes {
        self.token.clone()
    }

    /// Waits until the lifeline was held and has ended; for ever where it never is. Cut off, this node does not hear of it.
    pub(crate) async fn ended(&mut self, cut: &Cut) {
        if self.hear_out().await.is_none() {
            pending::<()>().await;
        }
        cut.healed().await;
    }

    /// Reads until the plain end; `None` for any other.
    async fn hear_out(&mut self) -> Option<()> {
        let socket = self.line.take()?.await.ok()?;
        socket2::SockRef::from(&socket).set_tcp_keepalive(&KEEPALIVE).ok()?;
        let mut line = tokio::net::TcpStream::from_std(socket).ok()?;
        (line.read(&mut [0]).await.ok()? == 0).then_some(())
    }
}

/// Peers whose process was seen to live after its lifeline had ended: something between the members ends connections that are idle.
#[derive(Default)]
pub(crate) struct Outlived {
    /// Process whose lifeline ended last, by peer.
    ended: BTreeMap<NodeId, u64>,
    /// Process that was alive after its lifeline had ended, by peer.
    outlived: BTreeMap<NodeId, u64>,
}

impl Outlived {
    /// Forgets peers that are gone for good.
    pub(crate) fn forget(&mut self, is_gone: impl Fn(NodeId) -> bool) {
        self.ended.retain(|peer, _| !is_gone(*peer));
        self.outlived.retain(|peer, _| !is_gone(*peer));
    }

    /// The lifeline of this peer's process has ended.
    pub(crate) fn on_end(&mut self, peer: NodeId, process: u64) {
        self.ended.insert(peer, process);
    }

    /// A link to this process of the peer is up. Returns whether this is the first sign that it outlived its lifeline.
    pub(crate) fn on_up(&mut self, peer: NodeId, process: u64) -> bool {
        self.ended.get(&peer) == Some(&process) && self.outlived.insert(peer, process) != Some(process)
    }

    /// Whether the end of a lifeline of this process tells nothing.
    pub(crate) fn has(&self, peer: NodeId, process: u64) -> bool {
        self.outlived.get(&peer) == Some(&process)
    }
}

/// The thread that holds this node's lifelines at its peers. It ends when this is dropped, and they with it.
pub(crate) struct Holder {
    orders: mpsc::Sender<Order>,
    /// A byte on it says that there is an order, its end that there will be none.
    wake: UnixStream,
    /// Disconnected when the thread has ended.
    has_ended: mpsc::Receiver<()>,
}

enum Order {
    /// Hold a lifeline at the first of these addresses that takes it.
    Hold { session: u64, addresses: Vec<SocketAddr>, token: Bytes },
    /// Let go of it.
    Release { session: u64 },
}

impl Holder {
    /// Starts the thread, and waits until its table of descriptors is its own.
    ///
    /// # Errors
    /// The system gives no thread, or no table to it: a sandbox may forbid it, and a kernel before 5.9 cannot.
    pub(crate) fn start() -> io::Result<Holder> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let (orders, received) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let (running, has_ended) = mpsc::channel::<()>();
        // Open in both tables, so it must be closed in both. The last of the two owners closes it, in the table of its thread; that
        // is this one, which waits until the thread has made a descriptor of its own of it and dropped its share.
        let shared = Arc::new(woken);
        let lent = shared.clone();
        std::thread::Builder::new().name("hustings-life".into()).spawn(move || {
            // On Linux a thread has a priority of its own. One that cannot be changed is as good as before.
            let _ = rustix::process::setpriority_process(None, NICE);
            let own = take_own_table(&lent);
            drop(lent);
            let _running = running;
            match own {
                Ok(woken) => {
                    let _ = ready.send(Ok(()));
                    hold(woken, &received);
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        })?;
        is_ready.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))??;
        drop(shared);
        Ok(Holder { orders, wake, has_ended })
    }

    /// Holds a lifeline for this session, at the first of these addresses that takes it.
    pub(crate) fn hold(&self, session: u64, addresses: Vec<SocketAddr>, token: Bytes) {
        self.order(Order::Hold { session, addresses, token });
    }

    /// Lets go of the lifeline of a session that is over.
    pub(crate) fn release(&self, session: u64) {
        self.order(Order::Release { session });
    }

    fn order(&self, order: Order) {
        // A thread that is gone holds nothing, and a wake that finds no room finds others that were not heard yet.
        let _ = self.orders.send(order);
        let _ = (&self.wake).write(&[0]);
    }
}

impl Drop for Holder {
    /// Waits for a moment until good-bye has been said: a process that ends before it is said looks like one that was killed.
    fn drop(&mut self) {
        let _ = self.wake.shutdown(Shutdown::Both);
        let _ = self.has_ended.recv_timeout(GOOD_BYE_MAX);
    }
}

/// Makes this thread's table of descriptors its own, with nothing in it but `/dev/null` in the standard places and a copy of this one.
fn take_own_table(shared: &UnixStream) -> io::Result<UnixStream> {
    let kept = shared.as_fd().as_raw_fd().cast_unsigned();
    if kept < 3 {
        return Err(io::Error::other(
            "standard input, output or error is closed, and a panic must not write to a lifeline",
        ));
    }
    // Descriptors of other threads stay open in their table. Containers forbid `unshare`, which would do the same, and not this.
    uapi::close_range(kept + 1, u32::MAX, uapi::c::CLOSE_RANGE_UNSHARE)?;
    uapi::close_range(0, kept - 1, 0)?;
    for _ in 0..3 {
        // Open for good: a panic writes to the third.
        let _ = File::open("/dev/null")?.into_raw_fd();
    }
    let own = shared.try_clone()?;
    uapi::close_range(kept, kept, 0)?;
    Ok(own)
}

/// A lifeline that is wanted, or held.
struct Line {
    addresses: Vec<SocketAddr>,
    token: Bytes,
    held: Option<std::net::TcpStream>,
    dials: u8,
}

impl Line {
    /// Whether it is to be dialled.
    fn is_missing(&self) -> bool {
        self.held.is_none() && self.dials < DIALS_MAX
    }

    /// Dials the first address that takes it.
    fn dial(&mut self) {
        self.dials += 1;
        self.held = self.addresses.iter().find_map(|at| dial(at, &self.token).ok());
    }

    /// The process lives on without it.
    fn good_bye(self) {
        let _ = self.held.map(|mut line| line.write(&[0]));
    }
}

/// Does as ordered until nobody orders any more. Nothing is logged here: what a log is written to is open in other threads only.
fn hold(mut woken: UnixStream, orders: &mpsc::Receiver<Order>) {
    let mut lines: BTreeMap<u64, Line> = BTreeMap::new();
    let good_bye = |lines: BTreeMap<u64, Line>| lines.into_values().for_each(Line::good_bye);
    let again = Timespec { tv_sec: DIAL_AGAIN_AFTER.as_secs().cast_signed(), tv_nsec: 0 };
    loop {
        let held = lines.iter().filter_map(|(session, line)| Some((*session, line.held.as_ref()?)));
        let (sessions, held): (Vec<u64>, Vec<_>) = held.unzip();
        let is_missing = lines.values().any(Line::is_missing);
        let held = held.into_iter().map(|line| PollFd::new(line, PollFlags::IN | PollFlags::RDHUP));
        let mut polled: Vec<PollFd<'_>> = std::iter::once(PollFd::new(&woken, PollFlags::IN)).chain(held).collect();
        let is_time = match poll(&mut polled, is_missing.then_some(&again)) {
            Ok(happened) => happened == 0,
            Err(Errno::INTR) => continue,
            Err(_) => return good_bye(lines),
        };
        let is_woken = !polled[0].revents().is_empty();
        let has_happened: Vec<bool> = polled[1..].iter().map(|line| !line.revents().is_empty()).collect();
        for (session, _) in sessions.into_iter().zip(has_happened).filter(|(_, has_happened)| *has_happened) {
            // A peer says nothing on a lifeline: it has let go of it.
            lines.entry(session).and_modify(|line| line.held = None);
        }
        if is_woken && !matches!(woken.read(&mut [0; 64]), Ok(1..)) {
            return good_bye(lines);
        }
        for order in orders.try_iter() {
            match order {
                Order::Hold { session, addresses, token } => {
                    let mut line = Line { addresses, token, held: None, dials: 0 };
                    line.dial();
                    lines.insert(session, line);
                }
                Order::Release { session } => lines.remove(&session).into_iter().for_each(Line::good_bye),
            }
        }
        if is_time {
            // Not at once when one has ended: as a rule its peer is gone, and there is an election to be had.
            lines.values_mut().filter(|line| line.is_missing()).for_each(Line::dial);
        }
    }
}

fn dial(address: &SocketAddr, token: &[u8]) -> io::Result<std::net::TcpStream> {
    let mut line = std::net::TcpStream::connect_timeout(address, DIAL_MAX)?;
    line.set_write_timeout(Some(DIAL_MAX))?;
    socket2::SockRef::from(&line).set_tcp_keepalive(&KEEPALIVE)?;
    line.write_all(&[MAGIC, token].concat())?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;

    /// Targets of the descriptors in a table.
    fn open_in(table: &Path) -> Vec<String> {
        let entries = fs::read_dir(table).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_str()?.to_owned())).collect()
    }

    /// The socket of this process whose own end has this port, as descriptors show it.
    fn socket_of(port: u16) -> String {
        let table = fs::read_to_string("/proc/self/net/tcp").expect("Linux has it");
        let is_it = |fields: &Vec<&str>| fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "01";
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        format!("socket:[{}]", rows.filter(is_it).map(|fields| fields[9]).next().expect("it is open"))
    }

    fn accept(listener: &TcpListener) -> (TcpStream, Vec<u8>) {
        let (mut line, _) = listener.accept().expect("it is dialled");
        let mut said = vec![0; MAGIC.len() + 3];
        line.read_exact(&mut said).expect("it says what it is");
        (line, said)
    }

    #[test]
    fn a_lifeline_stands_in_the_table_of_its_own_thread_alone() {
        // Goal: the kernel closes it when that thread ends, however much the others have open. Method: the tables of all threads.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let holder = Holder::start().expect("Linux lets it");
        let address = listener.local_addr().expect("it is bound");
        holder.hold(1, vec![address], Bytes::from_static(b"one"));
        let (mut line, said) = accept(&listener);
        assert_eq!(said, b"lifelineone");
        let socket = socket_of(line.peer_addr().expect("it is open").port());
        assert!(!open_in(Path::new("/proc/self/fd")).contains(&socket), "the main table has it, too");
        let tables = fs::read_dir("/proc/self/task").expect("Linux has it").flatten();
        let tables: Vec<_> = tables.map(|task| open_in(&task.path().join("fd"))).collect();
        let its_own = tables.into_iter().find(|table| table.contains(&socket)).expect("some thread has it");
        let others = its_own.iter().filter(|open| **open != "/dev/null").count();
        assert_eq!(others, 2, "and what wakes it, and nothing else: {its_own:?}");

        holder.hold(2, vec![address], Bytes::from_static(b"two"));
        let (mut second, _) = accept(&listener);
        holder.release(1);
        assert_eq!(line.read(&mut [0]).expect("good-bye"), 1, "its process lives");
        assert_eq!(line.read(&mut [0]).expect("a plain end"), 0);
        drop(holder);
        assert_eq!(second.read(&mut [0]).expect("good-bye"), 1, "nobody was killed");
        assert_eq!(second.read(&mut [0]).expect("a plain end"), 0);
    }

    #[test]
    fn a_holder_that_comes_and_goes_leaves_no_descriptor() {
        let before = open_in(Path::new("/proc/self/fd")).len();
        for _ in 0..200 {
            drop(Holder::start().expect("Linux lets it"));
        }
        let after = open_in(Path::new("/proc/self/fd")).len();
        assert!(after < before + 100, "{before} descriptors became {after}; tests beside this one have some");
    }

    #[test]
    fn a_process_is_told_to_have_outlived_its_lifeline_once() {
        let mut outlived = Outlived::default();
        let peer = NodeId(2);
        assert!(!outlived.on_up(peer, 5), "nothing has ended");
        outlived.on_end(peer, 5);
        assert!(!outlived.on_up(peer, 6), "another process: the first has died");
        outlived.on_end(peer, 6);
        assert!(outlived.on_up(peer, 6) && outlived.has(peer, 6));
        assert!(!outlived.on_up(peer, 6) && !outlived.has(peer, 7));
    }
}
