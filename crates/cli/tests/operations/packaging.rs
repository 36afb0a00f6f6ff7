//! Goal: the files of `packaging` are right for their readers: systemd, Kubernetes, a container engine. Method: systemd's
//! and Kubernetes's own judgement where they have a judge; the commands in it read by `hustings config`. The Debian
//! package is built, installed and removed by `xtask/package.sh`, for which one must be root.

use crate::support::{Ended, HUSTINGS, run};
use hustings_tls::made::{Authority, Subject};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name).canonicalize().expect("it is there")
}

fn text_of(name: &str) -> String {
    std::fs::read_to_string(packaged(name)).expect("it is text")
}

/// The files that an operator brings along: a certificate, the CA that signed it, and a cluster secret.
struct Brought(TempDir);

impl Brought {
    fn along() -> Brought {
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::new("whoever installs it").expect("made");
        authority.write_certificate(directory.path()).expect("written");
        let member = Subject::new("hustings").host("localhost");
        authority.issue(&member).expect("issued").write(directory.path(), "tls").expect("written");
        std::fs::write(directory.path().join("secret"), "a secret that nobody guesses, of many letters")
            .expect("written");
        Brought(directory)
    }

    /// Replaces the names of such files in a text of the package by the names of these.
    fn found_in(&self, text: &str) -> String {
        let here = self.0.path().display().to_string();
        text.replace("/etc/hustings/tls", &here).replace("/var/lib/hustings/secret", &format!("{here}/secret"))
    }
}

/// Lets the settings' own reader judge the arguments of `serve`.
#[track_caller]
fn settings_are_right(arguments: &[String]) {
    let (verb, flags) = arguments.split_first().expect("a verb");
    assert_eq!(verb, "serve");
    let brought = Brought::along();
    let mut command = Command::new(HUSTINGS);
    command.args(["config", "validate"]).args(flags.iter().map(|flag| brought.found_in(flag))).env_clear();
    run(&mut command).ok();
}

#[test]
fn systemd_finds_nothing_wrong_with_the_unit_and_little_exposed() {
    let is_there = Command::new("systemd-analyze").arg("--version").output().is_ok();
    assert!(is_there, "there is no systemd-analyze: apt-get install -y systemd");
    let directory = tempfile::tempdir().expect("a directory");
    let unit = directory.path().join("hustings.service");
    // The binary under test stands where the package's would, and the page that it documents is not installed.
    let text = text_of("systemd/hustings.service");
    std::fs::write(&unit, text.replace("/usr/bin/hustings", HUSTINGS)).expect("written");
    let verified = run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit));
    assert_eq!((verified.code, verified.stderr.trim()), (Some(0), ""), "{verified:?}");
    let judged = run(Command::new("systemd-analyze").args(["security", "--offline=true", "--threshold=20"]).arg(&unit));
    assert_eq!(judged.code, Some(0), "exposed above 2.0: {}", judged.stdout);
    for line in ["Type=notify", "Restart=on-failure", "User=hustings", "ProtectSystem=strict"] {
        assert!(text.lines().any(|found| found == line), "the unit lacks {line}");
    }
    // By default systemd gives up for good after five failures in ten seconds, which is what RestartSec=1s makes of them.
    let (head, _) = text.split_once("[Service]").expect("a part of that name");
    assert!(head.lines().any(|found| found == "StartLimitIntervalSec=0"), "it is not started again in the end");
}

/// Goal: no upgrade of packages waits for a cluster. Method: a unit that is ready only once there is a leader is restarted by the package's
/// scripts without waiting for that. systemd itself is not asked: there need be none here.
#[test]
fn a_script_of_the_package_does_not_wait_until_there_is_a_leader() {
    let mut restarts = 0;
    for name in ["deb/postinst", "deb/prerm", "deb/postrm"] {
        let text = text_of(name);
        for line in text.lines().filter(|line| line.contains("systemctl") && line.contains("start ")) {
            assert!(line.contains("systemctl --no-block"), "{name}: {line}");
            restarts += 1;
        }
    }
    assert_eq!(restarts, 1, "an upgrade restarts a member that runs");
}

#[test]
fn the_environment_file_as_it_ships_and_with_all_of_it_said_is_taken() {
    let text = text_of("deb/default");
    let (mut said, brought) = (0, Brought::along());
    let mut command = Command::new(HUSTINGS);
    command.args(["config", "validate"]).env_clear();
    for line in text.lines().filter_map(|line| line.strip_prefix("#HUSTINGS_")) {
        let (name, value) = line.split_once('=').expect("NAME=VALUE");
        command.env(format!("HUSTINGS_{name}"), brought.found_in(value));
        said += 1;
    }
    assert!(said > 4, "the file shows what to set");
    run(&mut command).ok();
}

/// The documents of a file, or of a folder with a `kustomization.yaml`; judged by Kubernetes's own schema, strictly.
fn judge(path: &Path) -> Ended {
    let python = r"
import json, os, sys
import kubernetes_validate, yaml

def documents_of(path):
    if os.path.isfile(path):
        return list(yaml.safe_load_all(open(path)))
    made = yaml.safe_load(open(os.path.join(path, 'kustomization.yaml')))
    assert set(made) <= {'apiVersion', 'kind', 'resources', 'patches'}, made
    found = [document for name in made['resources'] for document in documents_of(os.path.join(path, name))]
    for patch in made.get('patches', []):
        wanted = patch['target']
        [document] = [one for one in found if (one['kind'], one['metadata']['name']) == (wanted['kind'], wanted['name'])]
        for change in yaml.safe_load(patch['patch']):
            *words, end = change['path'].split('/')[1:]
            assert (change['op'], end) == ('add', '-'), change
            at = document
            for word in words:
                at = at[int(word)] if isinstance(at, list) else at[word]
            at.append(change['value'])
    return found

documents = documents_of(sys.argv[1])
for document in documents:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
print(json.dumps(documents))
";
    let judged = run(Command::new("python3").args(["-c", python]).arg(path));
    assert!(
        !judged.stderr.contains("No module named"),
        "there is no kubernetes-validate: pip install kubernetes-validate: {}",
        judged.stderr
    );
    judged
}

fn documents_of(name: &str) -> Vec<Value> {
    serde_json::from_str(&judge(&packaged(name)).ok()).expect("JSON")
}

/// Lets the settings' own reader judge the arguments of each member; gives those of the last.
fn members_are_right(set: &Value) -> Vec<String> {
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let replicas = set["spec"]["replicas"].as_u64().expect("a number");
    let mut last = Vec::new();
    for number in 0..replicas {
        let name = format!("hustings-{number}");
        let arguments = container["args"].as_array().expect("arguments").iter();
        last = arguments.map(|argument| argument.as_str().expect("text").replace("$(POD_NAME)", &name)).collect();
        settings_are_right(&last);
    }
    last
}

#[test]
fn clients_are_asked_for_certificates_where_they_are_mounted() {
    let documents = documents_of("kubernetes-client-certificates");
    let of_kind = |kind: &str| documents.iter().find(|document| document["kind"] == kind).expect("it is there");
    let arguments = members_are_right(of_kind("StatefulSet"));
    assert!(arguments.iter().any(|argument| argument == "--client-cert-auth"), "{arguments:?}");
    // The client shows what is mounted, and nothing else: each file is named below the mount.
    let container = &of_kind("Job")["spec"]["template"]["spec"]["containers"][0];
    let mount = container["volumeMounts"][0]["mountPath"].as_str().expect("text");
    let variables = container["env"].as_array().expect("variables").iter();
    let named = |variable: &Value| variable["value"].as_str().is_some_and(|value| value.starts_with(mount));
    let named: Vec<&str> = variables.filter(|one| named(one)).filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(named, ["HUSTINGS_CACERT", "HUSTINGS_CERT", "HUSTINGS_KEY"]);
    let mut command = Command::new(HUSTINGS);
    command.args(container["args"].as_array().expect("arguments").iter().filter_map(Value::as_str));
    let said = run(command.env("HUSTINGS_CACERT", "/nowhere/ca.crt").env("HUSTINGS_ENDPOINTS", "https://x:1")).failed();
    assert!(said.contains("/nowhere/ca.crt"), "the variables are read: {said}");
}

#[test]
fn kubernetes_takes_the_manifests_and_serve_takes_their_arguments() {
    let documents = documents_of("kubernetes/hustings.yaml");
    let of_kind = |kind: &str| documents.iter().filter(|document| document["kind"] == kind).collect::<Vec<_>>();
    let (services, set) = (of_kind("Service"), of_kind("StatefulSet")[0]);
    assert!(services.iter().any(|service| {
        service["spec"]["clusterIP"] == "None"
            && service["spec"]["publishNotReadyAddresses"] == true
            && service["metadata"]["name"] == set["spec"]["serviceName"]
    }));
    let budget = &of_kind("PodDisruptionBudget")[0]["spec"];
    assert_eq!((&budget["maxUnavailable"], &budget["selector"]), (&Value::from(1), &set["spec"]["selector"]));
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    for (probe, path) in [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        assert_eq!(container[probe]["httpGet"]["path"], path, "{probe}");
    }
    members_are_right(set);
    // The judge can say no.
    let directory = tempfile::tempdir().expect("a directory");
    let wrong = directory.path().join("wrong.yaml");
    let text = text_of("kubernetes/hustings.yaml").replace("maxUnavailable: 1", "maxUnavailabel: 1");
    std::fs::write(&wrong, text).expect("written");
    assert!(judge(&wrong).failed().contains("maxUnavailabel"));
}

#[test]
fn the_containerfile_is_read_and_its_command_is_one_of_ours() {
    let text = text_of("Containerfile").replace("\\\n", " ");
    let known =
        ["FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "ENV", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"];
    let instructions: Vec<(&str, &str)> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(' ').expect("an instruction and what it is given"))
        .collect();
    for (instruction, _) in &instructions {
        assert!(known.contains(instruction), "there is no instruction {instruction}");
    }
    let last = |wanted: &str| {
        instructions.iter().rev().find(|(instruction, _)| *instruction == wanted).expect("it is there").1
    };
    assert_eq!(serde_json::from_str::<Vec<String>>(last("ENTRYPOINT")).expect("JSON"), ["/usr/bin/hustings"]);
    settings_are_right(&serde_json::from_str::<Vec<String>>(last("CMD")).expect("JSON"));
    assert_ne!(last("USER").split(':').next(), Some("0"), "it does not run as root");
    let copied: Vec<&str> = last("COPY").split(' ').collect();
    assert_eq!(copied, ["--from=build", "/source/target/release/hustings", "/usr/bin/hustings"]);
}
