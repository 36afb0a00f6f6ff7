//! A client: the generated service clients over one channel, to the first endpoint that serves.
//!
//! One channel to one member, not a balancer: a command line asks one member at a time, most questions of maintenance
//! concern just the member that is asked, and a balancer would hide which one answered. When the member is lost the
//! caller decides whether its request may be repeated, and calls [`Client::move_on`].
//! The channel itself reconnects to its member by and by.
//!
//! An endpoint with `https://` is spoken to in TLS, as [`Options::tls`] says. Where users count, [`Client::as_user`] and
//! [`Client::authenticate`] say who asks, with each request from then on.
//!
//! It has no retries and no deadlines (`tonic::Request` has them). Read next: [`crate::etcdserverpb`] for the
//! services.

use std::collections::VecDeque;
use std::error::Error as _;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use hustings_tls::{ClientTls, Connector, Identity, Rules, TlsError, Trust};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::dial::dial_speaking;
use crate::error::EtcdError;
use crate::etcdserverpb::AuthenticateRequest;
use crate::etcdserverpb::auth_client::AuthClient;
use crate::etcdserverpb::cluster_client::ClusterClient;
use crate::etcdserverpb::kv_client::KvClient;
use crate::etcdserverpb::lease_client::LeaseClient;
use crate::etcdserverpb::maintenance_client::MaintenanceClient;
use crate::etcdserverpb::watch_client::WatchClient;
use crate::health::HealthCheckRequest;
use crate::health::health_check_response::ServingStatus;
use crate::health::health_client::HealthClient;
use crate::inside::Inside;
use crate::v3electionpb::election_client::ElectionClient;
use crate::v3lockpb::lock_client::LockClient;

/// The name of HTTP/2 in ALPN, which gRPC stands on.
pub const ALPN: &str = "h2";

/// Metadata of a member that is added: the token with which it is to begin, in hex. etcd passes it over.
pub const JOIN_TOKEN: &str = "hustings-join-token";

/// Metadata of the answer to a request that adds a member: present where members have a cluster secret, which the new one needs, too.
pub const JOIN_SECRET: &str = "hustings-join-secret";

/// Metadata of a request that adds a member: `true` for one that votes and holds no data. In the answer, and in that of a list: the ids
/// of all such members, in hex, with commas between them. etcd passes it over.
pub const WITNESS: &str = "hustings-witness";

/// The settings of a connection.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time that one endpoint may take to accept the connection, and then to say how it is.
    pub connect_timeout: Duration,
    /// While a request or stream is open: how often to ask whether the member is still there. etcd refuses less than 5 s.
    pub keep_alive_interval: Duration,
    /// Time that it may take to say so, before the connection counts as lost.
    pub keep_alive_timeout: Duration,
    /// TLS for endpoints with `https://`; with it, those without a scheme are among them. `None`: those without a scheme are
    /// not, and with `https://` what the machine trusts is believed.
    pub tls: Option<Connector>,
    /// The member of this process; if it is given, it is asked, without regard to the endpoints.
    pub inside: Option<Inside>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connect_timeout: Duration::from_secs(2),
            keep_alive_interval: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(3),
            tls: None,
            inside: None,
        }
    }
}

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The list of endpoints is empty.
    #[error("no endpoint is given: name at least one, like 127.0.0.1:2379")]
    NoEndpoint,
    /// An endpoint is not an address that we can speak to.
    #[error(
        "endpoint {endpoint:?} is not an address like 127.0.0.1:2379, http://host:2379 or https://host:2379: {reason}"
    )]
    Address {
        /// The endpoint, as it was given.
        endpoint: String,
        /// The fault of the endpoint.
        reason: String,
    },
    /// No endpoint answered; the reasons are in the order of the endpoints.
    #[error("no endpoint answers: {}", .reasons.iter().map(|(endpoint, reason)| format!("{endpoint}: {reason}")).collect::<Vec<_>>().join("; "))]
    NoneAnswers {
        /// Each endpoint with the reason.
        reasons: Vec<(String, String)>,
    },
}

/// A connection to one member of a cluster, with the other endpoints in reserve. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    endpoints: Vec<String>,
    current: usize,
    channel: Channel,
    options: Options,
    caller: Caller,
}

/// The channel, over which each request says who asks.
pub type Asking = InterceptedService<Channel, Caller>;

/// The user that asks, and what proves it. Clones share the proof.
#[derive(Clone, Default)]
pub struct Caller {
    user: Option<(String, String)>,
    token: Arc<RwLock<Option<MetadataValue<Ascii>>>>,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").field("user", &self.user.as_ref().map(|(name, _)| name)).finish_non_exhaustive()
    }
}

impl Caller {
    fn token(&self) -> Option<MetadataValue<Ascii>> {
        self.token.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Interceptor for Caller {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
        if let Some(token) = self.token() {
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }
}

impl Client {
    /// Connects to the first endpoint that serves, in the order given, with default options.
    ///
    /// Of several endpoints, each is asked for its health, a quarter of a second after the one before or as soon as that one failed: a process
    /// that stands still holds up nobody. Where none serves, the first is taken that answers, or else accepts.
    ///
    /// An endpoint is `host:port`, `http://host:port` or `https://host:port`. To talk to one member and no other, give its endpoint alone.
    pub async fn connect(endpoints: &[impl AsRef<str>]) -> Result<Client, ConnectError> {
        Client::connect_with(endpoints, Options::default()).await
    }

    /// Connects to the first endpoint that serves, in the order given.
    pub async fn connect_with(endpoints: &[impl AsRef<str>], options: Options) -> Result<Client, ConnectError> {
        let endpoints: Vec<String> = endpoints.iter().map(|endpoint| endpoint.as_ref().to_owned()).collect();
        let (current, channel) = first_that_answers(&endpoints, 0, &options).await?;
        Ok(Client { endpoints, current, channel, options, caller: Caller::default() })
    }

    /// The same connection, on which this user asks once it has proven itself ([`Client::authenticate`]).
    #[must_use]
    pub fn as_user(self, name: String, password: String) -> Client {
        Client { caller: Caller { user: Some((name, password)), token: Arc::default() }, ..self }
    }

    /// Proves the user that asks, if there is one. The proof ends after a while (`--auth-token-ttl`), so ask again in time,
    /// and after "invalid auth token".
    ///
    /// # Errors
    /// The cluster does not know the user, or not with this password; or it does not answer.
    pub async fn authenticate(&self) -> Result<(), Status> {
        let Some((name, password)) = self.caller.user.clone() else { return Ok(()) };
        let asked = AuthClient::new(self.channel()).authenticate(AuthenticateRequest { name, password }).await;
        let token = match asked {
            Ok(answer) => answer.into_inner().token.parse().ok(),
            // If users do not count, nobody asks for a proof.
            Err(status) if EtcdError::of(&status) == Some(EtcdError::AuthNotEnabled) => None,
            Err(status) => return Err(status),
        };
        *self.caller.token.write().unwrap_or_else(PoisonError::into_inner) = token;
        Ok(())
    }

    /// The token that proves the user, if it was proven: for requests over HTTP, in `Authorization`.
    pub fn token(&self) -> Option<String> {
        self.caller.token()?.to_str().ok().map(str::to_owned)
    }

    /// Leaves the member that is connected and connects to the next endpoint that serves; to the same one last.
    ///
    /// On an error the old connection stays.
    pub async fn move_on(&mut self) -> Result<(), ConnectError> {
        (self.current, self.channel) = first_that_answers(&self.endpoints, self.current + 1, &self.options).await?;
        Ok(())
    }

    /// The endpoint that is connected.
    pub fn endpoint(&self) -> &str {
        &self.endpoints[self.current]
    }

    /// All endpoints, in the order given.
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// The channel, for services that are not here.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// A client of the store.
    pub fn kv(&self) -> KvClient<Asking> {
        // A range may be larger than tonic's default of 4 MiB; etcd's client has no limit either.
        KvClient::with_interceptor(self.channel(), self.caller.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Changes of the store.
    pub fn watch(&self) -> WatchClient<Asking> {
        WatchClient::with_interceptor(self.channel(), self.caller.clone()).max_decoding_message_size(usize::MAX)
    }

    /// A client of leases.
    pub fn lease(&self) -> LeaseClient<Asking> {
        LeaseClient::with_interceptor(self.channel(), self.caller.clone()).max_decoding_message_size(usize::MAX)
    }

    /// A client of the membership.
    pub fn cluster(&self) -> ClusterClient<Asking> {
        ClusterClient::with_interceptor(self.channel(), self.caller.clone())
    }

    /// Care for the member that is connected.
    pub fn maintenance(&self) -> MaintenanceClient<Asking> {
        MaintenanceClient::with_interceptor(self.channel(), self.caller.clone()).max_decoding_message_size(usize::MAX)
    }

    /// A client of elections among clients.
    pub fn election(&self) -> ElectionClient<Asking> {
        ElectionClient::with_interceptor(self.channel(), self.caller.clone())
    }

    /// A client of locks among clients.
    pub fn lock(&self) -> LockClient<Asking> {
        LockClient::with_interceptor(self.channel(), self.caller.clone())
    }

    /// Health of the member that is connected.
    pub fn health(&self) -> HealthClient<Channel> {
        HealthClient::new(self.channel())
    }
}

/// The way to one endpoint, not taken yet.
#[derive(Clone, Debug)]
pub struct Transport {
    endpoint: Endpoint,
    /// Connector that speaks TLS to an `https://` endpoint; `None` for `http://`.
    tls: Option<Connector>,
    inside: Option<Inside>,
}

impl Transport {
    /// Address that it leads to.
    pub fn uri(&self) -> &Uri {
        self.endpoint.uri()
    }

    /// Connects to the endpoint.
    ///
    /// # Errors
    /// Nobody accepts there, or TLS does not come about.
    pub async fn connect(&self) -> Result<Channel, tonic::transport::Error> {
        if let Some(inside) = self.inside.clone() {
            let dial = move |_: Uri| std::future::ready(inside.connect().map(TokioIo::new));
            return self.endpoint.connect_with_connector(tower::service_fn(dial)).await;
        }
        let Some(tls) = self.tls.clone() else { return self.endpoint.connect().await };
        let dial = move |uri: Uri| {
            let tls = tls.clone();
            async move { dial_speaking(&uri.to_string(), Some(&tls)).await.map(TokioIo::new) }
        };
        self.endpoint.connect_with_connector(tower::service_fn(dial)).await
    }
}

/// The connector of a client of ours: the certificates that it believes, and the one that it shows.
///
/// # Errors
/// A file cannot be read or is not what it should be.
pub fn tls(trust: Trust, identity: Option<Identity>) -> Result<Connector, TlsError> {
    let (rules, protocols) = (Rules::default(), vec![ALPN]);
    Connector::new(ClientTls {
        of: "client",
        trust,
        identity,
        revoked: None,
        allowed: None,
        rules,
        protocols,
        server_name: None,
    })
}

/// The transport to one endpoint, not connected yet: for callers that want many channels.
///
/// # Errors
/// The endpoint is none that can be spoken to.
pub fn transport(endpoint: &str, options: &Options) -> Result<Transport, ConnectError> {
    let refuse = |reason: String| ConnectError::Address { endpoint: endpoint.to_owned(), reason };
    let (scheme, rest) = match (endpoint.split_once("://"), &options.tls) {
        (None, None) => ("http", endpoint),
        (None, Some(_)) => ("https", endpoint),
        (Some((scheme @ ("http" | "https"), rest)), _) => (scheme, rest),
        (Some((scheme, _)), _) => return Err(refuse(format!("{scheme} is not spoken here"))),
    };
    let tls = match (scheme, &options.tls) {
        ("http", _) => None,
        (_, Some(tls)) => Some(tls.clone()),
        (_, None) => Some(tls(Trust::Machine, None).map_err(|error| refuse(error.to_string()))?),
    };
    let address = format!("{scheme}://{rest}");
    let transport = Endpoint::from_shared(address).map_err(|error| refuse(error.to_string()))?;
    let endpoint = transport
        .tcp_nodelay(true)
        .connect_timeout(options.connect_timeout)
        .http2_keep_alive_interval(options.keep_alive_interval)
        .keep_alive_timeout(options.keep_alive_timeout);
    Ok(Transport { endpoint, tls, inside: options.inside.clone() })
}

/// The end of the range of all keys that begin with `prefix`, for `range_end`.
///
/// A prefix of nothing but `0xff`, or an empty one, has no end: a zero byte, which means "to the last key".
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    match prefix.iter().rposition(|&byte| byte != 0xff) {
        None => Bytes::from_static(&[0]),
        Some(place) => {
            let mut end = prefix[..=place].to_vec();
            end[place] += 1;
            end.into()
        }
    }
}

/// Time that an endpoint has for its answer before the next one is asked beside it.
const HEAD_START: Duration = Duration::from_millis(250);

/// Answer of an endpoint that was asked whether it serves; better answers compare as larger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Response {
    /// Its kernel accepts connections, as it does for a process that stands still.
    Accepts,
    /// It says that it cannot serve: it knows no leader.
    Answers,
    /// It serves, or does not know the question.
    Serves,
}

/// Asks all endpoints once, beginning at `start`, around the end: each a moment after the one before, or as soon as that one is known to be
/// of no use. Takes the first that serves; where none does, the first that answers, or else accepts.
async fn first_that_answers(
    endpoints: &[String],
    start: usize,
    options: &Options,
) -> Result<(usize, Channel), ConnectError> {
    // A typing error is told even where another endpoint would answer.
    let transports = endpoints.iter().map(|endpoint| transport(endpoint, options)).collect::<Result<Vec<_>, _>>()?;
    if endpoints.is_empty() {
        return Err(ConnectError::NoEndpoint);
    }
    let has_choice = endpoints.len() > 1 && options.inside.is_none();
    let order = (start..start + endpoints.len()).map(|place| place % endpoints.len());
    let mut waiting: VecDeque<usize> = order.clone().collect();
    // Those that are under way at the end, end with this set.
    let mut asking = JoinSet::new();
    let mut reasons = vec![None; endpoints.len()];
    let mut best: Option<(Response, usize, Channel)> = None;
    loop {
        if let Some(place) = waiting.pop_front() {
            let (transport, patience) = (transports[place].clone(), options.connect_timeout);
            asking.spawn(async move { (place, ask(&transport, has_choice.then_some(patience)).await) });
        }
        let is_answered = best.as_ref().is_some_and(|(response, ..)| *response == Response::Answers);
        let asked = if waiting.is_empty() && !is_answered {
            asking.join_next().await
        } else {
            match tokio::time::timeout(HEAD_START, asking.join_next()).await {
                Ok(asked) => asked,
                Err(_) if waiting.is_empty() => break,
                Err(_) => continue,
            }
        };
        match asked {
            Some(Ok((place, Ok((Response::Serves, channel))))) => return Ok((place, channel)),
            Some(Ok((place, Ok((response, channel))))) => {
                if best.as_ref().is_none_or(|(known, ..)| *known < response) {
                    best = Some((response, place, channel));
                }
            }
            Some(Ok((place, Err(reason)))) => reasons[place] = Some(reason),
            Some(Err(ended)) => std::panic::resume_unwind(ended.into_panic()),
            None => break,
        }
    }
    let told = |place: usize| Some((endpoints[place].clone(), reasons[place].clone()?));
    let reached = best.map(|(_, place, channel)| (place, channel));
    reached.ok_or_else(|| ConnectError::NoneAnswers { reasons: order.filter_map(told).collect() })
}

/// Connects to one endpoint and, if it is given time for that, asks for its health.
async fn ask(transport: &Transport, patience: Option<Duration>) -> Result<(Response, Channel), String> {
    let channel = transport.connect().await.map_err(|error| cause(&error))?;
    let Some(patience) = patience else { return Ok((Response::Serves, channel)) };
    let mut health = HealthClient::new(channel.clone());
    let response = match tokio::time::timeout(patience, health.check(HealthCheckRequest::default())).await {
        Ok(Ok(answer)) if answer.get_ref().status() == ServingStatus::Serving => Response::Serves,
        Ok(Ok(_)) => Response::Answers,
        // The connection broke, or gRPC is not spoken there.
        Ok(Err(status)) if status.source().is_some() => return Err(cause(&status)),
        // A proxy or another server may not know the question.
        Ok(Err(_)) => Response::Serves,
        Err(_) => Response::Accepts,
    };
    Ok((response, channel))
}

/// An end of a connection before any answer, where TLS may be what is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutShort {
    /// No HTTP/2 came, or nothing at all: perhaps the port speaks TLS.
    NoHttp2,
    /// It ended before anything was asked on it: perhaps a certificate is wanted. Its own error is nobody's any more.
    Unasked,
}

impl CutShort {
    /// The end that this answer tells of; `None` if it is of another kind.
    pub fn told_by(status: &tonic::Status) -> Option<CutShort> {
        match status.message() {
            said if said.contains("http2 error") || said == "transport error" => Some(CutShort::NoHttp2),
            said if said.contains("operation was canceled") => Some(CutShort::Unasked),
            _ => None,
        }
    }
}

/// The innermost cause: "connection refused" tells more than "transport error".
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_next_key_that_does_not_bear_it() {
        assert_eq!(prefix_end(b"a"), "b");
        assert_eq!(prefix_end(b"a\xff\xff"), "b");
        assert_eq!(prefix_end(b"\xff"), &[0][..]);
        assert_eq!(prefix_end(b""), &[0][..]);
    }

    #[test]
    fn an_endpoint_may_lack_its_scheme_but_not_have_another() {
        let options = Options::default();
        assert_eq!(transport("127.0.0.1:2379", &options).unwrap().uri().to_string(), "http://127.0.0.1:2379/");
        assert_eq!(transport("https://h:2379", &options).unwrap().uri().scheme_str(), Some("https"));
        let tls = Options { tls: super::tls(Trust::Machine, None).ok(), ..Options::default() };
        assert_eq!(transport("h:2379", &tls).unwrap().uri().scheme_str(), Some("https"));
        assert_eq!(transport("http://h:2379", &tls).unwrap().uri().scheme_str(), Some("http"));
        assert!(matches!(transport("ftp://127.0.0.1:2379", &options), Err(ConnectError::Address { .. })));
        assert!(matches!(transport("a b", &options), Err(ConnectError::Address { .. })));
    }
}
