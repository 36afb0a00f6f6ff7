//! The thread that hears and dials peers until both ends have said who they are: [`Door`].
//!
//! ```text
//!   hustings-door    accept, TLS, hello, proof        a stranger decides how often
//!         │ Caller: somebody who has said hello, proven as far as this node asks
//!         ▼
//!   hustings-loop    is it a member? then a link      replica, timers
//! ```
//!
//! Handshakes in TLS cost processor time, and strangers decide how many there are. They have one thread of their own, which gives way to
//! all others: no flood of them reaches an election (ADR 33). How many go on at once is bounded, as is each one's time.
//!
//! Read next: [`crate::link`], what becomes of a caller.

use crate::complaints::Complaints;
use crate::counters::Counters;
use crate::detached::Detached;
use crate::frame::{Greeting, Hello, LinkError};
use crate::handshake::{Handshakes, greet, hear};
use crate::lifeline::{self, Lifelines};
use crate::peer_stream::{PackedStream, PeerStream, PeerTls};
use crate::secret::ClusterSecret;
use bytes::BytesMut;
use hustings_tls::Certificate;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

/// A stranger has this long to say who it is (SE-13).
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// A dial has this long to be answered.
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause when the system refuses to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(250);
/// Callers that may wait for the loop.
const CALLERS_MAX: usize = 16;
/// Niceness of the thread, from 0 to 19: with 5 it gets about a third of what others get when there is not enough for all.
const NICE: i32 = 5;

/// Somebody who has said hello.
pub(crate) struct Caller {
    pub(crate) from: SocketAddr,
    pub(crate) stream: PackedStream,
    /// Bytes that followed its hello.
    pub(crate) buffer: BytesMut,
    pub(crate) hello: Hello,
    pub(crate) shown: Option<Certificate>,
}

/// Somebody who was dialled and has answered.
pub(crate) struct Answered {
    pub(crate) stream: PackedStream,
    pub(crate) buffer: BytesMut,
    pub(crate) greeting: Greeting,
    pub(crate) shown: Option<Certificate>,
}

/// The thread that shakes hands, for the loop.
pub(crate) struct Door {
    pub(crate) tls: PeerTls,
    pub(crate) secret: Option<ClusterSecret>,
    runtime: Handle,
    handshakes: Mutex<Handshakes>,
    complaints: Mutex<Complaints>,
    counters: Arc<Counters>,
    pub(crate) lifelines: Arc<Lifelines>,
}

/// The end of its thread, which comes when this is dropped.
pub(crate) struct DoorThread {
    closing: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl DoorThread {
    /// Closes the ports and hangs up on all who have not become a link.
    pub(crate) fn join(self) -> std::thread::Result<()> {
        drop(self.closing);
        self.thread.join()
    }
}

impl Door {
    /// Starts the thread and hears who dials these listeners.
    ///
    /// # Errors
    /// The system has no thread or no descriptor left.
    pub(crate) fn open(
        listeners: Vec<std::net::TcpListener>,
        tls: PeerTls,
        secret: Option<ClusterSecret>,
        counters: Arc<Counters>,
    ) -> io::Result<(Arc<Door>, DoorThread, mpsc::Receiver<Caller>)> {
        let runtime = Detached::new()?;
        let (callers, queue) = mpsc::channel(CALLERS_MAX);
        let (closing, closed) = oneshot::channel::<()>();
        let door = Arc::new(Door {
            tls,
            secret,
            runtime: runtime.handle().clone(),
            handshakes: Mutex::default(),
            complaints: Mutex::new(Complaints::new("a peer")),
            counters,
            lifelines: Arc::default(),
        });
        let entered = runtime.handle().enter();
        for listener in listeners {
            tokio::spawn(door.clone().listen(TcpListener::from_std(listener)?, callers.clone()));
        }
        drop(entered);
        let thread = std::thread::Builder::new().name("hustings-door".into()).spawn(move || {
            // On Linux a thread has a priority of its own. One that cannot be changed is as good as before.
            let _ = rustix::process::setpriority_process(None, NICE);
            // An error says that nobody is left to close it: the end, too.
            let _ = runtime.take().block_on(closed);
        })?;
        Ok((door, DoorThread { closing, thread }, queue))
    }

    /// Does this on the door's thread.
    ///
    /// # Errors
    /// The thread has ended.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, LinkError> {
        self.runtime.spawn(work).await.map_err(|_| LinkError::Closed)
    }

    /// Dials a peer, says hello and hears what it answers.
    pub(crate) async fn dial(self: &Arc<Self>, url: String, hello: Hello) -> Result<Answered, LinkError> {
        let door = self.clone();
        let late = |_| LinkError::Io(io::ErrorKind::TimedOut.into());
        let dialling = async move {
            let dialled = PeerStream::dialled(&url, door.tls.connector.as_ref());
            let (mut stream, shown) = timeout(DIAL_TIMEOUT, dialled).await.map_err(late)??;
            let (mut buffer, hello) = (BytesMut::new(), Greeting::Hello(hello));
            let greeted = greet(&mut stream, &mut buffer, &hello, door.secret.as_ref());
            let greeting = timeout(HANDSHAKE_TIMEOUT, greeted).await.map_err(late)??;
            Ok(Answered { stream: stream.pack()?, buffer, greeting, shown })
        };
        self.run(dialling).await?
    }

    /// A member has come from this address: strangers from elsewhere do not take its room.
    pub(crate) fn trust(&self, address: IpAddr) {
        self.handshakes().trust(address);
    }

    /// Tells the operator of somebody who was turned away.
    pub(crate) fn complain(&self, from: SocketAddr, why: &str) {
        Counters::add(&self.counters.links_refused, 1);
        // Nobody panics while holding it.
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner).tell(from, why);
    }

    fn handshakes(&self) -> MutexGuard<'_, Handshakes> {
        // Nobody panics while holding it.
        self.handshakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts peers until the thread ends. No error ends it: a listener that dies is a node that no one can rejoin (BI-01).
    async fn listen(self: Arc<Self>, listener: TcpListener, callers: mpsc::Sender<Caller>) {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let mut handshakes = self.handshakes();
                    let number = handshakes.make_room(from.ip());
                    let task = tokio::spawn(self.clone().receive(number, stream, from, callers.clone()));
                    handshakes.begin(number, from.ip(), task.abort_handle());
                }
                Err(error) => {
                    // Out of descriptors, most likely: a pause, not a spin.
                    tracing::warn!("cannot accept a peer connection: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Hears the name of the caller, and sends the call on to the loop.
    async fn receive(self: Arc<Self>, number: u64, stream: TcpStream, from: SocketAddr, callers: mpsc::Sender<Caller>) {
        let heard = timeout(HANDSHAKE_TIMEOUT, async {
            let mut first = [0];
            if stream.peek(&mut first).await? == 1 && first[0] == lifeline::MAGIC[0] {
                return self.lifelines.receive(stream).await;
            }
            let (mut stream, shown) = PeerStream::accepted(stream, self.tls.acceptor.as_ref()).await?;
            let mut buffer = BytesMut::new();
            let hello = hear(&mut stream, &mut buffer, self.secret.as_ref()).await?;
            let caller = Caller { from, stream: stream.pack()?, buffer, hello, shown };
            // The loop that is gone hears nobody.
            let _ = callers.send(caller).await;
            Ok(())
        });
        let heard = heard.await.unwrap_or_else(|_| Err(LinkError::Stranger("it said nothing".into())));
        self.handshakes().end(number);
        if let Err(error) = heard {
            self.complain(from, &error.to_string());
        }
    }
}
