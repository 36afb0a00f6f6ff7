//! Goal: `hustings maelstrom` and `hustings workload` are what the genuine tool expects of both sides.
//! Method: real processes over pipes, tormented for some seconds; wrong arguments; a node that is none.

use crate::support::HUSTINGS;
use serde_json::Value;
use std::process::{Command, Output};

fn workload(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(HUSTINGS).arg("workload").args(arguments).output().expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

#[test]
fn real_processes_survive_kills_pauses_and_partitions() {
    let store = tempfile::tempdir().expect("a temporary directory");
    let (code, out, errors) = workload(&[
        "--node-count=3",
        "--concurrency=4n",
        "--rate=60",
        "--time-limit=12",
        "--latency=5",
        "--latency-dist=exponential",
        "--nemesis=partition,kill,pause",
        "--nemesis-interval=3",
        "--election-timeout=600",
        "--seed=1",
        "--output=json",
        "--store",
        store.path().to_str().expect("paths here are text"),
    ]);
    assert_eq!(code, 0, "{out}{errors}");
    let report: Value = serde_json::from_str(&out).expect("one JSON object");
    assert_eq!(report["valid"], true);
    for function in ["read", "write", "cas"] {
        assert!(report["operations"][function]["ok"].as_u64() > Some(0), "{report}");
    }
    for nemesis in ["partition", "kill", "pause"] {
        assert!(report["faults"][nemesis].as_u64() > Some(0), "{report}");
    }
    assert!(report["messages"]["sent"].as_u64() > Some(100), "{report}");
    // The history is one JSON object per line, in the order in which things happened.
    let run = std::fs::read_dir(store.path()).expect("it is there").flatten().next().expect("one run");
    let history = std::fs::read_to_string(run.path().join("history.jsonl")).expect("the history");
    let indexes: Vec<u64> = history
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["index"].as_u64().expect("a number"))
        .collect();
    assert!(indexes.len() > 200 && indexes.is_sorted(), "{} lines", indexes.len());
    assert!(run.path().join("n0.log").metadata().is_ok_and(|log| log.len() > 0));
}

#[test]
fn the_same_bench_runs_in_virtual_time_under_every_protocol() {
    for protocol in crate::support::PROTOCOLS {
        let arguments = ["--virtual", "--protocol", protocol, "--nemesis=partition,power,loss", "--seed=3"];
        let (code, out, errors) = workload(&[&arguments[..], &["-w", "txn-list-append", "--rate=30"]].concat());
        assert_eq!(code, 0, "{out}{errors}");
        assert!(out.starts_with("valid: txn-list-append with 3 nodes, seed 3;"), "{out}");
    }
}

#[test]
fn exit_codes_are_the_genuine_tools() {
    for wrong in [&["--concurrency=5"][..], &["--nemesis=power"], &["--frobnicate"], &["--workload=nothing"]] {
        let (code, _, errors) = workload(wrong);
        assert_eq!(code, 254, "{wrong:?}: {errors}");
    }
    // A process that ends by itself broke the run.
    let store = tempfile::tempdir().expect("a temporary directory");
    let store = format!("--store={}", store.path().display());
    let (code, out, _) = workload(&[&store, "--bin=/bin/false", "--concurrency=6", "--", "--whatever"]);
    assert_eq!(code, 255);
    assert!(out.contains("ended by itself"), "{out}");
}

#[test]
fn a_node_prints_envelopes_and_nothing_else_and_answers_what_was_asked_before_its_input_ended() {
    use std::io::Write;
    let mut node = Command::new(HUSTINGS)
        .args(["maelstrom", "--protocol=gmt2000", "--election-timeout=300"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut input = node.stdin.take().expect("it is piped");
    let lines = [
        r#"{"src":"n7","dest":"n0","body":{"type":"peer","data":"!"}}"#,
        r#"{"id":0,"src":"c0","dest":"n0","body":{"type":"init","msg_id":1,"node_id":"n0","node_ids":["n0"]}}"#,
        "nonsense",
        r#"{"id":1,"src":"c1","dest":"n0","body":{"type":"generate","msg_id":2}}"#,
    ];
    input.write_all((lines.join("\n") + "\n").as_bytes()).expect("it listens");
    drop(input);
    let output = node.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    let kinds: Vec<String> = said
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("an envelope")["body"]["type"].to_string())
        .collect();
    assert_eq!(kinds, [r#""init_ok""#, r#""generate_ok""#]);
}
