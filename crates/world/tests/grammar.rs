//! Goal: the page of the scripts' grammar says all that the parser reads, and nothing else. Method: each row's example is parsed and
//! written again; each word of the parser has a row; the page holds the tables as they are.

use hustings_world::grammar::{GRAMMAR, HEADERS, Sentence, tables};
use hustings_world::parse::{COMMANDS, DISK_FAULTS, EXPECTATIONS};
use hustings_world::{Command, Script};
use std::collections::BTreeSet;
use std::path::Path;

/// The first words of a line, as many as are asked for.
fn beginning(line: &str, words: usize) -> Vec<&str> {
    line.split(' ').take(words).collect()
}

#[test]
fn every_example_is_read_and_written_as_it_stands() {
    for Sentence { form, example, .. } in &GRAMMAR {
        let command = Command::parse(example).unwrap_or_else(|why| panic!("{form}: {why}"));
        assert_eq!(command.to_string(), *example, "{form}");
        assert_eq!(beginning(form, 1), beginning(example, 1), "{form}");
    }
    for Sentence { form, example, .. } in &HEADERS {
        let script = Script::parse(example).unwrap_or_else(|why| panic!("{form}: {why}"));
        assert!(script.commands.is_empty(), "{form} makes the world");
        assert_ne!(script.settings, Script::parse("mark").expect("it is one").settings, "{form} says something");
        let again = Script::parse(&script.to_string()).expect("it is what was written");
        assert_eq!(again.settings, script.settings, "{form}");
    }
}

#[test]
fn every_word_that_the_parser_knows_has_a_row() {
    let has = |words: &[&str]| {
        GRAMMAR.iter().chain(&HEADERS).any(|row| {
            let form: Vec<&str> = row.form.split(' ').collect();
            let fixed: Vec<&str> =
                form.into_iter().filter(|word| !word.starts_with(|c: char| c.is_uppercase())).collect();
            fixed.starts_with(words)
        })
    };
    for word in COMMANDS {
        assert!(has(&[word]), "{word}");
    }
    for word in DISK_FAULTS {
        assert!(has(&["disk", word]), "disk {word}");
    }
    for word in EXPECTATIONS {
        assert!(has(&["expect", word]), "expect {word}");
    }
    let known: BTreeSet<&str> = COMMANDS.into_iter().collect();
    for row in &GRAMMAR {
        assert!(known.contains(beginning(row.form, 1)[0]), "{} is no command", row.form);
    }
}

#[test]
fn the_page_has_the_tables() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scripts.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    assert!(page.ends_with(&tables()), "docs/scripts.md ends with these tables:\n\n{}", tables());
}
