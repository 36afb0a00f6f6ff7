//! `hustings play NAME`: why quorum reads and wall clocks are not enough, a broken form and what is in its place side by side.

use anyhow::Result;
use hustings_console::exit::{Code, Exit};
use hustings_lease::stories::{self, Run, Story, Verdict};
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;

/// Width of the left column, in characters.
const COLUMN: usize = 78;

/// The story of this name.
pub(super) fn named(name: &str) -> Option<Story> {
    stories::all().into_iter().find(|story| story.name == name)
}

/// The names of all stories, in the order in which they are best read.
pub(super) fn names() -> String {
    stories::all().iter().map(|story| story.name).collect::<Vec<_>>().join(", ")
}

/// The name of a story that is nearest to this word.
pub(super) fn nearest(word: &str) -> &'static str {
    let names: Vec<&str> = stories::all().iter().map(|story| story.name).collect();
    hustings_world::parse::nearest(word, &names)
}

/// Shows a story. A repaired form that does not hold is a failure, a broken one is the point.
pub(super) fn show(story: &Story, is_json: bool) -> Result<()> {
    if is_json {
        let told =
            |told: &Run| json!({ "subject": told.subject, "lines": told.lines, "verdict": told.verdict.to_string() });
        let Story { name, must_hold, broken, repaired } = story;
        println!(
            "{}",
            json!({
                "apiVersion": "v1", "kind": "Story", "name": name, "must_hold": must_hold,
                "broken": told(broken), "repaired": told(repaired),
            })
        );
    } else {
        print!("{}", side_by_side(story));
    }
    match &story.repaired.verdict {
        Verdict::Holds(_) => Ok(()),
        Verdict::Broken(what) => Err(Exit::with(Code::Failed, format!("{}: {what}", story.name))),
    }
}

fn side_by_side(story: &Story) -> String {
    let mut text = format!("{}: {}\n\n", story.name, story.must_hold);
    let lines = |told: &Run| -> Vec<String> {
        let (subject, verdict) = (told.subject.to_owned(), told.verdict.to_string());
        [subject, "-".repeat(told.subject.chars().count())]
            .into_iter()
            .chain(told.lines.clone())
            .chain([verdict])
            .collect()
    };
    let (left, right) = (lines(&story.broken), lines(&story.repaired));
    for place in 0..left.len().max(right.len()) {
        let of = |side: &Vec<String>| side.get(place).cloned().unwrap_or_default();
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<COLUMN$} | {}", of(&left), of(&right));
    }
    text
}

/// The files of a story and what they are to hold, if this folder is named after one.
pub(super) fn files_of(folder: &Path) -> Option<[(std::path::PathBuf, String); 2]> {
    let story = named(folder.file_name()?.to_str()?)?;
    Some(
        [("broken.txt", &story.broken), ("repaired.txt", &story.repaired)]
            .map(|(file, told)| (folder.join(file), format!("# {}: {}\n\n{told}", story.name, story.must_hold))),
    )
}
