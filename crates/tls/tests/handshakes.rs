//! Goal: a client that shows the wrong certificate, or none, or speaks none, gets no further than the handshake and hears why; one that
//! shows the right one does. Method: two ends of a connection in memory, certificates of a CA made for the test.

mod town;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use hustings_tls::made::{Made, Subject};
use hustings_tls::{
    Acceptor, Allowed, Certificate, ClientTls, Connector, Identity, Pair, Rules, ServerTls, Trust, Version,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use town::Town;

impl Town {
    /// A certificate in files that no other has.
    fn made(&self, subject: &Subject) -> (Made, Pair) {
        static ISSUED: AtomicU64 = AtomicU64::new(0);
        let made = self.authority.issue(subject).expect("issued");
        let name = format!("issued-{}", ISSUED.fetch_add(1, Ordering::Relaxed));
        let pair = made.write(self.directory.path(), &name).expect("written");
        (made, pair)
    }

    fn pair(&self, subject: &Subject) -> Pair {
        self.made(subject).1
    }

    /// A port whose certificate is for `localhost`.
    fn port(&self) -> ServerTls {
        ServerTls {
            of: "client",
            identity: Identity::Files(self.pair(&Subject::new("the port").host("localhost").address([127, 0, 0, 1]))),
            trusted_ca: None,
            revoked: None,
            allowed: None,
            rules: Rules::default(),
            protocols: vec!["h2", "http/1.1"],
        }
    }

    /// A client that trusts this CA.
    fn client(&self) -> ClientTls {
        ClientTls {
            of: "test",
            trust: Trust::Authority(self.ca.clone()),
            identity: None,
            revoked: None,
            allowed: None,
            rules: Rules::default(),
            protocols: vec!["h2"],
            server_name: None,
        }
    }

    fn client_as(&self, subject: &Subject) -> ClientTls {
        ClientTls { identity: Some(Identity::Files(self.pair(subject))), ..self.client() }
    }
}

/// The result of a meeting: the certificate that the port saw, and the one that the client saw, or their errors.
struct Met {
    port: io::Result<Option<Certificate>>,
    client: io::Result<Option<Certificate>>,
}

impl Met {
    fn is_refused(&self, why: &str) {
        let said = match (&self.port, &self.client) {
            (Err(port), Err(client)) => format!("{port} / {client}"),
            (Err(port), Ok(_)) => port.to_string(),
            (Ok(_), Err(client)) => client.to_string(),
            (Ok(_), Ok(_)) => panic!("they were to be strangers"),
        };
        assert!(said.contains(why), "they said {said:?}, not {why:?}");
    }

    fn are_well(self) -> (Option<Certificate>, Option<Certificate>) {
        (self.port.expect("the port is content"), self.client.expect("the client is content"))
    }
}

async fn meet(port: &Acceptor, client: &Connector, host: &str) -> Met {
    let (near, far) = duplex(64 << 10);
    let (port, client) = tokio::join!(
        async {
            let (mut stream, shown) = port.accept(far).await?;
            stream.write_all(b"welcome").await?;
            stream.flush().await?;
            Ok(shown)
        },
        async {
            let (mut stream, shown) = client.connect(host, near).await?;
            // In TLS 1.3 a client hears only now that its certificate is not wanted.
            let mut heard = [0; 7];
            stream.read_exact(&mut heard).await?;
            assert_eq!(&heard, b"welcome");
            Ok(shown)
        }
    );
    Met { port, client }
}

fn acceptor(tls: ServerTls) -> Acceptor {
    Acceptor::new(tls).expect("its files are good")
}

fn connector(tls: ClientTls) -> Connector {
    Connector::new(tls).expect("its files are good")
}

#[tokio::test]
async fn a_client_believes_the_ca_that_it_was_given() {
    let town = Town::found();
    let port = acceptor(town.port());
    let (seen, shown) = meet(&port, &connector(town.client()), "localhost").await.are_well();
    assert_eq!(seen, None, "nobody asked the client for a certificate");
    assert_eq!(shown.expect("a port has one").common_name, "the port");
    meet(&port, &connector(town.client()), "[127.0.0.1]").await.are_well();

    meet(&port, &connector(town.client()), "db.example.org").await.is_refused("not valid for name");
    let elsewhere = Town::with("another CA");
    meet(&port, &connector(elsewhere.client()), "localhost").await.is_refused("nknown");
    let credulous = ClientTls { trust: Trust::Anybody, ..elsewhere.client() };
    meet(&port, &connector(credulous), "db.example.org").await.are_well();
    let named = ClientTls { server_name: Some("localhost".to_owned()), ..town.client() };
    meet(&port, &connector(named), "10.0.0.1").await.are_well();
    let any_host = |town: &Town| ClientTls { trust: Trust::AuthorityForAnyHost(town.ca.clone()), ..town.client() };
    meet(&port, &connector(any_host(&town)), "db.example.org").await.are_well();
    meet(&port, &connector(any_host(&elsewhere)), "localhost").await.is_refused("nknown");
}

#[tokio::test]
async fn a_port_that_asks_for_certificates_admits_good_ones_alone() {
    let town = Town::found();
    let asking = || ServerTls { trusted_ca: Some(town.ca.clone()), ..town.port() };
    let port = acceptor(asking());
    let root = Subject::new("root");
    let (seen, _) = meet(&port, &connector(town.client_as(&root)), "localhost").await.are_well();
    assert_eq!(seen.expect("it was shown").common_name, "root");

    meet(&port, &connector(town.client()), "localhost").await.is_refused("no certificate");
    let elsewhere = Town::with("another CA");
    let stranger = ClientTls { trust: Trust::Authority(town.ca.clone()), ..elsewhere.client_as(&root) };
    meet(&port, &connector(stranger), "localhost").await.is_refused("nknown");
    meet(&port, &connector(town.client_as(&root.clone().days(-1))), "localhost").await.is_refused("xpired");

    let named = acceptor(ServerTls { allowed: Some(Allowed::CommonName("peer".to_owned())), ..asking() });
    meet(&named, &connector(town.client_as(&root)), "localhost")
        .await
        .is_refused("is not for the common name \"peer\"");
    meet(&named, &connector(town.client_as(&Subject::new("peer"))), "localhost").await.are_well();
    let hosts = acceptor(ServerTls { allowed: Some(Allowed::Host("db-a".to_owned())), ..asking() });
    meet(&hosts, &connector(town.client_as(&root)), "localhost").await.is_refused("is not for the host \"db-a\"");
    meet(&hosts, &connector(town.client_as(&root.clone().host("db-a"))), "localhost").await.are_well();
}

/// Goal: who dials holds the other end to what it allows, as a port does. Method: a port with a certificate of the right CA for the host that
/// is dialled, under each condition that it does not meet and that it does.
#[tokio::test]
async fn who_dials_may_ask_for_a_name_too() {
    let town = Town::found();
    let port = acceptor(town.port());
    let allowing = |allowed| connector(ClientTls { allowed: Some(allowed), ..town.client() });
    let name = |name: &str| allowing(Allowed::CommonName(name.to_owned()));
    let host = |host: &str| allowing(Allowed::Host(host.to_owned()));
    meet(&port, &name("peer"), "localhost").await.is_refused("of \"the port\", is not for the common name \"peer\"");
    meet(&port, &name("the port"), "localhost").await.are_well();
    meet(&port, &host("db-a"), "localhost").await.is_refused("is not for the host \"db-a\"");
    meet(&port, &host("127.0.0.1"), "localhost").await.are_well();
}

/// Goal: a port whose own certificate its dialers would refuse is told before anybody dials. Method: a certificate in files under each
/// condition that it does not meet and that it does.
#[test]
fn what_a_port_shows_is_held_to_what_its_dialers_ask() {
    let town = Town::found();
    let identity = town.port().identity;
    let fault = |allowed: Allowed| allowed.fault_of(&identity).map(|fault| fault.to_string());
    let said = fault(Allowed::CommonName("peer".to_owned())).expect("it has another name");
    assert!(said.contains(".crt") && said.contains("of \"the port\", is not for the common name \"peer\""), "{said}");
    assert!(fault(Allowed::Host("db-a".to_owned())).is_some());
    assert_eq!(fault(Allowed::CommonName("the port".to_owned())), None);
    assert_eq!(fault(Allowed::Host("localhost".to_owned())), None);
}

#[tokio::test]
async fn one_who_is_turned_away_while_it_writes_reads_why() {
    let town = Town::found();
    let port = acceptor(ServerTls { trusted_ca: Some(town.ca.clone()), ..town.port() });
    let client = connector(town.client());
    let (near, far) = duplex(4 << 10);
    let (turned_away, heard) =
        tokio::join!(async { port.accept(far).await.map(|_| ()).expect_err("it shows no certificate") }, async {
            let (mut stream, _) =
                client.connect("localhost", near).await.expect("in TLS 1.3 a client is content first");
            // More than the way between them holds.
            stream.write_all(&[0; 64 << 10]).await.expect("nobody breaks the connection under it");
            stream.flush().await.expect("nor before it is read");
            stream.read_u8().await.expect_err("it is turned away")
        });
    assert!(turned_away.to_string().contains("no certificate"), "{turned_away}");
    assert!(heard.to_string().contains("CertificateRequired"), "{heard}");
}

/// Goal: a client that speaks TLS to a port that does not is told what to change, however the port takes it. Method: a port that reads and
/// hangs up in order, one that hangs up with the handshake unread, which breaks the connection, and one that answers in plain text.
#[tokio::test]
async fn a_port_without_tls_is_suspected_however_it_ends_the_handshake() {
    let town = Town::found();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it has one");
    let client = connector(town.client());
    for (manner, kind) in [
        ("in order", io::ErrorKind::UnexpectedEof),
        ("by a reset", io::ErrorKind::ConnectionReset),
        ("in plain text", io::ErrorKind::InvalidData),
    ] {
        let (refused, ()) = tokio::join!(
            async {
                let stream = TcpStream::connect(address).await.expect("it accepts");
                client.connect("127.0.0.1", stream).await.map(drop).expect_err("nobody speaks TLS there")
            },
            async {
                let (mut stream, _) = listener.accept().await.expect("it is dialled");
                let mut hello = [0; 16 << 10];
                assert!(stream.peek(&mut hello).await.expect("a handshake begins") > 0);
                if manner == "by a reset" {
                    return;
                }
                assert!(stream.read(&mut hello).await.expect("it is readable") > 0);
                if manner == "in plain text" {
                    stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("it is heard");
                }
            },
        );
        assert_eq!(refused.kind(), kind, "{manner}: {refused}");
        let said = refused.to_string();
        assert!(said.contains("speak TLS on this port"), "{manner}: {said}");
        assert!(said.ends_with("say http://, or name no CA"), "{manner}: {said}");
    }
}

#[tokio::test]
async fn a_revoked_certificate_is_good_no_more() {
    let town = Town::found();
    let (lost, lost_pair) = town.made(&Subject::new("lost"));
    let revoked = town.path("revoked.pem");
    town.authority.revoke(&[&lost], &revoked).expect("written");
    let port = acceptor(ServerTls { trusted_ca: Some(town.ca.clone()), revoked: Some(revoked), ..town.port() });
    let thief = ClientTls { identity: Some(Identity::Files(lost_pair)), ..town.client() };
    meet(&port, &connector(thief), "localhost").await.is_refused("Revoked");
    meet(&port, &connector(town.client_as(&Subject::new("kept"))), "localhost").await.are_well();
}

/// The kinds of handshake, as the client sees them, of two connections one after the other.
async fn kinds(port: &Acceptor, connect: impl AsyncFn(DuplexStream) -> ClientConnection) -> Vec<HandshakeKind> {
    let mut kinds = Vec::new();
    for _ in 0..2 {
        let (near, far) = duplex(64 << 10);
        let (accepted, kind) = tokio::join!(
            async {
                let (mut stream, _) = port.accept(far).await.expect("the port is content");
                stream.write_all(b"welcome").await.expect("it is read");
                stream.flush().await.expect("it is read");
                stream
            },
            async { connect(near).await.handshake_kind().expect("they have shaken hands") }
        );
        drop(accepted);
        kinds.push(kind);
    }
    kinds
}

/// Goal: a certificate is verified for each connection, so that none outlives its end. Method: two connections of one client, which resumes
/// what it can, to a port that asks for certificates and to one that does not; and two of ours to that one.
#[tokio::test]
async fn no_session_is_resumed_in_which_a_certificate_counts() {
    let town = Town::found();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&town.ca).expect("it is PEM")).expect("it is a certificate");
    let (root, _) = town.made(&Subject::new("root"));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let builder = builder.with_protocol_versions(&[version]).expect("it is spoken");
        let builder = builder.with_root_certificates(roots.clone());
        let config = builder.with_client_auth_cert(vec![root.certificate.clone()], root.key.clone_key());
        let eager = TlsConnector::from(Arc::new(config.expect("they belong together")));
        let resuming = async |near| {
            let name = ServerName::try_from("localhost").expect("a name");
            let mut stream = eager.connect(name, near).await.expect("it is content");
            // Tickets of TLS 1.3 come before it.
            let mut heard = [0; 7];
            stream.read_exact(&mut heard).await.expect("it is greeted");
            stream.into_inner().1
        };
        let open = acceptor(town.port());
        assert_eq!(kinds(&open, resuming).await[1], HandshakeKind::Resumed, "{version:?}: this client would");
        let asking = acceptor(ServerTls { trusted_ca: Some(town.ca.clone()), ..town.port() });
        assert_eq!(kinds(&asking, resuming).await, [HandshakeKind::Full; 2], "{version:?}");

        let rules = match version.version {
            rustls::ProtocolVersion::TLSv1_2 => Version::Tls12,
            _ => Version::Tls13,
        };
        let rules = Rules::new(rules, rules, &[]).expect("sound");
        let ours = connector(ClientTls { rules, ..town.client() });
        let dialling = async |near| {
            let (mut stream, _) = ours.connect("localhost", near).await.expect("it is content");
            let mut heard = [0; 7];
            stream.read_exact(&mut heard).await.expect("it is greeted");
            stream.into_inner().1
        };
        assert_eq!(kinds(&open, dialling).await, [HandshakeKind::Full; 2], "{version:?}: who dials verifies");
    }
}

#[tokio::test]
async fn versions_that_have_none_in_common_do_not_meet() {
    let town = Town::found();
    let only = |version| Rules::new(version, version, &[]).expect("sound");
    let port = acceptor(ServerTls { rules: only(Version::Tls13), ..town.port() });
    let old = ClientTls { rules: only(Version::Tls12), ..town.client() };
    meet(&port, &connector(old), "localhost").await.is_refused("Tls12NotOfferedOrEnabled");
    meet(&port, &connector(ClientTls { rules: only(Version::Tls13), ..town.client() }), "localhost").await.are_well();
}

#[tokio::test]
async fn what_is_no_tls_is_refused() {
    let town = Town::found();
    let port = acceptor(town.port());
    for said in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[0; 512], &[0x16, 3, 1, 0xff, 0xff]]
    {
        let (mut near, far) = duplex(4 << 10);
        near.write_all(said).await.expect("it fits");
        near.shutdown().await.expect("it is open");
        assert!(port.accept(far).await.is_err(), "{said:?}");
    }
}

#[test]
fn files_that_are_wrong_are_named_with_a_remedy() {
    let town = Town::found();
    let said = |tls: ServerTls| Acceptor::new(tls).err().expect("it is to be refused").to_string();
    let with = |certificate: &Path, key: &Path| ServerTls {
        identity: Identity::Files(Pair { certificate: certificate.to_owned(), key: key.to_owned() }),
        ..town.port()
    };
    let (one, other) = (town.pair(&Subject::new("one")), town.pair(&Subject::new("other")));
    let empty = town.path("empty.pem");
    std::fs::write(&empty, "").expect("written");
    let missing = town.path("missing.pem");
    for (tls, expected) in [
        (with(&missing, &one.key), "missing.pem: it cannot be read: No such file"),
        (with(&empty, &one.key), "empty.pem: it does not hold a certificate"),
        (with(&one.certificate, &one.certificate), "it holds no private key in PEM"),
        (with(&one.certificate, &other.key), "the key is not the certificate's"),
        (ServerTls { trusted_ca: Some(empty.clone()), ..town.port() }, "the trusted CA"),
        (
            ServerTls { trusted_ca: Some(town.ca.clone()), revoked: Some(empty.clone()), ..town.port() },
            "does not hold a revocation list",
        ),
    ] {
        let said = said(tls);
        assert!(said.contains(expected), "{said}");
    }
}

/// A revocation list of version 1, as `openssl ca -gencrl` writes it for a CA whose section has no `crl_extensions`.
const VERSION_1: &str = "-----BEGIN X509 CRL-----
MIGEMDgwBQYDK2VwMBExDzANBgNVBAMMBm91ciBDQRcNMjYxMTMwMTc1OTQ0WhcN
MzYxMTI3MTc1OTQ0WjAFBgMrZXADQQBTV4V1WeKxq1E1XJQXzn5IeFmtOo9DimNn
1e7nleMejL3nucOKYw59bsKXhKSaI8Xc4sx2wiTwvkQJd4D5KWME
-----END X509 CRL-----
";

/// Goal: a revocation list that cannot be used is named, and not the CA beside it. Method: one of version 1, in PEM and in DER, a text that
/// begins as DER may, and one in DER that is cut off, for a port and for who dials; a good one in PEM behind such a text is taken.
#[test]
fn a_revocation_list_that_cannot_be_used_is_named_with_a_remedy() {
    let town = Town::found();
    let version_1 = CertificateRevocationListDer::from_pem_slice(VERSION_1.as_bytes()).expect("it is PEM");
    let remedy = "it is of version 1: make it one of version 2";
    let no_list = "it is no revocation list, neither in PEM (BEGIN X509 CRL) nor in DER";
    let with = |bytes: &[u8]| {
        let list = town.path("listed");
        std::fs::write(&list, bytes).expect("written");
        let port = ServerTls { trusted_ca: Some(town.ca.clone()), revoked: Some(list.clone()), ..town.port() };
        let client = ClientTls { revoked: Some(list), ..town.client() };
        [Acceptor::new(port).err(), Connector::new(client).err()].map(|error| error.map(|error| error.to_string()))
    };
    for (bytes, expected) in [
        (VERSION_1.as_bytes(), remedy),
        (&version_1, remedy),
        (b"0 certificates are revoked\n", no_list),
        (&version_1[..40], no_list),
    ] {
        for said in with(bytes) {
            let said = said.expect("it is to be refused");
            let is_named = said.starts_with("the revocation list /") && said.contains("/listed: ");
            assert!(is_named && said.contains(expected), "{said}");
        }
    }
    let good = town.path("good");
    town.authority.revoke(&[], &good).expect("written");
    let good = std::fs::read_to_string(&good).expect("it is there");
    assert_eq!(with(format!("0 certificates are revoked\n{good}").as_bytes()), [None, None]);
}

#[tokio::test]
async fn replaced_files_are_taken_up_and_wrong_ones_left_alone() {
    // Method: a port's certificate is replaced on disk by another, then by garbage; each meeting shows which one is in force.
    let town = Town::found();
    let tls = town.port();
    let Identity::Files(pair) = tls.identity.clone() else { unreachable!("it is of files") };
    let (port, client) = (acceptor(tls), connector(town.client()));
    let before = port.expiries()[0].not_after;
    let fresh = town.authority.issue(&Subject::new("fresh").host("localhost").days(700)).expect("issued");
    let made = fresh.write(town.directory.path(), "fresh").expect("written");
    std::fs::rename(&made.key, &pair.key).expect("renamed");
    std::fs::rename(&made.certificate, &pair.certificate).expect("renamed");
    let begun = Instant::now();
    loop {
        let (_, shown) = meet(&port, &client, "localhost").await.are_well();
        if shown.expect("a port has one").common_name == "fresh" {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "the new certificate is not taken up");
    }
    while port.expiries()[0].not_after <= before {
        assert!(begun.elapsed() < Duration::from_secs(10), "the new end is not known");
        tokio::task::yield_now().await;
    }
    std::fs::write(&pair.certificate, "garbage").expect("written");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        let (_, shown) = meet(&port, &client, "localhost").await.are_well();
        assert_eq!(shown.expect("a port has one").common_name, "fresh");
    }
}

#[tokio::test]
async fn the_ends_of_what_is_shown_and_of_what_is_trusted_are_told() {
    let town = Town::found();
    let port = acceptor(ServerTls { trusted_ca: Some(town.ca.clone()), ..town.port() });
    let told: Vec<(&str, bool)> =
        port.expiries().iter().map(|end| (end.of, end.not_after > SystemTime::now())).collect();
    assert_eq!(told, [("client", true), ("client-ca", true)]);
    let dialling = connector(ClientTls { of: "peer", ..town.client() });
    assert_eq!(dialling.expiries().iter().map(|end| end.of).collect::<Vec<_>>(), ["peer-ca"]);
    let showing = connector(ClientTls { of: "peer", ..town.client_as(&Subject::new("dials")) });
    assert_eq!(showing.expiries().iter().map(|end| end.of).collect::<Vec<_>>(), ["peer-client", "peer-ca"]);
}
