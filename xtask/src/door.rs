//! The commands that a contributor types most: everything (`ci`), what mends itself (`fix`), and whether the house is in order (`tidy`).

use crate::chore::{self, Outcome};
use std::process::{Command, Stdio};

/// Everything, as it is looked at before a change lands.
///
/// # Errors
/// Something is wrong; it was said above.
pub fn ci() -> Outcome {
    chore::run(Command::new("bash").arg("xtask/ci.sh").current_dir(chore::root()))
}

/// Mends lints that know their remedy, then the format. Uncommitted changes stay uncommitted.
///
/// # Errors
/// Something is left that only a person can mend.
pub fn fix() -> Outcome {
    let clippy = ["clippy", "--fix", "--allow-dirty", "--allow-staged", "--workspace", "--all-targets", "-q"];
    chore::run(chore::cargo().args(clippy).args(["--", "-D", "warnings"]))?;
    chore::run(chore::cargo().args(["fmt", "--all"]))
}

/// Tools that are no part of this repository: each is asked where it is installed, and named where it is not.
const TOOLS: [(&str, &[&str]); 2] =
    [("deny", &["check", "licenses", "bans", "sources"]), ("machete", &["--skip-target-dir"])];

/// Whether the house is in order: format, papers, arrows, documentation, packages, dependencies.
///
/// # Errors
/// The first look that failed.
pub fn tidy() -> Outcome {
    chore::run(chore::cargo().args(["fmt", "--all", "--check"]))?;
    chore::run(
        chore::cargo().args(["test", "-q", "-p", "hustings", "--test", "papers", "--test", "house", "--test", "doors"]),
    )?;
    chore::run(documentation(&mut chore::cargo()))?;
    chore::run(&mut packages()?)?;
    for (tool, arguments) in TOOLS {
        if is_installed(tool) {
            chore::run(chore::cargo().arg(tool).args(arguments))?;
        } else {
            println!("cargo {tool} was not asked: `cargo install cargo-{tool}` installs it");
        }
    }
    Ok(())
}

/// The documentation of all crates, in which no link may lead nowhere.
fn documentation(cargo: &mut Command) -> &mut Command {
    cargo
        .args(["doc", "--workspace", "--no-deps", "--quiet"])
        .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")
}

/// Packages every crate that may be published, each after those that it needs. Nothing is compiled for it.
///
/// # Errors
/// A crate's manifest cannot be read.
fn packages() -> Result<Command, String> {
    let mut cargo = chore::cargo();
    cargo.args(["package", "--workspace", "--no-verify", "--allow-dirty", "--quiet", "--exclude", "xtask"]);
    let crates = chore::root().join("crates");
    let unreadable = |error: std::io::Error| format!("{}: {error}", crates.display());
    for folder in std::fs::read_dir(&crates).map_err(unreadable)?.flatten() {
        let manifest = std::fs::read_to_string(folder.path().join("Cargo.toml")).map_err(unreadable)?;
        if manifest.lines().any(|line| line == "publish = false") {
            cargo.arg("--exclude").arg(format!("hustings-{}", folder.file_name().display()));
        }
    }
    Ok(cargo)
}

/// Whether cargo knows this subcommand.
fn is_installed(tool: &str) -> bool {
    let mut asked = chore::cargo();
    let asked = asked.args([tool, "--help"]).stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}
