//! Goal: programs can rely on the objects of `-o json`.
//! Method: each command of `docs/json.md` is run in the page's order against a real member; what it says has the shape of the example that
//! stands below it, and every kind that the source can say stands on the page.

use crate::support::{Ended, HUSTINGS, Running, program, run};
use hustings_testbed::{Cluster, wait_for};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    std::fs::read_to_string(page).expect("the page is there")
}

/// The page's commands, each with its example.
fn examples(page: &str) -> Vec<(String, Value)> {
    let mut lines = page.lines();
    let mut examples = Vec::new();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("$ hustings ") else { continue };
        let mut said = String::new();
        for line in lines.by_ref().take_while(|line| *line != "```") {
            said.push_str(line);
        }
        let said = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{command}: {error}: {said}"));
        examples.push((command.to_owned(), said));
    }
    examples
}

/// A field whose names are kinds of what was counted.
const COUNTS: &str = ".faults";

/// The place where two objects differ in shape: names of fields, and kinds of values. An absent value (null, an empty list) has any shape.
fn misfit(place: &str, example: &Value, said: &Value) -> Option<String> {
    match (example, said) {
        (Value::Null, _) | (_, Value::Null) => None,
        (Value::Object(one), Value::Object(other)) => {
            let (names, others): (BTreeSet<_>, BTreeSet<_>) = (one.keys().collect(), other.keys().collect());
            if names != others && !place.ends_with(COUNTS) {
                return Some(format!("{place}: the page has {names:?}, and the command said {others:?}"));
            }
            let both = one.iter().filter_map(|(name, value)| Some((name, value, other.get(name)?)));
            both.into_iter().find_map(|(name, value, said)| misfit(&format!("{place}.{name}"), value, said))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.first().zip(other.first()).and_then(|(one, other)| misfit(&format!("{place}[0]"), one, other))
        }
        (one, other) if std::mem::discriminant(one) == std::mem::discriminant(other) => None,
        (one, other) => Some(format!("{place}: the page has {one}, and the command said {other}")),
    }
}

/// A command of the page, for this member.
fn ready(words: &[String], member: &str, directory: &Path) -> Command {
    let mut command = Command::new(HUSTINGS);
    command.args(words).env("HUSTINGS_ENDPOINTS", member).env("HUSTINGS_USER", "").current_dir(directory);
    command
}

/// The first object that a command printed, on either output.
fn first_object(ended: &Ended) -> Option<String> {
    let said = format!("{}{}", ended.stdout, ended.stderr);
    said.lines().find(|line| line.starts_with('{')).map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_each_command_says_has_the_shape_on_the_page() {
    let mut cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let member = cluster.nodes[0].client.clone();
    let directory = cluster.directory().to_owned();
    let data_dir = cluster.nodes[0].data_dir.display().to_string();
    let save = Command::new(HUSTINGS)
        .args(["snapshot", "save", "s.snap", "--endpoints", &member])
        .current_dir(&directory)
        .output();
    assert!(save.is_ok_and(|ended| ended.status.success()), "a snapshot to look at");
    let storm = "scenarios/leader-crash";
    std::fs::create_dir_all(directory.join(storm)).expect("a directory of storms");
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(storm).join("storm.txt");
    std::fs::copy(ours, directory.join(storm).join("storm.txt")).expect("a storm");
    let examples = examples(&page());
    assert!(examples.len() > 15, "the page has examples");
    let mut going_on = Vec::new();
    for (command, example) in examples {
        let store = format!("hustings://{}", crate::support::address(&member));
        let words = command.replace("DATA-DIR", &data_dir).replace("STORE", &store);
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        // These two look into a directory in which nobody lives.
        if ["inspect", "recover"].contains(&words[0].as_str()) {
            cluster.kill(0);
        }
        let mut asking = ready(&words, &member, &directory);
        let line = match words[0].as_str() {
            // They go on; who leads still does when it is asked who.
            "watch" | "elect" => {
                let mut running = Running::start(&mut asking);
                let line = running.line_with("apiVersion");
                going_on.push(running);
                line
            }
            // A leader writes down that it leads once it does.
            "why" => wait_for("the leadership to be written down", async || {
                Some(run(&mut asking)).filter(|ended| ended.code == Some(0)).as_ref().and_then(first_object)
            })
            .await
            .expect("it is"),
            _ => {
                let ended = run(&mut asking);
                first_object(&ended).unwrap_or_else(|| panic!("{words:?}: {ended:?}"))
            }
        };
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{words:?}: {error}: {line}"));
        assert_eq!((&said["apiVersion"], &said["kind"]), (&"v1".into(), &example["kind"]), "{command}: {said}");
        assert_eq!(misfit("", &example, &said), None, "{command}");
        // Virtual time: what docs/regions.md calls exactly repeatable is.
        if example["kind"] == "Regions" {
            assert_eq!(said, example, "{command}");
        }
    }
}

#[test]
fn every_kind_that_a_command_can_say_is_on_the_page() {
    fn files(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).expect("it is there") {
            let path = entry.expect("it is readable").path();
            if path.is_dir() { files(&path, found) } else { found.push(path) }
        }
    }
    let mut sources = Vec::new();
    for crate_of_commands in ["cli", "prove", "maelstrom"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(crate_of_commands).join("src");
        files(&folder, &mut sources);
    }
    let texts = sources.iter().map(|path| std::fs::read_to_string(path).expect("text"));
    let kinds_in = |text: &str, mark: &str| -> Vec<String> {
        text.split(mark).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
    };
    let said: BTreeSet<String> = texts.flat_map(|text| kinds_in(&text, "\"kind\": \"")).collect();
    let told: BTreeSet<String> = kinds_in(&page(), "\"kind\":\"").into_iter().collect();
    assert!(said.len() > 15, "{said:?}");
    assert_eq!(said, told);
}
