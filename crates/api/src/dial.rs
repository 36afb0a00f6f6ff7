//! A connection to one endpoint, in TLS or as it is, for any protocol on top: [`dial`].

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use hustings_tls::{Connector, Trust};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::client::tls as tls_of;

/// The port of an endpoint that names none, by its scheme.
const PORTS: [(&str, u16); 2] = [("http", 80), ("https", 443)];

/// An open connection to an endpoint.
#[derive(Debug)]
pub struct Dialled {
    stream: Stream,
    /// Address of this end.
    pub from: SocketAddr,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<Encrypted>),
}

/// A connection in TLS, with what explains its errors.
#[derive(Debug)]
struct Encrypted {
    stream: tokio_rustls::client::TlsStream<TcpStream>,
    tls: Connector,
    host: String,
}

impl Encrypted {
    async fn shake_hands(tls: Connector, host: &str, stream: TcpStream) -> io::Result<Stream> {
        let (stream, _) = tls.connect(host, stream).await?;
        Ok(Stream::Tls(Box::new(Encrypted { stream, tls, host: host.to_owned() })))
    }
}

/// The name of HTTP/1.1 in ALPN: what is asked on such a connection.
const ALPN: &str = "http/1.1";

/// Connects to `http://HOST:PORT`, or in TLS to `https://HOST:PORT`. The caller bounds the time. Where `tls` does not say whose
/// certificates are believed, those are that the machine believes, as with etcdctl.
///
/// # Errors
/// Nobody accepts there, or TLS does not come about.
pub async fn dial(endpoint: &str, tls: Option<&Connector>) -> io::Result<Dialled> {
    dial_speaking(endpoint, tls.map(|tls| tls.speaking(&[ALPN])).as_ref()).await
}

/// Dials, and speaks what the connector itself says.
pub(crate) async fn dial_speaking(endpoint: &str, tls: Option<&Connector>) -> io::Result<Dialled> {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("http", endpoint));
    let authority = rest.split('/').next().unwrap_or(rest);
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if is_port(port) => (host, port.parse().unwrap_or_default()),
        _ => (authority, PORTS.iter().find(|(known, _)| *known == scheme).map_or(0, |(_, port)| *port)),
    };
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    // Requests are small, and waited for.
    stream.set_nodelay(true)?;
    let from = stream.local_addr()?;
    let stream = match (scheme, tls) {
        ("http", _) => Stream::Plain(stream),
        ("https", Some(tls)) => Encrypted::shake_hands(tls.clone(), host, stream).await?,
        ("https", None) => {
            let machine = tls_of(Trust::Machine, None).map_err(io::Error::other)?.speaking(&[ALPN]);
            Encrypted::shake_hands(machine, host, stream).await?
        }
        _ => {
            let why = format!("{endpoint}: {scheme} is not spoken here");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    };
    Ok(Dialled { stream, from })
}

/// The error of a request over HTTP, or that of its connection if this one ended first: of such a request hyper says only that it
/// was cancelled, and a certificate that is refused ends the connection before anything is asked.
pub async fn first_error(asked: hyper::Error, connection: JoinHandle<hyper::Result<()>>) -> hyper::Error {
    match asked.is_canceled() {
        true => connection.await.ok().and_then(Result::err).unwrap_or(asked),
        false => asked,
    }
}

/// The host and port of an endpoint, as a request's `Host` says it.
pub fn authority_of(endpoint: &str) -> &str {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

impl AsyncRead for Dialled {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(encrypted) => {
                let read = Pin::new(&mut encrypted.stream).poll_read(context, buffer);
                read.map_err(|error| encrypted.tls.explain(&encrypted.host, error))
            }
        }
    }
}

impl AsyncWrite for Dialled {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_shutdown(context),
        }
    }
}
