//! Goal: the dashboard and the alerts of `packaging/monitoring` see this server, and so do etcd's own.
//! Method: what three real members tell becomes Prometheus's series, and Prometheus's own `promtool` evaluates every
//! expression on them; the mixin is that of Debian's package `etcd-server`.

use crate::support::{etcd, http, program, run};
use hustings_testbed::{Cluster, put, wait_for};
use hustings_tls::made::{Authority, Subject};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/monitoring").join(name)
}

fn promtool() -> Command {
    let path = std::env::var("HUSTINGS_TEST_PROMTOOL").unwrap_or_else(|_| "promtool".to_string());
    let is_there = Command::new(&path).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    assert!(is_there, "there is no {path}: apt-get install prometheus, or name it in HUSTINGS_TEST_PROMTOOL");
    Command::new(path)
}

/// etcd's mixin, as text.
fn mixin() -> String {
    let path = std::env::var("HUSTINGS_TEST_ETCD_MIXIN")
        .unwrap_or_else(|_| "/usr/share/doc/etcd-server/etcd-mixin/mixin.libsonnet.gz".to_string());
    let read = run(Command::new("zcat").arg(&path));
    assert_eq!(
        read.code,
        Some(0),
        "there is no {path}: apt-get download etcd-server, dpkg -x it, and name the file in HUSTINGS_TEST_ETCD_MIXIN"
    );
    read.stdout
}

/// The metrics of a member that answers.
fn told(url: &str) -> String {
    let (status, text) = http(url, "GET", "/metrics", "");
    assert_eq!(status, 200, "{url}");
    text
}

/// The names that an expression reads.
fn names_in(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_metric =
        |word: &&str| ["etcd_", "hustings_", "grpc_server_", "process_"].iter().any(|start| word.starts_with(start));
    words.filter(is_metric).map(str::to_owned).collect()
}

fn names_told(text: &str) -> BTreeSet<&str> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(['{', ' ']).next()).collect()
}

/// All expressions of our dashboard, as Grafana asks them of the job `hustings`.
fn of_dashboard() -> Vec<String> {
    let text = std::fs::read_to_string(packaged("dashboard.json")).expect("it is there");
    let dashboard: Value = serde_json::from_str(&text).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    targets.map(|target| as_asked(target["expr"].as_str().expect("an expression"))).collect()
}

fn as_asked(expression: &str) -> String {
    let cluster = expression.replace("$job", "hustings").replace("$cluster", "hustings");
    cluster.replace("$__rate_interval", "5m").replace("%(etcd_selector)s", "job=\"hustings\"")
}

/// All expressions of the mixin: `expr: '...'` and `expr: |||...|||`.
fn of_mixin(mixin: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in mixin.split("expr: ").skip(1) {
        let expression = match part.strip_prefix("|||") {
            Some(block) => block.split("|||").next().unwrap_or_default().to_string(),
            None => part.trim_start_matches('\'').split("',\n").next().unwrap_or_default().to_string(),
        };
        found.push(as_asked(expression.split_whitespace().collect::<Vec<_>>().join(" ").as_str()));
    }
    found
}

/// The part of an alert that is compared: its expression gives nothing while all is well, and what stands before its limit gives something.
fn before_the_limit(expression: &str) -> &str {
    let (mut depth, mut limit) = (0, expression.len());
    for (at, sign) in expression.char_indices() {
        match sign {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth -= 1,
            '<' | '>' | '=' if depth == 0 => limit = limit.min(at),
            _ => {}
        }
    }
    expression[..limit].trim_end()
}

/// The series of a member, standing still for an hour.
fn series(job: &str, instance: &str, text: Option<&str>) -> Vec<Value> {
    let mut series = vec![json!({
        "series": format!("up{{job=\"{job}\",instance=\"{instance}\"}}"),
        "values": format!("{}+0x60", u8::from(text.is_some())),
    })];
    for line in text.unwrap_or_default().lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a sample");
        let (name, labels) = name.split_once('{').map_or((name, ""), |(name, rest)| (name, rest.trim_end_matches('}')));
        let comma = if labels.is_empty() { "" } else { "," };
        series.push(json!({
            "series": format!("{name}{{job=\"{job}\",instance=\"{instance}\"{comma}{labels}}}"),
            "values": format!("{value}+0x60"),
        }));
    }
    series
}

/// Lets promtool evaluate expressions on series, each to be the number beside it; `None` is nothing.
fn evaluate(directory: &Path, name: &str, series: &[Value], expressions: &[(String, Option<u32>)]) {
    evaluate_at("40m", directory, name, series, expressions);
}

fn evaluate_at(time: &str, directory: &Path, name: &str, series: &[Value], expressions: &[(String, Option<u32>)]) {
    let rules = packaged("alerts.yml").canonicalize().expect("it is there");
    let asked: Vec<Value> = expressions
        .iter()
        .map(|(expression, value)| {
            let samples: Vec<Value> = value.iter().map(|value| json!({ "labels": "{}", "value": value })).collect();
            json!({ "expr": expression, "eval_time": time, "exp_samples": samples })
        })
        .collect();
    let test = json!({
        "rule_files": [rules], "evaluation_interval": "1m",
        "tests": [{ "interval": "1m", "input_series": series, "promql_expr_test": asked }],
    });
    let file = directory.join(name);
    // JSON is YAML.
    std::fs::write(&file, test.to_string()).expect("written");
    let ended = run(promtool().args(["test", "rules"]).arg(&file));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
}

fn firing(alert: &str) -> String {
    format!("count(ALERTS{{alertstate=\"firing\",alertname=~\"{alert}\"}})")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_and_alerts_and_etcds_mixin_evaluate_on_what_members_tell() {
    let directory = tempfile::tempdir().expect("a directory");
    // A port for metrics in TLS: its certificates end one day, which is told at the others, too.
    let authority = Authority::new("the CA of the test").expect("made");
    let pair = authority.issue(&Subject::new("member").address([127, 0, 0, 1])).expect("issued");
    let pair = pair.write(directory.path(), "member").expect("written");
    let [certificate, key] = [&pair.certificate, &pair.key].map(|path| path.to_str().expect("text"));
    let secured = ["--listen-metrics-urls", "https://127.0.0.1:0", "--cert-file", certificate, "--key-file", key];
    let secured = program().with(&secured).with(&["--metrics=extensive"]);
    let mut cluster = Cluster::start(secured, 3).await.expect("three nodes start");
    let client = hustings_api::Client::connect(&cluster.endpoints()).await.expect("they answer");
    for number in 0..10 {
        put(&client, &format!("k{number}"), "value").await.expect("written");
    }
    let leader = cluster.leader().await.expect("one leads");
    let url = cluster.nodes[leader].client.clone();
    // A call that fails is counted by its code.
    let at_leader = hustings_api::Client::connect(&[&url]).await.expect("it answers");
    let future = hustings_api::etcdserverpb::RangeRequest { key: "k".into(), revision: 1_000, ..Default::default() };
    at_leader.kv().range(future).await.expect_err("there is no such revision yet");
    let with_round_trips = async || {
        let text = told(&url);
        text.contains("etcd_network_peer_round_trip_time_seconds_bucket{").then_some(text)
    };
    let first = wait_for("round trips are told", with_round_trips).await.expect("peers are asked");

    // Nothing that promtool would say of it.
    let metrics = directory.path().join("metrics");
    std::fs::write(&metrics, &first).expect("written");
    let mut check = promtool();
    let silent = check.args(["check", "metrics"]).stdin(std::fs::File::open(&metrics).expect("it is there")).output();
    let silent = silent.expect("promtool runs");
    let said = String::from_utf8_lossy(&silent.stderr);
    assert!(silent.status.success() && silent.stdout.is_empty() && said.is_empty(), "{said}");
    run(promtool().args(["check", "rules"]).arg(packaged("alerts.yml"))).ok();

    assert_eq!(first.matches("hustings_certificate_not_after_seconds{of=\"metrics\"} ").count(), 1);

    // Every name is told.
    let rules = std::fs::read_to_string(packaged("alerts.yml")).expect("it is there");
    let of_rules = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).map(str::to_owned);
    let ours: Vec<String> = of_dashboard().into_iter().chain(of_rules).collect();
    assert!(ours.len() > 30, "{ours:?}");
    for expression in &ours {
        for name in names_in(expression) {
            assert!(
                names_told(&first).contains(name.as_str()),
                "no member tells {name}, which is asked by {expression}"
            );
        }
    }

    // Every expression gives something; and while all is well no alert fires.
    let mut well: Vec<Value> = Vec::new();
    for (number, node) in cluster.nodes.iter().enumerate() {
        let text = if number == leader { first.clone() } else { told(&node.client) };
        well.extend(series("hustings", &node.name, Some(&text)));
    }
    let something = |expression: &String| (format!("count({}) > bool 0", before_the_limit(expression)), Some(1));
    let mut asked: Vec<(String, Option<u32>)> = of_dashboard().iter().map(something).collect();
    asked.push((firing(".*"), None));

    // etcd's own, but for what this etcd does not tell either.
    let theirs = Cluster::start(etcd().with(&["--metrics=extensive"]), 1).await.expect("etcd starts");
    let told_by_etcd = told(&theirs.nodes[0].client);
    let mixin = of_mixin(&mixin());
    assert!(mixin.len() > 25, "the mixin is read: {mixin:#?}");
    let mut evaluated = 0;
    for expression in &mixin {
        let missing: Vec<String> =
            names_in(expression).into_iter().filter(|name| !names_told(&first).contains(name.as_str())).collect();
        for name in &missing {
            assert!(
                !names_told(&told_by_etcd).contains(name.as_str()),
                "etcd tells {name}, and we do not: {expression}"
            );
        }
        if missing.is_empty() {
            asked.push(something(expression));
            evaluated += 1;
        }
    }
    assert!(evaluated > 20, "most of the mixin is evaluated: {evaluated}");
    drop(theirs);
    evaluate(directory.path(), "well.yml", &well, &asked);

    // One certificate ends in a month, another one in two days: in these tests it is 1970.
    let ends = |of: &str, days: u32| {
        let series = format!("hustings_certificate_not_after_seconds{{job=\"hustings\",instance=\"n1\",of=\"{of}\"}}");
        json!({ "series": series, "values": format!("{}+0x60", days * 86_400) })
    };
    let asked = [
        (firing("HustingsCertificateExpires"), Some(2)),
        (
            r#"count(ALERTS{alertstate="firing",alertname="HustingsCertificateExpiresSoon",of="peer"})"#.to_owned(),
            Some(1),
        ),
        (firing("HustingsCertificateExpiresSoon"), Some(1)),
    ];
    evaluate(directory.path(), "ending.yml", &[ends("client-ca", 29), ends("peer", 2), ends("client", 40)], &asked);

    // Two of three are gone: the third says so, and the alerts fire.
    let last = (leader + 2) % 3;
    cluster.kill(leader);
    cluster.kill((leader + 1) % 3);
    let url = cluster.nodes[last].client.clone();
    let alone = async || Some(told(&url)).filter(|text| text.contains("etcd_server_has_leader 0"));
    let alone = wait_for("it knows no leader", alone).await.expect("it looks");
    let mut lost = series("hustings", "last", Some(&alone));
    lost.extend(["first", "second"].iter().flat_map(|name| series("hustings", name, None)));
    let fires = |alert: &str, count: u32| (firing(alert), Some(count));
    let asked = [fires("HustingsNoLeader", 1), fires("HustingsMemberDown", 2), fires("HustingsQuorumAtRisk", 1)];
    evaluate(directory.path(), "lost.yml", &lost, &asked);
}

/// The alerts that fire when members are gone or certificates end, each told above.
const OF_MEMBERS_AND_CERTIFICATES: [&str; 5] = [
    "HustingsNoLeader",
    "HustingsMemberDown",
    "HustingsQuorumAtRisk",
    "HustingsCertificateExpires",
    "HustingsCertificateExpiresSoon",
];

/// A metric of a member with its own labels, and its values minute by minute as promtool writes them.
type Told = (&'static str, &'static str);

/// Each other alert: when it is looked at, what a member then tells, and what it told a little short of it.
const OCCASIONS: [(&str, &str, &[Told], &[Told]); 10] = [
    (
        "HustingsLeaderChanges",
        "40m",
        &[("hustings_leader_changes_total{}", "0+1x60")],
        &[("hustings_leader_changes_total{}", "0 1 2 3+0x60")],
    ),
    (
        "HustingsSlowDisk",
        "40m",
        &[
            ("hustings_wal_fsync_duration_seconds_bucket{le=\"0.1\"}", "0+58x60"),
            ("hustings_wal_fsync_duration_seconds_bucket{le=\"0.5\"}", "0+60x60"),
            ("hustings_wal_fsync_duration_seconds_bucket{le=\"+Inf\"}", "0+60x60"),
        ],
        &[
            ("hustings_wal_fsync_duration_seconds_bucket{le=\"0.1\"}", "0+600x60"),
            ("hustings_wal_fsync_duration_seconds_bucket{le=\"0.5\"}", "0+605x60"),
            ("hustings_wal_fsync_duration_seconds_bucket{le=\"+Inf\"}", "0+605x60"),
        ],
    ),
    (
        "HustingsQuota",
        "40m",
        &[("etcd_mvcc_db_total_size_in_bytes{}", "91+0x60"), ("etcd_server_quota_backend_bytes{}", "100+0x60")],
        &[("etcd_mvcc_db_total_size_in_bytes{}", "89+0x60"), ("etcd_server_quota_backend_bytes{}", "100+0x60")],
    ),
    (
        "HustingsAlarm",
        "2m",
        &[("hustings_alarm{kind=\"NOSPACE\"}", "1+0x60"), ("hustings_alarm{kind=\"CORRUPT\"}", "0+0x60")],
        &[("hustings_alarm{kind=\"NOSPACE\"}", "0+0x60"), ("hustings_alarm{kind=\"CORRUPT\"}", "0+0x60")],
    ),
    ("HustingsDiskStalled", "2m", &[("hustings_disk_stalled{}", "1+0x60")], &[("hustings_disk_stalled{}", "0+0x60")]),
    ("HustingsLogShort", "2m", &[("hustings_log_short{}", "1+0x60")], &[("hustings_log_short{}", "0+0x60")]),
    (
        "HustingsMembersDiffer",
        "40m",
        &[("hustings_members_differing{}", "1+0x60")],
        &[("hustings_members_differing{}", "0+0x60")],
    ),
    (
        "HustingsProposalsFail",
        "40m",
        &[("hustings_proposals_failed_total{}", "0+90x60")],
        &[("hustings_proposals_failed_total{}", "0+50x60")],
    ),
    (
        "HustingsOpenFiles",
        "40m",
        &[("process_open_fds{}", "81+0x60"), ("process_max_fds{}", "100+0x60"), ("hustings_term{}", "1+0x60")],
        &[("process_open_fds{}", "79+0x60"), ("process_max_fds{}", "100+0x60"), ("hustings_term{}", "1+0x60")],
    ),
    (
        "HustingsMixedBuilds",
        "30h",
        &[
            ("hustings_build_info{version=\"0.1.0\"}", "1+0x1800"),
            ("hustings_build_info{version=\"0.2.0\"}", "1+0x1800"),
        ],
        &[
            ("hustings_build_info{version=\"0.1.0\"}", "1+0x1800"),
            ("hustings_build_info{version=\"0.2.0\"}", "1+0x600"),
        ],
    ),
];

/// Goal: no alert sleeps through what it is about, and none fires just short of it. Method: what a member would tell then, evaluated by
/// promtool; each metric is one that a real member tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_alert_fires_for_what_it_is_about_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let text = told(&cluster.nodes[0].client);
    let told_names = names_told(&text);
    let as_told = |(metric, values): &Told| {
        let (name, labels) = metric.trim_end_matches('}').split_once('{').expect("a name and labels");
        assert!(told_names.contains(name), "no member tells {name}");
        let comma = if labels.is_empty() { "" } else { "," };
        json!({ "series": format!("{name}{{job=\"hustings\",instance=\"n1\"{comma}{labels}}}"), "values": values })
    };
    for (alert, time, fires, is_quiet) in OCCASIONS {
        let others = firing(&format!("Hustings.*\",alertname!=\"{alert}"));
        let series: Vec<Value> = fires.iter().map(as_told).collect();
        let asked = [(firing(alert), Some(1)), (others, None)];
        evaluate_at(time, directory.path(), &format!("{alert}.yml"), &series, &asked);
        let series: Vec<Value> = is_quiet.iter().map(as_told).collect();
        evaluate_at(time, directory.path(), &format!("no-{alert}.yml"), &series, &[(firing(alert), None)]);
    }
    let rules = std::fs::read_to_string(packaged("alerts.yml")).expect("it is there");
    let named: BTreeSet<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let tried = OCCASIONS.iter().map(|(alert, ..)| *alert).chain(OF_MEMBERS_AND_CERTIFICATES).collect();
    assert_eq!(named, tried, "every alert is tried");
}

#[test]
fn expressions_are_read_as_they_stand() {
    let mixin = "expr: |||\n  a_b{%(etcd_selector)s} ==\n 0\n||| % $._config,\n expr: 'sum(x{job=\"$cluster\"})',\n";
    assert_eq!(of_mixin(mixin), ["a_b{job=\"hustings\"} == 0", "sum(x{job=\"hustings\"})"]);
    assert_eq!(before_the_limit("max((x{a=\"b\"} == bool 0) or y > 5) >= 1"), "max((x{a=\"b\"} == bool 0) or y > 5)");
    assert_eq!(before_the_limit("sum(x)"), "sum(x)");
    assert_eq!(
        names_in("rate(etcd_a_total{grpc_type=\"u\"}[5m]) + up").into_iter().collect::<Vec<_>>(),
        ["etcd_a_total"]
    );
}
