//! Compiles our protobuf declarations into the committed modules of `hustings-api`.
//!
//! No `protoc` and no build script: `protox` parses, `tonic-prost-build` writes messages and services, `pbjson-build`
//! the JSON mapping of the same messages. One file per package, messages first, then services, then JSON.
//! Read next: `crates/api/src/lib.rs`, which says why the mapping is as it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::chore::{Outcome, run};

/// Package of the declarations, and the file that it becomes.
const PACKAGES: [(&str, &str); 6] = [
    ("authpb", "authpb.rs"),
    ("mvccpb", "mvccpb.rs"),
    ("etcdserverpb", "etcdserverpb.rs"),
    ("v3electionpb", "v3electionpb.rs"),
    ("v3lockpb", "v3lockpb.rs"),
    ("grpc.health.v1", "health.rs"),
];

/// The declarations; imports are found beside them.
const DECLARATIONS: [&str; 7] =
    ["kv.proto", "auth.proto", "rpc.proto", "users.proto", "election.proto", "lock.proto", "health.proto"];

/// Writes the modules anew.
pub fn write() -> Outcome {
    for (path, text) in compile()? {
        fs::write(&path, text).map_err(at(&path))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

/// Fails if a committed module is not what `write` would write.
pub fn check() -> Outcome {
    for (path, text) in compile()? {
        if fs::read_to_string(&path).map_err(at(&path))? != text {
            return Err(format!("{} is stale: run `cargo xtask proto` and commit", path.display()));
        }
    }
    Ok(())
}

/// Compiles to (path of the committed module, its text).
fn compile() -> Result<Vec<(PathBuf, String)>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let api = root.join("crates/api");
    let scratch = std::env::temp_dir().join(format!("hustings-proto-{}", std::process::id()));
    fs::create_dir_all(&scratch).map_err(at(&scratch))?;
    let outcome = compile_into(&scratch, &root, &api);
    fs::remove_dir_all(&scratch).map_err(at(&scratch))?;
    outcome
}

fn compile_into(scratch: &Path, root: &Path, api: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let descriptors = protox::compile(DECLARATIONS, [api.join("proto")]).map_err(|error| format!("{error:?}"))?;
    let mut encoded = Vec::new();
    for file in &descriptors.file {
        // Comments are for the first generator; the second one reads descriptors without them as well.
        let mut file = file.clone();
        file.source_code_info = None;
        prost::encoding::message::encode(1, &file, &mut encoded);
    }

    tonic_prost_build::configure()
        .bytes(".")
        .out_dir(scratch)
        .compile_fds(descriptors)
        .map_err(|error| format!("messages and services: {error}"))?;
    pbjson_build::Builder::new()
        .register_descriptors(&encoded)
        .map_err(|error| format!("descriptors for JSON: {error}"))?
        .preserve_proto_field_names()
        .ignore_unknown_fields()
        .out_dir(scratch)
        .build(&[".mvccpb", ".authpb", ".etcdserverpb", ".v3electionpb", ".v3lockpb"])
        .map_err(|error| format!("JSON: {error}"))?;

    PACKAGES
        .iter()
        .map(|(package, file)| Ok((api.join("src/generated").join(file), module(scratch, root, package)?)))
        .collect()
}

/// Joins messages, services and JSON of one package, and formats them as `cargo fmt` will.
fn module(scratch: &Path, root: &Path, package: &str) -> Result<String, String> {
    let path = scratch.join(format!("{package}.rs"));
    let messages = fs::read_to_string(&path).map_err(at(&path))?;
    // A package without JSON has no such file.
    let json = fs::read_to_string(scratch.join(format!("{package}.serde.rs"))).unwrap_or_default();
    // `peerURLs` becomes `peer_ur_ls` by the generators' rule; only the Rust name is mended, wire and JSON keep theirs.
    fs::write(&path, format!("{messages}\n{json}").replace("_ur_ls", "_urls")).map_err(at(&path))?;
    run(Command::new("rustfmt").args(["--edition", "2024", "--config-path"]).arg(root).arg(&path))?;
    fs::read_to_string(&path).map_err(at(&path))
}

/// Names the place where a file operation failed.
fn at(path: &Path) -> impl Fn(std::io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}
