//! `cargo xtask page-stores`: what the store keeps in memory, beside redb and fjall, which would keep it on disk.

use crate::chore;

/// Runs the chore: `[DIRECTORY]`, where the stores' files are made and removed again; the folder of builds if none is named.
pub fn run(arguments: &[&str]) -> chore::Outcome {
    let ([] | [_]) = arguments else { return Err("usage: cargo xtask page-stores [DIRECTORY]".to_owned()) };
    let manifest = chore::root().join("xtask/page-stores/Cargo.toml");
    let folder = chore::target().join("page-stores");
    let data = arguments.first().map_or_else(|| folder.join("data"), Into::into);
    std::fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
    // A workspace of its own, and so a folder of its own: its lock would rebuild what the product's has built.
    let mut command = chore::cargo();
    command.args(["run", "-q", "--release", "--manifest-path"]).arg(manifest).arg("--").arg(data);
    chore::run(command.env("CARGO_TARGET_DIR", folder))
}
