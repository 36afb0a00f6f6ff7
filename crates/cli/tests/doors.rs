//! Goal: a newcomer finds a door. Method: read what each published crate says of itself, and what it lets others call.
//!
//! `api.txt` beside each library lists what is written `pub` in it, line by line, so that a change of it is seen in the change that
//! makes it. `HUSTINGS_API=write cargo test -p hustings --test doors` writes the lists anew.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is two floors up")
}

/// All packages of the workspace.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--no-deps"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

/// The packages of ours that are published.
fn published() -> Vec<Value> {
    // `publish = false` is an empty list of registries.
    packages().into_iter().filter(|package| package["publish"].is_null()).collect()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[test]
fn every_published_crate_says_what_it_is() {
    let packages = published();
    assert!(packages.len() >= 20, "only {} packages are published", packages.len());
    for package in &packages {
        let name = text(package, "name");
        for key in ["description", "license", "repository", "rust_version", "readme"] {
            assert!(!text(package, key).is_empty(), "{name} has no `{key}` in its Cargo.toml");
        }
        let keywords = package["keywords"].as_array().expect("keywords");
        // Check the limits of crates.io.
        assert!((1..=5).contains(&keywords.len()), "{name} has {} keywords", keywords.len());
        for keyword in keywords.iter().map(|keyword| keyword.as_str().unwrap_or_default()) {
            let is_plain = keyword.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
            assert!(is_plain && (1..=20).contains(&keyword.len()), "{name} has the keyword {keyword:?}");
        }
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let is_ours = !dependency["path"].is_null() && text(dependency, "kind") != "dev";
            let has_version = text(dependency, "req") != "*";
            assert!(!is_ours || has_version, "{name} needs a version of {}", text(dependency, "name"));
        }
    }
}

/// Goal: whatever is published holds all files that it needs. Method: cargo makes the packages; what they compile to is seen by all
/// other tests, so it is not built again.
#[test]
fn every_published_crate_can_be_packaged() {
    let target = tempfile::tempdir().expect("a place");
    let published = published();
    let names = published.iter().flat_map(|package| ["-p", text(package, "name")]);
    let output = Command::new(env!("CARGO"))
        .args(["package", "--no-verify", "--allow-dirty", "--locked", "--offline", "--quiet", "--target-dir"])
        .arg(target.path())
        .args(names)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let made = std::fs::read_dir(target.path().join("package")).expect("packages").flatten();
    let made = made.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "crate")).count();
    assert_eq!(made, published.len());
}

#[test]
fn every_library_has_a_readme_whose_example_is_compiled() {
    let mut libraries = 0;
    for package in published() {
        let name = text(&package, "name");
        let targets = package["targets"].as_array().expect("targets");
        let Some(library) = targets.iter().find(|target| target["kind"] == serde_json::json!(["lib"])) else {
            continue;
        };
        libraries += 1;
        let source = std::fs::read_to_string(text(library, "src_path")).expect("a library of ours");
        let included = "#[cfg(doctest)]\n#[doc = include_str!(\"../README.md\")]";
        assert!(source.contains(included), "{name}: nobody compiles the example of its README");
        let folder = Path::new(text(&package, "manifest_path")).parent().expect("a manifest lies in a folder");
        let readme = std::fs::read_to_string(folder.join("README.md")).expect("a library of ours has a README");
        assert!(readme.starts_with(&format!("# {name}\n")), "{name}: its README has another title");
        let examples = readme.matches("```rust").count();
        assert_eq!(examples, 1, "{name}: its README has {examples} examples");
        assert!(!readme.contains("ignore"), "{name}: the example is ignored");
    }
    assert!(libraries >= 20, "only {libraries} libraries were seen");
}

#[test]
fn the_tutorial_shows_the_example_that_is_compiled() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("the page is there");
    let example =
        |page: &str| page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).map(str::to_owned);
    let tutorial = example(&read("docs/tutorials/a-leader-for-your-service.md"));
    assert!(tutorial.is_some(), "the tutorial has an example in Rust");
    for page in ["crates/election/README.md", "README.md"] {
        assert_eq!(tutorial, example(&read(page)), "{page}");
    }
}

/// All that is written in Rust below a folder, and the files elsewhere that it takes in by their paths.
fn written(folder: &Path) -> String {
    let mut all = String::new();
    for file in sources(folder) {
        let source = std::fs::read_to_string(&file).expect("a source of ours");
        for path in source.split("#[path = \"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let taken_in = file.parent().expect("it lies in a folder").join(path);
            all.push_str(&std::fs::read_to_string(taken_in).expect("it is there"));
        }
        all.push_str(&source);
    }
    all
}

/// Goal: what nobody uses is not built by anybody. Method: each dependency's name is looked for in what the package says in Rust;
/// one that only the tests of a package name belongs to those.
#[test]
fn every_dependency_is_used_where_it_is_asked_for() {
    let mut unused = Vec::new();
    for package in packages() {
        let folder =
            Path::new(text(&package, "manifest_path")).parent().expect("a manifest lies in a folder").to_owned();
        let (own, all) = (written(&folder.join("src")), written(&folder));
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            if text(dependency, "name") == SWITCHED {
                continue;
            }
            let name = dependency["rename"].as_str().unwrap_or_else(|| text(dependency, "name"));
            let is_used = match text(dependency, "kind") {
                "" => names(&own, name),
                _ => names(&all, name),
            };
            if !is_used {
                unused.push(format!("{}: {name}", text(&package, "name")));
            }
        }
    }
    assert_eq!(unused, Vec::<String>::new());
    assert!(names("use hustings_core::Input;", "hustings-core") && names("use bytes;", "bytes"));
    assert!(!names("use hustings_cores::Input;", "hustings-core") && !names("the bytes of a value", "bytes"));
}

/// The package that is asked for to switch a feature of it on, which another package needs and leaves to its users.
const SWITCHED: &str = "k8s-openapi";

/// Whether a source takes something from a crate: its name may be an ordinary word as well.
fn names(source: &str, dependency: &str) -> bool {
    let word = dependency.replace('-', "_");
    let is_letter = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    source.match_indices(&word).any(|(place, _)| {
        let (before, behind) = (&source[..place], &source[place + word.len()..]);
        let is_taken_whole = before.ends_with("use ") && !is_letter(behind.chars().next());
        !is_letter(before.chars().next_back()) && (behind.starts_with("::") || is_taken_whole)
    })
}

/// The sources below a folder, in order.
fn sources(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("a folder of ours").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.insert(path);
        }
    }
    found
}

/// The `pub` items of a source: items, methods, and fields, each on one line up to its body.
fn open_items(source: &str) -> Vec<String> {
    let mut items = Vec::new();
    // Tests stand last.
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or(source);
    let mut lines = source.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if !line.starts_with("pub ") {
            continue;
        }
        let mut item = line.to_owned();
        let is_field =
            !["fn ", "struct ", "enum ", "trait ", "type ", "const ", "static ", "mod ", "use ", "async ", "macro "]
                .iter()
                .any(|word| line["pub ".len()..].starts_with(word));
        while !is_field && !item.contains(['{', ';']) {
            let Some(more) = lines.next() else { break };
            item.push(' ');
            item.push_str(more);
        }
        // A `use` in braces belongs to the item; a body does not.
        let is_use = line.starts_with("pub use ");
        while is_use && !item.contains(';') {
            let Some(more) = lines.next() else { break };
            item.push(' ');
            item.push_str(more);
        }
        let end = if is_use || is_field { item.len() } else { item.find(" {").unwrap_or(item.len()) };
        items.push(item[..end].trim_end_matches([',', ';']).to_owned());
    }
    items
}

/// The list of a crate, from its folder; what is generated from declarations changes with those.
fn api_of(package: &Path) -> String {
    let folder = package.join("src");
    let mut list = String::new();
    for path in sources(&folder).into_iter().filter(|path| !path.starts_with(folder.join("generated"))) {
        let items = open_items(&std::fs::read_to_string(&path).expect("a source of ours"));
        if !items.is_empty() {
            list.push_str(&format!("{}\n", path.strip_prefix(&folder).expect("it is below").display()));
            items.iter().for_each(|item| list.push_str(&format!("  {item}\n")));
        }
    }
    list
}

#[test]
fn what_applications_call_changes_in_sight() {
    let writes = std::env::var("HUSTINGS_API").is_ok_and(|word| word == "write");
    let mut guarded = 0;
    for package in published() {
        let (name, folder) = (text(&package, "name"), Path::new(text(&package, "manifest_path")).parent());
        let folder = folder.expect("a manifest lies in a folder");
        if !folder.join("src/lib.rs").exists() {
            continue;
        }
        guarded += 1;
        let (path, found) = (folder.join("api.txt"), api_of(folder));
        assert!(found.lines().count() > 5, "{name} lets nobody call anything");
        if writes {
            std::fs::write(&path, &found).expect("the list is written");
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        let (kept, found): (BTreeSet<&str>, BTreeSet<&str>) = (kept.lines().collect(), found.lines().collect());
        let gone: Vec<_> = kept.difference(&found).collect();
        let new: Vec<_> = found.difference(&kept).collect();
        assert!(
            gone.is_empty() && new.is_empty(),
            "what {name} lets others call has changed. Gone: {gone:#?}\nNew: {new:#?}\n\
             If that is meant: HUSTINGS_API=write cargo test -p hustings --test doors"
        );
    }
    assert!(guarded >= 20, "only {guarded} libraries are guarded");
}

#[test]
fn an_item_is_listed_up_to_its_body() {
    let source = "pub use a::{\n    B,\n    C,\n};\npub struct Point {\n    pub x: u8,\n    y: u8,\n}\nimpl Point {\n    pub fn far(\n        \
                  &self,\n    ) -> u8 {\n        0\n    }\n    fn near() {}\n    pub(crate) fn ours() {}\n}\n#[cfg(test)]\nmod tests {\n    \
                  pub fn no() {}\n}\n";
    assert_eq!(
        open_items(source),
        ["pub use a::{ B, C, }", "pub struct Point", "pub x: u8", "pub fn far( &self, ) -> u8"]
    );
}
