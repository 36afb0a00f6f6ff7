//! Clients' connections stand behind those to peers in the process's table of descriptors.
//!
//! When a process dies, the kernel closes its descriptors one after the other, by their numbers. A peer hears of the death
//! when its own link is closed: behind 1,000 clients that takes 20 ms and more, and all the while nobody elects. The number
//! of a descriptor is the lowest free one, so a link to a peer that came back stands behind every client that came before.
//! Clients therefore take numbers that no link is given.
//!
//! Read next: [`crate::port`].

use std::os::fd::{AsRawFd, OwnedFd};

use tokio::net::TcpStream;

/// Numbers below are left to whatever else a member opens: files of its log, listeners, links to peers.
const FIRST: i32 = 256;

/// Moves a connection to a number of its own, from [`FIRST`] on. One that cannot be moved (no number is free) stays where it is.
///
/// # Errors
/// When the runtime does not take it again; the connection is closed then.
pub(super) fn place(stream: TcpStream) -> std::io::Result<TcpStream> {
    if stream.as_raw_fd() >= FIRST {
        return Ok(stream);
    }
    let Ok(moved) = rustix::io::fcntl_dupfd_cloexec(&stream, FIRST) else { return Ok(stream) };
    // The runtime lets go of the first number before it is given the second: one epoll entry per connection.
    drop(OwnedFd::from(stream.into_std()?));
    TcpStream::from_std(moved.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_client_stands_behind_all_peers_and_is_heard_as_before() {
        // Goal: a link that is made later is closed before the clients. Method: move a connection, and talk over it.
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let mut client = TcpStream::connect(address).await.expect("it listens");
        let (accepted, _) = listener.accept().await.expect("one calls");
        let first = accepted.as_raw_fd();
        let mut moved = place(accepted).expect("a number is free");
        assert!(first < FIRST && moved.as_raw_fd() >= FIRST, "from {first} to {}", moved.as_raw_fd());
        client.write_all(b"ask").await.expect("it is open");
        let mut heard = [0; 3];
        moved.read_exact(&mut heard).await.expect("it is open");
        moved.write_all(b"tell").await.expect("it is open");
        drop(moved);
        let mut told = Vec::new();
        client.read_to_end(&mut told).await.expect("it ends when the moved one is dropped");
        assert_eq!((&heard, told.as_slice()), (b"ask", b"tell".as_slice()));
    }
}
