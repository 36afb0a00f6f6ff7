//! Goal: both ports speak TLS as etcd's do, to the clients that etcd has; a client that shows a wrong certificate or none is told so;
//! certificates are replaced without a failed request. Method: real processes, etcdctl, certificates of a CA made here.

mod up;

use crate::support::{Ended, HUSTINGS, Running, etcd_directory, run, text};
use crate::town::Town;
use hustings_api::Client;
use hustings_api::client::{Options, tls};
use hustings_api::dial::dial;
use hustings_testbed::{Process, free_port, free_ports, put, wait_for};
use hustings_tls::made::{Authority, Subject};
use hustings_tls::{Connector, Pair, Trust};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A town, and a member alone in it whose certificate its CA signed.
struct Alone {
    town: Town,
    port: u16,
}

impl std::ops::Deref for Alone {
    type Target = Town;

    fn deref(&self) -> &Town {
        &self.town
    }
}

impl Alone {
    fn found() -> Alone {
        let town = Town::found();
        town.issue("server", &Alone::server());
        Alone { town, port: free_port().expect("a port") }
    }

    fn server() -> Subject {
        Subject::new("server").host("localhost").address([127, 0, 0, 1])
    }

    fn endpoint(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The member, with these further flags.
    fn member(&self, flags: &[&str]) -> Running {
        Running::start(&mut self.command(flags))
    }

    fn command(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(HUSTINGS);
        let (client, peer) = (self.endpoint(), format!("http://127.0.0.1:{}", free_port().expect("a port")));
        command
            .args(["serve", "--name", "alone", "--log-format", "human", "--log-outputs", "stdout", "--data-dir"])
            .arg(self.path("data"));
        command.args(["--listen-client-urls", &client, "--listen-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("alone={peer}")]);
        command.arg("--cert-file").arg(self.path("server.crt")).arg("--key-file").arg(self.path("server.key"));
        command.args(flags);
        command
    }

    fn believing(&self) -> Connector {
        tls(Trust::Authority(self.ca.clone()), None).expect("its files are good")
    }

    async fn client(&self) -> Client {
        let options = Options { tls: Some(self.believing()), ..Options::default() };
        wait_for("a member in TLS", async || {
            let client = Client::connect_with(&[self.endpoint()], options.clone()).await.ok()?;
            put(&client, "first", "word").await.ok().map(|_| client)
        })
        .await
        .expect("it serves")
    }

    /// Common name of the certificate that a new connection is shown.
    async fn shown(&self) -> String {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.expect("it accepts");
        let (_, shown) = self.believing().connect("127.0.0.1", stream).await.expect("it speaks TLS");
        shown.expect("a server has one").common_name
    }
}

/// Runs a command of ours, and these flags behind it.
fn hustings(arguments: &[&str], tls: &[String]) -> Ended {
    run(Command::new(HUSTINGS).args(arguments).args(tls))
}

/// The etcdctl of etcd's distribution.
fn etcdctl() -> Command {
    let mut command = Command::new(etcd_directory().join("etcdctl"));
    command.env("ETCDCTL_API", "3");
    command
}

#[tokio::test]
async fn certificates_are_replaced_under_load_without_a_failed_request() {
    let town = Alone::found();
    let mut member = town.member(&[]);
    let client = town.client().await;
    let mut writes = 0;
    for name in ["second", "third"] {
        // The key first, and the certificate a while later: between the two they do not belong together.
        let subject = Subject::new(name).host("localhost").address([127, 0, 0, 1]);
        let fresh = town.issue(name, &subject);
        std::fs::rename(fresh.key, town.path("server.key")).expect("renamed");
        for _ in 0..20 {
            put(&client, "load", "on the old connection").await.expect("no request fails");
            writes += 1;
        }
        std::fs::rename(fresh.certificate, town.path("server.crt")).expect("renamed");
        while town.shown().await != name {
            put(&client, "load", "on the old connection").await.expect("no request fails");
            town.client().await;
            writes += 2;
        }
    }
    assert!(writes > 40);
    // A file that cannot be used is told, and the one in force stays.
    std::fs::write(town.path("server.crt"), "garbage").expect("written");
    member.line_with("certificates were replaced and cannot be used, the old ones stay in force: the certificate");
    assert_eq!(town.shown().await, "third");
    put(&client, "load", "still").await.expect("no request fails");
}

#[tokio::test]
async fn who_shows_no_certificate_or_one_that_is_revoked_is_told_so() {
    let town = Alone::found();
    town.issue("good", &Subject::new("alice"));
    let lost = town.authority.issue(&Subject::new("mallory")).expect("issued");
    lost.write(town.directory.path(), "lost").expect("written");
    let revoked = town.path("revoked.pem");
    town.authority.revoke(&[&lost], &revoked).expect("written");
    let mut member = town.member(&["--trusted-ca-file", text(&town.ca), "--client-crl-file", text(&revoked)]);
    member.line_with("→ Leader");
    let (endpoint, ca) = (town.endpoint(), town.ca.clone());
    let with = |name: &str| {
        let (certificate, key) = (town.path(&format!("{name}.crt")), town.path(&format!("{name}.key")));
        let tls = ["--cacert", text(&ca), "--cert", text(&certificate), "--key", text(&key)].map(str::to_owned);
        let said = hustings(&["put", "key", "value", "--endpoints", &endpoint], &tls);
        let theirs = run(etcdctl()
            .args(["--endpoints", &endpoint, "--command-timeout=2s"])
            .args(&tls)
            .args(["put", "key", "value"]));
        (said, theirs)
    };
    let (ours, theirs) = with("good");
    assert_eq!((ours.ok().trim(), theirs.ok().trim()), ("OK", "OK"));
    let (ours, theirs) = with("lost");
    ours.failed();
    theirs.failed();
    member.line_with("Revoked");
    let said = hustings(&["put", "key", "value", "--endpoints", &endpoint], &["--cacert".into(), text(&ca).into()]);
    said.failed();
    let plain = hustings(&["put", "key", "value", "--endpoints", &endpoint.replace("https", "http")], &[]);
    let said = plain.failed();
    assert!(said.contains("does this port speak TLS?"), "{said}");
    let untrusting = hustings(&["put", "key", "value", "--endpoints", &endpoint], &[]);
    let said = untrusting.failed();
    assert!(said.contains("signed by a CA that is not trusted here: name it (--cacert)"), "{said}");
}

/// Goal: a shell that is set up for etcdctl or for us needs no flags, and what stands nearer wins. Method: a member that asks for a
/// certificate and has users; each variable is right where it counts, and leads nowhere where a nearer word counts.
#[tokio::test]
async fn the_variables_of_etcdctl_say_whom_to_believe_what_to_show_and_who_asks() {
    let town = Alone::found();
    let alice = town.issue("alice", &Subject::new("alice"));
    let mut member = town.member(&["--trusted-ca-file", text(&town.ca), "--client-cert-auth"]);
    member.line_with("→ Leader");
    let endpoint = town.endpoint();
    let told = |variables: &[(&str, &str)], words: &str| {
        let mut command = Command::new(HUSTINGS);
        command.env("ETCDCTL_ENDPOINTS", &endpoint).envs(variables.iter().copied()).args(words.split(' '));
        run(&mut command)
    };
    let (ca, certificate, key) = (text(&town.ca), text(&alice.certificate), text(&alice.key));
    let shown = [("ETCDCTL_CERT", certificate), ("ETCDCTL_KEY", key)];
    let with = |more: &[(&'static str, &'static str)]| [&shown[..], &[("ETCDCTL_CACERT", ca)], more].concat();
    for words in ["put key value", "user add root:r00t", "user grant-role root root", "auth enable"] {
        told(&with(&[]), words).ok();
    }
    // Now a certificate alone is the user alice, who does not exist.
    assert_eq!(told(&with(&[]), "get key").code, Some(5));
    for user in [&[("ETCDCTL_USER", "root:r00t")][..], &[("ETCDCTL_USER", "root"), ("ETCDCTL_PASSWORD", "r00t")]] {
        assert_eq!(told(&with(user), "get key").ok().trim(), "value", "{user:?}");
    }
    let wrong = with(&[("ETCDCTL_USER", "root:wrong")]);
    assert_eq!(told(&wrong, "get key").code, Some(5));
    let nearer = [&wrong[..], &[("HUSTINGS_USER", "root"), ("HUSTINGS_PASSWORD", "r00t")]].concat();
    assert_eq!(told(&nearer, "get key").ok().trim(), "value", "a variable of ours wins");
    assert_eq!(told(&wrong, "get key --user root:r00t").ok().trim(), "value", "a flag wins");
    for variable in ["HUSTINGS_PASSWORD", "ETCDCTL_PASSWORD"] {
        let beside = with(&[(variable, "wrong")]);
        assert_eq!(told(&beside, "get key --user root:r00t").ok().trim(), "value", "so does a password behind a name");
    }
    let ours = with(&[("HUSTINGS_USER", "root:r00t"), ("ETCDCTL_PASSWORD", "wrong")]);
    assert_eq!(told(&ours, "get key").ok().trim(), "value", "and one in a variable of ours");

    let by_root = [&shown[..], &[("ETCDCTL_USER", "root:r00t")]].concat();
    let doubting = told(&by_root, "get key").failed();
    assert!(doubting.contains("not trusted here: name it (--cacert)"), "{doubting}");
    let skips = [&by_root[..], &[("ETCDCTL_INSECURE_SKIP_TLS_VERIFY", "true")]].concat();
    assert_eq!(told(&skips, "get key").ok().trim(), "value");
    assert!(told(&skips, "get key --insecure-skip-verify=false").failed().contains("not trusted here"));
    assert_eq!(told(&by_root, "get key --insecure-skip-verify").ok().trim(), "value");
    let nowhere = [&by_root[..], &[("ETCDCTL_CACERT", "/nowhere/ca.crt")]].concat();
    assert!(told(&nowhere, "get key").failed().contains("/nowhere/ca.crt"));
    let nearer = [&nowhere[..], &[("HUSTINGS_CACERT", ca)]].concat();
    assert_eq!(told(&nearer, "get key").ok().trim(), "value");
    let alone = told(&[("ETCDCTL_CACERT", ca), ("ETCDCTL_CERT", certificate)], "get key").failed();
    assert!(alone.contains("is a certificate without its key"), "{alone}");
}

/// Goal: whom the dashboard cannot ask keeps no member from serving. Method: a machine without trusted CAs, and a member whose own port asks
/// nobody for a certificate, so that nothing else says whom to believe.
#[tokio::test]
async fn a_member_serves_on_a_machine_that_trusts_nobody() {
    let town = Alone::found();
    let mut validating = Command::new(HUSTINGS);
    validating.args(["config", "validate", "--listen-client-urls", &town.endpoint()]);
    validating.arg("--cert-file").arg(town.path("server.crt")).arg("--key-file").arg(town.path("server.key"));
    let nobody = [("SSL_CERT_FILE", "/nowhere"), ("SSL_CERT_DIR", "/nowhere")];
    let expected = "the dashboard shows nothing of members at https:// client URLs: the trusted CAs of this machine";
    let validated = run(validating.envs(nobody));
    assert_eq!(validated.code, Some(0), "{validated:?}");
    assert!(validated.stderr.contains(expected), "{validated:?}");

    let mut member = Running::start(town.command(&[]).envs(nobody));
    let line = member.line_with(expected);
    assert!(line.contains("install ca-certificates") && line.contains("--trusted-ca-file"), "{line}");
    town.client().await;
}

/// Goal: a certificate that ends is told long before it does. Method: one with twenty days left, and one without any.
#[tokio::test]
async fn a_certificate_that_ends_within_a_month_is_told_in_log_and_metrics() {
    for (days, told, is_trusted) in
        [(20_i32, "expires in 19 days: replace the file", true), (-1, "has expired: replace", false)]
    {
        let town = Alone::found();
        town.issue("server", &Alone::server().days(days.into()));
        let metrics = format!("http://127.0.0.1:{}", free_port().expect("a port"));
        let mut member = town.member(&["--listen-metrics-urls", &metrics]);
        let line = member.line_with(told);
        assert!(line.contains("server.crt"), "{line}");
        member.line_with("→ Leader");
        let (_, text_of_metrics) = crate::support::http(&metrics, "GET", "/metrics", "");
        let ends = text_of_metrics
            .lines()
            .find_map(|line| line.strip_prefix("hustings_certificate_not_after_seconds{of=\"client\"} "));
        let ends: f64 = ends.expect("it is told").parse().expect("seconds");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs_f64();
        let days_left = (ends - now) / 86_400.0;
        assert!((days_left - f64::from(days)).abs() < 1.0, "{days_left} days");
        let words = ["get", "key", "--endpoints", &town.endpoint()];
        let said = hustings(&words, &["--cacert".to_owned(), text(&town.ca).to_owned()]);
        // Nobody is deceived about one that has ended; `get` of an absent key is 3.
        assert_eq!(said.code == Some(3), is_trusted, "{said:?}");
    }
}

/// Goal: of those with a good certificate, a client port lets in only those of a host that it was told. Method: two clients.
#[tokio::test]
async fn a_client_port_admits_a_host_and_nobody_else() {
    let town = Alone::found();
    let inner = town.issue("inner", &Subject::new("inner").host("inner.example"));
    let outer = town.issue("outer", &Subject::new("outer").host("outer.example"));
    let flags = ["--trusted-ca-file", text(&town.ca), "--client-cert-auth", "--client-cert-allowed-hostname"];
    let mut member = town.member(&[&flags[..], &["inner.example"]].concat());
    member.line_with("→ Leader");
    let put = |pair: &Pair| {
        let tls = ["--cacert", text(&town.ca), "--cert", text(&pair.certificate), "--key", text(&pair.key)];
        hustings(&["put", "key", "value", "--endpoints", &town.endpoint()], &tls.map(str::to_owned))
    };
    put(&inner).ok();
    put(&outer).failed();
    member.line_with("is not for the host \"inner.example\"");
}

#[tokio::test]
async fn whoever_speaks_no_tls_is_answered_as_etcd_answers() {
    let town = Alone::found();
    let mut member = town.member(&[]);
    member.line_with("→ Leader");
    let plain = format!("http://127.0.0.1:{}", town.port);
    let mut stream = dial(&plain, None).await.expect("it accepts");
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("text");
    assert!(answer.starts_with("HTTP/1.0 400 Bad Request"), "{answer}");
    assert!(answer.contains("Client sent an HTTP request to an HTTPS server."), "{answer}");
    member.line_with("it speaks no TLS, which this port asks for");
    let said = hustings(&["status", "--endpoints", &plain], &[]);
    assert!(said.stdout.contains(&format!("{plain}: this port speaks TLS: use https://\n")), "{said:?}");
    // If nobody answers, the cause is said once.
    let nobody = format!("127.0.0.1:{}", free_port().expect("a port"));
    let said = hustings(&["put", "key", "value", "--endpoints", &nobody], &[]).failed();
    assert_eq!(said.matches("Connection refused").count(), 1, "{said}");
    member.signal(Signal::TERM);
    assert_eq!(member.end(), Some(0));
}

/// Goal: a cluster needs no file to speak TLS on both ports, and a client that verifies certificates is told that nobody vouches for it.
/// Method: three members that make their own certificates, for two years.
#[tokio::test]
async fn members_that_make_their_own_certificates_are_a_cluster() {
    let directory = tempfile::tempdir().expect("a directory");
    let base = free_ports(6).expect("six ports in a row are free");
    let url = |position: u16, is_peer: bool| format!("https://127.0.0.1:{}", base + 2 * position + u16::from(is_peer));
    let cluster: Vec<String> = (0..3).map(|position| format!("db-{position}={}", url(position, true))).collect();
    let start = |position: u16| {
        let (name, client) = (format!("db-{position}"), url(position, false));
        let mut command = Command::new(HUSTINGS);
        command.args(["serve", "--auto-tls", "--peer-auto-tls", "--self-signed-cert-validity", "2", "--name", &name]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &url(position, true), "--initial-cluster", &cluster.join(",")]);
        Running::start(command.args(["--log-outputs", "stdout", "--data-dir"]).arg(directory.path().join(&name)))
    };
    let _members: Vec<Running> = (0..3).map(start).collect();
    let endpoint = url(0, false);
    let ask = |words: &[&str]| hustings(&[words, &["--endpoints", &endpoint]].concat(), &[]);
    wait_for("three members that hear each other", async || {
        let told = ask(&["status", "--insecure-skip-verify"]);
        (told.code == Some(0) && told.stdout.contains("3 of 3 voters")).then_some(())
    })
    .await
    .expect("they link");
    assert_eq!(ask(&["put", "key", "value", "--insecure-skip-verify"]).ok().trim(), "OK");
    let refused = ask(&["put", "key", "other"]).failed();
    assert!(refused.contains("signed by a CA that is not trusted here: name it (--cacert)"), "{refused}");
    assert_eq!(ask(&["get", "key", "--insecure-skip-verify"]).ok().trim(), "value");
    let anybody = tls(Trust::Anybody, None).expect("it needs no file");
    for (position, is_peer) in [(0, false), (1, true), (2, false)] {
        let address = url(position, is_peer).replace("https://", "");
        let stream = tokio::net::TcpStream::connect(address).await.expect("it accepts");
        let shown = anybody.connect("127.0.0.1", stream).await.expect("it speaks TLS").1.expect("it shows one");
        let ends_in = shown.not_after.duration_since(std::time::SystemTime::now()).expect("it is good");
        assert_eq!(ends_in.as_secs() / 86_400 + 1, 2 * 365, "days, at {position} {is_peer}");
    }
}

#[test]
fn a_pair_that_does_not_fit_is_named_before_anything_is_made() {
    let town = Alone::found();
    let other = town.issue("other", &Subject::new("other"));
    let refusal = |flags: &[&str]| {
        let mut command = Command::new(HUSTINGS);
        command.args(["serve", "--name", "alone", "--data-dir"]).arg(town.path("never"));
        let url = town.endpoint();
        run(command.args(["--listen-client-urls", &url]).args(flags)).failed()
    };
    let (certificate, ca) = (town.path("server.crt"), town.ca.clone());
    for (flags, expected) in [
        (vec![], "there is no certificate: give --cert-file and --key-file, or --auto-tls"),
        (vec!["--cert-file", text(&certificate)], "give its key with --key-file"),
        (vec!["--cert-file", text(&certificate), "--key-file", text(&other.key)], "the key is not the certificate's"),
        (vec!["--cert-file", "nowhere", "--key-file", text(&other.key)], "the certificate nowhere: it cannot be read"),
        (vec!["--auto-tls", "--client-cert-auth"], "no certificate could be verified: give --trusted-ca-file too"),
        (vec!["--auto-tls", "--tls-min-version", "TLS1.1"], "give TLS1.2 or TLS1.3"),
        (vec!["--auto-tls", "--cipher-suites", "TLS_RSA_WITH_RC4_128_SHA"], "is not spoken here; choose of"),
        (vec!["--auto-tls", "--trusted-ca-file", text(&other.key)], "it does not hold a certificate"),
        (
            vec!["--auto-tls", "--listen-peer-urls", "https://127.0.0.1:1,http://127.0.0.1:2", "--peer-auto-tls"],
            "give all of them https://, or none",
        ),
        (vec!["--auto-tls", "--trusted-ca-file", text(&ca), "--peer-cert-file", text(&certificate)], "--peer-key-file"),
        (
            vec!["--auto-tls", "--peer-trusted-ca-file", text(&ca)],
            "nobody shows a certificate on a port without TLS: give it https:// in --listen-peer-urls",
        ),
        (
            vec!["--client-cert-auth", "--listen-client-urls", "http://127.0.0.1:1"],
            "client-cert-auth = \"true\" (from flag): nobody shows a certificate on a port without TLS",
        ),
    ] {
        let said = refusal(&flags);
        assert!(said.contains(expected), "{flags:?} said: {said}");
        assert!(!town.path("never").exists(), "nothing was made");
    }
}

/// Goal: what is wrong with files is known before a member is stopped for it, all of it at once. Method: every kind of file is
/// missing or garbage; then all are put right.
#[test]
fn validate_names_every_file_that_cannot_be_used() {
    let town = Alone::found();
    let garbage = town.path("garbage");
    std::fs::write(&garbage, "garbage").expect("written");
    let (certificate, key) = (town.path("server.crt"), town.path("server.key"));
    let validate = |certificate: &Path, key: &Path, ca: &Path, revoked: &str, secret: &str, token: &str| {
        let mut command = Command::new(HUSTINGS);
        command.args(["config", "validate", "--name", "alone", "--data-dir"]).arg(town.path("never"));
        command.args(["--initial-cluster", "alone=https://127.0.0.1:2"]);
        for (port, url) in [("client", "https://127.0.0.1:1"), ("peer", "https://127.0.0.1:2")] {
            let dash = if port == "peer" { "peer-" } else { "" };
            command.args([&format!("--listen-{port}-urls"), url]);
            command.arg(format!("--{dash}cert-file")).arg(certificate).arg(format!("--{dash}key-file")).arg(key);
            command.arg(format!("--{dash}trusted-ca-file")).arg(ca);
        }
        command.args(["--client-crl-file", revoked, "--cluster-secret-file", secret, "--auth-token", token]);
        run(&mut command)
    };
    let nowhere = Path::new("/nowhere.crt");
    let token = "jwt,sign-method=ES256,pub-key=/nowhere.pub,priv-key=/nowhere.pem";
    let said = validate(nowhere, &garbage, &key, text(&garbage), "/nowhere.secret", token).failed();
    for fault in [
        "auth-token: pub-key: \"/nowhere.pub\" cannot be read",
        "auth-token: priv-key: \"/nowhere.pem\" cannot be read",
        "cluster-secret-file: the cluster secret /nowhere.secret cannot be read",
        "client: the certificate /nowhere.crt: it cannot be read",
        "client: the private key",
        "client: the trusted CA",
        "client: the revocation list",
        "peer: the certificate /nowhere.crt: it cannot be read",
        "peer: the private key",
        "peer: the trusted CA",
    ] {
        assert_eq!(said.matches(fault).count(), 1, "{fault:?} in {said}");
    }
    // Each is good, and two do not belong together.
    let other = town.issue("other", &Subject::new("other"));
    std::fs::write(town.path("secret"), "a secret of the test, as long as its hash").expect("written");
    let revoked = town.path("revoked.crl");
    town.authority.revoke(&[], &revoked).expect("written");
    let secret = town.path("secret");
    let token = format!("jwt,sign-method=HS256,priv-key={}", text(&secret));
    let said = validate(&certificate, &other.key, &town.ca, text(&revoked), text(&secret), &token).failed();
    assert!(said.contains("the key is not the certificate's"), "{said}");
    let said = validate(&certificate, &key, &town.ca, text(&revoked), text(&secret), &token);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert!(!town.path("never").exists(), "nothing was made");
}

/// Goal: a member whose CA the machine trusts needs no `--cacert`, as with etcdctl. Method: the machine's CAs are those of
/// `SSL_CERT_FILE`, for Go and for us.
#[tokio::test]
async fn the_machines_cas_are_believed_where_none_is_named() {
    let town = Alone::found();
    let _member = town.member(&[]);
    town.client().await;
    let believing = |command: &mut Command, ca: &Path| {
        run(command.env("SSL_CERT_FILE", ca).env("SSL_CERT_DIR", "/nowhere").args(["--endpoints", &town.endpoint()]))
    };
    let stranger = Authority::new("another CA").expect("made");
    std::fs::create_dir(town.path("else")).expect("made");
    let other = stranger.write_certificate(&town.path("else")).expect("written");
    for words in [&["put", "key", "value"][..], &["status"]] {
        believing(Command::new(HUSTINGS).args(words), &town.ca).ok();
        let said = believing(Command::new(HUSTINGS).args(words), &other);
        assert!(said.code != Some(0), "{said:?}");
        let said = format!("{}{}", said.stdout, said.stderr);
        assert!(said.contains("signed by a CA that is not trusted here: name it (--cacert)"), "{said}");
    }
    assert_eq!(believing(etcdctl().args(["put", "key", "value"]), &town.ca).ok().trim(), "OK");
    believing(etcdctl().args(["--command-timeout=2s", "put", "key", "value"]), &other).failed();
}

/// Goal: elections stand on an etcd that speaks TLS and asks for certificates, and what keeps TLS from coming about is told with
/// the part of the URL that would mend it. Method: the real etcd 3.5.
#[tokio::test]
async fn elections_stand_on_an_etcd_that_asks_for_certificates() {
    let town = Alone::found();
    let (client, peer) = (town.endpoint(), format!("http://127.0.0.1:{}", free_port().expect("a port")));
    let mut etcd = Command::new(etcd_directory().join("etcd"));
    etcd.arg("--data-dir").arg(town.path("etcd")).args([
        "--listen-client-urls",
        &client,
        "--advertise-client-urls",
        &client,
    ]);
    etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    etcd.args(["--initial-cluster", &format!("default={peer}"), "--client-cert-auth", "--trusted-ca-file"])
        .arg(&town.ca);
    etcd.arg("--cert-file").arg(town.path("server.crt")).arg("--key-file").arg(town.path("server.key"));
    let _etcd = Process::start(&mut etcd, &town.path("etcd.log")).expect("it starts");
    let ours = town.issue("ours", &Subject::new("ours"));
    let pair = format!("cert={}&key={}", text(&ours.certificate), text(&ours.key));
    let (ca, other) = (text(&town.ca), tempfile::tempdir().expect("a directory"));
    let other_ca = Authority::new("another CA").expect("made").write_certificate(other.path()).expect("written");
    let elect = |query: &str, id: &str| {
        let store = format!("etcd://127.0.0.1:{}/billing{query}", town.port);
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 2>&1", HUSTINGS, "elect", "billing", "--store", &store, "--id", id]);
        Running::start(command.args(["--ttl", "60s"]))
    };
    let mut first = elect(&format!("?cacert={ca}&{pair}"), "a");
    first.line_with("a leads billing");
    for (query, words) in [
        (
            format!("?cacert={}&{pair}", text(&other_ca)),
            "signed by a CA that is not trusted here: name it (cacert=FILE behind",
        ),
        (format!("?cacert={ca}"), "asks for a certificate that it knows: give"),
        (String::new(), "does its port speak TLS? then say so: `?cacert=FILE`"),
    ] {
        let mut refused = elect(&query, "x");
        println!("{}", refused.line_with(words));
        refused.signal(Signal::KILL);
        refused.end();
    }
    let mut second = elect(&format!("?cacert={ca}&{pair}"), "b");
    second.line_with("waits for its turn");
    first.signal(Signal::TERM);
    second.line_with("b leads billing");
}
