//! `cargo xtask is-leader-beside`: what it costs to ask whether one leads, here and in client-go, in turns on one machine.

use crate::chore::{self, Outcome, Profile};
use std::process::Command;

/// The newest client-go that was tried.
const CLIENT_GO: &str = "v0.36.3";
const TURNS: usize = 3;

/// Runs the chore: `[--dev]`.
pub fn run(arguments: &[&str]) -> Outcome {
    let profile = match arguments {
        [] => Profile::Release,
        ["--dev"] => Profile::Dev,
        _ => return Err("usage: cargo xtask is-leader-beside [--dev]".into()),
    };
    let folder = chore::target().join("is-leader-beside");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let source = chore::root().join("xtask/elections-beside/is-leader/main.go");
    std::fs::copy(&source, folder.join("main.go")).map_err(|error| format!("{}: {error}", source.display()))?;
    let wanted = ["api", "apimachinery", "client-go"].map(|name| format!("require k8s.io/{name} {CLIENT_GO}\n"));
    let module = format!("module hustings.test/is-leader\n\ngo 1.26.0\n\n{}", wanted.concat());
    std::fs::write(folder.join("go.mod"), module).map_err(|error| format!("go.mod: {error}"))?;
    chore::go(&folder, &["mod", "tidy"])?;
    chore::go(&folder, &["build", "-o", "theirs", "."])?;
    profile.build(&["-p", "hustings-election", "--example", "is_leader"])?;
    for _ in 0..TURNS {
        chore::run(&mut Command::new(profile.folder().join("examples/is_leader")))?;
        chore::run(&mut Command::new(folder.join("theirs")))?;
    }
    Ok(())
}
