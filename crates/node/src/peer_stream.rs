//! A connection to a peer, in TLS or as it is: [`PeerStream`], and its two halves once a link is up.
//!
//! The loop writes to a link at the end of its turn without waiting, in TLS too: [`Sealed`] is TLS as a value above a socket that
//! is tried. Bytes that the socket does not take stay sealed until the next try.

use std::cell::RefCell;
use std::io::{self, BufRead, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, BytesMut};
use hustings_tls::{Acceptor, Certificate, Connector};
use rustls::Connection;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::frame::LinkError;

/// The first byte of a handshake in TLS.
const HANDSHAKE: u8 = 0x16;

/// TLS between a node and its peers.
#[derive(Clone, Default)]
pub struct PeerTls {
    /// TLS of its own port; without it, peers that dial speak in the clear.
    pub acceptor: Option<Acceptor>,
    /// TLS for dialling peers at `https://`.
    pub connector: Option<Connector>,
    /// A peer must show a certificate that names it or the host of one of its peer URLs, and names no other member.
    pub binds_identity: bool,
}

/// A connection whose other end has not said who it is.
pub(crate) enum PeerStream {
    Plain(TcpStream),
    Tls(Box<Sealed>),
}

/// A connection on its way from one thread's runtime to another's.
pub(crate) enum PackedStream {
    Plain(std::net::TcpStream),
    Tls(std::net::TcpStream, Box<Connection>),
}

impl PackedStream {
    /// The connection, on the runtime that this is called in.
    pub(crate) fn unpack(self) -> io::Result<PeerStream> {
        Ok(match self {
            PackedStream::Plain(socket) => PeerStream::Plain(TcpStream::from_std(socket)?),
            PackedStream::Tls(socket, connection) => {
                PeerStream::Tls(Box::new(Sealed::new(TcpStream::from_std(socket)?, *connection)))
            }
        })
    }
}

/// A connection, and whose certificate its other end showed.
pub(crate) type Shown = (PeerStream, Option<Certificate>);

impl PeerStream {
    /// Accepts a connection that a peer dialled.
    pub(crate) async fn accepted(stream: TcpStream, tls: Option<&Acceptor>) -> Result<Shown, LinkError> {
        let mut first = [0];
        let speaks_tls = stream.peek(&mut first).await? == 1 && first[0] == HANDSHAKE;
        match (tls, speaks_tls) {
            (None, false) => Ok((PeerStream::Plain(stream), None)),
            (Some(tls), true) => {
                let (stream, shown) = tls.accept(stream).await?;
                let (socket, connection) = stream.into_inner();
                Ok((PeerStream::Tls(Box::new(Sealed::new(socket, connection.into()))), shown))
            }
            (Some(_), false) => Err(LinkError::Stranger(
                "it speaks no TLS, which this port asks for: give it https:// peer URLs and --peer-cert-file".into(),
            )),
            (None, true) => Err(LinkError::Stranger(
                "it speaks TLS, and this port does not: give this member --peer-cert-file and https:// peer URLs"
                    .into(),
            )),
        }
    }

    /// Dials a peer URL. The caller bounds the time.
    pub(crate) async fn dialled(url: &str, tls: Option<&Connector>) -> Result<Shown, LinkError> {
        let address = address_of(url);
        let stream = TcpStream::connect(address).await?;
        if !url.starts_with("https://") {
            return Ok((PeerStream::Plain(stream), None));
        }
        let Some(tls) = tls else {
            let why = format!("{url} is spoken to in TLS, and this node has no certificate: give it --peer-cert-file");
            return Err(LinkError::Stranger(why));
        };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let (stream, shown) = tls.connect(host, stream).await?;
        let (socket, connection) = stream.into_inner();
        Ok((PeerStream::Tls(Box::new(Sealed::new(socket, connection.into()))), shown))
    }

    /// Takes it off this runtime.
    pub(crate) fn pack(self) -> io::Result<PackedStream> {
        Ok(match self {
            PeerStream::Plain(stream) => PackedStream::Plain(stream.into_std()?),
            PeerStream::Tls(sealed) => {
                PackedStream::Tls(sealed.socket.into_std()?, Box::new(sealed.connection.into_inner()))
            }
        })
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            PeerStream::Plain(stream) => stream,
            PeerStream::Tls(sealed) => &sealed.socket,
        }
    }

    /// The two halves of a link.
    pub(crate) fn split(self) -> (Reading, Writing) {
        match self {
            PeerStream::Plain(stream) => {
                let (reading, writing) = stream.into_split();
                (Reading::Plain(reading), Writing::Plain(writing))
            }
            PeerStream::Tls(sealed) => {
                let sealed = Rc::new(*sealed);
                (Reading::Tls(sealed.clone()), Writing::Tls(sealed))
            }
        }
    }
}

/// The host and port of a peer URL.
pub(crate) fn address_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

impl AsyncRead for PeerStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            PeerStream::Tls(sealed) => sealed.poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            PeerStream::Tls(sealed) => sealed.poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_flush(context),
            PeerStream::Tls(sealed) => sealed.poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            PeerStream::Tls(sealed) => sealed.poll_shutdown(context),
        }
    }
}

/// TLS above a socket, for both halves of a link; they live on one thread.
pub(crate) struct Sealed {
    socket: TcpStream,
    connection: RefCell<Connection>,
}

impl Sealed {
    fn new(socket: TcpStream, connection: Connection) -> Sealed {
        Sealed { socket, connection: RefCell::new(connection) }
    }

    fn poll_read(&self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.try_read(buffer.remaining(), |bytes| buffer.put_slice(bytes))?.is_some() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.socket.poll_read_ready(context))?;
            self.take_in()?;
        }
    }

    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_write_ready(context))?;
                }
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match push(&self.socket, &mut self.connection.borrow_mut()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_write_ready(context))?;
                }
                pushed => return Poll::Ready(pushed),
            }
        }
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.borrow_mut().send_close_notify();
        ready!(self.poll_flush(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    /// Seals as many of these bytes as there is room for, and sends as much as the socket takes.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut connection = self.connection.borrow_mut();
        push(&self.socket, &mut connection)?;
        let taken = connection.writer().write(bytes)?;
        match push(&self.socket, &mut connection) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Takes what can be read of what has come, as much as that at most; `None` when more must come first, 0 at the end.
    fn try_read(&self, most: usize, take: impl FnOnce(&[u8])) -> io::Result<Option<usize>> {
        let mut connection = self.connection.borrow_mut();
        let mut reader = connection.reader();
        match reader.fill_buf() {
            Ok(bytes) => {
                let count = bytes.len().min(most);
                take(&bytes[..count]);
                reader.consume(count);
                Ok(Some(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // A peer that was killed says no good-bye.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Some(0)),
            Err(error) => Err(error),
        }
    }

    /// Takes in what the socket has.
    fn take_in(&self) -> io::Result<()> {
        let mut connection = self.connection.borrow_mut();
        match connection.read_tls(&mut Tried(&self.socket)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        let processed = connection.process_new_packets();
        // Answers of TLS itself, or its last word about what was wrong; the next write sends what does not leave now.
        let pushed = push(&self.socket, &mut connection);
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        match pushed {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

/// Sends what is sealed, as far as the socket takes it.
fn push(socket: &TcpStream, connection: &mut Connection) -> io::Result<()> {
    while connection.wants_write() {
        if connection.write_tls(&mut Tried(socket))? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

/// A socket that is tried and never waited for.
struct Tried<'s>(&'s TcpStream);

impl Read for Tried<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }
}

impl Write for Tried<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The half of a link that the peer writes to.
pub(crate) enum Reading {
    Plain(OwnedReadHalf),
    Tls(Rc<Sealed>),
}

impl Reading {
    /// More bytes, put behind those in the buffer; 0 at the end.
    pub(crate) async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Reading::Plain(reading) => reading.read_buf(buffer).await,
            Reading::Tls(sealed) => loop {
                if let Some(count) = sealed.try_read(usize::MAX, |bytes| buffer.put_slice(bytes))? {
                    return Ok(count);
                }
                sealed.socket.readable().await?;
                sealed.take_in()?;
            },
        }
    }
}

/// The half of a link that this node writes to.
pub(crate) enum Writing {
    Plain(OwnedWriteHalf),
    Tls(Rc<Sealed>),
}

impl Writing {
    /// Takes as many bytes as it can now.
    ///
    /// # Errors
    /// `WouldBlock`: none at the moment.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Writing::Plain(writing) => writing.try_write(bytes),
            Writing::Tls(sealed) => sealed.try_write(bytes),
        }
    }

    /// Sends what was taken and has not left.
    ///
    /// # Errors
    /// `WouldBlock`: the peer reads slowly.
    pub(crate) fn try_flush(&self) -> io::Result<()> {
        match self {
            Writing::Plain(_) => Ok(()),
            Writing::Tls(sealed) => push(&sealed.socket, &mut sealed.connection.borrow_mut()),
        }
    }

    /// Waits until the socket takes more.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Writing::Plain(writing) => writing.writable().await,
            Writing::Tls(sealed) => sealed.socket.writable().await,
        }
    }
}

/// The reason why a peer with this certificate cannot be the member that it says; `None` if it can. `others` are the names
/// of the other members, `name` and `urls` are its own.
pub(crate) fn misfit(
    shown: Option<&Certificate>,
    name: &str,
    urls: &[String],
    others: impl IntoIterator<Item = String>,
) -> Option<String> {
    let Some(shown) = shown else {
        return Some("it shows no certificate, and peers here must: give it --peer-cert-file".to_owned());
    };
    let of = format!("the certificate that it shows, of {:?},", shown.common_name);
    let others: Vec<String> = others.into_iter().filter(|other| !other.is_empty()).collect();
    // A member that has not started says its name itself, and may not say another's.
    if !name.is_empty() && shown.bears(name) && !others.iter().any(|other| other == name) {
        return None;
    }
    if let Some(other) = others.into_iter().find(|other| shown.bears(other)) {
        return Some(format!("{of} is that of the member {other}: give each member its own"));
    }
    let host = |url: &String| {
        let address = address_of(url);
        address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned()
    };
    let hosts: Vec<String> = urls.iter().map(host).collect();
    if hosts.iter().any(|host| shown.is_for(host)) {
        return None;
    }
    Some(format!(
        "{of} is neither for its name, {name:?}, nor for a host of its peer URLs ({}): issue one that is, as subject alternative name",
        hosts.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_tls::made::{Made, Subject};

    fn certificate(subject: &Subject) -> Certificate {
        Certificate::read(&Made::by_itself(subject).expect("made").certificate).expect("it is one")
    }

    #[test]
    fn a_certificate_is_good_for_its_member_and_no_other() {
        let urls = ["https://10.0.0.2:2380".to_owned(), "https://b.example.org:2380".to_owned()];
        let others = || ["a".to_owned(), "c".to_owned(), String::new()];
        let why = |subject: Subject| misfit(Some(&certificate(&subject)), "b", &urls, others());
        assert_eq!(why(Subject::new("b")), None, "its name");
        assert_eq!(why(Subject::new("x").host("b")), None, "its name as a host");
        assert_eq!(why(Subject::new("x").host("*.example.org")), None, "its host");
        assert_eq!(
            why(Subject::new("etcd").address([10, 0, 0, 2]).address([10, 0, 0, 1])),
            None,
            "one for all members"
        );
        let others_own = why(Subject::new("a").address([10, 0, 0, 2])).expect("it is another's");
        assert!(others_own.contains("is that of the member a"), "{others_own}");
        let newcomer = misfit(Some(&certificate(&Subject::new("a"))), "a", &["https://10.0.0.4:2380".into()], others());
        assert!(newcomer.is_some(), "a member without a name yet says that it is called as another one");
        let strange = why(Subject::new("client").address([10, 0, 0, 9])).expect("it is a stranger's");
        assert!(
            strange.contains("neither for its name, \"b\", nor for a host") && strange.contains("10.0.0.2"),
            "{strange}"
        );
        assert!(misfit(None, "b", &urls, others()).is_some());
        assert!(misfit(Some(&certificate(&Subject::new(""))), "", &[], others()).is_some(), "no name is nobody's");
    }
}
