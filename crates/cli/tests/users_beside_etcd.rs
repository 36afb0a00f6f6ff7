//! Goal: what etcd refuses, this server refuses, in the same words; and what it refuses beyond that is a hole of etcd 3.5.1
//! that was published and closed since.
//! Method: the same calls, by the same users, to a real node and to the real etcd 3.5.1, one after the other; or to another version, in
//! which the holes are closed (`HUSTINGS_TEST_ETCD_DIR`).

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use crate::support::{etcd, hustings, program, run};
use crate::town::Town;
use bytes::Bytes;
use http_body_util::Full;
use hustings_api::Client;
use hustings_api::authpb;
use hustings_api::client::{Options, tls};
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::auth_client::AuthClient;
use hustings_testbed::probes::{CALLERS, Caller, Case, LEASES, PERMISSIONS, Permission, Proof, call, cases, post};
use hustings_testbed::{Cluster, Program, wait_for};
use hustings_tls::made::{Authority, Subject};
use hustings_tls::{Identity, Pair, Trust};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tonic::transport::Channel;

/// A cluster of one with users, keys and leases.
struct Guarded {
    cluster: Cluster,
    client: Client,
}

/// The way in which calls reach a member, and what a caller proves there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Door {
    Grpc,
    Json,
    /// gRPC by those who show a certificate with their name, and no token.
    Certificate,
    /// JSON through the gateway, in TLS.
    JsonInTls,
}

impl Door {
    fn is_json(self) -> bool {
        matches!(self, Door::Json | Door::JsonInTls)
    }
}

/// A client of HTTP that trusts this town.
fn in_tls(town: &Town) -> HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>> {
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_file_iter(&town.ca).expect("a file") {
        roots.add(ca.expect("a certificate")).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let tls = tls.with_root_certificates(roots).with_no_client_auth();
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    HttpClient::builder(TokioExecutor::new()).build(connector.enable_http1().build())
}

/// A client that shows the certificate of this name.
async fn by_certificate(town: &Town, endpoint: &str, name: &str) -> Client {
    showing(town, endpoint, town.issue(name, &Subject::new(name))).await
}

/// A client that shows this certificate.
async fn showing(town: &Town, endpoint: &str, pair: Pair) -> Client {
    let connector = tls(Trust::Authority(town.ca.clone()), Some(Identity::Files(pair))).expect("its files are good");
    let options = Options { tls: Some(connector), ..Options::default() };
    wait_for("a member in TLS", async || Client::connect_with(&[endpoint], options.clone()).await.ok())
        .await
        .expect("it serves")
}

impl Guarded {
    async fn start(program: Program) -> Guarded {
        let cluster = Cluster::start(program, 1).await.expect("it starts");
        let client = Client::connect(&cluster.endpoints()).await.expect("it answers");
        Guarded::found(cluster, client).await
    }

    /// One that speaks TLS; asked for client certificates, it takes the name in one as its user.
    async fn start_in_tls(program: Program, town: &Town, asks_for_certificates: bool) -> Guarded {
        let server = town.issue("server", &Subject::new("server").host("localhost").address([127, 0, 0, 1]));
        let [certificate, key, ca] =
            [&server.certificate, &server.key, &town.ca].map(|path| path.to_str().expect("paths here are text"));
        let mut flags = vec!["--cert-file", certificate, "--key-file", key];
        if asks_for_certificates {
            flags.extend(["--trusted-ca-file", ca, "--client-cert-auth"]);
        }
        let mut cluster = Cluster::prepare(program.with(&flags), 1).expect("ports are free");
        cluster.nodes[0].client = cluster.nodes[0].client.replace("http://", "https://");
        cluster.start_node(0).expect("it starts");
        let client = by_certificate(town, &cluster.nodes[0].client, "norole").await;
        Guarded::found(cluster, client).await
    }

    async fn found(cluster: Cluster, client: Client) -> Guarded {
        let mut auth = AuthClient::new(client.channel());
        for user in ["root", "norole", "other", "reader", "writer", "both"] {
            let name = || user.to_owned();
            let request = pb::AuthUserAddRequest { name: name(), password: name(), ..Default::default() };
            auth.user_add(request).await.expect("a user");
            if user != "norole" {
                auth.role_add(pb::AuthRoleAddRequest { name: name() }).await.expect("a role");
                let request = pb::AuthUserGrantRoleRequest { user: name(), role: name() };
                auth.user_grant_role(request).await.expect("a role of a user");
            }
        }
        for (role, kind, key, range_end) in PERMISSIONS {
            let perm =
                Some(authpb::Permission { perm_type: kind as i32, key: key.into(), range_end: range_end.into() });
            let request = pb::AuthRoleGrantPermissionRequest { name: role.into(), perm };
            auth.role_grant_permission(request).await.expect("a permission");
        }
        auth.auth_enable(pb::AuthEnableRequest {}).await.expect("users count");
        Guarded { cluster, client }
    }

    fn channel(&self) -> Channel {
        self.client.channel()
    }

    async fn token(&self, user: &str) -> String {
        let request = pb::AuthenticateRequest { name: user.into(), password: user.into() };
        let answer = AuthClient::new(self.channel()).authenticate(request).await.expect("the password is right");
        answer.into_inner().token
    }

    /// Lays the leases and their keys anew. Keys that the caller before hung on a lease go first: etcd lets in callers that it should not.
    async fn lay(&self) {
        let token = self.token("root").await;
        let by_root = |case: Case| {
            let token = token.clone();
            async move { call(&self.channel(), &case, Some(&token)).await }
        };
        let all = pb::DeleteRangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
        assert_eq!(by_root(case("/etcdserverpb.KV/DeleteRange", &all)).await.0, 0);
        for (id, keys) in LEASES {
            // One that stands is refused, and stays.
            by_root(case("/etcdserverpb.Lease/LeaseGrant", &pb::LeaseGrantRequest { id, ttl: 10_000 })).await;
            for key in keys {
                let put = pb::PutRequest { key: (*key).into(), value: "v".into(), lease: id, ..Default::default() };
                assert_eq!(by_root(case("/etcdserverpb.KV/Put", &put)).await.0, 0);
            }
        }
    }
}

fn case(method: &'static str, message: &impl prost::Message) -> Case {
    let bytes = message.encode_to_vec().into();
    let (label, json) = (String::new(), String::new());
    Case { method, path: "", label, bytes, json, want: Permission::Root, is_fatal: false }
}

/// Whether the etcd at hand is one in which the holes of 3.5.1 but one are closed: 3.5.28 or a later one.
fn is_mended() -> bool {
    static VERSION: OnceLock<Vec<u32>> = OnceLock::new();
    let version = VERSION.get_or_init(|| {
        let told = run(Command::new(etcd().path).arg("--version")).ok();
        let version = told.lines().find_map(|line| line.strip_prefix("etcd Version: ")).expect("it tells its version");
        version.split('.').map(|number| number.parse().expect("a number")).collect()
    });
    *version >= vec![3, 5, 28]
}

/// The publication of a hole of the etcd at hand, for a call that it lets through; `None` for the others.
fn hole(who: &Caller, case: &Case) -> Option<&'static str> {
    const OPEN_ENDED: &str = "GHSA-xg4h-6gfc-h4m8: open-ended watches";
    let label = &case.label;
    match case.method.rsplit_once('/').expect("a path").1 {
        "Watch" if label.contains("\\0\")") => Some(OPEN_ENDED),
        _ if is_mended() && who.label == "stranger by certificate" => Some("a certificate that names no user"),
        _ if is_mended() => None,
        "Txn" if label.contains("depth 1") || label.contains("depth 2") => Some("CVE-2026-33343: nested transactions"),
        "Txn" if label.contains("put ") => Some("CVE-2026-44283: prev_kv and leases of puts in transactions"),
        "Lock" | "Campaign" if !label.ends_with("lease=0") => Some("CVE-2026-44283: leases of puts in transactions"),
        "LeaseTimeToLive" => Some("CVE-2023-32082: the keys of a lease"),
        "LeaseGrant" | "LeaseKeepAlive" | "LeaseLeases" | "LeaseRevoke" => Some("CVE-2026-33413: leases"),
        "MemberList" | "Alarm" | "Compact" => Some("CVE-2026-33413: members, alarms, compaction"),
        "Status" | "MoveLeader" | "Downgrade" => Some("etcd 3.5.28: maintenance is root's"),
        _ => None,
    }
}

/// Asked of etcd 3.5.1, these would change what all others find.
fn spares_etcd(who: &Caller, case: &Case) -> bool {
    case.is_fatal && hole(who, case).is_some()
}

/// Refused at both, and told in other words than 3.5.1's on purpose.
fn other_words(case: &Case, here: &(i32, String), there: &(i32, String)) -> Option<&'static str> {
    let is_raw = there.1.strip_prefix("auth: ").is_some_and(|words| {
        here.1 == format!("etcdserver: {}", words.replace("user not found", "user name not found"))
    });
    match () {
        () if is_raw => Some("3.5.1 hands on its store's own words (auth: ...)"),
        () if case.method.ends_with("Watch/Watch") => Some("watch: who is nobody is told so, as from 3.5.5 on"),
        () => None,
    }
}

fn is_of_permissions((code, text): &(i32, String)) -> bool {
    *code == 7
        || *code == 16
        || text.ends_with("user name is empty")
        || text.ends_with("permission denied")
        || text.ends_with("invalid auth token")
        || (*code == 9 && text.ends_with("user name not found"))
        || text == "auth: user not found"
        || text.contains("revision of auth store")
}

/// The results of a comparison.
#[derive(Default)]
struct Seen {
    probes: usize,
    same: usize,
    /// Refused here, let through by etcd 3.5.1: by publication.
    beyond: BTreeMap<&'static str, usize>,
    /// Calls of `Status`, which every user may make here, and root alone at an etcd from 3.5.28 on; a certificate that names no user
    /// is refused at both, in other words.
    status: usize,
    /// Refused at both in other words: why.
    worded: BTreeMap<&'static str, usize>,
    failures: Vec<String>,
}

impl Seen {
    fn take(&mut self, who: &Caller, case: &Case, here: (i32, String), there: (i32, String)) {
        self.probes += 1;
        match (is_of_permissions(&here), is_of_permissions(&there)) {
            _ if here == there => self.same += 1,
            // Other differences are told elsewhere.
            (false, false) => self.same += 1,
            (true, false) if hole(who, case).is_some() => {
                *self.beyond.entry(hole(who, case).unwrap_or_default()).or_default() += 1;
            }
            (_, true) if is_mended() && case.method.ends_with("/Status") => self.status += 1,
            (true, true) if other_words(case, &here, &there).is_some() => {
                *self.worded.entry(other_words(case, &here, &there).unwrap_or_default()).or_default() += 1;
            }
            _ => self
                .failures
                .push(format!("{}, {} {}: {here:?} here, {there:?} at etcd", who.label, case.method, case.label)),
        }
    }

    /// Tells what was seen; none of it may be a failure.
    fn assert_alike(&self, door: Door, probes_min: usize) {
        let Seen { probes, same, beyond, status, worded, failures } = self;
        println!(
            "{door:?}: {probes} probes beside etcd: {same} the same, {} different; refused beyond it: {beyond:#?}; in other words: {worded:#?}; Status, which root alone may call there: {status}",
            failures.len()
        );
        for failure in failures {
            println!("{failure}");
        }
        assert!(
            failures.is_empty(),
            "{} of {probes}:\n{}",
            failures.len(),
            failures[..failures.len().min(60)].join("\n")
        );
        assert!(*probes >= probes_min, "only {probes} probes");
    }
}

/// Whether a case is asked through this door: observing is a stream without an end.
fn is_asked(case: &Case, door: Door) -> bool {
    // Paths of JSON name a method twice, which is one method over gRPC.
    let is_again = case.path.starts_with("kv/lease/") && !door.is_json();
    let is_for_grpc = case.path.is_empty() && door.is_json();
    !is_again && !is_for_grpc && !case.method.ends_with("Observe")
}

/// All calls of these callers, at both. A caller by certificate comes from this town.
async fn compared(ours: &Guarded, etcd: &Guarded, callers: &[Caller], door: Door, town: Option<&Town>) -> Seen {
    let mut seen = Seen::default();
    let http: HttpClient<HttpConnector, _> = HttpClient::builder(TokioExecutor::new()).build_http();
    let https = match (door, town) {
        (Door::JsonInTls, Some(town)) => Some(in_tls(town)),
        _ => None,
    };
    for (place, who) in callers.iter().enumerate() {
        let mut tokens = [None, None];
        let mut channels = Vec::new();
        for (token, at) in tokens.iter_mut().zip([ours, etcd]) {
            at.lay().await;
            *token = match who.proof {
                Proof::Token => Some(at.token(who.user).await),
                Proof::Wrong => Some("forged.token".to_owned()),
                _ => None,
            };
            channels.push(match town.filter(|_| who.proof == Proof::Certificate) {
                Some(town) => by_certificate(town, &at.cluster.nodes[0].client, who.user).await.channel(),
                None => at.channel(),
            });
        }
        for case in cases(place) {
            if !is_asked(&case, door) || spares_etcd(who, &case) || (case.is_fatal && who.refusal(&case.want).is_none())
            {
                continue;
            }
            let mut outcomes = Vec::new();
            for ((token, channel), at) in tokens.iter().zip(&channels).zip([ours, etcd]) {
                outcomes.push(match (&https, door) {
                    (Some(https), _) => post(https, &at.cluster.nodes[0].client, &case, token.as_deref()).await,
                    (None, Door::Json | Door::JsonInTls) => {
                        post(&http, &at.cluster.nodes[0].client, &case, token.as_deref()).await
                    }
                    (None, Door::Grpc | Door::Certificate) => call(channel, &case, token.as_deref()).await,
                });
            }
            let [here, there] = outcomes.try_into().expect("two were asked");
            seen.take(who, &case, here, there);
        }
    }
    seen
}

fn with_tokens() -> Vec<Caller> {
    CALLERS.into_iter().filter(|who| who.proof != Proof::Certificate).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_etcd_refuses_is_refused_in_the_same_words() {
    let (ours, etcd) = (Guarded::start(program()).await, Guarded::start(etcd()).await);
    let seen = compared(&ours, &etcd, &with_tokens(), Door::Grpc, None).await;
    seen.assert_alike(Door::Grpc, 4_000);
    // Each hole was there to be seen, or is closed there too.
    assert!(seen.beyond.len() >= 5 || (is_mended() && seen.beyond.len() == 1), "{:#?}", seen.beyond);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_etcd_refuses_as_json_is_refused_in_the_same_words() {
    let (ours, etcd) = (Guarded::start(program()).await, Guarded::start(etcd()).await);
    let seen = compared(&ours, &etcd, &with_tokens(), Door::Json, None).await;
    seen.assert_alike(Door::Json, 4_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whom_etcd_takes_by_a_certificate_is_taken_and_refused_alike() {
    let town = Town::found();
    let ours = Guarded::start_in_tls(program(), &town, true).await;
    let etcd = Guarded::start_in_tls(etcd(), &town, true).await;
    let callers: Vec<Caller> = CALLERS.into_iter().filter(|who| who.proof == Proof::Certificate).collect();
    let seen = compared(&ours, &etcd, &callers, Door::Certificate, Some(&town)).await;
    seen.assert_alike(Door::Certificate, 1_500);
}

/// Goal: the gateway behind TLS admits whom etcd's admits. Method: the same calls as JSON, by all who have a token and by nobody. No
/// client needs a certificate here: etcd's gateway would show its own to itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_etcd_refuses_as_json_in_tls_is_refused_in_the_same_words() {
    let town = Town::found();
    let ours = Guarded::start_in_tls(program(), &town, false).await;
    let etcd = Guarded::start_in_tls(etcd(), &town, false).await;
    let seen = compared(&ours, &etcd, &with_tokens(), Door::JsonInTls, Some(&town)).await;
    seen.assert_alike(Door::JsonInTls, 4_000);
}

/// Goal: the one bound that etcd does not have is where the docs say it is. Method: a name of one byte too many, at both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_name_is_taken_by_etcd_and_refused_here() {
    let (ours, theirs) = (Cluster::start(program(), 1).await, Cluster::start(etcd(), 1).await);
    for (cluster, is_taken) in [(ours.expect("it starts"), false), (theirs.expect("it starts"), true)] {
        let client = Client::connect(&cluster.endpoints()).await.expect("it answers");
        let request = pb::AuthRoleAddRequest { name: "n".repeat(1_025) };
        let outcome = AuthClient::new(client.channel()).role_add(request).await;
        assert_eq!(outcome.is_ok(), is_taken, "{outcome:?}");
    }
}

/// Goal: a user without a password who tries one is told so in etcd's words, and our command counts it as "not allowed". Method:
/// the same tries at both, beside a wrong password and a user that does not exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_a_password_is_refused_in_the_words_of_etcd() {
    let (ours, theirs) = (Cluster::start(program(), 1).await, Cluster::start(etcd(), 1).await);
    let (ours, theirs) = (ours.expect("it starts"), theirs.expect("it starts"));
    let mut told = Vec::new();
    for cluster in [&ours, &theirs] {
        let client = Client::connect(&cluster.endpoints()).await.expect("it answers");
        let mut auth = AuthClient::new(client.channel());
        for (name, password) in [("root", "r00t"), ("bare", "")] {
            let options = Some(authpb::UserAddOptions { no_password: password.is_empty() });
            let (name, password) = (name.to_owned(), password.to_owned());
            let request = pb::AuthUserAddRequest { name, password, options, ..Default::default() };
            auth.user_add(request).await.expect("a user");
        }
        let request = pb::AuthUserGrantRoleRequest { user: "root".into(), role: "root".into() };
        auth.user_grant_role(request).await.expect("a role of a user");
        auth.auth_enable(pb::AuthEnableRequest {}).await.expect("users count");
        let mut refusals = Vec::new();
        for (name, password) in [("bare", "guess"), ("bare", ""), ("root", "wrong"), ("nobody", "guess"), ("", "")] {
            let request = pb::AuthenticateRequest { name: name.into(), password: password.into() };
            let refused = auth.authenticate(request).await.expect_err("there is no such password");
            refusals.push((name, password, refused.code(), refused.message().to_owned()));
        }
        told.push(refusals);
    }
    assert_eq!(told[0], told[1], "here, and at etcd 3.5.1");
    let (_, _, code, words) = &told[0][0];
    assert_eq!(*code, tonic::Code::Unknown);
    assert!(words.contains("password was given for no password user"), "{words}");
    let refused = hustings(&["get", "a", "--user", "bare:guess", "--endpoints", &ours.nodes[0].client]);
    assert!(refused.code == Some(5) && refused.stderr.contains(words), "{refused:?}");
}

/// A certificate with several common names, in this order, by openssl.
fn issue_with_names(town: &Town, file: &str, names: &str) -> Pair {
    let path = |end: &str| town.path(&format!("{file}.{end}")).display().to_string();
    let openssl = |words: &[&str]| run(Command::new("openssl").args(words)).ok();
    let (key, request, certificate) = (path("key"), path("csr"), path("crt"));
    openssl(&["req", "-new", "-newkey", "ed25519", "-nodes", "-keyout", &key, "-subj", names, "-out", &request]);
    let (ca, ca_key) = (town.path("ca.crt").display().to_string(), town.path("ca.key").display().to_string());
    let signing = ["x509", "-req", "-in", &request, "-CA", &ca, "-CAkey", &ca_key, "-set_serial", "4711", "-days", "9"];
    // Without an extension it would be of the first version.
    let extensions = path("ext");
    std::fs::write(&extensions, "basicConstraints=CA:FALSE\n").expect("written");
    openssl(&[&signing[..], &["-extfile", &extensions, "-out", &certificate]].concat());
    Pair { certificate: certificate.into(), key: key.into() }
}

/// Goal: a certificate with several common names is the same user here as at etcd. Method: root first, and root last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_of_several_common_names_is_the_user() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::in_directory(directory.path(), "the CA of the test").expect("made");
    let town = Town { ca: directory.path().join("ca.crt"), directory, authority };
    let pairs = [("first", "/CN=root/CN=reader"), ("last", "/CN=reader/CN=root")]
        .map(|(file, names)| issue_with_names(&town, file, names));
    for program in [program(), etcd()] {
        let guarded = Guarded::start_in_tls(program, &town, true).await;
        let mut outcomes = Vec::new();
        for pair in &pairs {
            let client = showing(&town, &guarded.cluster.nodes[0].client, pair.clone()).await;
            let listed = AuthClient::new(client.channel()).user_list(pb::AuthUserListRequest {}).await;
            outcomes.push(listed.map(drop).map_err(|status| status.code()));
        }
        assert_eq!(outcomes, [Err(tonic::Code::PermissionDenied), Ok(())], "only root may");
    }
}
