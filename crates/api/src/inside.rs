//! A way to a member of the same process: connections in memory, without a port or an address. [`Inside`].
//!
//! ```text
//!   Inside ── connect ──► InsideListener ── accept ──► the member's server
//!      └ cloned by each client                   └ held by the server, which ends connections when it stops
//! ```
//!
//! They carry what any connection of a client carries. Only this process itself can ask: nobody else can.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;

/// Bytes that may be on their way in one direction.
const BUFFER_BYTES: usize = 256 << 10;

static WAYS: AtomicU64 = AtomicU64::new(1);

/// The side that connects. Clones lead to the same member.
#[derive(Clone)]
pub struct Inside {
    /// Number that tells ways apart.
    number: u64,
    visitors: mpsc::UnboundedSender<DuplexStream>,
}

/// The side of the member's server.
#[derive(Debug)]
pub struct InsideListener {
    visitors: mpsc::UnboundedReceiver<DuplexStream>,
}

impl Inside {
    /// A new way, and where it leads.
    pub fn new() -> (Inside, InsideListener) {
        let (sender, visitors) = mpsc::unbounded_channel();
        (Inside { number: WAYS.fetch_add(1, Ordering::Relaxed), visitors: sender }, InsideListener { visitors })
    }

    /// Opens a connection to the member.
    ///
    /// # Errors
    /// The member's server has stopped.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        let (near, far) = duplex(BUFFER_BYTES);
        let sent = self.visitors.send(far);
        sent.map_err(|_| io::Error::new(io::ErrorKind::ConnectionRefused, "the member of this process has stopped"))?;
        Ok(near)
    }
}

impl InsideListener {
    /// The next connection; `None` once nobody can come any more.
    pub async fn accept(&mut self) -> Option<DuplexStream> {
        self.visitors.recv().await
    }
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inside({})", self.number)
    }
}

impl PartialEq for Inside {
    fn eq(&self, other: &Inside) -> bool {
        self.number == other.number
    }
}

impl Eq for Inside {}

impl PartialOrd for Inside {
    fn partial_cmp(&self, other: &Inside) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Inside {
    fn cmp(&self, other: &Inside) -> std::cmp::Ordering {
        self.number.cmp(&other.number)
    }
}

impl std::hash::Hash for Inside {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}
