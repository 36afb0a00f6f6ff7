//! A network cable between a client and a server that can be cut: [`Cable`].

use crate::free_listener;
use anyhow::Result;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Forwards connections to a server, as slowly as it is told. Cut, it takes all that is sent and passes nothing on, as a network does
/// that is broken: neither side is told.
#[derive(Debug)]
pub struct Cable {
    port: u16,
    is_cut: watch::Sender<bool>,
    delay: watch::Sender<Duration>,
    accepting: JoinHandle<()>,
}

impl Cable {
    /// A cable to a server, `host:port`.
    ///
    /// # Errors
    /// No port is free.
    pub fn to(server: &str) -> Result<Cable> {
        let listener = free_listener()?;
        listener.set_nonblocking(true)?;
        let (listener, server) = (TcpListener::from_std(listener)?, server.to_owned());
        let port = listener.local_addr()?.port();
        let is_cut = watch::Sender::new(false);
        let delay = watch::Sender::new(Duration::ZERO);
        let state = State { is_cut: is_cut.subscribe(), delay: delay.subscribe() };
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, server.clone(), state.clone()));
            }
        });
        Ok(Cable { port, is_cut, delay, accepting })
    }

    /// Address that clients connect to, as `host:port`.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port where clients connect.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the cable: nothing passes any more.
    pub fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// From now on all takes so long on its way, in each direction.
    pub fn slow(&self, delay: Duration) {
        self.delay.send_replace(delay);
    }

    /// All passes again, also what was sent while it was cut.
    pub fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The state of a cable, as its connections see it.
#[derive(Clone, Debug)]
struct State {
    is_cut: watch::Receiver<bool>,
    delay: watch::Receiver<Duration>,
}

async fn connect(client: TcpStream, server: String, state: State) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::join!(forward(from_client, to_server, state.clone()), forward(from_server, to_client, state));
}

/// Forwards until either side closes, or the cable is gone.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, State { mut is_cut, delay }: State) {
    let (under_way, mut arriving) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let reading = async move {
        let mut bytes = vec![0; 16 << 10];
        while let Ok(count) = from.read(&mut bytes).await {
            // The end of a stream is under way as well, as nothing.
            let sent = under_way.send((Instant::now() + *delay.borrow(), bytes[..count].to_vec()));
            if sent.is_err() || count == 0 {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((at, bytes)) = arriving.recv().await {
            tokio::time::sleep_until(at).await;
            // Bytes that are sent through a cut cable are kept, and passed on by nobody.
            if is_cut.wait_for(|is_cut| !is_cut).await.is_err() || bytes.is_empty() {
                return;
            }
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(reading, writing);
}
