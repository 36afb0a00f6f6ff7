//! Goal: shells complete this program's commands, and `man` knows each of them.
//! Method: what `hustings completions` and `manual` write, read by bash and by man itself.

use crate::support::{HUSTINGS, hustings, run};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The commands below this one, as its help names them.
fn commands_below(words: &[String]) -> Vec<Vec<String>> {
    let help = run(Command::new(HUSTINGS).args(words).arg("--help")).ok();
    let Some((_, listed)) = help.split_once("Commands:\n") else { return Vec::new() };
    let names = listed.lines().take_while(|line| !line.is_empty()).filter_map(|line| {
        let is_name = line.starts_with("  ") && !line.starts_with("   ");
        line.split_whitespace().next().filter(|name| is_name && *name != "help")
    });
    let mut found = Vec::new();
    for name in names {
        let words: Vec<String> = words.iter().cloned().chain([name.to_string()]).collect();
        let below = commands_below(&words);
        found.push(words);
        found.extend(below);
    }
    found
}

#[test]
fn every_command_has_a_page_that_man_reads_without_a_warning() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("text");
    hustings(&["manual", path]).ok();
    let mut expected: BTreeSet<String> = ["hustings.1".to_string()].into();
    let commands = commands_below(&[]);
    assert!(commands.len() > 50, "help names the commands: {commands:?}");
    expected.extend(commands.iter().map(|words| format!("hustings-{}.1", words.join("-"))));
    let pages = std::fs::read_dir(directory.path()).expect("it was written");
    let pages: BTreeSet<String> = pages.flatten().map(|page| page.file_name().into_string().expect("text")).collect();
    assert_eq!(pages, expected);
    for program in ["man", "lexgrog"] {
        let is_there = Command::new(program).arg("--version").output().is_ok();
        assert!(is_there, "there is no {program}: apt-get install -y man-db groff-base");
    }
    for page in &pages {
        let path = directory.path().join(page);
        let named = run(Command::new("lexgrog").arg(&path)).ok();
        assert!(named.contains(" - "), "whatis would not find {page}: {named}");
        let shown = read_by_man(&path);
        assert!(shown.contains("Examples:"), "{shown}");
    }
    let broken = directory.path().join("broken.1");
    std::fs::write(&broken, ".TH broken 1\n.SH NAME\nbroken \\- a page\n.frobnicate\n").expect("written");
    let said = run(&mut man(&broken));
    assert!(said.stderr.contains("frobnicate"), "man warns of what is wrong: {said:?}");
}

fn man(page: &Path) -> Command {
    let mut command = Command::new("man");
    command.args(["--warnings=mac", "--local-file", "-Tutf8"]).arg(page);
    command.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "100").env_remove("MAN_KEEP_FORMATTING");
    command
}

fn read_by_man(page: &Path) -> String {
    let ended = run(&mut man(page));
    assert_eq!(ended.stderr, "", "{}", page.display());
    ended.ok()
}

#[test]
fn bash_completes_commands_and_flags() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("hustings.bash");
    std::fs::write(&script, hustings(&["completions", "bash"]).ok()).expect("written");
    run(Command::new("bash").arg("-n").arg(&script)).ok();
    let completed = |words: &[&str]| {
        let typed = words.join(" ");
        let last = words.len() - 1;
        let ask = format!(
            "source {}; COMP_WORDS=({typed}); COMP_CWORD={last}; _hustings hustings '{}' '{}'; echo ${{COMPREPLY[@]}}",
            script.display(),
            words[last],
            words[last - 1],
        );
        run(Command::new("bash").args(["--norc", "-c", &ask])).ok()
    };
    assert_eq!(completed(&["hustings", "mem"]).trim(), "member");
    assert_eq!(completed(&["hustings", "member", "promo"]).trim(), "promote");
    assert_eq!(completed(&["hustings", "serve", "--snapshot-c"]).trim(), "--snapshot-count");
    for (shell, words) in [("zsh", "#compdef hustings"), ("fish", "complete -c hustings")] {
        let script = hustings(&["completions", shell]).ok();
        assert!(script.contains(words) && script.contains("promote"), "{shell}");
    }
    assert_eq!(hustings(&["completions", "abacus"]).code, Some(2));
}
