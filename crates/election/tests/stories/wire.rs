//! A wire between a candidate and its store that can be cut: [`Wire`].

use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes bytes on until it is cut; connections stay open then, and nothing comes through.
pub struct Wire {
    pub port: u16,
    is_cut: Arc<watch::Sender<bool>>,
}

impl Wire {
    /// To this port of 127.0.0.1.
    pub async fn to(port: u16) -> Wire {
        let listener = hustings_testbed::free_listener().expect("a port is free");
        listener.set_nonblocking(true).expect("it is a socket");
        let listener = TcpListener::from_std(listener).expect("it listens");
        let wire = Wire { port: listener.local_addr().expect("it is bound").port(), is_cut: Arc::default() };
        let is_cut = wire.is_cut.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let is_cut = is_cut.clone();
                tokio::spawn(async move {
                    let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
                    tokio::join!(
                        pass(near_read, far_write, is_cut.subscribe()),
                        pass(far_read, near_write, is_cut.subscribe())
                    );
                });
            }
        });
        wire
    }

    pub fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    pub fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut is_cut: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if is_cut.wait_for(|is_cut| !is_cut).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
