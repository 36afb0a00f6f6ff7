//! Goal: an operator that adds a member learns all that it needs to join. Method: real members, with and without a secret; what is
//! printed, and as JSON.

use crate::support::{hustings, program};
use hustings_testbed::Cluster;
use serde_json::Value;

fn added(name: &str, peer: &str, endpoint: &str) -> (Value, String) {
    let ended = hustings(&["member", "add", name, "--peer-urls", peer, "--endpoints", endpoint, "-o", "json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    (serde_json::from_str(&ended.stdout).expect("it is JSON"), ended.stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_adds_a_member_is_told_what_it_needs() {
    let mut cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let endpoint = cluster.nodes[0].client.clone();
    let (shown, said) = added("n2", "https://127.0.0.1:1", &endpoint);
    let told = &shown["added"];
    let token = told["join_token"].as_str().expect("text");
    assert_eq!(token.len(), 16, "{shown}");
    assert_eq!((&told["id"], &shown["kind"]), (&"2".into(), &"MemberList".into()), "{shown}");
    let command = told["command"].as_str().expect("text");
    assert!(command.contains(&format!("--name n2 --join-token {token}")) && said.contains(command), "{command}");
    assert!(command.contains("--peer-cert-file FILE --peer-key-file FILE"), "{command}");
    assert!(command.contains(" --cluster-secret-file FILE") && !command.contains("--listen-client-urls"), "{command}");
    let warning = told["warnings"][0].as_str().expect("another scheme is warned of");
    assert!(warning.contains("https://127.0.0.1:1 is https://, and the others' peer URLs are http://"), "{warning}");
    assert!(warning.contains("member update 2") && said.contains(warning), "{said}");
    // It has no name until it starts: its id does as well, and is told.
    let remove = |whom: &str| hustings(&["member", "remove", whom, "--endpoints", &endpoint]);
    let said = remove("n2");
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stderr.contains("members are: n1 (1); a member that was added and never started"), "{said:?}");
    assert!(said.stderr.contains("give its id: 2 (https://127.0.0.1:1)"), "{said:?}");
    remove("2").ok();
    let listed = hustings(&["member", "list", "-o", "json", "--endpoints", &endpoint]).ok();
    assert!(!listed.contains("https://127.0.0.1:1"), "{listed}");
    cluster.terminate(0).expect("it ends");

    let mut cluster = Cluster::prepare(program(), 1).expect("ports are free");
    cluster.start_node_with(0, &["--cluster-secret-file", ""]).expect("it starts");
    cluster.wait_until_serving(0).await.expect("it serves");
    let (shown, _) = added("n2", "http://127.0.0.1:1", &cluster.nodes[0].client);
    let command = shown["added"]["command"].as_str().expect("text");
    assert!(command.ends_with("--listen-peer-urls http://127.0.0.1:1"), "{command}");
    assert_eq!(shown["added"]["warnings"], Value::Array(Vec::new()), "{shown}");
}
