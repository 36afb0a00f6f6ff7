//! `cargo xtask proving-ground-figures`: runs the commands of the figures in `docs/proving-ground.md` again and prints their rows;
//! `cargo xtask figures PAGE` those of another page.
//!
//! The page is the list: a row's last column is the command, and `the same` is that of the row above. A command that takes
//! half an hour there can be run for less; then the row says so, because the command that is printed is the one that was run.

use crate::chore::{self, Profile};
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The page of the figures, from the root of the repository.
const PAGE: &str = "docs/proving-ground.md";

/// The part of the page that is run, and for how long.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// Values of `--for`, `--seeds` and `--memory` instead of the page's.
    instead: Vec<(String, String)>,
    /// Text that a row must contain to be run.
    only: Option<String>,
    /// Rows are told and not run.
    lists: bool,
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    what: String,
    words: Vec<String>,
}

/// Runs the commands of the page and writes their figures.
///
/// # Errors
/// The page cannot be read, an argument is unknown, or a command could not be started.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let wanted = Wanted::parse(arguments)?;
    let page = std::fs::read_to_string(chore::root().join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
    let rows: Vec<Row> = rows_of(&page).into_iter().filter(|row| wanted.wants(row)).collect();
    if wanted.lists {
        rows.iter().for_each(|row| println!("{}: {}", row.what, row.words.join(" ")));
        return Ok(());
    }
    Profile::Release.build(&["-p", "hustings"])?;
    println!("At {}, release profile.\n\n| what | figure | command |\n|---|---|---|", commit()?);
    for row in &rows {
        let words = wanted.replaced(&row.words);
        println!("| {} | {} | `{}` |", row.what, figure(&words)?, words.join(" "));
    }
    Ok(())
}

/// A page whose figures one command prints, and that command: the program, and the words behind it.
struct Page {
    name: &'static str,
    file: &'static str,
    words: &'static [&'static str],
}

/// Pages whose figures are printed by tests, or by a chore of their own.
const PAGES: [Page; 4] = [
    Page {
        name: "why",
        file: "docs/why.md",
        words: &["test", "-p", "hustings", "--test", "why", "--", "--nocapture", "--test-threads", "1"],
    },
    Page {
        name: "browser",
        file: "docs/dashboard.md and docs/lab.md",
        words: &["test", "-p", "hustings", "--test", "dashboard", "--test", "lab", "--", "--nocapture"],
    },
    Page { name: "replays", file: "docs/why.md", words: &["xtask", "replays", "--runs", "20"] },
    Page { name: "leadership", file: "docs/leadership.md", words: &["xtask", "elections-beside"] },
];

/// Whether the first word names a page, and not a flag of those of the proving ground.
pub fn is_page(word: &str) -> bool {
    !word.starts_with("--")
}

/// Prints the figures of another page than that of the proving ground.
///
/// # Errors
/// There is no such page, or its command ended badly.
pub fn of_page(name: &str, rest: &[&str]) -> Result<(), String> {
    let Some(page) = PAGES.iter().find(|page| page.name == name) else {
        let names: Vec<&str> = PAGES.iter().map(|page| page.name).collect();
        return Err(format!(
            "`{name}`: give one of {}, or nothing for {PAGE}; docs/performance.md names its own",
            names.join(", ")
        ));
    };
    println!("At {}, for {}:", commit()?, page.file);
    chore::run(chore::cargo().args(page.words).args(rest))
}

impl Wanted {
    fn parse(arguments: &[&str]) -> Result<Wanted, String> {
        let mut wanted = Wanted::default();
        let mut rest = arguments.iter();
        while let Some(flag) = rest.next() {
            let mut value =
                || rest.next().map(|value| (*value).to_owned()).ok_or_else(|| format!("{flag} wants a value"));
            match *flag {
                "--list" => wanted.lists = true,
                "--only" => wanted.only = Some(value()?),
                "--for" | "--seeds" | "--memory" => wanted.instead.push(((*flag).to_owned(), value()?)),
                other => return Err(format!("`{other}`: there is --for, --seeds, --memory, --only and --list")),
            }
        }
        Ok(wanted)
    }

    fn wants(&self, row: &Row) -> bool {
        self.only.as_ref().is_none_or(|word| row.what.contains(word) || row.words.contains(word))
    }

    fn replaced(&self, words: &[String]) -> Vec<String> {
        let mut replaced = words.to_vec();
        for at in 1..replaced.len() {
            if let Some((_, value)) = self.instead.iter().find(|(flag, _)| *flag == replaced[at - 1]) {
                replaced[at].clone_from(value);
            }
        }
        replaced
    }
}

/// The rows of the page's figures that `hustings` makes, each command once.
fn rows_of(page: &str) -> Vec<Row> {
    let figures = page.split("\n## Figures").nth(1).unwrap_or_default();
    let section = figures.split("\n## ").next().unwrap_or_default();
    let mut rows: Vec<Row> = Vec::new();
    for line in section.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, what, _, command, _] = cells[..] else { continue };
        let command = command.trim_matches('`');
        if let (true, Some(row)) = (command == "the same", rows.last_mut()) {
            let _ = write!(row.what, "; {what}");
        } else if command.starts_with("hustings ") {
            let words = command.split_whitespace().map(str::to_owned).collect();
            rows.push(Row { what: what.to_owned(), words });
        }
    }
    rows
}

/// The command's first lines, how it ended, and what it took.
fn figure(words: &[String]) -> Result<String, String> {
    let begun = Instant::now();
    let arguments = words.get(1..).unwrap_or_default();
    let program = Profile::Release.folder().join("hustings");
    let output = Command::new(&program).args(arguments).current_dir(chore::root()).stderr(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect();
    let code = output.status.code().map_or_else(|| "a signal".to_owned(), |code| code.to_string());
    let said = said.join("; ").replace('|', "/");
    Ok(format!("{said}; exit code {code}, {:.0} s", begun.elapsed().as_secs_f64()))
}

/// The commit, and whether something was changed since.
fn commit() -> Result<String, String> {
    let said = |arguments: &[&str]| -> Result<String, String> {
        let output = Command::new("git").args(arguments).output().map_err(|error| format!("git: {error}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changed = if said(&["status", "--porcelain"])?.is_empty() { "" } else { ", with changes" };
    Ok(format!("commit {}{changed}", said(&["rev-parse", "--short", "HEAD"])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "# Page\n\n## Figures\n\n| what | figure | command |\n|---|---|---|\n\
        | seeds | 5 | `hustings simulate --for 30m --minutes 5` |\n| steps | 6 | the same |\n\
        | a test | 7 | `cargo test -p x` |\n\n## Next\n\n| no | row | `hustings check` |\n";

    /// Goal: every command of the table is run once, and no other. Method: a page with two tables.
    #[test]
    fn the_page_is_the_list() {
        let rows = rows_of(SAMPLE);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(rows[0].what, "seeds; steps");
        assert_eq!(rows[0].words.join(" "), "hustings simulate --for 30m --minutes 5");
    }

    /// Goal: what was run is what is printed. Method: half an hour becomes a minute.
    #[test]
    fn counts_come_from_flags() {
        let wanted = Wanted::parse(&["--for", "1m"]).expect("both are known");
        assert_eq!(wanted.replaced(&rows_of(SAMPLE)[0].words)[3], "1m");
        assert!(Wanted::parse(&["--far", "1m"]).is_err(), "a typo is told");
        assert!(Wanted::parse(&["--for"]).is_err(), "a flag wants its value");
    }

    /// Goal: the page itself has commands. Method: it.
    #[test]
    fn the_page_has_figures() {
        let page = include_str!("../../docs/proving-ground.md");
        assert!(rows_of(page).len() > 10, "{:?}", rows_of(page));
    }
}
