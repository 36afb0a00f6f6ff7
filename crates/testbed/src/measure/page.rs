//! `measure page`: runs the commands that a page of figures shows, and puts what they print in the place of what stood there: [`run`].
//!
//! ````text
//!   <!-- figures: end-of-a-leader -->
//!   <!-- chart file="performance/keys.svg" title="After kill -9" x="--keys" y="median, ms" unit="ms" -->
//!   ```sh
//!   measure failover --keys 0
//!   measure failover --keys 1000000
//!   ```
//!
//!   everything from here on is replaced
//!   <!-- end -->
//! ````
//!
//! The page is the list of what is measured; the commit that it names is the one checked out where this is run, of which the programs beside
//! this one should be built. Commands of one block that print the same table are rows of one table. A page that is
//! measured for hours keeps what it has when it is cut off: it is written after each block.

mod chart;
mod tables;

use anyhow::{Context, Result, bail};
use chart::Chart;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use tables::Said;

/// A block of the page.
#[derive(Clone, PartialEq, Debug)]
struct Block {
    name: String,
    charts: Vec<Chart>,
    commands: Vec<String>,
    /// Lines of the page that what was printed stands in.
    replaced: std::ops::Range<usize>,
}

/// Runs the blocks of a page whose names contain a word, all without one, and writes the page.
///
/// # Errors
/// The page cannot be read or is not one; or commands failed, which the page then says in their place.
pub(crate) fn run(page: &Path, only: Option<&str>, etcd: Option<&str>) -> Result<()> {
    let read = || std::fs::read_to_string(page).with_context(|| format!("reading {}", page.display()));
    let names: Vec<String> = blocks(&read()?)?.into_iter().map(|block| block.name).collect();
    let wanted: Vec<&String> = names.iter().filter(|name| only.is_none_or(|word| name.contains(word))).collect();
    if wanted.is_empty() {
        bail!("{} has no figures of that name; it has {}", page.display(), names.join(", "));
    }
    let mut failed = Vec::new();
    for name in wanted {
        let block_of = |text: &str| {
            let found = blocks(text)?.into_iter().find(|block| block.name == *name);
            found.with_context(|| format!("{} has no figures {name} any more", page.display()))
        };
        let build = of_which_build()?;
        let (mut said, failed_before) = (Vec::new(), failed.len());
        for command in &block_of(&read()?)?.commands {
            eprintln!("{name}: {command}");
            said.push(match output(command, etcd) {
                Ok(output) => Said::by(command, &output),
                Err(why) => {
                    failed.push(command.clone());
                    Said::by(command, &format!("failed: {why:#}"))
                }
            });
        }
        // Read again: somebody may have written it meanwhile, and the block before has moved the lines.
        let text = read()?;
        let block = block_of(&text)?;
        // A chart of a part would be another chart: the one before stays.
        for chart in block.charts.iter().filter(|_| failed.len() == failed_before) {
            let drawn = chart.draw(&said).with_context(|| format!("the chart {} of {name}", chart.file))?;
            let path = page.with_file_name(&chart.file);
            std::fs::create_dir_all(path.parent().context("a chart stands in a directory")?)?;
            std::fs::write(&path, drawn).with_context(|| format!("writing {}", path.display()))?;
        }
        std::fs::write(page, with(&text, &block, &build, &said))
            .with_context(|| format!("writing {}", page.display()))?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("{} of the commands failed, and the page says so: {}", failed.len(), failed.join("; ")),
    }
}

/// The blocks of a page, in its order.
fn blocks(page: &str) -> Result<Vec<Block>> {
    let mut found: Vec<Block> = Vec::new();
    let mut open: Option<Block> = None;
    let mut is_command = false;
    for (number, line) in page.lines().enumerate() {
        let place = number + 1;
        match (&mut open, line.trim()) {
            (None, line) => {
                let Some(name) = line.strip_prefix("<!-- figures: ").and_then(|rest| rest.strip_suffix(" -->")) else {
                    continue;
                };
                open = Some(Block { name: name.to_owned(), charts: Vec::new(), commands: Vec::new(), replaced: 0..0 });
            }
            (Some(block), "```sh") if block.replaced.start == 0 => is_command = true,
            (Some(block), "```") if is_command => {
                is_command = false;
                block.replaced = place..place;
            }
            (Some(block), line) if is_command => block.commands.push(line.to_owned()),
            (Some(block), line) if line.starts_with("<!-- chart ") => {
                block.charts.push(Chart::parse(line).with_context(|| format!("line {place}"))?);
            }
            (Some(block), "<!-- end -->") => {
                if block.commands.is_empty() {
                    bail!("line {place}: the figures {:?} have no command", block.name);
                }
                block.replaced.end = number;
                found.extend(open.take());
            }
            (Some(_), line) if line.starts_with("<!-- figures: ") => {
                bail!("line {place}: the figures before have no <!-- end -->");
            }
            (Some(_), _) => {}
        }
    }
    match open {
        Some(block) => bail!("the figures {:?} have no <!-- end -->", block.name),
        None => Ok(found),
    }
}

/// The page with what was printed in the block's place.
fn with(page: &str, block: &Block, build: &str, said: &[Said]) -> String {
    let lines: Vec<&str> = page.lines().collect();
    let mut text = lines[..block.replaced.start].join("\n");
    // Writing to a string does not fail.
    let _ = write!(text, "\n\n{build}\n\n{}\n", tables::shown(said).trim_end());
    for chart in &block.charts {
        let _ = write!(text, "\n![{}]({})\n", chart.title, chart.file);
    }
    text.push('\n');
    text.push_str(&lines[block.replaced.end..].join("\n"));
    text.push('\n');
    text
}

/// The words that a command prints; this program is `measure` to it, and what lies beside it can be called, too.
fn output(command: &str, etcd: Option<&str>) -> Result<String> {
    let own = std::env::current_exe()?;
    let beside = own.parent().context("a program lies in a directory")?;
    let path = format!("{}:{}", beside.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("PATH", path).env("BINARY", beside.join("hustings")).stderr(Stdio::inherit());
    if let Some(etcd) = etcd {
        shell.env("ETCD", etcd);
    }
    let output = shell.output().with_context(|| format!("running {command}"))?;
    if !output.status.success() {
        bail!("{command} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stdout));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The commit, whether something was changed since, and the day.
fn of_which_build() -> Result<String> {
    let said = |program: &str, arguments: &[&str]| -> Result<String> {
        let output = Command::new(program).args(arguments).output().with_context(|| format!("running {program}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // Pages do not change what is measured; this one does change.
    let code = ["status", "--porcelain", "--", "crates", "Cargo.toml", "Cargo.lock"];
    let changed = if said("git", &code)?.is_empty() { "" } else { " with changes" };
    let (commit, day) = (said("git", &["rev-parse", "--short", "HEAD"])?, said("date", &["-I"])?);
    Ok(format!("Commit {commit}{changed}, {day}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n\n```sh\nnot one of them\n```\n\n<!-- figures: one -->\n\
        <!-- chart file=\"a.svg\" title=\"A\" x=\"--keys\" y=\"ms\" unit=\"ms\" -->\n```sh\nmeasure one --keys 1\n\
        measure one --keys 2\n```\nold\n<!-- end -->\nprose\n";

    /// Goal: what stood there is replaced, and nothing else. Method: a page with one block.
    #[test]
    fn the_page_is_the_list_and_keeps_its_words() {
        let found = blocks(PAGE).expect("it is one");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].commands, ["measure one --keys 1", "measure one --keys 2"]);
        let said = |command: &str, figure: &str| Said::by(command, &format!("| ms |\n|---|\n| {figure} |\n"));
        let said = [said(&found[0].commands[0], "7"), said(&found[0].commands[1], "8")];
        let text = with(PAGE, &found[0], "Commit abc.", &said);
        assert!(!text.contains("old") && text.contains("Commit abc."), "{text}");
        assert!(text.ends_with("![A](a.svg)\n\n<!-- end -->\nprose\n"), "{text}");
        assert!(text.contains("| --keys 1 | 7 |\n| --keys 2 | 8 |"), "{text}");
        // What it wrote, it reads again, and writes the same.
        let again = blocks(&text).expect("it is one");
        assert_eq!(with(&text, &again[0], "Commit abc.", &said), text);
    }

    #[test]
    fn a_page_that_is_broken_is_told_where() {
        for (page, what) in [
            ("<!-- figures: a -->\n```sh\nx\n```\n", "have no <!-- end -->"),
            ("<!-- figures: a -->\n<!-- end -->\n", "line 2: the figures \"a\" have no command"),
            ("<!-- figures: a -->\n<!-- figures: b -->\n", "line 2: the figures before"),
            ("<!-- figures: a -->\n<!-- chart file=\"x\" -->\n", "line 2"),
        ] {
            let told = format!("{:#}", blocks(page).expect_err("it is broken"));
            assert!(told.contains(what), "{told}");
        }
    }
}
