//! Goal: `up --tls` gives a cluster that speaks TLS, and what it says to try works. Method: real processes, etcdctl, and the
//! certificates that `up` makes.

use super::{etcdctl, hustings};
use crate::support::{Ended, HUSTINGS, Running, run, text};
use hustings_testbed::{free_ports, wait_for};
use hustings_tls::made::{Authority, Subject};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Goal: a client that shows the wrong certificate, or none, to a whole cluster is told what is wrong and how to mend it, for any request;
/// once for each member. Method: three members under a CA, a certificate of another CA, and none.
#[test]
fn a_cluster_says_that_it_misses_a_certificate_whatever_is_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let base = free_ports(6).expect("six ports in a row are free");
    let mut command = Command::new(HUSTINGS);
    command.args(["up", "--tls", "--client-cert-auth", "--base-port", &base.to_string(), "--data-dir"]);
    let mut up = Running::start(command.arg(directory.path()));
    up.line_with("→ Leader");
    let ca = directory.path().join("tls/ca.crt");
    let endpoints: Vec<String> = (0..3).map(|number| format!("https://127.0.0.1:{}", base + 2 * number)).collect();
    let other = Authority::new("another").expect("a CA");
    other.issue(&Subject::new("mallory")).expect("issued").write(directory.path(), "mallory").expect("written");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let pair = ["--cert".to_owned(), path("mallory.crt"), "--key".to_owned(), path("mallory.key")];
    for (shown, what) in [(&[][..], "none"), (&pair[..], "of another CA")] {
        for words in ["put key value", "get key", "status", "why", "bench put --total 1", "member list"] {
            let trusted = ["--endpoints", &endpoints.join(","), "--cacert", text(&ca)];
            let said = run(Command::new(HUSTINGS).args(words.split(' ')).args(trusted).args(shown));
            assert_eq!(said.code, Some(5), "{words}, certificate {what}: {said:?}");
            let both = format!("{}{}", said.stdout, said.stderr);
            assert!(both.contains("asks for a certificate") && both.contains("--cert and --key"), "{words}: {both}");
            assert!(!both.contains("fatal alert"), "{words}: {both}");
        }
    }
}

/// Runs the line that `up` says to try: a variable of the environment, and a command.
fn tried(line: &str) -> Ended {
    let mut words = line.split_whitespace().skip(1);
    let variable = words.next().and_then(|word| word.split_once('=')).expect("a variable");
    assert_eq!(words.next(), Some("etcdctl"), "{line}");
    run(etcdctl().env(variable.0, variable.1).args(words))
}

/// Goal: with `--client-cert-auth` the certificate that `up` makes for root is of use. Method: what `up` says to try works; without
/// the certificate nobody is let in; and once users count it is the user root, which no password was given for.
#[tokio::test]
async fn the_certificate_of_root_lets_in_and_is_the_user_root() {
    let directory = tempfile::tempdir().expect("a directory");
    let base = free_ports(2).expect("two ports in a row are free");
    let arguments = ["up", "--client-cert-auth", "--nodes", "1", "--base-port", &base.to_string(), "--data-dir"];
    let said = run(Command::new(HUSTINGS).args(arguments).arg(directory.path())).failed();
    assert!(said.contains("give --tls"), "{said}");
    // Nothing was founded.
    let mut up = Running::start(Command::new(HUSTINGS).args(arguments).arg(directory.path()).arg("--tls"));
    let line = up.line_with("try   ");
    up.line_with("→ Leader");
    assert_eq!(tried(&line).ok().trim(), "OK", "what it says to try works");
    let path = |name: &str| text(&directory.path().join("tls").join(name)).to_owned();
    let endpoint = format!("https://127.0.0.1:{base}");
    let believing = ["--cacert".to_owned(), path("ca.crt")];
    let said = hustings(&["get", "greeting", "--endpoints", &endpoint], &believing).failed();
    assert!(said.to_lowercase().contains("certificate"), "{said}");
    let shown: Vec<String> =
        believing.into_iter().chain(["--cert".into(), path("root.crt"), "--key".into(), path("root.key")]).collect();
    let as_root = |words: &str| {
        let words: Vec<&str> = words.split(' ').chain(["--endpoints", &endpoint]).collect();
        hustings(&words, &shown)
    };
    for words in ["user add root --no-password", "user grant-role root root", "auth enable"] {
        as_root(words).ok();
    }
    assert!(as_root("user list").ok().contains("root"), "the certificate says who asks");
    up.signal(Signal::TERM);
    assert_eq!(up.end(), Some(0));
}

#[tokio::test]
async fn one_command_gives_a_cluster_in_tls_and_elections_stand_on_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let base = free_ports(6).expect("six ports in a row are free");
    let mut command = Command::new(HUSTINGS);
    command.args(["up", "--tls", "--base-port", &base.to_string(), "--data-dir"]).arg(directory.path());
    let mut up = Running::start(&mut command);
    let line = up.line_with("try   ");
    up.line_with("→ Leader");
    assert_eq!(tried(&line).ok().trim(), "OK", "what it says to try works");
    let ca = directory.path().join("tls/ca.crt");
    let mode = |name: &str| {
        let path = directory.path().join("tls").join(name);
        std::fs::metadata(path).map(|found| found.permissions().mode() & 0o777).ok()
    };
    assert_eq!([mode("ca.crt"), mode("n1.crt")], [Some(0o644); 2], "certificates are public");
    assert_eq!([mode("ca.key"), mode("n1.key")], [Some(0o600); 2], "keys are not");
    assert_eq!(mode("root.crt"), None, "nobody asks for it");
    let endpoints = format!("https://127.0.0.1:{base}");
    let tls = ["--cacert".to_owned(), text(&ca).to_owned()];
    let read = hustings(&["get", "greeting", "--endpoints", &endpoints], &tls).ok();
    assert_eq!(read.trim(), "hello");
    wait_for("three members that have said where they are", async || {
        let shown = hustings(&["status", "--endpoints", &endpoints], &tls).stdout;
        (shown.matches("127.0.0.1:").count() == 3).then_some(())
    })
    .await
    .expect("one names them all");

    // A tethered process is succeeded at once when it is killed: through TLS, too.
    let store = format!("hustings://127.0.0.1:{base},127.0.0.1:{}/billing?cacert={}", base + 2, text(&ca));
    let elect = |id: &str| {
        let mut command = Command::new(HUSTINGS);
        command.args(["elect", "billing", "--store", &store, "--id", id, "--tether", "--ttl", "60s"]);
        Running::start(&mut command)
    };
    let mut holder = elect("holder");
    holder.line_with("leads");
    let mut successor = elect("successor");
    let observe = ["observe", "billing", "--once", "--store", &store];
    assert!(hustings(&observe, &[]).ok().contains("holder"));
    wait_for("two candidates", async || {
        let range = etcdctl()
            .args(["--endpoints", &endpoints, "--cacert", text(&ca), "get", "--prefix", "billing/", "--keys-only"])
            .output()
            .ok()?;
        (String::from_utf8_lossy(&range.stdout).lines().filter(|line| !line.is_empty()).count() == 2).then_some(())
    })
    .await
    .expect("both stand");
    holder.signal(Signal::KILL);
    successor.line_with("leads");
    up.signal(Signal::INT);
    assert_eq!(up.end(), Some(0));
}
