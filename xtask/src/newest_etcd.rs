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
    if folder.join("etcd").exists() && folder.join("etcdctl").exists() {
        return Ok(folder);
    }
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let modules = format!(
        "module hustings.test/etcd\n\ngo 1.26.0\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v{version}\n\t\
         go.etcd.io/etcd/etcdctl/v3 v{version}\n)\n"
    );
    write(&folder.join("go.mod"), &modules)?;
    // Names both programs, so that what they need is required.
    let named = "//go:build tools\n\npackage tools\n\nimport (\n\t_ \"go.etcd.io/etcd/etcdctl/v3\"\n\t_ \"go.etcd.io/etcd/server/v3\"\n)\n";
    write(&folder.join("tools.go"), named)?;
    chore::go(&folder, &["mod", "tidy"])?;
    chore::go(&folder, &["build", "-o", "etcdctl", "go.etcd.io/etcd/etcdctl/v3"])?;
    chore::go(&folder, &["build", "-o", "etcd", "go.etcd.io/etcd/server/v3"])?;
    Ok(folder)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
