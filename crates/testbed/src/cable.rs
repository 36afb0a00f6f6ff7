//! A network cable between a client and a server that can be cut: [`Cable`].

use crate::free_listener;
use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards connections to a server. Cut, it takes all that is sent and passes nothing on, as a network does that is broken:
/// neither side is told.
#[derive(Debug)]
pub struct Cable {
    port: u16,
    is_cut: watch::Sender<bool>,
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
        let state = is_cut.subscribe();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, server.clone(), state.clone()));
            }
        });
        Ok(Cable { port, is_cut, accepting })
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

async fn connect(client: TcpStream, server: String, state: watch::Receiver<bool>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::join!(forward(from_client, to_server, state.clone()), forward(from_server, to_client, state));
}

/// Forwards until either side closes, or the cable is gone.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut state: watch::Receiver<bool>) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count) = from.read(&mut bytes).await {
        // Bytes that are sent through a cut cable are kept, and passed on by nobody.
        if state.wait_for(|is_cut| !is_cut).await.is_err() || count == 0 {
            return;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
