//! `cargo xtask newest-etcd`: our candidates at an etcd of today.
//!
//! PyPI's etcd is 3.5.1, which the tests of every day use. This builds another version from the Go module proxy, once for a
//! version (it needs Go and some minutes of a core), and runs the same tests of elections and of `hustings run` at it.

use crate::chore;
use std::path::{Path, PathBuf};

const VERSION: &str = "3.7.3";

/// Runs the chore: `[--version 3.N.P] [--build-only]`.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let (version, only_builds) = chore::version_and(arguments, VERSION, "--build-only")
        .ok_or("usage: cargo xtask newest-etcd [--version 3.N.P] [--build-only]")?;
    let folder = built(version)?;
    println!("HUSTINGS_TEST_ETCD_DIR={}", folder.display());
    if only_builds {
        return Ok(());
    }
    let mut test = chore::cargo();
    test.env("HUSTINGS_TEST_ETCD_DIR", &folder);
    test.args(["test", "-p", "hustings", "--test", "elections", "--test", "run_on_every_store", "--"]);
    chore::run(test.args(["at_etcd", "over_etcd", "--nocapture"]))
}

/// The folder with `etcd` and `etcdctl`, which are built if they are not there yet.
fn built(version: &str) -> Result<PathBuf, String> {
    let folder = chore::target().join("etcd").join(version);
    if folder.join("etcd").exists() {
        return Ok(folder);
    }
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // The proxy has the server of some versions and not their etcdctl.
    if let Err(error) = build(&folder, version, &["etcdctl", "server"]) {
        eprintln!("{error}\nwithout etcdctl:");
        build(&folder, version, &["server"])?;
    }
    Ok(folder)
}

/// Builds these programs of etcd's repository; the server is called `etcd`, and stands last, so that all are there where it is.
fn build(folder: &Path, version: &str, programs: &[&str]) -> Result<(), String> {
    let required = programs.iter().map(|program| format!("\tgo.etcd.io/etcd/{program}/v3 v{version}\n"));
    let required: String = required.collect();
    let modules = format!("module hustings.test/etcd\n\ngo 1.26.0\n\nrequire (\n{required})\n");
    write(&folder.join("go.mod"), &modules)?;
    // Names the programs, so that what they need is required.
    let named: String = programs.iter().map(|program| format!("\t_ \"go.etcd.io/etcd/{program}/v3\"\n")).collect();
    write(&folder.join("tools.go"), &format!("//go:build tools\n\npackage tools\n\nimport (\n{named})\n"))?;
    chore::go(folder, &["mod", "tidy"])?;
    for program in programs {
        let file = if *program == "server" { "etcd" } else { program };
        chore::go(folder, &["build", "-o", file, &format!("go.etcd.io/etcd/{program}/v3")])?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
