//! `cargo xtask page-in-go`: what the tutorial says in Go, typed as it stands.
//!
//! The lines of `docs/tutorials/a-leader-for-your-service.md` become a program with etcd's own client, from the Go module proxy. It runs at
//! a cluster of this build, and must print what the page says that it prints.

use crate::chore::{self, Outcome, Profile};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const PAGE: &str = "docs/tutorials/a-leader-for-your-service.md";
/// The port of this cluster, in the place of the page's, at which a cluster may run already.
const PORT: &str = "52379";
const CLIENT: &str = "v3.6.1";

/// A cluster that ends with this value.
struct Cluster(Child);

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may have ended by itself, and nobody waits for it twice.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the chore, which takes no arguments.
pub fn run() -> Outcome {
    let page = std::fs::read_to_string(chore::root().join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
    let program = between(&page, "```go\n", "```").ok_or_else(|| format!("{PAGE} has no lines in Go"))?;
    let promised: Vec<&str> =
        between(&page, "It prints `", "`. ").ok_or("the page does not say what it prints")?.split("` and `").collect();
    let folder = chore::target().join("page-in-go");
    let data = folder.join("data");
    if data.exists() {
        std::fs::remove_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
    }
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    write(&folder.join("main.go"), &program.replace(":2379\"", &format!(":{PORT}\"")))?;
    write(
        &folder.join("go.mod"),
        &format!("module hustings.test/page\n\ngo 1.24\n\nrequire go.etcd.io/etcd/client/v3 {CLIENT}\n"),
    )?;
    chore::go(&folder, &["mod", "tidy"])?;
    chore::go(&folder, &["build", "-o", "page", "."])?;

    Profile::Dev.build(&["-p", "hustings"])?;
    let hustings = Profile::Dev.folder().join("hustings");
    let mut up = Command::new(&hustings);
    up.args(["up", "--nodes", "1", "--base-port", PORT, "--data-dir"]).arg(&data).stdout(Stdio::null());
    let _cluster = Cluster(up.spawn().map_err(|error| format!("{}: {error}", hustings.display()))?);
    chore::run(
        Command::new(&hustings)
            .args(["status", "--endpoints", &format!("127.0.0.1:{PORT}"), "--wait", "30s"])
            .stdout(Stdio::null()),
    )?;
    let said = Command::new(folder.join("page")).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&said.stdout);
    print!("{text}");
    match said.status.success() && text.lines().eq(promised.iter().copied()) {
        true => Ok(()),
        false => Err(format!("the page says that it prints {promised:?}; {}", String::from_utf8_lossy(&said.stderr))),
    }
}

/// The text between these two, where the first stands first.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let start = text.find(before)? + before.len();
    let length = text[start..].find(after)?;
    Some(&text[start..start + length])
}

fn write(path: &Path, text: &str) -> Outcome {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
