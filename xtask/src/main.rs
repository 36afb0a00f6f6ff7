//! Chores of the repository, run as `cargo xtask CHORE`.
//!
//! A chore is one module with one function; this file only finds it. Read next: the module of the chore.

mod chore;
mod door;
#[cfg(feature = "kube-apiserver")]
mod elections_beside;
mod fast;
mod figures;
mod is_leader;
#[cfg(feature = "kube-apiserver")]
mod kube_apiserver;
#[cfg(feature = "kube-apiserver")]
mod kube_manifests;
#[cfg(feature = "kube-apiserver")]
mod many_elections;
mod newest_etcd;
mod page_in_go;
mod page_stores;
#[cfg(feature = "proto")]
mod proto;
#[cfg(feature = "kube-apiserver")]
mod replays;
#[cfg(feature = "upgrade")]
mod upgrade;

use chore::Outcome;
use std::process::ExitCode;

/// Usage that `cargo xtask` prints when it does not know what to do.
const USAGE: &str = "\
usage: cargo xtask CHORE

chores:
  fast            what most often goes wrong, in two minutes; `.ci/run` looks at everything
  ci              everything, as it is looked at before a change lands: xtask/ci.sh
  fix             mend what can be mended without thinking: lints that know their remedy, and the format
  tidy            papers, arrows between crates, documentation, packages, and what cargo deny and cargo machete say where they are installed
  figures [why | browser | replays | leadership]
                  the figures that a page shows, run again; without a page the same as proving-ground-figures
  proto           compile crates/api/proto into crates/api/src/generated
  proto --check   fail if the committed code is not what `proto` would write
  rolling-upgrade [--old REV] [--protocol NAME]
                  run builds of several versions in one cluster, in every order of upgrade
  replays [--runs N] [--dev]
                  play again what members recorded while they were killed, paused and stopped, under all protocols
  kube-apiserver [--version 1.N.P] [--stay | --manifests]
                  build the real kube-apiserver, run it on a Hustings cluster, let client-go and ours fight for a Lease;
                  or apply the manifests under packaging to it
  many-elections [--elections N] [--dev]
                  what 10,000 elections of 30 processes cost a cluster at rest, and when a killed process is succeeded in all
  elections-beside [--rounds N] [--only STORE] [--kubernetes] [--dev]
                  how soon a released election is led again, beside etcdctl, Curator, consul lock and client-go
  is-leader-beside [--dev]
                  what it costs to ask whether one leads, beside client-go's elector from the Go module proxy
  newest-etcd [--version 3.N.P] [--build-only]
                  build an etcd of today from the Go module proxy, and run the tests of elections at it
  page-in-go      run the lines in Go of docs/tutorials/a-leader-for-your-service.md, with etcd's client from the Go module proxy
  page-stores [DIRECTORY]
                  what the store keeps in memory, beside two page stores: puts, memory, disk, start, reads
  proving-ground-figures [--for DURATION] [--seeds N] [--memory MIB] [--only WORD] [--list]
                  run the commands of the figures in docs/proving-ground.md again and print their rows with the commit
  golden NUMBER   write the bytes of this build into golden/NUMBER, where they do not stand yet; old ones are never changed
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["fast"] => fast::run(),
        ["ci"] => door::ci(),
        ["fix"] => door::fix(),
        ["tidy"] => door::tidy(),
        ["figures", page, rest @ ..] if figures::is_page(page) => figures::of_page(page, rest),
        ["figures" | "proving-ground-figures", rest @ ..] => figures::run(rest),
        ["proto", rest @ ..] => proto(rest),
        ["golden", generation] => golden(generation),
        ["rolling-upgrade", rest @ ..] => rolling_upgrade(rest),
        ["replays", rest @ ..] => with_cluster("replays", rest),
        ["kube-apiserver", rest @ ..] => with_cluster("kube-apiserver", rest),
        ["newest-etcd", rest @ ..] => newest_etcd::run(rest),
        ["page-in-go"] => page_in_go::run(),
        ["page-stores", rest @ ..] => page_stores::run(rest),
        ["is-leader-beside", rest @ ..] => is_leader::run(rest),
        ["elections-beside", rest @ ..] => with_cluster("elections-beside", rest),
        ["many-elections", rest @ ..] => with_cluster("many-elections", rest),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// The crates whose formats have samples under `golden`.
const WITH_FORMATS: [&str; 9] = [
    "hustings-core",
    "hustings-kv",
    "hustings-wal",
    "hustings-node",
    "hustings-raft",
    "hustings-gmt2000",
    "hustings-blazingmq",
    "hustings-zab",
    "hustings-paxos",
];

/// Runs the tests that read samples, and lets them write what is missing first.
fn golden(generation: &str) -> Outcome {
    if generation.parse::<u32>().is_err() {
        return Err(format!("a generation is a number, not {generation:?}"));
    }
    let packages = WITH_FORMATS.iter().flat_map(|name| ["-p", name]);
    chore::run(
        chore::cargo().args(["test", "-q"]).args(packages).arg("of_earlier_builds").env("HUSTINGS_GOLDEN", generation),
    )
}

/// Compiles the declarations; this binary has the compiler.
#[cfg(feature = "proto")]
fn proto(arguments: &[&str]) -> Outcome {
    match arguments {
        [] => proto::write(),
        ["--check"] => proto::check(),
        _ => Err(USAGE.to_owned()),
    }
}

/// Builds this binary again, with the compiler, and runs that.
#[cfg(not(feature = "proto"))]
fn proto(arguments: &[&str]) -> Outcome {
    chore::again_with("proto", "proto", arguments)
}

/// Runs the upgrade; this binary has the clients.
#[cfg(feature = "upgrade")]
fn rolling_upgrade(arguments: &[&str]) -> Outcome {
    upgrade::run(arguments)
}

/// Builds this binary again, with the clients, and runs that.
#[cfg(not(feature = "upgrade"))]
fn rolling_upgrade(arguments: &[&str]) -> Outcome {
    chore::again_with("upgrade", "rolling-upgrade", arguments)
}

/// Runs a chore that needs a cluster; this binary has it.
#[cfg(feature = "kube-apiserver")]
fn with_cluster(chore: &str, arguments: &[&str]) -> Outcome {
    match chore {
        "kube-apiserver" => kube_apiserver::run(arguments),
        "elections-beside" => elections_beside::run(arguments),
        "replays" => replays::run(arguments),
        _ => many_elections::run(arguments),
    }
}

/// Builds this binary again, with the cluster, and runs that.
#[cfg(not(feature = "kube-apiserver"))]
fn with_cluster(chore: &str, arguments: &[&str]) -> Outcome {
    chore::again_with("kube-apiserver", chore, arguments)
}
